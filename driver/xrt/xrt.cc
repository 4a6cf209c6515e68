// SPDX-License-Identifier: Apache-2.0
// Finds the image and its kernel, checks that the machine in it is the one the program was made for, and joins memory
// (xrt_buffers.h) and runs (xrt_queue.h).
#include "driver/xrt/xrt.h"

#include <algorithm>
#include <charconv>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <experimental/xrt_xclbin.h>
#include <xrt/xrt_device.h>

#include "base/error.h"
#include "driver/backends.h"
#include "driver/capabilities.h"
#include "driver/profile.h"
#include "driver/xrt/xrt_buffers.h"
#include "driver/xrt/xrt_queue.h"
#include "driver/xrt_emu/protocol.h"
#include "driver/xrt_emu/xclbin.h"
#include "isa/generated/kernel_arguments.h"
#include "isa/generated/registers.h"

namespace tessera::driver {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

std::string option(const DeviceOptions& options, const std::string& name) {
  const auto found = options.backend.find(name);
  return found == options.backend.end() ? "" : found->second;
}

/// Runs XRT's code and turns what it throws into an Error.
template <typename F>
auto attempt(const std::string& what, F&& body) {
  try {
    return body();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& e) {
    throw Error(ErrorCode::kIo, what + ": " + e.what());
  }
}

void check_options(const DeviceOptions& options) {
  for (const auto& [name, value] : options.backend) {
    if (name == "device" || name == "xclbin" || name == "timeout" || name == "wait") continue;
    throw Error(ErrorCode::kInvalidArgument,
                "device xrt has no option '" + name + "'; known: device, xclbin, timeout, wait" +
                    (name == "latency" || name == "bandwidth" || name == "dram" || name == "pressure" || name == "seed"
                         ? " (the memory of the simulated board is set by 'tessera board --dram-latency' and the like)"
                         : ""));
  }
  if (options.heap_base != DeviceOptions{}.heap_base || options.heap_bytes != DeviceOptions{}.heap_bytes) {
    throw Error(ErrorCode::kUnsupported,
                "device xrt places memory where the card has it; a base address cannot be chosen");
  }
}

bool simulated() { return !environment("XCL_EMULATION_MODE").empty(); }

std::chrono::milliseconds chosen_seconds(const DeviceOptions& options, const std::string& name,
                                         std::chrono::milliseconds otherwise) {
  const std::string text = option(options, name);
  if (text.empty()) return otherwise;
  double seconds = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc{} || end != text.data() + text.size() || !(seconds >= 0 && seconds <= 1e6)) {
    throw Error(ErrorCode::kInvalidArgument,
                "option of device xrt: " + name + " is seconds from 0 (without end) to 1000000, not '" + text + "'");
  }
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

xrt::device open_card(const std::string& text) {
  return attempt("device xrt: card '" + text + "' cannot be opened", [&] {
    if (text.find(':') != std::string::npos) return xrt::device(text);
    unsigned index = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), index);
    if (error != std::errc{} || end != text.data() + text.size()) {
      throw Error(ErrorCode::kInvalidArgument,
                  "device xrt: a card is a number or a BDF such as 0000:65:00.1, not '" + text + "'");
    }
    return xrt::device(index);
  });
}

/// The option, then TESSERA_XCLBIN (a file, or a folder of NAME.xclbin), then the user's cache; on the simulated board
/// one that is made here.
xrt::xclbin find_image(const isa::MachineConfig& config, const DeviceOptions& options) {
  const auto load = [&](const std::string& path) {
    std::error_code error;
    if (!fs::is_regular_file(path, error))
      throw Error(ErrorCode::kIo, "device xrt: cannot open the xclbin '" + path + "'");
    return attempt("device xrt: '" + path + "' is no xclbin that XRT takes", [&] { return xrt::xclbin(path); });
  };
  if (const std::string chosen = option(options, "xclbin"); !chosen.empty()) return load(chosen);
  const std::string file = config.name + ".xclbin";
  std::string looked;
  if (const std::string set = environment("TESSERA_XCLBIN"); !set.empty()) {
    if (!fs::is_directory(set)) return load(set);
    if (fs::exists(fs::path(set) / file)) return load((fs::path(set) / file).string());
    looked.append("'").append((fs::path(set) / file).string()).append("' (TESSERA_XCLBIN), ");
  }
  if (environment(emu::kBoardVariable).empty()) {
    std::string cache = environment("XDG_CACHE_HOME");
    if (cache.empty()) cache = environment("HOME") + "/.cache";
    const fs::path cached = fs::path(cache) / "tessera/xclbin" / file;
    if (fs::exists(cached)) return load(cached.string());
    throw Error(ErrorCode::kUnsupported, "device xrt: no xclbin for configuration '" + config.name + "': looked for " +
                                             looked + "'" + cached.string() +
                                             "'; give one with --xclbin FILE (docs/xrt.md)");
  }
  const std::vector<uint8_t> bytes = make_xclbin(config);
  return attempt("device xrt: the image for the simulated board",
                 [&] { return xrt::xclbin(std::vector<char>(bytes.begin(), bytes.end())); });
}

/// The kernel whose arguments lie where the register map has them.
XrtKernel find_kernel(const xrt::xclbin& image, int* group) {
  std::string seen;
  for (const xrt::xclbin::kernel& kernel : image.get_kernels()) {
    XrtKernel found;
    found.name = kernel.get_name();
    seen += (seen.empty() ? "'" : ", '") + found.name + "'";
    for (const isa::kernel::Argument& argument : isa::kernel::kArguments) {
      for (const xrt::xclbin::arg& have : kernel.get_args()) {
        if (have.get_offset() == argument.offset && have.get_size() == argument.size) {
          found.argument_ids.push_back(static_cast<int>(have.get_index()));
          if (argument.offset == isa::reg::kProgramAddress && !have.get_mems().empty()) {
            *group = have.get_mems().front().get_index();
          }
          break;
        }
      }
    }
    if (found.argument_ids.size() != isa::kernel::kArguments.size()) continue;
    for (const xrt::xclbin::ip& unit : kernel.get_cus()) {
      const std::string full = unit.get_name();  // kernel:instance
      found.units.push_back(full.substr(full.find(':') + 1));
    }
    if (!found.units.empty()) return found;
  }
  throw Error(ErrorCode::kUnsupported,
              "device xrt: no kernel of the xclbin has the arguments of isa/registers.toml; it has " +
                  (seen.empty() ? std::string("none") : seen));
}

/// A card with an image on it, shared by the devices of this process that use both.
struct Programmed {
  xrt::device card;
  xrt::uuid image;
  int group = 0;
  isa::MachineConfig machine;
  std::unique_ptr<XrtQueue> queue;
};

/// One xrt::device for each card, from its first use to the end of the process: XRT 2.13 keeps a thread and a table
/// entry for every one that has run something, and does not take them back when it is closed.
struct OpenCard {
  std::mutex mutex;
  std::optional<xrt::device> card;
  std::weak_ptr<Programmed> programmed;
};

OpenCard& open_card_entry(const std::string& text) {
  static auto* const mutex = new std::mutex;
  static auto* const cards = new std::map<std::string, OpenCard>;  // not destroyed: XRT's own statics go first
  const std::lock_guard lock(*mutex);
  return (*cards)[text];
}

std::shared_ptr<Programmed> make_programmed(const xrt::device& card, const xrt::xclbin& image,
                                            std::chrono::milliseconds patience) {
  auto made = std::make_shared<Programmed>();
  made->card = card;
  made->image =
      attempt("device xrt: the card does not take the xclbin (another process may use the card with another one)",
              [&] { return made->card.load_xclbin(image); });
  XrtKernel kernel = attempt("device xrt: the xclbin's kernels", [&] { return find_kernel(image, &made->group); });
  made->queue = std::make_unique<XrtQueue>(card, made->image, std::move(kernel));
  made->machine = attempt("device xrt: the capability registers", [&] { return made->queue->capabilities(patience); });
  return made;
}

std::shared_ptr<Programmed> program_card(const isa::MachineConfig& config, const DeviceOptions& options,
                                         std::chrono::milliseconds patience) {
  if (environment("XILINX_XRT").empty()) {
    throw Error(ErrorCode::kUnsupported,
                "device xrt: XILINX_XRT is not set. For a card, source XRT's setup.sh; for the simulated board, put "
                "'tessera board --' before the command");
  }
  const std::string text = option(options, "device").empty() ? "0" : option(options, "device");
  OpenCard& entry = open_card_entry(text);
  const std::lock_guard lock(entry.mutex);
  const bool reused = entry.card.has_value();
  if (!reused) entry.card = open_card(text);
  const xrt::xclbin image = find_image(config, options);
  std::shared_ptr<Programmed> current = entry.programmed.lock();
  if (current && current->image == image.get_uuid()) return current;
  if (current) {
    throw Error(ErrorCode::kIo, "device xrt: card '" + text +
                                    "' is in use with another xclbin by this process; close those sessions first");
  }
  try {
    current = make_programmed(*entry.card, image, patience);
  } catch (const Error&) {
    if (!reused) throw;
    entry.card = open_card(text);  // the card may have been reset since
    current = make_programmed(*entry.card, image, patience);
  }
  entry.programmed = current;
  return current;
}

class XrtCard final : public XrtDevice {
 public:
  XrtCard(const isa::MachineConfig& config, const DeviceOptions& options)
      : config_(config), poison_(options.poison_allocations) {
    isa::validate(config);
    check_options(options);
    timeout_ = chosen_seconds(options, "timeout", simulated() ? 0s : 60s);
    patience_ = chosen_seconds(options, "wait", 600s);
    programmed_ = program_card(config, options, patience_);
    check_machine("device xrt", "on the card", config, programmed_->machine,
                  "Load the xclbin of the program's configuration or compile for the machine's");
    buffers_ = std::make_unique<XrtBuffers>(programmed_->card, programmed_->group);
  }

  ~XrtCard() override {
    std::unique_lock lock(outstanding_->mutex);  // runs that nobody waited for use the buffers
    outstanding_->changed.wait(lock, [&] { return outstanding_->runs == 0; });
  }

  const isa::MachineConfig& config() const override { return config_; }

  uint64_t allocate(uint64_t size_bytes, uint64_t alignment) override {
    const std::lock_guard lock(mutex_);
    const uint64_t address = buffers_->allocate(size_bytes, alignment);
    if (poison_) {
      std::mt19937_64 random(*poison_ + ++allocations_);
      std::vector<uint8_t> bytes(size_bytes);
      for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
      transfer([&] { buffers_->write(address, bytes); });
    }
    return address;
  }

  void free(uint64_t address) override {
    const std::lock_guard lock(mutex_);
    buffers_->free(address);
  }

  void write(uint64_t address, std::span<const uint8_t> bytes) override {
    const std::lock_guard lock(mutex_);
    transfer([&] { buffers_->write(address, bytes); });
  }

  void read(uint64_t address, std::span<uint8_t> bytes) override {
    const std::lock_guard lock(mutex_);
    transfer([&] { buffers_->read(address, bytes); });
  }

  RunReport run(const RunRequest& request) override {
    const std::lock_guard lock(mutex_);
    return start(request).get();
  }

  std::future<RunReport> submit(const RunRequest& request) override {
    const std::lock_guard lock(mutex_);
    return start(request);
  }

  size_t in_flight() const override { return programmed_->queue->in_flight(); }
  size_t most_started() const override { return programmed_->queue->most_started(); }

 private:
  template <typename F>
  static void transfer(F&& body) {
    attempt("device xrt: transfer", [&] {
      body();
      return 0;
    });
  }

  std::future<RunReport> start(const RunRequest& request) {
    if (request.check_races || request.check_allocations || request.poison) {
      throw Error(ErrorCode::kUnsupported,
                  "device xrt checks neither races nor allocations and cannot fill scratchpads; device fsim does");
    }
    if (request.program_address % isa::kInstructionBytes != 0) {
      throw Error(ErrorCode::kInvalidArgument,
                  "program address " + std::to_string(request.program_address) + " is no multiple of 64");
    }
    XrtRunRequest inner;
    inner.program_address = request.program_address;
    inner.instruction_count = request.instruction_count;
    inner.bases = request.bases;
    // What this process has allocated, so that a wrong program does not reach what others have.
    std::tie(inner.window_first, inner.window_last) = buffers_->window();
    const std::span<const uint8_t> words =
        buffers_->mirror(request.program_address, uint64_t{request.instruction_count} * isa::kInstructionBytes);
    inner.macs = [program = decode_program(words), config = config_](uint64_t executed) {
      return executed_macs(program, executed, config);
    };
    inner.timeout = timeout_;
    inner.patience = patience_;
    {
      const std::lock_guard lock(outstanding_->mutex);
      ++outstanding_->runs;
    }
    inner.token = std::shared_ptr<void>(nullptr, [outstanding = outstanding_](void*) {
      {
        const std::lock_guard lock(outstanding->mutex);
        --outstanding->runs;
      }
      outstanding->changed.notify_all();
    });
    return programmed_->queue->submit(std::move(inner));
  }

  isa::MachineConfig config_;
  std::optional<uint64_t> poison_;
  uint64_t allocations_ = 0;
  std::mutex mutex_;
  struct Outstanding {
    std::mutex mutex;
    std::condition_variable changed;
    size_t runs = 0;
  };
  std::shared_ptr<Outstanding> outstanding_ = std::make_shared<Outstanding>();
  std::chrono::milliseconds timeout_{}, patience_{};
  std::shared_ptr<Programmed> programmed_;
  std::unique_ptr<XrtBuffers> buffers_;
};

}  // namespace

std::unique_ptr<XrtDevice> open_xrt_device(const isa::MachineConfig& config, const DeviceOptions& options) {
  return std::make_unique<XrtCard>(config, options);
}

std::unique_ptr<Device> open_xrt(const isa::MachineConfig& config, const DeviceOptions& options) {
  return open_xrt_device(config, options);
}

}  // namespace tessera::driver
