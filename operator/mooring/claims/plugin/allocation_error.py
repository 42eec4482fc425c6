"""The error that devices cannot be allocated on one node, or on any node."""

from mooring.framework.verdicts import ObjectError


class AllocationError(ObjectError):
    """Raised if claims, classes, selectors or pools are wrong, or a search takes too many steps.

    Attributes:
        text: The mistake, in kube-scheduler's words if kube-scheduler reports it too.
        on_node: True if the mistake concerns one node; False if it concerns all nodes.
    """

    def __init__(self, text: str, *, on_node: bool = False) -> None:
        super().__init__(text)
        self.text = text
        self.on_node = on_node
