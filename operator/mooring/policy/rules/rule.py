"""A rule of a profile: a filter with a message, or a score, as an expression in CEL.

The modules that plan expressions are imported at the first expression, because this takes 20 ms of
CPU.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import AfterValidator, ConfigDict, Field

from mooring.pausing import pause
from mooring.policy.profile_errors import FieldError, ProfileInvalid, did_you_mean
from mooring.policy.reading import PolicyModel

if TYPE_CHECKING:
    from mooring.policy.rules.rule_plan import RulePlan


RULES: Final = "Rules"
"""The name of the plugin that runs rules; a rule runs as the plugin `Rules/<name of the rule>`."""

_MOST_RULES: Final = 32
_LONGEST_EXPRESSION: Final = 1024
"""The largest number of characters of a rule's expression; a longer expression is a mistake."""


def _filter_plan(source: str) -> "RulePlan":
    from mooring.policy.rules.rule_plan import plan_filter  # noqa: PLC0415 - slow, see the top

    return plan_filter(source)


def _score_plan(source: str) -> "RulePlan":
    from mooring.policy.rules.rule_plan import plan_score  # noqa: PLC0415 - slow, see the top

    return plan_score(source)


def _is_filter(source: str) -> str:
    _filter_plan(source)
    return source


def _is_score(source: str) -> str:
    _score_plan(source)
    return source


class Rule(PolicyModel):
    """An expression over the pod and a node that rejects the node or scores it."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-validations": [
                {
                    "rule": "has(self.filter) != has(self.score)",
                    "message": "a rule must have either filter or score",
                },
                {
                    "rule": "has(self.filter) || !has(self.message)",
                    "message": "message belongs to a filter",
                    "fieldPath": ".message",
                },
                {
                    "rule": "has(self.score) || (!has(self.weight) && !has(self.normalize))",
                    "message": "weight and normalize belong to a score",
                },
            ]
        }
    )

    name: str = Field(min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
    """The rule's name: lowercase letters, digits and "-". It runs as the plugin `Rules/<name>`."""
    filter: Annotated[
        str | None, AfterValidator(lambda source: source if source is None else _is_filter(source))
    ] = Field(None, min_length=1, max_length=_LONGEST_EXPRESSION)
    """A CEL expression that is true for nodes that fit the pod. If its evaluation fails for a node,
    the node is rejected."""
    message: str | None = Field(None, min_length=1, max_length=256)
    """Why a node is rejected, for the pod's events and condition: `0/5 nodes are available: 5
    <message>.` Without it, the rule's name is given."""
    score: Annotated[
        str | None, AfterValidator(lambda source: source if source is None else _is_score(source))
    ] = Field(None, min_length=1, max_length=_LONGEST_EXPRESSION)
    """A CEL expression that gives a node a number; a higher number is better. If its evaluation
    fails, the score is 0."""
    normalize: Literal["None", "Max", "Reversed"] | None = None
    """How numbers become scores. None (the default): they are limited to 0-100. Max: the highest
    becomes 100, the others in proportion. Reversed: the highest becomes 0, and 0 becomes 100."""
    weight: int | None = Field(None, ge=1, le=1000)
    """The factor of the score, as a plugin's weight; 1 if absent."""

    def mistakes(self) -> Iterator[FieldError]:
        """Yield a mistake for a rule with both filter and score, or with neither of them.

        Also yield a mistake for a score with `message`, and for a filter with `weight` or
        `normalize`.
        """
        if (self.filter is None) == (self.score is None):
            yield FieldError("", "must have either filter or score")
        elif self.filter is None and self.message is not None:
            yield FieldError("message", "belongs to a filter, the rule is a score")
        elif self.score is None:
            for field in ("weight", "normalize"):
                if getattr(self, field) is not None:
                    yield FieldError(field, "belongs to a score, the rule is a filter")

    @property
    def plugin(self) -> str:
        """The name of the plugin that runs this rule."""
        return f"{RULES}/{self.name}"

    @property
    def counts_pods(self) -> bool:
        """Whether evaluating the rule needs counts of pods."""
        return bool(self.plan.counts)

    @property
    def plan(self) -> "RulePlan":
        """The plan by which the expression is evaluated."""
        return (
            _filter_plan(self.filter) if self.filter is not None else _score_plan(self.score or "")
        )


def plan_one_by_one(profile: Mapping[str, Any]) -> None:
    """Plan the rules of a SchedulingProfile manifest, and pause after each rule.

    Later readers of the profile use the cached plans.
    """
    spec = profile.get("spec")
    rules = spec.get("rules") if isinstance(spec, Mapping) else None
    for rule in rules[:_MOST_RULES] if isinstance(rules, list) else ():
        for field, plan in (("filter", _filter_plan), ("score", _score_plan)):
            source = rule.get(field) if isinstance(rule, Mapping) else None
            if isinstance(source, str) and len(source) <= _LONGEST_EXPRESSION:
                with suppress(ProfileInvalid):
                    plan(source)
                pause()


def _different(rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
    names = [rule.name for rule in rules]
    twice = [number for number, name in enumerate(names) if name in names[:number]]
    if twice:
        raise ProfileInvalid(
            FieldError(f"[{number}].name", f"{names[number]} is there already") for number in twice
        )
    return rules


Rules = Annotated[
    tuple[Rule, ...],
    Field(
        max_length=_MOST_RULES,
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
        },
    ),
    AfterValidator(_different),
]
"""The rules of a profile; their names differ."""


_NOT_A_RESOURCE: Final = "pods"
"""The key with which expressions read the number of pods, as if `pods` were a resource."""


def missing_on_nodes(
    rules: Iterable[Rule], labels: Collection[str], resources: Collection[str]
) -> Iterator[FieldError]:
    """Yield a warning for each label and resource that a rule reads and no node has.

    `labels` and `resources` are the names that exist on nodes. Each path begins with `rules`.
    """
    known = {"label": labels, "resource": resources}
    for number, rule in enumerate(rules):
        path = f"rules[{number}].{'score' if rule.filter is None else 'filter'}"
        wanted = {
            (read.kind, read.key)
            for read in rule.plan.reads
            if read.kind is not None and read.key is not None
        }
        for kind, key in sorted(wanted):
            if key in known[kind] or (kind, key) == ("resource", _NOT_A_RESOURCE):
                continue
            text = f'no node has the {kind} "{key}"{did_you_mean(key, known[kind])}'
            yield FieldError(path, text)
