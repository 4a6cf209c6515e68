// SPDX-License-Identifier: Apache-2.0
// Little-endian fields one after another; sections begin at multiples of 8.
#include "driver/xrt_emu/xclbin.h"

#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <utility>

#include "base/error.h"
#include "driver/xrt_emu/board.h"
#include "isa/generated/kernel_arguments.h"

namespace tessera::driver {
namespace {

using isa::kernel::kKernelName;

// Kinds of sections, types and modes of the axlf format.
constexpr uint32_t kBitstream = 0, kEmbeddedMetadata = 2, kMemTopology = 6, kConnectivity = 7, kIpLayout = 8,
                   kClocks = 11, kBuildMetadata = 14;
constexpr uint8_t kDdr4 = 1;
constexpr uint32_t kIpKernel = 1, kInterruptEnabled = 1;
constexpr uint16_t kModeHwEmu = 4;
constexpr size_t kHeaderBytes = 456, kSectionHeaderBytes = 40;
constexpr uint64_t kFirstUnitAddress = 0x800000, kUnitStride = 0x10000;
constexpr int kClockMhz = 250;

class Bytes {
 public:
  Bytes& number(uint64_t value, int bytes) {
    for (int b = 0; b < bytes; ++b) all_.push_back(static_cast<uint8_t>(value >> (8 * b)));
    return *this;
  }
  Bytes& fill(size_t count, uint8_t value = 0) {
    all_.insert(all_.end(), count, value);
    return *this;
  }
  Bytes& text(std::string_view text, size_t room) {
    TESSERA_INVARIANT(text.size() < room, "a name is too long for its field");
    all_.insert(all_.end(), text.begin(), text.end());
    return fill(room - text.size());
  }
  Bytes& raw(const std::vector<uint8_t>& bytes) {
    all_.insert(all_.end(), bytes.begin(), bytes.end());
    return *this;
  }
  size_t size() const { return all_.size(); }
  std::vector<uint8_t> take() { return std::move(all_); }

 private:
  std::vector<uint8_t> all_;
};

std::vector<uint8_t> to_bytes(const std::string& text) { return {text.begin(), text.end()}; }

std::string hex(uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%llX", static_cast<unsigned long long>(value));
  return text;
}

std::string instance_name(int unit) { return std::string(kKernelName) + "_" + std::to_string(unit + 1); }

std::string metadata(const isa::MachineConfig& config, int units) {
  std::string xml =
      R"(<?xml version="1.0" encoding="UTF-8"?>)"
      "\n<project name=\"tessera\"><platform vendor=\"tessera\" boardid=\"simulated\" name=\"board\" "
      "featureRomTime=\"0\">"
      "<version major=\"1\" minor=\"0\"/>\n<device name=\"fpga0\" fpgaDevice=\"simulated\" addrWidth=\"0\">"
      "<core name=\"OCL_REGION_0\" target=\"hw_em\" type=\"clc_region\" clockFreq=\"" +
      std::to_string(kClockMhz) + "MHz\" numComputeUnits=\"" + std::to_string(units) +
      "\">\n<kernelClocks><clock port=\"KERNEL_CLK\" frequency=\"" + std::to_string(kClockMhz) +
      "MHz\"/></kernelClocks>\n<kernel name=\"" + std::string(kKernelName) +
      "\" language=\"ip\" attributes=\"\" hash=\"\" preferredWorkGroupSizeMultiple=\"0\" workGroupSize=\"1\" "
      "debug=\"false\" "
      "interrupt=\"true\" hwControlProtocol=\"ap_ctrl_hs\">\n<port name=\"" +
      std::string(isa::kernel::kKernelMemory) +
      "\" mode=\"master\" "
      "range=\"0xFFFFFFFFFFFFFFFF\" dataWidth=\"" +
      std::to_string(8 * config.axi_bytes) + "\" portType=\"addressable\" base=\"0x0\"/>\n<port name=\"" +
      std::string(isa::kernel::kKernelControl) + "\" mode=\"slave\" range=\"" + hex(isa::kernel::kControlRange) +
      "\" dataWidth=\"32\" portType=\"addressable\" base=\"0x0\"/>\n";
  for (const isa::kernel::Argument& argument : isa::kernel::kArguments) {
    xml += "<arg name=\"" + std::string(argument.name) + "\" addressQualifier=\"" +
           std::to_string(argument.address_qualifier) + "\" id=\"" + std::to_string(argument.id) + "\" port=\"" +
           std::string(argument.port) + "\" size=\"" + hex(argument.size) + "\" offset=\"" + hex(argument.offset) +
           "\" hostOffset=\"" + hex(argument.host_offset) + "\" hostSize=\"" + hex(argument.host_size) + "\" type=\"" +
           std::string(argument.type) + "\"/>\n";
  }
  xml += "<compileWorkGroupSize x=\"1\" y=\"1\" z=\"1\"/><maxWorkGroupSize x=\"1\" y=\"1\" z=\"1\"/>\n";
  for (int unit = 0; unit < units; ++unit) {
    xml += "<instance name=\"" + instance_name(unit) + "\"><addrRemap base=\"" +
           hex(kFirstUnitAddress + kUnitStride * static_cast<uint64_t>(unit)) + "\" port=\"" +
           std::string(isa::kernel::kKernelControl) + "\"/></instance>\n";
  }
  return xml + "</kernel></core></device></platform></project>\n";
}

/// One bank with memory, and one without, as cards have banks that an image leaves unconnected.
std::vector<uint8_t> topology() {
  Bytes out;
  out.number(2, 4).fill(4);
  for (uint64_t bank = 0; bank < 2; ++bank) {
    out.number(kDdr4, 1).number(bank == 0 ? 1 : 0, 1).fill(6).number(kBoardMemoryBytes / 1024, 8);
    out.number(kBoardMemoryBase + bank * kBoardMemoryBytes, 8).text("DDR[" + std::to_string(bank) + "]", 16);
  }
  return out.take();
}

std::vector<uint8_t> layout(int units) {
  Bytes out;
  out.number(static_cast<uint64_t>(units), 4).fill(4);
  for (int unit = 0; unit < units; ++unit) {
    out.number(kIpKernel, 4).number(kInterruptEnabled | static_cast<uint32_t>(unit) << 1, 4);
    out.number(kFirstUnitAddress + kUnitStride * static_cast<uint64_t>(unit), 8);
    out.text(std::string(kKernelName) + ":" + instance_name(unit), 64);
  }
  return out.take();
}

std::vector<uint8_t> connectivity(int units) {
  Bytes rows;
  uint64_t count = 0;
  for (int unit = 0; unit < units; ++unit) {
    for (const isa::kernel::Argument& argument : isa::kernel::kArguments) {
      if (argument.address_qualifier != 1) continue;
      rows.number(static_cast<uint64_t>(argument.id), 4).number(static_cast<uint64_t>(unit), 4).number(0, 4);  // bank 0
      ++count;
    }
  }
  return Bytes().number(count, 4).raw(rows.take()).take();
}

std::vector<uint8_t> clocks() {
  constexpr uint64_t kData = 1, kKernel = 2, kSystem = 3;
  Bytes out;
  out.number(3, 2);
  for (const auto& [mhz, type, name] :
       {std::tuple(uint64_t{kClockMhz}, kData, "DATA_CLK"), std::tuple(uint64_t{2} * kClockMhz, kKernel, "KERNEL_CLK"),
        std::tuple(uint64_t{50}, kSystem, "SYSTEM_CLK")}) {
    out.number(mhz, 2).number(type, 1).fill(5).text(name, 128);
  }
  return out.take();
}

/// A version-8 UUID over the contents, so that equal images are equal to XRT.
std::array<uint8_t, 16> uuid_of(const std::vector<std::pair<uint32_t, std::vector<uint8_t>>>& sections) {
  std::array<uint64_t, 2> hash{0xcbf29ce484222325, 0x84222325cbf29ce4};
  const auto add = [&](uint8_t byte) {
    hash[0] = (hash[0] ^ byte) * 0x100000001b3;
    hash[1] = (hash[1] ^ (byte + 0x5bu)) * 0x100000001b3;
  };
  for (const auto& [kind, bytes] : sections) {
    add(static_cast<uint8_t>(kind));
    for (const uint8_t byte : bytes) add(byte);
  }
  std::array<uint8_t, 16> uuid;
  std::memcpy(uuid.data(), hash.data(), uuid.size());
  uuid[6] = static_cast<uint8_t>((uuid[6] & 0x0f) | 0x80);
  uuid[8] = static_cast<uint8_t>((uuid[8] & 0x3f) | 0x80);
  return uuid;
}

}  // namespace

std::vector<uint8_t> make_xclbin(const isa::MachineConfig& config, int units) {
  isa::validate(config);
  if (units < 1 || units > 8) {
    throw Error(ErrorCode::kInvalidArgument, "an image has 1 to 8 compute units, not " + std::to_string(units));
  }
  const std::vector<std::pair<uint32_t, std::vector<uint8_t>>> sections = {
      {kBitstream, to_bytes(isa::to_toml(config))},
      {kEmbeddedMetadata, to_bytes(metadata(config, units))},
      {kMemTopology, topology()},
      {kIpLayout, layout(units)},
      {kConnectivity, connectivity(units)},
      {kClocks, clocks()},
      {kBuildMetadata,
       to_bytes(
           R"({"build_metadata":{"schema_version":{"major":"1","minor":"0","patch":"0"},"xclbin":{"packaged_by":{"name":"tessera"}}}})")},
  };
  const auto padded = [](size_t bytes) { return (bytes + 7) / 8 * 8; };
  size_t at = kHeaderBytes + kSectionHeaderBytes * sections.size();
  Bytes headers, contents;
  for (const auto& [kind, bytes] : sections) {
    headers.number(kind, 4).fill(16).fill(4).number(at, 8).number(bytes.size(), 8);
    contents.raw(bytes).fill(padded(bytes.size()) - bytes.size());
    at += padded(bytes.size());
  }
  const auto uuid = uuid_of(sections);
  Bytes out;
  out.text("xclbin2", 8).number(UINT32_MAX, 4).fill(28, 0xff).fill(256, 0xff);  // not signed
  out.raw({uuid.begin(), uuid.begin() + 8});                                    // the unique id
  out.number(at, 8).number(0, 8).number(0, 8);                                  // length, no times
  out.number(0, 2).number(2, 1).number(13, 1).number(kModeHwEmu, 2).number(0, 2);
  out.fill(16).text("tessera_simulated_board", 64).raw({uuid.begin(), uuid.end()}).fill(16);
  out.number(sections.size(), 4).fill(4);
  TESSERA_INVARIANT(out.size() == kHeaderBytes, "the header of an xclbin has a fixed length");
  out.raw(headers.take()).raw(contents.take());
  return out.take();
}

void write_xclbin(const std::string& path, const isa::MachineConfig& config, int units) {
  const std::vector<uint8_t> bytes = make_xclbin(config, units);
  const std::string part = path + "." + std::to_string(getpid());
  std::ofstream out(part, std::ios::binary | std::ios::trunc);
  out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  out.close();
  if (!out || std::rename(part.c_str(), path.c_str()) != 0) {
    std::remove(part.c_str());
    throw Error(ErrorCode::kIo, "cannot write '" + path + "'");
  }
}

}  // namespace tessera::driver
