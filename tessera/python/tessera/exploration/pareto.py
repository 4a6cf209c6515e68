# SPDX-License-Identifier: Apache-2.0
"""Dominance. Vectors of objectives, all to be made small; rows are points."""

import numpy as np


def front(vectors):
    """Places of the rows that no other row dominates, by the first objective. Of equal rows the first stays. vectors:
    [points, objectives]."""
    vectors = np.asarray(vectors, float)
    if vectors.size == 0:
        return []
    order = np.lexsort(vectors.T[::-1])
    kept = []
    for at in order:
        row = vectors[at]
        if not kept or not (vectors[kept] <= row).all(axis=1).any():
            kept.append(int(at))
    return kept


def dominated(vectors, by):
    """Whether each row is dominated by a row of `by`, equal rows not included. [points, objectives] twice."""
    vectors, by = np.asarray(vectors, float), np.asarray(by, float)
    if by.size == 0:
        return np.zeros(len(vectors), bool)
    return np.array([((by <= row).all(axis=1) & (by < row).any(axis=1)).any() for row in vectors], bool)


def thinned(vectors, order, tolerance):
    """Of the rows named in `order`, best first, those to which no kept row is as near as `tolerance` (0.01: one per
    cent) or better in every objective. Such a row brings nothing that the figures can tell."""
    kept = []
    for at in order:
        if not any((vectors[other] <= vectors[at] * (1 + tolerance)).all() for other in kept):
            kept.append(at)
    return kept
