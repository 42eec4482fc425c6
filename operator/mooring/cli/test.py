"""The command `mooring test`: runs policy tests."""

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Any, Final
from xml.etree import ElementTree as ET

import click

from mooring.cli.console import (
    BAD_INPUT,
    DONE,
    NO,
    kubernetes_option,
    mistakes_reported,
    note_ignored,
    output_option,
    print_annotation,
    print_json,
    printable,
    table_lines,
)
from mooring.cli.explanation_text import explanation, score_table, zero_scores
from mooring.framework.decision import Decision
from mooring.framework.registry import Registry
from mooring.observe.documents import plain
from mooring.plugins import SHIPPED
from mooring.simulate.expectations import CaseResult, run_case
from mooring.simulate.manifests import InputError
from mooring.simulate.policy_tests import PolicyTestFile, read_policy_tests, schema

_MOST_NODES: Final = 5
_NOT_IN_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

_Results = list[tuple[PolicyTestFile, list[CaseResult]]]


@click.command(
    epilog="""\b
Examples:
  mooring test policies/
  mooring test policies/ -o junit > results.xml
  mooring test policies/ --kubernetes 1.37
  mooring test --schema > policy-test.schema.json"""
)
@click.argument("paths", nargs=-1, metavar="PATH...")
@click.option("--schema", "print_schema", is_flag=True, help="Print the JSON schema of a test.")
@kubernetes_option("what the test says in kubernetesVersion, else the newest")
@output_option("text", "junit", "json", "github")
def test(paths: Sequence[str], *, kubernetes: str | None, print_schema: bool, output: str) -> None:
    """Run the policy tests in PATHs, files or folders.

    A policy test (`kind: PolicyTest`) has cases: objects, profiles, pods, and the expected
    decisions about the pods. Nothing is read from a cluster. If a decision is not as expected, the
    output explains the decision.

    Exits with 0 if everything is as expected, 1 if something is not, 2 for bad input.
    """
    if print_schema:
        print_json(schema())
        return
    registry = Registry(SHIPPED)
    with mistakes_reported():
        if not paths:
            raise InputError("say which files or folders: mooring test PATH...")
        files = read_policy_tests(paths)
    results: _Results = [
        (
            file,
            [
                run_case(file, number, registry, kubernetes)
                for number in range(len(file.test.cases))
            ],
        )
        for file in files
    ]
    _PRINTERS[output](results)
    for file, of_file in results:
        ignored = reduce(or_, (Counter(case.ignored) for case in of_file), Counter[str]())
        note_ignored(ignored, file.path, (each for case in of_file for each in case.notes))
    cases = [case for _, cases in results for case in cases]
    if any(case.error is not None for case in cases):
        sys.exit(BAD_INPUT)
    sys.exit(DONE if all(case.passed for case in cases) else NO)


def _word(case: CaseResult) -> str:
    return "ERROR" if case.error is not None else "PASS" if case.passed else "FAIL"


def _problems(case: CaseResult) -> Iterator[str]:
    if case.error is not None:
        yield from case.error.splitlines()
    for failure in case.failures:
        yield f"{failure.path}: {failure.message}"
        for decision in failure.decisions:
            yield from (f"  {line}" for line in _explained(decision))


def _explained(decision: Decision) -> Iterator[str]:
    view = plain(decision)
    where = f"on {decision.node}" if decision.node else "not scheduled"
    yield f"{decision.pod.key}  {where}  (profile {decision.profile})"
    yield from (f"  {line}" for line in explanation(view))
    if view["scores"]:
        lines = table_lines(*score_table(view["scores"], _MOST_NODES))
        yield from (f"  {line}" for line in (*lines, *zero_scores(view["scores"], _MOST_NODES)))
        if len(view["scores"]) > _MOST_NODES:
            yield f"  (of {len(view['scores'])} nodes these are the best)"


def _summary(results: _Results) -> str:
    words = [_word(case) for _, cases in results for case in cases]
    counts = [(words.count("PASS"), "passed"), (words.count("FAIL"), "failed")]
    counts.append((words.count("ERROR"), "could not be run"))
    found = ", ".join(f"{count} {what}" for count, what in counts if count)
    return f"{len(words)} case{'s' if len(words) != 1 else ''}: {found}"


def _print_text(results: _Results) -> None:
    for file, cases in results:
        click.echo(printable(f"{file.path}: {file.test.metadata.name}"))
        for case in cases:
            click.echo(f"  {_word(case):<6}{printable(case.name)}")
            for line in _problems(case):
                click.echo(f"        {printable(line)}")
    click.echo(_summary(results))


def _print_json(results: _Results) -> None:
    print_json(
        {
            "tests": [
                {
                    "file": file.path,
                    "name": file.test.metadata.name,
                    "cases": [_case_json(case) for case in cases],
                }
                for file, cases in results
            ]
        }
    )


def _case_json(case: CaseResult) -> dict[str, Any]:
    return {
        "name": case.name,
        "line": case.line,
        "passed": case.passed,
        "error": case.error,
        "failures": [
            {
                "path": failure.path,
                "message": failure.message,
                "decisions": [plain(decision) for decision in failure.decisions],
            }
            for failure in case.failures
        ],
    }


def _print_junit(results: _Results) -> None:
    root = ET.Element("testsuites")
    for file, cases in results:
        words = [_word(case) for case in cases]
        suite = ET.SubElement(
            root,
            "testsuite",
            name=_xml(file.test.metadata.name),
            tests=str(len(cases)),
            failures=str(words.count("FAIL")),
            errors=str(words.count("ERROR")),
        )
        for case in cases:
            shown = ET.SubElement(
                suite,
                "testcase",
                name=_xml(case.name),
                classname=_xml(file.test.metadata.name),
                file=_xml(file.path),
                line=str(case.line),
            )
            if not case.passed:
                tag = "error" if case.error is not None else "failure"
                problems = [_xml(line) for line in _problems(case)]
                ET.SubElement(shown, tag, message=problems[0]).text = "\n".join(problems)
    ET.indent(root)
    click.echo(ET.tostring(root, encoding="unicode", xml_declaration=True))


def _xml(text: str) -> str:
    return _NOT_IN_XML.sub("\N{REPLACEMENT CHARACTER}", text)


def _print_github(results: _Results) -> None:
    for file, cases in results:
        for case in cases:
            if not case.passed:
                title = f"{file.test.metadata.name}: {case.name}"
                problems = "\n".join(_problems(case))
                print_annotation("error", file.path, case.line, title, problems)
    click.echo(_summary(results))


_PRINTERS: Final[Mapping[str, Callable[[_Results], None]]] = {
    "text": _print_text,
    "junit": _print_junit,
    "json": _print_json,
    "github": _print_github,
}
