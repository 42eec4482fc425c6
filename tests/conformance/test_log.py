from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from conformance.recording import log
from conformance.recording.errors import RecordingError
from conformance.recording.log import Entry, SchedulerLog, scores

POD = "team-a/web"

SAID = """\
I1121 04:49:14.804101    6035 server.go:178] "Starting Kubernetes Scheduler" version="v1.36.3"
I1121 04:49:14.812539    6035 secure_serving.go:214] Serving securely on 127.0.0.1:25915
I1121 04:49:14.888914    6035 eventhandlers.go:63] "Add event for node" node="n1"
I1121 04:49:15.213977    6035 schedule_one.go:982] "Plugin scored node for pod" pod="team-a/web" \
plugin="TaintToleration" node="n1" score=300
I1121 04:49:15.213978    6035 schedule_one.go:982] "Plugin scored node for pod" pod="team-a/other" \
plugin="TaintToleration" node="n1" score=1
I1121 04:49:15.214019    6035 schedule_one.go:1050] "Calculated node's final score for pod" \
pod="team-a/web" node="n1" score=300
I1121 04:49:15.214023    6035 schedule_one.go:1050] "Calculated node's final score for pod" \
pod="team-a/web" node="n2" score=0
E1121 04:49:14.910533    6035 configmap.go:246] "Unhandled Error" err="configmap \\"x\\" not found"
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "kube-scheduler.log"
    path.write_text(SAID)
    return path


@pytest.fixture
def followed(path: Path) -> Iterator[SchedulerLog]:
    with closing(SchedulerLog(path)) as followed:
        followed.read()
        yield followed


def test_every_structured_line_is_an_entry(followed: SchedulerLog) -> None:
    entries = followed.entries
    assert len(entries) == 7
    assert entries[0] == Entry("Starting Kubernetes Scheduler", {"version": "v1.36.3"})
    assert entries[1].subject == "n1"
    assert entries[-1].fields == {"err": 'configmap \\"x\\" not found'}


def test_a_line_counts_when_it_is_complete(path: Path, followed: SchedulerLog) -> None:
    followed.forget()
    for part in ('I1] "Add event for node" no', 'de="n2"\n'):
        assert followed.entries == []
        with path.open("a") as appended:
            appended.write(part)
        followed.read()
    assert followed.entries == [Entry("Add event for node", {"node": "n2"})]


def test_what_is_forgotten_does_not_count_any_more(followed: SchedulerLog) -> None:
    followed.forget()
    assert followed.entries == []


def test_scores_are_those_of_the_pod_and_a_node_may_have_none_but_a_total(
    followed: SchedulerLog,
) -> None:
    assert scores(followed.entries, POD) == {
        "n1": {"plugins": {"TaintToleration": 300}, "total": 300},
        "n2": {"plugins": {}, "total": 0},
    }


def test_a_pod_of_which_nothing_was_scored_has_no_scores(followed: SchedulerLog) -> None:
    assert scores(followed.entries, "team-a/unknown") is None


def test_a_message_is_awaited_as_often_as_it_is_expected(
    followed: SchedulerLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "_TIMEOUT", 0.0)
    expected = ("Add event for node", "n1")
    followed.wait_for([expected])
    with pytest.raises(RecordingError, match='did not log "Add event for node" about n1'):
        followed.wait_for([expected, expected])
