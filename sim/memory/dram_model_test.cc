// SPDX-License-Identifier: Apache-2.0
// The memory's time and data by hand-counted cycles: latency, one beat a cycle shared by both directions, strobes,
// errors, and that pressure changes time only.
#include "sim/memory/dram_model.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace tessera::sim {
namespace {

constexpr uint64_t kBase = 0x1000;

struct Bench {
  explicit Bench(DramOptions options) : model(options, kBase, bytes.data(), bytes.size()) {
    for (size_t n = 0; n < bytes.size(); ++n) bytes[n] = static_cast<uint8_t>(n);
  }
  std::vector<uint8_t> bytes = std::vector<uint8_t>(256);
  DramModel model;
};

DramInputs read_request(uint64_t address, int beats) {
  DramInputs in;
  in.ar_valid = true;
  in.ar_address = address;
  in.ar_beats = beats;
  in.r_ready = true;
  return in;
}

TEST(DramModel, ReadLatencyAndOneBeatACycle) {
  Bench bench({.latency_cycles = 10});
  ASSERT_TRUE(bench.model.cycle(read_request(kBase + 16, 3)).ar_ready);  // cycle 0
  DramInputs idle;
  idle.r_ready = true;
  for (int cycle = 1; cycle < 10; ++cycle) EXPECT_FALSE(bench.model.cycle(idle).r_valid) << cycle;
  for (int beat = 0; beat < 3; ++beat) {
    const DramOutputs& out = bench.model.cycle(idle);
    EXPECT_TRUE(out.r_valid);
    EXPECT_FALSE(out.r_error);
    EXPECT_EQ(out.r_last, beat == 2);
    EXPECT_EQ(out.r_data[0], 16 + 8 * beat);
    EXPECT_EQ(out.r_data[7], 23 + 8 * beat);
  }
  EXPECT_FALSE(bench.model.cycle(idle).r_valid);
  EXPECT_TRUE(bench.model.idle());
}

TEST(DramModel, WritesUseStrobesAndRespondAfterLatency) {
  Bench bench({.latency_cycles = 5});
  const uint8_t data[8] = {200, 201, 202, 203, 204, 205, 206, 207};
  DramInputs in;
  in.aw_valid = true;
  in.aw_address = kBase + 8;
  in.b_ready = true;
  bench.model.cycle(in);  // cycle 0
  in.aw_valid = false;
  in.w_valid = true;
  in.w_data = data;
  in.w_strobe = 0x81;
  EXPECT_TRUE(bench.model.cycle(in).w_ready);  // cycle 1
  in.w_valid = false;
  for (int cycle = 2; cycle < 6; ++cycle) EXPECT_FALSE(bench.model.cycle(in).b_valid) << cycle;
  const DramOutputs& out = bench.model.cycle(in);
  EXPECT_TRUE(out.b_valid);
  EXPECT_FALSE(out.b_error);
  EXPECT_EQ(bench.bytes[8], 200);
  EXPECT_EQ(bench.bytes[9], 9);
  EXPECT_EQ(bench.bytes[15], 207);
}

TEST(DramModel, ReadsAndWritesShareTheBus) {
  Bench bench({.latency_cycles = 1});
  const uint8_t data[8] = {};
  DramInputs in = read_request(kBase, 8);
  in.aw_valid = true;
  in.aw_address = kBase + 64;
  in.aw_beats = 8;
  bench.model.cycle(in);
  in = {};
  in.r_ready = true;
  in.w_valid = true;
  in.w_data = data;
  for (int cycle = 0; cycle < 16; ++cycle) {
    const DramOutputs& out = bench.model.cycle(in);
    EXPECT_NE(out.r_valid, out.w_ready) << cycle;
  }
  EXPECT_EQ(bench.model.read_beats(), 8U);
  EXPECT_EQ(bench.model.write_beats(), 8U);
}

TEST(DramModel, ErrorsByRangeAndOutside) {
  Bench bench({.latency_cycles = 1});
  bench.model.fail_reads(kBase + 8, kBase + 8);
  DramInputs idle;
  idle.r_ready = true;
  bench.model.cycle(read_request(kBase, 2));
  EXPECT_FALSE(bench.model.cycle(idle).r_error);
  EXPECT_TRUE(bench.model.cycle(idle).r_error);
  bench.model.cycle(read_request(kBase + 256, 1));
  EXPECT_TRUE(bench.model.cycle(idle).r_error);
}

TEST(DramModel, PressureKeepsOffersAndData) {
  Bench bench({.latency_cycles = 3, .pressure_percent = 60, .seed = 7});
  DramInputs request = read_request(kBase, 16);
  request.r_ready = false;
  while (!bench.model.cycle(request).ar_ready) {
  }
  DramInputs in;
  int next = 0;
  bool offered = false;
  for (int cycle = 0; next < 16; ++cycle) {
    ASSERT_LT(cycle, 1000);
    in.r_ready = cycle % 3 == 0;
    const DramOutputs& out = bench.model.cycle(in);
    if (offered) {
      EXPECT_TRUE(out.r_valid);
    }
    offered = out.r_valid && !in.r_ready;
    if (out.r_valid && in.r_ready) {
      EXPECT_EQ(out.r_data[0], 8 * next++);
    }
  }
}

TEST(DramModel, BandwidthSpacesBeats) {
  // 5 of 8 bytes a cycle: 100 beats in a row take 160 cycles; the idle cycles before them save nothing.
  Bench bench({.latency_cycles = 40, .bandwidth_bytes = 5});
  DramInputs in = read_request(kBase, 100);
  in.r_ready = true;
  int64_t first = -1, last = -1;
  for (int64_t cycle = 0; bench.model.read_beats() < 100; ++cycle) {
    ASSERT_LT(cycle, 1000);
    const DramOutputs& out = bench.model.cycle(in);
    in.ar_valid = false;
    if (!out.r_valid) continue;
    if (first < 0) first = cycle;
    last = cycle;
  }
  EXPECT_EQ(first, 40);
  EXPECT_EQ(last - first + 1, 100 * 8 / 5 - 1);  // the budget begins full: the first beat waits for nothing
}

TEST(DramModel, RefusesBadOptions) {
  uint8_t byte = 0;
  EXPECT_THROW(DramModel({.bandwidth_bytes = 9}, 0, &byte, 1), Error);
  EXPECT_THROW(DramModel({.beat_bytes = 12}, 0, &byte, 1), Error);
  EXPECT_THROW(DramModel({.latency_cycles = 0}, 0, &byte, 1), Error);
  EXPECT_THROW(DramModel({.pressure_percent = 100}, 0, &byte, 1), Error);
}

}  // namespace
}  // namespace tessera::sim
