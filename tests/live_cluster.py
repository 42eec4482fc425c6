"""A cluster that commands read through a kubeconfig, as a server in the test's own process."""

import asyncio
from pathlib import Path
from typing import Any

import yaml
from click import Command
from click.testing import CliRunner, Result

from kube.api_server import ApiServer, Request


class LiveCluster:
    """An API server that only lists, and serves no kind of Mooring."""

    def __init__(self, *objects: dict[str, Any]) -> None:
        self.objects = objects
        self.methods: set[str] = set()

    def answer(self, request: Request) -> None:
        self.methods.add(request.method)
        if "scheduling.mooring.dev" in request.path:
            request.refuse(404, "NotFound", "the server could not find the requested resource")
            return
        if request.path == "/version":
            request.reply({"major": "1", "minor": "37"})
            return
        plural = request.path.rpartition("/")[2]
        items = [o for o in self.objects if f"{o['kind'].lower()}s" == plural]
        request.reply({"metadata": {"resourceVersion": "1"}, "items": items})

    async def invoke(self, command: Command, folder: Path, *words: str) -> Result:
        """Run the command with a kubeconfig of this server."""
        async with ApiServer(self.answer) as server:
            kubeconfig = folder / "kubeconfig"
            config = {
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": {"server": server.url}}],
                "users": [{"name": "u", "user": {}}],
            }
            kubeconfig.write_text(yaml.safe_dump(config))
            given = [*words, f"--kubeconfig={kubeconfig}"]
            return await asyncio.to_thread(CliRunner().invoke, command, given)
