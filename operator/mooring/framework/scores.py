"""The common parts of score plugins: functions from a percentage to a score, and normalization.

See plugins/helper/shape_score.go and normalize_score.go.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from mooring.framework.plugin import Normalize
from mooring.policy.score_args import ShapePoint
from mooring.state.columns import IntArray

__all__ = ["MAX_SCORE", "normalize_score", "scores_by_percent"]

MAX_SCORE = 100


def normalize_score(raw: IntArray, how: Normalize) -> IntArray:
    """Return raw scores (int64, not negative) as 0-100; NONE leaves them unchanged.

    Divisions truncate as in kube-scheduler.
    """
    if how is Normalize.NONE or not len(raw):
        return raw
    highest = int(raw.max())
    if highest == 0:
        return np.full(len(raw), MAX_SCORE, np.int64) if how is Normalize.REVERSED else raw
    scaled = raw * MAX_SCORE // highest
    return MAX_SCORE - scaled if how is Normalize.REVERSED else scaled


def scores_by_percent(shape: Sequence[ShapePoint]) -> IntArray:
    """Return int64[101]: the score (0-100) of each percentage, linear between the shape's points.

    The points' scores are 0-10. Divisions truncate as in Go (BuildBrokenLinearFunction).
    """
    return np.array([_interpolated(shape, percent) for percent in range(101)], np.int64)


def _interpolated(shape: Sequence[ShapePoint], percent: int) -> int:
    points = [(point.utilization, point.score * 10) for point in shape]
    if percent <= points[0][0]:
        return points[0][1]
    for (x0, y0), (x1, y1) in pairwise(points):
        if percent <= x1:
            return y0 + int((y1 - y0) * (percent - x0) / (x1 - x0))
    return points[-1][1]
