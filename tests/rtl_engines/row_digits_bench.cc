// SPDX-License-Identifier: Apache-2.0
// tsr_row_digits against the moments of base/row_arithmetic.h: rows one behind another, whose slots last as long as
// they may or longer. Sums of nothing, the largest ones, sums that nearly cancel, and random ones, with all shifts,
// offsets and widths of epsilon. So V is 0, negative, small and large.
#include <cstdint>
#include <cstdio>
#include <optional>
#include <random>

#include "Vtsr_row_digits.h"
#include "base/row_arithmetic.h"

double sc_time_stamp() { return 0; }

namespace {

struct Sums {
  int64_t sum = 0, squares = 0;
};

constexpr int kSlot = 22;
constexpr int64_t kSums = int64_t{1} << 21, kSquares = int64_t{1} << 28;

class Rows {
 public:
  Rows() {
    dut_.rst_ni = 0;
    tick();
    dut_.rst_ni = 1;
  }

  void begin() {
    form_ = {.length = 1 + number(4096), .shift = number(17), .offset = number(64) - 32};
    form_.epsilon = number(4) == 0 ? 0 : (random_() >> 16) >> number(48);
    dut_.length_i = static_cast<uint16_t>(form_.length);
    dut_.shift_i = static_cast<uint8_t>(form_.shift);
    dut_.offset_i = static_cast<uint8_t>(form_.offset & 63);
    dut_.epsilon_i = form_.epsilon;
    before_.reset();
  }

  /// A slot: the row before it ends in it, if there is one. Whether that row's results are right.
  bool slot() {
    const Sums sums = draw();
    dut_.start_i = 1;
    tick();
    dut_.start_i = 0;
    dut_.sum_i = static_cast<uint32_t>(sums.sum & (kSums - 1));
    dut_.squares_i = static_cast<uint32_t>(sums.squares);
    for (int cycle = 2; cycle < kSlot; ++cycle) tick();
    for (int more = number(3); more > 0; --more) tick();
    const bool right = dut_.done_o && (!before_ || is(tessera::rows::moments(before_->sum, before_->squares, form_)));
    dut_.turn_i = 1;
    tick();
    dut_.turn_i = 0;
    before_ = sums;
    return right;
  }

 private:
  int number(int below) { return static_cast<int>(random_() % static_cast<uint64_t>(below)); }
  void tick() {
    dut_.clk_i = 0;
    dut_.eval();
    dut_.clk_i = 1;
    dut_.eval();
  }

  Sums draw() {
    const int64_t sum = static_cast<int64_t>(random_() % kSums) - kSums / 2;
    switch (number(6)) {
      case 0: return {0, 0};
      case 1: return {-kSums / 2, kSquares - 1};
      case 2: return {number(64) - 32, number(64)};
      case 3: return {sum, sum * sum / form_.length % kSquares};
      case 4: return {kSums / 2 - 1, static_cast<int64_t>(random_() % kSquares)};
      default: return {sum, static_cast<int64_t>(random_() % kSquares)};
    }
  }

  bool is(const tessera::rows::RowScalars& wanted) const {
    const int32_t sum = static_cast<int32_t>(dut_.sum_o << 11) >> 11;
    return sum == wanted[0] && static_cast<int32_t>(dut_.root_o) == wanted[1] && dut_.exponent_o == wanted[2];
  }

  Vtsr_row_digits dut_;
  std::mt19937_64 random_{5};
  tessera::rows::MomentsForm form_;
  std::optional<Sums> before_;
};

}  // namespace

int main() {
  Rows rows;
  constexpr int kInstructions = 4000, kRows = 50;
  int wrong = 0;
  for (int instruction = 0; instruction < kInstructions; ++instruction) {
    rows.begin();
    for (int row = 0; row < kRows; ++row) wrong += rows.slot() ? 0 : 1;
  }
  std::printf("row_digits: %d rows, %d wrong\n", kInstructions * (kRows - 1), wrong);
  return wrong == 0 ? 0 : 1;
}
