// SPDX-License-Identifier: Apache-2.0
// Numbers of the bytes of a memory. Those of an entry follow each other almost always, from a multiple of its bytes on,
// and then the entry has one number; an entry of other bytes has one for each. Intervals enter and leave byte by byte.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <numeric>
#include <vector>

namespace tessera::npu {

class ByteNumbers {
 public:
  using Number = uint32_t;
  static constexpr Number kUnknown = 0;
  /// Of an entry whose bytes do not follow each other.
  static constexpr Number kApart = UINT32_MAX;

  bool empty() const { return entries_.empty(); }
  int64_t bytes() const { return static_cast<int64_t>(entries_.size()) << bits_; }
  /// All of them unknown. `lanes`: bytes of an entry, a power of two that divides `bytes`.
  void reset(int64_t bytes, int64_t lanes) {
    bits_ = std::countr_zero(static_cast<uint64_t>(lanes));
    entries_.assign(static_cast<size_t>(bytes >> bits_), kUnknown);
    apart_.clear();
  }

  /// The number of an entry's first byte, which the others follow; kUnknown: of none; kApart: they do not.
  Number whole(int64_t entry) const { return entries_[static_cast<size_t>(entry)]; }
  void set_whole(int64_t entry, Number number) { entries_[static_cast<size_t>(entry)] = number; }

  Number at(int64_t byte) const {
    const Number number = whole(byte >> bits_);
    if (number == kApart) return apart_[static_cast<size_t>(byte)];
    return number == kUnknown ? kUnknown : number + static_cast<Number>(byte & (lanes() - 1));
  }

  void read(int64_t begin, int64_t count, Number* numbers) const {
    each_entry(begin, count, [&](int64_t entry, int64_t lane, int64_t part) {
      const Number number = whole(entry);
      if (number == kApart)
        std::copy_n(apart_.data() + (entry << bits_) + lane, part, numbers);
      else if (number == kUnknown)
        std::fill_n(numbers, part, kUnknown);
      else
        std::iota(numbers, numbers + part, number + static_cast<Number>(lane));
      numbers += part;
    });
  }

  void write(int64_t begin, int64_t count, const Number* numbers) {
    each_entry(begin, count, [&](int64_t entry, int64_t lane, int64_t part) {
      if (part == lanes() && follow(numbers))
        set_whole(entry, *numbers);
      else
        std::copy_n(numbers, part, set_apart(entry, part == lanes()) + lane);
      numbers += part;
    });
  }

  void forget(int64_t begin, int64_t count) {
    each_entry(begin, count, [&](int64_t entry, int64_t lane, int64_t part) {
      if (part == lanes())
        set_whole(entry, kUnknown);
      else if (whole(entry) != kUnknown)
        std::fill_n(set_apart(entry, false) + lane, part, kUnknown);
    });
  }

  /// The same as reading and writing.
  void copy(const ByteNumbers& from, int64_t source, int64_t begin, int64_t count) {
    if (((source | begin | count) & (lanes() - 1)) == 0) {
      const int64_t first = begin >> bits_, of = source >> bits_;
      for (int64_t k = 0; k < count >> bits_; ++k) {
        if (const Number number = from.whole(of + k); number != kApart)
          set_whole(first + k, number);
        else
          copy_apart(from, source + (k << bits_), first + k, 0, lanes());
      }
      return;
    }
    each_entry(begin, count, [&](int64_t entry, int64_t lane, int64_t part) {
      copy_apart(from, source, entry, lane, part);
      source += part;
    });
  }

 private:
  int64_t lanes() const { return int64_t{1} << bits_; }

  /// Calls visit(entry, first lane, lanes of it) for an interval.
  template <typename Visit>
  void each_entry(int64_t begin, int64_t count, Visit&& visit) const {
    for (const int64_t end = begin + count; begin < end;) {
      const int64_t lane = begin & (lanes() - 1), part = std::min(lanes() - lane, end - begin);
      visit(begin >> bits_, lane, part);
      begin += part;
    }
  }

  void copy_apart(const ByteNumbers& from, int64_t source, int64_t entry, int64_t lane, int64_t part) {
    moved_.resize(static_cast<size_t>(lanes()));
    from.read(source, part, moved_.data());
    write((entry << bits_) + lane, part, moved_.data());
  }

  bool follow(const Number* numbers) const {
    const Number first = *numbers, step = first == kUnknown ? 0 : 1;
    if ((first & static_cast<Number>(lanes() - 1)) != 0) return false;
    for (int64_t k = 1; k < lanes(); ++k) {
      if (numbers[k] != first + step * static_cast<Number>(k)) return false;
    }
    return true;
  }

  /// The numbers of an entry's bytes, which need not follow each other from now on. `all`: all of them are about to be
  /// written.
  Number* set_apart(int64_t entry, bool all) {
    if (apart_.empty()) apart_.resize(static_cast<size_t>(bytes()));
    Number* const numbers = apart_.data() + (entry << bits_);
    if (whole(entry) == kApart) return numbers;
    if (!all) read(entry << bits_, lanes(), numbers);
    set_whole(entry, kApart);
    return numbers;
  }

  int bits_ = 0;
  std::vector<Number> entries_, apart_;  // the latter of all bytes, where an entry needs it
  std::vector<Number> moved_;            // of an entry, on their way
};

}  // namespace tessera::npu
