// SPDX-License-Identifier: Apache-2.0
// Machines as libraries. Enters: a configuration. Leaves: the model, verilated from the RTL's sources, compiled and
// loaded: by the build, or when a user asks for one that the build has not made. The library stays in the user's cache
// directory under a hash of the sources, the configuration, the tools and their flags, so that it is made once; two
// processes that want the same one wait for each other.
#pragma once

#include <string>
#include <vector>

#include "isa/config.h"
#include "sim/verilator/model_api.h"

namespace tessera::sim {

/// The folder with hw/rtl, hw/prim, isa/generated and sim/verilator: TESSERA_RTL_HOME, or share/tessera beside the
/// folder of this program or library, or the source tree of this build. Errors: kUnsupported when none has the sources.
std::string rtl_home();

/// $XDG_CACHE_HOME/tessera/rtl, or ~/.cache/tessera/rtl.
std::string rtl_cache();

/// The model of this configuration, whose name does not matter; with waveforms when `waves`; compiled by a profile when
/// the environment says TESSERA_RTL_PROFILE=1. Says on standard error what takes long. Errors: kUnsupported when
/// verilator or a compiler is missing, kIo for the cache, kInternal when a tool fails (the message names its log).
const TesseraRtlApi& build_rtl(const isa::MachineConfig& config, bool waves);

/// The machine that the build made under this name: lib/tessera/rtl/NAME.so beside the folder of this program, or
/// tessera/rtl/NAME.so beside this library. None when there is no such file, or when the RTL's sources are newer.
const TesseraRtlApi* built_rtl(const std::string& name);

/// A machine that the build makes.
struct RtlModule {
  isa::MachineConfig config;
  std::string path;                   // of the library
  std::vector<std::string> compiler;  // a command, all its words
  unsigned jobs = 1;
  bool profile = true;
  std::string processor = "native";  // what -march takes: the oldest processor that the library is for
};

/// Makes the library from the source tree of this build, or says by its time that it is up to date. Errors: as
/// build_rtl.
void build_rtl_module(const RtlModule& wanted);

}  // namespace tessera::sim
