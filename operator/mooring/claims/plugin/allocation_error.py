"""The error if devices cannot be allocated on a node, or on any node."""

from mooring.framework.verdicts import ObjectError


class AllocationError(ObjectError):
    """Devices cannot be allocated because the claims, their classes or their selectors are wrong.

    Attributes:
        text: The mistake, in kube-scheduler's words.
        on_node: True if the mistake concerns one node; False if it concerns all nodes.
    """

    def __init__(self, text: str, *, on_node: bool = False) -> None:
        super().__init__(text)
        self.text = text
        self.on_node = on_node
