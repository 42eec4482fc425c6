"""The results of the test cases: reads JUnit files, makes a table, compares schedulers."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_TAG: Final = re.compile(r"\s*\[[^]]*\]")
BEGIN: Final = "<!-- results -->"
END: Final = "<!-- end of results -->"


@dataclass(frozen=True)
class Result:
    """The result of a case: `passed`, `failed` or `skipped`, and the first line of a failure."""

    outcome: str
    message: str = ""


def read_junit(folder: Path) -> dict[str, Result]:
    """Return the results of all cases in the folder's JUnit files, by the case's whole name.

    Cases that the run did not select are left out.
    """
    results: dict[str, Result] = {}
    for path in sorted(folder.glob("junit*.xml")):
        for case in ET.parse(path).iter("testcase"):  # noqa: S314 - written by our own program
            name, status = case.get("name", ""), case.get("status", "")
            if not name.startswith("[It] "):
                continue
            skipped, failures = case.find("skipped"), [*case.iter("failure"), *case.iter("error")]
            if failures:
                text = (failures[0].get("message") or failures[0].text or status).strip()
                results[name] = Result("failed", text.splitlines()[0] if text else "")
            elif skipped is None:
                results[name] = Result("passed")
            elif (reason := skipped.get("message", "")) not in ("", "skipped"):
                results[name] = Result("skipped", reason.removeprefix("skipped - "))
    return results


def shown_name(name: str) -> str:
    """Return the name of the case without its kind and its tags."""
    return _TAG.sub("", name).strip()


def markdown(results: Mapping[str, Mapping[str, Result]], *, all_cases: bool = True) -> str:
    """Return a table with a row for each case, a column for each scheduler, and their sums.

    Without `all_cases`, the table has no rows for cases that passed with every scheduler.
    """
    schedulers = list(results)
    cases = sorted({case for found in results.values() for case in found}, key=shown_name)
    lines = [
        _row(["case", "conformance", *schedulers]),
        _row(["---"] * (2 + len(schedulers))),
    ]
    for case in cases:
        required = "yes" if "[Conformance]" in case else ""
        outcomes = [_outcome(results[scheduler].get(case)) for scheduler in schedulers]
        if all_cases or {*outcomes} != {"passed"}:
            lines.append(_row([shown_name(case), required, *outcomes]))
    sums = [f"{_passed(results[scheduler])} of {len(cases)} passed" for scheduler in schedulers]
    lines.append(_row(["**all**", "", *sums]))
    return "\n".join(lines)


def differences(one: Mapping[str, Result], other: Mapping[str, Result]) -> Sequence[str]:
    """Return the cases with different results, and both results."""
    return [
        f"{shown_name(case)}: {_outcome(one.get(case))} and {_outcome(other.get(case))}"
        for case in sorted({*one, *other}, key=shown_name)
        if _outcome(one.get(case)) != _outcome(other.get(case))
    ]


def replace_table(document: str, table: str) -> str:
    """Return the document with this table between its two marks.

    Raises:
        ValueError: if a mark is missing.
    """
    if BEGIN not in document or END not in document:
        raise ValueError(f"the document has no {BEGIN} and {END}")
    before, _, rest = document.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table}\n{END}{after}"


def _outcome(result: Result | None) -> str:
    return result.outcome if result is not None else "not run"


def _passed(results: Mapping[str, Result]) -> int:
    return sum(result.outcome == "passed" for result in results.values())


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"
