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
from mooring.kube.api_resources import ELASTIC_QUOTA, QUEUE, SIGS_ELASTIC_QUOTA
from mooring.kube.client import ApiClient
from mooring.kube.config import load_connection
from mooring.kube.errors import ForbiddenError, KubeError, explain
from mooring.model.fields import name_of, namespace_of
from mooring.quota.model.elastic_quota import parse_elastic_quota
from mooring.quota.model.queue import Queue, parse_queue
from mooring.quota.status.queue_status import queue_documents
from mooring.simulate.manifests import InputError

_AMOUNTS: Final = ("nominal", "used", "borrowed", "lent")
_GRANT: Final = "the ClusterRole mooring-explain grants it"
_Document = dict[str, Any]
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
    once a second. An ElasticQuota is shown by the name of its namespace; ElasticQuotas of
    Koordinator are shown by their own names. With QUEUE it shows only this queue and the queues
    below it. There is a table for each resource; docs/queues.md explains its columns.

    Exits with 0 if every queue shown is in force, with 1 if a queue is not in force, and with 2 if
    the queues cannot be read.
    """
    with mistakes_reported():
        found = asyncio.run(_read(kubeconfig, context, name))
    if output == "json":
        print_json({"queues": found})
    else:
        _print(printable(found))
    sys.exit(DONE if all(queue["ready"] for queue in found) else NO)


async def _read(kubeconfig: str | None, context: str | None, top: str | None) -> list[_Document]:
    agent = f"mooring-queues/{__version__}"
    try:
        connection = await load_connection(kubeconfig, context, user_agent=agent)
        async with ApiClient(connection) as client:
            queues = [parse_queue(raw) for raw in (await client.list_all(QUEUE)).items]
            elastic_quotas = await _elastic_quotas(client)
    except ForbiddenError as error:
        raise InputError(f"{error}; {_GRANT}") from None
    except KubeError as error:
        raise InputError(explain(error)) from None
    found = queue_documents({queue.name: queue for queue in queues}, elastic_quotas, top)
    if top is not None and not found:
        raise InputError(f"there is no Queue {top}")
    return found


async def _elastic_quotas(client: ApiClient) -> dict[str, Queue]:
    try:
        for kind in (ELASTIC_QUOTA, SIGS_ELASTIC_QUOTA):
            if kind.plural in await client.served_in(kind.group, kind.version):
                return {
                    f"{namespace_of(raw)}/{name_of(raw)}": parse_elastic_quota(raw)
                    for raw in (await client.list_all(kind)).items
                }
    except ForbiddenError as error:
        note(f"ElasticQuotas are not shown: {error}; {_GRANT}")
    return {}


def _print(found: Iterable[Mapping[str, Any]]) -> None:
    rows = defaultdict[str, list[list[str]]](list)
    for queue in found:
        known = (queue[field] for field in ("waiting", "share"))
        counts = ["-" if each is None else str(each) for each in known]
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
