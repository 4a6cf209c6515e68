// SPDX-License-Identifier: Apache-2.0
// The oracle's loops and the simulator's harness.
#include "compiler/npu/tests/reference.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <deque>
#include <functional>
#include <limits>
#include <utility>

#include "base/row_arithmetic.h"
#include "isa/verify/effects.h"
#include "isa/verify/verify.h"
#include "sim/functional/chip.h"

namespace tessera::npu::test {

namespace {

int32_t wrap8(int64_t value, bool is_unsigned) {
  return is_unsigned ? static_cast<int32_t>(static_cast<uint8_t>(value))
                     : static_cast<int32_t>(static_cast<int8_t>(value));
}

int32_t round_clamped(float g, int32_t low, int32_t high) {
  if (std::isnan(g)) return low;
  const float clamped = std::min(std::max(g, static_cast<float>(low)), static_cast<float>(high));
  return static_cast<int32_t>(std::nearbyintf(clamped));  // the default mode: half to even
}

/// Storage of a graph: every element of a root tensor once; views and reshapes find theirs.
class Store {
 public:
  explicit Store(const Graph& graph) : graph_(graph), data_(graph.tensors.size()) {
    for (size_t i = 0; i < data_.size(); ++i) data_[i].assign(static_cast<size_t>(graph.tensors[i].elements()), 0);
  }
  int32_t& at(TensorId id, int64_t n, int64_t h, int64_t w, int64_t c) {
    const Tensor& t = graph_.tensors[static_cast<size_t>(id)];
    if (t.strided) {
      const Tensor& p = graph_.tensors[static_cast<size_t>(t.view_of)];
      int64_t flat = t.view_start + n * t.step_n + h * t.step_h + w * t.step_w + c;
      const int64_t pc = flat % p.c;
      flat /= p.c;
      const int64_t pw = flat % p.w;
      flat /= p.w;
      return at(t.view_of, flat / p.h, flat % p.h, pw, pc);
    }
    if (t.view_of != kNoTensor) return at(t.view_of, n + t.view_n, h + t.view_h, w + t.view_w, c + t.view_c);
    int64_t flat = ((n * t.h + h) * t.w + w) * t.c + c;
    if (t.reshape_of != kNoTensor) {
      const Tensor& p = graph_.tensors[static_cast<size_t>(t.reshape_of)];
      const int64_t pc = flat % p.c;
      flat /= p.c;
      const int64_t pw = flat % p.w;
      flat /= p.w;
      return at(t.reshape_of, flat / p.h, flat % p.h, pw, pc);
    }
    return data_[static_cast<size_t>(id)][static_cast<size_t>(flat)];
  }
  int32_t broadcast(TensorId id, int64_t n, int64_t h, int64_t w, int64_t c) {
    const Tensor& t = graph_.tensors[static_cast<size_t>(id)];
    return at(id, t.n == 1 ? 0 : n, t.h == 1 ? 0 : h, t.w == 1 ? 0 : w, t.c == 1 ? 0 : c);
  }

 private:
  const Graph& graph_;
  std::vector<Values> data_;
};

/// The stage at one element.
int32_t finish(const Stage& stage, int32_t value, int64_t c, int32_t second) {
  const auto pick = [&](const auto& values, auto absent) {
    return values.empty() ? absent : values.size() == 1 ? values[0] : values[static_cast<size_t>(c)];
  };
  const auto biased = static_cast<int32_t>(static_cast<uint32_t>(value) + static_cast<uint32_t>(pick(stage.bias, 0)));
  if (stage.raw) return biased;
  int32_t v;
  if (stage.convert) {
    volatile float scaled = static_cast<float>(biased);
    scaled = scaled * pick(stage.multiplier, 0.0f);
    v = round_clamped(scaled, stage.low, stage.high) + stage.out_zero;
  } else {
    v = std::clamp(value, stage.low, stage.high) + stage.out_zero;
  }
  if (stage.table) v = wrap8((*stage.table)[static_cast<uint8_t>(v)], stage.table_unsigned);
  if (stage.second) {
    const SecondOperation& s = *stage.second;
    const int32_t x = s.swap ? second : v, y = s.swap ? v : second;
    volatile float g = 0;
    switch (s.kind) {
      case SecondOperation::Kind::kAdd: {
        const float inner = std::fma(static_cast<float>(y), s.ry, s.f);
        g = std::fma(static_cast<float>(x), s.rx, inner);
        break;
      }
      case SecondOperation::Kind::kMul: {
        const float p = static_cast<float>((x - s.zx) * (y - s.zy));
        if (s.fused) {
          g = std::fma(p, s.rx, s.f);
        } else {
          g = p * s.rx;
          g = g + s.f;
        }
        break;
      }
      case SecondOperation::Kind::kMax: g = static_cast<float>(s.minimum ? std::min(x, y) : std::max(x, y)); break;
    }
    v = round_clamped(g, s.low, s.high) + s.zero;
  }
  if (stage.second_table) v = (*stage.second_table)[static_cast<uint8_t>(v)];
  return v;
}

class Interpreter {
 public:
  Interpreter(const Graph& graph, Store& store, int64_t length) : graph_(graph), store_(store), length_(length) {}

  void run(const Operation& operation) {
    std::visit([&](const auto& op) { run(op); }, operation.what);
  }

 private:
  const Tensor& tensor(TensorId id) const { return graph_.tensors[static_cast<size_t>(id)]; }

  void for_each_output(TensorId output, const Stage& stage,
                       const std::function<int32_t(int64_t, int64_t, int64_t, int64_t)>& value) {
    const Tensor& t = tensor(output);
    for (int64_t n = 0; n < t.n; ++n) {
      for (int64_t h = 0; h < t.h; ++h) {
        for (int64_t w = 0; w < t.w; ++w) {
          for (int64_t c = 0; c < t.c; ++c) {
            const int32_t second = stage.second ? store_.broadcast(stage.second->tensor, n, h, w, c) : 0;
            const int32_t v = finish(stage, value(n, h, w, c), c, second);
            store_.at(output, n, h, w, c) = t.element_bytes == 4 ? v : wrap8(v, t.is_unsigned);
          }
        }
      }
    }
  }

  void run(const Convolution& op) {
    const Tensor& in = tensor(op.input);
    const Tensor& out = tensor(op.output);
    const int64_t icg = in.c / op.groups, ocg = out.c / op.groups;
    for_each_output(op.output, op.stage, [&](int64_t n, int64_t h, int64_t w, int64_t c) {
      uint32_t sum = 0;
      for (int64_t kh = 0; kh < op.kernel_h; ++kh) {
        const int64_t y = h * op.stride_h - op.pads.top + kh * op.dilation_h;
        if (y < 0 || y >= in.h) continue;
        for (int64_t kw = 0; kw < op.kernel_w; ++kw) {
          const int64_t x = w * op.stride_w - op.pads.left + kw * op.dilation_w;
          if (x < 0 || x >= in.w) continue;
          for (int64_t i = 0; i < icg; ++i) {
            int32_t weight = op.weights[static_cast<size_t>(((c * icg + i) * op.kernel_h + kh) * op.kernel_w + kw)];
            if (!op.weight_zero.empty())
              weight -= op.weight_zero[op.weight_zero.size() == 1 ? 0 : static_cast<size_t>(c)];
            sum += static_cast<uint32_t>((store_.at(op.input, n, y, x, c / ocg * icg + i) - op.input_zero) * weight);
          }
        }
      }
      return static_cast<int32_t>(sum);
    });
  }

  void run(const Pool& op) {
    const Tensor& in = tensor(op.input);
    const bool sum = op.kind == Pool::Kind::kSum;
    const int32_t pad = wrap8(op.pad_value, in.is_unsigned);
    for_each_output(op.output, op.stage, [&](int64_t n, int64_t h, int64_t w, int64_t c) {
      int32_t result = sum ? 0 : INT32_MIN;
      for (int64_t kh = 0; kh < op.kernel_h; ++kh) {
        for (int64_t kw = 0; kw < op.kernel_w; ++kw) {
          const int64_t y = h * op.stride_h - op.pads.top + kh * op.dilation_h,
                        x = w * op.stride_w - op.pads.left + kw * op.dilation_w;
          const int32_t v = y < 0 || y >= in.h || x < 0 || x >= in.w ? pad : store_.at(op.input, n, y, x, c);
          result = sum ? result + v : std::max(result, v);
        }
      }
      return result;
    });
  }

  void run(const Elementwise& op) {
    for_each_output(op.output, op.stage, [&](int64_t n, int64_t h, int64_t w, int64_t c) {
      return store_.broadcast(op.input, n, h / op.repeat_h, w / op.repeat_w, c);
    });
  }

  void run(const Product& op) {
    const Tensor &in = tensor(op.input), &factor = tensor(op.factor);
    for_each_output(op.output, op.stage, [&](int64_t n, int64_t h, int64_t w, int64_t c) {
      uint32_t sum = 0;
      for (int64_t k = 0; k < in.c; ++k) {
        const int32_t x = store_.at(op.input, in.n == 1 ? 0 : n, in.h == 1 ? 0 : h, w, k);
        const int64_t fn = factor.n == 1 ? 0 : n, fh = factor.h == 1 ? 0 : h;
        const int32_t y = op.transposed ? store_.at(op.factor, fn, fh, c, k) : store_.at(op.factor, fn, fh, k, c);
        sum += static_cast<uint32_t>((x - op.input_zero) * (y - op.factor_zero));
      }
      return static_cast<int32_t>(sum);
    });
  }

  void run(const Transposition& op) {
    for_each_output(op.output, op.stage,
                    [&](int64_t n, int64_t h, int64_t w, int64_t c) { return store_.at(op.input, n, h, c, w); });
  }

  /// By the processor's floating point, for tables as models have them.
  static void run(const Kernel&) { throw Error(ErrorCode::kUnsupported, "a kernel has no plain meaning"); }

  void run(const Rows& op) {
    const Tensor& out = tensor(op.output);
    const auto length = static_cast<size_t>(out.c);
    const size_t inside = op.form.shortest > 0 ? static_cast<size_t>(length_) : length;
    const int32_t highest = tensor(op.input).is_unsigned ? 255 : 127;
    for (int64_t n = 0; n < out.n; ++n) {
      for (int64_t h = 0; h < out.h; ++h) {
        for (int64_t w = 0; w < out.w; ++w) {
          std::vector<int32_t> row(inside);
          for (size_t c = 0; c < inside; ++c) row[c] = store_.at(op.input, n, h, w, static_cast<int64_t>(c));
          std::vector<int64_t> result =
              op.form.kind == RowForm::Kind::kSoftmax
                  ? softmax(op, row, op.form.fixed_shift ? highest : *std::ranges::max_element(row))
                  : normalised(op, row);
          result.resize(length, 0);
          for (size_t c = 0; c < length; ++c) {
            const int64_t v = std::clamp<int64_t>(result[c], op.stage.low, op.stage.high) + op.stage.out_zero;
            store_.at(op.output, n, h, w, static_cast<int64_t>(c)) = wrap8(v, out.is_unsigned);
          }
        }
      }
    }
  }

  /// `most`: the byte from which distances are taken.
  static std::vector<int64_t> softmax(const Rows& op, const std::vector<int32_t>& row, int32_t most) {
    if (op.form.shortest > 0) return softmax_of_length(op, row, most);
    const auto number = [](const Table& tables, int32_t d) {
      uint32_t bits = 0;
      for (size_t p = 0; p < 4; ++p) bits |= uint32_t{tables[p * 256 + static_cast<size_t>(d)]} << (8 * p);
      return std::bit_cast<float>(bits);
    };
    float sum = 0;
    for (const int32_t x : row) sum += number(op.form.sum_tables, most - x);
    std::vector<int64_t> result;
    for (const int32_t x : row) {
      const float quotient = number(op.form.map_tables, most - x) / sum;
      result.push_back(static_cast<int64_t>(std::nearbyint(std::min(quotient, 511.0f))));
    }
    return result;
  }

  /// QLinearSoftmax as ONNX Runtime computes it.
  static std::vector<int64_t> softmax_of_length(const Rows& op, const std::vector<int32_t>& row, int32_t most) {
    const float steps = std::floor(1 / op.form.output_scale), scale = op.form.input_scale;
    const float room = std::log(std::numeric_limits<float>::max() / static_cast<float>(row.size()));
    const double shift = std::max(0.0, double{room} - 5.0) / double{scale};
    const auto exponential = [&](int32_t d) {
      return static_cast<float>(std::exp((255.0 - d - 255.0 + shift) * scale));
    };
    float sum = 0;
    for (const int32_t x : row) sum += exponential(most - x);
    std::vector<int64_t> result;
    for (const int32_t x : row) {
      // A power of two keeps the product within fp32 and changes no rounding.
      const float quotient = exponential(most - x) * 0x1p-24F * steps / (sum * 0x1p-24F);
      result.push_back(static_cast<int64_t>(std::nearbyint(std::min(quotient, 511.0F))));
    }
    return result;
  }

  static std::vector<int64_t> normalised(const Rows& op, const std::vector<int32_t>& row) {
    const RowForm& form = op.form;
    int64_t sum = 0, squares = 0;
    for (const int32_t x : row) sum += x - form.zero, squares += int64_t{x - form.zero} * (x - form.zero);
    const rows::RowScalars scalars =
        rows::moments(sum, squares,
                      {static_cast<int32_t>(row.size()), static_cast<int32_t>(form.shift),
                       static_cast<int32_t>(form.offset), static_cast<uint64_t>(form.epsilon), form.centre});
    std::vector<int64_t> result;
    for (size_t c = 0; c < row.size(); ++c) {
      const auto of = [&](const std::vector<int32_t>& v) { return v[v.size() == 1 ? 0 : c]; };
      result.push_back(rows::normalise(row[c] - form.zero, scalars, of(form.factor), of(form.addend)));
    }
    return result;
  }

  const Graph& graph_;
  Store& store_;
  int64_t length_;
};

/// The least length of the rows whose length is known when they run, and one for this run.
std::pair<int64_t, int64_t> random_length(const Graph& graph, std::mt19937_64& random) {
  for (const Operation& operation : graph.operations) {
    const auto* rows = std::get_if<Rows>(&operation.what);
    if (rows == nullptr || rows->form.shortest == 0) continue;
    const int64_t shortest = rows->form.shortest, longest = graph.tensors[static_cast<size_t>(rows->output)].c;
    return {shortest, shortest + static_cast<int64_t>(random() % static_cast<uint64_t>(longest - shortest + 1))};
  }
  return {0, 0};
}

/// The graph in which what is appended stands lower by so many elements of the past.
Graph with_shorter_past(Graph graph, int64_t by) {
  for (Tensor& t : graph.tensors) {
    if (t.slide == 0) continue;
    const Tensor& parent = graph.tensors[static_cast<size_t>(t.view_of)];
    (t.slide == 1 && parent.c > 1 ? t.view_c : t.view_w) -= by;
  }
  return graph;
}

template <typename Use>
void for_each_element(const Tensor& t, Use&& use) {
  for (int64_t n = 0; n < t.n; ++n) {
    for (int64_t h = 0; h < t.h; ++h) {
      for (int64_t w = 0; w < t.w; ++w) {
        for (int64_t c = 0; c < t.c; ++c) use(n, h, w, c);
      }
    }
  }
}

std::string index(int64_t n, int64_t h, int64_t w, int64_t c) {
  return "[" + std::to_string(n) + "," + std::to_string(h) + "," + std::to_string(w) + "," + std::to_string(c) + "]";
}

}  // namespace

std::vector<Values> evaluate(const Graph& graph, const std::vector<Values>& inputs, int64_t length) {
  Store store(graph);
  for (size_t i = 0; i < inputs.size(); ++i) {
    size_t at = 0;
    for_each_element(
        graph.tensors[static_cast<size_t>(graph.inputs[i])],
        [&](int64_t n, int64_t h, int64_t w, int64_t c) { store.at(graph.inputs[i], n, h, w, c) = inputs[i][at++]; });
  }
  Interpreter interpreter(graph, store, length);
  for (const Operation& operation : graph.operations) interpreter.run(operation);
  std::vector<Values> result(graph.tensors.size());
  for (size_t i = 0; i < result.size(); ++i) {
    for_each_element(graph.tensors[i], [&](int64_t n, int64_t h, int64_t w, int64_t c) {
      result[i].push_back(store.at(static_cast<TensorId>(i), n, h, w, c));
    });
  }
  return result;
}

void append_pool(Graph& graph, Pool pool) {
  pool.input = graph.outputs[0];
  Tensor tensor = graph.tensors[static_cast<size_t>(pool.input)];
  pool.kernel_w = tensor.w;
  tensor.w = 1;
  pool.output = graph.add(tensor);
  graph.outputs = {pool.output};
  graph.operations.push_back({"pool", "", 0, pool});
}

Values random_values(const Tensor& tensor, std::mt19937_64& random) {
  Values values(static_cast<size_t>(tensor.elements()));
  for (int32_t& v : values) {
    v = tensor.element_bytes == 4 ? static_cast<int32_t>(random() % 2000001) - 1000000
                                  : wrap8(static_cast<int64_t>(random() & 255), tensor.is_unsigned);
  }
  return values;
}

std::string compare(const Graph& graph, const isa::MachineConfig& config, uint64_t seed, const Options& options,
                    Program* program_out, const std::function<void(std::vector<isa::Instruction>&)>& change) {
  Program program = compile(graph, config, options);
  if (program_out != nullptr) *program_out = program;
  if (change) change(program.instructions);
  return compare(graph, config, seed, options, program);
}

namespace {

/// What evaluate() says, asked once for a few of the last inputs: many programs of a graph are compared with it.
const std::vector<Values>& expected_of(const Graph& graph, const std::vector<Values>& inputs, int64_t length) {
  struct Evaluated {
    Graph graph;
    std::vector<Values> inputs;
    int64_t length = 0;
    std::vector<Values> values;
  };
  constexpr size_t kKept = 4;
  thread_local std::deque<Evaluated> evaluated;
  for (const Evaluated& one : evaluated)
    if (one.length == length && one.inputs == inputs && one.graph == graph) return one.values;
  if (evaluated.size() == kKept) evaluated.pop_front();
  return evaluated.emplace_back(graph, inputs, length, evaluate(graph, inputs, length)).values;
}

}  // namespace

std::string compare(const Graph& graph, const isa::MachineConfig& config, uint64_t seed, const Options& options,
                    const Program& program) {
  std::mt19937_64 random(seed);
  std::vector<Values> inputs;
  for (const TensorId id : graph.inputs)
    inputs.push_back(random_values(graph.tensors[static_cast<size_t>(id)], random));
  const auto [shortest, length] = random_length(graph, random);
  const auto shorter = options.room > 0 ? static_cast<int64_t>(random() % static_cast<uint64_t>(options.room + 1)) : 0;
  const std::vector<Values>& expected = expected_of(with_shorter_past(graph, shorter), inputs, length);

  sim::Chip chip(config);
  for (int placement = 0; placement < 2; ++placement) {
    for (int core = 0; core < config.cores; ++core)
      chip.core(static_cast<size_t>(core)).poison(seed + static_cast<uint64_t>(placement + 2 * core));
    std::vector<uint8_t> constants = program.constants, arena(program.arena_bytes), stays(1);
    for (const Placement& p : program.placements)
      if (p.base == kCacheBase)
        stays.resize(std::max(stays.size(), static_cast<size_t>(p.region_offset + p.region_bytes)));
    constants.resize(std::max<size_t>(constants.size(), 1));
    arena.resize(std::max<size_t>(arena.size(), 1));
    for (uint8_t& byte : arena) byte = static_cast<uint8_t>(random());
    const auto byte_at = [&](TensorId id, int64_t n, int64_t h, int64_t w, int64_t c) {
      const Placement& p = program.placements[static_cast<size_t>(id)];
      const int64_t e = graph.tensors[static_cast<size_t>(id)].element_bytes;
      return (p.base == kArenaBase ? arena : stays).data() + p.offset + n * p.image_pitch + h * p.row_pitch +
             w * p.pixel_pitch + c * e;
    };
    for (size_t i = 0; i < inputs.size(); ++i) {
      const TensorId id = graph.inputs[i];
      const Tensor& t = graph.tensors[static_cast<size_t>(id)];
      const Border& b = t.border;
      Tensor framed = t;
      framed.h += b.top + b.bottom;
      framed.w += b.left + b.right;
      for_each_element(framed, [&](int64_t n, int64_t h, int64_t w, int64_t c) {
        *byte_at(id, n, h - b.top, w - b.left, c) = static_cast<uint8_t>(b.value);
      });
      size_t at = 0;
      for_each_element(t, [&](int64_t n, int64_t h, int64_t w, int64_t c) {
        const auto bits = static_cast<uint32_t>(inputs[i][at++]);
        for (int k = 0; k < t.element_bytes; ++k) byte_at(id, n, h, w, c)[k] = static_cast<uint8_t>(bits >> (8 * k));
      });
    }
    const std::vector<uint8_t> constants_before = constants;
    sim::RunRequest request;
    request.instructions = program.instructions;
    const uint64_t constants_at = placement == 0 ? 0x1000 : 0x7fff0003, arena_at = placement == 0 ? 0x40000000 : 0x11;
    request.bases[kConstantBase] = constants_at;
    request.bases[kArenaBase] = arena_at;
    const uint64_t stays_at = placement == 0 ? 0x50000000 : 0x60000007;
    request.bases[kCacheBase] = stays_at;
    for (size_t i = 0; i < program.slides.size(); ++i)
      request.bases[kFirstSlideBase + i] = stays_at - static_cast<uint64_t>(shorter * program.slides[i]);
    request.bases[kLengthTableBase] = constants_at + static_cast<uint64_t>(length - shortest) * 1024;
    request.bases[isa::kRowLimitBase] = static_cast<uint64_t>(length);
    const sim::DramRegion regions[] = {{constants_at, constants.data(), constants.size()},
                                       {arena_at, arena.data(), arena.size()},
                                       {stays_at, stays.data(), stays.size()}};
    request.dram = regions;
    std::vector<sim::RunRequest> cores = {request};
    for (const CoreProgram& other : program.others) {
      cores.push_back(request);
      cores.back().instructions = other.instructions;
    }
    const sim::ChipResult result = chip.run({.cores = cores, .check_races = placement == 0, .threads = placement != 0});
    for (const sim::RunResult& core : result.cores)
      if (!core.ok())
        return "fault " + std::string(isa::to_string(core.fault.code)) + " at pc " + std::to_string(core.fault.pc);
    if (!result.races.empty()) {
      const sim::Race& race = result.races[0];
      return std::to_string(result.races.size()) + " races, first between " + std::to_string(race.first.pc) + " and " +
             std::to_string(race.second.pc) +
             (race.dram ? " in dram" : " in " + std::string(isa::to_string(race.space)));
    }
    if (constants != constants_before) return "the program wrote into its constants";
    for (const TensorId id : graph.outputs) {
      const Tensor& t = graph.tensors[static_cast<size_t>(id)];
      std::string problem;
      int64_t wrong = 0;
      size_t at = 0;
      for_each_element(t, [&](int64_t n, int64_t h, int64_t w, int64_t c) {
        const int32_t want = expected[static_cast<size_t>(id)][at++];
        uint32_t bits = 0;
        for (int k = 0; k < t.element_bytes; ++k) bits |= static_cast<uint32_t>(byte_at(id, n, h, w, c)[k]) << (8 * k);
        const int32_t got = t.element_bytes == 4 ? static_cast<int32_t>(bits) : wrap8(bits, t.is_unsigned);
        if (got == want) return;
        if (wrong++ == 0)
          problem =
              "'" + t.name + "' " + index(n, h, w, c) + " is " + std::to_string(got) + ", not " + std::to_string(want);
      });
      if (wrong > 0) return problem + " (" + std::to_string(wrong) + " elements differ)";
    }
  }
  return "";
}

}  // namespace tessera::npu::test
