// SPDX-License-Identifier: Apache-2.0
// The fields of tensors and operations, once for printing and parsing (compiler/text/fields.h). An operation without
// its fields here does not compile where graphs are printed.
#pragma once

#include "compiler/npu/graph/graph.h"
#include "compiler/text/fields.h"

namespace tessera::text {

template <>
struct Names<npu::SecondOperation::Kind> {
  static constexpr std::array<std::string_view, 3> value{"add", "mul", "max"};
};
template <>
struct Names<npu::Scope> {
  static constexpr std::array<std::string_view, 3> value{"open", "dram", "chip"};
};
template <>
struct Names<npu::Pool::Kind> {
  static constexpr std::array<std::string_view, 2> value{"max", "sum"};
};
template <>
struct Names<npu::RowForm::Kind> {
  static constexpr std::array<std::string_view, 2> value{"softmax", "normalise"};
};

}  // namespace tessera::text

namespace tessera::npu {

template <typename IO>
void fields(IO& io, text::In<IO, Border> b) {
  io.field("top", b.top);
  io.field("left", b.left);
  io.field("bottom", b.bottom);
  io.field("right", b.right);
  io.field("value", b.value);
}

template <typename IO>
void fields(IO& io, text::In<IO, SecondOperation> s) {
  io.required("kind", s.kind);
  io.id("tensor", s.tensor);
  io.field("rx", s.rx, 1.0f);
  io.field("ry", s.ry, 1.0f);
  io.field("f", s.f);
  io.field("zx", s.zx);
  io.field("zy", s.zy);
  io.field("low", s.low, -128);
  io.field("high", s.high, 127);
  io.field("zero", s.zero);
  io.field("swap", s.swap);
  io.field("fused", s.fused);
  io.field("minimum", s.minimum);
}

template <typename IO>
void fields(IO& io, text::In<IO, Stage> s) {
  io.field("raw", s.raw);
  io.field("convert", s.convert);
  io.field("bias", s.bias);
  io.field("multiplier", s.multiplier);
  io.field("low", s.low, -512);
  io.field("high", s.high, 511);
  io.field("zero", s.out_zero);
  io.field("table", s.table);
  io.field("table_unsigned", s.table_unsigned);
  io.field("second", s.second);
  io.field("second_table", s.second_table);
}

/// What windows have in common.
template <typename IO, typename Window>
void window_fields(IO& io, Window& w) {
  io.pack("kernel", {1, 1}, w.kernel_h, w.kernel_w);
  io.pack("strides", {1, 1}, w.stride_h, w.stride_w);
  io.pack("dilations", {1, 1}, w.dilation_h, w.dilation_w);
  io.pack("pads", {0, 0, 0, 0}, w.pads.top, w.pads.left, w.pads.bottom, w.pads.right);
}

template <typename IO>
void fields(IO& io, text::In<IO, Convolution> c) {
  io.id("input", c.input);
  io.id("output", c.output);
  window_fields(io, c);
  io.field("groups", c.groups, 1);
  io.field("input_zero", c.input_zero);
  io.field("weights", c.weights);
  io.field("weight_zero", c.weight_zero);
  io.field("stage", c.stage);
}

template <typename IO>
void fields(IO& io, text::In<IO, Pool> p) {
  io.required("kind", p.kind);
  io.id("input", p.input);
  io.id("output", p.output);
  window_fields(io, p);
  io.field("pad_value", p.pad_value);
  io.field("stage", p.stage);
}

template <typename IO>
void fields(IO& io, text::In<IO, Elementwise> e) {
  io.id("input", e.input);
  io.id("output", e.output);
  io.pack("repeat", {1, 1}, e.repeat_h, e.repeat_w);
  io.field("stage", e.stage);
}

template <typename IO>
void fields(IO& io, text::In<IO, Product> p) {
  io.id("input", p.input);
  io.id("factor", p.factor);
  io.id("output", p.output);
  io.field("transposed", p.transposed, true);
  io.field("input_zero", p.input_zero);
  io.field("factor_zero", p.factor_zero);
  io.field("stage", p.stage);
}

template <typename IO>
void fields(IO& io, text::In<IO, Transposition> t) {
  io.id("input", t.input);
  io.id("output", t.output);
  io.field("stage", t.stage);
}

template <typename IO>
void fields(IO& io, text::In<IO, RowForm> r) {
  io.required("kind", r.kind);
  io.field("sum_tables", r.sum_tables);
  io.field("map_tables", r.map_tables);
  io.field("fixed_shift", r.fixed_shift);
  io.field("input_zero", r.zero);
  io.field("centre", r.centre, true);
  io.field("shift", r.shift);
  io.field("offset", r.offset);
  io.field("epsilon", r.epsilon);
  io.field("factor", r.factor);
  io.field("addend", r.addend);
  io.field("shortest", r.shortest);
  io.field("input_scale", r.input_scale);
  io.field("output_scale", r.output_scale);
}

template <typename IO>
void fields(IO& io, text::In<IO, Rows> r) {
  io.id("input", r.input);
  io.id("output", r.output);
  fields(io, r.form);
  io.field("stage", r.stage);
}

template <typename IO>
void fields(IO& io, text::In<IO, Kernel> k) {
  io.id("input", k.input);
  io.id("output", k.output);
  io.ids("more", k.more);
  io.field("words", k.words);
  io.field("data", k.constants);  // `constants` begins their section
  io.field("begins", k.begins);
  io.field("ends", k.ends);
  io.field("lines", k.lines);
  io.field("line_macs", k.macs);
  io.field("line_of", k.line_of);
}

template <typename IO>
void fields(IO& io, text::In<IO, Binding> b) {
  io.required("value", b.value);
  io.id("tensor", b.tensor);
  io.field("axes", b.axes);
}

/// The word that begins an operation.
constexpr std::string_view mnemonic(const Convolution&) { return "convolution"; }
constexpr std::string_view mnemonic(const Pool&) { return "pool"; }
constexpr std::string_view mnemonic(const Elementwise&) { return "elementwise"; }
constexpr std::string_view mnemonic(const Product&) { return "product"; }
constexpr std::string_view mnemonic(const Transposition&) { return "transposition"; }
constexpr std::string_view mnemonic(const Rows&) { return "rows"; }
constexpr std::string_view mnemonic(const Kernel&) { return "kernel"; }

}  // namespace tessera::npu
