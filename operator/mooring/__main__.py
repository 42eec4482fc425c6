"""The command line: `mooring`, or `python -m mooring`."""

import errno
import sys
from io import TextIOWrapper
from typing import Any, Final

import click
from click.exceptions import NoSuchCommand
from click.shell_completion import CompletionItem

from mooring import __version__
from mooring.process.importing import import_module_quickly

_COMMANDS: Final = {
    "run": "Run the scheduler.",
    "simulate": "Show where pods would run, and why, without changing anything.",
    "test": "Run the policy tests in PATHs, files or folders.",
    "explain": "Explain why a pod runs on its node, or what it waits for.",
    "status": "Show whether Mooring is installed and works, and what is wrong.",
    "top": "Show queues, rates and causes of pending pods, live.",
    "ui": "Open the page of the scheduler in a browser, until Ctrl-C.",
    "shadow": "Compare profiles in mode Shadow with what was bound.",
    "rebalance": "Plan which running pods to move, and what each move gains.",
    "queues": "Show who uses, borrows and lends how much, as a tree of queues.",
    "gpus": "Show the GPU cards and devices of every node and who has them.",
    "profile": "Check and compare profiles.",
    "convert": "Convert policies and queues of other schedulers to Mooring's.",
    "plugin": "Start a plugin of your own.",
    "crds": "Print Mooring's CustomResourceDefinitions as YAML.",
    "completion": "Print a script that completes commands in a shell.",
    "version": "Print Mooring's version.",
}


_NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_BAD_INPUT: Final = 2


class _Commands(click.Group):
    """Imports a command only when it is used, because some commands need slow packages."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; if there is no space for its output, print a line and exit with 2."""
        try:
            return super().invoke(ctx)
        except OSError as error:
            if error.errno not in _NO_SPACE or error.filename is not None:
                raise
            why = (error.strerror or "no space").lower()
            click.echo(f"error: the answer cannot be written: {why}", err=True)
            ctx.exit(_BAD_INPUT)

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return [*_COMMANDS]

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module = import_module_quickly(f"mooring.cli.{cmd_name}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([*_COMMANDS.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands and options that begin with `incomplete`; import no command."""
        found = [
            CompletionItem(name, help=text)
            for name, text in _COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return found + click.Command.shell_complete(self, ctx, incomplete)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the arguments name; raise NoSuchCommand with similar names."""
        try:
            return super().resolve_command(ctx, args)
        except NoSuchCommand as unknown:
            raise NoSuchCommand(unknown.command_name, None, [*_COMMANDS], ctx) from None


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
    if isinstance(sys.stdout, TextIOWrapper):  # its encoding may not have every character
        sys.stdout.reconfigure(errors="backslashreplace")


if __name__ == "__main__":
    main(prog_name="mooring")
