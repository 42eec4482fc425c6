"""The import writes valid manifests of Queues."""

import pytest

from mooring.model.manifest_error import ManifestError
from mooring.policy.imports.written_queue import WrittenQueue, free_name, in_namespaces, left_out
from mooring.quota.model.queue import Preempts, Queue, Quota, parse_queue


def test_mooring_reads_what_is_written() -> None:
    quotas = {"cpu": Quota(1500, 0, 7000), "memory": Quota(3 * 2**30 + 1), "pods": Quota(5)}
    preemption = {"reclaimWithinCohort": "Never", "withinQueue": "Any"}
    written = WrittenQueue("a", "Cohort a", "all", quotas, "500m", preemption, {})
    parsed = parse_queue(written.manifest())
    assert parsed.namespaces is not None
    assert parsed.namespaces.empty
    never, within = Preempts.NEVER, Preempts.ANY
    expected = Queue("a", "all", quotas, 0.5, never, within, parsed.namespaces)
    assert parsed == expected


def test_what_mooring_would_refuse_is_an_error_with_the_origin() -> None:
    with pytest.raises(ManifestError, match=r"^the Queue of Cohort a: spec\.fairSharing\.weight: "):
        WrittenQueue("a", "Cohort a", weight=[1]).manifest()


def test_only_fields_that_say_something_are_left_out_with_a_note() -> None:
    spec = {"read": 1, "empty": {}, "usual": "x", "known": 2, "new": 3}
    notes = left_out("Queue a", spec, ("read",), {"usual": ("x", "y"), "known": (1, "because")})
    assert [*notes] == [
        "Queue a: spec.known is left out: because",
        "Queue a: spec.new is left out: Queues have no such field",
    ]


def test_names_that_are_taken_get_a_suffix() -> None:
    assert free_name("a", {"b"}, "-x") == "a"
    assert free_name("a", {"a", "a-x"}, "-x") == "a-x-x"


def test_without_namespaces_a_selector_stays() -> None:
    assert in_namespaces([], {"matchLabels": {}}) == {"matchLabels": {}}
