// SPDX-License-Identifier: Apache-2.0
// RNN, GRU and LSTM. Weights are transposed once so that a step adds, for each input element in ascending order, one
// row to all gates; then the gates of the three cells follow the standard's equations. Items of a batch run one after
// another up to their own length, a reverse direction from that length down; what lies beyond a length stays zero. fp32
// and fp64 compute natively, narrower floats in fp32.
#include "ops/kernels/recurrent.h"

namespace tessera::ops {

namespace {

using namespace kernel;
using namespace recurrent;

/// [rows, columns] -> [columns, rows].
template <typename T>
std::vector<T> transposed(const T* in, int64_t rows, int64_t columns) {
  std::vector<T> out(static_cast<size_t>(rows * columns));
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t k = 0; k < columns; ++k) out[static_cast<size_t>(k * rows + r)] = in[r * columns + k];
  return out;
}

/// y[i] += sum over k of x[k] * m[k][i], k ascending; m has rows of `stride`, of which [first, first + count) are used.
template <typename T>
void accumulate(const T* x, int64_t length, const std::vector<T>& m, int64_t stride, int64_t first, int64_t count,
                T* y) {
  for (int64_t k = 0; k < length; ++k) {
    const T* row = m.data() + k * stride + first;
    for (int64_t i = 0; i < count; ++i) y[i] += x[k] * row[i];
  }
}

/// Everything one direction needs, as plain arrays.
template <typename T>
struct Direction {
  Cell cell;
  int64_t input, hidden;
  std::vector<T> w, r, wb, rb, p;  // w, r transposed: [input or hidden, gates * hidden]
  const Activation* f;             // activations of this direction
  bool clips = false, couples = false, reset_after = false;
  T clip = 0;

  T bound(T x) const { return clips ? std::min(clip, std::max(-clip, x)) : x; }

  /// One step: x [input]; h and (LSTM) cell state [hidden] are replaced.
  void step(const T* x, std::vector<T>& h, std::vector<T>& state) const {
    const int64_t n = hidden, rows = static_cast<int64_t>(kGates[static_cast<size_t>(cell)]) * n;
    std::vector<T> a(static_cast<size_t>(rows), T(0));
    accumulate(x, input, w, rows, 0, rows, a.data());
    const auto at = [n](int64_t gate, int64_t i) { return static_cast<size_t>(gate * n + i); };
    if (cell == Cell::kGru) {  // gates z, r, h
      accumulate(h.data(), n, r, rows, 0, 2 * n, a.data());
      for (int64_t i = 0; i < 2 * n; ++i)
        a[static_cast<size_t>(i)] =
            apply(f[0], bound(a[static_cast<size_t>(i)] + wb[static_cast<size_t>(i)] + rb[static_cast<size_t>(i)]));
      std::vector<T> recurrent(static_cast<size_t>(n), T(0)), reset = h;
      if (!reset_after)
        for (int64_t i = 0; i < n; ++i) reset[static_cast<size_t>(i)] *= a[at(1, i)];
      accumulate(reset.data(), n, r, rows, 2 * n, n, recurrent.data());
      for (int64_t i = 0; i < n; ++i) {
        T& sum = recurrent[static_cast<size_t>(i)];
        sum += rb[at(2, i)];
        if (reset_after) sum *= a[at(1, i)];
        const T candidate = apply(f[1], bound(a[at(2, i)] + sum + wb[at(2, i)])), z = a[at(0, i)];
        h[static_cast<size_t>(i)] = (1 - z) * candidate + z * h[static_cast<size_t>(i)];
      }
      return;
    }
    accumulate(h.data(), n, r, rows, 0, rows, a.data());
    for (int64_t i = 0; i < rows; ++i)
      a[static_cast<size_t>(i)] += wb[static_cast<size_t>(i)] + rb[static_cast<size_t>(i)];
    if (cell == Cell::kRnn) {
      for (int64_t i = 0; i < n; ++i) h[static_cast<size_t>(i)] = apply(f[0], bound(a[static_cast<size_t>(i)]));
      return;
    }
    for (int64_t i = 0; i < n; ++i) {  // gates i, o, f, c; peepholes i, o, f
      T& s = state[static_cast<size_t>(i)];
      const T in = apply(f[0], bound(a[at(0, i)] + p[at(0, i)] * s));
      const T forget = couples ? 1 - in : apply(f[0], bound(a[at(2, i)] + p[at(2, i)] * s));
      s = forget * s + in * apply(f[1], bound(a[at(3, i)]));
      const T out = apply(f[0], bound(a[at(1, i)] + p[at(1, i)] * s));
      h[static_cast<size_t>(i)] = out * apply(f[2], s);  // as ONNX Runtime: clip bounds the gates, not the cell state
    }
  }
};

/// Sequences of a cell through its steps. Elements of [steps, directions, batch, hidden], or of [batch, steps,
/// directions, hidden] where the batch comes first.
class Sequences {
 public:
  Sequences(EvalContext& c, Cell cell)
      : c_(c),
        cell_(cell),
        plan_(plan_of(c.node, cell)),
        x_(widen(c.input(0))),
        w_(widen(c.input(1))),
        r_(widen(c.input(2))),
        gates_(static_cast<int64_t>(kGates[static_cast<size_t>(cell)])),
        steps_(x_.shape()[plan_.batch_first ? 1 : 0]),
        batch_(x_.shape()[plan_.batch_first ? 0 : 1]),
        input_(x_.shape()[2]),
        hidden_(r_.shape()[2]),
        lengths_(lengths_of(c, batch_, steps_)) {
    const int64_t directions = plan_.directions;
    const Shape whole =
        plan_.batch_first ? Shape{batch_, steps_, directions, hidden_} : Shape{steps_, directions, batch_, hidden_};
    const Shape last = plan_.batch_first ? Shape{batch_, directions, hidden_} : Shape{directions, batch_, hidden_};
    y_ = Tensor(x_.dtype(), whole);
    y_h_ = Tensor(x_.dtype(), last);
    y_c_ = Tensor(x_.dtype(), last);
  }

  void run(const std::vector<TypeInfo>& types) {
    visit_float(x_.dtype(), [&]<typename T>(Tag<T>) {
      const Tensor h0 = optional(5), c0 = optional(6);
      for (int64_t d = 0; d < plan_.directions; ++d) {
        Direction<T> direction = direction_of<T>(d);
        for (int64_t n = 0; n < batch_; ++n) run_one(direction, d, n, h0, c0);
      }
    });
    Tensor* results[] = {&y_, &y_h_, &y_c_};
    for (size_t i = 0; i < c_.outputs.size(); ++i) c_.outputs[i] = narrow(std::move(*results[i]), types[i].dtype);
  }

 private:
  Tensor optional(size_t i) const { return c_.has(i) ? widen(c_.input(i)) : Tensor(); }
  bool has_cell_state(size_t i) const { return cell_ == Cell::kLstm && c_.has(i); }

  template <typename T>
  Direction<T> direction_of(int64_t d) const {
    const int64_t rows = gates_ * hidden_;
    Direction<T> direction;
    direction.cell = cell_;
    direction.input = input_;
    direction.hidden = hidden_;
    direction.w = transposed(elements<T>(w_) + d * rows * input_, rows, input_);
    direction.r = transposed(elements<T>(r_) + d * rows * hidden_, rows, hidden_);
    direction.wb.assign(static_cast<size_t>(rows), T(0));
    direction.rb = direction.wb;
    direction.p.assign(static_cast<size_t>(3 * hidden_), T(0));
    if (c_.has(3)) {
      const Tensor b = optional(3);
      const T* from = elements<T>(b) + d * 2 * rows;
      direction.wb.assign(from, from + rows);
      direction.rb.assign(from + rows, from + 2 * rows);
    }
    if (has_cell_state(7)) {
      const Tensor p = optional(7);
      direction.p.assign(elements<T>(p) + d * 3 * hidden_, elements<T>(p) + (d + 1) * 3 * hidden_);
    }
    direction.f = plan_.activations.data() + static_cast<size_t>(d) * kActivations[static_cast<size_t>(cell_)];
    direction.clips = c_.node.has("clip");
    direction.clip = static_cast<T>(c_.node.get_float("clip", 0));
    direction.couples = c_.node.get_int("input_forget", 0) != 0;
    direction.reset_after = c_.node.get_int("linear_before_reset", 0) != 0;
    return direction;
  }

  /// Sequence n in direction d.
  template <typename T>
  void run_one(Direction<T>& direction, int64_t d, int64_t n, const Tensor& h0, const Tensor& c0) {
    const int64_t directions = plan_.directions;
    const int64_t state_at = (plan_.batch_first ? n * directions + d : d * batch_ + n) * hidden_;
    std::vector<T> h(static_cast<size_t>(hidden_), T(0)), state = h;
    if (c_.has(5)) h.assign(elements<T>(h0) + state_at, elements<T>(h0) + state_at + hidden_);
    if (has_cell_state(6)) state.assign(elements<T>(c0) + state_at, elements<T>(c0) + state_at + hidden_);
    const bool backward = plan_.reverse || d == 1;
    const int64_t length = lengths_[static_cast<size_t>(n)];
    for (int64_t t = 0; t < length; ++t) {
      const int64_t step = backward ? length - 1 - t : t;
      direction.step(elements<T>(x_) + (plan_.batch_first ? n * steps_ + step : step * batch_ + n) * input_, h, state);
      const int64_t to =
          plan_.batch_first ? (n * steps_ + step) * directions + d : (step * directions + d) * batch_ + n;
      std::copy(h.begin(), h.end(), mutable_elements<T>(y_) + to * hidden_);
    }
    if (length == 0) {  // nothing was computed: no last value
      std::fill(h.begin(), h.end(), T(0));
      state = h;
    }
    std::copy(h.begin(), h.end(), mutable_elements<T>(y_h_) + state_at);
    std::copy(state.begin(), state.end(), mutable_elements<T>(y_c_) + state_at);
  }

  EvalContext& c_;
  const Cell cell_;
  const Plan plan_;
  const Tensor x_, w_, r_;
  const int64_t gates_, steps_, batch_, input_, hidden_;
  const std::vector<int64_t> lengths_;
  Tensor y_, y_h_, y_c_;
};

InferFunction infer_cell(Cell cell) {
  return [cell](InferContext& c) { infer(c, cell, Weights::kFloat); };
}

Kernel evaluate_cell(Cell cell) {
  return [cell](EvalContext& c, const std::vector<TypeInfo>& types) { Sequences(c, cell).run(types); };
}

}  // namespace

void register_recurrent(Registry& r) {
  const std::set<std::string> common{"clip",        "activation_alpha", "activation_beta",
                                     "activations", "direction",        "hidden_size"};
  const auto with = [](std::set<std::string> names, std::initializer_list<const char*> more) {
    names.insert(more.begin(), more.end());
    return names;
  };
  for (int version : {7, 14, 22}) {
    const std::set<std::string> names = version < 14 ? common : with(common, {"layout"});
    add(r, "RNN", version, {3, 6}, infer_cell(Cell::kRnn), evaluate_cell(Cell::kRnn), names, {0, 2});
    add(r, "GRU", version, {3, 6}, infer_cell(Cell::kGru), evaluate_cell(Cell::kGru),
        with(names, {"linear_before_reset"}), {0, 2});
    add(r, "LSTM", version, {3, 8}, infer_cell(Cell::kLstm), evaluate_cell(Cell::kLstm), with(names, {"input_forget"}),
        {0, 3});
  }
}

}  // namespace tessera::ops
