// SPDX-License-Identifier: Apache-2.0
// Control flow: If, Loop and Scan, whose bodies are subgraphs that the executor runs and infers. Inference asks the
// bodies for their result types: If covers both branches, Loop and Scan repeat until the types of the carried values no
// longer change. Evaluation calls the body once for each step and stacks what it leaves for the scan outputs.
#include "ops/control_types.h"

namespace tessera::ops {

namespace {

using namespace kernel;
using Kind = TypeInfo::Kind;

bool truth(const Node& node, const Value& value, const char* what) {
  if (value.kind != Value::Kind::kTensor || value.tensor.dtype() != DType::kBool || value.tensor.size() != 1)
    node.fail(ErrorCode::kInvalidModel, std::string(what) + " must be one boolean");
  return elements<uint8_t>(value.tensor)[0] != 0;
}

void check_condition_type(const Node& node, const TypeInfo& type, const char* what) {
  if (type.kind != Kind::kTensor) node.fail(ErrorCode::kInvalidModel, std::string(what) + " must be one boolean");
  require_type(node, type.dtype, kBoolSet, what);
  if (type.is_static() && element_count(type.shape) != 1)
    node.fail(ErrorCode::kInvalidModel, std::string(what) + " must be one boolean, not shape " + to_string(type.shape));
}

void require_count(const Node& node, size_t have, size_t want, const std::string& what) {
  if (have != want)
    node.fail(ErrorCode::kInvalidModel,
              what + ": " + std::to_string(have) + " where " + std::to_string(want) + " are needed");
}

/// Stacks equal tensors along a new axis. `empty` is the type of one element, for no elements: its unknown dimensions
/// become 0.
Tensor stack(const Node& node, const std::vector<Tensor>& parts, int64_t axis, const TypeInfo& empty) {
  const DType dtype = parts.empty() ? empty.dtype : parts[0].dtype();
  if (dtype == DType::kUndefined)
    node.fail(ErrorCode::kInvalidModel, "the element type of a scan output without iterations is not known");
  Shape shape = parts.empty() ? (empty.ranked ? empty.shape : Shape{}) : parts[0].shape();
  for (int64_t& dim : shape) dim = std::max<int64_t>(dim, 0);
  const size_t at = static_cast<size_t>(normalise_axis(node, axis, static_cast<int64_t>(shape.size()) + 1));
  const int64_t outer = product(shape, 0, at), inner = product(shape, at, shape.size()),
                count = static_cast<int64_t>(parts.size());
  Shape whole = shape;
  whole.insert(whole.begin() + static_cast<int64_t>(at), count);
  Tensor out(dtype, whole);
  visit_storage(dtype, [&]<typename T>(Tag<T>) {
    T* y = mutable_elements<T>(out);
    for (int64_t n = 0; n < count; ++n) {
      const Tensor& part = parts[static_cast<size_t>(n)];
      if (part.shape() != shape || part.dtype() != dtype)
        node.fail(ErrorCode::kInvalidModel, "a scan output has shape " + to_string(part.shape()) + " after shape " +
                                                to_string(shape) + ": iterations must agree");
      const T* x = elements<T>(part);
      for (int64_t o = 0; o < outer; ++o) std::copy(x + o * inner, x + (o + 1) * inner, y + (o * count + n) * inner);
    }
  });
  return out;
}

const Tensor& tensor_of(const Node& node, const Value& value, const char* what) {
  if (value.kind != Value::Kind::kTensor) node.fail(ErrorCode::kInvalidModel, std::string(what) + " must be a tensor");
  return value.tensor;
}

// ------------------------------------------------------------------------------------------------------- If

void infer_if(InferContext& c) {
  const TypeInfo& condition = c.input(0);
  check_condition_type(c.node, condition, "the condition");
  const auto then_branch = c.node.get_subgraph("then_branch"), else_branch = c.node.get_subgraph("else_branch");
  require_count(c.node, then_branch->output_count(), c.outputs.size(), "results of then_branch");
  require_count(c.node, else_branch->output_count(), c.outputs.size(), "results of else_branch");
  // A branch may make no sense for the shapes that led here: then the other one gives the types, and it fails if it is
  // ever taken.
  std::exception_ptr refusal;
  const auto types = [&](const Subgraph& branch) -> std::optional<std::vector<TypeInfo>> {
    try {
      return branch.infer({});
    } catch (const Error&) {
      if (!refusal) refusal = std::current_exception();
      return std::nullopt;
    }
  };
  if (condition.constant && condition.constant->size() == 1) {
    const bool taken = condition.constant->at_int64(0) != 0;
    types(*(taken ? else_branch : then_branch));
    c.outputs = (taken ? then_branch : else_branch)->infer({});
    return;
  }
  const auto a = types(*then_branch), b = types(*else_branch);
  if (!a && !b) std::rethrow_exception(refusal);
  for (size_t i = 0; i < c.outputs.size(); ++i)
    c.outputs[i] =
        a && b ? cover_types(c.node, a->at(i), b->at(i), "result " + std::to_string(i)) : (a ? *a : *b).at(i);
}

void evaluate_if(EvalContext& c) {
  const bool taken = truth(c.node, Value(c.input(0)), "the condition");
  c.outputs = c.node.get_subgraph(taken ? "then_branch" : "else_branch")->run({});
  require_count(c.node, c.outputs.size(), c.node.output_count,
                taken ? "results of then_branch" : "results of else_branch");
}

// ----------------------------------------------------------------------------------------------------- Loop

/// Types of the body's results for carried values whose types no iteration changes; `carried` receives those types.
std::vector<TypeInfo> settle(const Node& node, const Subgraph& body, std::vector<TypeInfo>& carried,
                             size_t first_result,
                             const std::function<std::vector<TypeInfo>(const std::vector<TypeInfo>&)>& arguments) {
  for (;;) {
    const std::vector<TypeInfo> results = body.infer(arguments(carried));
    bool changed = false;
    for (size_t i = 0; i < carried.size(); ++i) {
      const TypeInfo wider =
          cover_types(node, carried[i], results.at(first_result + i), "carried value " + std::to_string(i));
      changed = changed || !same_type(wider, carried[i]);  // each change forgets something, so this ends
      carried[i] = wider;
    }
    if (!changed) return results;
  }
}

std::vector<TypeInfo> without_contents(const std::vector<TypeInfo>& types, size_t first, size_t last) {
  std::vector<TypeInfo> result;
  for (size_t i = first; i < last; ++i)
    result.push_back(types[i].present ? without_constant(types[i]) : TypeInfo::absent());
  return result;
}

/// Iterations when the operands alone fix them: -1 otherwise.
int64_t fixed_trips(const InferContext& c) {
  if (c.has(1) && c.inputs[1].constant && c.inputs[1].constant->size() == 1 && c.inputs[1].constant->at_int64(0) == 0)
    return 0;
  if (c.has(0) && c.inputs[0].constant && c.inputs[0].constant->size() == 1 && c.inputs[0].constant->at_int64(0) <= 0)
    return 0;
  return -1;
}

void infer_loop(InferContext& c) {
  const auto body = c.node.get_subgraph("body");
  const size_t carried_count = c.inputs.size() - std::min<size_t>(c.inputs.size(), 2);
  require_count(c.node, body->input_count(), carried_count + 2, "inputs of the body");
  require_count(c.node, body->output_count(), c.outputs.size() + 1, "results of the body");
  if (c.outputs.size() < carried_count) c.node.fail(ErrorCode::kInvalidModel, "has fewer outputs than carried values");
  if (c.has(0)) require_type(c.node, c.inputs[0].dtype, kInt64Set, "the trip count");
  if (c.has(1)) check_condition_type(c.node, c.inputs[1], "the condition");
  std::vector<TypeInfo> carried = without_contents(c.inputs, std::min<size_t>(c.inputs.size(), 2), c.inputs.size());
  const std::vector<TypeInfo> results = settle(c.node, *body, carried, 1, [](const std::vector<TypeInfo>& values) {
    std::vector<TypeInfo> arguments{TypeInfo::tensor(DType::kInt64, {}), TypeInfo::tensor(DType::kBool, {})};
    arguments.insert(arguments.end(), values.begin(), values.end());
    return arguments;
  });
  check_condition_type(c.node, results.at(0), "the condition that the body gives");
  const int64_t trips = fixed_trips(c);
  for (size_t i = 0; i < c.outputs.size(); ++i) {
    if (i < carried_count) {
      c.outputs[i] = carried[i];
      continue;
    }
    const TypeInfo& one = results.at(i + 1);
    if (one.kind != Kind::kTensor) c.node.fail(ErrorCode::kInvalidModel, "a scan output must be a tensor");
    c.outputs[i] = without_constant(one);
    if (trips == 0)
      for (int64_t& dim : c.outputs[i].shape)
        if (dim < 0) dim = 0;
    if (one.ranked) c.outputs[i].shape.insert(c.outputs[i].shape.begin(), trips);
  }
}

void evaluate_loop(EvalContext& c) {
  const auto body = c.node.get_subgraph("body");
  const size_t carried_count = c.inputs.size() - std::min<size_t>(c.inputs.size(), 2);
  require_count(c.node, body->input_count(), carried_count + 2, "inputs of the body");
  require_count(c.node, body->output_count(), c.outputs.size() + 1, "results of the body");
  if (c.outputs.size() < carried_count) c.node.fail(ErrorCode::kInvalidModel, "has fewer outputs than carried values");
  int64_t trips = std::numeric_limits<int64_t>::max();
  if (c.has(0)) {
    if (c.input(0).size() != 1) c.node.fail(ErrorCode::kInvalidModel, "the trip count must be one integer");
    trips = c.input(0).at_int64(0);
  }
  bool going = !c.has(1) || truth(c.node, c.inputs[1], "the condition");
  std::vector<Value> carried(c.inputs.begin() + static_cast<int64_t>(std::min<size_t>(c.inputs.size(), 2)),
                             c.inputs.end());
  std::vector<std::vector<Tensor>> scanned(c.outputs.size() - carried_count);
  for (int64_t trip = 0; trip < trips && going; ++trip) {
    std::vector<Value> arguments{Tensor::scalar_i64(trip), Tensor::of<uint8_t>(DType::kBool, {}, {1})};
    arguments.insert(arguments.end(), std::make_move_iterator(carried.begin()), std::make_move_iterator(carried.end()));
    std::vector<Value> results = body->run(arguments);
    require_count(c.node, results.size(), c.outputs.size() + 1, "results of the body");
    going = truth(c.node, results[0], "the condition that the body gives");
    for (size_t i = 0; i < carried_count; ++i) carried[i] = std::move(results[i + 1]);
    for (size_t i = 0; i < scanned.size(); ++i)
      scanned[i].push_back(tensor_of(c.node, results[1 + carried_count + i], "a scan output"));
  }
  std::vector<TypeInfo> types;
  for (size_t i = 0; i < scanned.size(); ++i) {
    if (scanned[i].empty() && types.empty()) {  // the body tells the types of what it would have left
      std::vector<TypeInfo> arguments{TypeInfo::tensor(DType::kInt64, {}), TypeInfo::tensor(DType::kBool, {})};
      for (const Value& value : carried) {
        arguments.push_back(type_of(value));
        arguments.back().constant.reset();
      }
      types = body->infer(arguments);
    }
    c.outputs[carried_count + i] =
        stack(c.node, scanned[i], 0, types.empty() ? TypeInfo{} : types.at(1 + carried_count + i));
  }
  for (size_t i = 0; i < carried_count; ++i) c.outputs[i] = std::move(carried[i]);
}

// ----------------------------------------------------------------------------------------------------- Scan

/// The shape of a Scan: how many states and scanned inputs, and how each is walked.
struct ScanPlan {
  std::shared_ptr<const Subgraph> body;
  size_t states = 0, scans = 0, results = 0;  // results: scan outputs
  std::vector<int64_t> input_directions, output_directions, input_axes, output_axes;
};

std::vector<int64_t> per_value(const Node& node, const char* name, size_t count, bool flags) {
  std::vector<int64_t> values = node.get_ints(name, std::vector<int64_t>(count, 0));
  require_count(node, values.size(), count, std::string("elements of ") + name);
  for (int64_t value : values)
    if (flags && value != 0 && value != 1)
      node.fail(ErrorCode::kInvalidModel, std::string(name) + " holds 0 (forward) or 1 (backward)");
  return values;
}

ScanPlan plan_scan(const Node& node, size_t operands, size_t outputs) {
  ScanPlan plan;
  plan.body = node.get_subgraph("body");
  const int64_t scans = node.get_int("num_scan_inputs", 0);
  if (scans < 1 || scans > static_cast<int64_t>(operands))
    node.fail(ErrorCode::kInvalidModel,
              "num_scan_inputs is " + std::to_string(scans) + " with " + std::to_string(operands) + " operands");
  plan.scans = static_cast<size_t>(scans);
  plan.states = operands - plan.scans;
  if (outputs < plan.states) node.fail(ErrorCode::kInvalidModel, "has fewer outputs than states");
  plan.results = outputs - plan.states;
  require_count(node, plan.body->input_count(), operands, "inputs of the body");
  require_count(node, plan.body->output_count(), outputs, "results of the body");
  if (node.version < 9) {
    plan.input_directions = per_value(node, "directions", plan.scans, true);
    plan.output_directions.assign(plan.results, 0);
    plan.input_axes.assign(plan.scans, 0);
    plan.output_axes.assign(plan.results, 0);
  } else {
    plan.input_directions = per_value(node, "scan_input_directions", plan.scans, true);
    plan.output_directions = per_value(node, "scan_output_directions", plan.results, true);
    plan.input_axes = per_value(node, "scan_input_axes", plan.scans, false);
    plan.output_axes = per_value(node, "scan_output_axes", plan.results, false);
  }
  return plan;
}

/// `batch`: dimensions in front of every operand (1 for opset 8). The operands begin at `first`.
void infer_scan_from(InferContext& c, size_t first, size_t batch) {
  const ScanPlan plan = plan_scan(c.node, c.inputs.size() - first, c.outputs.size());
  int64_t length = -1, items = -1;
  const auto agree = [&](int64_t& known, int64_t dim, const char* what) {
    if (known >= 0 && dim >= 0 && known != dim)
      c.node.fail(ErrorCode::kInvalidModel, std::string("operands disagree on the ") + what + ": " +
                                                std::to_string(known) + " and " + std::to_string(dim));
    if (dim >= 0) known = dim;
  };
  const auto without = [&](TypeInfo type, int64_t axis, int64_t& known, const char* what) {
    type.constant.reset();
    if (!type.ranked) return type;
    const size_t at = static_cast<size_t>(normalise_axis(c.node, axis, static_cast<int64_t>(type.shape.size())));
    agree(known, type.shape[at], what);
    type.shape.erase(type.shape.begin() + static_cast<int64_t>(at));
    return type;
  };
  std::vector<TypeInfo> carried, scanned;
  for (size_t i = 0; i < plan.states + plan.scans; ++i) {
    TypeInfo type = c.input(first + i);
    if (type.kind != Kind::kTensor) c.node.fail(ErrorCode::kInvalidModel, "operands must be tensors");
    if (batch) type = without(type, 0, items, "batch");
    if (i >= plan.states)
      scanned.push_back(without(type, plan.input_axes[i - plan.states], length, "length of the scan"));
    else
      carried.push_back(without_constant(type));
  }
  const std::vector<TypeInfo> results =
      settle(c.node, *plan.body, carried, 0, [&](const std::vector<TypeInfo>& values) {
        std::vector<TypeInfo> arguments = values;
        arguments.insert(arguments.end(), scanned.begin(), scanned.end());
        return arguments;
      });
  for (size_t i = 0; i < c.outputs.size(); ++i) {
    TypeInfo type = i < plan.states ? carried[i] : without_constant(results.at(i));
    if (type.kind != Kind::kTensor) c.node.fail(ErrorCode::kInvalidModel, "results must be tensors");
    if (type.ranked && i >= plan.states) {
      const int64_t axis =
          normalise_axis(c.node, plan.output_axes[i - plan.states], static_cast<int64_t>(type.shape.size()) + 1);
      type.shape.insert(type.shape.begin() + axis, length);
    }
    if (type.ranked && batch) type.shape.insert(type.shape.begin(), items);
    c.outputs[i] = std::move(type);
  }
}

/// Element `index` of `axis` as a tensor without that axis.
Tensor slice(const Tensor& in, size_t axis, int64_t index) {
  Shape shape = in.shape();
  std::vector<int64_t> strides = row_strides(shape);
  const int64_t offset = index * strides[axis];
  shape.erase(shape.begin() + static_cast<int64_t>(axis));
  strides.erase(strides.begin() + static_cast<int64_t>(axis));
  return gather_strided(in, shape, offset, strides);
}

/// Runs one scan over `operands` for `steps` steps (-1: the whole length); results are states, then lists of scanned
/// results.
void run_scan(const Node& node, const ScanPlan& plan, const std::vector<Tensor>& operands, int64_t steps,
              std::vector<Value>& states, std::vector<std::vector<Tensor>>& scanned) {
  int64_t length = -1;
  std::vector<size_t> axes;
  for (size_t i = 0; i < plan.scans; ++i) {
    const Tensor& operand = operands[plan.states + i];
    axes.push_back(static_cast<size_t>(normalise_axis(node, plan.input_axes[i], operand.rank())));
    const int64_t dim = operand.shape()[axes[i]];
    if (length >= 0 && dim != length)
      node.fail(ErrorCode::kInvalidModel, "operands disagree on the length of the scan: " + std::to_string(length) +
                                              " and " + std::to_string(dim));
    length = dim;
  }
  if (steps < 0) steps = length;
  if (steps > length)
    node.fail(ErrorCode::kInvalidModel,
              "a sequence length of " + std::to_string(steps) + " exceeds the axis of " + std::to_string(length));
  states.assign(operands.begin(), operands.begin() + static_cast<int64_t>(plan.states));
  scanned.assign(plan.results, {});
  for (int64_t step = 0; step < steps; ++step) {
    std::vector<Value> arguments = states;
    for (size_t i = 0; i < plan.scans; ++i)
      arguments.push_back(
          slice(operands[plan.states + i], axes[i], plan.input_directions[i] ? steps - 1 - step : step));
    std::vector<Value> results = plan.body->run(arguments);
    require_count(node, results.size(), plan.states + plan.results, "results of the body");
    for (size_t i = 0; i < plan.states; ++i) states[i] = tensor_of(node, results[i], "a state");
    for (size_t i = 0; i < plan.results; ++i)
      scanned[i].push_back(tensor_of(node, results[plan.states + i], "a scan output"));
  }
  for (size_t i = 0; i < plan.results; ++i)
    if (plan.output_directions[i]) std::reverse(scanned[i].begin(), scanned[i].end());
}

/// What the body leaves when it never runs.
std::vector<TypeInfo> idle_types(const Node& node, const ScanPlan& plan, const std::vector<Tensor>& operands) {
  std::vector<TypeInfo> arguments;
  for (size_t i = 0; i < operands.size(); ++i) {
    Shape shape = operands[i].shape();
    if (i >= plan.states)
      shape.erase(shape.begin() + normalise_axis(node, plan.input_axes[i - plan.states], operands[i].rank()));
    arguments.push_back(TypeInfo::tensor(operands[i].dtype(), shape));
  }
  return plan.body->infer(arguments);
}

std::vector<Tensor> operands_from(EvalContext& c, size_t first) {
  std::vector<Tensor> operands;
  for (size_t i = first; i < c.inputs.size(); ++i) operands.push_back(c.input(i));
  return operands;
}

void infer_scan(InferContext& c) { infer_scan_from(c, 0, 0); }

void evaluate_scan(EvalContext& c) {
  const ScanPlan plan = plan_scan(c.node, c.inputs.size(), c.outputs.size());
  const std::vector<Tensor> operands = operands_from(c, 0);
  std::vector<Value> states;
  std::vector<std::vector<Tensor>> scanned;
  run_scan(c.node, plan, operands, -1, states, scanned);
  std::vector<TypeInfo> types(c.outputs.size());
  if (plan.results > 0 && scanned[0].empty()) types = idle_types(c.node, plan, operands);
  for (size_t i = 0; i < plan.states; ++i) c.outputs[i] = std::move(states[i]);
  for (size_t i = 0; i < plan.results; ++i)
    c.outputs[plan.states + i] = stack(c.node, scanned[i], plan.output_axes[i], types.at(plan.states + i));
}

void infer_scan_8(InferContext& c) {
  if (c.has(0)) {
    require_type(c.node, c.inputs[0].dtype, kInt64Set, "sequence_lens");
    require_rank(c.node, c.inputs[0], 1, "sequence_lens");
  }
  infer_scan_from(c, 1, 1);
}

/// Opset 8: every operand has a batch axis in front; items are scanned one by one up to their own length, and what lies
/// beyond is zero.
void evaluate_scan_8(EvalContext& c) {
  const ScanPlan plan = plan_scan(c.node, c.inputs.size() - 1, c.outputs.size());
  const std::vector<Tensor> operands = operands_from(c, 1);
  int64_t items = -1;
  for (const Tensor& operand : operands) {
    if (operand.rank() < 1 || (items >= 0 && operand.shape()[0] != items))
      c.node.fail(ErrorCode::kInvalidModel, "operands disagree on the batch");
    items = operand.shape()[0];
  }
  if (operands.back().rank() < 2)
    c.node.fail(ErrorCode::kInvalidModel, "scanned operands must have a batch and a sequence axis");
  const int64_t length = operands.back().shape()[1];
  std::vector<int64_t> lengths(static_cast<size_t>(items), -1);
  if (c.has(0)) {
    lengths = c.input(0).to_int64s();
    require_count(c.node, lengths.size(), static_cast<size_t>(items), "elements of sequence_lens");
  }
  if (items == 0) c.node.fail(ErrorCode::kUnsupported, "a batch of no items has no results");
  std::vector<std::vector<Tensor>> all(c.outputs.size());
  for (int64_t n = 0; n < items; ++n) {
    if (c.has(0) && lengths[static_cast<size_t>(n)] < 0)
      c.node.fail(ErrorCode::kInvalidModel, "a sequence length is negative");
    std::vector<Tensor> item;
    for (const Tensor& operand : operands) item.push_back(slice(operand, 0, n));
    std::vector<Value> states;
    std::vector<std::vector<Tensor>> scanned;
    run_scan(c.node, plan, item, lengths[static_cast<size_t>(n)], states, scanned);
    for (size_t i = 0; i < plan.states; ++i) all[i].push_back(states[i].tensor);
    for (size_t i = 0; i < plan.results; ++i) {
      const TypeInfo type =
          scanned[i].empty() ? idle_types(c.node, plan, item).at(plan.states + i) : TypeInfo::of(scanned[i][0]);
      Shape shape = type.shape;
      for (int64_t& dim : shape) dim = std::max<int64_t>(dim, 0);
      while (static_cast<int64_t>(scanned[i].size()) < length) scanned[i].emplace_back(type.dtype, shape);
      all[plan.states + i].push_back(stack(c.node, scanned[i], 0, type));
    }
  }
  for (size_t i = 0; i < all.size(); ++i) c.outputs[i] = stack(c.node, all[i], 0, TypeInfo{});
}

// ----------------------------------------------------------------------------------------------------- Refuse

/// Stands in the place of a branch that cannot run with the shapes that lead to it.
void evaluate_refuse(EvalContext& c) {
  throw Error(ErrorCode::kInvalidModel, c.node.get_string("message", "a branch cannot run with these shapes"));
}

}  // namespace

void register_control(Registry& r) {
  add_checked(r, "If", 1, kOne, infer_if, evaluate_if, {"then_branch", "else_branch"}, {1, -1});
  add_checked(r, "Loop", 1, {3, -1}, infer_loop, evaluate_loop, {"body"}, {1, -1});
  add_checked(r, "Loop", 11, {1, -1}, infer_loop, evaluate_loop, {"body"}, {0, -1});
  add_checked(
      r, "Refuse", 1, {0, 0}, [](InferContext&) {}, evaluate_refuse, {"message"}, {1, -1}, "ai.tessera", {},
      /*deterministic=*/false);
  add_checked(r, "Scan", 8, {2, -1}, infer_scan_8, evaluate_scan_8, {"body", "directions", "num_scan_inputs"}, {1, -1});
  add_checked(r, "Scan", 9, {1, -1}, infer_scan, evaluate_scan,
              {"body", "num_scan_inputs", "scan_input_directions", "scan_output_directions", "scan_input_axes",
               "scan_output_axes"},
              {1, -1});
}

}  // namespace tessera::ops
