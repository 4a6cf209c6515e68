# SPDX-License-Identifier: Apache-2.0
"""A search by Optuna's tree-structured Parzen estimator. Enters: a state of some units. Leaves: the best states that
were replayed.

Its parameters are the principal components of the features of schedules (tiles, order, copies, residence). Most of
their combinations are no legal schedule. So states are drawn and changed from the space first, which keeps the rules,
and what the sampler suggests stands for the state of this pool that is nearest to it. The sampler learns from that
state's own coordinates."""

import math

import numpy as np

from ..errors import error
from .learned import Features

POOL = 1024  # states that suggestions are mapped to
DRAWN = 0.2  # of the pool, from the whole space
COORDINATES = 12  # principal components
STARTUP = 16  # replays before the sampler suggests: the closed form's best


def optuna():
    """The package, or the error that names it."""
    try:
        import optuna as package
    except ImportError:
        raise error(
            "unsupported",
            "the search 'optuna' needs the package optuna: pip install -r requirements-tune.txt, or "
            "pip install tessera[tune]; --search annealing needs nothing",
        ) from None
    package.logging.set_verbosity(package.logging.ERROR)
    return package


def pool_of(bench, units, rng):
    """Different states, in the order in which they were met."""
    pool = {tuple(units): None}
    for _ in range(4 * POOL):
        if len(pool) == POOL:
            break
        if rng.random() < DRAWN:
            state = bench.sample(units, rng)
        else:
            state = bench.change(list(rng.choice(list(pool)) if rng.random() < 0.5 else units), rng)
        pool[tuple(state)] = None
    return list(pool)


def points_of(bench, pool, payload):
    """(what the closed form says of each state, its coordinates between 0 and 1). A state's features are the means of
    its units', and how many units there are."""
    features = Features(bench.tuning, payload["config"], payload["options"])
    known = {unit: features.of(*unit) for state in pool for unit in state}
    closed = [sum(known[unit][0] for unit in state) for state in pool]
    points = np.array([[len(state), *np.mean([known[unit][1] for unit in state], axis=0)] for state in pool])
    spread = points.std(axis=0)
    points = ((points - points.mean(axis=0)) / np.where(spread > 0, spread, 1))[:, spread > 0]
    axes = np.linalg.eigh(points.T @ points)[1].T[::-1][:COORDINATES]
    largest = np.abs(axes).argmax(axis=1)
    axes = axes * np.sign(axes[np.arange(len(axes)), largest])[:, None]  # the sign of an axis is free
    points = points @ axes.T
    low, high = points.min(axis=0), points.max(axis=0)
    return closed, (points - low) / np.where(high > low, high - low, 1)


def suggest(bench, units, around, payload, rng):
    """The best states, best first: [(cycles, units)]."""
    package = optuna()
    before, behind = around
    pool = pool_of(bench, units, rng)
    closed, points = points_of(bench, pool, payload)
    names = [f"x{number}" for number in range(points.shape[1])]
    ranges = {name: package.distributions.FloatDistribution(0, 1) for name in names}
    sampler = package.samplers.TPESampler(seed=payload["seed"] % (1 << 31), n_startup_trials=STARTUP)
    study = package.create_study(sampler=sampler)
    left, found = np.ones(len(pool), bool), []
    first = [0, *sorted(range(1, len(pool)), key=lambda number: (closed[number], number))]
    for step in range(min(payload["steps"], len(pool))):
        if step < STARTUP:
            at = first[step]
        else:
            asked = study.ask(ranges)
            wanted = np.array([asked.params[name] for name in names])
            far = ((points - wanted) ** 2).sum(axis=1)
            at = int(np.where(left, far, math.inf).argmin())
            study.tell(asked, state=package.trial.TrialState.FAIL)  # what counts is the state that it stands for
        left[at] = False
        cost = bench.cost(before + list(pool[at]) + behind, "replay")
        if cost is None:
            continue
        found.append((cost[0], list(pool[at])))
        values = dict(zip(names, points[at].tolist()))
        study.add_trial(package.trial.create_trial(params=values, distributions=ranges, value=cost[0]))
    return sorted(found, key=lambda entry: entry[0])
