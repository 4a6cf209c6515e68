// SPDX-License-Identifier: Apache-2.0
// The interconnect of a chip alone, in several shapes: random bursts of all cores, before a memory and with cores that
// answer at random moments, against a plain array of bytes; and its assertions (hw/assert) against the mistakes of
// mutate.py. Each mistake has to be noticed in one shape at least.
#include <gtest/gtest.h>
#include <verilated.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <memory>
#include <random>

#include "Vinterconnect_2x8x8.h"
#include "Vinterconnect_3x8x32.h"
#include "Vinterconnect_4x4x16.h"
#include "Vinterconnect_8x8x64.h"
#include "base/error.h"
#include "isa/generated/registers.h"
#include "tests/rtl_assert/report.h"

namespace tessera::testing {
namespace {

const std::vector<Mutant> kMutants = {
#include "interconnect_mutants.inc"
};

/// mutate.py counts them behind those of the machine and of tsr_unpack.
const int kFirstMutant = [] {
  const std::vector<Mutant> before = {
#include "mutants.inc"
#include "unpack_mutants.inc"
  };
  return static_cast<int>(before.size()) + 1;
}();

constexpr uint64_t kBase = uint64_t{1} << 40;
constexpr size_t kReadBytes = 1 << 16;       // that nobody writes
constexpr size_t kWriteBytes = 1 << 14;      // of each core
constexpr size_t kReads = 16, kWrites = 16;  // bursts in flight of a core

struct Shape {
  size_t cores, axi_bytes, memory_bytes;
};

/// Bits of a port of any width.
template <typename Port>
void put(Port& port, size_t bit, size_t width, uint64_t value) {
  auto* bytes = reinterpret_cast<uint8_t*>(&port);
  for (size_t k = 0; k < width; ++k) {
    uint8_t& byte = bytes[(bit + k) / 8];
    const auto mask = static_cast<uint8_t>(1 << (bit + k) % 8);
    byte = static_cast<uint8_t>((byte & ~mask) | (value >> k & 1 ? mask : 0));
  }
}

template <typename Port>
uint64_t get(const Port& port, size_t bit, size_t width) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(&port);
  uint64_t value = 0;
  for (size_t k = 0; k < width; ++k) value |= uint64_t{bytes[(bit + k) / 8] >> (bit + k) % 8 & 1U} << k;
  return value;
}

template <typename Port>
uint8_t* bytes_of(Port& port) {
  return reinterpret_cast<uint8_t*>(&port);
}

struct Burst {
  uint64_t address = 0;
  size_t beats = 1, done = 0;
};

/// What one core has asked for.
struct Core {
  std::deque<Burst> reads;    // not answered
  std::deque<Burst> writes;   // whose data have not all been taken
  std::deque<Burst> written;  // without a response
  bool data = false;          // a beat stands
  bool asked = false;         // for a register that it has not answered
};

template <typename Model>
class Bench {
 public:
  Bench(const Shape& shape, uint64_t seed)
      : shape_(shape),
        random_(seed),
        memory_(kReadBytes + shape.cores * kWriteBytes),
        cores_(shape.cores),
        m_(std::make_unique<Model>(&context_)) {
    for (uint8_t& byte : memory_) byte = static_cast<uint8_t>(random_());
    expected_ = memory_;
  }

  /// Throws what an assertion says. Returns whether all bytes, errors and registers were right.
  bool run() {
    m_->rst_ni = 0;
    for (int edge = 0; edge < 4; ++edge) clock();
    m_->rst_ni = 1;
    for (int phase = 0; phase < 18; ++phase) {
      for (int& percent : percent_) percent = std::array{3, 30, 70, 100}[random_() % 4];
      if (phase % 6 == 3) percent_ = {100, 100, 100, 100, 1, 100, 1, 1};    // memory is slow: everything fills
      if (phase % 6 == 5) percent_ = {100, 100, 2, 100, 100, 100, 100, 2};  // the cores are
      for (int n = 0; n < 800; ++n) cycle(true);
    }
    percent_.fill(100);
    for (int n = 0; n < 60000 && !quiet(); ++n) cycle(false);
    m_->final();
    return right_ && quiet() && memory_ == expected_;
  }

 private:
  enum Chance { kAsk, kGive, kTake, kAddress, kAnswer, kWord, kRespond, kAccept };

  bool chance(Chance what) { return static_cast<int>(random_() % 100) < percent_[what]; }
  void check(bool holds) { right_ = right_ && holds; }
  void clock() {
    m_->clk_i = 0;
    m_->eval();
    m_->clk_i = 1;
    m_->eval();
  }
  bool quiet() const {
    return std::all_of(cores_.begin(), cores_.end(), [](const Core& core) {
      return core.reads.empty() && core.writes.empty() && core.written.empty();
    });
  }

  /// Whole beats within a page, somewhere in these bytes.
  Burst make_burst(size_t first, size_t bytes) {
    const size_t place = random_() % 4096 / shape_.axi_bytes * shape_.axi_bytes;
    const size_t most = std::min<size_t>(256, (4096 - place) / shape_.axi_bytes);
    const size_t longest = random_() % 2 == 0 ? std::min<size_t>(most, 5) : most;
    return {kBase + first + random_() % (bytes / 4096) * 4096 + place, 1 + random_() % longest};
  }

  /// Every output depends on state only, so what is taken in a cycle is known before its edge.
  void cycle(bool asks) {
    for (size_t c = 0; c < shape_.cores; ++c) {
      read(c, asks);
      write(c, asks);
      answer_register(c);
      put(m_->interrupt_i, c, 1, random_() % 4 == 0);
      put(m_->idle_i, c, 1, random_() % 2);
      put(m_->fault_i, c, 1, random_() % 2);
      put(m_->rest_i, c, 1, random_() % 2);
    }
    answer_reads();
    answer_writes();
    ask_registers();
    clock();
  }

  void read(size_t c, bool asks) {
    Core& core = cores_[c];
    const bool ask = asks && core.reads.size() < kReads && chance(kAsk);  // what ends in this cycle counts
    const bool take = chance(kTake);
    put(m_->c_rready_i, c, 1, take);
    if (take && get(m_->c_rvalid_o, c, 1)) {
      check(!core.reads.empty());
      if (!core.reads.empty()) {
        Burst& burst = core.reads.front();
        const size_t at = burst.address - kBase + burst.done * shape_.axi_bytes;
        check(std::memcmp(bytes_of(m_->c_rdata_o) + c * shape_.axi_bytes, &expected_[at], shape_.axi_bytes) == 0);
        check(get(m_->c_rresp_o, 2 * c, 2) == (error(at) ? 2 : 0));
        check(get(m_->c_rlast_o, c, 1) == (burst.done + 1 == burst.beats));
        if (++burst.done == burst.beats) core.reads.pop_front();
      }
    }
    put(m_->c_arvalid_i, c, 1, ask);
    if (!ask) return;
    const Burst burst = make_burst(0, kReadBytes);
    put(m_->c_araddr_i, 64 * c, 64, burst.address);
    put(m_->c_arlen_i, 8 * c, 8, burst.beats - 1);
    core.reads.push_back(burst);
  }

  void write(size_t c, bool asks) {
    Core& core = cores_[c];
    const bool ask = asks && core.writes.size() + core.written.size() < kWrites && chance(kAsk);
    const bool accept = chance(kAccept);
    put(m_->c_bready_i, c, 1, accept);
    if (accept && get(m_->c_bvalid_o, c, 1)) {
      check(!core.written.empty());
      if (!core.written.empty()) {
        check(get(m_->c_bresp_o, 2 * c, 2) == (error(core.written.front().address - kBase) ? 2 : 0));
        core.written.pop_front();
      }
    }
    const size_t width = shape_.axi_bytes;
    if (!core.data && !core.writes.empty() && chance(kGive)) {
      core.data = true;
      const bool whole = random_() % 2 == 0;
      for (size_t b = 0; b < width; ++b) {
        put(m_->c_wdata_i, 8 * (c * width + b), 8, random_() & 255);
        put(m_->c_wstrb_i, c * width + b, 1, whole || random_() % 2 == 0);
      }
      put(m_->c_wlast_i, c, 1, core.writes.front().done + 1 == core.writes.front().beats);
    }
    put(m_->c_wvalid_i, c, 1, core.data);
    if (core.data && get(m_->c_wready_o, c, 1)) {
      Burst& burst = core.writes.front();
      for (size_t b = 0; b < width; ++b) {
        if (get(m_->c_wstrb_i, c * width + b, 1)) {
          expected_[burst.address - kBase + burst.done * width + b] =
              static_cast<uint8_t>(get(m_->c_wdata_i, 8 * (c * width + b), 8));
        }
      }
      core.data = false;
      if (++burst.done == burst.beats) {
        core.written.push_back(burst);
        core.writes.pop_front();
      }
    }
    put(m_->c_awvalid_i, c, 1, ask);
    if (!ask) return;
    const Burst burst = make_burst(kReadBytes + c * kWriteBytes, kWriteBytes);
    put(m_->c_awaddr_i, 64 * c, 64, burst.address);
    put(m_->c_awlen_i, 8 * c, 8, burst.beats - 1);
    core.writes.push_back(burst);
  }

  /// Some pages are refused.
  static bool error(size_t at) { return at / 4096 % 5 == 3; }

  void answer_reads() {
    m_->m_rvalid_i = !memory_reads_.empty() && chance(kAnswer);
    if (m_->m_rvalid_i) {
      Burst& burst = memory_reads_.front();
      const size_t at = burst.address - kBase + burst.done * shape_.memory_bytes;
      std::memcpy(bytes_of(m_->m_rdata_i), &memory_[at], shape_.memory_bytes);
      m_->m_rresp_i = error(at) ? 2 : 0;
      m_->m_rlast_i = ++burst.done == burst.beats;
      if (burst.done == burst.beats) memory_reads_.pop_front();
    }
    m_->m_arready_i = chance(kAddress);
    if (m_->m_arready_i && m_->m_arvalid_o) memory_reads_.push_back({m_->m_araddr_o, m_->m_arlen_o + size_t{1}});
  }

  void answer_writes() {
    m_->m_bvalid_i = !memory_written_.empty() && chance(kRespond);
    if (m_->m_bvalid_i) {
      m_->m_bresp_i = error(memory_written_.front().address - kBase) ? 2 : 0;
      memory_written_.pop_front();
    }
    m_->m_wready_i = !memory_writes_.empty() && chance(kWord);
    if (m_->m_wready_i && m_->m_wvalid_o) {
      Burst& burst = memory_writes_.front();
      for (size_t b = 0; b < shape_.memory_bytes; ++b) {
        if (get(m_->m_wstrb_o, b, 1))
          memory_[burst.address - kBase + burst.done * shape_.memory_bytes + b] = bytes_of(m_->m_wdata_o)[b];
      }
      check(m_->m_wlast_o == (burst.done + 1 == burst.beats));
      if (++burst.done == burst.beats) {
        memory_written_.push_back(burst);
        memory_writes_.pop_front();
      }
    }
    m_->m_awready_i = chance(kAddress);
    if (m_->m_awready_i && m_->m_awvalid_o) memory_writes_.push_back({m_->m_awaddr_o, m_->m_awlen_o + size_t{1}});
  }

  static uint32_t register_of(size_t core, uint32_t address) {
    return static_cast<uint32_t>(core + 1) * 0x01010000U + address;
  }

  /// A core takes a write or a read at some time, and answers a read at a later one.
  void answer_register(size_t c) {
    Core& core = cores_[c];
    put(m_->c_written_i, c, 1, get(m_->c_write_o, c, 1) && random_() % 3 == 0);
    const bool answers = core.asked && random_() % 3 == 0;
    put(m_->c_read_valid_i, c, 1, answers);
    if (answers) {
      put(m_->c_read_data_i, 32 * c, 32, register_of(c, m_->c_raddr_o));
      core.asked = false;
    }
    const bool takes = !core.asked && !answers && random_() % 2 == 0;
    put(m_->c_read_ready_i, c, 1, takes);
    if (takes && get(m_->c_read_o, c, 1)) core.asked = true;
  }

  /// A core's register, one of a core that is not there, or one of the chip's page.
  uint32_t make_address() {
    const auto place = static_cast<uint32_t>(random_() % 1024 * 4);
    if (random_() % 3 != 0) return static_cast<uint32_t>(random_() % (shape_.cores + 1)) << 12 | place;
    return isa::reg::chip::kPage | (random_() % 2 == 0 ? isa::reg::chip::kStart : place % 256);
  }

  void ask_registers() {
    if (read_taken_) m_->s_arvalid_i = 0;
    if (write_taken_) m_->s_awvalid_i = m_->s_wvalid_i = 0;
    if (!m_->s_arvalid_i) m_->s_araddr_i = make_address();
    if (!m_->s_awvalid_i && !m_->s_wvalid_i) {
      m_->s_awaddr_i = make_address();
      m_->s_wdata_i = static_cast<uint32_t>(random_());
      m_->s_wstrb_i = 15;
    }
    m_->s_arvalid_i = m_->s_arvalid_i || random_() % 3 == 0;
    m_->s_awvalid_i = m_->s_awvalid_i || random_() % 3 == 0;
    m_->s_wvalid_i = m_->s_wvalid_i || random_() % 3 == 0;
    m_->s_bready_i = random_() % 2;
    m_->s_rready_i = random_() % 2;
    m_->eval();  // a write is taken when both its halves are there
    if (m_->s_rvalid_o && m_->s_rready_i) {
      const uint32_t core = read_address_ >> 12;
      if (core < 16) check(m_->s_rdata_o == (core < shape_.cores ? register_of(core, read_address_ & 0xfff) : 0));
      if (read_address_ == isa::reg::chip::kPage + isa::reg::chip::kCores) check(m_->s_rdata_o == shape_.cores);
    }
    write_taken_ = m_->s_awvalid_i && m_->s_awready_o;
    read_taken_ = m_->s_arvalid_i && m_->s_arready_o;
    if (read_taken_) read_address_ = m_->s_araddr_i;
  }

  Shape shape_;
  std::mt19937_64 random_;
  std::vector<uint8_t> memory_, expected_;
  std::vector<Core> cores_;
  std::deque<Burst> memory_reads_, memory_writes_, memory_written_;
  std::array<int, 8> percent_{};
  bool read_taken_ = false, write_taken_ = false;  // a register access, in this cycle
  uint32_t read_address_ = 0;
  bool right_ = true;
  VerilatedContext context_;
  std::unique_ptr<Model> m_;
};

/// What the assertions say in any shape, up to the one that is wanted, and whether the plain memory agrees.
std::pair<std::string, bool> try_shapes(int mutant, const std::string& wanted) {
  rtl_mutant = mutant;
  bool equal = true;
  std::string said;
  const auto shape = [&]<typename Model>(std::type_identity<Model>, const Shape& one) {
    if (!wanted.empty() && said.find(wanted) != std::string::npos) return;
    try {
      equal = Bench<Model>(one, one.cores).run() && equal;
    } catch (const Error& error) {
      said += std::string(error.what()) + "; ";
    }
  };
  shape(std::type_identity<Vinterconnect_2x8x8>(), {2, 8, 8});
  shape(std::type_identity<Vinterconnect_3x8x32>(), {3, 8, 32});
  shape(std::type_identity<Vinterconnect_4x4x16>(), {4, 4, 16});
  shape(std::type_identity<Vinterconnect_8x8x64>(), {8, 8, 64});
  rtl_mutant = 0;
  return {said, equal};
}

TEST(Interconnect, EqualsAPlainMemory) {
  const auto [said, equal] = try_shapes(0, "");
  EXPECT_EQ(said, "");
  EXPECT_TRUE(equal);
}

TEST(Interconnect, EveryMistakeIsNoticed) {
  for (size_t i = 0; i < kMutants.size(); ++i) {
    const std::string said = try_shapes(kFirstMutant + static_cast<int>(i), kMutants[i].assertion).first;
    EXPECT_NE(said.find(kMutants[i].assertion), std::string::npos)
        << kMutants[i].module << ": " << kMutants[i].line << ": " << said;
  }
}

}  // namespace
}  // namespace tessera::testing
