"""Prints the attempts of a simulation as a table, JSON or YAML, with a summary line."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Final

import click
import orjson

from mooring.cli.console import (
    and_others,
    coloured,
    print_table,
    print_yaml,
    printable,
    with_escapes,
)
from mooring.model.wording import listed
from mooring.observe.documents import dumps, plain
from mooring.simulate.simulation import SimulatedAttempt

_HEAD: Final = ("POD", "NODE", "SCORE", "WHY")
_WIDE: Final = ("POD", "NODE", "SCORE", "FEASIBLE", "PROFILE", "NEXT BEST", "WHY")
_NUMBERS: Final = ("SCORE", "FEASIBLE")
_MOST_VICTIMS: Final = 3
_MOST_REASONS: Final = 4
_NEXT: Final = 2
"""The number of next best nodes that a wide table shows for each pod."""


@dataclass
class Summary:
    """Counts pods: `placed` on a node, nominated (`preempting`), and all others by reason."""

    placed: int = 0
    preempting: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    def count(self, attempt: SimulatedAttempt) -> None:
        """Count the pod as placed, as preempting, or by the reason why it got no node."""
        decision = attempt.decision
        if decision.node is not None:
            self.placed += 1
        elif decision.nominated_node is not None:
            self.preempting += 1
        else:
            self.reasons[attempt.reason] += 1

    @property
    def pods(self) -> int:
        """The number of pods that were tried."""
        return self.placed + self.preempting + self.reasons.total()

    def __str__(self) -> str:
        parts = [f"{self.placed} of {self.pods} placed"]
        if self.preempting:
            parts.append(f"{self.preempting} after preemption")
        ranked = self.reasons.most_common()
        parts += [f"{count}: {reason}" for reason, count in ranked[:_MOST_REASONS]]
        others = sum(count for _, count in ranked[_MOST_REASONS:])
        if others:
            parts.append(f"{others} for other reasons")
        return "; ".join(parts)

    def document(self) -> dict[str, Any]:
        """Return the summary as a dict of JSON values."""
        return {
            "pods": self.pods,
            "placed": self.placed,
            "afterPreemption": self.preempting,
            "reasons": dict(self.reasons.most_common()),
        }


def print_attempts(attempts: Iterable[SimulatedAttempt], output: str) -> Summary:
    """Print the attempts as `table`, `wide` or `yaml`; return their summary."""
    summary, kept = Summary(), []
    for attempt in attempts:
        summary.count(attempt)
        kept.append(attempt)
    if output == "yaml":
        decisions = [plain(attempt.decision) for attempt in kept]
        print_yaml({"decisions": decisions, "summary": summary.document()})
        return summary
    wide = output == "wide"
    groups = [[attempt] for attempt in kept] if wide else _groups(kept)
    rows = [_wide_row(group[0]) if wide else _row(group) for group in groups]
    failed = {i for i, group in enumerate(groups) if group[0].decision.node is None}
    prose = ("NEXT BEST", "WHY") if wide else ("WHY",)
    print_table(_WIDE if wide else _HEAD, rows, numbers=_NUMBERS, prose=prose, failed=failed)
    line = printable(str(summary))
    colour = "green" if summary.placed == summary.pods else "yellow"
    click.echo(f"\n{click.style(line, fg=colour) if coloured() else line}")
    return summary


def write_json(attempts: Iterable[SimulatedAttempt], out: BinaryIO) -> Summary:
    """Write the decisions and their summary as one JSON object; return the summary.

    The object has the keys `decisions` and `summary`. Each decision is one line.
    """
    summary = Summary()
    out.write(b'{"decisions": [')
    separator = b"\n"
    # All decisions together may not fit into memory.
    for attempt in attempts:
        summary.count(attempt)
        out.write(separator + _with_escapes(dumps(attempt.decision)))
        separator = b",\n"
    out.write(b'\n],\n"summary": ' + _with_escapes(orjson.dumps(summary.document())) + b"}\n")
    return summary


def _with_escapes(document: bytes) -> bytes:
    return with_escapes(document.decode()).encode()


def _groups(attempts: Iterable[SimulatedAttempt]) -> list[list[SimulatedAttempt]]:
    groups: dict[Any, list[SimulatedAttempt]] = {}
    for attempt in attempts:
        decision = attempt.decision
        alike = attempt.owner or decision.pod.key
        answer = (decision.node, attempt.reason, decision.nominated_node, decision.victims)
        groups.setdefault((alike, decision.profile, answer), []).append(attempt)
    return [*groups.values()]


def _row(group: Sequence[SimulatedAttempt]) -> tuple[str, ...]:
    first = group[0]
    node = first.decision.node or "-"
    pods = and_others(first.decision.pod.key, len(group))
    return pods, node, _range(map(_score, group)), _why(group)


def _wide_row(attempt: SimulatedAttempt) -> tuple[str, ...]:
    decision = attempt.decision
    scores = sorted((decision.scores or {}).items(), key=lambda item: (-item[1].total, item[0]))
    others = [f"{node} {score.total}" for node, score in scores if node != decision.node]
    return (
        decision.pod.key,
        decision.node or "-",
        _range([_score(attempt)]),
        str(attempt.feasible or "-") if decision.node else "-",
        decision.profile or "-",
        ", ".join(others[:_NEXT]) or "-",
        _why([attempt]),
    )


def _score(attempt: SimulatedAttempt) -> int | None:
    scores = attempt.decision.scores
    return max((score.total for score in scores.values()), default=None) if scores else None


def _range(values: Iterable[int | None]) -> str:
    known = [value for value in values if value is not None]
    ends = sorted({min(known), max(known)}) if known else []
    return "-".join(map(str, ends)) or "-"


def _why(group: Sequence[SimulatedAttempt]) -> str:
    first = group[0].decision
    if first.node is None:
        return " ".join(filter(None, (*_preemption(group[0]), first.message)))
    if first.scores is None:
        return group[0].reason or "the only node that fits"
    return f"best of {_range(attempt.feasible for attempt in group)} nodes that fit"


def _preemption(attempt: SimulatedAttempt) -> Iterator[str]:
    decision = attempt.decision
    if decision.nominated_node is None:
        return
    # Only the first member of a pod group names the victims.
    if not decision.victims:
        yield f"Waits until pods have left {decision.nominated_node}, its nominated node. Now:"
        return
    victims = listed([victim.key for victim in decision.victims], _MOST_VICTIMS)
    yield f"Would preempt {victims} to run on {decision.nominated_node}. Now:"
