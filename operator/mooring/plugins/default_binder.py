"""Binds pods through the Binding subresource (defaultbinder/)."""

from typing import ClassVar

from mooring.framework.handle import Handle
from mooring.framework.registry import NoArgs
from mooring.model.pod import Pod


class DefaultBinder:
    """Binds every pod; it leaves no pod to another Bind plugin."""

    name: ClassVar[str] = "DefaultBinder"
    depends_on_node_only: ClassVar[bool] = False

    def __init__(self, args: NoArgs, handle: Handle) -> None:
        self._api = handle.api

    async def bind(self, pod: Pod, node: str) -> None:
        """Bind the pod; raise if the API server does not accept the Binding."""
        await self._api.bind(pod, node)
