"""The command `mooring version`: prints the version of this installation."""

import click

from mooring import __version__
from mooring.cli.console import output_option, print_json


@click.command(
    epilog="""\b
Examples:
  mooring version
  mooring version -o json"""
)
@output_option("text", "json")
def version(output: str) -> None:
    """Print Mooring's version."""
    if output == "json":
        print_json({"version": __version__})
    else:
        click.echo(f"mooring {__version__}")
