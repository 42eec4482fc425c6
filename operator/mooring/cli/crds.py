"""The command `mooring crds`: prints the CustomResourceDefinitions for `kubectl apply`."""

import click

from mooring.policy.crd import render


@click.command(
    epilog="""\b
Example:
  mooring crds | kubectl apply -f -"""
)
def crds() -> None:
    """Print Mooring's CustomResourceDefinitions as YAML."""
    click.echo(render(), nl=False)
