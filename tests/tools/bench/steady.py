"""Keeps the number of measured pods constant: replaces each bound pod by the next one."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from queue import SimpleQueue

from bench.objects import Creation
from controlplane import Access
from controlplane.client import Client
from controlplane.namespaces import NO_GRACE


class Successors:
    """The measured pods that are not created yet."""

    def __init__(
        self, clients: Sequence[Client], pods: Sequence[Creation], workers: ThreadPoolExecutor
    ) -> None:
        self._idle = SimpleQueue[Client]()
        for client in clients:
            self._idle.put(client)
        self._pods = iter(pods)
        self._workers = workers
        self._replaced: dict[str, Future[None]] = {}

    @property
    def replaced(self) -> set[str]:
        """The names of the replaced pods; raises the error of a replacement."""
        for future in self._replaced.values():
            future.result()
        return set(self._replaced)

    def replace(self, name: str) -> None:
        """Delete the bound pod, and create the next one if there is one."""
        successor = next(self._pods, None)
        if successor is not None:
            self._replaced[name] = self._workers.submit(self._replace, name, successor)

    def _replace(self, name: str, successor: Creation) -> None:
        collection, pod = successor
        client = self._idle.get()
        try:
            client.request("DELETE", f"{collection}/{name}", NO_GRACE)
            client.post(collection, pod)
        finally:
            self._idle.put(client)


@contextmanager
def successors(access: Access, pods: Sequence[Creation], at_once: int) -> Iterator[Successors]:
    """Yield the successors of bound pods; at most `at_once` pods exist at a time."""
    with ExitStack() as stack:
        clients = [stack.enter_context(access.client()) for _ in range(at_once)]
        workers = stack.enter_context(ThreadPoolExecutor(max(1, at_once)))
        yield Successors(clients, pods, workers)
