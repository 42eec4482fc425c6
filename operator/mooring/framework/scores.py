"""Upstream's DefaultNormalizeScore, over an array (framework/plugins/helper/normalize_score.go)."""

import numpy as np

from mooring.framework.plugin import Normalise
from mooring.state.columns import IntArray

__all__ = ["MAX_SCORE", "normalised"]

MAX_SCORE = 100


def normalised(raw: IntArray, how: Normalise) -> IntArray:
    """Raw scores (int64, not negative) as 0-100; integer division truncates as upstream's does."""
    if how is Normalise.NONE or not len(raw):
        return raw
    highest = int(raw.max())
    if highest == 0:
        return np.full(len(raw), MAX_SCORE, np.int64) if how is Normalise.REVERSED else raw
    scaled = raw * MAX_SCORE // highest
    return MAX_SCORE - scaled if how is Normalise.REVERSED else scaled
