"""Reads files and the live cluster of the kubeconfig for a command."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence

import click

from mooring import __version__
from mooring.cli.console import note
from mooring.cli.progress import Progress
from mooring.kube.config import load_connection
from mooring.kube.errors import KubeError, explain
from mooring.simulate.live import read_cluster
from mooring.simulate.manifests import InputError, Manifest, read_manifests


def files_and_cluster(
    files: Sequence[str],
    kubeconfig: str | None,
    context: str | None,
    progress: Progress,
    *,
    cluster: bool,
    asked_elsewhere: bool = False,
) -> Iterator[Manifest]:
    """Return the objects of the files, and of the cluster if `cluster` is True or no file is given.

    Raises UsageError if --kubeconfig or --context is given but not used. `asked_elsewhere` means
    that the caller uses them itself.
    """
    if (kubeconfig or context) and files and not (cluster or asked_elsewhere):
        raise click.UsageError("--kubeconfig and --context need --cluster beside FILEs")

    def read() -> Iterator[Manifest]:
        yield from read_manifests(files)
        if cluster or not files:
            yield from live_manifests(kubeconfig, context, progress)

    return read()


def live_manifests(
    kubeconfig: str | None, context: str | None, progress: Progress
) -> Iterable[Manifest]:
    """List the objects of the cluster that decisions depend on; print notes on standard error.

    Raises InputError if the kubeconfig cannot be used or the cluster cannot be read.
    """

    async def read() -> tuple[list[Manifest], list[str]]:
        connection = await load_connection(
            kubeconfig, context, user_agent=f"mooring-simulate/{__version__}"
        )
        return await read_cluster(connection, progress.say)

    try:
        manifests, notes = asyncio.run(read())
    except KubeError as error:
        raise InputError(explain(error)) from None
    progress.clear()
    for text in notes:
        note(text)
    return manifests
