"""Shows profiles in the view Policy: profiles in force, their history, and shadow profiles."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from mooring.handlers.profile_handler import ProfileHandler
from mooring.policy.extender import without_secrets
from mooring.policy.match import conflict_text
from mooring.scheduling.profiles_in_force import Profiles

_MOST_PODS: Final = 200
"""The most comparisons of shadow profiles in an answer."""


@dataclass(eq=False, repr=False)
class PolicyView:
    """Reads the profiles in force; `shadow` returns the comparisons of shadow profiles."""

    profiles: Profiles
    handler: ProfileHandler
    shadow: Callable[[str], Mapping[str, Any]]

    def namespaces(self) -> list[str]:
        """Return the namespaces of pods that shadow profiles decided about, the latest first."""
        return [*dict.fromkeys(_namespace(record) for record in self.shadow("")["pods"])]

    def document(self, visible: frozenset[str]) -> dict[str, Any]:
        """Return all profiles as JSON values; only pods of the namespaces `visible` are named."""
        verdicts, shadow = self.handler.verdicts(), self.shadow("")
        names = sorted({*verdicts, *self.profiles.in_force})
        seen = (record for record in shadow["pods"] if _namespace(record) in visible)
        return {
            "profiles": [{**self._profile(name), "status": verdicts.get(name)} for name in names],
            "history": [
                {**entry, "spec": _without_secrets(entry["spec"])}
                for entry in self.handler.history()
            ],
            "shadow": shadow["profiles"],
            "compared": [*islice(seen, _MOST_PODS)],
        }

    def _profile(self, name: str) -> dict[str, Any]:
        entry = self.profiles.in_force.get(name)
        if entry is None:
            return {"name": name, "generation": 0, "mode": None, "effective": None, "spec": None}
        effective, conflicts = entry.effective.policy(entry.profile), self.profiles.conflicts(name)
        return {
            "name": name,
            "generation": entry.profile.generation,
            "mode": entry.profile.spec.mode,
            "conflict": conflict_text(name, conflicts) if conflicts else None,
            "effective": effective.model_dump(mode="json", by_alias=True, exclude_none=True),
            "spec": _without_secrets(entry.profile.manifest()["spec"]),
        }


def _without_secrets(spec: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if spec is None or "extenders" not in spec:
        return dict(spec) if spec is not None else None
    extenders = []
    for extender in spec["extenders"] or ():
        shown = {name: value for name, value in extender.items() if name != "tlsConfig"}
        extenders.append({**shown, "urlPrefix": without_secrets(extender["urlPrefix"])})
    return {**spec, "extenders": extenders}


def _namespace(record: Mapping[str, Any]) -> str:
    return str(record["pod"]).partition("/")[0]
