// SPDX-License-Identifier: Apache-2.0
// Every row is found out when it is asked for: libraries by their files, programs in PATH, Python's packages by the
// interpreter that the quantiser would run.
#include "tessera/command/doctor.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "compiler/cpu/code/file_cache.h"
#include "driver/registry.h"
#include "isa/config.h"
#include "ops/limits.h"
#include "tessera/command/quantise.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

struct Row {
  std::string part, subject;
  bool there = false;
  std::string text;  // what is there, or the way to get it
};
using Rows = std::vector<Row>;

std::string processor_name() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("model name")) continue;
    const size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

void host(Rows& rows) {
  rows.push_back({"host", "processor", true,
                  processor_name() + ", " + std::to_string(std::thread::hardware_concurrency()) + " threads"});
  rows.push_back({"host", "memory for tensors", true, std::to_string(ops::memory_limit_bytes() >> 20) + " MiB"});
}

/// Whether files can be made in a folder, or in the nearest one above it that exists.
bool is_writable(fs::path folder) {
  std::error_code error;
  while (!folder.empty() && !fs::exists(folder, error) && folder != folder.parent_path()) folder = folder.parent_path();
  return access(folder.c_str(), W_OK) == 0;
}

void cache(Rows& rows, const std::string& what, const std::string& folder) {
  if (folder.empty()) {
    rows.push_back({"caches", what, false, "set HOME or XDG_CACHE_HOME"});
    return;
  }
  const bool writable = is_writable(folder);
  rows.push_back({"caches", what, writable, folder + (writable ? "" : ", not writable; XDG_CACHE_HOME moves it")});
}

void devices(Rows& rows) {
  rows.push_back({"devices", "reference", true, "the interpreter"});
  for (const driver::BackendInfo& backend : driver::backends()) {
    rows.push_back({"devices", backend.name, true, backend.description});
    if (backend.name != "remote") continue;
    try {
      driver::remote_library();
    } catch (const Error& error) {
      rows.back() = {"devices", backend.name, false, error.what()};
    }
  }
}

void machines(Rows& rows) {
  const std::optional<driver::RtlInstallation> rtl = driver::rtl_installation();
  if (!rtl) return;
  std::string others;
  for (const isa::ShippedConfig& config : isa::shipped_configs()) {
    const std::string name(config.name);
    if (std::find(rtl->machines.begin(), rtl->machines.end(), name) != rtl->machines.end()) {
      rows.push_back({"rtl", name, true, "verilated, part of this installation"});
    } else {
      others += name + ", ";
    }
  }
  others += "your own: ";
  const bool makes = !rtl->tools.empty();
  rows.push_back(
      {"rtl", "other machines", makes, others + (makes ? "made when first used, by " + rtl->tools : rtl->missing)});
  cache(rows, "verilated machines", rtl->cache);
}

constexpr const char* kAskVersions = R"(
import sys, importlib.metadata as m
print('python', '%d.%d.%d' % sys.version_info[:3])
for n in ('numpy', 'onnx', 'onnxruntime', 'nncf', 'pillow', 'matplotlib', 'grpcio', 'uvicorn', 'prometheus_client'):
    try: print(n, m.version(n))
    except Exception: print(n, '-')
)";

struct Use {
  const char *package, *what, *how;
};
constexpr Use kUses[] = {
    {"numpy", "the Python package", "pip install numpy"},
    {"onnx", "tessera quantize", "pip install onnx onnxruntime"},
    {"onnxruntime", "tessera quantize", "pip install onnx onnxruntime"},
    {"nncf", "tessera quantize --engine nncf, the better one", "pip install nncf"},
    {"pillow", "pictures as calibration data", "pip install pillow"},
    {"grpcio", "tessera serve", "pip install tessera[serve]"},
    {"uvicorn", "tessera serve --model-repository, over HTTP", "pip install tessera[serve]"},
    {"prometheus_client", "tessera serve --model-repository, figures", "pip install tessera[serve]"},
};

void python(Rows& rows) {
  const std::string interpreter = quantiser_interpreter();
  std::string said;
  try {
    said = output_of_python(kAskVersions);
  } catch (const Error& error) {
    rows.push_back({"python", "interpreter", false, error.what()});
    return;
  }
  const auto version = [&](const std::string& name) {
    const size_t at = ("\n" + said).find("\n" + name + " ");
    if (at == std::string::npos) return std::string("-");
    const size_t from = at + name.size() + 1;
    return said.substr(from, said.find('\n', from) - from);
  };
  rows.push_back({"python", "interpreter", true, interpreter + ", " + version("python")});
  for (const Use& use : kUses) {
    const std::string found = version(use.package);
    const bool there = found != "-";
    rows.push_back({"python", use.package, there, there ? found : std::string("for ") + use.what + ": " + use.how});
  }
}

std::string table(const Rows& rows) {
  size_t width = 0;
  for (const Row& row : rows) width = std::max(width, row.subject.size());
  std::string text = "tessera " TESSERA_VERSION "\n", part;
  for (const Row& row : rows) {
    if (row.part != part) text += "\n" + row.part + "\n";
    part = row.part;
    text += std::string("  ") + (row.there ? "yes  " : "no   ") + row.subject +
            std::string(width + 2 - row.subject.size(), ' ') + row.text + "\n";
  }
  return text;
}

}  // namespace

std::string doctor_report(bool as_json) {
  Rows rows;
  host(rows);
  devices(rows);
  machines(rows);
  cache(rows, "machine code", cpu::FileCache::default_folder().string());
  python(rows);
  if (!as_json) return table(rows);
  nlohmann::json out = {{"version", TESSERA_VERSION}, {"rows", nlohmann::json::array()}};
  for (const Row& row : rows)
    out["rows"].push_back({{"part", row.part}, {"subject", row.subject}, {"there", row.there}, {"text", row.text}});
  return out.dump(2) + "\n";
}

}  // namespace tessera
