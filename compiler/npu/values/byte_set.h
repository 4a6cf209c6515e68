// SPDX-License-Identifier: Apache-2.0
// A set of bytes of a memory, as a bit for each in pages that are made where somebody needs them. Intervals of
// addresses enter; whether any of their bytes is in the set leaves.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <unordered_map>

namespace tessera::npu {

/// Things of a memory's pages by the number of the page. The ones that were asked for last are found at once.
template <typename Page>
class Pages {
 public:
  /// The page, or null where there is none; `make`: one of zeros is made then.
  Page* find(int64_t page, bool make) {
    Recent& recent = recent_[static_cast<size_t>(page) % recent_.size()];
    if (recent.page == page && (recent.at != nullptr || !make)) return recent.at;
    recent.page = page;
    const auto known = pages_.find(page);
    recent.at = known != pages_.end() ? known->second.get() : nullptr;
    if (recent.at == nullptr && make) recent.at = (pages_[page] = std::make_unique<Page>()).get();
    return recent.at;
  }
  size_t size() const { return pages_.size(); }
  auto begin() { return pages_.begin(); }
  auto end() { return pages_.end(); }

 private:
  struct Recent {
    int64_t page = -1;
    Page* at = nullptr;
  };
  std::unordered_map<int64_t, std::unique_ptr<Page>> pages_;
  std::array<Recent, 64> recent_;
};

class ByteSet {
 public:
  void add(int64_t begin, int64_t end) {
    any_word(begin, end, true, [](uint64_t& word, uint64_t bits) {
      word |= bits;
      return false;
    });
  }
  void remove(int64_t begin, int64_t end) {
    any_word(begin, end, false, [](uint64_t& word, uint64_t bits) {
      word &= ~bits;
      return false;
    });
  }
  bool any(int64_t begin, int64_t end) {
    return any_word(begin, end, false, [](uint64_t word, uint64_t bits) { return (word & bits) != 0; });
  }

 private:
  static constexpr int64_t kPage = 4096, kWord = 64;  // bytes of the memory
  using Page = std::array<uint64_t, kPage / kWord>;

  /// Calls visit(word, bits of it) for the interval until it says true; whether it did. `make`: pages too that are not
  /// there.
  template <typename Visit>
  bool any_word(int64_t begin, int64_t end, bool make, Visit&& visit) {
    for (int64_t at = begin; at < end;) {
      const int64_t of_page = std::min(end, (at / kPage + 1) * kPage);
      Page* const page = pages_.find(at / kPage, make);
      if (page == nullptr) {
        at = of_page;
        continue;
      }
      for (const int64_t whole = at % kWord == 0 ? of_page / kWord * kWord : at; at < whole; at += kWord) {
        if (visit((*page)[static_cast<size_t>(at % kPage / kWord)], ~uint64_t{0})) return true;
      }
      while (at < of_page) {
        const int64_t low = at % kWord, count = std::min(kWord - low, of_page - at);
        const uint64_t bits = (~uint64_t{0} >> (kWord - count)) << low;
        if (visit((*page)[static_cast<size_t>(at % kPage / kWord)], bits)) return true;
        at += count;
      }
    }
    return false;
  }

  Pages<Page> pages_;
};

}  // namespace tessera::npu
