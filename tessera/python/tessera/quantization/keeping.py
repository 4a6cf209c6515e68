# SPDX-License-Identifier: Apache-2.0
"""What is not left in 8 bits, for the outputs' sake. In: the work of quantise.py with a settled candidate. Out: the
same work with products in 16 bits (sixteen.py) or in float on the CPU, settled again.

Three things do that: layers that decide what the outputs say (deciding.py), finer steps for as many products as are
cheap where outputs are not near (`make_finer`), and layers that the user asks for by number or by what may be lost.
The float model's outputs on the calibration data are the measure."""

import math
import warnings

from . import deciding, local, place, sixteen
from .data import take
from .errors import argument
from .graph import is_onnx

SENSITIVITY_SAMPLES = 8
DECIDING_SAMPLES = 8
FLOAT = "kept float: it decides what the outputs say"
SAME_DECIBELS = 3.0  # that 16 bits may be behind float
FINE_DECIBELS = 28.0  # of the outputs from the float ones: with less, products are computed in 16 bits
MORE_DECIBELS = 7.0  # are wanted then
FINE_SHARE = 0.1  # of the products, at most ...
FINE_PRODUCTS = 1 << 26  # ... or so many, which nobody would feel
SMALL_DECIBELS = 50.0  # that are wanted of a network with no more products than that: other networks may read it
READ_DECIBELS = 32.0  # in place of FINE_DECIBELS in such a network that answers by values, as it is read most likely,
# and has no rows that the NPU normalises: between products in 16 bits they are computed in float on the CPU
FINE_GAIN = 1.0  # dB that it must bring
SCORES_DECIBELS = 53.0  # in place of FINE_DECIBELS in a network of few products that answers by scores: a score in the
# middle moves by a quarter of what its Sigmoid or Softmax read, and nobody would feel the cost ...
SCORES_PRODUCTS = 1 << 21  # ... of so many multiply-accumulates
FAR_DECIBELS = 24.0  # of the outputs with these products in 16 bits: with less, more of them are
FAR_SHARE = 0.3  # of the products, at most
FAR_GAIN = 2.0  # dB that the others must bring
RUNS = 1 << 33  # multiply-accumulates of the samples that judge a trial, about
LOCAL_SAMPLES = 2


def wanted(state):
    """How near the outputs of a network are to be, in dB, for nothing more to be tried: small ones are quick to try."""
    total = state.placement.macs_npu + state.placement.macs_cpu
    return SMALL_DECIBELS if total <= FINE_PRODUCTS else FINE_DECIBELS


class Keeping:
    def __init__(self, work):
        self.work, self.gains = work, None

    @property
    def state(self):
        return self.work.state

    def _products(self):
        return [unit for unit in self.state.plan.units if unit.kind == "product" and unit.quantised]

    def _variants(self):
        """A function of names to the candidate with these products float."""
        work, left = self.work, {**self.state.left, **self.work.float_nodes}
        return lambda kept: work.candidate({**left, **dict.fromkeys(kept, "tried")}).model

    def _place(self, model):
        options = self.work.options
        return place.place(model, options.config, options.shapes, options.numerics)

    def _total(self):
        """Multiply-accumulates of the network."""
        return self.state.placement.macs_npu + self.state.placement.macs_cpu

    def _budget(self):
        """How many of them may be in 16 bits."""
        share, total = self.work.options.sixteen, self._total()
        return max(FINE_SHARE * total, FINE_PRODUCTS) if share is None else share * total

    def _fine(self):
        """How near the outputs must be for all to stay in 8 bits, in dB."""
        scores, total = any(answer.of_scores for answer in self.work.answers), self._total()
        if scores:
            return SCORES_DECIBELS if total <= SCORES_PRODUCTS else FINE_DECIBELS
        rows = any(
            u.quantised and (u.kind == "normalisation" or is_onnx(u.node, "Softmax")) for u in self.state.plan.units
        )
        return READ_DECIBELS if total <= FINE_PRODUCTS and not rows else FINE_DECIBELS

    def _take(self, names, why):
        self.work.float_nodes.update(dict.fromkeys(names, why))
        self.work.settle()

    def keep_near(self):
        """Both steps below. In a large network, where each trial takes seconds, that with few trials comes first, and
        may spare the other."""
        steps = [self.keep_what_decides, self.make_finer]
        for step in steps[::-1] if self._total() > RUNS // 2 else steps:
            step()
        self.keep_transposed()

    # --- layers that decide

    def keep_what_decides(self):
        """Keeps out of 8 bits the layers without which the outputs come near enough to the float ones, if they are
        few."""
        work, products = self.work, self._products()
        feeds = take(work.data, min(DECIDING_SAMPLES, work.judges, max(1, RUNS // max(1, self._total()))))
        before, least = work.distance(self.state.model, feeds), work.options.least_snr
        if not before < least or work.data.synthetic or not products:  # outputs that are no numbers tell nothing
            return
        work.meter.add("looking for layers that decide", 8 * len(feeds) * len(products).bit_length())
        variant = self._variants()

        def distance(kept):
            work.meter.at(len(search.known), 8 * len(products).bit_length())
            return work.distance(variant(kept), feeds)

        def share(kept):
            return self.state.placement.macs_share - self._place(variant(kept)).macs_share

        names = [unit.name for unit in products]
        search = deciding.Search(names, distance, share, least + deciding.MORE_DECIBELS)
        found = search.find(before)
        if found is None:
            return
        self._take(found.names, sixteen.WHY if self._budget() > 0 else FLOAT)
        near = work.distance(self.state.model, feeds) >= min(found.after, search.least) - SAME_DECIBELS
        left = [u.name for u in self.state.plan.units if u.name in set(found.names) and (u.bits != 16 or not near)]
        if len(left) == len(products):
            raise argument(
                f"nothing of the model can be quantised: in int8 its outputs are {before:.1f} dB from the float ones, "
                f"and every product decides ({few(found.names)}); run it as it is, or give --least-snr a smaller number"
            )
        if not near:  # as in front of a logarithm of very small values
            self._take(found.names, FLOAT)
        told = f"in int8 the outputs would be {before:.1f} dB from the float ones, so they are {found.after:.1f} dB"
        fine = [name for name in found.names if name not in left]
        for some, how in ((fine, "are computed in 16 bits"), (left, "stay float")):
            if some:
                self._warn(f"{few(some)} {how}: {told}; --least-snr {before:.0f} quantises them too")

    # --- finer steps where they are cheap

    def make_finer(self):
        """Computes products in 16 bits until the outputs are near, as far as they are few."""
        work, graph = self.work, self.state.plan.graph
        total, budget = self._total(), self._budget()
        products = [u for u in self._products() if sixteen.may_be(u, graph, work.calibrated.ranges)]
        if work.data.synthetic or not products or budget <= 0:
            return
        feeds = take(work.data, min(work.judges, max(1, RUNS // max(1, total))))
        before, fine = work.distance(self.state.model, feeds), self._fine()
        if not before < fine:
            return
        alone = local.losses(self.state, products, feeds[:LOCAL_SAMPLES])
        trials = len(alone).bit_length() + 3
        work.meter.add("looking for layers that need finer steps", 8 * len(feeds) * trials)
        variant, tried = self._variants(), []

        def distance(kept):
            tried.append(kept)
            work.meter.at(len(tried), trials)
            return work.distance(variant(kept), feeds)

        finer = deciding.Finer(alone, distance)
        wanted, most = fine + MORE_DECIBELS, FAR_SHARE * total
        if work.options.sixteen is None and total <= FINE_PRODUCTS:
            wanted = max(wanted, SMALL_DECIBELS)
        may_be_more = work.options.sixteen is None and budget < most
        if may_be_more and (reached := finer.reached(budget)) < FAR_DECIBELS:
            gained = finer.reached(most) - max(before, reached)
            wanted, budget = (FAR_DECIBELS, most) if gained >= FAR_GAIN else (wanted, budget)
        names, after = finer.choose(wanted, budget)
        if not names or not after >= before + FINE_GAIN:
            return
        kept = dict(work.float_nodes)
        self._take(names, sixteen.WHY)
        after = work.distance(self.state.model, feeds)
        if not after >= before + FINE_GAIN:
            work.float_nodes = kept
            work.settle(afresh=True)
            return
        cost = sum(product.cost for product in alone if product.name in names)
        share = min(100.0, 100 * cost / max(1, total))  # the cost counts padding too
        self._warn(
            f"{few(names)} are computed in 16 bits, which is {share:.1f} % of the products: the "
            f"outputs are {after:.1f} dB from the float ones instead of {before:.1f}; --sixteen 0 leaves them in 8"
        )

    def keep_transposed(self):
        """Keeps transposed convolutions, which have no form in 16 bits, in float where the outputs are not near with
        them and clearly nearer without."""
        work, names = self.work, [u.name for u in self._products() if is_onnx(u.node, "ConvTranspose")]
        if work.data.synthetic or not names or self._budget() <= 0:
            return
        feeds = take(work.data, min(work.judges, max(1, RUNS // max(1, self._total()))))
        before = work.distance(self.state.model, feeds)
        if not before < self._fine():
            return
        other = self._variants()(names)
        after, share = work.distance(other, feeds), self.state.placement.macs_share - self._place(other).macs_share
        if after >= before + max(deciding.GAIN_DECIBELS, deciding.PRICE_DECIBELS * share):
            self._take(names, FLOAT)
            told = f"the outputs are {after:.1f} dB from the float ones instead of {before:.1f}"
            self._warn(f"{few(names)} stay float: {told}; --sixteen 0 leaves them in 8 bits")

    @staticmethod
    def _warn(sentence):
        warnings.warn(sentence, stacklevel=6)

    # --- sensitivity

    def sensitivities(self):
        """Product's name -> what the SNR of the network's outputs gains, in dB, when this layer alone stays float."""
        work = self.work
        feeds = take(work.data, min(SENSITIVITY_SAMPLES, work.judges))
        base = work.distance(self.state.model, feeds)
        left = {unit.name: unit.why for unit in self.state.plan.units if not unit.quantised and unit.why}
        gains, products = {}, self._products()
        work.meter.add("measuring sensitivity", 2 * len(feeds) * len(self.state.plan.units))
        for k, unit in enumerate(products):
            work.meter.at(k, len(products))
            try:
                variant = work.candidate({**left, unit.name: "alone"})
            except ValueError:
                continue
            distance = work.distance(variant.model, feeds)
            gains[unit.name] = distance - base if math.isfinite(distance) and math.isfinite(base) else 0.0
        return gains

    def gains_of_layers(self):
        """The sensitivities as they were measured last; else they are measured."""
        return self.gains or self.sensitivities()

    def ranking(self):
        """Products with their gains, the most sensitive first."""
        self.gains = self.sensitivities()
        return sorted(self.gains.items(), key=lambda pair: -pair[1])

    def keep_most_sensitive(self, count):
        self._take([name for name, _ in self.ranking()[:count]], "kept float: among the most sensitive")

    def limit_drop(self, score, most):
        """Keeps the most sensitive layers float, one more at a time, until `score` (of a model; larger is better) is
        within `most` of the float model's."""
        target = score(self.work.float_model) - most
        ranking = self.ranking()
        kept = 0
        while score(self.state.model) < target:
            if kept == len(ranking):
                raise argument(
                    f"--max-drop {most}: not reached with any number of layers in float; calibrate on more data"
                )
            step = max(1, kept // 4)
            names = [name for name, _ in ranking[kept : kept + step]]
            self.work.float_nodes.update(dict.fromkeys(names, "kept float for --max-drop"))
            kept += step
            if kept >= len(ranking):
                raise argument(
                    f"--max-drop {most}: not reached with all but the last of {len(ranking)} layers in float; check "
                    "the calibration data and the labels"
                )
            self.work.settle()
        return kept


def few(names):
    """The first names, and how many more there are."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(repr(name) for name in names[:3]) + more
