// SPDX-License-Identifier: Apache-2.0
// Each static rule broken alone, address bounds against enumeration of the nest, and the wait rule.
#include "isa/verify/verify.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "isa/assembler.h"
#include "isa/count.h"
#include "isa/random_instruction.h"

namespace tessera::isa {
namespace {

Instruction one(const std::string& text) { return assemble(text).at(0); }

std::string operands(const std::string& text, const std::string& config = "npu256") {
  const auto violation = check_operands(one(text), find_config(config));
  if (!violation) return "ok";
  EXPECT_EQ(violation->fault, Fault::kIllegalOperand);
  return violation->message;
}

TEST(CheckOperands, FinishAndFence) {
  EXPECT_EQ(operands("finish wait=gemm:1"), "ok");
  EXPECT_EQ(operands("finish signal"), "finish cannot signal");
  EXPECT_EQ(operands("fence engine=alu signal"), "ok");
}

TEST(CheckOperands, Transfers) {
  EXPECT_EQ(operands("load length=1 extent=4 pad_before=2 pad_after=2"), "ok");
  EXPECT_EQ(operands("load length=1 extent=4 pad_before=3 pad_after=2"),
            "pad_before + pad_after of loop 0 exceed its extent");
  EXPECT_EQ(operands("load length=1 extent=4,1 pad_after=0,2"), "pad_before + pad_after of loop 1 exceed its extent");
  EXPECT_EQ(operands("load"), "length is 0");
  EXPECT_EQ(operands("load length=1 extent=1,1,0"), "extent[2] is 0");
  EXPECT_EQ(operands("load length=1 fill pad_value=3 sp_stride=1"), "ok");
  EXPECT_EQ(operands("load length=1 fill pad_before=1"), "a fill has no padding");
  EXPECT_EQ(operands("load length=1 fill base=1"), "a fill has no DRAM address");
  EXPECT_EQ(operands("load length=1 fill dram_offset=1"), "a fill has no DRAM address");
  EXPECT_EQ(operands("load length=1 fill dram_stride=0,0,0,1"), "a fill has no DRAM address");
  EXPECT_EQ(operands("store length=1 space=out"), "ok");
  EXPECT_EQ(operands("store length=1 space=acc"), "ok");
  EXPECT_EQ(operands("store length=1 space=inp"), "a store reads out or acc");
  EXPECT_EQ(operands("store space=out"), "length is 0");
  EXPECT_EQ(operands("store length=1 space=out extent=0"), "extent[0] is 0");
}

TEST(CheckOperands, FencesBetweenCores) {
  MachineConfig config = find_config("npu64");
  const auto message = [&](const Fence& i) {
    const auto violation = check_operands(i, config);
    return violation ? violation->message : std::string();
  };
  const Fence publish{.engine = Engine::kStore, .publish = true};
  Fence await{.engine = Engine::kLoad, .await = true, .await_core = 1, .await_count = 3};
  EXPECT_EQ(message(publish), "publish or await on a machine of one core");
  EXPECT_EQ(message(await), "publish or await on a machine of one core");
  config.cores = 2;
  EXPECT_EQ(message(publish), "");
  EXPECT_EQ(message(await), "");
  EXPECT_EQ(message(Fence{.engine = Engine::kLoad, .publish = true}), "publish is for store");
  await.engine = Engine::kGemm;
  EXPECT_EQ(message(await), "await is for load and store");
  await = {.engine = Engine::kStore, .await = true, .await_core = 2};
  EXPECT_EQ(message(await), "await_core = 2 is beyond 2 cores");
  EXPECT_EQ(message(Fence{.engine = Engine::kStore, .await_count = 1}), "await_core or await_count without await");
}

TEST(CheckOperands, PackedWeights) {
  MachineConfig config = find_config("npu256");
  const auto message = [&](const std::string& text) {
    const std::string space = text.find("space") == std::string::npos ? "space=wgt " : "";
    const auto violation = check_operands(one("load packed " + space + text), config);
    return violation ? violation->message : "ok";
  };
  const std::string whole = "length=136 ";
  EXPECT_EQ(message(whole), "packed: the machine has packed_weights = 0");
  config.packed_weights = 1;
  EXPECT_EQ(message(whole + "sp_addr=512 sp_stride=-256,256 dram_offset=8 dram_stride=-8,136 extent=2,2"), "ok");
  EXPECT_EQ(message(whole + "space=inp"), "packed with space inp, not wgt");
  EXPECT_EQ(message(whole + "fill"), "packed with fill");
  EXPECT_EQ(message(whole + "pad_value=1"), "packed with padding");
  EXPECT_EQ(message(whole + "pad_before=1"), "packed with padding");
  EXPECT_EQ(message(whole + "pad_after=0,1"), "packed with padding");
  EXPECT_EQ(message("length=128"), "packed: length is 128, a packed entry has 136 bytes");
  EXPECT_EQ(message(whole + "sp_addr=128"), "packed: sp_addr is no multiple of a WGT entry");
  EXPECT_EQ(message(whole + "sp_stride=0,0,128"), "packed: sp_stride[2] is no multiple of a WGT entry");
  EXPECT_EQ(message(whole + "dram_offset=4"), "packed: dram_offset is no multiple of a beat");
  EXPECT_EQ(message(whole + "dram_stride=0,0,0,140"), "packed: dram_stride[3] is no multiple of a beat");
  config.axi_bytes = 4;  // the header is as many bytes as the scales
  EXPECT_EQ(message(whole), "ok");
  config.axi_bytes = 64;
  EXPECT_EQ(message("length=192"), "ok");
}

TEST(CheckOperands, RowsOfARunTimeLength) {
  MachineConfig config = find_config("npu256");
  config.row_lanes = 4;
  const auto message = [&](const std::string& text) {
    const auto violation = check_operands(one(text), config);
    return violation ? violation->message : "ok";
  };
  EXPECT_EQ(message("row_reduce src=out tail=1 limited"), "ok");
  EXPECT_EQ(message("row_reduce src=out operation=sum_exp tail=1 limited"), "ok");
  EXPECT_EQ(message("row_reduce src=out operation=moments tail=1 length=1 limited"), "limited is for max and sum_exp");
  EXPECT_EQ(message("row_map src=out dst=out limited"), "ok");
  EXPECT_EQ(message("row_map src=acc dst=out operation=sum_softmax tail=1 param_addr=3"), "ok");
  EXPECT_EQ(message("row_map src=acc dst=out operation=sum_softmax tail=1 src_unsigned"), "src_unsigned is for bytes");
  EXPECT_EQ(message("row_map src=acc dst=out"), "only sum_softmax reads rows from acc");
  EXPECT_EQ(message("row_reduce src=acc tail=1"), "row_reduce does not read rows from acc");
  EXPECT_EQ(message("row_map src=out dst=out operation=normalise limited"), "table and limited are for softmax");
}

TEST(CheckOperands, SumsBesideResults) {
  MachineConfig config = find_config("npu256");
  config.row_lanes = 4;
  const auto message = [&](const std::string& text) {
    const auto violation = check_operands(one("row_map src=out " + text), config);
    return violation ? violation->message : "ok";
  };
  EXPECT_EQ(message("dst=inp operation=sum_softmax tail=16 sum_table=8 limited"), "ok");
  EXPECT_EQ(message("dst=out operation=sum_softmax tail=16"), "sum_softmax writes another memory than it reads");
  EXPECT_EQ(message("dst=inp operation=sum_softmax tail=17"), "tail is not in 1 to block_out");
  EXPECT_EQ(message("dst=inp operation=sum_softmax"), "tail is not in 1 to block_out");
  EXPECT_EQ(message("dst=inp operation=sum_softmax tail=1 zero=1"),
            "param_addr, param_loop and zero are for normalise");
  EXPECT_EQ(message("dst=inp operation=softmax tail=1"), "tail and sum_table are for sum_softmax");
  EXPECT_EQ(message("dst=inp operation=normalise sum_table=1"), "tail and sum_table are for sum_softmax");
}

TEST(CheckOperands, Gemm) {
  EXPECT_EQ(operands("gemm reduce=6 inp_zero=255 inp_unsigned wgt_zero=-128"), "ok");
  EXPECT_EQ(operands("gemm reduce=7"), "reduce exceeds 6");
  EXPECT_EQ(operands("gemm inp_zero=128"), "inp_zero = 128 is no int8");
  EXPECT_EQ(operands("gemm inp_zero=-1 inp_unsigned"), "inp_zero = -1 is no uint8");
  EXPECT_EQ(operands("gemm wgt_zero=-129"), "wgt_zero = -129 is no int8");
  EXPECT_EQ(operands("gemm reduce=2 acc_stride=0,0,0,1"), "ok");
  EXPECT_EQ(operands("gemm reduce=2 acc_stride=0,0,0,0,1"), "acc_stride[4] is not 0 in a reduction loop");
  EXPECT_EQ(operands("gemm lane=1"), "lane is for depthwise");
  EXPECT_EQ(operands("gemm mode=depthwise"), "depthwise needs a tap loop (reduce = 0)");
  EXPECT_EQ(operands("gemm mode=depthwise reduce=2 extent=1,1,1,1,3,3"), "ok");
  EXPECT_EQ(operands("gemm mode=depthwise reduce=2 extent=1,1,1,1,1,10"), "depthwise has 10 taps, an entry holds 9");
  EXPECT_EQ(operands("gemm mode=depthwise reduce=1 extent=1,1,1,1,9,3"), "ok");
  EXPECT_EQ(operands("gemm mode=depthwise reduce=2 extent=1,1,1,1,3,3", "npu64"),
            "depthwise has 9 taps, an entry holds 6");
  EXPECT_EQ(operands("gemm mode=depthwise reduce=2 extent=1,1,1,1,4,4", "npu1024"), "ok");
  EXPECT_EQ(operands("gemm mode=depthwise reduce=1 wgt_unsigned"), "depthwise weights are int8 without a zero point");
  EXPECT_EQ(operands("gemm mode=depthwise reduce=1 wgt_zero=1"), "depthwise weights are int8 without a zero point");
  EXPECT_EQ(operands("gemm mode=depthwise reduce=3 wgt_stride=0,0,0,1"), "ok");
  EXPECT_EQ(operands("gemm mode=depthwise reduce=3 wgt_stride=0,0,0,0,1"), "wgt_stride[4] is not 0 in a tap loop");
  EXPECT_EQ(operands("gemm mode=depthwise reduce=1 lane=1"), "lane is beyond the block");
}

TEST(CheckOperands, LanesOfUnequalBlocks) {
  MachineConfig config = find_config("npu64");
  config.block_out = 32;
  EXPECT_EQ(check_operands(one("gemm mode=depthwise reduce=1 lane=3"), config), std::nullopt);
  EXPECT_EQ(check_operands(one("gemm mode=depthwise reduce=1 lane=4"), config)->message, "lane is beyond the block");
  EXPECT_EQ(check_operands(one("alu src=inp"), config)->message, "the ALU reaches inp only when block_in = block_out");
  EXPECT_EQ(check_operands(one("alu src=out dst=inp"), config)->message,
            "the ALU reaches inp only when block_in = block_out");
}

TEST(CheckOperands, Alu) {
  EXPECT_EQ(operands("alu dst=out convert low=-128 high=127 param_loop=2 extent=1,1,4"), "ok");
  EXPECT_EQ(operands("alu reduce=7"), "reduce exceeds 6");
  EXPECT_EQ(operands("alu reduce=1 dst_stride=0,0,0,0,0,1"), "dst_stride[5] is not 0 in a reduction loop");
  EXPECT_EQ(operands("alu dst=out second_op=add reduce=1 second_stride=0,0,0,0,0,1"),
            "second_stride[5] is not 0 in a reduction loop");
  EXPECT_EQ(operands("alu reduce_op=max"), "reduce_op without a reduction");
  EXPECT_EQ(operands("alu convert param_loop=6"), "param_loop is no outer loop");
  EXPECT_EQ(operands("alu convert param_loop=4 reduce=2"), "param_loop is no outer loop");
  EXPECT_EQ(operands("alu src_unsigned"), "src_unsigned with src acc");
  EXPECT_EQ(operands("alu src=out src_unsigned"), "ok");
  EXPECT_EQ(operands("alu table_enable"), "dst acc takes no table and no second operation");
  EXPECT_EQ(operands("alu second_op=mul"), "dst acc takes no table and no second operation");
  EXPECT_EQ(operands("alu second_table_enable"), "dst acc takes no table and no second operation");
  EXPECT_EQ(operands("alu dst=out low=1"), "low exceeds high");
  EXPECT_EQ(operands("alu param_addr=1"), "param_addr or param_loop without convert");
  EXPECT_EQ(operands("alu param_loop=0"), "param_addr or param_loop without convert");
  EXPECT_EQ(operands("alu high=1"), "clamp or zero point with dst acc and no convert");
  EXPECT_EQ(operands("alu out_zero=1"), "clamp or zero point with dst acc and no convert");
  EXPECT_EQ(operands("alu convert high=1 out_zero=1"), "ok");
  EXPECT_EQ(operands("alu dst=out table=1"), "table without table_enable");
  EXPECT_EQ(operands("alu dst=out table_unsigned"), "table without table_enable");
  EXPECT_EQ(operands("alu dst=out second_table=1"), "second_table without second_table_enable");
  EXPECT_EQ(operands("alu dst=out second_table_enable"), "second_table_enable without second_op");
  for (const char* field : {"second_addr=1", "second_stride=1", "second_unsigned", "second_swap", "constant_addr=1"}) {
    EXPECT_EQ(operands(std::string("alu dst=out ") + field), "fields of the second operation without second_op");
    EXPECT_EQ(operands(std::string("alu dst=out second_op=add ") + field), "ok");
  }
}

std::string ranges(const std::string& text, const std::string& config = "npu256") {
  const auto violation = check_ranges(one(text), find_config(config));
  if (!violation) return "ok";
  EXPECT_EQ(violation->fault, Fault::kScratchpadRange);
  return violation->message;
}

TEST(CheckRanges, LimitsOfEachMemory) {
  EXPECT_EQ(ranges("load space=inp length=32768"), "ok");
  EXPECT_EQ(ranges("load space=inp length=32768 sp_addr=1"), "sp_addr: 1..32768 leaves inp (0..32767)");
  EXPECT_EQ(ranges("load space=inp length=1 extent=2 sp_stride=-1"), "sp_addr: -1..0 leaves inp (0..32767)");
  EXPECT_EQ(ranges("load space=table length=4096"), "ok");
  EXPECT_EQ(ranges("load space=table length=4097"), "sp_addr: 0..4096 leaves table (0..4095)");
  EXPECT_EQ(ranges("store space=out length=1 sp_addr=32768"), "sp_addr: 32768..32768 leaves out (0..32767)");
  EXPECT_EQ(ranges("gemm inp_addr=2048"), "inp_addr: 2048..2048 leaves inp (0..2047)");
  EXPECT_EQ(ranges("gemm wgt_addr=1000 extent=1,1,1,1,1,4 wgt_stride=0,0,0,0,0,8"),
            "wgt_addr: 1000..1024 leaves wgt (0..1023)");
  EXPECT_EQ(ranges("gemm acc_addr=2047 extent=4 acc_stride=-683"), "acc_addr: -2..2047 leaves acc (0..2047)");
  EXPECT_EQ(ranges("alu src=inp src_addr=2047"), "ok");
  EXPECT_EQ(ranges("alu dst=out dst_addr=2048"), "dst_addr: 2048..2048 leaves out (0..2047)");
  EXPECT_EQ(ranges("alu dst=out second_op=add second_addr=2048"), "second_addr: 2048..2048 leaves out (0..2047)");
  EXPECT_EQ(ranges("alu dst=out second_op=add constant_addr=128"), "constant_addr: 128..128 leaves param (0..127)");
  EXPECT_EQ(ranges("alu convert param_addr=120 param_loop=3 extent=1,1,1,9"),
            "param_addr: 120..128 leaves param (0..127)");
  EXPECT_EQ(ranges("alu convert param_addr=127 extent=1,1,1,9"), "ok");
  MachineConfig config = find_config("npu256");
  config.table_count = 2;
  EXPECT_EQ(check_ranges(one("alu dst=out table_enable table=2"), config)->message, "table: 2..2 leaves table (0..1)");
  EXPECT_EQ(check_ranges(one("alu dst=out second_op=add second_table_enable second_table=3"), config)->message,
            "second_table: 3..3 leaves table (0..1)");
}

TEST(CheckRanges, BoundsAreThoseOfTheEnumeratedNest) {
  std::mt19937_64 random(5);
  const MachineConfig config = find_config("npu256");
  for (int trial = 0; trial < 300; ++trial) {
    Load load{.space = Space::kWgt, .base = 2, .length = static_cast<uint16_t>(1 + random() % 50)};
    load.dram_offset = 1000000 + random() % 1000;
    load.sp_addr = static_cast<uint32_t>(random() % 1000);
    for (int k = 0; k < 4; ++k) {
      load.extent[k] = static_cast<uint16_t>(1 + random() % 4);
      load.sp_stride[k] = static_cast<int32_t>(random() % 200) - 100;
      load.dram_stride[k] = static_cast<int32_t>(random() % 2000) - 1000;
    }
    for (int k = 0; k < 2; ++k) {
      load.pad_before[k] = static_cast<uint16_t>(random() % (load.extent[k] + 1));
      load.pad_after[k] = static_cast<uint16_t>(random() % (load.extent[k] + 1 - load.pad_before[k]));
    }
    int64_t sp_low = INT64_MAX, sp_high = INT64_MIN, dram_low = INT64_MAX, dram_high = INT64_MIN;
    bool reads = false;
    for (int a = 0; a < load.extent[0]; ++a) {
      for (int b = 0; b < load.extent[1]; ++b) {
        for (int c = 0; c < load.extent[2]; ++c) {
          for (int d = 0; d < load.extent[3]; ++d) {
            const int64_t sp = load.sp_addr + int64_t{a} * load.sp_stride[0] + b * load.sp_stride[1] +
                               c * load.sp_stride[2] + d * load.sp_stride[3];
            sp_low = std::min(sp_low, sp);
            sp_high = std::max(sp_high, sp + load.length - 1);
            if (a < load.pad_before[0] || a >= load.extent[0] - load.pad_after[0] || b < load.pad_before[1] ||
                b >= load.extent[1] - load.pad_after[1]) {
              continue;
            }
            const int64_t dram = static_cast<int64_t>(load.dram_offset) +
                                 int64_t{a - load.pad_before[0]} * load.dram_stride[0] +
                                 int64_t{b - load.pad_before[1]} * load.dram_stride[1] +
                                 int64_t{c} * load.dram_stride[2] + int64_t{d} * load.dram_stride[3];
            reads = true;
            dram_low = std::min(dram_low, dram);
            dram_high = std::max(dram_high, dram + load.length - 1);
          }
        }
      }
    }
    const Operand sp = effects(load, config).operands[0];
    EXPECT_EQ(sp.lowest, sp_low);
    EXPECT_EQ(sp.highest, sp_high);
    EXPECT_TRUE(sp.write);
    const auto dram = dram_range(load);
    ASSERT_EQ(dram.has_value(), reads);
    if (reads) {
      EXPECT_EQ(dram->base, 2);
      EXPECT_EQ(dram->lowest, dram_low);
      EXPECT_EQ(dram->highest, dram_high);
    }
  }
  EXPECT_FALSE(dram_range(Load{.fill = true, .length = 4}));
  EXPECT_FALSE(dram_range(Gemm{}));
}

std::string program(const std::string& text) {
  try {
    check_program(assemble(text), find_config("npu256"));
    return "ok";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidProgram);
    return error.what();
  }
}

TEST(CheckProgram, WaitRule) {
  EXPECT_EQ(program("load length=16 signal\ngemm wait=load:1 signal\nalu wait=gemm:1\nfinish wait=gemm:1"), "ok");
  EXPECT_EQ(program("gemm wait=load:1\nload length=16 signal\nfinish"),
            "instruction 0 (gemm): condition 0 (load:1) needs instruction 1, which stands later: the stream must be in "
            "an order "
            "that could run one by one");
  EXPECT_EQ(program("load length=16 signal\ngemm wait=-,load:2\nfinish"),
            "instruction 1 (gemm): condition 1 (load:2) never holds: the engine signals 1 times in the whole program");
  EXPECT_EQ(program("gemm wait=gemm:1 signal\nfinish").substr(0, 50),
            "instruction 0 (gemm): condition 0 (gemm:1) needs i");
  EXPECT_EQ(program("gemm wait=!load:9\nfinish"), "ok");
}

TEST(CheckProgram, Frame) {
  EXPECT_EQ(program(""), "the program is empty; it must end with finish");
  EXPECT_EQ(program("gemm"), "instruction 0 (gemm): the program does not end with finish");
  EXPECT_EQ(program("finish\ngemm\nfinish"), "instruction 0 (finish): finish must be the last instruction");
  EXPECT_EQ(program("gemm reduce=7\nfinish"), "instruction 0 (gemm): reduce exceeds 6");
  EXPECT_EQ(program("gemm\ngemm acc_addr=2048\nfinish"),
            "instruction 1 (gemm): acc_addr: 2048..2048 leaves acc (0..2047)");
}

TEST(CheckProgram, ManyIterationsReachWhatTheyReach) {
  // 2^66 iterations: a product of 64 bits would be 0, and an operand that is never reached is not checked.
  const std::string most = "extent=2048,2048,2048,2048,2048,2048";
  EXPECT_EQ(program("gemm " + most + " inp_stride=8191\nfinish").substr(0, 50),
            "instruction 0 (gemm): inp_addr: 0..16766977 leaves");
  EXPECT_EQ(program("gemm " + most + " acc_stride=8191\nfinish").substr(0, 50),
            "instruction 0 (gemm): acc_addr: 0..16766977 leaves");
  EXPECT_EQ(program("alu " + most + " src_stride=8191\nfinish").substr(0, 49),
            "instruction 0 (alu): src_addr: 0..16766977 leaves");
  EXPECT_EQ(program("gemm " + most + "\nfinish"), "ok");
  EXPECT_EQ(effects(one("gemm " + most), find_config("npu256")).iterations, kMostCount);
  EXPECT_EQ(dram_range(one("load length=65535 extent=65535,65535,65535,65535"))->bytes, kMostCount);
}

TEST(CheckProgram, TimelinesWrap) {
  // 70000 signals: counts are taken modulo 65536, and the condition on the last one holds.
  std::vector<Instruction> instructions;
  for (int k = 0; k < 70000; ++k) instructions.push_back(one("fence engine=load signal"));
  Fence last{.engine = Engine::kGemm};
  last.header.waits[0] = {true, Engine::kLoad, static_cast<uint16_t>(70000 - 65536)};
  instructions.push_back(last);
  instructions.push_back(Finish{});
  const ProgramSummary summary = check_program(instructions, find_config("npu256"));
  EXPECT_EQ(summary.instructions, 70002u);
  EXPECT_EQ(summary.signals[0], 70000u);
  EXPECT_EQ(summary.signals[1], 0u);
}

TEST(CheckProgram, OvertakenConditions) {
  // The gemm engine may still be busy with its first instruction while 40000 more signals arrive: the comparison of 16
  // bits would then turn false.
  std::vector<Instruction> instructions =
      assemble("fence engine=load signal\nfence engine=gemm\nfence engine=gemm wait=load:1");
  for (int k = 0; k < 40000; ++k) instructions.push_back(one("fence engine=load signal"));
  instructions.push_back(Finish{});
  try {
    check_program(instructions, find_config("npu256"));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()),
              "instruction 2 (fence): condition 0 (load:1) can be overtaken: the timeline may be more than 32767 "
              "signals ahead "
              "of it");
  }
  // A full queue of the waiting engine stops FETCH and so bounds how far ahead others run.
  instructions = assemble("fence engine=load signal\nfence engine=gemm wait=load:1");
  for (int k = 0; k < 40000; ++k) {
    instructions.push_back(one("fence engine=load signal"));
    if (k % 100 == 0) instructions.push_back(one("fence engine=gemm"));
  }
  instructions.push_back(Finish{});
  EXPECT_EQ(check_program(instructions, find_config("npu256")).signals[0], 40001u);
}

std::string programs(const std::vector<std::string>& texts, int queue = 4) {
  MachineConfig config = find_config("npu64");
  config.cores = 3;
  config.load_queue = config.store_queue = queue;
  std::vector<std::vector<Instruction>> assembled;
  for (const std::string& text : texts) assembled.push_back(text.empty() ? std::vector<Instruction>() : assemble(text));
  const std::vector<std::span<const Instruction>> all(assembled.begin(), assembled.end());
  try {
    check_programs(all, config);
    return "ok";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidProgram);
    return error.what();
  }
}

const char* const kPublish = "fence engine=store publish\n";

std::string await(const std::string& engine, int core, int count) {
  return "fence engine=" + engine + " await await_core=" + std::to_string(core) +
         " await_count=" + std::to_string(count) + "\n";
}

TEST(CheckPrograms, AwaitsThatComeAndThatDoNot) {
  EXPECT_EQ(programs({await("load", 1, 1) + "finish", "", "finish"}),
            "core 0: instruction 0 (fence): awaits publish 1 of core 1, which publishes 0 times in its whole program");
  EXPECT_EQ(programs({await("load", 2, 2) + "finish", "", std::string(kPublish) + kPublish + "finish"}), "ok");
  EXPECT_EQ(programs({await("load", 0, 0) + "finish"}), "ok");
  EXPECT_EQ(programs({await("load", 0, 40000) + "finish"}).substr(0, 60),
            "core 0: instruction 0 (fence): awaits publish 40000 of core ");
  EXPECT_EQ(programs({"finish", "gemm wait=load:1\nfinish"}).substr(0, 50),
            "core 1: instruction 0 (gemm): condition 0 (load:1)");
  EXPECT_EQ(programs({"finish", "finish", "finish", "finish"}), "core 3 has a program; 'npu64' has 3 cores");
  std::vector<std::string> many(1);
  for (int n = 0; n < 32767; ++n) many[0] += kPublish;
  EXPECT_EQ(programs({many[0] + "finish"}), "ok");
  EXPECT_EQ(programs({many[0] + kPublish + "finish"}).substr(0, 60),
            "core 0: instruction 32767 (fence): publishes for the 32768th");
}

TEST(CheckPrograms, ProgramsThatBlockEachOther) {
  // Each publishes behind its own await: on one engine that is a deadlock, on two it is none, as long as the queue of
  // LOAD lets the FENCE of STORE pass.
  const auto pair = [](const std::string& engine, const std::string& between) {
    return std::vector<std::string>{await(engine, 1, 1) + between + kPublish + "finish",
                                    await(engine, 0, 1) + between + kPublish + "finish"};
  };
  EXPECT_EQ(programs(pair("store", "")),
            "cores block each other: core 0: instruction 0 (fence) awaits publish 1 of core 1, core 1: "
            "instruction 0 (fence) awaits publish 1 of core 0");
  EXPECT_EQ(programs(pair("load", "")), "ok");
  const std::string loads = "load length=8\nload length=8\nload length=8\n";
  EXPECT_EQ(programs(pair("load", loads), 4), "ok");
  EXPECT_EQ(programs(pair("load", loads), 3).substr(0, 23), "cores block each other:");
  // A core that waits for itself.
  EXPECT_EQ(programs({await("load", 0, 1) + kPublish + "finish"}), "ok");
  EXPECT_EQ(programs({await("store", 0, 1) + kPublish + "finish"}).substr(0, 23), "cores block each other:");
  // Those behind one that is blocked are named, too; one that can end is not.
  const std::string three = programs({await("store", 1, 1) + kPublish + "finish",
                                      await("store", 0, 1) + kPublish + "finish", await("store", 0, 1) + "finish"});
  EXPECT_NE(three.find(", core 2: instruction 0 (fence) awaits publish 1 of core 0"), std::string::npos) << three;
}

}  // namespace
}  // namespace tessera::isa
