// SPDX-License-Identifier: Apache-2.0
// The rules of graph.h, one after the other.
#include "compiler/npu/input/check.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/row_arithmetic.h"
#include "compiler/npu/graph/plan.h"
#include "compiler/npu/graph/second.h"
#include "compiler/npu/lowering/chain.h"
#include "compiler/npu/tasks/extremes.h"
#include "isa/verify/effects.h"

namespace tessera::npu {

namespace {

std::string shape_of(const Tensor& t) {
  return std::to_string(t.n) + "x" + std::to_string(t.h) + "x" + std::to_string(t.w) + "x" + std::to_string(t.c);
}

class Checker {
 public:
  explicit Checker(const Graph& graph) : graph_(graph) {}

  void run() {
    for (const Tensor& tensor : graph_.tensors) check_tensor(tensor);
    std::vector<bool> written(graph_.tensors.size(), false);
    for (const TensorId id : graph_.inputs) {
      where_ = "graph input";
      (void)tensor(id, "input");
      written[static_cast<size_t>(root_of(graph_, id))] = true;
    }
    for (size_t i = 0; i < graph_.tensors.size(); ++i) {
      const Tensor& t = graph_.tensors[i];
      where_ = "tensor '" + t.name + "'";
      require(t.border.empty() || is_input(static_cast<TensorId>(i)), "only a graph input may have a border");
    }
    for (const Operation& operation : graph_.operations) {
      where_ = "node '" + operation.name + "' (" + operation.kind + ")";
      std::visit([&](const auto& op) { check(op); }, operation.what);
      const Uses uses = uses_of(operation);
      for (const TensorId id : uses.read) {
        require(tensor(id, "operand").slide == 0, "reads the place of what is appended");
        require(written[static_cast<size_t>(root_of(graph_, id))],
                "reads tensor '" + tensor(id, "operand").name + "' before it is written");
      }
      const Tensor& target = tensor(root_of(graph_, uses.written), "output");
      require(!is_input(root_of(graph_, uses.written)) || target.cache >= 0, "writes a graph input");
      require(tensor(uses.written, "output").slide == 0 || target.cache >= 0, "appends to what does not stay");
      require(writable(tensor(uses.written, "output")), "writes a strided view whose elements overlap");
      written[static_cast<size_t>(root_of(graph_, uses.written))] = true;
    }
    check_scopes();
    for (const TensorId id : graph_.outputs) {
      where_ = "graph output";
      require(written[static_cast<size_t>(root_of(graph_, (tensor(id, "output"), id)))],
              "'" + tensor(id, "output").name + "' is never written");
    }
  }

 private:
  void require(bool condition, const std::string& message) const {
    if (!condition) throw Error(ErrorCode::kInvalidArgument, where_ + ": " + message);
  }

  bool is_input(TensorId id) const {
    for (const TensorId input : graph_.inputs) {
      if (input == id) return true;
    }
    return false;
  }

  /// Only what the next operation alone reads can stay on chip.
  void check_scopes() {
    std::vector<bool> passed(graph_.tensors.size(), false);
    const auto chip = [](const Tensor& t) { return t.scope == Scope::kChip; };
    if (std::any_of(graph_.tensors.begin(), graph_.tensors.end(), chip)) {
      const std::vector<bool> feeds = feeds_next(graph_);
      for (size_t i = 0; i < feeds.size(); ++i) {
        if (feeds[i]) passed[static_cast<size_t>(uses_of(graph_.operations[i]).written)] = true;
      }
    }
    for (size_t i = 0; i < graph_.tensors.size(); ++i) {
      const Tensor& t = graph_.tensors[i];
      where_ = "tensor '" + t.name + "'";
      require(t.scope == Scope::kOpen || (t.view_of == kNoTensor && t.reshape_of == kNoTensor),
              "a view and a reshape live where their parent does: they have no scope");
      require(!chip(t) || passed[i],
              "scope=chip is for the result of an operation that the next one alone reads, as its first input, and "
              "whose feeds_next is not false; scope=dram is always right");
    }
  }

  /// Elements of a strided view are apart when each step exceeds all that the smaller ones reach.
  static bool writable(const Tensor& t) {
    if (!t.strided) return true;
    std::array<std::pair<int64_t, int64_t>, 3> loops{{{t.step_n, t.n}, {t.step_h, t.h}, {t.step_w, t.w}}};
    std::sort(loops.begin(), loops.end());
    int64_t reach = t.c;
    for (const auto& [step, extent] : loops) {
      if (extent == 1) continue;
      if (step < reach) return false;
      reach += (extent - 1) * step;
    }
    return true;
  }

  const Tensor& tensor(TensorId id, const char* role) const {
    require(id >= 0 && static_cast<size_t>(id) < graph_.tensors.size(),
            std::string(role) + " is no tensor of the graph");
    return graph_.tensors[static_cast<size_t>(id)];
  }

  void check_tensor(const Tensor& t) {
    where_ = "tensor '" + t.name + "'";
    require(t.n >= 1 && t.h >= 1 && t.w >= 1 && t.c >= 1, "dimensions must be positive, not " + shape_of(t));
    const int64_t most = int64_t{1} << 31;
    require(t.n < most && t.h < most && t.w < most && t.c < most && t.n * t.h < most && t.n * t.h * t.w < (most << 4) &&
                t.elements() * t.element_bytes < (int64_t{1} << 35),
            "more than 32 GiB: " + shape_of(t));
    require(t.element_bytes == 1 || t.element_bytes == 4, "elements have 1 or 4 bytes");
    const Border& b = t.border;
    require(b.top >= 0 && b.left >= 0 && b.bottom >= 0 && b.right >= 0, "negative border");
    require(t.view_of == kNoTensor || t.reshape_of == kNoTensor, "both a view and a reshape");
    require(!t.strided || t.view_of != kNoTensor, "a strided view needs a parent");
    if (t.view_of != kNoTensor) {
      const Tensor& p = tensor(t.view_of, "view_of");
      require(t.element_bytes == p.element_bytes && t.is_unsigned == p.is_unsigned,
              "a view has its parent's element type");
      if (t.strided) {
        require(p.border.empty() && p.view_of == kNoTensor, "a strided view's parent has no border and is no view");
        require(t.view_start >= 0 && t.step_n >= 0 && t.step_h >= 0 && t.step_w >= 0, "negative start or step");
        const int64_t limit = p.elements();
        const auto reach = [&](int64_t extent, int64_t step) {
          return extent == 1 || step <= limit / (extent - 1) ? (extent - 1) * step : limit;
        };
        require(t.view_start + reach(t.n, t.step_n) + reach(t.h, t.step_h) + reach(t.w, t.step_w) + t.c <= limit,
                "the strided view " + shape_of(t) + " leaves its parent " + shape_of(p));
      }
      require(t.strided || (t.view_n >= 0 && t.view_h >= 0 && t.view_w >= 0 && t.view_c >= 0 && t.view_n + t.n <= p.n &&
                            t.view_h + t.h <= p.h && t.view_w + t.w <= p.w && t.view_c + t.c <= p.c),
              "the view " + shape_of(t) + " leaves its parent " + shape_of(p));
    }
    if (t.reshape_of != kNoTensor) {
      const Tensor& p = tensor(t.reshape_of, "reshape_of");
      require(t.elements() == p.elements() && t.element_bytes == p.element_bytes && p.border.empty() &&
                  p.view_of == kNoTensor,
              "a reshape has as many elements as its parent, which has no border and is no view");
    }
    root_of(graph_, static_cast<TensorId>(&t - graph_.tensors.data()));
  }

  void check_table(const std::optional<Table>& table) const {
    require(!table || table->size() == 256, "a table has 256 bytes");
  }

  /// `bytes`: values of the elements that the stage reads; nothing: it reads sums.
  void check_stage(const Stage& stage, const Tensor& output, bool bias_allowed,
                   std::optional<isa::IntegerRange> bytes = std::nullopt) const {
    if (stage.raw) {
      require(output.element_bytes == 4, "a raw result needs 4-byte elements");
      require(!stage.convert && !stage.table && !stage.second && !stage.second_table && stage.multiplier.empty(),
              "a raw result takes no further stage");
      require(bias_allowed || stage.bias.empty(), "a raw result has a bias after convolutions only");
    } else {
      require(output.element_bytes == 1, "the result has 1-byte elements");
      require(stage.convert || (stage.bias.empty() && stage.multiplier.empty()), "bias and multiplier need convert");
      require(!stage.convert || !stage.multiplier.empty(), "convert needs a multiplier");
    }
    const auto sized = [&](size_t size) { return size <= 1 || size == static_cast<size_t>(output.c); };
    require(sized(stage.bias.size()) && sized(stage.multiplier.size()),
            "bias and multiplier hold 1 element or one for each channel");
    require(stage.low >= -512 && stage.high <= 511 && stage.low <= stage.high, "bounds outside -512..511 or crossed");
    require(stage.out_zero >= -256 && stage.out_zero <= 255, "zero point outside -256..255");
    check_table(stage.table);
    check_table(stage.second_table);
    require(stage.second || !stage.second_table, "a second table follows a second operation");
    if (stage.second) {
      const SecondOperation& second = *stage.second;
      const Tensor& t = tensor(second.tensor, "second operand");
      require(t.element_bytes == 1, "the second operand has 1-byte elements");
      check_broadcast(t, output, "second operand");
      require(
          second_constants(second, first_stage_range(stage, bytes), byte_range(t.is_unsigned)).has_value(),
          "the second operation's constants do not fit the machine's fixed point (isa/semantics.md): factors too far "
          "apart, bounds outside -512..511 or crossed, or zero points outside -256..255");
    }
  }

  void check_broadcast(const Tensor& t, const Tensor& output, const char* role) const {
    const auto match = [](int64_t a, int64_t b) { return a == b || a == 1; };
    require(match(t.n, output.n) && match(t.h, output.h) && match(t.w, output.w) && match(t.c, output.c),
            std::string(role) + " " + shape_of(t) + " does not broadcast to " + shape_of(output));
  }

  template <typename Window>
  void check_window(const Window& op, const Tensor& input, const Tensor& output) const {
    require(op.kernel_h >= 1 && op.kernel_w >= 1 && op.stride_h >= 1 && op.stride_w >= 1 && op.dilation_h >= 1 &&
                op.dilation_w >= 1,
            "kernel, strides and dilations must be positive");
    require(op.pads.top >= 0 && op.pads.left >= 0 && op.pads.bottom >= 0 && op.pads.right >= 0,
            "pads must not be negative");
    const int64_t most = int64_t{1} << 20;
    require(op.kernel_h < most && op.kernel_w < most && op.stride_h < most && op.stride_w < most &&
                op.dilation_h < most && op.dilation_w < most && op.pads.top < most && op.pads.left < most,
            "kernel, strides, dilations or pads beyond 2^20");
    require(input.n == output.n, "images differ: " + shape_of(input) + ", " + shape_of(output));
    require(input.element_bytes == 1, "the input has 1-byte elements");
  }

  /// Millions of weights, and every pass over the graph ends here: the extremes of each channel are looked at.
  void check_weights(const Convolution& op, size_t channels) const {
    const size_t each = op.weights.size() / channels;
    for (size_t channel = 0; channel < channels; ++channel) {
      const int32_t zero = op.weight_zero.empty() ? 0 : op.weight_zero[op.weight_zero.size() == 1 ? 0 : channel];
      const Extremes found = extremes_of(std::span(op.weights).subspan(channel * each, each));
      const int32_t value = found.low - zero < -255 ? found.low - zero : found.high - zero;
      if (value < -255 || value > 255) require(false, "a weight minus its zero point is " + std::to_string(value));
    }
  }

  void check(const Convolution& op) const {
    const Tensor& input = tensor(op.input, "input");
    const Tensor& output = tensor(op.output, "output");
    check_window(op, input, output);
    const auto size = [](int64_t in, int64_t before, int64_t after, int64_t kernel, int64_t stride, int64_t dilation) {
      const int64_t room = in + before + after - dilation * (kernel - 1) - 1;
      return room < 0 ? 0 : room / stride + 1;
    };
    const int64_t h = size(input.h, op.pads.top, op.pads.bottom, op.kernel_h, op.stride_h, op.dilation_h);
    const int64_t w = size(input.w, op.pads.left, op.pads.right, op.kernel_w, op.stride_w, op.dilation_w);
    require(h == output.h && w == output.w,
            "the output is " + shape_of(output) + ", the window gives " + std::to_string(h) + "x" + std::to_string(w));
    require(op.groups >= 1 && input.c % op.groups == 0 && output.c % op.groups == 0,
            "groups do not divide the channels");
    const int64_t count = output.c * (input.c / op.groups) * op.kernel_h * op.kernel_w;
    require(static_cast<int64_t>(op.weights.size()) == count,
            "holds " + std::to_string(op.weights.size()) + " weights, the shape needs " + std::to_string(count));
    const size_t zeros = op.weight_zero.size();
    require(zeros <= 1 || zeros == static_cast<size_t>(output.c),
            "weight_zero holds 1 element or one for each output channel");
    for (const int32_t zero : op.weight_zero)
      require(zero >= -128 && zero <= 255, "a weight zero point is no 8-bit value");
    check_weights(op, static_cast<size_t>(output.c));
    require(
        input.is_unsigned ? op.input_zero >= 0 && op.input_zero <= 255 : op.input_zero >= -128 && op.input_zero <= 127,
        "input zero point " + std::to_string(op.input_zero) + " is outside the input's type");
    check_stage(op.stage, output, true);
  }

  void check(const Pool& op) const {
    const Tensor& input = tensor(op.input, "input");
    const Tensor& output = tensor(op.output, "output");
    check_window(op, input, output);
    require(input.c == output.c, "channels differ: " + shape_of(input) + ", " + shape_of(output));
    require(op.pad_value >= -128 && op.pad_value <= 255, "pad_value is no 8-bit value");
    const bool sums = op.kind == Pool::Kind::kSum;
    check_stage(op.stage, output, false, sums ? std::nullopt : std::optional(byte_range(input.is_unsigned)));
  }

  void check(const Elementwise& op) const {
    const Tensor& input = tensor(op.input, "input");
    const Tensor& output = tensor(op.output, "output");
    require(op.repeat_h >= 1 && op.repeat_w >= 1, "repeats must be positive");
    if (op.repeat_h > 1 || op.repeat_w > 1) {
      require(input.n == output.n && input.c == output.c && input.h * op.repeat_h == output.h &&
                  input.w * op.repeat_w == output.w,
              "the output " + shape_of(output) + " is not " + shape_of(input) + " repeated");
    } else {
      check_broadcast(input, output, "input");
    }
    require(input.element_bytes == 1 || op.stage.convert || op.stage.raw, "a 4-byte input needs convert or raw");
    check_stage(op.stage, output, false,
                input.element_bytes == 1 ? std::optional(byte_range(input.is_unsigned)) : std::nullopt);
  }

  void check(const Product& op) const {
    const Tensor& input = tensor(op.input, "input");
    const Tensor& factor = tensor(op.factor, "factor");
    const Tensor& output = tensor(op.output, "output");
    const auto match = [](int64_t a, int64_t b) { return a == b || a == 1; };
    require(
        match(input.n, output.n) && match(input.h, output.h) && match(factor.n, output.n) && match(factor.h, output.h),
        "matrices of " + shape_of(input) + " and " + shape_of(factor) + " do not broadcast to " + shape_of(output));
    const int64_t k = op.transposed ? factor.c : factor.w, columns = op.transposed ? factor.w : factor.c;
    require(input.w == output.w && input.c == k && columns == output.c, shape_of(input) + " by " + shape_of(factor) +
                                                                            (op.transposed ? " transposed" : "") +
                                                                            " is not " + shape_of(output));
    require(input.element_bytes == 1 && factor.element_bytes == 1, "the operands have 1-byte elements");
    const auto zero = [&](const Tensor& t, int32_t value) {
      return t.is_unsigned ? value >= 0 && value <= 255 : value >= -128 && value <= 127;
    };
    require(zero(input, op.input_zero) && zero(factor, op.factor_zero), "a zero point is outside its operand's type");
    check_stage(op.stage, output, true);
  }

  void check(const Transposition& op) const {
    const Tensor& input = tensor(op.input, "input");
    const Tensor& output = tensor(op.output, "output");
    require(input.n == output.n && input.h == output.h && input.w == output.c && input.c == output.w,
            shape_of(output) + " is not " + shape_of(input) + " transposed");
    require(input.element_bytes == 1 && !op.stage.raw, "transposed are tensors of 1-byte elements");
    check_stage(op.stage, output, false, byte_range(input.is_unsigned));
  }

  void check(const Rows& op) const {
    const Tensor& input = tensor(op.input, "input");
    const Tensor& output = tensor(op.output, "output");
    const RowForm& form = op.form;
    require(input.n == output.n && input.h == output.h && input.w == output.w && input.c == output.c,
            shape_of(output) + " is not " + shape_of(input));
    require(input.element_bytes == 1 && output.element_bytes == 1, "rows have 1-byte elements");
    const Stage& stage = op.stage;
    const bool normalises = form.kind == RowForm::Kind::kNormalise;
    require(!stage.raw && !stage.table && !stage.second && !stage.second_table && stage.bias.empty() &&
                stage.multiplier.empty() && stage.convert == normalises,
            "the stage of rows has bounds and a zero point, and convert where they are normalised");
    require(stage.low >= -512 && stage.high <= 511 && stage.low <= stage.high, "bounds outside -512..511 or crossed");
    require(stage.out_zero >= -256 && stage.out_zero <= 255, "zero point outside -256..255");
    require(form.shortest >= 0 && form.shortest <= input.c && (form.shortest == 0 || !normalises) &&
                (form.shortest == 0 || input.c <= static_cast<int64_t>(isa::kRowLimitMask)),
            "a softmax, and it alone, may have a length that is known when it runs, of 65,535 at most");
    require(form.shortest == 0 || (form.input_scale > 0 && form.output_scale > 0), "a scale is not positive");
    const size_t tables = normalises || form.shortest > 0 ? 0 : rows::kRowTables * 256;
    require(form.sum_tables.size() == tables && form.map_tables.size() == tables,
            "a softmax of a constant length, and it alone, has two times four tables");
    if (!normalises) return;
    const auto sized = [&](const std::vector<int32_t>& v) {
      return v.size() == 1 || v.size() == static_cast<size_t>(output.c);
    };
    require(sized(form.factor) && sized(form.addend), "factor and addend hold 1 element or one for each channel");
    const int32_t limit = 1 << (rows::kNormaliseFactorBits - 1);
    require(std::all_of(form.factor.begin(), form.factor.end(), [&](int32_t f) { return f >= -limit && f < limit; }),
            "a factor has more than 18 bits");
    const isa::IntegerRange zeros = byte_range(input.is_unsigned);
    require(form.zero >= zeros.low && form.zero <= zeros.high, "the zero point is outside the input's type");
    require(input.c <= rows::kMostRowLength, "a row that is normalised has at most 4096 elements");
    require(form.shift >= 0 && form.shift <= 16 && form.offset >= -32 && form.offset <= 31 && form.epsilon >= 0 &&
                form.epsilon >> 48 == 0,
            "shift, offset or epsilon are beyond their fields");
  }

  void check(const Kernel& op) const {
    std::vector<TensorId> tensors = op.inputs();
    tensors.push_back(op.output);
    require(op.begins.size() == tensors.size() && op.ends.size() == tensors.size(),
            "a kernel says where each of its tensors stands");
    for (size_t i = 0; i < tensors.size(); ++i) {
      const Tensor& t = tensor(tensors[i], "tensor");
      require(op.ends[i] - op.begins[i] >= t.elements() * t.element_bytes,
              shape_of(t) + " has no room where the kernel has its tensor");
      require(t.border.empty(), "a tensor of a kernel has no border");
    }
    require(op.words.size() == op.line_of.size() * isa::kInstructionBytes && op.macs.size() == op.lines.size(),
            "a kernel has a line for each instruction");
    require(std::all_of(op.line_of.begin(), op.line_of.end(),
                        [&](int32_t line) { return line >= 0 && static_cast<size_t>(line) < op.lines.size(); }),
            "an instruction is of no line");
  }

  const Graph& graph_;
  std::string where_;
};

}  // namespace

void check_graph(const Graph& graph) { Checker(graph).run(); }

}  // namespace tessera::npu
