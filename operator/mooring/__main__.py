"""The command line: `mooring`, or `python -m mooring`."""

from importlib import import_module
from typing import Final

import click

__all__ = ["main"]

_COMMANDS: Final = (
    "run",
    "simulate",
    "explain",
    "gpus",
    "profile",
    "convert",
    "plugin",
    "crds",
    "version",
)


class _Commands(click.Group):
    """Imports a command when it is used, because only `run` needs the slow import of a client."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """The commands in the order of the help text."""
        return [*_COMMANDS]

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name."""
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = getattr(import_module(f"mooring.cli.{cmd_name}"), cmd_name)
        return command


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Mooring: a Kubernetes scheduler, configured by custom resources.

    Exit codes: 0 success, 1 the answer is no, 2 wrong usage or bad input.
    """


if __name__ == "__main__":
    main(prog_name="mooring")
