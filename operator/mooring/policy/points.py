"""The extension points of a scheduling profile, in the order in which they run."""

from enum import StrEnum


class Point(StrEnum):
    """An extension point, named as in KubeSchedulerConfiguration v1.

    `multiPoint` is not an extension point: in a configuration it stands for all extension points of
    a plugin.
    """

    PRE_ENQUEUE = "preEnqueue"
    QUEUE_SORT = "queueSort"
    PLACEMENT_GENERATE = "placementGenerate"
    PRE_FILTER = "preFilter"
    FILTER = "filter"
    POST_FILTER = "postFilter"
    PRE_SCORE = "preScore"
    SCORE = "score"
    PLACEMENT_SCORE = "placementScore"
    RESERVE = "reserve"
    PERMIT = "permit"
    PRE_BIND = "preBind"
    BIND = "bind"
    POST_BIND = "postBind"
