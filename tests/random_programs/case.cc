// SPDX-License-Identifier: Apache-2.0
// Random and faulty programs, and their files.
#include "tests/random_programs/case.h"

#include <charconv>
#include <fstream>
#include <optional>
#include <sstream>

#include "base/error.h"
#include "isa/assembler.h"
#include "isa/verify/verify.h"

namespace tessera::proof {
namespace {

sim::testing::RandomLimits limits_of(int instructions) {
  sim::testing::RandomLimits limits;
  limits.instructions = instructions;
  return limits;
}

std::string hex(const isa::Word& word) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const uint8_t byte : word) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

isa::Word parse_word(const std::string& text, const std::string& where) {
  isa::Word word;
  bool good = text.size() == 2 * word.size();
  for (size_t n = 0; good && n < word.size(); ++n) {
    const char* first = text.data() + 2 * n;
    good = std::from_chars(first, first + 2, word[n], 16).ptr == first + 2;
  }
  if (!good) throw Error(ErrorCode::kInvalidArgument, where + ": .word takes 128 hexadecimal digits");
  return word;
}

/// A 64-byte group of the DRAM with bytes that the LOAD or STORE moves, or nothing when it moves none.
std::optional<sim::Interval> group_in(const Case& test, const isa::Instruction& instruction,
                                      sim::testing::RandomProgramMaker& maker) {
  for (const sim::Touched& touched : sim::footprint(instruction, test.config, test.bases)) {
    if (!touched.dram || touched.bytes.empty()) continue;
    const auto which = static_cast<size_t>(maker.pick(0, static_cast<int64_t>(touched.bytes.size()) - 1));
    const sim::Interval& bytes = touched.bytes[which];
    const auto at =
        static_cast<uint64_t>(maker.pick(static_cast<int64_t>(bytes.begin), static_cast<int64_t>(bytes.end) - 1)) / 64 *
        64;
    return sim::Interval{at, at + 64};
  }
  return {};
}

/// Gives the scalar field of that name the value that `change` makes of the old one and of the field's width.
template <typename Change>
void change_field(isa::Instruction& instruction, std::string_view name, const Change& change) {
  std::visit(
      [&](auto& i) {
        isa::visit_fields(i, [&](const isa::Field& field, auto& member) {
          if constexpr (std::is_arithmetic_v<std::remove_reference_t<decltype(member)>>) {
            if (field.name == name)
              member = static_cast<std::remove_reference_t<decltype(member)>>(
                  change(static_cast<int64_t>(member), field.width));
          }
        });
      },
      instruction);
}

}  // namespace

std::vector<isa::Instruction> Case::instructions() const {
  std::vector<isa::Instruction> program;
  for (const isa::Word& word : words) {
    const isa::Decoded decoded = isa::decode(word);
    if (decoded.instruction) program.push_back(*decoded.instruction);
  }
  return program;
}

void Case::set_instructions(const std::vector<isa::Instruction>& program) {
  words.clear();
  for (const isa::Instruction& instruction : program) words.push_back(isa::encode(instruction));
}

sim::testing::RandomProgramMaker fill_memory(Case& test) {
  sim::testing::RandomProgramMaker maker(test.config, test.seed, limits_of(0));
  sim::testing::RandomProgram program = maker.make();
  test.dram_address = program.dram_address;
  test.dram = std::move(program.dram);
  test.bases = program.bases;
  test.param = std::move(program.param);
  TESSERA_INVARIANT(test.dram.size() <= kProgramOffset, "the random program's data meet its words");
  test.dram.resize(kProgramOffset);
  return maker;
}

Case make_case(const isa::MachineConfig& config, uint64_t seed, int instructions) {
  Case test;
  test.config = config;
  test.seed = seed;
  auto maker = fill_memory(test);
  std::vector<isa::Instruction> program;
  for (int n = 0; n < instructions; ++n) program.push_back(maker.make_instruction());
  maker.synchronise(program);
  test.set_instructions(program);
  test.dram_latency = static_cast<int>(maker.pick(1, 4) == 1 ? maker.pick(1, 500) : maker.pick(1, 120));
  test.pressure_percent = maker.chance(3) ? static_cast<int>(maker.pick(5, 80)) : 0;
  return test;
}

Case make_faulty_case(const isa::MachineConfig& config, uint64_t seed, int instructions) {
  Case test = make_case(config, seed, instructions);
  sim::testing::RandomProgramMaker maker(config, seed + 0x9e3779b97f4a7c15, limits_of(0));
  std::vector<isa::Instruction> program = test.instructions();
  for (;;) {
    const auto at = static_cast<size_t>(maker.pick(0, static_cast<int64_t>(program.size()) - 2));
    isa::Instruction& instruction = program[at];
    const bool transfer = isa::dram_range(instruction).has_value();
    switch (maker.pick(0, 6)) {
      case 0: {  // bits of a word
        isa::Word& word = test.words[at];
        for (int64_t flips = maker.pick(1, 4); flips > 0; --flips) {
          word[static_cast<size_t>(maker.pick(0, 63))] ^= static_cast<uint8_t>(1 << maker.pick(0, 7));
        }
        const isa::Decoded decoded = isa::decode(word);
        // Flips that leave the program legal would leave its results to chance.
        if (decoded.instruction && !isa::check_operands(*decoded.instruction, config)) {
          test.words[at] = isa::encode(instruction);
          continue;
        }
        test.injected = "illegal word";
        break;
      }
      case 1: {  // a scratchpad address
        const isa::Operands operands = isa::effects(instruction, config).operands;
        if (operands.empty()) continue;
        const isa::Operand& operand =
            operands[static_cast<size_t>(maker.pick(0, static_cast<int64_t>(operands.size()) - 1))];
        if (operand.dram) continue;
        change_field(instruction, operand.field,
                     [&](int64_t, int width) { return maker.pick(0, (int64_t{1} << width) - 1); });
        if (!isa::check_ranges(instruction, config)) {
          instruction = *isa::decode(test.words[at]).instruction;
          continue;
        }
        test.words[at] = isa::encode(instruction);
        test.injected = "scratchpad address";
        break;
      }
      case 2: {  // DRAM outside the window, or weights of 4 bits that do not begin with a beat
        if (!transfer) continue;
        if (auto* load = std::get_if<isa::Load>(&instruction); load != nullptr && load->packed && maker.chance(2)) {
          const auto base = static_cast<uint8_t>(maker.pick(0, isa::kBases - 1));
          if (test.bases[base] % static_cast<uint64_t>(config.axi_bytes) == 0) continue;
          load->base = base;
          test.words[at] = isa::encode(instruction);
          test.injected = "DRAM address";
          break;
        }
        const uint64_t away = uint64_t{1} << maker.pick(20, 34);
        const isa::Operand range = *isa::dram_range(instruction);
        change_field(instruction, range.field, [&](int64_t value, int) { return value + static_cast<int64_t>(away); });
        test.words[at] = isa::encode(instruction);
        test.injected = "DRAM address";
        break;
      }
      case 3:  // the memory refuses
        if (const auto group = group_in(test, instruction, maker)) {
          (isa::dram_range(instruction)->write ? test.failing_writes : test.failing_reads).push_back(*group);
          test.injected = "memory error";
          break;
        }
        continue;
      case 4: {  // the memory refuses a word of the program
        const uint64_t first = test.dram_address + kProgramOffset + at * isa::kInstructionBytes;
        test.failing_reads.push_back({first, first + isa::kInstructionBytes});
        test.injected = "fetch error";
        break;
      }
      case 5: {  // a wait that never comes
        isa::Header& header = isa::header_of(instruction);
        const auto count = static_cast<uint16_t>(program.size() + static_cast<size_t>(maker.pick(1, 1000)));
        header.waits[static_cast<size_t>(maker.pick(0, 2))] = {
            true, static_cast<isa::Engine>(maker.pick(0, isa::kEngines - 1)), count};
        test.words[at] = isa::encode(instruction);
        test.injected = "wait without end";
        break;
      }
      default:
        test.words.pop_back();
        test.injected = "missing FINISH";
        break;
    }
    return test;
  }
}

void save(const Case& test, const std::string& path) {
  std::ofstream file(path);
  file << "# A program of the random tests; `random_programs --replay FILE` runs it.\n";
  file << "#! name = \"" << test.config.name << "\"\n#! seed " << test.seed << "\n#! latency " << test.dram_latency
       << "\n#! pressure " << test.pressure_percent << "\n";
  for (const isa::ConfigKey& key : isa::config_keys()) {
    file << "#! " << key.name << " = " << key.get(test.config) << "\n";
  }
  for (const auto& i : test.failing_reads) file << "#! failing_read " << i.begin << " " << i.end << "\n";
  for (const auto& i : test.failing_writes) file << "#! failing_write " << i.begin << " " << i.end << "\n";
  if (!test.injected.empty()) file << "#! injected " << test.injected << "\n";
  for (const isa::Word& word : test.words) {
    const isa::Decoded decoded = isa::decode(word);
    const bool exact = decoded.instruction && isa::encode(*decoded.instruction) == word;
    file << (exact ? isa::disassemble(*decoded.instruction) : ".word " + hex(word)) << "\n";
  }
  if (!file.flush()) throw Error(ErrorCode::kInvalidArgument, "cannot write " + path);
}

Case load(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw Error(ErrorCode::kInvalidArgument, "cannot read " + path);
  Case test;
  std::string line, toml;
  for (int number = 1; std::getline(file, line); ++number) {
    const std::string where = path + ":" + std::to_string(number);
    std::istringstream words(line);
    std::string first;
    words >> first;
    if (first == "#!") {
      std::string key;
      words >> key;
      sim::Interval interval;
      if (key == "seed") {
        words >> test.seed;
      } else if (key == "latency") {
        words >> test.dram_latency;
      } else if (key == "pressure") {
        words >> test.pressure_percent;
      } else if (key == "failing_read" && words >> interval.begin >> interval.end) {
        test.failing_reads.push_back(interval);
      } else if (key == "failing_write" && words >> interval.begin >> interval.end) {
        test.failing_writes.push_back(interval);
      } else if (key == "injected") {
        std::getline(words >> std::ws, test.injected);
      } else {
        toml += line.substr(line.find("#!") + 2) + "\n";
        continue;
      }
      if (words.fail()) throw Error(ErrorCode::kInvalidArgument, where + ": '" + key + "' takes numbers");
    } else if (first == ".word") {
      words >> first;
      test.words.push_back(parse_word(first, where));
    } else if (!first.empty() && first[0] != '#') {
      for (const isa::Instruction& i : isa::assemble(line, where)) test.words.push_back(isa::encode(i));
    }
  }
  test.config = isa::parse_config(toml, path);
  fill_memory(test);
  return test;
}

}  // namespace tessera::proof
