"""The command line: `mooring`, or `python -m mooring`."""

from importlib import import_module
from typing import Final

import click
from click.exceptions import NoSuchCommand

from mooring import __version__

__all__ = ["main"]

_COMMANDS: Final = (
    "run",
    "simulate",
    "test",
    "explain",
    "top",
    "ui",
    "shadow",
    "gpus",
    "profile",
    "convert",
    "plugin",
    "crds",
    "completion",
    "version",
)


class _Commands(click.Group):
    """Imports a command when it is used, because only `run` needs the slow import of a client."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """Return the commands in the order of the help text."""
        return [*_COMMANDS]

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of this name."""
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = getattr(import_module(f"mooring.cli.{cmd_name}"), cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command named by the arguments, else NoSuchCommand with similar names."""
        try:
            return super().resolve_command(ctx, args)
        except NoSuchCommand as unknown:
            raise NoSuchCommand(unknown.command_name, None, _COMMANDS, ctx) from None


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="""\b
Examples:
  mooring profile check profiles/     # is a policy valid?
  mooring simulate cluster.json       # what would it decide?
  mooring explain web-5d8f -n shop    # why is the pod pending?
  source <(mooring completion bash)   # complete commands and names""",
)
@click.version_option(__version__, prog_name="mooring", message="%(prog)s %(version)s")
def main() -> None:
    """Mooring: a Kubernetes scheduler, configured by custom resources.

    Exit codes: 0 success, 1 the answer is no, 2 wrong usage or bad input.
    """


if __name__ == "__main__":
    main(prog_name="mooring")
