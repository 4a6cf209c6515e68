// SPDX-License-Identifier: Apache-2.0
#include "compiler/npu/cores/cores_order.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "base/error.h"
#include "compiler/npu/assembly/assemble.h"
#include "isa/verify/effects.h"

namespace tessera::npu {

namespace {

/// FENCEs that publish of one part at most: each is a word to fetch and a place among the answers that STORE expects,
/// and others begin hardly earlier by it where parts are short.
constexpr size_t kPublishes = 4, kPublishesOfShort = 2;
constexpr size_t kShortStream = 1000;  // instructions of a core

/// Who wrote each element of an allocation last, and who touched it at all.
class Allocation {
 public:
  Allocation(const Placement& root, int32_t element_bytes)
      : begin_(root.region_offset),
        each_(element_bytes),
        stays_(root.base == kCacheBase),
        writers_(static_cast<size_t>(root.region_bytes / element_bytes), kNobody) {}

  void read(const Tensor& tensor, const Placement& place, uint32_t operation, std::set<uint32_t>& needed) {
    uint32_t last = kNobody;
    runs(tensor, place, [&](size_t begin, size_t end) {
      for (size_t k = begin; k < end; ++k) {
        if (writers_[k] == last) continue;
        last = writers_[k];
        if (last != kNobody) needed.insert(last);
      }
      for (const auto& [writer, where] : appended_)
        if (meets(where, begin, end)) needed.insert(writer);
    });
    touched_.push_back(operation);
    readers_.push_back(operation);
  }

  /// What is written a second time waits for all who have touched the allocation. What stays from run to run holds
  /// something from the start: who writes there waits for those who have read. `lower`: elements by which the place may
  /// lie lower when the program runs, as that of all others who append does.
  void write(const Tensor& tensor, const Placement& place, int64_t lower, uint32_t operation,
             std::set<uint32_t>& needed) {
    bool again = false;
    std::map<size_t, size_t> where;
    runs(tensor, place, [&](size_t begin, size_t end) {
      for (size_t k = begin; k < end; ++k) {
        again = again || (writers_[k] != kNobody && writers_[k] != operation);
        writers_[k] = operation;
      }
      if (lower > 0) where.emplace(begin - std::min(begin, static_cast<size_t>(lower)), end);
    });
    if (again) needed.insert(touched_.begin(), touched_.end());
    if (stays_) needed.insert(readers_.begin(), readers_.end());
    if (lower > 0) appended_.emplace_back(operation, std::move(where));
    touched_.push_back(operation);
  }

 private:
  static constexpr uint32_t kNobody = ~uint32_t{0};

  /// Whether one of the intervals, by their begin, has an element from `begin` to `end`.
  static bool meets(const std::map<size_t, size_t>& where, size_t begin, size_t end) {
    const auto behind = where.lower_bound(end);
    return behind != where.begin() && std::prev(behind)->second > begin;
  }

  template <typename Visit>
  void runs(const Tensor& t, const Placement& p, Visit&& visit) const {
    const bool rows = p.pixel_pitch == t.c * t.element_bytes;  // pixels follow each other
    const int64_t run = rows ? t.w * t.c : t.c, columns = rows ? 1 : t.w;
    for (int64_t n = 0; n < t.n; ++n)
      for (int64_t h = 0; h < t.h; ++h)
        for (int64_t w = 0; w < columns; ++w) {
          const int64_t at = p.offset + n * p.image_pitch + h * p.row_pitch + w * p.pixel_pitch - begin_;
          const auto first = static_cast<size_t>(at / each_);
          visit(first, first + static_cast<size_t>(run));
        }
  }

  int64_t begin_;
  int64_t each_;
  bool stays_;
  std::vector<uint32_t> writers_;
  std::vector<uint32_t> touched_, readers_;
  std::vector<std::pair<uint32_t, std::map<size_t, size_t>>> appended_;  // where an operation may append
};

/// An access of an instruction to DRAM.
struct Access {
  size_t instruction = 0;
  uint32_t base = 0;
  int64_t begin = 0, end = 0;
  bool write = false;
};

/// What an instruction awaits of another core: that its stream is complete up to an instruction.
struct Await {
  size_t instruction = 0, core = 0, until = 0;
};

/// What one core publishes.
struct Publishing {
  std::set<size_t> wanted;     // instructions of it that others await
  std::vector<size_t> places;  // those behind which it publishes, in order

  /// Of the wanted ones of each part a few, the last one among them.
  void thin(const std::vector<uint32_t>& tags) {
    const size_t most = tags.size() <= kShortStream ? kPublishesOfShort : kPublishes;
    std::map<uint32_t, std::vector<size_t>> parts;
    for (const size_t place : wanted) parts[tags[place]].push_back(place);
    for (const auto& [tag, all] : parts) {
      const size_t count = std::min(all.size(), most);
      for (size_t k = 1; k <= count; ++k) places.push_back(all[k * all.size() / count - 1]);
    }
    std::sort(places.begin(), places.end());
  }

  /// The counter once the stream is complete up to an instruction.
  uint16_t count(size_t until) const {
    const auto found = std::lower_bound(places.begin(), places.end(), until);
    TESSERA_INVARIANT(found != places.end(), "what is awaited is published");
    return static_cast<uint16_t>(found - places.begin() + 1);
  }
};

class Ordering {
 public:
  Ordering(const ChipGraph& chip, const std::vector<std::vector<uint32_t>>& waits, const std::vector<int64_t>& slides,
           const isa::MachineConfig& config, std::vector<CoreCode>& cores)
      : waits_(waits), slides_(slides), chip_(chip), config_(config), cores_(cores) {}

  void run() {
    for (size_t core = 0; core < cores_.size(); ++core) find_accesses(core);
    awaits_.resize(cores_.size());
    publishing_.resize(cores_.size());
    for (size_t core = 0; core < cores_.size(); ++core) find_awaits(core);
    for (size_t core = 0; core < cores_.size(); ++core) publishing_[core].thin(cores_[core].tags);
    for (size_t core = 0; core < cores_.size(); ++core) write(core);
  }

 private:
  void find_accesses(size_t core) {
    accesses_.resize(chip_.graph.operations.size());
    const CoreCode& code = cores_[core];
    for (size_t i = 0; i < code.works.size(); ++i) {
      for (const emit::Touch& touch : code.works[i]->touches) {
        if (touch.memory < isa::kSpaces || code.tags[i] >= accesses_.size()) continue;
        const auto base = static_cast<uint32_t>(touch.memory - isa::kSpaces);
        if (base == kConstantBase || base == kLengthTableBase) continue;
        const bool slides = base >= kFirstSlideBase;  // somewhere in what stays
        const int64_t lower = slides ? slides_[base - kFirstSlideBase] : 0;
        accesses_[code.tags[i]].push_back({i, slides ? kCacheBase : base, touch.begin - lower, touch.end, touch.write});
      }
    }
  }

  void find_awaits(size_t core) {
    for (size_t part = 0; part < chip_.cores.size(); ++part) {
      if (chip_.cores[part] != core) continue;
      for (const uint32_t other : waits_[part]) {
        const size_t whom = chip_.cores[other];
        for (const Access& access : accesses_[part]) {
          const std::optional<size_t> until = last_conflict(access, accesses_[other]);
          if (!until) continue;
          awaits_[core].push_back({access.instruction, whom, *until});
          publishing_[whom].wanted.insert(*until);
        }
      }
    }
    std::stable_sort(awaits_[core].begin(), awaits_[core].end(),
                     [](const Await& a, const Await& b) { return a.instruction < b.instruction; });
  }

  static std::optional<size_t> last_conflict(const Access& access, const std::vector<Access>& others) {
    std::optional<size_t> last;
    for (const Access& other : others) {
      const bool conflict = (access.write || other.write) && access.base == other.base && access.begin < other.end &&
                            other.begin < access.end;
      if (conflict && (!last || other.instruction > *last)) last = other.instruction;
    }
    return last;
  }

  void write(size_t core) {
    CoreCode& code = cores_[core];
    CoreCode made;
    made.pool.share(code.pool);
    const auto push = [&](const isa::Instruction& instruction, const emit::Work* work, size_t like) {
      made.instructions.push_back(instruction);
      made.works.push_back(work);
      made.tags.push_back(code.tags[like]);
      made.layers.push_back(code.layers[like]);
    };
    const auto fence = [&](const isa::Fence& one, size_t like) { push(one, made.pool.add(one, config_), like); };
    std::vector<std::array<uint16_t, isa::kEngines>> known(cores_.size(), std::array<uint16_t, isa::kEngines>{});
    std::array<std::optional<uint32_t>, isa::kEngines> last;  // of LOAD and STORE, since the last publication
    size_t next = 0, published = 0;
    const std::vector<size_t>& places = publishing_[core].places;
    for (size_t i = 0; i < code.instructions.size(); ++i) {
      for (; next < awaits_[core].size() && awaits_[core][next].instruction == i; ++next) {
        const Await& await = awaits_[core][next];
        isa::Fence one;
        one.engine = *code.works[i]->engine;
        one.await = true;
        one.await_core = static_cast<uint8_t>(await.core);
        one.await_count = publishing_[await.core].count(await.until);
        uint16_t& so_far = known[await.core][static_cast<size_t>(one.engine)];
        if (one.await_count <= so_far) continue;
        so_far = one.await_count;
        fence(one, i);
      }
      push(code.instructions[i], code.works[i], i);
      const auto engine = code.works[i]->engine;
      if (engine == isa::Engine::kLoad || engine == isa::Engine::kStore)
        last[static_cast<size_t>(*engine)] = static_cast<uint32_t>(made.instructions.size() - 1);
      if (published == places.size() || places[published] != i) continue;
      ++published;
      const auto at = static_cast<uint32_t>(made.instructions.size());
      const auto store = static_cast<size_t>(isa::Engine::kStore), load = static_cast<size_t>(isa::Engine::kLoad);
      if (last[store]) made.orders.push_back({*last[store], at});
      if (engine == isa::Engine::kLoad) made.orders.push_back({*last[load], at});
      isa::Fence one;
      one.engine = isa::Engine::kStore;
      one.publish = true;
      fence(one, i);
    }
    code = std::move(made);
  }

  const std::vector<std::vector<uint32_t>>& waits_;
  const std::vector<int64_t>& slides_;  // bytes by which what a base register names may lie lower
  const ChipGraph& chip_;
  const isa::MachineConfig& config_;
  std::vector<CoreCode>& cores_;
  std::vector<std::vector<Access>> accesses_;  // by operation, in the order of its core's stream
  std::vector<std::vector<Await>> awaits_;     // by core, in the order of its stream
  std::vector<Publishing> publishing_;         // by core
};

}  // namespace

std::vector<std::vector<uint32_t>> waits_of_parts(const ChipGraph& chip, const std::vector<Placement>& placements,
                                                  const Options& options) {
  const Graph& graph = chip.graph;
  std::map<TensorId, Allocation> allocations;
  std::vector<std::vector<uint32_t>> waits(graph.operations.size());
  for (size_t i = 0; i < graph.operations.size(); ++i) {
    std::set<uint32_t> needed;
    const auto touch = [&](TensorId id, bool write) {
      const TensorId root = root_of(graph, id);
      const Placement& place = placements[static_cast<size_t>(root)];
      if (place.region_bytes == 0) return;  // it stays on the chip
      const Tensor& tensor = graph.tensors[static_cast<size_t>(id)];
      Allocation& allocation = allocations.try_emplace(root, place, tensor.element_bytes).first->second;
      const Placement& own = placements[static_cast<size_t>(id)];
      const auto number = static_cast<uint32_t>(i);
      if (write)
        allocation.write(tensor, own, tensor.slide * options.room / tensor.element_bytes, number, needed);
      else
        allocation.read(tensor, own, number, needed);
    };
    const Uses uses = uses_of(graph.operations[i]);
    for (const TensorId id : uses.read) touch(id, false);
    touch(uses.written, true);
    for (const uint32_t other : needed)
      if (chip.cores[other] != chip.cores[i]) waits[i].push_back(other);
  }
  return waits;
}

void order_cores(const ChipGraph& chip, const std::vector<std::vector<uint32_t>>& waits,
                 const std::vector<int64_t>& slides, const isa::MachineConfig& config, std::vector<CoreCode>& cores) {
  Ordering(chip, waits, slides, config, cores).run();
}

bool all_end(const std::vector<CoreCode>& cores) {
  std::vector<size_t> next(cores.size(), 0);
  std::vector<int64_t> published(cores.size(), 0);
  const auto advance = [&](size_t core) {
    const size_t before = next[core];
    for (const auto& all = cores[core].instructions; next[core] < all.size(); ++next[core]) {
      const auto* fence = std::get_if<isa::Fence>(&all[next[core]]);
      if (fence == nullptr) continue;
      if (fence->await && published[fence->await_core] < fence->await_count) break;
      published[core] += fence->publish ? 1 : 0;
    }
    return next[core] != before;
  };
  for (bool any = true; any;) {
    any = false;
    for (size_t core = 0; core < cores.size(); ++core) any = advance(core) || any;
  }
  for (size_t core = 0; core < cores.size(); ++core)
    if (next[core] < cores[core].instructions.size()) return false;
  return true;
}

}  // namespace tessera::npu
