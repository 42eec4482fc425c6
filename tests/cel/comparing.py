"""Compares Mooring's device selectors with kube-scheduler's on random expressions and devices.

Run it with `.venv/bin/python -m cel.comparing --cases 1000 --seed 1`.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any, NamedTuple

from cel.expressions import Case, corner_cases, draw_case
from cel.oracle import VERSIONS, Answers, answers
from cel.recorded import DATA, record
from mooring.cel.cel_errors import CompileError
from mooring.claims.device_selector import (
    DeviceSelector,
    DeviceView,
    SelectorError,
    compile_selector,
)
from mooring.claims.model.resource_slices import Version
from mooring.model.quantity import parse_quantity


class Difference(NamedTuple):
    """A difference between the answers of kube-scheduler (`theirs`) and Mooring (`ours`).

    `kind` is `whether it compiles`, `compile error`, `result` or `error`. `device` is None for the
    first two.
    """

    kind: str
    expression: str
    device: Mapping[str, Any] | None
    theirs: object
    ours: object


def view(device: Mapping[str, Any]) -> DeviceView:
    """Return the `DeviceView` of a device in the JSON form of `oracle.go`."""
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
    """Yield the differences between Mooring's answers and `theirs`.

    Cases with several possible answers are skipped: Go's random order of maps decides between
    these. Cases in which kube-scheduler's compiler panics are skipped, too.
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
        found["result"] = selector.matches(view(device))
    except SelectorError as error:
        found["error"] = str(error)
    for kind in ("result", "error"):
        if found[kind] != theirs.get(kind, ""):
            yield Difference(kind, expression, device, theirs, found)
            return


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare random cases and print the differences; return 1 if there are any, else 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=10, help="differences of each kind")
    parser.add_argument("--write", action="store_true", help="record the cases for the tests")
    options = parser.parse_args(arguments)
    random = Random(options.seed)  # noqa: S311 # a seed makes it repeatable
    cases = [*corner_cases(), *(draw_case(random) for _ in range(options.cases))]
    if options.write:
        _say(f"{record(cases)} cases recorded in {DATA}")
    wrong = sum(_compared(minor, cases, options.show) for minor in VERSIONS)
    return 1 if wrong else 0


def _compared(minor: str, cases: Sequence[Case], show: int) -> int:
    """Print up to `show` differences per kind for a Kubernetes version; return their number."""
    found, counts = Counter[str](), Counter[str]()
    for case, theirs in zip(cases, answers(minor, cases), strict=True):
        of_devices = theirs.get("devices", ())
        counts["compile"] += "devices" in theirs
        counts["devices"] += len(of_devices)
        counts["errors"] += sum("error" in each[0] for each in of_devices)
        for difference in differences(minor, case, theirs):
            found[difference.kind] += 1
            if found[difference.kind] <= show:
                _say(f"\n{minor} {difference.kind}: {difference.expression}")
                _say(f"  device {difference.device}\n  theirs {difference.theirs}")
                _say(f"  ours   {difference.ours}")
    _say(
        f"Kubernetes {minor}: {len(cases)} expressions, {counts['compile']} compile;"
        f" {counts['devices']} evaluations, {counts['errors']} with an error;"
        f" differences: {dict(found) or 'none'}"
    )
    return found.total()


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main())
