"""Third-party Bind plugins that bind through the handle, and end in unexpected ways."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from engines import Bindings, CountingMetrics, Engine, until
from kube.api_server import Request
from mooring.framework.handle import Handle
from mooring.framework.registry import NoArgs, Registry
from mooring.framework.verdicts import SKIP, PluginError, Skip
from mooring.kube.client import ApiClient
from mooring.model.pod import Pod
from mooring.plugins import SHIPPED
from mooring.run.build import Options
from mooring.testing.builders import node, pod, uid_of

BINDERS = {
    "bind": {
        "disabled": [{"name": "*"}],
        "enabled": [{"name": "Acme"}, {"name": "DefaultBinder"}],
    }
}
Calls = Callable[[], Awaitable[None]]


class Acme:
    """A plugin that binds the first pod by calling `first`, and returns SKIP for all others.

    `first` gets two functions: one sends the Binding, one waits until the server has it.
    """

    name: ClassVar[str] = "Acme"
    depends_on_node_only: ClassVar[bool] = False
    first: ClassVar[Callable[[Calls, Calls], Awaitable[None]]]
    held: ClassVar[dict[str, Request]]
    calls: ClassVar[int]

    def __init__(self, _args: NoArgs, handle: Handle) -> None:
        self._handle = handle

    async def bind(self, pod: Pod, node: str) -> Skip | None:
        """Call `first` for the first pod; return SKIP afterwards."""
        type(self).calls += 1
        if self.calls > 1:
            return SKIP
        arrived = partial(until, lambda: self.held)
        await type(self).first(partial(self._handle.api.bind, pod, node), arrived)
        return None


class Stage:
    """An engine whose only node has room for one pod, which Acme binds."""

    def __init__(self, client: ApiClient, bindings: Bindings, acme: type[Acme]) -> None:
        entry: Any = SimpleNamespace(
            name="Acme", value="acme:Acme", dist=SimpleNamespace(name="acme"), load=lambda: acme
        )
        self.acme, self.bindings, self.held = acme, bindings, bindings.held
        metrics = CountingMetrics()
        self.failures = metrics.failures
        self.engine = Engine(
            client,
            node("a", cpu="1"),
            registry=Registry(SHIPPED, {"Acme": entry}),
            options=Options(plugin_timeout_seconds=0.01, most_per_attempt=None),
            plugins=BINDERS,
            metrics=metrics,
        )
        self.engine.pending(pod("web", cpu="1"))

    @property
    def has_failed(self) -> bool:
        """Whether Acme was cancelled or raised an error."""
        return bool(self.failures)

    @property
    def is_assumed(self) -> bool:
        """Whether the pod still uses the room on the node."""
        return uid_of("web") in self.engine.scheduler_state.state.pods.assumed


@pytest.fixture
async def stage(client: ApiClient, bindings: Bindings, monkeypatch: pytest.MonkeyPatch) -> Stage:
    monkeypatch.setattr("mooring.scheduling.binding._TO_END_SECONDS", 0.01)
    bindings.hold = {"web"}
    acme = type("Acme", (Acme,), {"calls": 0, "held": bindings.held})
    return Stage(client, bindings, acme)


async def waits(send: Calls, _arrived: Calls) -> None:
    """Send the Binding and wait for its answer, which comes after the plugin's time limit."""
    await send()


async def raises(send: Calls, arrived: Calls) -> None:
    """Send the Binding in another task, and raise an error before the answer."""
    sent = asyncio.ensure_future(send())
    await arrived()
    sent.cancel()
    raise RuntimeError("acme is confused")


async def cancels(send: Calls, arrived: Calls) -> None:
    """Send the Binding in another task, cancel this task, and wait for ever."""
    sent = asyncio.ensure_future(send())
    await arrived()
    sent.cancel()
    await asyncio.Event().wait()


@pytest.mark.parametrize("first", [waits, raises, cancels])
async def test_a_binding_that_a_plugin_has_sent_is_waited_for_whatever_the_plugin_does(
    stage: Stage, first: Callable[[Calls, Calls], Awaitable[None]]
) -> None:
    """Otherwise other pods would get the room of a pod that the server binds."""
    stage.acme.first = first
    with stage.engine.running():
        await until(lambda: stage.held and stage.has_failed)
        assert stage.is_assumed
        assert stage.engine.loop.binding == 1
        stage.held["web"].reply({}, 201)
        await until(lambda: not stage.engine.loop.binding)
    assert stage.is_assumed
    assert stage.bindings.made == []
    assert stage.engine.scheduler_state.queue.get(uid_of("web")) is None


async def test_a_pod_whose_binding_is_refused_after_its_plugin_was_cancelled_is_tried_again(
    stage: Stage,
) -> None:
    stage.acme.first = waits
    with stage.engine.running():
        await until(lambda: stage.held and stage.has_failed)
        stage.held["web"].refuse(403, "Forbidden", "quota")
        await until(lambda: stage.bindings.made)
    assert stage.bindings.made == [("web", "a")]


async def test_a_plugin_that_goes_on_when_its_time_is_over_sends_no_binding(stage: Stage) -> None:
    said = list[str]()

    async def goes_on(send: Calls, _arrived: Calls) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await until(lambda: not stage.engine.scheduler_state.at_bind)
            with pytest.raises(PluginError) as refused:
                await send()
            said.append(str(refused.value))

    stage.acme.first = goes_on
    with stage.engine.running():
        await until(lambda: said)
    (message,) = said
    assert message == (
        "pod default/web cannot be bound to node a now: call bind only within BindPlugin.bind, for "
        "the pod and node of that call, until its attempt ends"
    )
