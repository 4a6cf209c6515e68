// SPDX-License-Identifier: Apache-2.0
// Two modules walked in step.
#include "compiler/nn/growing_axes.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace tessera::nn {
namespace {

/// What stands between an input and the Concat that extends it, or behind that, and changes no axis.
bool passes_on(NodeOp op) {
  for (const char* type : {"Identity", "QuantizeLinear", "DequantizeLinear", "Cast"})
    if (op.is(type)) return true;
  return false;
}

/// Index of the function's result that `value` reaches through operators that change no axis.
std::optional<unsigned> result_of(mlir::Value value) {
  std::vector<mlir::Value> reached{value};
  for (size_t i = 0; i < reached.size() && i < 16; ++i) {
    for (mlir::OpOperand& use : reached[i].getUses()) {
      if (mlir::isa<mlir::func::ReturnOp>(use.getOwner())) return use.getOperandNumber();
      auto op = mlir::dyn_cast<NodeOp>(use.getOwner());
      if (op && passes_on(op) && use.getOperandNumber() == 0) reached.push_back(op.getResult(0));
    }
  }
  return std::nullopt;
}

/// What an operator that extends its operand adds to it and leaves.
struct Extension {
  mlir::Value added, result;
  int64_t added_axis = 0, axis = 0;
};

std::optional<Extension> extension(mlir::OpOperand& use) {
  auto op = mlir::dyn_cast<NodeOp>(use.getOwner());
  if (!op) return std::nullopt;
  const unsigned index = use.getOperandNumber();
  const auto shape = shape_of(use.get());
  if (op.is("Concat") && op.getInputs().size() == 2 && index == 0 && shape) {
    int64_t axis = to_node(op).get_int("axis", 0);
    if (axis < 0) axis += static_cast<int64_t>(shape->size());
    return Extension{op.getInputs()[1], op.getResult(0), axis, axis};
  }
  // Caches are [batch, heads, length, size]; queries have the new tokens.
  const bool grouped = op.is("GroupQueryAttention", "com.microsoft"), standard = op.is("Attention");
  const unsigned first = grouped ? 3 : 4;
  if ((grouped || standard) && (index == first || index == first + 1) && op.getOutputs().size() > 2) {
    const mlir::Value query = op.getInputs()[0];
    const auto rank = shape_of(query) ? static_cast<int64_t>(shape_of(query)->size()) : 3;
    return Extension{query, op.getResult(index - first + 1), rank - 2, 2};
  }
  return std::nullopt;
}

/// The operator that extends an input of the function, and which result of it has the outcome.
std::optional<std::pair<Extension, unsigned>> extension_of(mlir::Value input) {
  const auto shape = shape_of(input);
  if (!shape) return std::nullopt;
  std::vector<mlir::Value> reached{input};
  for (size_t k = 0; k < reached.size() && k < 16; ++k) {
    for (mlir::OpOperand& use : reached[k].getUses()) {
      if (const auto found = extension(use); found && found->axis < static_cast<int64_t>(shape->size()))
        if (const auto output = result_of(found->result)) return std::pair{*found, *output};
      auto op = mlir::dyn_cast<NodeOp>(use.getOwner());
      if (op && passes_on(op) && use.getOperandNumber() == 0) reached.push_back(op.getResult(0));
    }
  }
  return std::nullopt;
}

std::string where(mlir::Operation* op) { return "node '" + node_name(op) + "'"; }

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ErrorCode::kUnsupported,
              what + "; compile without a maximal length, or export the model so that positions and masks are inputs");
}

class Comparison {
 public:
  GrowingAxes run(mlir::func::FuncOp longer, mlir::func::FuncOp shorter) {
    block(longer.getBody().front(), shorter.getBody().front());
    return std::move(axes_);
  }

 private:
  void block(mlir::Block& a, mlir::Block& b) {
    if (a.getNumArguments() != b.getNumArguments()) refuse("the model's graph depends on the length of the past");
    for (unsigned i = 0; i < a.getNumArguments(); ++i)
      value(a.getArgument(i), b.getArgument(i), "input '" + value_name(a.getArgument(i)) + "'");
    auto x = a.begin(), y = b.begin();
    for (; x != a.end() && y != b.end(); ++x, ++y) operation(&*x, &*y);
    if (x != a.end() || y != b.end()) refuse("the model's graph depends on the length of the past");
  }

  void operation(mlir::Operation* a, mlir::Operation* b) {
    auto p = mlir::dyn_cast<NodeOp>(a), q = mlir::dyn_cast<NodeOp>(b);
    if (a->getName() != b->getName() || a->getNumResults() != b->getNumResults() ||
        a->getNumRegions() != b->getNumRegions() || (p && p.getOpType() != q.getOpType()))
      refuse(where(a) + ": the graph around it depends on the length of the past");
    if (!p && a->getNumResults() == 1) constant(a, b);
    for (unsigned i = 0; i < a->getNumResults(); ++i) value(a->getResult(i), b->getResult(i), where(a));
    for (unsigned r = 0; r < a->getNumRegions(); ++r) {
      mlir::Region &from = a->getRegion(r), &to = b->getRegion(r);
      if (!from.empty() && !to.empty()) block(from.front(), to.front());
    }
  }

  void constant(mlir::Operation* a, mlir::Operation* b) {
    const auto x = constant_value(a->getResult(0)), y = constant_value(b->getResult(0));
    if (!x && !y) return;
    const bool same = x && y && x->dtype() == y->dtype() && x->shape() == y->shape() &&
                      (x->dtype() == ops::DType::kString || x->bytes() == 0 ||
                       std::memcmp(x->data(), y->data(), static_cast<size_t>(x->bytes())) == 0);
    if (same) return;
    std::string reader = "a node";
    bool attends = false;
    for (mlir::Operation* user : a->getUsers()) {
      reader = where(user);
      auto node = mlir::dyn_cast<NodeOp>(user);
      attends = node && node.getOpType() == "GroupQueryAttention";
    }
    refuse(reader + " computes with the length of the past, which is known only at run time" +
           (attends ? " (`tessera quantize` spells it out in operators that do not)" : ""));
  }

  void value(mlir::Value a, mlir::Value b, const std::string& who) {
    const auto x = shape_of(a), y = shape_of(b);
    if (!x && !y) return;
    if (!x || !y || x->size() != y->size()) refuse(who + ": its rank depends on the length of the past");
    std::vector<int64_t> axes;
    for (size_t i = 0; i < x->size(); ++i) {
      const int64_t more = (*x)[i] - (*y)[i];
      if (more == 1) axes.push_back(static_cast<int64_t>(i));
      if (more != 0 && more != 1) refuse(who + " joins the axis of the past with another one");
    }
    if (!axes.empty()) axes_[a.getAsOpaquePointer()] = std::move(axes);
  }

  GrowingAxes axes_;
};

}  // namespace

std::vector<PastInput> past_inputs(mlir::func::FuncOp function) {
  std::vector<PastInput> found;
  mlir::Block& block = function.getBody().front();
  for (unsigned i = 0; i < block.getNumArguments(); ++i) {
    const auto extended = extension_of(block.getArgument(i));
    if (!extended || (*shape_of(block.getArgument(i)))[static_cast<size_t>(extended->first.axis)] >= 0) continue;
    found.push_back({i, extended->second, extended->first.axis});
  }
  return found;
}

int64_t added_to(mlir::func::FuncOp function, unsigned input) {
  const auto extended = extension_of(function.getBody().front().getArgument(input));
  if (!extended) return -1;
  const auto shape = shape_of(extended->first.added);
  const auto axis = static_cast<size_t>(extended->first.added_axis);
  return shape && axis < shape->size() ? (*shape)[axis] : -1;
}

GrowingAxes growing_axes(mlir::func::FuncOp longer, mlir::func::FuncOp shorter) {
  return Comparison().run(longer, shorter);
}

}  // namespace tessera::nn
