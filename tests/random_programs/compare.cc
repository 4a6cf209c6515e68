// SPDX-License-Identifier: Apache-2.0
// Comparison of final states, and shrinking by removal.
#include "tests/random_programs/compare.h"

#include <algorithm>
#include <type_traits>

#include "base/error.h"
#include "isa/verify/verify.h"

namespace tessera::proof {
namespace {

std::string describe(const isa::FaultRecord& fault) {
  if (fault.code == isa::Fault::kNone) return "no fault";
  return std::string(isa::to_string(fault.code)) + " at instruction " + std::to_string(fault.pc) + " (" +
         std::string(isa::to_string(fault.unit)) + ")";
}

std::optional<std::string> memory_difference(const std::string& what, const std::vector<uint8_t>& wanted,
                                             const std::vector<uint8_t>& got) {
  if (wanted == got) return {};
  const auto at = static_cast<size_t>(std::mismatch(wanted.begin(), wanted.end(), got.begin()).first - wanted.begin());
  size_t count = 0;
  for (size_t n = 0; n < wanted.size(); ++n) count += wanted[n] != got[n];
  return what + " differs in " + std::to_string(count) + " bytes, first at " + std::to_string(at) + ": " +
         std::to_string(got[at]) + ", not " + std::to_string(wanted[at]);
}

template <typename Member>
void set_default(const isa::Field& field, Member& member) {
  member = static_cast<Member>(field.default_value);
}
template <typename Element, size_t N>
void set_default(const isa::Field& field, std::array<Element, N>& member) {
  member.fill(static_cast<Element>(field.default_value));
}

/// Simpler variants of one instruction, most drastic first.
template <typename T>
std::vector<T> simpler(const T& instruction) {
  std::vector<T> all;
  const auto add = [&](auto change) {
    T copy = instruction;
    change(copy);
    if (!(copy == instruction)) all.push_back(copy);
  };
  if constexpr (requires { instruction.extent; }) {
    for (size_t k = 0; k < instruction.extent.size(); ++k) {
      add([&](T& i) { i.extent[k] = 1; });
      add([&](T& i) { i.extent[k] = static_cast<uint16_t>((i.extent[k] + 1) / 2); });
      add([&](T& i) { i.extent[k] = static_cast<uint16_t>(std::max(1, i.extent[k] - 1)); });
    }
  }
  if constexpr (requires { instruction.length; }) {
    add([](T& i) { i.length = 1; });
    add([](T& i) { i.length = static_cast<uint16_t>((i.length + 1) / 2); });
  }
  if constexpr (std::is_same_v<T, isa::Alu>) {
    add([](T& i) { i.second_table_enable = false, i.second_table = 0; });
    add([](T& i) { i.table_enable = false, i.table = 0, i.table_unsigned = false; });
    add([](T& i) {
      i.second_op = isa::SecondOp::kNone, i.second_addr = 0, i.second_stride = {}, i.second_unsigned = false;
      i.second_swap = false, i.constant_addr = 0, i.second_table_enable = false, i.second_table = 0;
    });
  }
  // Any field by itself at its default.
  isa::visit_fields(instruction, [&](const isa::Field& wanted, const auto&) {
    add([&](T& i) {
      isa::visit_fields(i, [&](const isa::Field& field, auto& member) {
        if (field.name == wanted.name) set_default(field, member);
      });
    });
  });
  return all;
}

}  // namespace

std::optional<std::string> difference(const Case& test, const Machines& machines, std::vector<uint64_t>* cycles) {
  std::optional<Outcome> wanted;
  for (size_t m = 0; m < machines.size(); ++m) {
    const std::string who = machines[m]->name() + ": ";
    if (!test.injected.empty() && machines[m]->name() == "reference") continue;
    Outcome got;
    try {
      got = machines[m]->run(test);
    } catch (const Error& error) {
      return who + error.what();
    }
    if (cycles) (*cycles)[m] += got.cycles;
    if (!wanted) {
      if (test.injected.empty() && got.fault.code != isa::Fault::kNone) {
        return who + "a legal program ends with " + describe(got.fault);
      }
      wanted = std::move(got);
      continue;
    }
    if (!(got.fault == wanted->fault)) return who + describe(got.fault) + ", not " + describe(wanted->fault);
    if (wanted->fault.code != isa::Fault::kNone) continue;
    for (int s = 0; s < isa::kSpaces; ++s) {
      const std::string space(isa::to_string(static_cast<isa::Space>(s)));
      if (auto text = memory_difference(who + space, wanted->scratchpads[s], got.scratchpads[s])) return text;
    }
    if (auto text = memory_difference(who + "DRAM", wanted->dram, got.dram)) return text;
    if (got.executed[0] == UINT64_MAX) continue;
    if (got.executed != wanted->executed) return who + "executed other numbers of instructions";
    if (got.bytes_read != wanted->bytes_read || got.bytes_written != wanted->bytes_written) {
      return who + "read " + std::to_string(got.bytes_read) + " and wrote " + std::to_string(got.bytes_written) +
             " bytes, not " + std::to_string(wanted->bytes_read) + " and " + std::to_string(wanted->bytes_written);
    }
  }
  return {};
}

Case shrink(const Case& test, const std::function<bool(const Case&)>& fails) {
  Case best = test;
  const auto keep = [&](const Case& smaller) {
    if (!fails(smaller)) return false;
    best = smaller;
    return true;
  };
  if (!test.injected.empty()) {  // what was broken is a word's bits and place: cut behind it only
    for (size_t size = 1; size < best.words.size(); size = size * 3 / 2 + 1) {
      Case smaller = test;
      smaller.words.resize(size);
      if (keep(smaller)) break;
    }
    return best;
  }
  Case scratch = test;
  auto maker = fill_memory(scratch);
  const auto with = [&](std::vector<isa::Instruction> program, bool renew) {
    Case smaller = best;
    if (renew) {
      if (!program.empty() && std::holds_alternative<isa::Finish>(program.back())) program.pop_back();
      maker.synchronise(program);
    }
    smaller.set_instructions(program);
    return smaller;
  };
  for (bool better = true; better;) {
    better = false;
    const size_t count = best.words.size() - 1;
    for (size_t chunk = std::max<size_t>(count / 2, 1); chunk >= 1; chunk /= 2) {
      for (size_t at = 0; at + chunk <= best.words.size() - 1;) {
        std::vector<isa::Instruction> program = best.instructions();
        program.erase(program.begin() + static_cast<std::ptrdiff_t>(at),
                      program.begin() + static_cast<std::ptrdiff_t>(at + chunk));
        if (keep(with(program, true))) {
          better = true;
        } else {
          at += chunk;
        }
      }
      if (chunk == 1) break;
    }
    for (size_t at = 0; at + 1 < best.words.size(); ++at) {
      for (bool again = true; again;) {
        again = false;
        const isa::Instruction old = best.instructions()[at];
        std::visit(
            [&](const auto& instruction) {
              for (const auto& simple : simpler(instruction)) {
                if (isa::check_operands(simple, best.config) || isa::check_ranges(simple, best.config)) continue;
                std::vector<isa::Instruction> program = best.instructions();
                program[at] = simple;
                if (!keep(with(program, true))) continue;
                again = better = true;
                return;
              }
            },
            old);
      }
    }
    Case calm = best;
    calm.pressure_percent = 0;
    if (best.pressure_percent != 0 && keep(calm)) better = true;
    calm = best;
    calm.dram_latency = 1;
    if (best.dram_latency != 1 && keep(calm)) better = true;
  }
  return best;
}

std::optional<size_t> first_divergence(const Case& test, const Machines& machines) {
  if (!test.injected.empty()) return {};
  const std::vector<isa::Instruction> program = test.instructions();
  for (size_t count = 1; count < program.size(); ++count) {
    Case prefix = test;
    std::vector<isa::Instruction> head(program.begin(), program.begin() + static_cast<std::ptrdiff_t>(count));
    head.push_back(isa::Finish{});
    prefix.set_instructions(head);
    if (difference(prefix, machines)) return count;
  }
  return {};
}

}  // namespace tessera::proof
