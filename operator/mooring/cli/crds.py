"""The command `mooring crds`: prints the CustomResourceDefinitions for `kubectl apply`."""

from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import Final

import click

from mooring.policy.crd import render


def _queues() -> str:
    return files("mooring.quota").joinpath("queues.yaml").read_text()


_CRDS: Final[Mapping[str, Callable[[], str]]] = {"queues": _queues, "schedulingprofiles": render}


@click.command(
    epilog="""\b
Example:
  mooring crds | kubectl apply -f -"""
)
@click.argument("names", metavar="[NAME]...", nargs=-1, type=click.Choice(list(_CRDS)))
def crds(names: tuple[str, ...]) -> None:
    """Print Mooring's CustomResourceDefinitions as YAML.

    NAME is queues or schedulingprofiles; without NAME, both are printed.
    """
    click.echo("---\n".join(_CRDS[name]() for name in names or _CRDS), nl=False)
