"""`mooring explain`."""

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode, urlsplit
from urllib.request import urlopen

import click

from mooring.cli.console import NO, mistakes_reported, output_option, print_json, print_table
from mooring.simulate.manifests import InputError

__all__ = ["explain"]

_SECONDS: Final = 10.0
_MOST_NODES: Final = 3


@click.command(
    epilog="""\b
Examples:
  kubectl -n mooring-system port-forward deploy/mooring 10251 &
  mooring explain web-5d8f -n team-a
  mooring explain team-a/web-5d8f --url http://scheduler.example:10251 -o json"""
)
@click.argument("pod")
@click.option(
    "-n", "--namespace", default="default", show_default=True, help="The pod's namespace."
)
@click.option(
    "--url",
    envvar="MOORING_URL",
    default="http://127.0.0.1:10251",
    show_default=True,
    show_envvar=True,
    help="URL of the leading replica's HTTP endpoints.",
)
@output_option("text", "json")
def explain(pod: str, namespace: str, url: str, output: str) -> None:
    """Explain why POD runs on its node, or why it is pending.

    Shows the latest decisions about the pod, which the leading replica of a running scheduler
    keeps. Exits with 0 if there are any, 1 if there is none, 2 if the replica cannot be reached.
    """
    name = pod if "/" in pod else f"{namespace}/{pod}"
    with mistakes_reported():
        if name.count("/") != 1 or not all(name.split("/")):
            raise InputError(f"{pod!r} is no pod; write NAME or NAMESPACE/NAME")
        answer = _fetched(url, name)
    if answer is None:
        click.echo(
            f"no recent decision about pod {name} is kept by this replica; "
            "only the leading replica decides",
            err=True,
        )
        sys.exit(NO)
    if output == "json":
        print_json(answer)
        return
    for decision in answer["decisions"]:
        _show(decision)


def _fetched(url: str, pod: str) -> dict[str, Any] | None:
    """The decisions about the pod as the endpoint returns them; None if it has none."""
    if urlsplit(url).scheme not in ("http", "https"):
        raise InputError(f"--url: {url!r} must start with http:// or https://")
    address = f"{url.rstrip('/')}/debug/decisions?{urlencode({'pod': pod})}"
    try:
        with urlopen(address, timeout=_SECONDS) as answer:  # noqa: S310 - http and https only
            decisions: dict[str, Any] = json.load(answer)
    except HTTPError as error:
        with error:  # it holds the connection
            if error.code == 404 and b"no recent decision" in error.read():
                return None
        raise InputError(f"{url}: answers {error.code} {error.reason}; is it Mooring?") from None
    except (URLError, TimeoutError) as error:
        reason = getattr(error, "reason", error)
        raise InputError(
            f"{url}: cannot be reached ({reason}); "
            "try: kubectl -n mooring-system port-forward deploy/mooring 10251"
        ) from None
    except ValueError:
        raise InputError(f"{url}: answers something other than JSON; is it Mooring?") from None
    return decisions


def _show(decision: Mapping[str, Any]) -> None:
    place = f"on {decision['node']}" if decision["node"] else "not scheduled"
    click.echo(f"{decision['time']}  {decision['pod']}  {place}  (profile {decision['profile']})")
    for line in _lines(decision):
        click.echo(f"  {line}")
    scores = decision["scores"]
    if scores:
        plugins = sorted({name for score in scores.values() for name in score["plugins"]})
        rows = [
            (node, str(score["total"]), *(str(score["plugins"].get(name, "-")) for name in plugins))
            for node, score in scores.items()
        ]
        print_table(("NODE", "TOTAL", *plugins), rows, numbers=("TOTAL", *plugins))
    click.echo()


def _lines(decision: Mapping[str, Any]) -> Iterator[str]:
    if decision["message"]:
        yield decision["message"]
    if decision["nominatedNode"]:
        yield f"will fit on {decision['nominatedNode']} without {', '.join(decision['victims'])}"
    refused = Counter[tuple[str, str]]()
    examples: dict[tuple[str, str], list[str]] = {}
    for node, rejection in decision["rejections"].items():
        why = (rejection["plugin"], ", ".join(rejection["reasons"]))
        refused[why] += 1
        examples.setdefault(why, []).append(node)
    for (plugin, reasons), count in refused.most_common():
        nodes = examples[plugin, reasons][:_MOST_NODES]
        more = f" and {count - len(nodes)} more" if count > len(nodes) else ""
        yield f"{', '.join(nodes)}{more}: {plugin}: {reasons}"
    for table, total in decision.get("truncated", {}).items():
        yield f"(of {total} {table} these are the ones kept)"
