// SPDX-License-Identifier: Apache-2.0
// Which bytes of INP, OUT and the arena are equal, instruction by instruction of a stream that runs one at a time. An
// instruction enters; afterwards the places of any byte can be asked for, oldest first. Bytes have numbers: that of an
// entry times its lanes, plus the lane in which the byte was made.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "compiler/emit/work.h"
#include "compiler/npu/graph/graph.h"
#include "compiler/npu/values/byte_numbers.h"
#include "compiler/npu/values/byte_set.h"
#include "compiler/npu/values/walk.h"
#include "isa/config.h"
#include "isa/generated/instructions.h"

namespace tessera::npu {

inline constexpr int kArenaMemory = isa::kSpaces + static_cast<int>(kArenaBase);

/// Where a walk may read instead. A loop whose entries stand in several rows of steps becomes several loops.
struct Elsewhere {
  isa::Space space = isa::Space::kInp;
  int64_t first = 0;
  NestParts parts;
};

/// A transfer between DRAM and INP or OUT: runs of bytes.
struct Runs {
  isa::Space space = isa::Space::kInp;
  Walk dram, scratchpad;  // bytes
  int64_t length = 0;
  uint32_t base = 0;
};

/// Nothing where a transfer is none of these, pads, fills, or is longer than what is looked at byte by byte.
std::optional<Runs> runs_of(const isa::Instruction& instruction);
/// The same of the arena alone.
std::optional<Runs> arena_runs(const isa::Instruction& instruction);

/// What an instruction writes without a gap, each byte once.
std::vector<emit::Touch> written_by(const isa::Instruction& instruction, const emit::Work& work,
                                    const isa::MachineConfig& config);

/// Whether the vector unit moves bytes as they are.
bool copies(const isa::Alu& alu);

class StreamValues {
 public:
  explicit StreamValues(const isa::MachineConfig& config);

  void run(const isa::Instruction& instruction, const emit::Work& work);

  /// Where the entries of a walk through `space` stand longest, if that is elsewhere. `spaces`: whether INP and whether
  /// OUT will do.
  std::optional<Elsewhere> elsewhere(isa::Space space, const Walk& walk, std::array<bool, 2> spaces);
  /// The same of the bytes of a STORE, in OUT; in bytes.
  std::optional<Elsewhere> elsewhere(const Runs& store);
  /// Where a LOAD of whole entries finds its bytes on the chip; `walk`: its entries.
  std::optional<Elsewhere> on_chip(const Runs& load, Walk& walk);

 private:
  using Number = ByteNumbers::Number;
  static constexpr Number kUnknown = ByteNumbers::kUnknown;

  /// INP or OUT: the numbers of all bytes, and the entries of which parts come from several transfers.
  struct Scratchpad {
    ByteNumbers numbers;
    std::vector<uint8_t> mixed;
  };
  struct Place {
    isa::Space space;
    int64_t entry;
    Place(isa::Space of, int64_t at) : space(of), entry(at) {}
    explicit Place(uint32_t packed)
        : space((packed & 1) != 0 ? isa::Space::kInp : isa::Space::kOut), entry(packed >> 1) {}
    uint32_t packed() const { return static_cast<uint32_t>(entry) << 1 | (space == isa::Space::kInp ? 1U : 0U); }
  };
  /// What places_ holds: the place of a number of which there is one, or from kList on the list of several.
  static constexpr uint32_t kNoPlace = UINT32_MAX, kList = uint32_t{1} << 31;
  /// The first and the last of nodes_, oldest first; -1: none.
  struct List {
    int32_t first = -1, last = -1;
  };
  struct Node {
    uint32_t place;
    int32_t next;
  };
  static constexpr int64_t kPage = 4096;  // bytes

  Number lane_of(Number number) const { return number & static_cast<Number>(lanes_ - 1); }
  size_t entry_of(Number number) const { return number >> lane_bits_; }

  Scratchpad& scratchpad(isa::Space space) { return space == isa::Space::kInp ? inp_ : out_; }
  Number first_of(isa::Space space, int64_t entry) { return scratchpad(space).numbers.at(entry * lanes_); }
  uint8_t& mixed(isa::Space space, int64_t entry) { return scratchpad(space).mixed[static_cast<size_t>(entry)]; }
  Number byte_at(isa::Space space, int64_t byte) { return scratchpad(space).numbers.at(byte); }
  Number fresh() { return ++last_ * static_cast<Number>(lanes_); }
  void note(isa::Space space, int64_t entry);
  /// The same of an entry with the number `number` of lane 0.
  void note(Number number, const Place& place);
  /// Gives an entry of which nothing is known a number.
  void name(isa::Space space, int64_t entry);
  /// Whether something else than the entry with the number `at` x lanes stands in a place now.
  bool gone(const Place& place, size_t at) {
    const Number first = first_of(place.space, place.entry);
    return entry_of(first) != at || lane_of(first) != 0;
  }
  /// Calls visit(place) of a number's places, oldest first, until it says true; whether it did.
  template <typename Visit>
  bool any_place(Number number, Visit&& visit);
  /// Whether there is a place to look at before that which is read now.
  bool maybe_elsewhere(Number number, std::array<bool, 2> spaces, bool from_here, isa::Space here, int64_t byte);
  bool holds(const Place& place, Number number) {
    return byte_at(place.space, place.entry * lanes_ + lane_of(number)) == number;
  }

  /// Calls visit(page, byte of it, offset, count) of parts of `count` bytes from one on; the page is null where no byte
  /// has a number, unless pages are to be made.
  template <typename Visit>
  void each_page(int64_t begin, int64_t count, bool make, Visit&& visit);
  void numbers_in_dram(int64_t begin, int64_t count, Number* numbers);
  void set_in_dram(int64_t begin, int64_t count, const Number* numbers);
  void forget_dram(int64_t begin, int64_t end);
  void forget(const emit::Work& work, bool transfer, bool all);
  /// Gives bytes of an entry that have no number, from one of its lanes on, new ones; whether there are any.
  bool number_unknown(Number* lanes, int64_t lane, int64_t count);
  /// Whole entries that come from bytes of the arena from one on.
  void load_entries(isa::Space space, int64_t entry, int64_t from, int64_t count);
  /// Bytes that come from the arena, byte by byte: parts of entries, or entries that begin anywhere there.
  void load_parts(isa::Space space, int64_t byte, int64_t from, int64_t count);
  void load(const Runs& runs);
  void store(const Runs& runs);
  void copy(const isa::Alu& alu);

  /// What a walk is to find: for each step the numbers of `width` bytes; kUnknown: any byte will do.
  struct Wanted {
    std::vector<Number> numbers;
    int64_t width = 1;
    int64_t scale = 1;  // bytes of a unit of addresses
    const Number* step(int64_t flat) const { return numbers.data() + flat * width; }
  };
  std::optional<Elsewhere> find(const Walk& walk, const Wanted& wanted, std::array<bool, 2> spaces, bool from_here,
                                isa::Space here);
  std::optional<Elsewhere> fit(const Walk& walk, const Wanted& wanted, const Place& first);
  std::optional<int64_t> address_of(const Wanted& wanted, int64_t flat, isa::Space space);
  bool verify(const Walk& walk, const Wanted& wanted, const Elsewhere& found);

  const isa::MachineConfig& config_;
  const int64_t lanes_;  // a power of two
  const int lane_bits_;
  Scratchpad inp_, out_;
  std::vector<uint32_t> places_;  // by entry's number / lanes
  std::vector<List> lists_;
  std::vector<Node> nodes_;
  Pages<ByteNumbers> dram_;      // behind kArenaBase
  std::vector<Number> numbers_;  // of what is moved
  Number last_ = 0;
};

}  // namespace tessera::npu
