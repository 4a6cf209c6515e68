// SPDX-License-Identifier: Apache-2.0
// Draws shapes, parameters and constants.
#include "compiler/npu/tests/random_graph.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>

#include "compiler/npu/graph/second.h"

namespace tessera::npu::test {

namespace {

Tensor make_tensor(std::string name, int64_t n, int64_t h, int64_t w, int64_t c, bool is_unsigned) {
  Tensor t;
  t.name = std::move(name);
  t.n = n;
  t.h = h;
  t.w = w;
  t.c = c;
  t.is_unsigned = is_unsigned;
  return t;
}

int32_t zero_for(Random& random, bool is_unsigned) {
  if (is_unsigned) return static_cast<int32_t>(random.one_of<int64_t>({0, 128, 255, 113, random.between(0, 255)}));
  return static_cast<int32_t>(random.one_of<int64_t>({0, -128, 127, -13, random.between(-128, 127)}));
}

/// Sometimes an int32 result, with a bias or without; whether it is one.
bool make_raw(Random& random, Tensor& out, Stage& stage) {
  if (!random.chance(10)) return false;
  out.element_bytes = 4;
  stage.raw = true;
  if (random.chance(50)) {
    for (int64_t i = 0; i < out.c; ++i) stage.bias.push_back(static_cast<int32_t>(random.between(-100000, 100000)));
  }
  return true;
}

int64_t channels(Random& random, int64_t most) {
  return std::min<int64_t>(
      most, random.one_of<int64_t>({1, 2, 3, 5, 8, 16, 17, 31, 32, 48, 64, 65, 128, 257, random.between(1, most)}));
}

int64_t out_size(int64_t in, int64_t before, int64_t after, int64_t kernel, int64_t stride, int64_t dilation) {
  const int64_t room = in + before + after - dilation * (kernel - 1) - 1;
  return room < 0 ? 0 : room / stride + 1;
}

}  // namespace

isa::MachineConfig odd_machine(const std::string& name, int batch, int in, int out, int64_t inp, int64_t wgt,
                               int64_t acc, int64_t outs, int64_t params) {
  isa::MachineConfig config = isa::find_config("npu256");
  config.name = name;
  config.batch = batch;
  config.block_in = in;
  config.block_out = out;
  config.inp_bytes = inp * config.inp_entry_bytes();
  config.wgt_bytes = wgt * config.wgt_entry_bytes();
  config.acc_bytes = acc * config.acc_entry_bytes();
  config.out_bytes = outs * config.out_entry_bytes();
  config.param_bytes = params * config.param_entry_bytes();
  config.raster_pairs = in >= 8 && config.inp_entry_bytes() >= config.axi_bytes;
  isa::validate(config);
  return config;
}

Table random_table(Random& random) {
  Table table(256);
  for (uint8_t& byte : table) byte = static_cast<uint8_t>(random.between(0, 255));
  return table;
}

Stage random_stage(Random& random, const Tensor& output, double magnitude, bool per_channel) {
  Stage stage;
  stage.convert = true;
  const auto count = static_cast<size_t>(per_channel ? output.c : 1);
  for (size_t i = 0; i < count; ++i) {
    stage.bias.push_back(static_cast<int32_t>(random.between(-1000, 1000)));
    const double scale = 100.0 / std::max(magnitude, 1.0) * static_cast<double>(random.between(500, 1500)) / 1000.0;
    stage.multiplier.push_back(random.chance(20) ? std::ldexp(1.0f, static_cast<int>(std::lround(std::log2(scale))))
                                                 : static_cast<float>(scale));
  }
  if (per_channel && random.chance(20)) stage.bias.clear();
  stage.out_zero = zero_for(random, output.is_unsigned);
  stage.low = (output.is_unsigned ? 0 : -128) - stage.out_zero;
  stage.high = (output.is_unsigned ? 255 : 127) - stage.out_zero;
  if (random.chance(20)) stage.table = random_table(random);
  if (stage.table) stage.table_unsigned = random.chance(50);
  return stage;
}

void add_second(Random& random, Graph& graph, Stage& stage, const Tensor& output) {
  SecondOperation second;
  second.kind = random.one_of({SecondOperation::Kind::kAdd, SecondOperation::Kind::kMul, SecondOperation::Kind::kMax});
  Tensor t = make_tensor("second", output.n, output.h, output.w, output.c, random.chance(50));
  if (random.chance(50)) {
    if (random.chance(40)) t.n = 1;
    if (random.chance(50)) t.h = 1;
    if (random.chance(50)) t.w = 1;
    if (random.chance(30)) t.c = 1;
  }
  second.tensor = graph.add(t);
  graph.inputs.push_back(second.tensor);
  do {
    second.rx = static_cast<float>(random.between(-3000, 3000)) / 1777.0f;
    second.ry = static_cast<float>(random.between(-3000, 3000)) / 1777.0f;
    second.f = static_cast<float>(random.between(-300, 300)) / 7.0f;
    if (second.kind == SecondOperation::Kind::kMul) second.rx /= 100.0f;
    second.zx = static_cast<int32_t>(random.between(-128, 255));
    second.zy = static_cast<int32_t>(random.between(-128, 255));
    const bool zero_first = random.chance(50);  // zero point before rounding: none after
    second.zero = zero_first ? 0 : zero_for(random, output.is_unsigned);
    second.low = (output.is_unsigned ? 0 : -128) - second.zero;
    second.high = (output.is_unsigned ? 255 : 127) - second.zero;
    second.swap = random.chance(50);
    second.fused = random.chance(50);
    second.minimum = second.kind == SecondOperation::Kind::kMax && random.chance(50);
  } while (!second_constants(second, first_stage_range(stage, std::nullopt), byte_range(t.is_unsigned)));
  stage.second = second;
  if (random.chance(20)) stage.second_table = random_table(random);
}

Graph random_convolution(Random& random, int64_t most_channels, int64_t most_pixels) {
  Graph graph;
  Convolution op;
  Tensor in, out;
  for (;;) {
    op = {};
    in = make_tensor("in", random.one_of<int64_t>({1, 1, 2, 3, 5}), random.between(1, 19), random.between(1, 23),
                     channels(random, most_channels), random.chance(50));
    int64_t oc = channels(random, most_channels);
    const int64_t style = random.between(1, 10);
    if (style <= 3) {  // depthwise
      oc = in.c;
      op.groups = in.c;
    } else if (style <= 5) {  // groups of any size
      op.groups = random.one_of<int64_t>({2, 3, 4, 7, 16});
      in.c = op.groups * random.one_of<int64_t>({1, 2, 3, 4, 8, 11});
      oc = op.groups * random.one_of<int64_t>({1, 2, 3, 5, 8, 16});
    }
    if (random.chance(30)) {
      in.h = 1;
    } else if (random.chance(10)) {
      in.w = random.between(1, 300);
    }
    if (!random.chance(25)) {
      op.kernel_h = in.h == 1 && random.chance(80) ? 1 : random.one_of<int64_t>({1, 2, 3, 3, 5, 7});
      op.kernel_w = random.one_of<int64_t>({1, 2, 3, 3, 5, 7, 9});
    }
    op.stride_h = random.one_of<int64_t>({1, 1, 1, 2, 3, 5});
    op.stride_w = random.one_of<int64_t>({1, 1, 1, 2, 3, 4});
    if (random.chance(25)) {
      op.dilation_h = random.one_of<int64_t>({1, 2, 3});
      op.dilation_w = random.one_of<int64_t>({1, 2, 4});
    }
    if (random.chance(70))
      op.pads = {random.between(0, 3), random.between(0, 4), random.between(0, 3), random.between(0, 4)};
    out = make_tensor("out", in.n, out_size(in.h, op.pads.top, op.pads.bottom, op.kernel_h, op.stride_h, op.dilation_h),
                      out_size(in.w, op.pads.left, op.pads.right, op.kernel_w, op.stride_w, op.dilation_w), oc,
                      random.chance(50));
    if (out.h < 1 || out.w < 1) continue;
    if (in.n * in.h * in.w > most_pixels || out.n * out.h * out.w > most_pixels) continue;
    if (out.elements() * (in.c / op.groups) * op.kernel_h * op.kernel_w > 3000000) continue;
    break;
  }
  op.input_zero = zero_for(random, in.is_unsigned);
  if (random.chance(20))
    in.border = {op.pads.top + random.between(0, 1), op.pads.left, op.pads.bottom + 5, op.pads.right + 4,
                 op.input_zero};
  if (random.chance(5)) in.border.value = op.input_zero ^ 1;
  op.input = graph.add(in);
  graph.inputs.push_back(op.input);
  const bool weights_unsigned = random.chance(50);
  op.weights.resize(static_cast<size_t>(out.c * (in.c / op.groups) * op.kernel_h * op.kernel_w));
  for (int16_t& w : op.weights)
    w = static_cast<int16_t>(weights_unsigned ? random.between(0, 255) : random.between(-128, 127));
  switch (random.between(0, 3)) {
    case 0: break;
    case 1: op.weight_zero = {zero_for(random, weights_unsigned)}; break;
    case 2:
      for (int64_t i = 0; i < out.c; ++i)
        op.weight_zero.push_back((weights_unsigned ? 128 : 0) + static_cast<int32_t>(random.between(-3, 3)));
      break;
    case 3:  // differences of nine bits
      for (int64_t i = 0; i < out.c; ++i) op.weight_zero.push_back(zero_for(random, weights_unsigned));
      break;
  }
  if (!make_raw(random, out, op.stage)) {
    const int64_t products = in.c / op.groups * op.kernel_h * op.kernel_w;
    const double magnitude = 74.0 * 74.0 * std::sqrt(static_cast<double>(products));
    op.stage = random_stage(random, out, magnitude, random.chance(60));
    if (random.chance(40)) add_second(random, graph, op.stage, out);
  }
  op.output = graph.add(out);
  graph.outputs.push_back(op.output);
  graph.operations.push_back({"conv", "QLinearConv", 0, op});
  return graph;
}

Graph random_pool(Random& random, int64_t most_channels, int64_t most_pixels) {
  Graph graph;
  Pool op;
  Tensor in, out;
  for (;;) {
    op = {};
    in = make_tensor("in", random.between(1, 3), random.between(1, 21), random.between(1, 21),
                     channels(random, most_channels), random.chance(50));
    op.kind = random.chance(50) ? Pool::Kind::kMax : Pool::Kind::kSum;
    if (random.chance(25)) {  // global
      op.kernel_h = in.h;
      op.kernel_w = in.w;
    } else {
      op.kernel_h = random.one_of<int64_t>({1, 2, 3, 5, 13});
      op.kernel_w = random.one_of<int64_t>({1, 2, 3, 4, 11});
      op.stride_h = random.between(1, 4);
      op.stride_w = random.between(1, 3);
      if (random.chance(20)) op.dilation_h = 2;
      if (random.chance(20)) op.dilation_w = 3;
      if (random.chance(60))
        op.pads = {random.between(0, 2), random.between(0, 2), random.between(0, 3), random.between(0, 3)};
    }
    out = make_tensor("out", in.n, out_size(in.h, op.pads.top, op.pads.bottom, op.kernel_h, op.stride_h, op.dilation_h),
                      out_size(in.w, op.pads.left, op.pads.right, op.kernel_w, op.stride_w, op.dilation_w), in.c,
                      in.is_unsigned);
    if (out.h < 1 || out.w < 1) continue;
    if (in.n * in.h * in.w > most_pixels || out.elements() * op.kernel_h * op.kernel_w > 2000000) continue;
    break;
  }
  op.input = graph.add(in);
  graph.inputs.push_back(op.input);
  if (op.kind == Pool::Kind::kMax) {
    op.pad_value = in.is_unsigned ? 0 : -128;
    if (random.chance(60)) {
      op.stage.low = in.is_unsigned ? 0 : -128;
      op.stage.high = in.is_unsigned ? 255 : 127;
    } else {
      op.stage = random_stage(random, out, 100, random.chance(50));
    }
  } else {
    op.pad_value = zero_for(random, in.is_unsigned);
    if (random.chance(10)) {
      op.stage.raw = true;
      out.element_bytes = 4;
    } else {
      op.stage = random_stage(random, out, 128.0 * static_cast<double>(op.kernel_h * op.kernel_w), random.chance(50));
    }
  }
  if (!op.stage.raw && random.chance(20)) add_second(random, graph, op.stage, out);
  op.output = graph.add(out);
  graph.outputs.push_back(op.output);
  graph.operations.push_back({"pool", op.kind == Pool::Kind::kMax ? "MaxPool" : "AveragePool", 0, op});
  return graph;
}

Graph random_elementwise(Random& random, int64_t most_channels, int64_t most_pixels) {
  Graph graph;
  Elementwise op;
  Tensor out = make_tensor("out", random.between(1, 4), random.between(1, 17), random.between(1, 17),
                           channels(random, most_channels), random.chance(50));
  if (random.chance(10)) out.w = random.between(1, 4000);
  while (out.n * out.h * out.w > most_pixels)
    (out.w > out.h ? out.w : out.h) = std::max<int64_t>(1, std::max(out.w, out.h) / 2);
  Tensor in = out;
  in.name = "in";
  in.is_unsigned = random.chance(50);
  if (random.chance(15)) {
    op.repeat_h = random.between(1, 3);
    op.repeat_w = random.between(1, 3);
    out.h *= op.repeat_h;
    out.w *= op.repeat_w;
  } else if (random.chance(30)) {
    if (random.chance(40)) in.n = 1;
    if (random.chance(40)) in.h = 1;
    if (random.chance(40)) in.w = 1;
    if (random.chance(40)) in.c = 1;
  }
  if (random.chance(15)) in.element_bytes = 4;
  if (random.chance(10)) {
    op.stage.raw = true;
    out.element_bytes = 4;
  } else if (in.element_bytes == 4 || random.chance(50)) {
    op.stage = random_stage(random, out, in.element_bytes == 4 ? 1000000 : 128, random.chance(50));
  } else if (random.chance(40)) {
    op.stage.low = out.is_unsigned ? 0 : -128;
    op.stage.high = out.is_unsigned ? 255 : 127;
    if (random.chance(50)) op.stage.table = random_table(random);
  }
  op.input = graph.add(in);
  graph.inputs.push_back(op.input);
  if (!op.stage.raw && random.chance(60)) add_second(random, graph, op.stage, out);
  op.output = graph.add(out);
  graph.outputs.push_back(op.output);
  graph.operations.push_back({"map", "Elementwise", 0, op});
  return graph;
}

Graph random_network(Random& random) {
  Graph graph;
  const int64_t n = random.between(1, 2), size = random.between(6, 20), c0 = random.one_of<int64_t>({1, 3, 4}),
                c = random.one_of<int64_t>({8, 12, 16, 24, 33});
  const bool is_unsigned = random.chance(50);
  const auto conv = [&](TensorId input, int64_t oc, int64_t kernel, int64_t stride, int64_t groups, TensorId residual) {
    const Tensor in = graph.tensors[static_cast<size_t>(input)];
    Convolution op;
    op.input = input;
    op.kernel_h = op.kernel_w = kernel;
    op.stride_h = op.stride_w = stride;
    op.groups = groups;
    const int64_t p = (kernel - 1) / 2;
    op.pads = {p, p, p, p};
    op.input_zero = zero_for(random, in.is_unsigned);
    op.weights.resize(static_cast<size_t>(oc * (in.c / groups) * kernel * kernel));
    for (int16_t& w : op.weights) w = static_cast<int16_t>(random.between(-128, 127));
    Tensor out = make_tensor("t" + std::to_string(graph.tensors.size()), in.n, out_size(in.h, p, p, kernel, stride, 1),
                             out_size(in.w, p, p, kernel, stride, 1), oc, is_unsigned);
    const int64_t products = in.c / groups * kernel * kernel;
    op.stage = random_stage(random, out, 74.0 * 74.0 * std::sqrt(static_cast<double>(products)), true);
    if (residual != kNoTensor) {
      SecondOperation second;
      second.tensor = residual;
      second.rx = 0.7f;
      second.ry = 0.4f;
      second.f = 3.0f;
      second.low = is_unsigned ? 0 : -128;
      second.high = is_unsigned ? 255 : 127;
      op.stage.second = second;
    }
    op.output = graph.add(out);
    graph.operations.push_back({"conv" + std::to_string(graph.operations.size()), "QLinearConv", 0, op});
    return op.output;
  };
  const TensorId input = graph.add(make_tensor("input", n, size, size, c0, is_unsigned));
  graph.inputs.push_back(input);
  TensorId x = conv(input, c, 3, random.between(1, 2), 1, kNoTensor);
  const TensorId expanded = conv(x, c * 2, 1, 1, 1, kNoTensor);
  const TensorId depthwise = conv(expanded, c * 2, 3, 1, c * 2, kNoTensor);
  x = conv(depthwise, c, 1, 1, 1, x);
  // Two branches into one tensor by views of its channels.
  const Tensor shape = graph.tensors[static_cast<size_t>(x)];
  const TensorId joined = graph.add(make_tensor("joined", n, shape.h, shape.w, c + 7, is_unsigned));
  const auto into_view = [&](TensorId tensor, int64_t at) {
    graph.tensors[static_cast<size_t>(tensor)].view_of = joined;
    graph.tensors[static_cast<size_t>(tensor)].view_c = at;
  };
  into_view(conv(x, c, 3, 1, 1, kNoTensor), 0);
  into_view(conv(x, 7, 1, 1, 1, kNoTensor), c);
  x = conv(joined, c, 1, 1, 1, kNoTensor);
  Pool pool;
  pool.kind = Pool::Kind::kSum;
  pool.input = x;
  const Tensor before = graph.tensors[static_cast<size_t>(x)];
  pool.kernel_h = before.h;
  pool.kernel_w = before.w;
  Tensor pooled = make_tensor("pooled", n, 1, 1, c, is_unsigned);
  pool.stage = random_stage(random, pooled, 128.0 * static_cast<double>(before.h * before.w), false);
  pool.output = graph.add(pooled);
  graph.operations.push_back({"pool", "GlobalAveragePool", 0, pool});
  Tensor flat = make_tensor("flat", 1, 1, n, c, is_unsigned);
  flat.reshape_of = pool.output;
  const TensorId flat_id = graph.add(flat);
  Tensor logits = make_tensor("logits", 1, 1, n, 10, is_unsigned);
  std::vector<int16_t> weights(static_cast<size_t>(c * 10));
  for (int16_t& w : weights) w = static_cast<int16_t>(random.between(-128, 127));
  Stage stage = random_stage(random, logits, 74.0 * 74.0 * std::sqrt(static_cast<double>(c)), true);
  const TensorId logits_id = graph.add(logits);
  graph.operations.push_back({"fc", "QGemm", 0, make_matmul(flat_id, logits_id, 3, c, 10, weights, {}, stage)});
  graph.outputs = {logits_id, joined};
  return graph;
}

namespace {

/// The tensor itself, or a view of its box in a larger one whose n, h and w stand in another order (heads inside a
/// token).
TensorId add_operand(Random& random, Graph& graph, Tensor tensor) {
  if (random.chance(50)) return graph.add(std::move(tensor));
  const int64_t gap = random.between(0, 5);
  Tensor whole =
      make_tensor(tensor.name + ".whole", 1, tensor.n, tensor.w, tensor.h * tensor.c + gap, tensor.is_unsigned);
  whole.element_bytes = tensor.element_bytes;
  Tensor view = std::move(tensor);
  view.strided = true;
  view.view_start = random.between(0, gap);
  view.step_n = whole.w * whole.c, view.step_h = view.c, view.step_w = whole.c;
  view.view_of = graph.add(std::move(whole));
  return graph.add(std::move(view));
}

TensorId root(const Graph& graph, TensorId id) {
  const Tensor& t = graph.tensors[static_cast<size_t>(id)];
  return t.view_of == kNoTensor ? id : t.view_of;
}

}  // namespace

Graph random_product(Random& random, int64_t most_channels) {
  Graph graph;
  Product op;
  const int64_t n = random.one_of<int64_t>({1, 1, 2, 3}), h = random.one_of<int64_t>({1, 2, 4, 5, 12}),
                most = most_channels / (n * h > 4 ? 4 : 1);
  const int64_t rows = channels(random, most), k = channels(random, most), columns = channels(random, most);
  op.transposed = random.chance(70);
  Tensor in = make_tensor("in", random.chance(20) ? 1 : n, random.chance(20) ? 1 : h, rows, k, random.chance(50));
  Tensor factor = make_tensor("factor", random.chance(20) ? 1 : n, random.chance(20) ? 1 : h,
                              op.transposed ? columns : k, op.transposed ? k : columns, random.chance(50));
  Tensor out = make_tensor("out", n, h, rows, columns, random.chance(50));
  op.input_zero = zero_for(random, in.is_unsigned);
  op.factor_zero = zero_for(random, factor.is_unsigned);
  op.input = add_operand(random, graph, in);
  op.factor = add_operand(random, graph, factor);
  graph.inputs = {root(graph, op.input), root(graph, op.factor)};
  if (!make_raw(random, out, op.stage)) {
    op.stage = random_stage(random, out, 74.0 * 74.0 * std::sqrt(static_cast<double>(k)), random.chance(40));
    if (random.chance(30)) add_second(random, graph, op.stage, out);
  }
  op.output = add_operand(random, graph, out);
  graph.outputs.push_back(op.output);
  graph.operations.push_back({"product", "QLinearMatMul", 0, op});
  return graph;
}

Graph random_transposition(Random& random, int64_t most_channels) {
  Graph graph;
  Transposition op;
  const int64_t n = random.one_of<int64_t>({1, 1, 2, 3}), h = random.one_of<int64_t>({1, 1, 2, 4, 5});
  const Tensor in =
      make_tensor("in", n, h, channels(random, most_channels), channels(random, most_channels), random.chance(50));
  const Tensor out = make_tensor("out", n, h, in.c, in.w, random.chance(70) ? in.is_unsigned : random.chance(50));
  op.input = add_operand(random, graph, in);
  graph.inputs = {root(graph, op.input)};
  if (random.chance(40)) op.stage = random_stage(random, out, 128, random.chance(50));
  if (random.chance(30)) add_second(random, graph, op.stage, out);
  op.output = add_operand(random, graph, out);
  graph.outputs.push_back(op.output);
  graph.operations.push_back({"turn", "Transpose", kNoMacs, op});
  return graph;
}

Rows random_row_form(Random& random, const Tensor& in, const Tensor& out, bool run_time_length) {
  Rows op;
  RowForm& form = op.form;
  op.stage.out_zero = zero_for(random, out.is_unsigned);
  if (random.chance(50)) {
    form.fixed_shift = random.chance(50);
    const double most = form.fixed_shift ? 0.5 : 1;  // the sum of a row of lowest bytes is still a number
    const double scale = most * std::exp(-static_cast<double>(random.between(0, 60)) / 10);
    form.sum_tables.resize(1024);
    form.map_tables.resize(1024);
    for (size_t d = 0; d < 256; ++d) {
      const auto e = static_cast<float>(std::exp(70 - static_cast<double>(d) * scale));
      const auto sum = std::bit_cast<uint32_t>(e), map = std::bit_cast<uint32_t>(e * 256);
      for (size_t p = 0; p < 4; ++p) {
        form.sum_tables[p * 256 + d] = static_cast<uint8_t>(sum >> (8 * p));
        form.map_tables[p * 256 + d] = static_cast<uint8_t>(map >> (8 * p));
      }
    }
    op.stage.low = 0;
    op.stage.high = 255 - op.stage.out_zero;
    if (run_time_length) {
      form.sum_tables.clear();
      form.map_tables.clear();
      form.shortest = random.between(1, out.c);
      form.input_scale = static_cast<float>(scale);
      form.output_scale = 1.0f / 256;
    }
    return op;
  }
  form.kind = RowForm::Kind::kNormalise;
  op.stage.convert = true;
  op.stage.low = (out.is_unsigned ? 0 : -128) - op.stage.out_zero;
  op.stage.high = (out.is_unsigned ? 255 : 127) - op.stage.out_zero;
  form.zero = zero_for(random, in.is_unsigned);
  form.centre = random.chance(60);
  form.shift = random.between(0, 16);
  form.offset = random.between(-4, 8);
  form.epsilon = random.between(0, 1 << 20);
  const size_t count = random.chance(80) ? static_cast<size_t>(out.c) : 1;
  for (size_t c = 0; c < count; ++c) {
    form.factor.push_back(static_cast<int32_t>(random.between(-(1 << 17), (1 << 17) - 1)));
    form.addend.push_back(static_cast<int32_t>(random.between(-(1 << 27), 1 << 27)));
  }
  return op;
}

Graph random_rows(Random& random, int64_t most_channels) {
  Graph graph;
  const Tensor in = make_tensor("in", random.one_of<int64_t>({1, 1, 2, 3}), random.one_of<int64_t>({1, 1, 2, 5}),
                                random.between(1, 40), channels(random, most_channels), random.chance(50));
  Tensor out = in;
  out.name = "out";
  Rows op = random_row_form(random, in, out, random.chance(50));
  op.input = add_operand(random, graph, in);
  graph.inputs = {root(graph, op.input)};
  op.output = add_operand(random, graph, out);
  graph.outputs.push_back(op.output);
  graph.operations.push_back({"rows", "QLinearSoftmax", 0, op});
  return graph;
}

Graph random_attention(Random& random, int64_t most_tokens, std::optional<int64_t> room) {
  Graph graph;
  const int64_t tokens = random.between(1, most_tokens), heads = random.between(1, 4), width = random.between(1, 24),
                channels = heads * width;
  const bool is_unsigned = random.chance(50);
  const auto named = [&](const char* name, int64_t h, int64_t w, int64_t c) {
    return make_tensor(name + std::to_string(graph.tensors.size()), 1, h, w, c, is_unsigned);
  };
  const auto push = [&](const char* kind, auto op) {
    graph.operations.push_back({kind + std::to_string(graph.operations.size()), kind, 0, std::move(op)});
  };
  const auto project = [&](TensorId input) {
    const Tensor out = named("projected", 1, tokens, channels);
    std::vector<int16_t> weights(static_cast<size_t>(channels * channels));
    for (int16_t& w : weights) w = static_cast<int16_t>(random.between(-128, 127));
    const TensorId id = graph.add(out);
    push("QGemm", make_matmul(input, id, zero_for(random, is_unsigned), channels, channels, weights, {},
                              random_stage(random, out, 74.0 * 74.0 * std::sqrt(static_cast<double>(channels)), true)));
    return id;
  };
  const auto in_heads = [&](TensorId whole) {
    Tensor view = named("heads", heads, tokens, width);
    view.view_of = whole;
    view.strided = true;
    view.step_h = width, view.step_w = channels;
    return graph.add(view);
  };
  const auto multiply = [&](TensorId input, TensorId factor, bool transposed, TensorId output) {
    const Tensor& to = graph.tensors[static_cast<size_t>(output)];
    Product op;
    op.input = input;
    op.factor = factor;
    op.output = output;
    op.transposed = transposed;
    op.input_zero = zero_for(random, is_unsigned);
    op.factor_zero = zero_for(random, is_unsigned);
    op.stage = random_stage(random, to,
                            74.0 * 74.0 * std::sqrt(static_cast<double>(graph.tensors[static_cast<size_t>(input)].c)),
                            random.chance(20));
    push("QLinearMatMul", op);
  };
  int32_t caches = 0;
  // A cache, and the part of it that a run appends to along its columns or channels.
  const auto kept = [&](int64_t w, int64_t c, bool by_channels) {
    Tensor whole = named("kept", heads, w + (by_channels ? 0 : *room), c + (by_channels ? *room : 0));
    whole.cache = caches++;
    Tensor added = named("added", heads, w, c);
    added.view_of = graph.add(whole);
    (by_channels ? added.view_c : added.view_w) = *room;
    added.slide = by_channels ? 1 : c;
    graph.inputs.push_back(added.view_of);
    graph.outputs.push_back(added.view_of);
    return graph.add(added);
  };
  TensorId x = graph.add(named("x", 1, tokens, channels));
  graph.inputs = {x};
  for (int block = 0; block < 2; ++block) {
    const TensorId query = project(x), key = project(x), value = project(x);
    const TensorId scores = graph.add(named("scores", heads, tokens, tokens + room.value_or(0))),
                   context = graph.add(named("context", 1, tokens, channels));
    TensorId keys = in_heads(key), factor = in_heads(value);
    const bool turn = room || random.chance(60);
    if (room) {
      Elementwise copy;
      copy.input = keys;
      copy.output = kept(tokens, width, false);
      keys = graph.tensors[static_cast<size_t>(copy.output)].view_of;
      push("Concat", copy);
      Transposition op;
      op.input = factor;
      op.output = kept(width, tokens, true);
      factor = graph.tensors[static_cast<size_t>(op.output)].view_of;
      push("Concat", op);
    } else if (turn) {
      Transposition op;
      op.input = factor;
      op.output = factor = graph.add(named("turned", heads, width, tokens));
      push("Transpose", op);
    }
    multiply(in_heads(query), keys, true, scores);
    multiply(scores, factor, turn, in_heads(context));
    const TensorId back = project(context);
    SecondOperation second;
    second.tensor = x;
    second.rx = 0.7f;
    second.ry = 0.4f;
    second.low = is_unsigned ? 0 : -128;
    second.high = is_unsigned ? 255 : 127;
    std::get<Convolution>(graph.operations.back().what).stage.second = second;
    x = back;
  }
  graph.outputs.push_back(x);
  return graph;
}

Graph random_strided(Random& random, int64_t most_channels) {
  Graph graph;
  const bool is_unsigned = random.chance(50);
  const int64_t n = random.between(1, 3), h = random.between(1, 6), w = random.between(1, 7),
                c = random.between(1, most_channels);
  const int64_t tall = random.between(1, 3), wide = random.between(1, 3), deep = random.between(1, 2);
  const auto view_of = [&](TensorId parent, const Tensor& shape, int64_t start, int64_t step_n, int64_t step_h,
                           int64_t step_w) {
    Tensor view = shape;
    view.name = "view";
    view.view_of = parent;
    view.strided = true;
    view.view_start = start;
    view.step_n = step_n, view.step_h = step_h, view.step_w = step_w;
    return graph.add(view);
  };
  // Views of the source: any distances, 0 and overlaps among them.
  Tensor source =
      make_tensor("source", 1, random.between(3, 40), random.between(5, 30), random.between(c, c + 9), is_unsigned);
  const TensorId from = graph.add(source);
  graph.inputs = {from};
  const auto source_view = [&](const Tensor& shape) {
    int64_t room = source.elements() - shape.c;
    int64_t steps[3] = {0, 0, 0};
    const int64_t extents[3] = {shape.n, shape.h, shape.w};
    for (size_t d = 0; d < 3; ++d) {
      if (extents[d] == 1 || random.chance(10)) continue;
      steps[d] = random.between(0, room / (extents[d] - 1) / (d == 2 ? 1 : 2));
      room -= steps[d] * (extents[d] - 1);
    }
    return view_of(from, shape, random.between(0, room), steps[0], steps[1], steps[2]);
  };
  const Tensor whole = make_tensor("whole", n, h * tall, w * wide, c * deep, is_unsigned);
  const TensorId to = graph.add(whole);
  const Tensor part = make_tensor("part", n, h, w, c, is_unsigned);
  for (int64_t y = 0; y < tall; ++y) {
    for (int64_t x = 0; x < wide; ++x) {
      for (int64_t z = 0; z < deep; ++z) {
        const TensorId output = view_of(to, part, (y * whole.w + x) * whole.c + z * c, whole.h * whole.w * whole.c,
                                        tall * whole.w * whole.c, wide * whole.c);
        const int64_t kind = random.between(1, 3);
        Operation operation{"op" + std::to_string(graph.operations.size()), "strided", 0, {}};
        if (kind == 1) {
          Elementwise e;
          e.input = source_view(part);
          if (random.chance(50)) e.stage.table = random_table(random);
          e.output = output;
          operation.what = e;
          operation.macs = kNoMacs;
        } else if (kind == 2) {
          Pool pool;
          Tensor read = part;
          pool.kernel_h = random.between(1, 2);
          pool.kernel_w = random.between(1, 3);
          read.h += pool.kernel_h - 1;
          read.w += pool.kernel_w - 1;
          if (read.h * read.w * read.n > source.elements() || random.chance(30)) {
            pool.kernel_h = pool.kernel_w = 1;
            read = part;
          }
          pool.stage.low = is_unsigned ? 0 : -128;
          pool.stage.high = is_unsigned ? 255 : 127;
          pool.input = source_view(read);
          pool.output = output;
          operation.what = pool;
        } else {
          Convolution conv;
          Tensor read = part;
          read.c = random.between(1, c);
          conv.kernel_h = conv.kernel_w = random.one_of<int64_t>({1, 3});
          conv.pads = {conv.kernel_h / 2, conv.kernel_w / 2, conv.kernel_h / 2, conv.kernel_w / 2};
          conv.input_zero = zero_for(random, is_unsigned);
          conv.weights.resize(static_cast<size_t>(c * read.c * conv.kernel_h * conv.kernel_w));
          for (int16_t& weight : conv.weights) weight = static_cast<int16_t>(random.between(-128, 127));
          conv.stage = random_stage(
              random, part, 74.0 * 74.0 * std::sqrt(static_cast<double>(read.c * conv.kernel_h * conv.kernel_w)), true);
          conv.input = source_view(read);
          conv.output = output;
          operation.what = conv;
        }
        graph.operations.push_back(std::move(operation));
      }
    }
  }
  graph.outputs = {to};
  return graph;
}

}  // namespace tessera::npu::test
