# SPDX-License-Identifier: Apache-2.0
"""NSGA-II by pymoo over the places of an axis' values. Enters: an Explorer, a number of evaluations, a seed. Leaves:
the points that were compiled. A generation is one batch of work."""

import numpy as np

from ..errors import error

FAR = 1e30  # the objectives of what is no machine
STALE = 20  # generations in a row without a new machine, after which the search ends


def search(explorer, evaluations, seed, population=40):
    """Errors: unsupported without pymoo."""
    try:
        from pymoo.algorithms.moo.nsga2 import NSGA2
        from pymoo.core.evaluator import Evaluator
        from pymoo.core.problem import Problem
        from pymoo.operators.crossover.sbx import SBX
        from pymoo.operators.mutation.pm import PM
        from pymoo.operators.repair.rounding import RoundingRepair
        from pymoo.operators.sampling.rnd import IntegerRandomSampling
        from pymoo.problems.static import StaticProblem
    except ImportError:
        raise error(
            "unsupported", "--method nsga2 needs the package pymoo: pip install -r requirements-explore.txt"
        ) from None
    space = explorer.space
    last = np.array([len(values) - 1 for values in space.axes.values()])
    free = np.flatnonzero(last)  # axes with a choice
    if len(free) == 0:
        return explorer.grid(False)  # the only machine
    problem = Problem(n_var=len(free), n_obj=len(space.objectives), n_ieq_constr=1, xl=0, xu=last[free], vtype=int)
    repair = RoundingRepair()
    algorithm = NSGA2(
        pop_size=min(population, evaluations),
        sampling=IntegerRandomSampling(),
        crossover=SBX(prob=0.9, eta=3, vtype=float, repair=repair),
        mutation=PM(eta=3, vtype=float, repair=repair),
        eliminate_duplicates=True,
    )
    algorithm.setup(problem, seed=seed, verbose=False)
    found, asked, stale = {}, 0, 0
    while asked < evaluations and stale < STALE:
        population = algorithm.ask()
        if population is None or len(population) == 0:
            break
        numbers = []
        for row in population.get("X"):
            places = np.zeros(len(last), int)
            places[free] = row
            numbers.append(space.number(places))
        fresh = {number for number in numbers if number not in found}
        asked += len(fresh)
        points = [point for number in sorted(fresh) if (point := explorer.point(number)) is not None]
        found.update(dict.fromkeys(fresh))
        found.update({point.number: point for point in explorer.evaluate(points, "predict")})
        vectors = np.full((len(numbers), len(space.objectives)), FAR)
        broken = np.ones((len(numbers), 1))
        for at, number in enumerate(numbers):
            if found[number] is not None:
                vectors[at] = explorer.vectors([found[number]])[0]
                broken[at] = 0.0 if explorer.refusal(found[number]) is None else 0.5
        Evaluator().eval(StaticProblem(problem, F=vectors, G=broken), population)
        algorithm.tell(infills=population)
        stale = 0 if fresh else stale + 1
    return explorer.allowed([point for point in found.values() if point is not None])
