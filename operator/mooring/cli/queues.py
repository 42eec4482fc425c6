"""The command `mooring queues`: shows the tree of queues with their quotas and usage."""

import asyncio
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final

import click

from mooring import __version__
from mooring.cli.console import (
    DONE,
    NO,
    connection_options,
    mistakes_reported,
    note,
    output_option,
    print_json,
    print_prose,
    print_table,
    printable,
)
from mooring.kube.api_resources import QUEUE
from mooring.kube.client import ApiClient
from mooring.kube.config import load_connection
from mooring.kube.errors import KubeError, explain
from mooring.quota.status.queue_status import queue_documents
from mooring.simulate.manifests import InputError

_AMOUNTS: Final = ("nominal", "used", "borrowed", "lent")
_NUMBERS: Final = (*map(str.upper, _AMOUNTS), "WAITING", "SHARE")


@click.command(
    short_help="Show who uses, borrows and lends how much, as a tree of queues.",
    epilog="""\b
Examples:
  mooring queues
  mooring queues research
  mooring queues -o json""",
)
@click.argument("name", required=False, metavar="[QUEUE]")
@connection_options
@output_option("table", "json")
def queues(name: str | None, kubeconfig: str | None, context: str | None, output: str) -> None:
    """Show who uses, borrows and lends how much, as a tree of queues.

    Reads the Queues and their statuses from the cluster of the kubeconfig; the user must be allowed
    to list queues.scheduling.mooring.dev. Mooring writes the statuses once a second. With QUEUE it
    shows only this queue and the queues below it. There is a table for each resource;
    docs/queues.md explains its columns.

    Exits with 0 if every queue shown is in force, with 1 if a queue is not in force, and with 2 if
    the queues cannot be read.
    """
    with mistakes_reported():
        found = _documents(asyncio.run(_read(kubeconfig, context)), name)
    if output == "json":
        print_json({"queues": found})
    else:
        _print(printable(found))
    sys.exit(DONE if all(queue["ready"] for queue in found) else NO)


async def _read(kubeconfig: str | None, context: str | None) -> list[dict[str, Any]]:
    agent = f"mooring-queues/{__version__}"
    try:
        connection = await load_connection(kubeconfig, context, user_agent=agent)
        async with ApiClient(connection) as client:
            return (await client.list_all(QUEUE)).items
    except KubeError as error:
        raise InputError(explain(error)) from None


def _documents(raws: Iterable[Mapping[str, Any]], top: str | None) -> list[dict[str, Any]]:
    """Return the queues as JSON values; raise InputError if there is no queue `top`."""
    named = {
        raw["metadata"]["name"]: (
            (raw.get("spec") or {}).get("parent") or "",
            raw.get("status") or {},
        )
        for raw in raws
    }
    if top is not None and top not in named:
        raise InputError(f"there is no Queue {top}")
    return queue_documents(named, top)


def _print(found: Iterable[Mapping[str, Any]]) -> None:
    """Print a table for each resource, and then which queues are not in force."""
    rows = defaultdict[str, list[list[str]]](list)
    for queue in found:
        counts = [str(_shown(queue[field])) for field in ("waiting", "share")]
        for each in queue["resources"]:
            amounts = [each[amount] for amount in _AMOUNTS]
            rows[each["name"]].append(["  " * queue["depth"] + queue["name"], *amounts, *counts])
    for number, resource in enumerate(sorted(rows)):
        click.echo("\n" * (number > 0) + resource)
        print_table(("QUEUE", *_NUMBERS), rows[resource], numbers=_NUMBERS)
    for queue in found:
        if not queue["ready"]:
            print_prose(f"NOT READY  {queue['name']}: {queue['message']}")
    if not rows:
        note("no queue limits a resource; docs/queues.md says how one does")


def _shown(value: object) -> object:
    return "-" if value is None else value
