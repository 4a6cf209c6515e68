// SPDX-License-Identifier: Apache-2.0
// A step of the build: one configuration's machine, verilated and compiled, as an archive to link.
//
//   make_rtl_model CONFIG.toml NAME ARCHIVE.a [--jobs N] [--no-profile] --ar PROGRAM -- COMPILER...
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "sim/verilator/build.h"

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  tessera::sim::RtlArchive archive;
  std::vector<std::string> names;
  size_t n = 0;
  for (; n < words.size() && words[n] != "--"; ++n) {
    if (words[n] == "--jobs" && n + 1 < words.size()) {
      archive.jobs = static_cast<unsigned>(std::max(1, std::atoi(words[++n].c_str())));
    } else if (words[n] == "--ar" && n + 1 < words.size()) {
      archive.archiver = words[++n];
    } else if (words[n] == "--no-profile") {
      archive.profile = false;
    } else {
      names.push_back(words[n]);
    }
  }
  if (n < words.size()) archive.compiler.assign(words.begin() + static_cast<ptrdiff_t>(n) + 1, words.end());
  if (names.size() != 3 || archive.compiler.empty() || archive.archiver.empty()) {
    std::fprintf(
        stderr,
        "usage: make_rtl_model CONFIG.toml NAME ARCHIVE.a [--jobs N] [--no-profile] --ar PROGRAM -- COMPILER...\n");
    return 2;
  }
  try {
    archive.config = tessera::isa::find_config(names[0]);
    archive.name = names[1];
    archive.path = names[2];
    tessera::sim::build_rtl_archive(archive);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "make_rtl_model: %s\n", error.what());
    return 1;
  }
  return 0;
}
