"""A cluster for commands with a kubeconfig: a server in the test's own process."""

from pathlib import Path
from typing import Any

from click import Command
from click.testing import Result

from cli.running import ask, kubeconfig_of
from kube.api_server import ApiServer, Objects


class LiveCluster:
    """An API server that only answers lists, and serves no custom resource of Mooring."""

    def __init__(self, *objects: dict[str, Any]) -> None:
        lists = dict[str, list[dict[str, Any]]]()
        for each in objects:
            lists.setdefault(f"/{each['kind'].lower()}s", []).append(each)
        self.answer = Objects(lists, refused={"/schedulingprofiles": (404, "no")}, others=True)
        self.methods: set[str] = set()

    async def invoke(self, command: Command, folder: Path, *words: str) -> Result:
        async with ApiServer(self.answer) as server:
            result = await ask(command, *words, f"--kubeconfig={kubeconfig_of(folder, server.url)}")
        self.methods |= {request.method for request in server.seen}
        return result
