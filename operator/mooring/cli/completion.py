"""The command `mooring completion`, and completions for `kubectl mooring`."""

import sys
from importlib import import_module
from typing import Final

import click
from click.shell_completion import ShellComplete, get_completion_class

_SHELLS: Final = ("bash", "zsh", "fish")
_PROGRAM: Final = "mooring"
_VARIABLE: Final = "_MOORING_COMPLETE"
"""The environment variable that a shell sets to ask click for completions."""
_FILES_TOO: Final = 0
_NO_FILES: Final = 4
"""A directive of cobra, printed after the completions: the shell must not add names of files. With
`_FILES_TOO` it may add them."""


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
    """Print a script for SHELL that completes commands, options, their values, files and names.

    Names of pods, pod groups, namespaces and profiles are those of the cluster of the kubeconfig.
    The program must be on the PATH as mooring. `kubectl mooring` is completed by kubectl's own
    completion, if kubectl_complete-mooring is on the PATH too.
    """
    kind: type[ShellComplete] | None = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"click cannot complete in {shell}")
    click.echo(kind(context.find_root().command, {}, _PROGRAM, _VARIABLE).source())


def for_kubectl() -> None:
    """Print completions of the last command-line argument, for `kubectl_complete-mooring`.

    Each line has a value, a tab and the value's help; the last line is a directive of cobra.
    """
    *words, incomplete = sys.argv[1:] or [""]
    main: click.Command = import_module("mooring.__main__").main
    found = ShellComplete(main, {}, _PROGRAM, _VARIABLE).get_completions(words, incomplete)
    for item in found:
        if item.type == "plain":
            click.echo("\t".join(filter(None, (item.value, item.help))))
    is_file = any(item.type in ("file", "dir") for item in found)
    click.echo(f":{_FILES_TOO if is_file else _NO_FILES}")
