import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import pytest

from deciding import keep
from driving import driven
from mooring.framework.decision import (
    ANY_POD,
    Decision,
    NodeScore,
    PodRef,
    Rejection,
    TextAboutPods,
)
from mooring.model.pod import Uid
from mooring.observe import records
from mooring.observe.documents import plain
from mooring.observe.records import LATEST, DecisionLog, RecordedStep
from mooring.runtime.queued_pod import PodState, StateTimes

POD = "shop/cart-0"
UID = Uid("u1")
CPU = "Insufficient cpu"
NO_CPU = Rejection("NodeResourcesFit", ("Insufficient cpu",), resolvable=True)
TAINTED = Rejection("TaintToleration", ("node(s) had untolerated taint(s)",), resolvable=False)


def decision(
    pod: str = "shop/cart-0",
    *,
    node: str | None = None,
    nominated: str | None = None,
    victims: tuple[str, ...] = (),
    scores: Mapping[str, NodeScore] | None = None,
    rejections: Mapping[str, Rejection] | None = None,
    message: str | None = None,
) -> Decision:
    return Decision(
        pod=PodRef.of_key(pod),
        profile="mooring",
        node=node,
        nominated_node=nominated,
        victims=tuple(map(PodRef.of_key, victims)),
        scores=scores,
        rejections=rejections or {},
        message=message,
    )


def totals(*values: int) -> dict[str, NodeScore]:
    """Return the scores of the nodes n0, n1, ... with these totals."""
    return {f"n{i}": NodeScore({"ImageLocality": value}, value) for i, value in enumerate(values)}


def test_a_placement_has_exactly_the_documented_json() -> None:
    placed = Decision(
        pod=PodRef.of_key("shop/cart-0"),
        profile="default-scheduler",
        node="n1",
        nominated_node=None,
        victims=(),
        scores={"n1": NodeScore({"TaintToleration": 300, "NodeResourcesFit": 174}, 474)},
        rejections={"n2": NO_CPU},
        message=None,
    )
    assert json.loads(json.dumps(plain(placed))) == {
        "pod": "shop/cart-0",
        "profile": "default-scheduler",
        "profileGeneration": 0,
        "node": "n1",
        "nominatedNode": None,
        "victims": [],
        "scores": {
            "n1": {"plugins": {"TaintToleration": 300, "NodeResourcesFit": 174}, "total": 474}
        },
        "rejections": {
            "n2": {
                "plugin": "NodeResourcesFit",
                "reasons": ["Insufficient cpu"],
                "resolvable": True,
            }
        },
        "message": None,
    }


def test_a_preemption_names_its_node_and_victims() -> None:
    nominated = Decision(
        pod=PodRef.of_key("shop/cart-0"),
        profile="mooring",
        node=None,
        nominated_node="n1",
        victims=(PodRef.of_key("batch/job-1"), PodRef.of_key("batch/job-2")),
        scores=None,
        rejections={"n1": NO_CPU},
        message="0/1 nodes are available: 1 Insufficient cpu.",
    )
    shown = plain(nominated)
    assert (shown["node"], shown["nominatedNode"]) == (None, "n1")
    assert shown["victims"] == ["batch/job-1", "batch/job-2"]
    assert shown["scores"] is None


def log(**fields: Any) -> DecisionLog:
    """Return a DecisionLog whose clocks always return 0."""
    return DecisionLog(clock=lambda: 0.0, wall=lambda: 0.0, **fields)


def at(seconds: float) -> str:
    """Return the time `seconds` after the epoch, as the log writes it."""
    return f"1970-01-01T00:00:{seconds:06.3f}+00:00"


def steps(record: DecisionLog, pod: str = POD) -> list[tuple[str, int]]:
    """Return the steps of the pod's path, each with its count."""
    path = plain(record.path(pod))
    return [(step["step"], step["count"]) for step in path["steps"]] if path is not None else []


def test_a_small_decision_is_kept_whole_with_its_times() -> None:
    record = log()
    kept = decision(node="n1", scores=totals(3, 4))
    keep(record, UID, kept, 1.25)
    assert plain(record.of(POD)) == [
        plain(kept) | {"time": at(1.25), "since": at(1.25), "count": 1, "cause": None}
    ]


@pytest.mark.parametrize(
    "scores",
    [
        {},
        {"n1": NodeScore({}, 0)},
        {"n1": NodeScore({"A": 3, "B": 4}, 7), "n2": NodeScore({"A": 1}, 1)},
        {"n1": NodeScore({"A": 3}, 3), "n2": NodeScore({"A": 1, "B": 4}, 5)},
        {"n1": NodeScore({"A": 3, "B": 4}, 7), "n2": NodeScore({"B": 1, "A": 2}, 3)},
    ],
)
def test_a_kept_decision_is_equal_to_the_one_that_was_made(scores: dict[str, NodeScore]) -> None:
    record = log()
    victims = (PodRef("batch", "job", Uid("v1")), PodRef("batch", "job", Uid("v2")))
    made = Decision(
        PodRef.of_key(POD, UID), "p", "n1", "n2", victims, scores, {"n3": TAINTED}, "why"
    )
    record.decided(made, 1.0)
    (kept,) = record.of(POD)
    assert {f.name: getattr(kept, f.name) for f in fields(made)} == {
        f.name: getattr(made, f.name) for f in fields(made)
    }


@pytest.mark.parametrize(("number", "all_named"), [(10, True), (11, False)])
def test_the_cause_of_a_failed_preemption_is_about_the_victims_that_stay(
    number: int, *, all_named: bool
) -> None:
    record, stay = log(), [PodRef.of_key(f"shop/{n}", Uid(f"v{n}")) for n in range(number)]
    record.seen(POD, UID, 0)
    record.preemption_failed(UID, "shop/3 is in the way", stay, 1)
    path = record.path(POD)
    assert path is not None
    assert path.steps[-1].cause == TextAboutPods(
        "shop/3 is in the way",
        tuple(stay) if all_named else (*stay[:10], ANY_POD),
        "the eviction of a pod that you may not get failed",
    )


def test_of_attempts_in_a_row_with_the_same_cause_the_last_decision_is_kept() -> None:
    record = log()
    for second, message in enumerate(("0/4 nodes: 4 cpu", "0/5 nodes: 5 cpu")):
        keep(record, UID, decision(message=message), second, cause="Insufficient cpu")
    keep(record, UID, decision(message="0/5 nodes: 5 tainted"), 2, cause="tainted")
    tainted, cpu = plain(record.of(POD))
    assert (cpu["message"], cpu["count"], cpu["cause"]) == ("0/5 nodes: 5 cpu", 2, CPU)
    assert (cpu["since"], cpu["time"]) == (at(0), at(1))
    assert (tainted["count"], tainted["cause"]) == (1, "tainted")
    assert plain(record.of("shop/cart-1")) == []


def test_the_cause_is_that_of_the_last_attempt_without_a_node() -> None:
    record = log()
    assert record.cause(UID) is None
    keep(record, UID, decision(message="0/1 nodes"), 1.0, cause="taint spot")
    keep(record, UID, decision(message="0/1 nodes"), 2.0, cause=CPU)
    keep(record, UID, decision(node="n1"), 3.0)
    assert record.cause(UID) == CPU


def log_of_every_step() -> DecisionLog:
    """Return the log of a pod that has made every kind of step."""
    record = log()
    record.seen(POD, UID, 0)
    record.admitted(UID, "SchedulingGates", 0)
    record.admitted(UID, None, 1)
    keep(
        record,
        UID,
        decision(nominated="n1", victims=("shop/a", "shop/b"), message="none"),
        2,
        cause=CPU,
    )
    record.preemption_failed(UID, "a budget forbids it", [PodRef.of_key("shop/b")], 3)
    keep(record, UID, decision(node="n2"), 4)
    record.note(UID, RecordedStep.WAITING_AT_PERMIT, 4, node="n2", plugins=["GangScheduling"])
    record.note(UID, RecordedStep.REJECTED, 5, plugins=["GangScheduling"], cause="too late")
    keep(record, UID, decision(node="n1"), 6)
    record.note(UID, RecordedStep.ERROR, 6, cause="binding rejected")
    keep(record, UID, decision(node="n1"), 7)
    record.bound(UID, "n1", 8)
    record.preempted(UID, PodRef.of_key("shop/big"), "n1", 9, "queue a took back quota")
    return record


def test_the_path_of_a_pod_has_every_step_in_order_with_its_details() -> None:
    path = plain(log_of_every_step().path(POD))
    assert path is not None
    once = [(step.pop("time"), step.pop("until"), step.pop("count")) for step in path["steps"]]
    assert [(first, count) for first, _, count in once] == [
        (at(second), 1) for second in (0, 0, 1, 2, 2, 3, 4, 4, 5, 6, 6, 7, 8, 9)
    ]
    assert path["steps"] == [
        {"step": "seen"},
        {"step": "gated", "plugins": ["SchedulingGates"]},
        {"step": "queued"},
        {"step": "unschedulable", "cause": CPU},
        {"step": "nominated", "node": "n1", "victims": ["shop/a", "shop/b"], "victimsInAll": 2},
        {
            "step": "preemptionFailed",
            "cause": "a budget forbids it",
            "victims": ["shop/b"],
            "victimsInAll": 1,
        },
        {"step": "assumed", "node": "n2"},
        {"step": "waitingAtPermit", "node": "n2", "plugins": ["GangScheduling"]},
        {"step": "rejected", "plugins": ["GangScheduling"], "cause": "too late"},
        {"step": "assumed", "node": "n1"},
        {"step": "error", "cause": "binding rejected"},
        {"step": "assumed", "node": "n1"},
        {"step": "bound", "node": "n1"},
        {
            "step": "preempted",
            "by": "shop/big",
            "node": "n1",
            "cause": "queue a took back quota",
        },
    ]
    assert (path["uid"], path["state"], path["leftOut"]) == ("u1", "bound", 0)


def test_the_time_in_each_state_is_that_of_the_pods_own_clock() -> None:
    record = log()
    times = record.seen(POD, UID, 0)
    assert times is not None
    times.enter(PodState.UNSCHEDULABLE, 2)
    times.enter(PodState.BINDING, 10)
    record.bound(UID, "n1", 10.5)
    path = plain(record.path(POD))
    assert path is not None
    assert path["seconds"] == {"active": 2, "unschedulable": 8, "being bound": 0.5}
    assert (path["state"], path["since"]) == ("bound", at(10.5))


def test_what_is_known_already_is_no_step() -> None:
    record = log()
    for second in range(3):
        record.seen(POD, UID, second)
        record.admitted(UID, None, second)
    assert steps(record) == [("seen", 1), ("queued", 1)]
    for second in range(3):
        record.without_profile(POD, UID, second)
    record.admitted(UID, "", 4)
    assert steps(record)[2:] == [("noProfile", 1), ("gated", 1)]


@pytest.mark.parametrize("late", ["bound", "gone", "error"])
def test_what_is_told_late_of_a_pod_is_no_step_of_the_next_one_of_its_name(late: str) -> None:
    """The answer to a Binding may come after a new pod of the same name was seen."""
    lines: list[bytes] = []
    record = log(append=lines.append)
    record.seen(POD, UID, 0)
    keep(record, UID, decision(node="n1"), 1)
    record.seen(POD, Uid("u2"), 2)
    if late == "bound":
        record.bound(UID, "n1", 3)
    elif late == "gone":
        record.gone(UID, 3)
    else:
        record.note(UID, RecordedStep.ERROR, 3, cause="refused")
    assert steps(record) == [("seen", 1)]
    told = [(line["uid"], line["step"]) for line in map(json.loads, lines)]
    assert told == [("u1", "seen"), ("u1", "assumed"), ("u2", "seen"), ("u1", late)]


def test_a_path_that_has_ended_is_dropped_once_the_next_pod_of_its_name_is_seen() -> None:
    record = log()
    record.seen(POD, UID, 0)
    record.bound(UID, "n1", 1)
    record.seen(POD, Uid("u2"), 2)
    assert len(record) == 1
    record.seen(POD, Uid("u3"), 3)
    assert len(record) == 2
    record.gone(Uid("u2"), 4)
    assert (len(record), steps(record)) == (1, [("seen", 1)])
    record.gone(Uid("u3"), 5)
    record.seen(POD, Uid("u4"), 6)
    record.gone(Uid("u4"), 7)
    assert len(record) == 1


def test_a_successor_is_seen_though_there_is_no_space_for_the_end_of_its_predecessor() -> None:
    full = log()
    full.seen(POD, UID, 0)
    record = log(limit=full.bytes)
    record.seen(POD, UID, 0)
    assert record.seen(POD, Uid("u2"), 1) is not None
    assert steps(record) == [("seen", 1)]


def test_what_is_told_of_a_pod_after_its_end_or_of_another_pod_of_its_name_is_left_out() -> None:
    record = log()
    record.seen(POD, UID, 0)
    record.gone(Uid("another"), 1)
    record.gone(UID, 2)
    record.note(UID, RecordedStep.ERROR, 3, cause="too late")
    record.note(Uid("shop/unknown"), RecordedStep.ERROR, 3, cause="no path")
    assert steps(record) == [("seen", 1), ("gone", 1)]
    assert steps(record, "shop/unknown") == []


def test_a_pod_that_comes_again_goes_on_with_its_path_and_a_new_one_of_its_name_does_not() -> None:
    record = log()
    record.seen(POD, UID, 0)
    record.gone(UID, 1)
    record.seen(POD, UID, 2)
    record.admitted(UID, None, 2)
    assert steps(record) == [("seen", 1), ("gone", 1), ("seen", 1), ("queued", 1)]
    record.seen(POD, Uid("u2"), 3)
    assert steps(record) == [("seen", 1)]


def test_a_decision_about_a_pod_without_a_path_begins_one_which_the_pod_goes_on_with() -> None:
    record = log()
    keep(record, UID, decision(message="no"), 1, cause=CPU)
    path = plain(record.path(POD))
    assert path is not None
    assert (path["state"], path["seconds"]) == (None, {})
    times = StateTimes(0, PodState.BACKOFF)
    assert record.seen(POD, UID, 2, times) is times
    path = plain(record.path(POD))
    assert path is not None
    assert (path["uid"], path["state"], steps(record)) == ("u1", "backoff", [("unschedulable", 1)])


def test_the_first_and_the_last_steps_of_a_long_path_are_kept() -> None:
    record = log()
    record.seen(POD, UID, 0)
    for second in range(100):
        record.note(UID, RecordedStep.ERROR, second, cause=f"error {second}")
    path = plain(record.path(POD))
    assert path is not None
    causes = [step.get("cause") for step in path["steps"]]
    assert causes == [None, *(f"error {n}" for n in (0, 1, 2, *range(72, 100)))]
    assert path["leftOut"] == 69


def test_the_last_decisions_of_a_pod_are_kept_and_all_its_steps() -> None:
    record = log(decisions_per_pod=2)
    for second in range(4):
        keep(record, UID, decision(message="no"), second, cause=f"cause {second}")
    assert [kept["cause"] for kept in plain(record.of(POD))] == ["cause 3", "cause 2"]
    assert steps(record) == [("unschedulable", 1)] * 4


def test_many_victims_are_counted_and_some_are_named() -> None:
    record = log()
    victims = tuple(f"shop/v{n}" for n in range(25))
    keep(record, UID, decision(nominated="n1", victims=victims, message="no"), 0, cause=CPU)
    path = plain(record.path(POD))
    assert path is not None
    assert len(path["steps"][-1]["victims"]) == 10
    assert path["steps"][-1]["victimsInAll"] == 25


def test_the_best_scores_are_kept_and_the_full_number_is_told() -> None:
    record = log(nodes=2)
    keep(record, UID, decision(node="n1", scores=totals(1, 9, 5)), 0)
    (kept,) = plain(record.of(POD))
    assert set(kept["scores"]) == {"n1", "n2"}
    assert kept["truncated"] == {"scores": 3}


def test_the_chosen_node_is_kept_among_equals() -> None:
    record = log(nodes=2)
    keep(record, UID, decision(node="n3", scores=totals(7, 7, 7, 7)), 0)
    (kept,) = plain(record.of(POD))
    assert "n3" in kept["scores"]


def test_a_rare_rejection_is_kept_beside_a_common_one() -> None:
    record = log(nodes=2)
    found = {"n1": NO_CPU, "n2": NO_CPU, "n3": TAINTED}
    keep(record, UID, decision(rejections=found), 0)
    (kept,) = plain(record.of(POD))
    assert set(kept["rejections"]) == {"n1", "n3"}
    assert kept["truncated"] == {"rejections": 3}


def test_nodes_left_out_by_the_caller_are_told_too() -> None:
    record = log()
    keep(record, UID, decision(node="n1", scores=totals(1, 2)), 0, scored=5000, rejected=12)
    (kept,) = plain(record.of(POD))
    assert kept["truncated"] == {"scores": 5000, "rejections": 12}


def test_a_decision_without_scores_has_none_left_out() -> None:
    record = log()
    keep(record, UID, decision(node="n1"), 0, scored=1)
    (kept,) = plain(record.of(POD))
    assert "truncated" not in kept


def test_a_decision_with_text_that_is_no_unicode_is_kept_all_the_same() -> None:
    record = log()
    keep(record, UID, decision(message="\ud800"), 0, cause="\ud800")
    (kept,) = plain(record.of(POD))
    assert (kept["message"], kept["cause"]) == ("?", "?")


def test_every_step_is_appended_as_a_line_with_its_decision() -> None:
    lines: list[bytes] = []
    record = log(append=lines.append)
    record.seen(POD, UID, 0)
    kept = decision(message="no")
    for second in (1, 2):
        keep(record, UID, kept, second, cause=CPU)
    seen, first, second = map(json.loads, lines)
    assert seen == {"pod": POD, "uid": "u1", "step": "seen", "time": at(0)}
    assert first == second | {"time": at(1)}
    assert (first["step"], first["cause"]) == ("unschedulable", CPU)
    assert first["decision"] == {key: v for key, v in plain(kept).items() if key != "pod"}


def test_nothing_is_kept_without_memory() -> None:
    record = log(limit=0)
    assert record.seen(POD, UID, 0) is None
    record.admitted(UID, None, 0)
    keep(record, UID, decision(node="n1"), 0)
    record.bound(UID, "n1", 0)
    assert (record.bytes, len(record), plain(record.path(POD)), plain(record.of(POD))) == (
        0,
        0,
        None,
        [],
    )


def test_equal_decisions_of_different_pods_are_kept_once() -> None:
    rejections = {f"n{n}": NO_CPU for n in range(10)}
    equal, different = log(), log()
    for n in range(100):
        keep(
            equal,
            Uid(f"shop/{n:03}"),
            decision(f"shop/{n:03}", message="x" * 500, rejections=rejections),
            n,
        )
        message = f"{n:0500}"
        keep(
            different,
            Uid(f"shop/{n:03}"),
            decision(f"shop/{n:03}", message=message, rejections=rejections),
            n,
        )
    # One text of some 1,300 bytes more per pod.
    assert different.bytes - equal.bytes > 99 * 1_290
    assert plain(equal.of("shop/042"))[0]["message"] == "x" * 500


def test_pods_that_have_ended_are_forgotten_before_others() -> None:
    record = log(limit=8_000)
    for pod in ("shop/waits", "shop/bound"):
        record.seen(pod, Uid(pod), 0)
    record.bound(Uid("shop/bound"), "n1", 1)
    record.seen("shop/also-waits", Uid("shop/also-waits"), 2)
    for second in range(50):
        if plain(record.path("shop/bound")) is None:
            break
        record.seen(f"shop/{second}", Uid(f"shop/{second}"), 3)
    assert plain(record.path("shop/waits")) is not None
    assert len(record) > 3


def test_decisions_are_forgotten_before_the_paths_of_pods_that_wait() -> None:
    record = log(limit=20_000)
    for n in range(10):
        record.seen(f"shop/{n}", Uid(f"shop/{n}"), n)
        keep(record, Uid(f"shop/{n}"), decision(f"shop/{n}", message=f"{n:01000}"), n, cause=CPU)
    assert len(record) == 10
    assert [len(plain(record.of(f"shop/{n}"))) for n in (0, 9)] == [0, 1]
    assert steps(record, "shop/0") == [("seen", 1), ("unschedulable", 1)]
    keep(record, Uid("shop/0"), decision("shop/0", message="again"), 11, cause=CPU)
    assert (steps(record, "shop/0")[-1], len(plain(record.of("shop/0")))) == (
        ("unschedulable", 2),
        1,
    )


def test_a_full_log_never_pauses_because_whoever_notes_a_step_may_be_changing_something() -> None:
    record = log(limit=20_000)

    def fill() -> None:
        for n in range(100):
            keep(record, Uid(f"shop/{n}"), decision(f"shop/{n}", message=f"{n:01000}"), n)

    assert driven(fill)[1] == 0


def filled(record: DecisionLog) -> DecisionLog:
    """Add the paths of ten pods with equal decisions to the log; return the log."""
    for n in range(10):
        keep(record, Uid(f"shop/{n}"), decision(f"shop/{n}", message="x" * 10_000), n)
    return record


def test_of_a_decision_that_many_paths_share_one_step_drops_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(records, "_MOST_DROPPED", 3)
    full, kept = filled(log()), list[int]()
    record = filled(log(limit=full.bytes))
    for n in range(4):
        record.seen(f"shop/new-{n}", Uid(f"shop/new-{n}"), 10)
        kept.append(len(record.latest()))
    assert kept == [7, 4, 1, 0]
    assert record.bytes <= record.limit


def test_the_latest_record_of_each_pod_is_found_by_namespace_newest_first() -> None:
    record = log()
    for time, pod in enumerate(("a/1", "b/2", "a/1", "ab/3")):
        keep(record, Uid(pod), decision(pod), time)
    record.seen("a/new", Uid("a/new"), 4)
    assert [kept["pod"] for kept in plain(record.latest())] == ["ab/3", "a/1", "b/2"]
    (latest,) = plain(record.latest("a"))
    assert latest["time"] == at(2)
    assert plain(record.latest("none")) == []


def test_the_latest_records_are_of_pending_and_of_bound_pods_by_their_last_change() -> None:
    record = log()
    for time, pod in enumerate(("a/first", "a/bound", "a/last")):
        keep(record, Uid(pod), decision(pod), time)
    record.bound(Uid("a/bound"), "n1", 3)
    assert [kept["pod"] for kept in plain(record.latest())] == ["a/bound", "a/last", "a/first"]
    keep(record, Uid("a/first"), decision("a/first"), 4)
    assert [kept["pod"] for kept in plain(record.latest())] == ["a/first", "a/bound", "a/last"]


def test_the_latest_records_are_of_at_most_a_hundred_pods() -> None:
    record = log()
    for number in range(LATEST + 1):
        keep(record, Uid(f"a/{number}"), decision(f"a/{number}"), 0)
    assert len(plain(record.latest())) == LATEST


def test_a_short_record_says_where_the_pod_is_and_why_newest_first() -> None:
    record = log()
    record.seen("a/new", Uid("a/new"), 0)
    record.seen(POD, UID, 1)
    for second in (2, 3):
        keep(record, UID, decision(nominated="n1", message="0/1"), second, cause=CPU)
    waits, new = plain([*record.summaries()])
    assert new == {
        "pod": "a/new",
        "seen": at(0),
        "state": "active",
        "since": at(0),
        "attempts": 0,
        **dict.fromkeys(("time", "profile", "node", "nominatedNode", "cause")),
    }
    assert waits | {"seen": at(1), "time": at(3), "attempts": 2, "cause": CPU} == waits
    assert (waits["profile"], waits["nominatedNode"]) == ("mooring", "n1")
    assert [short["pod"] for short in plain([*record.summaries("shop")])] == [POD]
    assert [short["pod"] for short in plain([*record.summaries(limit=1)])] == [POD]
