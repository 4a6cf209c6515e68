// SPDX-License-Identifier: Apache-2.0
// Assembly. Enters: text. A mutation changes tokens: names, numbers, lists, whole lines, and puts in lines of the
// disassembler for drawn instructions. Properties of what is accepted: the listing and the words give the same
// instructions again; a program that the static rules accept runs on the functional simulator and reaches only the
// memory it is given; where it reaches FINISH, plain loops that share no code leave the same bytes.
#include <cstring>

#include "isa/assembler.h"
#include "isa/random_instruction.h"
#include "isa/verify/effects.h"
#include "isa/verify/verify.h"
#include "sim/functional/machine.h"
#include "sim/tests/reference.h"
#include "tests/fuzz/fuzz.h"

namespace tessera::fuzz {
namespace {

constexpr size_t kDramBytes = 1 << 16;
constexpr uint64_t kMostWork = 200000;  // bytes and products of a program that is compared with the plain loops

const isa::MachineConfig& config() {
  static const isa::MachineConfig npu = isa::find_config("npu64");
  return npu;
}

template <typename T, size_t N>
uint64_t product(const std::array<T, N>& extent) {
  uint64_t all = 1;
  for (const T e : extent) all = std::min<uint64_t>(all * e, uint64_t{1} << 40);
  return all;
}

/// How long an instruction takes, roughly.
uint64_t work(const isa::Instruction& instruction) {
  if (const auto* load = std::get_if<isa::Load>(&instruction)) return product(load->extent) * load->length;
  if (const auto* store = std::get_if<isa::Store>(&instruction)) return product(store->extent) * store->length;
  if (const auto* gemm = std::get_if<isa::Gemm>(&instruction)) return product(gemm->extent) * 64;
  if (const auto* alu = std::get_if<isa::Alu>(&instruction)) return product(alu->extent) * 8;
  return 1;
}

/// Runs a legal program in memory of its own; the sanitizer sees what leaves it.
void run(const std::vector<isa::Instruction>& program) {
  uint64_t all = 0;
  for (const isa::Instruction& instruction : program) all += work(instruction);
  if (all > kMostWork) return;
  static sim::Machine machine(config());
  std::vector<uint8_t> dram(kDramBytes), poisoned(kDramBytes);
  for (size_t k = 0; k < dram.size(); ++k) dram[k] = static_cast<uint8_t>(k * 2654435761u >> 24);
  const std::vector<uint8_t> before = dram;
  const sim::DramRegion region{0, dram.data(), dram.size()};
  sim::RunRequest request;
  request.instructions = program;
  for (size_t b = 0; b < request.bases.size(); ++b) request.bases[b] = b * 4096 % kDramBytes;
  request.dram = {&region, 1};
  request.check_races = true;
  machine.poison(7);
  sim::reference::Memories plain(config());
  for (int s = 0; s < isa::kSpaces; ++s) {
    const auto bytes = machine.scratchpad(static_cast<isa::Space>(s));
    plain.bytes[s].assign(bytes.begin(), bytes.end());
  }
  const sim::RunResult result = machine.run(request);
  // The static rules leave nothing but the memory's extent to the machine.
  check(result.ok() || result.fault.code == isa::Fault::kDramRange,
        "a legal program has another fault than dram_range");
  if (!result.ok() || !result.races.empty()) return;
  plain.dram = before;
  for (size_t b = 0; b < request.bases.size(); ++b) plain.bases[b] = request.bases[b];
  plain.limit = request.bases[isa::kRowLimitBase] & isa::kRowLimitMask;
  for (const isa::Instruction& instruction : program) {
    std::visit([&](const auto& i) { sim::reference::run(i, plain); }, instruction);
  }
  check(plain.dram == dram, "plain loops leave other bytes in memory");
}

constexpr std::string_view kWords[] = {"load",    "store",      "gemm",    "alu",
                                       "fence",   "finish",     "signal",  "wait=",
                                       "=",       ",",          "0x",      "-",
                                       "#",       "inp",        "wgt",     "acc",
                                       "out",     "param",      "table",   "extent=1,1,1,1,1,1",
                                       "length=", "space=",     "base=1",  "load:1",
                                       "gemm:2",  "engine=alu", "reduce=", "mode=depthwise"};

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines(1);
  for (const char c : text) {
    if (c == '\n') {
      lines.emplace_back();
    } else {
      lines.back() += c;
    }
  }
  return lines;
}

/// Changes one of the line's numbers, or one of its words.
void mutate_line(Random& random, std::string& line) {
  std::vector<std::pair<size_t, size_t>> numbers;
  for (size_t k = 0; k < line.size(); ++k) {
    if (std::isdigit(static_cast<unsigned char>(line[k])) == 0) continue;
    size_t end = k;
    while (end < line.size() && std::isdigit(static_cast<unsigned char>(line[end])) != 0) ++end;
    numbers.emplace_back(k, end - k);
    k = end;
  }
  if (!numbers.empty() && random.chance(70)) {
    const auto [at, length] = random.of(numbers);
    const int64_t value = std::strtoll(line.substr(at, length).c_str(), nullptr, 10);
    line.replace(at, length,
                 std::to_string(random.chance(60) ? static_cast<int64_t>(random.below(64)) : random.integer(value)));
  } else if (random.chance(50)) {
    const size_t blank = line.find(' ', random.below(line.size() + 1));
    line.insert(blank == std::string::npos ? line.size() : blank, " " + std::string(random.of(kWords)));
  } else {
    line = random.text(line, 512);
  }
}

std::string drawn_instruction(Random& random) {
  std::mt19937_64 engine(random.bits());
  const size_t kind = random.below(std::variant_size_v<isa::Instruction>);
  for (int tries = 0;; ++tries) {
    const isa::Instruction instruction = isa::random_instruction(engine, kind);
    const bool legal = !isa::check_operands(instruction, config()) && !isa::check_ranges(instruction, config());
    if (legal || tries == 50) return isa::disassemble(instruction);
  }
}

std::string mutated(Random& random, const std::string& text) {
  std::vector<std::string> lines = lines_of(text);
  const size_t at = random.below(lines.size());
  switch (random.below(8)) {
    case 0: lines.insert(lines.begin() + static_cast<ptrdiff_t>(at), drawn_instruction(random)); break;
    case 1: lines.insert(lines.begin() + static_cast<ptrdiff_t>(at), random.of(lines)); break;
    case 2: lines.erase(lines.begin() + static_cast<ptrdiff_t>(at)); break;
    case 3: std::swap(lines[at], random.of(lines)); break;
    case 4: lines = {drawn_instruction(random), "finish"}; break;
    default: mutate_line(random, lines[at]);
  }
  std::string made;
  for (const std::string& line : lines) made += (made.empty() ? "" : "\n") + line;
  return made;
}

}  // namespace
}  // namespace tessera::fuzz

using namespace tessera;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  std::vector<isa::Instruction> program;
  if (!fuzz::accepts([&] { program = isa::assemble(text); })) return 0;
  fuzz::check(isa::assemble(isa::listing(program)) == program, "a listing gives other instructions");
  for (const isa::Instruction& instruction : program) {
    const isa::Decoded decoded = isa::decode(isa::encode(instruction));
    fuzz::check(decoded.instruction && *decoded.instruction == instruction, "a word gives another instruction");
  }
  if (fuzz::accepts([&] { isa::check_program(program, fuzz::config()); })) fuzz::run(program);
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t limit, unsigned seed) {
  fuzz::Random random(seed);
  const std::string made = fuzz::mutated(random, std::string(reinterpret_cast<const char*>(data), size));
  return fuzz::give_back(data, size, limit, made.data(), made.size());
}
