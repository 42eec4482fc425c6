"""The error of an allocation."""

from mooring.framework.verdicts import ObjectError


class AllocationError(ObjectError):
    """Devices cannot be allocated because something is wrong, not because there are too few.

    The claims, their classes or their selectors are wrong.

    Attributes:
        text: What is wrong, as kube-scheduler says it.
        on_node: The node is not suitable, but others may be. Else the pod cannot be scheduled.
    """

    def __init__(self, text: str, *, on_node: bool = False) -> None:
        super().__init__(text)
        self.text = text
        self.on_node = on_node
