// SPDX-License-Identifier: Apache-2.0
// tsr_unpack alone, in several shapes of beat and entry: random packed entries with random stalls against plain loops,
// and its assertions (hw/assert/tsr_assert_unpack.sv) against the mistakes of mutate.py. Each mistake has to be noticed
// in one shape at least.
#include <gtest/gtest.h>
#include <verilated.h>

#include <cstring>
#include <memory>
#include <random>

#include "Vunpack_16x8x16.h"
#include "Vunpack_4x32x8.h"
#include "Vunpack_4x8x32.h"
#include "Vunpack_8x16x16.h"
#include "Vunpack_8x4x4.h"
#include "Vunpack_8x8x8.h"
#include "base/error.h"
#include "tests/rtl_assert/report.h"

namespace tessera::testing {
namespace {

const std::vector<Mutant> kMutants = {
#include "unpack_mutants.inc"
};

/// mutate.py counts them behind those of the machine.
const int kFirstMutant = [] {
  const std::vector<Mutant> machine = {
#include "mutants.inc"
  };
  return static_cast<int>(machine.size()) + 1;
}();

struct Shape {
  int axi_bytes, block_in, block_out;
  int header() const { return std::max(axi_bytes, block_out / 2); }
  int bytes() const { return header() + block_in * block_out / 2; }
};

int nibble(const std::vector<uint8_t>& bytes, int n) {
  return (bytes[static_cast<size_t>(n / 2)] >> (4 * (n % 2))) & 15;
}

/// The weights of an entry by the words of isa/semantics.md.
std::vector<uint8_t> unpacked(const std::vector<uint8_t>& entry, const Shape& shape) {
  std::vector<uint8_t> weights;
  for (int e = 0; e < shape.block_in * shape.block_out; ++e) {
    const int w = nibble(entry, 2 * shape.header() + e), scale = nibble(entry, e / shape.block_in) + 1;
    weights.push_back(static_cast<uint8_t>((w < 8 ? w : w - 16) * scale));
  }
  return weights;
}

template <typename Model>
class Bench {
 public:
  Bench(const Shape& shape, uint64_t seed) : shape_(shape), random_(seed), model_(&context_) {}

  /// Throws what an assertion says. Returns whether all weights were those of the loops.
  bool run() {
    bool equal = true;
    model_.beat_valid_i = 1;
    model_.eval();
    for (int entry = 0; entry < 40; ++entry) {
      if (entry == 0 || random_() % 2 == 0) begin();  // else one entry follows another
      equal = one_entry() && equal;
    }
    model_.final();
    return equal;
  }

 private:
  void edge() {
    model_.clk_i = 1;
    model_.eval();
    model_.clk_i = 0;
    model_.eval();
  }
  void begin() {
    model_.begin_i = 1, model_.fire_i = 0;
    edge();
    model_.begin_i = 0;
  }
  void offer(const uint8_t* beat, bool fire) {
    std::memcpy(&model_.beat_data_i, beat, static_cast<size_t>(shape_.axi_bytes));
    model_.fire_i = fire;
    model_.eval();
  }
  bool one_entry() {
    std::vector<uint8_t> entry(static_cast<size_t>(shape_.bytes()));
    for (uint8_t& byte : entry) byte = static_cast<uint8_t>(random_());
    const std::vector<uint8_t> weights = unpacked(entry, shape_);
    bool equal = true;
    for (int at = 0; at < shape_.bytes(); at += shape_.axi_bytes) {
      while (random_() % 3 == 0) {  // a beat that is not taken, and may be another one
        offer(&entry[random_() % (entry.size() / static_cast<size_t>(shape_.axi_bytes)) *
                     static_cast<size_t>(shape_.axi_bytes)],
              false);
        edge();
      }
      offer(&entry[static_cast<size_t>(at)], true);
      const bool header = at < shape_.header();
      equal = equal && model_.header_o == header &&
              (header || std::memcmp(&model_.groups_o, &weights[static_cast<size_t>(2 * (at - shape_.header()))],
                                     static_cast<size_t>(2 * shape_.axi_bytes)) == 0);
      edge();
    }
    return equal;
  }

  Shape shape_;
  std::mt19937_64 random_;
  VerilatedContext context_;
  Model model_;
};

/// What the assertions say in any shape, or "" and whether the loops agree.
std::pair<std::string, bool> try_shapes(int mutant) {
  rtl_mutant = mutant;
  bool equal = true;
  std::string said;
  const auto shape = [&]<typename Model>(std::unique_ptr<Bench<Model>> bench) {
    try {
      equal = bench->run() && equal;
    } catch (const Error& error) {
      said += std::string(error.what()) + "; ";
    }
  };
  shape(std::make_unique<Bench<Vunpack_8x4x4>>(Shape{8, 4, 4}, 1));
  shape(std::make_unique<Bench<Vunpack_8x8x8>>(Shape{8, 8, 8}, 2));
  shape(std::make_unique<Bench<Vunpack_8x16x16>>(Shape{8, 16, 16}, 3));
  shape(std::make_unique<Bench<Vunpack_4x32x8>>(Shape{4, 32, 8}, 4));
  shape(std::make_unique<Bench<Vunpack_4x8x32>>(Shape{4, 8, 32}, 5));
  shape(std::make_unique<Bench<Vunpack_16x8x16>>(Shape{16, 8, 16}, 6));
  rtl_mutant = 0;
  return {said, equal};
}

TEST(Unpack, EqualsPlainLoops) {
  const auto [said, equal] = try_shapes(0);
  EXPECT_EQ(said, "");
  EXPECT_TRUE(equal);
}

TEST(Unpack, EveryMistakeIsNoticed) {
  for (size_t i = 0; i < kMutants.size(); ++i) {
    const std::string said = try_shapes(kFirstMutant + static_cast<int>(i)).first;
    EXPECT_NE(said.find(kMutants[i].assertion), std::string::npos) << kMutants[i].line << ": " << said;
  }
}

}  // namespace
}  // namespace tessera::testing
