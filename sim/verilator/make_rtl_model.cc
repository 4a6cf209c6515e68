// SPDX-License-Identifier: Apache-2.0
// A step of the build: one configuration's machine, verilated and compiled, as a library that is loaded when it is
// asked for.
//
//   make_rtl_model CONFIG.toml LIBRARY.so [--jobs N] [--no-profile] [--march PROCESSOR] -- COMPILER...
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "sim/verilator/build.h"

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  tessera::sim::RtlModule module;
  std::vector<std::string> names;
  size_t n = 0;
  for (; n < words.size() && words[n] != "--"; ++n) {
    if (words[n] == "--jobs" && n + 1 < words.size()) {
      module.jobs = static_cast<unsigned>(std::max(1, std::atoi(words[++n].c_str())));
    } else if (words[n] == "--no-profile") {
      module.profile = false;
    } else if (words[n] == "--march" && n + 1 < words.size()) {
      module.processor = words[++n];
    } else {
      names.push_back(words[n]);
    }
  }
  if (n < words.size()) module.compiler.assign(words.begin() + static_cast<ptrdiff_t>(n) + 1, words.end());
  if (names.size() != 2 || module.compiler.empty()) {
    std::fprintf(
        stderr,
        "usage: make_rtl_model CONFIG.toml LIBRARY.so [--jobs N] [--no-profile] [--march PROCESSOR] -- COMPILER...\n");
    return 2;
  }
  try {
    module.config = tessera::isa::find_config(names[0]);
    module.path = names[1];
    tessera::sim::build_rtl_module(module);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "make_rtl_model: %s\n", error.what());
    return 1;
  }
  return 0;
}
