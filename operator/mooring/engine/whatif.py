"""The questions preemption asks: would the pod fit if these pods were gone?"""

from collections.abc import Mapping
from contextlib import AbstractContextManager

from mooring.engine.filtering import Asked, Search
from mooring.state.cluster import Trial

__all__ = ["LiveWhatIf"]


class LiveWhatIf:
    """Satisfies `mooring.framework.attempt.WhatIf` by trials on the live state."""

    def __init__(self, search: Search, asked: Asked | None) -> None:
        self._search = search
        contest = search.contest(asked) if asked is not None else None
        self.needs: Mapping[str, int] | None = contest[1] if contest is not None else None

    def trial(self) -> AbstractContextManager[Trial]:
        """Inside, pods may be taken away and put somewhere; afterwards nothing has happened."""
        return self._search.cluster.trial()

    def refusal(self, row: int) -> tuple[str, ...]:
        """Why the pod cannot go to the row as things stand; () if it can.

        Asked with the nominated pods that it must respect added, and without
        (RunFilterPluginsWithNominatedPods in framework/runtime/framework.go).
        """
        search = self._search
        refused = search.refusals(row) or search.refusals_beside_nominated(row)
        return refused[0].explanation.of(0) if refused else ()
