# SPDX-License-Identifier: Apache-2.0
"""Which layers lose so much in int8 that the outputs no longer say what they say in float. In: a quantised candidate
whose outputs are too far from the float ones. Out: the products to keep in float, such as those that make a spectrum
whose logarithm follows. The float model's own outputs on the calibration data are the measure, so no labels are needed.

Noise is 1 over the signal to noise ratio. What layers add to it is nearly a sum, and layers that lose much stand
together: so a run of neighbouring products is looked for, the shortest one that takes most of the noise away when it
stays float. Its end is found by halving, then its start. That is repeated until the noise is small enough. Noise that
all layers make alike has no such run, and nothing is kept float for it: it would be most of the network. There `Finer`
looks for what to compute in 16 bits."""

import dataclasses
import math

LEAST_DECIBELS = 14.0  # of the outputs from the float ones: with less, layers are kept float
MORE_DECIBELS = 8.0  # than the least are wanted then
ROUNDS = 4
PART = 0.4  # of the noise that is left by one run of layers
GAIN_DECIBELS = 3.0  # for which anything is kept float at all
PRICE_DECIBELS = 30.0  # that all multiply-accumulates have to bring, and a share of them in proportion
USELESS_DECIBELS = 6.0  # of outputs that are worth any work
NEARLY = 1.2  # times the noise
MOST = 0.8  # of what may be computed in finer steps


@dataclasses.dataclass
class Kept:
    names: list  # of products
    before: float  # signal to noise ratio of the outputs in dB
    after: float


class Search:
    """names: of products, in order. distance, share: functions of the names of those that stay float, to the signal to
    noise ratio of the outputs in dB, and to the share of the network's multiply-accumulates that are float for it.
    least: what is wanted of the ratio."""

    def __init__(self, names, distance, share, least):
        self.names, self.distance, self.share, self.least, self.known = names, distance, share, least, {}

    def noise(self, kept):
        kept = frozenset(kept)
        if len(kept) == len(self.names):
            return 0.0
        if kept not in self.known:
            self.known[kept] = 10 ** (-self.distance(kept) / 10)
        return self.known[kept]

    def run_of(self, kept, wanted):
        """The shortest run of products with which the noise is at most `wanted`, beside those that are kept."""
        enough = lambda start, end: self.noise({*kept, *self.names[start:end]}) <= wanted
        low, end = 0, len(self.names)  # `end` is enough, `low` is not
        while end - low > 1:
            middle = (low + end) // 2
            low, end = (low, middle) if enough(0, middle) else (middle, end)
        start, high = 0, end
        while high - start > 1:
            middle = (start + high) // 2
            start, high = (middle, high) if enough(middle, end) else (start, middle)
        return set(self.names[start:end])

    @staticmethod
    def ratio(noise):
        return math.inf if noise <= 0 else -10 * math.log10(noise)

    def is_worth(self, kept, before):
        """Whether the work that stays float for these products is worth what it brings."""
        if len(kept) == len(self.names):
            return False
        return self.ratio(self.noise(kept)) - before >= PRICE_DECIBELS * self.share(kept)

    def find(self, before):
        """Kept, or None where no few layers take enough of the noise away. before: the ratio with nothing kept."""
        kept, noise, goal = set(), 10 ** (-before / 10), 10 ** (-self.least / 10)
        self.known[frozenset()] = noise
        for _ in range(ROUNDS):
            if noise <= goal:
                break
            more = kept | self.run_of(kept, max(goal, PART * noise))
            if before >= USELESS_DECIBELS and not self.is_worth(more, before):
                break
            kept, noise = more, self.noise(more)
        after = self.ratio(noise)
        if after < before + GAIN_DECIBELS:
            return None
        return Kept([name for name in self.names if name in kept], before, after)


@dataclasses.dataclass
class Alone:
    """What a product loses by itself, with operands that are exact."""

    name: str
    noise: float  # of its result, over the result's variance
    cost: float  # multiply-accumulates of one sample


class Finer:
    """Which products to compute in finer steps, where all lose a little. products: Alones, in order. distance: a
    function of a set of names to the signal to noise ratio of the outputs in dB with these products float.

    What a product loses by itself, over its cost, gives an order. Of the sets that begin it, the smallest one is taken
    that brings the outputs as near as is wanted, or nearly as near as all of them do."""

    def __init__(self, products, distance):
        self.products, self.distance, self.known = products, distance, {}

    def noise(self, some):
        names = frozenset(product.name for product in some)
        if names not in self.known:
            self.known[names] = 10 ** (-self.distance(names) / 10)
        return self.known[names]

    def within(self, budget):
        """The products that the order takes for `budget`, and what they cost."""
        order, spent = [], 0
        for product in sorted(self.products, key=lambda p: -p.noise / max(p.cost, 1e-30)):
            if spent + product.cost <= budget:
                order.append(product)
                spent += product.cost
        return order, spent

    def reached(self, budget):
        """The ratio with all of these."""
        return Search.ratio(self.noise(self.within(budget)[0]))

    def choose(self, wanted, budget):
        """(names in order, ratio) of the set, which costs `budget` at most."""
        order, spent = self.within(budget)
        if not order:
            return [], -math.inf
        low, high, reached = 0, len(order), self.noise(order)
        goal = max(10 ** (-wanted / 10), NEARLY * reached)
        while high - low > 1:
            middle = (low + high) // 2
            noise = self.noise(order[:middle])
            low, high, reached = (low, middle, noise) if noise <= goal else (middle, high, reached)
        if sum(product.cost for product in order[:high]) >= MOST * spent:  # the rest costs little
            high, reached = len(order), self.noise(order)
        chosen = {product.name for product in order[:high]}
        return [p.name for p in self.products if p.name in chosen], Search.ratio(reached)
