"""The extension points of a scheduling profile, in the order a pod meets them."""

from enum import StrEnum

__all__ = ["Point"]


class Point(StrEnum):
    """An extension point under the name it has in KubeSchedulerConfiguration v1.

    `multiPoint` is not one: it is a word of the configuration that stands for all the points a
    plugin implements.
    """

    PRE_ENQUEUE = "preEnqueue"
    QUEUE_SORT = "queueSort"
    PRE_FILTER = "preFilter"
    FILTER = "filter"
    POST_FILTER = "postFilter"
    PRE_SCORE = "preScore"
    SCORE = "score"
    RESERVE = "reserve"
    PERMIT = "permit"
    PRE_BIND = "preBind"
    BIND = "bind"
    POST_BIND = "postBind"
