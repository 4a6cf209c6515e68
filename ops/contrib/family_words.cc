// SPDX-License-Identifier: Apache-2.0
// Operators of com.microsoft in recognisers of text and speech: WordConvEmbedding, which makes a vector of the letters
// of each word, MaxpoolWithMask, and AttnLSTM, an LSTM whose input is joined by what it attends to in a memory.
#include <cmath>

#include "ops/kernels/recurrent.h"
#include "ops/kernels/window.h"

namespace tessera::ops {

namespace {

namespace words {

using kernel::elements;
using kernel::mutable_elements;

// --------------------------------------------------------------------------------------------------- WordConvEmbedding

enum WordInput : size_t { kLetters, kFilters, kWordBias, kTable };

/// Vectors [words, filters] of words [words, letters]; filters [filters, 1, window, size], a table [letters, size].
void infer_words(InferContext& c) {
  const TypeInfo &letters = c.input(kLetters), &filters = c.input(kFilters), &table = c.input(kTable);
  kernel::require_type(c.node, letters.dtype, kernel::set_of({DType::kInt32}), "the letters");
  kernel::require_rank(c.node, letters, 2, "the letters");
  kernel::require_rank(c.node, filters, 4, "the filters");
  kernel::require_rank(c.node, table, 2, "the table");
  for (size_t i : {kFilters, kWordBias, kTable})
    kernel::require_type(c.node, c.input(i).dtype, kernel::set_of({DType::kFloat}), "an operand");
  const auto agree = [&](int64_t a, int64_t b, const char* what) {
    if (a >= 0 && b >= 0 && a != b)
      c.node.fail(ErrorCode::kInvalidModel,
                  std::string(what) + ": " + std::to_string(a) + " where " + std::to_string(b) + " is needed");
  };
  const auto extent = [](const TypeInfo& t, size_t d) { return t.ranked ? t.shape[d] : -1; };
  agree(c.node.get_int("embedding_size", -1), extent(filters, 0), "embedding_size");
  agree(c.node.get_int("conv_window_size", -1), extent(filters, 2), "conv_window_size");
  agree(c.node.get_int("char_embedding_size", -1), extent(table, 1), "char_embedding_size");
  agree(extent(table, 1), extent(filters, 3), "the table's rows");
  agree(1, extent(filters, 1), "the filters' channels");
  const TypeInfo& bias = c.input(kWordBias);
  if (bias.is_static() && extent(filters, 0) >= 0) agree(element_count(bias.shape), extent(filters, 0), "the bias");
  if (extent(letters, 1) >= 0 && extent(letters, 1) < extent(filters, 2))
    c.node.fail(ErrorCode::kInvalidModel,
                "words of " + std::to_string(extent(letters, 1)) + " letters are shorter than the filters");
  c.outputs[0] = TypeInfo::tensor(DType::kFloat, {extent(letters, 0), extent(filters, 0)});
}

/// Letters are counted from 1, and 0 stands behind a word. A word that begins with 0 has the vector 0.
void evaluate_words(EvalContext& c, const std::vector<TypeInfo>& types) {
  const Tensor &letters = c.input(kLetters), &filters = c.input(kFilters), &table = c.input(kTable);
  const int64_t longest = letters.shape()[1], count = filters.shape()[0], window = filters.shape()[2],
                size = filters.shape()[3];
  const float *weights = elements<float>(filters), *bias = elements<float>(c.input(kWordBias));
  Tensor y(DType::kFloat, types[0].shape);
  for (int64_t word = 0; word < letters.shape()[0]; ++word) {
    const int32_t* const own = elements<int32_t>(letters) + word * longest;
    if (longest == 0 || own[0] <= 0) continue;
    const int64_t length =
        std::max<int64_t>(std::count_if(own, own + longest, [](int32_t l) { return l > 0; }), window);
    for (int64_t i = 0; i < length; ++i)
      if (own[i] < 0 || own[i] >= table.shape()[0])
        c.node.fail(ErrorCode::kInvalidArgument, "letter " + std::to_string(own[i]) + " is outside of the table of " +
                                                     std::to_string(table.shape()[0]));
    for (int64_t f = 0; f < count; ++f) {
      float best = -1e12f;
      for (int64_t at = 0; at + window <= length; ++at) {
        float sum = 0;
        for (int64_t k = 0; k < window; ++k)
          for (int64_t i = 0; i < size; ++i)
            sum = std::fma(elements<float>(table)[own[at + k] * size + i], weights[(f * window + k) * size + i], sum);
        best = std::max(best, std::tanh(sum + bias[f]));
      }
      mutable_elements<float>(y)[word * count + f] = best;
    }
  }
  c.outputs[0] = std::move(y);
}

// ----------------------------------------------------------------------------------------------------- MaxpoolWithMask

void infer_masked_pool(InferContext& c) {
  const TypeInfo &x = c.input(0), &mask = c.input(1);
  kernel::require_type(c.node, x.dtype, kernel::set_of({DType::kFloat}), "the input");
  kernel::require_type(c.node, mask.dtype, kernel::set_of({DType::kInt32}), "the mask");
  c.outputs[0] = TypeInfo::unranked(x.dtype);
  if (!x.ranked) return;
  kernel::require_rank(c.node, mask, static_cast<int64_t>(x.shape.size()), "the mask");
  for (size_t d = 2; mask.ranked && d < x.shape.size(); ++d)
    if (x.shape[d] >= 0 && mask.shape[d] >= 0 && x.shape[d] != mask.shape[d])
      c.node.fail(ErrorCode::kInvalidModel,
                  "the mask " + to_string(mask.shape) + " does not cover the input " + to_string(x.shape));
  const Window window = pooling_window(c.node, spatial_extents(c.node, x.shape));
  Shape shape = {x.shape[0], x.shape[1]};
  shape.insert(shape.end(), window.output.begin(), window.output.end());
  c.outputs[0] = TypeInfo::tensor(x.dtype, shape);
}

/// The greatest element of each window; of each of its rows what stands before the first 0 of the mask takes part. As
/// in ONNX Runtime the first element of a plane of two axes and more always does, and the mask of plane p begins
/// (p * plane) % planes elements in, where `planes` counts those of the mask.
void evaluate_masked_pool(EvalContext& c, const std::vector<TypeInfo>& types) {
  const Tensor &x = c.input(0), &mask = c.input(1);
  const Window window = pooling_window(c.node, spatial_extents(c.node, x.shape()));
  Tensor y(DType::kFloat, types[0].shape);
  const int64_t plane = element_count(window.input), out_plane = element_count(window.output),
                planes = x.shape()[0] * x.shape()[1], masks = mask.shape()[0] * mask.shape()[1],
                taps = window.kernel_size(), width = window.kernel.back();
  if (planes > 0 && masks == 0) c.node.fail(ErrorCode::kInvalidModel, "the mask is empty");
  float* const out = mutable_elements<float>(y);
  std::fill(out, out + y.size(), std::numeric_limits<float>::lowest());
  for_each_run(window, [&](int64_t first, int64_t count, const std::vector<int64_t>& offsets) {
    for (int64_t p = 0; p < planes; ++p) {
      const int32_t* const own = elements<int32_t>(mask) + p * plane % masks;
      for (int64_t j = 0; j < count; ++j)
        for (int64_t k = 0; k < taps; ++k) {
          const int64_t at = offsets[static_cast<size_t>(k * count + j)];
          if (at < 0) continue;
          if (own[at] == 0 && (at > 0 || window.rank() == 1)) {
            k += width - 1 - k % width;  // the rest of this row
            continue;
          }
          float& best = out[p * out_plane + first + j];
          best = std::max(best, elements<float>(x)[p * plane + at]);
        }
    }
  });
  c.outputs[0] = std::move(y);
}

// ------------------------------------------------------------------------------------------------------------ AttnLSTM

enum AttentionInput : size_t { kQuery = 8, kKey, kScore, kMemory, kMemoryLengths, kLayer };

TypeInfo leading(TypeInfo type, int64_t columns) {
  type.constant.reset();
  if (type.ranked && type.shape.size() == 3) type.shape[2] = columns;
  return type;
}

int64_t extent(const InferContext& c, size_t i, size_t d, int64_t rank) {
  kernel::require_rank(c.node, c.input(i), rank, "an operand of the attention");
  return c.input(i).ranked ? c.input(i).shape[d] : -1;
}

/// As LSTM, whose weights for the input have columns for what is attended to behind those for X.
void infer_attention_lstm(InferContext& c) {
  kernel::require_type(c.node, c.input(0).dtype, kernel::set_of({DType::kFloat}), "X");
  const int64_t memory = extent(c, kMemory, 2, 3), key = extent(c, kKey, 1, 3), attended = extent(c, kKey, 2, 3);
  const auto agree = [&](int64_t a, int64_t b, const char* what) {
    if (a >= 0 && b >= 0 && a != b)
      c.node.fail(ErrorCode::kInvalidModel,
                  std::string(what) + ": " + std::to_string(a) + " where " + std::to_string(b) + " is needed");
  };
  agree(key, memory, "depth of the memory layer");
  agree(extent(c, kQuery, 2, 3), attended, "size of the query layer");
  agree(extent(c, kScore, 1, 2), attended, "size of V");
  const int64_t hidden = c.input(2).ranked && c.input(2).shape.size() == 3 ? c.input(2).shape[2] : -1;
  agree(extent(c, kQuery, 1, 3), hidden, "depth of the query layer");
  if (c.input(0).ranked && c.input(0).shape.size() == 3)
    agree(extent(c, kMemory, 0, 3), c.input(0).shape[1], "batch of the memory");
  int64_t more = memory;
  if (c.has(kLayer)) {
    more = extent(c, kLayer, 2, 3);
    if (memory >= 0 && hidden >= 0) agree(extent(c, kLayer, 1, 3), memory + hidden, "depth of the attention layer");
  }
  if (c.has(kMemoryLengths))
    kernel::require_type(c.node, c.input(kMemoryLengths).dtype, kernel::set_of({DType::kInt32}), "memory_seq_lens");
  const TypeInfo &x = c.input(0), &w = c.input(1);
  const int64_t input = x.ranked && x.shape.size() == 3 ? x.shape[2] : -1;
  if (w.ranked && w.shape.size() == 3 && input >= 0 && more >= 0) agree(w.shape[2], input + more, "input size in W");
  std::vector<TypeInfo> cell(c.inputs.begin(), c.inputs.begin() + static_cast<int64_t>(kQuery));
  cell[1] = leading(w, input);
  InferContext inner{c.node, cell, c.outputs};
  recurrent::infer(inner, recurrent::Cell::kLstm, recurrent::Weights::kFloat);
}

using Vector = std::vector<float>;

/// y[i] += sum over k of x[k] * m[k, i] with m [length, y.size()].
void add_product(const float* x, int64_t length, const float* m, Vector& y) {
  const auto columns = static_cast<int64_t>(y.size());
  for (int64_t k = 0; k < length; ++k)
    for (int64_t i = 0; i < columns; ++i)
      y[static_cast<size_t>(i)] = std::fma(x[k], m[k * columns + i], y[static_cast<size_t>(i)]);
}

class AttentionLstm {
 public:
  explicit AttentionLstm(EvalContext& c)
      : c_(c),
        plan_(recurrent::plan_of(c.node, recurrent::Cell::kLstm)),
        steps_(c.input(0).shape()[0]),
        batch_(c.input(0).shape()[1]),
        input_(c.input(0).shape()[2]),
        hidden_(c.input(2).shape()[2]),
        columns_(c.input(1).shape()[2]),
        lengths_(recurrent::lengths_of(c, batch_, steps_)) {
    const Shape& memory = c.input(kMemory).shape();
    memory_steps_ = memory[1];
    depth_ = memory[2];
    attended_ = c.input(kKey).shape()[2];
  }

  void run() {
    const Shape last = {plan_.directions, batch_, hidden_};
    Tensor y(DType::kFloat, {steps_, plan_.directions, batch_, hidden_}), y_h(DType::kFloat, last),
        y_c(DType::kFloat, last);
    for (int64_t d = 0; d < plan_.directions; ++d)
      for (int64_t n = 0; n < batch_; ++n) {
        Vector h = initial(5, d, n), state = initial(6, d, n), joined(static_cast<size_t>(columns_ - input_), 0.0f);
        const Vector keys = keys_of(d, n);
        const int64_t length = lengths_[static_cast<size_t>(n)];
        const bool backward = plan_.reverse || d == 1;
        for (int64_t t = 0; t < length; ++t) {
          const int64_t at = backward ? length - 1 - t : t;
          step(d, at * batch_ + n, h, state, joined);
          attend(d, n, keys, h, joined);
          std::copy(h.begin(), h.end(),
                    mutable_elements<float>(y) + ((at * plan_.directions + d) * batch_ + n) * hidden_);
        }
        if (length == 0) h = state = Vector(static_cast<size_t>(hidden_), 0.0f);
        std::copy(h.begin(), h.end(), mutable_elements<float>(y_h) + (d * batch_ + n) * hidden_);
        std::copy(state.begin(), state.end(), mutable_elements<float>(y_c) + (d * batch_ + n) * hidden_);
      }
    Tensor* results[] = {&y, &y_h, &y_c};
    for (size_t i = 0; i < c_.outputs.size(); ++i) c_.outputs[i] = std::move(*results[i]);
  }

 private:
  const float* operand(size_t i, int64_t at) const { return elements<float>(c_.input(i)) + at; }
  Vector initial(size_t i, int64_t d, int64_t n) const {
    if (!c_.has(i)) return Vector(static_cast<size_t>(hidden_), 0.0f);
    const float* from = operand(i, (d * batch_ + n) * hidden_);
    return {from, from + hidden_};
  }
  int64_t memory_length(int64_t n) const {
    const int64_t length = c_.has(kMemoryLengths) ? c_.input(kMemoryLengths).at_int64(n) : memory_steps_;
    if (length < 1 || length > memory_steps_)
      c_.node.fail(ErrorCode::kInvalidArgument, "a memory length of " + std::to_string(length) + " lies outside [1, " +
                                                    std::to_string(memory_steps_) + "]");
    return length;
  }

  /// Keys [steps of the memory, size].
  Vector keys_of(int64_t d, int64_t n) const {
    Vector keys;
    for (int64_t s = 0; s < memory_length(n); ++s) {
      Vector key(static_cast<size_t>(attended_), 0.0f);
      add_product(operand(kMemory, (n * memory_steps_ + s) * depth_), depth_, operand(kKey, d * depth_ * attended_),
                  key);
      keys.insert(keys.end(), key.begin(), key.end());
    }
    return keys;
  }

  /// One step of the cell. `at`: row of X.
  void step(int64_t d, int64_t at, Vector& h, Vector& state, const Vector& joined) const {
    const int64_t n = hidden_;
    Vector a(static_cast<size_t>(4 * n), 0.0f);
    for (int64_t g = 0; g < 4 * n; ++g) {  // rows of gates i, o, f, c
      float sum = 0;
      const float *w = operand(1, (d * 4 * n + g) * columns_), *r = operand(2, (d * 4 * n + g) * n),
                  *x = operand(0, at * input_);
      for (int64_t k = 0; k < columns_; ++k)
        sum = std::fma(k < input_ ? x[k] : joined[static_cast<size_t>(k - input_)], w[k], sum);
      for (int64_t k = 0; k < n; ++k) sum = std::fma(h[static_cast<size_t>(k)], r[k], sum);
      if (c_.has(3)) sum += *operand(3, d * 8 * n + g) + *operand(3, d * 8 * n + 4 * n + g);
      a[static_cast<size_t>(g)] = sum;
    }
    const recurrent::Activation* f = plan_.activations.data() + d * 3;
    const float clip = c_.node.get_float("clip", std::numeric_limits<float>::max());
    const bool couples = c_.node.get_int("input_forget", 0) != 0;
    const auto gate = [&](int64_t g, int64_t i, const recurrent::Activation& activation, int64_t peep, float cell) {
      float sum = a[static_cast<size_t>(g * n + i)];
      if (peep >= 0 && c_.has(7)) sum += *operand(7, d * 3 * n + peep * n + i) * cell;
      return recurrent::apply(activation, std::clamp(sum, -clip, clip));
    };
    for (int64_t i = 0; i < n; ++i) {
      float& s = state[static_cast<size_t>(i)];
      const float in = gate(0, i, f[0], 0, s), forget = couples ? 1 - in : gate(2, i, f[0], 2, s);
      s = forget * s + in * gate(3, i, f[1], -1, 0);
      h[static_cast<size_t>(i)] = gate(1, i, f[0], 1, s) * recurrent::apply(f[2], s);
    }
  }

  /// What the new h attends to: the memory, weighted by softmax(V * tanh(key + query)), through the layer if there is
  /// one.
  void attend(int64_t d, int64_t n, const Vector& keys, const Vector& h, Vector& joined) const {
    Vector query(static_cast<size_t>(attended_), 0.0f), context(static_cast<size_t>(depth_), 0.0f);
    add_product(h.data(), hidden_, operand(kQuery, d * hidden_ * attended_), query);
    const float* const v = operand(kScore, d * attended_);
    const int64_t length = memory_length(n);
    Vector shares;
    double sum = 0;
    for (int64_t s = 0; s < length; ++s) {
      float score = 0;
      for (int64_t i = 0; i < attended_; ++i)
        score += v[i] * std::tanh(keys[static_cast<size_t>(s * attended_ + i)] + query[static_cast<size_t>(i)]);
      shares.push_back(std::exp(score));
      sum += static_cast<double>(shares.back());
    }
    for (float& share : shares)
      share = static_cast<float>(sum == 0 ? 1.0 / static_cast<double>(length) : static_cast<double>(share) / sum);
    add_product(shares.data(), length, operand(kMemory, n * memory_steps_ * depth_), context);
    if (!c_.has(kLayer)) {
      joined = std::move(context);
      return;
    }
    std::fill(joined.begin(), joined.end(), 0.0f);
    const auto width = static_cast<int64_t>(joined.size());
    const float* const layer = operand(kLayer, d * (hidden_ + depth_) * width);
    add_product(h.data(), hidden_, layer, joined);
    add_product(context.data(), depth_, layer + hidden_ * width, joined);
  }

  EvalContext& c_;
  const recurrent::Plan plan_;
  const int64_t steps_, batch_, input_, hidden_, columns_;
  const std::vector<int64_t> lengths_;
  int64_t memory_steps_ = 0, depth_ = 0, attended_ = 0;
};

void evaluate_attention_lstm(EvalContext& c, const std::vector<TypeInfo>&) { AttentionLstm(c).run(); }

}  // namespace words

}  // namespace

void register_words(Registry& registry) {
  kernel::add(registry, "WordConvEmbedding", 1, {4, 4}, words::infer_words, words::evaluate_words,
              {"char_embedding_size", "conv_window_size", "embedding_size"}, kernel::kOne, kMicrosoft);
  kernel::add(registry, "MaxpoolWithMask", 1, {2, 2}, words::infer_masked_pool, words::evaluate_masked_pool,
              {"auto_pad", "kernel_shape", "pads", "storage_order", "strides"}, kernel::kOne, kMicrosoft);
  kernel::add(
      registry, "AttnLSTM", 1, {12, 14}, words::infer_attention_lstm, words::evaluate_attention_lstm,
      {"activation_alpha", "activation_beta", "activations", "clip", "direction", "hidden_size", "input_forget"},
      {0, 3}, kMicrosoft);
}

}  // namespace tessera::ops
