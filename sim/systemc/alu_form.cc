// SPDX-License-Identifier: Apache-2.0
#include "sim/systemc/alu_form.h"

#include <algorithm>
#include <array>

namespace tessera::sim::systemc {
namespace {

constexpr Cycle kRawLatency = 3;
constexpr Cycle kLatency = 13;
constexpr Cycle kSecondLatency = 31;

struct Span {
  int64_t low;
  int64_t high;
  bool meets(const Span& other) const { return low <= other.high && other.low <= high; }
};

Span span_of(const isa::Alu& alu, int64_t address, const std::array<int16_t, isa::kLoops>& stride, size_t loops) {
  Span span{address, address};
  for (size_t k = 0; k < loops; ++k) {
    const int64_t reach = int64_t{alu.extent[k] - 1} * stride[k];
    (reach < 0 ? span.low : span.high) += reach;
  }
  return span;
}

size_t outer_loops(const isa::Alu& alu) { return static_cast<size_t>(isa::kLoops - alu.reduce); }

/// The destination of the n-th vector.
int32_t destination(const isa::Alu& alu, uint64_t n) {
  int32_t entry = alu.dst_addr;
  for (size_t k = outer_loops(alu); k-- > 0;) {
    entry += static_cast<int32_t>(n % alu.extent[k]) * alu.dst_stride[k];
    n /= alu.extent[k];
  }
  return entry;
}

}  // namespace

AluForm form_of(const isa::Alu& alu) {
  AluForm form;
  uint64_t sources = 1;
  for (size_t k = 0; k < isa::kLoops; ++k) (k < outer_loops(alu) ? form.vectors : sources) *= alu.extent[k];
  form.second = alu.second_op != isa::SecondOp::kNone;
  form.split = form.second && alu.src == isa::AluSpace::kOut;
  form.vector_issues = sources + (form.split ? 1 : 0);
  form.issues = form.vectors * form.vector_issues;
  const bool raw = !alu.convert && alu.dst == isa::AluSpace::kAcc;
  form.latency = raw ? kRawLatency : form.second ? kSecondLatency : kLatency;
  return form;
}

void AluHistory::reset() {
  writes_.clear();
  last_end_ = last_latency_ = port_stalls_ = 0;
}

Cycle AluHistory::last_issue(const isa::Alu& alu, const AluForm& form, Cycle from) {
  while (!writes_.empty() && writes_.front().at < from) writes_.pop_front();
  const Cycle first_end = last_latency_ > form.latency ? last_end_ + last_latency_ - form.latency + 1 : 0;
  const size_t outer = outer_loops(alu);
  const Span src = span_of(alu, alu.src_addr, alu.src_stride, isa::kLoops);
  const Span dst = span_of(alu, alu.dst_addr, alu.dst_stride, outer);
  const Span second = span_of(alu, alu.second_addr, alu.second_stride, outer);
  const bool own =
      (alu.src == alu.dst && src.meets(dst)) || (form.second && alu.dst == isa::AluSpace::kOut && second.meets(dst));
  const bool others = std::any_of(writes_.begin(), writes_.end(), [&](const Write& write) {
    return (write.space == alu.src && src.meets({write.entry, write.entry})) ||
           (form.second && write.space == isa::AluSpace::kOut && second.meets({write.entry, write.entry}));
  });
  // Reads of INP let writes of INP pass.
  std::deque<Cycle> passing;
  if (alu.src == isa::AluSpace::kInp) {
    for (const Write& write : writes_) {
      if (write.space == isa::AluSpace::kInp) passing.push_back(write.at);
    }
  }
  const bool passes = alu.src == isa::AluSpace::kInp && alu.dst == isa::AluSpace::kInp;
  port_stalls_ = 0;
  if (!own && !others && !passes && passing.empty()) {
    const Cycle end = from + form.vector_issues - 1;
    return from + form.issues - 1 + (first_end > end ? first_end - end : 0);
  }
  // Issue by issue, until nothing is left that could be waited for.
  const auto wait = [&](isa::AluSpace space, int64_t entry, Cycle at) {
    for (const Write& write : writes_) {
      if (write.space == space && write.entry == entry) at = std::max(at, write.at + 1);
    }
    if (own && space == alu.dst) at = std::max(at, own_[static_cast<size_t>(entry)] + 1);
    return at;
  };
  const Cycle quiet = own || passes ? kNever : writes_.back().at;
  std::array<uint32_t, isa::kLoops> index{};
  int64_t source = alu.src_addr, target = alu.dst_addr, other = alu.second_addr;
  Cycle next = from;  // the earliest cycle of the next issue
  uint64_t issued = 0;
  std::vector<int64_t> touched;
  while (issued < form.issues) {
    if (next > quiet && issued >= form.vector_issues) {
      next += form.issues - issued;
      break;
    }
    bool end = true;
    for (size_t k = outer; k < isa::kLoops; ++k) end = end && index[k] + 1 == alu.extent[k];
    Cycle at = wait(alu.src, source, next);
    while (!passing.empty() && passing.front() < at) passing.pop_front();
    for (; !passing.empty() && passing.front() == at; ++at, ++port_stalls_) passing.pop_front();
    if (end && form.split) {
      next = at + 1;
      ++issued;
      at = next;
    }
    if (end && form.second) at = wait(isa::AluSpace::kOut, other, at);
    if (end && issued < form.vector_issues) at = std::max(at, first_end);
    ++issued;
    next = at + 1;
    if (end && passes) passing.push_back(at + form.latency);
    if (end && own) {
      own_[static_cast<size_t>(target)] = at + form.latency;
      touched.push_back(target);
    }
    for (size_t k = isa::kLoops; k-- > 0;) {
      if (++index[k] < alu.extent[k]) {
        source += alu.src_stride[k];
        target += alu.dst_stride[k];
        other += alu.second_stride[k];
        break;
      }
      source -= int64_t{alu.extent[k] - 1} * alu.src_stride[k];
      target -= int64_t{alu.extent[k] - 1} * alu.dst_stride[k];
      other -= int64_t{alu.extent[k] - 1} * alu.second_stride[k];
      index[k] = 0;
    }
  }
  for (const int64_t entry : touched) own_[static_cast<size_t>(entry)] = 0;
  return next - 1;
}

void AluHistory::issued(const isa::Alu& alu, const AluForm& form, Cycle last) {
  const uint64_t count = std::min(form.vectors, kWindow / form.vector_issues + 1);
  for (uint64_t n = form.vectors - count; n < form.vectors; ++n) {
    const Cycle back = (form.vectors - 1 - n) * form.vector_issues;
    writes_.push_back({alu.dst, destination(alu, n), last + form.latency - std::min(back, last)});
  }
  last_end_ = last;
  last_latency_ = form.latency;
}

}  // namespace tessera::sim::systemc
