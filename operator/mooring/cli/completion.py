"""`mooring completion`."""

from typing import Final

import click
from click.shell_completion import ShellComplete, get_completion_class

__all__ = ["completion"]

_SHELLS: Final = ("bash", "zsh", "fish")
_PROGRAM: Final = "mooring"
_VARIABLE: Final = "_MOORING_COMPLETE"
"""The script calls the program with this variable set, and click answers instead of a command."""


@click.command(
    short_help="Print a script that completes commands in a shell.",
    epilog="""\b
Examples:
  source <(mooring completion bash)
  mooring completion zsh > "${fpath[1]}/_mooring"
  mooring completion fish > ~/.config/fish/completions/mooring.fish""",
)
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print a script for SHELL that completes commands, options, their values and files.

    The program must be on the PATH as mooring.
    """
    kind: type[ShellComplete] | None = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"click cannot complete in {shell}")
    click.echo(kind(context.find_root().command, {}, _PROGRAM, _VARIABLE).source())
