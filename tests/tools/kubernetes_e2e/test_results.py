"""Tests reading JUnit files, and the comparison of results."""

from pathlib import Path

import pytest

from kubernetes_e2e.results import (
    BEGIN,
    END,
    Result,
    differences,
    markdown,
    read_junit,
    replace_table,
    shown_name,
)

LIMITS = "[It] [sig-scheduling] LimitRange should create pods with limits [Conformance]"
GATES = "[It] [sig-scheduling] SchedulerPredicates [Serial] validates scheduling gates"
SPREAD = "[It] [sig-scheduling] SchedulerPriorities [Serial] pods are spread"
JUNIT = f"""<testsuites><testsuite name="Kubernetes e2e suite">
  <testcase name="[SynchronizedBeforeSuite]" status="passed"></testcase>
  <testcase name="{LIMITS}" status="passed"></testcase>
  <testcase name="{GATES}" status="failed">
    <failure message="pods &#34;a&#34; did not start&#xA;more" type="failed">where</failure>
  </testcase>
  <testcase name="{SPREAD}" status="skipped">
    <skipped message="skipped - 1 node"></skipped>
  </testcase>
  <testcase name="[It] [sig-node] other" status="skipped">
    <skipped message="skipped"></skipped>
  </testcase>
</testsuite></testsuites>"""


def test_results_are_those_of_the_cases_that_were_selected(tmp_path: Path) -> None:
    (tmp_path / "junit_01.xml").write_text(JUNIT)
    assert read_junit(tmp_path) == {
        LIMITS: Result("passed"),
        GATES: Result("failed", 'pods "a" did not start'),
        SPREAD: Result("skipped", "1 node"),
    }


def test_a_run_that_broke_off_has_no_results(tmp_path: Path) -> None:
    assert not read_junit(tmp_path)


def test_names_are_shown_without_their_tags() -> None:
    assert shown_name(GATES) == "SchedulerPredicates validates scheduling gates"


def test_the_table_has_every_case_and_the_sum_of_each_scheduler() -> None:
    passed, failed = Result("passed"), Result("failed")
    table = markdown({"a": {LIMITS: passed, GATES: passed}, "b": {LIMITS: passed, GATES: failed}})
    assert table.splitlines() == [
        "| case | conformance | a | b |",
        "| --- | --- | --- | --- |",
        "| LimitRange should create pods with limits | yes | passed | passed |",
        "| SchedulerPredicates validates scheduling gates |  | passed | failed |",
        "| **all** |  | 2 of 2 passed | 1 of 2 passed |",
    ]


def test_the_table_of_the_document_leaves_out_cases_that_passed_everywhere() -> None:
    passed, failed = Result("passed"), Result("failed")
    results = {"a": {LIMITS: passed, GATES: passed}, "b": {LIMITS: passed, GATES: failed}}
    assert markdown(results, all_cases=False).splitlines()[2:] == [
        "| SchedulerPredicates validates scheduling gates |  | passed | failed |",
        "| **all** |  | 2 of 2 passed | 1 of 2 passed |",
    ]


def test_cases_that_did_not_end_alike_are_named() -> None:
    one, other = {LIMITS: Result("passed"), GATES: Result("failed", "x")}, {GATES: Result("failed")}
    assert differences(one, other) == [
        "LimitRange should create pods with limits: passed and not run"
    ]


def test_the_table_of_a_document_is_replaced_between_its_marks() -> None:
    assert replace_table(f"a\n{BEGIN}\nold\n{END}\nb", "new") == f"a\n{BEGIN}\nnew\n{END}\nb"
    with pytest.raises(ValueError, match="has no"):
        replace_table("a", "new")
