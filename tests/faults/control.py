"""A proxy process of one replica, and the way to tell it what to do."""

import http.client
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Final, Self

import replica
from controlplane import Access
from controlplane.health import wait_until_healthy
from controlplane.processes import ProcessGroup, free_ports
from faults.rules import Kind, Rule, RuleError

START_SECONDS: Final = 30.0
ANSWER_SECONDS: Final = 10.0


class FaultProxy:
    """One `python -m faults.proxy`; it ends with its process group."""

    def __init__(self, port: int, control_port: int, journal: Path) -> None:
        self._url = f"http://127.0.0.1:{port}"
        self._control_port = control_port
        self._journal = journal

    @property
    def name(self) -> str:
        """What its process is called."""
        return self._journal.stem

    @classmethod
    def start(
        cls, access: Access, folder: Path, group: ProcessGroup, name: str, *, seed: int = 0
    ) -> Self:
        """Start a proxy in front of the API server, and return it once it answers."""
        port, control_port = free_ports(2)
        journal = folder / f"{name}.journal"
        command = [
            *(sys.executable, "-m", "faults.proxy", access.url),
            f"--ca-file={access.ca_file}",
            f"--port={port}",
            f"--control-port={control_port}",
            f"--journal={journal}",
            f"--seed={seed}",
        ]
        environment = {**replica.environment(), "PYTHONPATH": str(replica.ROOT / "tests")}
        program = group.spawn(name, command, log=folder / f"{name}.log", env=environment)
        proxy = cls(port, control_port, journal)
        wait_until_healthy(program, f"http://127.0.0.1:{control_port}/healthz", START_SECONDS)
        return proxy

    def kubeconfig(self, original: Path) -> Path:
        """Return a kubeconfig like the original that goes through this proxy."""
        config = json.loads(original.read_text())
        config["clusters"][0]["cluster"] = {"server": self._url}
        path = self._journal.with_suffix(".kubeconfig")
        path.touch(mode=0o600)
        path.write_text(json.dumps(config))
        return path

    def inject(self, rule: Rule) -> int:
        """Put the rule in force and return its number, by which `strikes` knows it."""
        return int(self._ask("POST", "/rules", rule.written()))

    def clear(self) -> None:
        """End every rule and any partition."""
        self._ask("DELETE", "/rules")

    def injected(self) -> list[dict[str, Any]]:
        """Return the strikes so far: time, number of the rule, kind, method and path of each."""
        struck: list[dict[str, Any]] = json.loads(self._ask("GET", "/injected"))
        return struck

    def strikes(self) -> Counter[int]:
        """Return how often each rule has struck, by its number."""
        return Counter(one["rule"] for one in self.injected())

    def counts(self) -> Counter[Kind]:
        """Return how often each kind has struck."""
        return Counter(Kind(one["kind"]) for one in self.injected())

    def writes(self) -> list[dict[str, Any]]:
        """Return the journal: requests other than GET, in the order of their ends."""
        if not self._journal.exists():
            return []
        lines = self._journal.read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def _ask(self, method: str, path: str, body: object = None) -> str:
        connection = http.client.HTTPConnection(
            "127.0.0.1", self._control_port, timeout=ANSWER_SECONDS
        )
        try:
            connection.request(method, path, None if body is None else json.dumps(body))
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        if answer.status >= http.HTTPStatus.BAD_REQUEST:
            raise RuleError(text.strip())
        return text
