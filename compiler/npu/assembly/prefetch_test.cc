// SPDX-License-Identifier: Apache-2.0
// Where fetches of weights stand in a stream, on steps made by hand: the products of a step read one place of WGT.
#include <gtest/gtest.h>

#include <atomic>

#include "compiler/emit/predict.h"
#include "compiler/emit/synchronise.h"
#include "compiler/npu/lowering/emitter.h"

namespace tessera::npu {
namespace {

constexpr int64_t kEntries = 32;  // of a place: 1,024 cycles of npu256's bus
constexpr uint16_t kInputCycles = 900;

class Fetches : public testing::Test {
 protected:
  struct Fetch {
    int64_t place, places = 1;
  };
  /// Begins a step whose products take 1,600 cycles for each of the places. Their input has two slots, so that LOAD is
  /// at most two steps ahead.
  void step(const std::vector<int64_t>& places, const std::vector<Fetch>& fetches = {}) {
    emitter_.begin_step();
    for (const auto& [place, count] : fetches) {
      emitter_.fetch_weights(place * kEntries, count * kEntries, fetched_ * kEntries * config_.wgt_entry_bytes());
      fetched_ += count;
    }
    isa::Load input;
    input.extent = {1, 1, 1, 1};
    input.length = kInputCycles * 8;
    input.sp_addr = steps_++ % 2 * input.length;
    input.space = isa::Space::kInp;
    emitter_.push(input, Stream::kInput);
    for (const int64_t place : places) {
      isa::Gemm gemm;
      gemm.inp_addr = static_cast<uint16_t>(input.sp_addr / config_.inp_entry_bytes());
      gemm.extent = {1, 1, 1, 50, 1, static_cast<uint16_t>(kEntries)};
      gemm.reduce = 1;
      gemm.wgt_addr = static_cast<uint16_t>(place * kEntries);
      gemm.wgt_stride = {0, 0, 0, 0, 0, 1};
      gemm.acc_stride = {0, 0, 0, 1, 0};
      emitter_.push(gemm);
    }
  }

  Emitter::Judge judge() {
    return [&](std::span<const emit::Work* const> works, std::span<const uint32_t> tags, size_t count) {
      ++asked_;
      return emit::predict(emit::in_order(works, tags, config_), count, config_);
    };
  }

  /// What the stream does in order: products of a place, or a fetch into it ("+").
  std::string order() {
    emitter_.assemble(true, judge());
    std::string result;
    for (const isa::Instruction& instruction : emitter_.instructions) {
      const auto* load = std::get_if<isa::Load>(&instruction);
      if (load != nullptr && load->space == isa::Space::kInp) continue;
      const int64_t entry =
          load != nullptr ? load->sp_addr / config_.wgt_entry_bytes() : std::get<isa::Gemm>(instruction).wgt_addr;
      result += (load != nullptr ? "+" : "") + std::to_string(entry / kEntries) + " ";
    }
    return result;
  }

  const isa::MachineConfig config_ = isa::find_config("npu256");
  const Options options_;
  Emitter emitter_{config_, options_};
  int64_t fetched_ = 0;
  uint32_t steps_ = 0;
  std::atomic<int> asked_ = 0;
};

TEST_F(Fetches, WhatIsFreeForLongMakesWayForWhatIsNot) {
  step({0}, {{0}});
  step({1}, {{1}});
  for (int i = 0; i < 3; ++i) step({0});
  step({2, 1}, {{2}, {1}});
  // Behind a product there is time for less than one fetch. Place 1 has been read by the second product; place 2 never
  // was, so that it can be filled first, and both are filled before the fifth product.
  const std::string order = this->order();
  EXPECT_LT(order.find("+2"), order.rfind("+1")) << order;
  EXPECT_LT(order.rfind("+1"), order.rfind(" 0 ")) << order;
}

TEST_F(Fetches, NothingComesEarlierThanOthersMakeIt) {
  step({0}, {{0}});
  for (int i = 0; i < 8; ++i) step({0});
  step({1}, {{1}});
  const std::string order = this->order();
  EXPECT_EQ(order.substr(0, 17), "+0 0 0 0 0 0 0 0 ") << order;
}

TEST_F(Fetches, PartsOfAPlaceComeWhenEachIsFree) {
  // One fetch for two places, of which the second one is read until shortly before.
  step({0}, {{0}});
  step({1}, {{1}});
  for (int i = 0; i < 3; ++i) step({1});
  step({0, 1}, {{0, 2}});
  const std::string order = this->order();
  EXPECT_NE(order.find("1 +0 1 "), std::string::npos) << order;
}

TEST_F(Fetches, AGlanceTakesTwoWaysAlone) {
  step({0}, {{0}});
  step({1}, {{1}});
  for (int i = 0; i < 3; ++i) step({0});
  step({2, 1}, {{2}, {1}});
  const int64_t glance = emitter_.glance(true, judge());
  EXPECT_EQ(asked_.exchange(0), 2);
  EXPECT_LE(emitter_.assemble(true, judge()), glance);
  EXPECT_GT(asked_, 2);
}

}  // namespace
}  // namespace tessera::npu
