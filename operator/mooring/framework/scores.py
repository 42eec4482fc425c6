"""Normalizes scores, as DefaultNormalizeScore does (plugins/helper/normalize_score.go)."""

import numpy as np

from mooring.framework.plugin import Normalize
from mooring.state.columns import IntArray

__all__ = ["MAX_SCORE", "normalize_score"]

MAX_SCORE = 100


def normalize_score(raw: IntArray, how: Normalize) -> IntArray:
    """Return raw scores (int64, not negative) as 0-100; divisions truncate as in kube-scheduler."""
    if how is Normalize.NONE or not len(raw):
        return raw
    highest = int(raw.max())
    if highest == 0:
        return np.full(len(raw), MAX_SCORE, np.int64) if how is Normalize.REVERSED else raw
    scaled = raw * MAX_SCORE // highest
    return MAX_SCORE - scaled if how is Normalize.REVERSED else scaled
