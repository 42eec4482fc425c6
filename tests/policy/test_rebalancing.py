from collections.abc import Callable
from typing import Any

from mooring.policy.profile import SchedulingProfileSpec
from mooring.policy.reading import read
from mooring.policy.rebalancing import Goal, Rebalancing

Mistakes = Callable[[Callable[[], object]], dict[str, str]]


def test_an_empty_section_plans_what_mends_violations() -> None:
    section = read(Rebalancing, {}, "")
    assert (section.mode, section.goals) == ("Plan", (Goal.VIOLATIONS,))
    assert not section.pods.local_storage
    assert section.pods.groups == "Never"


def test_every_field_is_read() -> None:
    document = {
        "mode": "Apply",
        "goals": ["Pack", "MakeRoom"],
        "minimumGain": 20,
        "intervalSeconds": 60,
        "pods": {
            "namespaceSelector": {"matchLabels": {"team": "shop"}},
            "podSelector": {"matchExpressions": [{"key": "pinned", "operator": "DoesNotExist"}]},
            "owners": ["ReplicaSet", "Job"],
            "localStorage": True,
            "minimumAgeSeconds": 0,
            "groups": "Whole",
        },
        "limits": {
            "movesAtATime": 3,
            "movesAtATimePerWorkload": 2,
            "movesPerHour": 60,
            "movesPerPlan": 10,
            "replacementSeconds": 120,
            "restSeconds": 60,
        },
        "windows": [{"days": ["Sat", "Sun"], "start": "22:00", "end": "06:00"}],
    }
    section = read(Rebalancing, document, "")
    assert section.model_dump(mode="json", by_alias=True, exclude_unset=True) == document


def test_a_shadow_profile_may_plan_moves_and_not_apply_them(mistakes: Mistakes) -> None:
    shadow: dict[str, Any] = {"mode": "Shadow", "rebalancing": {}}
    assert read(SchedulingProfileSpec, shadow, "").rebalancing is not None
    shadow["rebalancing"] = {"mode": "Apply"}
    found = mistakes(lambda: read(SchedulingProfileSpec, shadow, ""))
    assert list(found) == ["rebalancing.mode"]
