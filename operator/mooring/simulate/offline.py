"""The API of a simulation: there is none."""

from collections.abc import Callable
from typing import Any, NoReturn

from mooring.framework.verdicts import PluginError
from mooring.model.pod import Pod

__all__ = ["OfflineApi"]


class OfflineApi:
    """Satisfies `mooring.framework.handle.Api` and refuses everything.

    A simulation ends with the place a pod gets, and a plugin that writes before that breaks its
    protocol.
    """

    async def bind(self, _pod: Pod, _node: str) -> None:
        """Nothing is bound in a simulation."""
        _refuse()

    async def patch(
        self, _resource: str, _namespace: str | None, _name: str, _patch: dict[str, Any]
    ) -> dict[str, Any]:
        """Nothing is written in a simulation."""
        _refuse()

    async def until(self, _done: Callable[[], bool], _seconds: float) -> None:
        """Nothing happens in a simulation, so nothing can be waited for."""
        _refuse()


def _refuse() -> NoReturn:
    raise PluginError("a simulation has no API server")
