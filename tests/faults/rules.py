"""What the proxy does to which requests, how often and for how long."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any, Final, Self

MOST_SECONDS: Final = 3600.0
MOST_TIMES: Final = 100_000


class RuleError(ValueError):
    """A rule that the proxy does not take; the text is one line."""


class Kind(StrEnum):
    """What happens to a request."""

    DROP = "drop"
    """The connection is closed; the API server never sees the request."""
    LOSE = "lose"
    """The API server carries the request out; its answer is lost with the connection."""
    HALF_OPEN = "half-open"
    """The request is accepted and never answered, until the rule's time is over."""
    STALL = "stall"
    """The request is passed on after a delay; an open watch is silent for as long."""
    TRUNCATE = "truncate"
    """Half of the answer, or of a watch's next line, then the end of the connection."""
    CONFLICT = "409"
    """Answered 409 by the proxy; the API server never sees it. The same for the other statuses."""
    TOO_MANY = "429"
    INTERNAL = "500"
    UNAVAILABLE = "503"
    GONE = "410"
    """A watch ends in mid-stream with an ERROR event whose Status says 410."""
    DUPLICATE = "duplicate"
    """An event of a watch comes twice."""
    DELAY = "delay"
    """Every event of a watch comes later, in its order; so does the answer to any other request.

    What is shown was right when the server said it, as through a slow network or a busy client. A
    watch that begins anew, and a list, tell of a cluster that is past.
    """
    PARTITION = "partition"
    """Nothing passes in either direction; what waits then goes on, as TCP would."""


ANSWERS: Final[Mapping[Kind, tuple[int, str]]] = {
    Kind.CONFLICT: (409, "Conflict"),
    Kind.TOO_MANY: (429, "TooManyRequests"),
    Kind.INTERNAL: (500, "InternalError"),
    Kind.UNAVAILABLE: (503, "ServiceUnavailable"),
}
"""Status code and reason of the faults that are answers."""

MID_STREAM: Final = frozenset({Kind.DROP, Kind.HALF_OPEN, Kind.STALL, Kind.TRUNCATE, Kind.GONE})
"""These also strike watches that are open when the rule is set."""

ASSIGNED_PODS: Final = r"/pods\?.*nodeName(!|%21)(=|%3D)"
PENDING_PODS: Final = r"/pods\?.*nodeName(=|%3D)"
"""Mooring's two watches of pods, with and without a node, by their field selectors."""

_ONLY_WATCHES: Final = frozenset({Kind.GONE, Kind.DUPLICATE})
_NEVER_WATCHES: Final = frozenset({Kind.LOSE, Kind.CONFLICT})


@dataclass(frozen=True)
class Rule:
    """One fault, bounded in number and time."""

    kind: Kind
    method: str = ".*"
    """A regular expression that the whole verb matches."""
    path: str = ".*"
    """A regular expression found in path and query."""
    count: int = 1
    """Strikes at most so often."""
    seconds: float = 60.0
    """Is in force for so long from when it is set."""
    probability: float = 1.0
    """Strikes a matching request with this probability, drawn from the proxy's seed."""
    delay: float = 10.0
    """Seconds of a stall or delay, and of Retry-After (rounded up to whole ones)."""
    jitter: float = 0.0
    """A delay is up to so many seconds longer, drawn from the proxy's seed for each event."""

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> Self:
        """Return the rule that `written` wrote; RuleError if it is not bounded or not one."""
        try:
            rule = cls(**{**raw, "kind": Kind(raw["kind"])})
            re.compile(rule.method)
            re.compile(rule.path)
        except (KeyError, TypeError, ValueError, re.error) as error:
            raise RuleError(f"no rule: {error}") from error
        if not (0 < rule.seconds <= MOST_SECONDS and 0 < rule.count <= MOST_TIMES):
            raise RuleError("a rule is bounded: 0 < seconds <= 3600 and 0 < count <= 100000")
        return rule

    def written(self) -> dict[str, Any]:
        """Return the rule as JSON values."""
        return asdict(self)

    def matches(self, method: str, path: str, *, watch: bool) -> bool:
        """Return whether a request is one that the rule may strike."""
        if self.kind is Kind.PARTITION or self.kind in (_NEVER_WATCHES if watch else _ONLY_WATCHES):
            return False
        verb, pattern = self._patterns
        return bool(verb.fullmatch(method) and pattern.search(path))

    @cached_property
    def _patterns(self) -> "tuple[re.Pattern[str], re.Pattern[str]]":
        return re.compile(self.method), re.compile(self.path)
