"""Compares selectors with those of kube-scheduler: `python -m cel.comparing --cases 1000 --seed 1`."""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any, NamedTuple

from cel.expressions import Case, draw_case
from cel.oracle import VERSIONS, Answers, answers
from mooring.cel.device_selector import (
    CompileError,
    DeviceSelector,
    DeviceView,
    SelectorError,
    compile_selector,
)
from mooring.model.quantity import parse_quantity
from mooring.model.resource_slices import Version

__all__ = ["Difference", "differences", "view"]


class Difference(NamedTuple):
    """A case that is answered differently, and what differs."""

    kind: str
    expression: str
    device: Mapping[str, Any] | None
    theirs: object
    ours: object


def view(device: Mapping[str, Any]) -> DeviceView:
    """Return the device of a case as a selector sees it."""
    attributes = dict[str, Any]()
    for name, value in device.get("Attributes", {}).items():
        ((kind, inner),) = value.items()
        attributes[name] = Version(inner) if kind == "version" else inner
    capacity = {
        name: parse_quantity(value["value"]) for name, value in device.get("Capacity", {}).items()
    }
    shared = device.get("AllowMultipleAllocations", False)
    return DeviceView(device["Driver"], attributes, capacity, shared)


def differences(minor: str, case: Case, theirs: Answers) -> Iterator[Difference]:
    """Yield what is answered differently; what Go's order of maps decides is left out.

    So is what makes the compiler panic; we answer that with a mistake or a result.
    """
    expression = case["expression"]
    ours = compile_selector(expression, attributes_may_be_lists=minor != "1.36")
    if "panic" in theirs:
        return
    mistake = theirs.get("compileError")
    if isinstance(ours, CompileError) or mistake is not None:
        our_mistake = str(ours) if isinstance(ours, CompileError) else None
        if our_mistake != mistake:
            compiles = (our_mistake is None) != (mistake is None)
            kind = "whether it compiles" if compiles else "compile error"
            yield Difference(kind, expression, None, mistake, our_mistake)
        return
    for device, distinct in zip(case["devices"], theirs["devices"], strict=True):
        if len(distinct) == 1:
            yield from _of_device(ours, expression, device, distinct[0])


def _of_device(
    selector: DeviceSelector, expression: str, device: Mapping[str, Any], theirs: Mapping[str, Any]
) -> Iterator[Difference]:
    found: dict[str, Any] = {"result": False, "error": ""}
    try:
        found["result"], cost = selector.evaluate(view(device))
    except SelectorError as error:
        found["error"], cost = str(error), None
    for kind in ("result", "error"):
        if found[kind] != theirs.get(kind, ""):
            yield Difference(kind, expression, device, theirs, found)
            return
    if cost is not None and cost != theirs["cost"]:
        yield Difference("cost", expression, device, theirs["cost"], cost)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare drawn cases, print what differs, and return 1 if anything does."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=10, help="differences of each kind")
    options = parser.parse_args(arguments)
    random = Random(options.seed)
    cases = [draw_case(random) for _ in range(options.cases)]
    wrong = 0
    for minor in VERSIONS:
        found, compiled, errors = Counter[str](), 0, 0
        for case, theirs in zip(cases, answers(minor, cases), strict=True):
            compiled += "devices" in theirs
            errors += any(each[0].get("error") for each in theirs.get("devices", ()))
            for difference in differences(minor, case, theirs):
                found[difference.kind] += 1
                if found[difference.kind] <= options.show:
                    print(f"\n{minor} {difference.kind}: {difference.expression}")
                    print(f"  device {difference.device}\n  theirs {difference.theirs}")
                    print(f"  ours   {difference.ours}")
        wrong += sum(found.values())
        print(
            f"Kubernetes {minor}: {len(cases)} expressions, {compiled} compile, {errors} of them fail"
            f" for a device; differences: {dict(found) or 'none'}"
        )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
