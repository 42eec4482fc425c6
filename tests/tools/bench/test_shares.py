import io

import pytest
from rich.console import Console

from bench.sampling import Stack
from bench.shares import part_of, parts, shares_table

AROUND = ("asyncio.runners:Runner.run", "mooring.run.service:run", "importlib._bootstrap:_call")


@pytest.mark.parametrize(
    ("stack", "part"),
    [
        (("json:dumps", "aiohttp.client:post", "mooring.kube.recorder:write"), "events"),
        (("aiohttp.client:post", "mooring.scheduling.binding:bind"), "bind"),
        (
            ("aiohttp.client:delete", "mooring.scheduling.preemption_executor:Preemptions._evict"),
            "evict",
        ),
        (("numpy:max", "mooring.scheduling.cycle:decide", "mooring.scheduling.loop:run"), "decide"),
        (
            ("mooring.scheduling.queue.queue:pop", "mooring.scheduling.loop:SchedulingLoop.run"),
            "loop",
        ),
        (("aiohttp.client:get", "kopf._cogs.clients:watch"), "kopf"),
        (
            ("mooring.model.pod:parse", "mooring.handlers.kopf_objects:ObjectHandlers.on_pod"),
            "intake",
        ),
        (("ssl:SSLObject.read",), "http and tls"),
        (("numpy:<module>", "importlib._bootstrap:_call"), "start-up"),
        (("uvloop:step",), "event loop"),
    ],
)
def test_a_stack_belongs_to_the_part_that_was_at_work(stack: Stack, part: str) -> None:
    assert part_of((*stack, *AROUND)) == part


def test_start_up_is_counted_but_not_shared_out_to_pods() -> None:
    samples = {("numpy:<module>", "importlib._bootstrap:_call"): 90, ("ssl:read",): 10}
    assert parts(samples) == {"start-up": 90, "http and tls": 10}
    output = io.StringIO()
    Console(file=output, width=100).print(shares_table(samples, cpu_us_per_pod=500.0))
    cells = [cell.strip() for cell in output.getvalue().splitlines()[4].split("│")]
    assert cells[1:5] == ["http and tls", "100%", "500", "ssl:read 100%"]
