// SPDX-License-Identifier: Apache-2.0
// Shipped configurations have the sizes their files name; broken ones are refused with the parameter's name.
#include "isa/config.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "isa/generated/registers.h"

namespace tessera::isa {
namespace {

TEST(Config, ShippedSizes) {
  const MachineConfig c = find_config("npu256");
  EXPECT_EQ(c.name, "npu256");
  EXPECT_EQ(c.peak_macs(), 256);
  EXPECT_EQ(c.axi_bytes, 8);
  EXPECT_EQ(c.inp_depth(), 2048);
  EXPECT_EQ(c.wgt_depth(), 1024);
  EXPECT_EQ(c.acc_depth(), 2048);
  EXPECT_EQ(c.out_depth(), 2048);
  EXPECT_EQ(c.param_depth(), 128);
  EXPECT_EQ(c.table_bytes(), 4096);
  EXPECT_EQ(c.lanes(), 16);
  EXPECT_EQ(c.depthwise_taps(), 9);
  EXPECT_EQ(find_config("npu64").depthwise_taps(), 6);
  EXPECT_EQ(find_config("npu1024").depthwise_taps(), 16);
  EXPECT_EQ(c.depthwise_byte(2, 8, 9), 0);
  EXPECT_EQ(c.depthwise_byte(3, 8, 9), 8);
  EXPECT_EQ(c.depthwise_byte(3, 0, 9), 0);
  EXPECT_EQ(find_config("npu1024").wgt_depth(), 512);
  EXPECT_EQ(find_config("npu256w").axi_bytes, 16);
  EXPECT_EQ(find_config("npu256t").row_lanes, 4);
  EXPECT_EQ(find_config("npu256x4").cores, 4);
  EXPECT_EQ(find_config("npu256x4").memory_bytes(), 32);
  EXPECT_EQ(shipped_configs().size(), 11u);
}

TEST(Config, FilesAndNamesAgree) {
  for (const ShippedConfig& shipped : shipped_configs()) {
    const std::string name(shipped.name);
    EXPECT_EQ(find_config(name), find_config("hw/configs/" + name + ".toml"));
    EXPECT_EQ(parse_config(to_toml(find_config(name)), "text"), find_config(name));
  }
}

TEST(Config, EveryParameterHasACapabilityRegister) {
  for (const ConfigKey& key : config_keys()) {
    int found = 0;
    for (const reg::Register& r : reg::kRegisters) found += r.parameter == key.name;
    EXPECT_EQ(found, 1) << key.name;
  }
}

std::string replaced(const std::string& from, const std::string& to) {
  std::string text = to_toml(find_config("npu64"));
  text.replace(text.find(from), from.size(), to);
  return text;
}

std::string message(const std::string& toml) {
  try {
    parse_config(toml, "c.toml");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "accepted";
}

TEST(Config, Refusals) {
  EXPECT_EQ(message(replaced("block_in = 8", "block_in = 12")),
            "configuration npu64: block_in = 12 must be a power of two");
  EXPECT_EQ(message(replaced("batch = 1", "batch = 0")), "configuration npu64: batch = 0 must be in 1..64");
  const std::string all =
      "; a configuration sets every parameter but second_lanes, row_lanes, memory_parity, packed_weights, "
      "raster_pairs, cores and memory_axi_bytes, which have defaults";
  EXPECT_EQ(message(replaced("batch = 1", "")), "c.toml: batch is missing" + all);
  EXPECT_EQ(message(replaced("batch = 1", "batch = \"1\"")), "c.toml: batch is not an integer" + all);
  EXPECT_EQ(message(replaced("second_lanes = 2", "second_lanes = true")),
            "c.toml: second_lanes is not an integer" + all);
  EXPECT_EQ(message(replaced("batch = 1", "batch = 99999999999")),
            "configuration: batch = 99999999999 is out of range");
}

TEST(Config, AMachineNeedNotSayWhatItDoesNotHave) {
  std::string toml = to_toml(find_config("npu64"));
  const size_t begin = toml.find("row_lanes");
  toml.erase(begin, toml.find('\n', begin) - begin);
  EXPECT_EQ(parse_config(toml, "c.toml"), find_config("npu64"));
}

// The forms that configurations had: without lanes of the second operation, then without rows, then without parity.
TEST(Config, FilesOfEarlierForms) {
  const std::string first =
      "name = \"machine\"\nbatch = 1\nblock_in = 16\nblock_out = 16\ninp_bytes = 32768\nwgt_bytes = 262144\n"
      "acc_bytes = 131072\nout_bytes = 32768\nparam_bytes = 16384\ntable_count = 16\naxi_bytes = 8\nload_queue = 16\n"
      "gemm_queue = 16\nalu_queue = 16\nstore_queue = 16\nreads_in_flight = 32\nwrites_in_flight = 16\n";
  MachineConfig expected = find_config("npu256");
  expected.name = "machine";
  EXPECT_EQ(expected.second_lanes, 4);
  expected.raster_pairs = 0;
  for (const char* more : {"", "second_lanes = 4\n", "second_lanes = 4\nrow_lanes = 0\n", "memory_parity = 0\n",
                           "packed_weights = 0\n", "raster_pairs = 0\n", "cores = 1\n"}) {
    EXPECT_EQ(parse_config(first + more, "c.toml"), expected) << more;
  }
  std::string narrow = first;
  narrow.replace(narrow.find("block_out = 16"), 14, "block_out = 4");
  EXPECT_EQ(parse_config(narrow, "c.toml").second_lanes, 1);
}

TEST(Config, RefusesSizes) {
  EXPECT_EQ(message(replaced("inp_bytes = 16384", "inp_bytes = 16383")),
            "configuration npu64: inp_bytes = 16383 must be a positive multiple of its entry of 8 bytes");
  EXPECT_EQ(message(replaced("inp_bytes = 16384", "inp_bytes = 262144")),
            "configuration npu64: inp_bytes = 262144 holds 32768 entries; addresses reach 16384");
  EXPECT_EQ(message(replaced("param_bytes = 8192", "param_bytes = 131072")),
            "configuration npu64: param_bytes = 131072 holds 2048 entries; addresses reach 1024");
  EXPECT_EQ(message(replaced("table_count = 16", "table_count = 17")),
            "configuration npu64: table_count = 17 must be in 1..16");
  EXPECT_EQ(
      message(replaced("axi_bytes = 8", "axi_bytes = 64\npacked_weights = 1")),
      "configuration npu64: packed_weights = 1 needs block_in * block_out = 64 to be at least 2 * axi_bytes = 128");
  EXPECT_EQ(message(replaced("axi_bytes = 8", "axi_bytes = 8\npacked_weights = 2")),
            "configuration npu64: packed_weights = 2 must be in 0..1");
  EXPECT_EQ(message(replaced("axi_bytes = 8", "axi_bytes = 8\ncores = 17")),
            "configuration npu64: cores = 17 must be in 1..16");
  EXPECT_EQ(message(replaced("axi_bytes = 8", "axi_bytes = 8\nmemory_axi_bytes = 16")),
            "configuration npu64: memory_axi_bytes is for machines of several cores; leave it out");
  EXPECT_EQ(message(replaced("axi_bytes = 8", "axi_bytes = 8\ncores = 2\nmemory_axi_bytes = 4")),
            "configuration npu64: memory_axi_bytes = 4 must be in 8..128");
  const auto pairs = [](const std::string& from, const std::string& to) {
    return replaced(from, to) + "raster_pairs = 1\n";
  };
  EXPECT_EQ(message(pairs("axi_bytes = 8", "axi_bytes = 16")),
            "configuration npu64: raster_pairs needs batch * block_in = 8 to be at least axi_bytes = 16; leave it out");
  EXPECT_EQ(message(pairs("block_in = 8", "block_in = 4")),
            "configuration npu64: raster_pairs needs batch * block_in = 4 to be at least axi_bytes = 8; leave it out");
  EXPECT_EQ(message(pairs("axi_bytes = 8", "axi_bytes = 8")), "accepted");
  EXPECT_EQ(message(replaced("inp_bytes = 16384", "inp_bytes = 24") + "raster_pairs = 2\n"),
            "configuration npu64: raster_pairs = 2 needs INP to hold at least four entries; set it to 1");
}

TEST(Config, UnknownParametersNamesAndFiles) {
  EXPECT_EQ(message(to_toml(find_config("npu64")) + "clusters = 2\n"), "c.toml: unknown parameter clusters");
  EXPECT_EQ(message("batch = = 1").substr(0, 11), "c.toml:1:9:");
  try {
    find_config("npu65");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(
        std::string(error.what()),
        "unknown configuration 'npu65'; shipped are kv260, npu1024, npu256, npu256t, npu256w, npu256x2, npu256x4, "
        "npu64, npu64x8, pynq_z2, ultra96, or give the path of a .toml file");
  }
  try {
    find_config("no/such.toml");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kIo);
  }
}

}  // namespace
}  // namespace tessera::isa
