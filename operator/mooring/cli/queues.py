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
from mooring.kube.api_resources import ELASTIC_QUOTA, QUEUE
from mooring.kube.client import ApiClient
from mooring.kube.config import load_connection
from mooring.kube.errors import ForbiddenError, KubeError, explain
from mooring.quota.model.elastic_quota import parse_elastic_quota
from mooring.quota.status.queue_status import queue_documents
from mooring.simulate.manifests import InputError

_AMOUNTS: Final = ("nominal", "used", "borrowed", "lent")
_GRANT: Final = "the ClusterRole mooring-explain grants it"
_Raw = dict[str, Any]
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

    Reads the Queues, the ElasticQuotas and their statuses from the cluster of the kubeconfig; the
    user must be allowed to list them (ClusterRole mooring-explain). Mooring writes the statuses
    once a second. An ElasticQuota has the name of its namespace. With QUEUE it shows only this
    queue and the queues below it. There is a table for each resource; docs/queues.md explains its
    columns.

    Exits with 0 if every queue shown is in force, with 1 if a queue is not in force, and with 2 if
    the queues cannot be read.
    """
    with mistakes_reported():
        found = _documents(*asyncio.run(_read(kubeconfig, context)), name)
    if output == "json":
        print_json({"queues": found})
    else:
        _print(printable(found))
    sys.exit(DONE if all(queue["ready"] for queue in found) else NO)


async def _read(kubeconfig: str | None, context: str | None) -> tuple[list[_Raw], list[_Raw]]:
    """Return the Queues and the ElasticQuotas."""
    agent = f"mooring-queues/{__version__}"
    try:
        connection = await load_connection(kubeconfig, context, user_agent=agent)
        async with ApiClient(connection) as client:
            return (await client.list_all(QUEUE)).items, await _elastic_quotas(client)
    except ForbiddenError as error:
        raise InputError(f"{error}; {_GRANT}") from None
    except KubeError as error:
        raise InputError(explain(error)) from None


async def _elastic_quotas(client: ApiClient) -> list[_Raw]:
    """Return the ElasticQuotas; none, with a note, if the user may not list them."""
    group, version = ELASTIC_QUOTA.group, ELASTIC_QUOTA.version
    try:
        if ELASTIC_QUOTA.plural in await client.served_in(group, version):
            return (await client.list_all(ELASTIC_QUOTA)).items
    except ForbiddenError as error:
        note(f"ElasticQuotas are not shown: {error}; {_GRANT}")
    return []


def _documents(
    queues: Iterable[_Raw], elastic_quotas: Iterable[_Raw], top: str | None
) -> list[dict[str, Any]]:
    """Return the queues as JSON values; raise InputError if there is no queue `top`."""
    named = {
        raw["metadata"]["name"]: (
            (raw.get("spec") or {}).get("parent") or "",
            raw.get("status") or {},
        )
        for raw in queues
    }
    parsed = {
        f"{raw['metadata']['namespace']}/{raw['metadata']['name']}": parse_elastic_quota(raw)
        for raw in elastic_quotas
    }
    found = queue_documents(named, parsed, top)
    if top is not None and not found:
        raise InputError(f"there is no Queue {top}")
    return found


def _print(found: Iterable[Mapping[str, Any]]) -> None:
    """Print a table for each resource, and then which queues are not in force."""
    rows = defaultdict[str, list[list[str]]](list)
    for queue in found:
        counts = [str(_shown(queue[field])) for field in ("waiting", "share")]
        for each in queue["resources"]:
            amounts = [each[amount] for amount in _AMOUNTS]
            kind = "" if queue["kind"] == "Queue" else f" ({queue['kind']})"
            name = "  " * queue["depth"] + queue["name"] + kind
            rows[each["name"]].append([name, *amounts, *counts])
    for number, resource in enumerate(sorted(rows)):
        click.echo("\n" * (number > 0) + resource)
        print_table(("QUEUE", *_NUMBERS), rows[resource], numbers=_NUMBERS)
    wrong = [queue for queue in found if not queue["ready"]]
    for queue in wrong:
        print_prose(f"NOT READY  {queue['name']}: {queue['message']}")
    if not rows and not wrong:
        note("no queue limits a resource; docs/queues.md says how one does")


def _shown(value: object) -> object:
    return "-" if value is None else value
