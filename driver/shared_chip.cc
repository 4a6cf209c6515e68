// SPDX-License-Identifier: Apache-2.0
// One thread runs the chip and takes from a queue what the parts give.
#include "driver/shared_chip.h"

#include <algorithm>
#include <bit>
#include <string>
#include <utility>

#include "base/error.h"

namespace tessera::driver {

isa::MachineConfig part_of(const isa::MachineConfig& chip, int cores) {
  if (cores < 1 || cores > chip.cores)
    throw Error(ErrorCode::kInvalidArgument, std::to_string(cores) + " cores of configuration '" + chip.name +
                                                 "', which has " + std::to_string(chip.cores));
  if (cores == chip.cores) return chip;
  isa::MachineConfig part = chip;
  part.cores = cores;
  const auto share = std::bit_floor(static_cast<unsigned>(chip.memory_bytes() * cores / chip.cores));
  part.memory_axi_bytes = cores == 1 || static_cast<int>(share) <= chip.axi_bytes ? 0 : static_cast<int>(share);
  part.name = chip.name + "-" + std::to_string(cores) + "cores";
  for (const isa::ShippedConfig& shipped : isa::shipped_configs()) {
    isa::MachineConfig known = isa::parse_config(shipped.toml, std::string(shipped.name));
    const std::string name = std::exchange(known.name, part.name);
    if (known == part) part.name = name;
  }
  return part;
}

void require_cores(const isa::MachineConfig& chip, const std::vector<uint32_t>& cores) {
  if (cores.empty()) throw Error(ErrorCode::kInvalidArgument, "a part of a chip has at least one core");
  for (size_t k = 0; k < cores.size(); ++k) {
    const std::string name = "core " + std::to_string(cores[k]);
    if (cores[k] >= static_cast<uint32_t>(chip.cores))
      throw Error(ErrorCode::kInvalidArgument, name + " of configuration '" + chip.name + "', whose cores are 0 to " +
                                                   std::to_string(chip.cores - 1));
    if (std::find(cores.begin(), cores.begin() + static_cast<std::ptrdiff_t>(k), cores[k]) !=
        cores.begin() + static_cast<std::ptrdiff_t>(k))
      throw Error(ErrorCode::kInvalidArgument, name + " is named twice");
  }
}

/// A device of some cores. Memory and registers are the chip's.
class SharedChip::Part final : public Device {
 public:
  Part(std::shared_ptr<SharedChip> chip, std::vector<uint32_t> cores, int priority)
      : chip_(std::move(chip)),
        cores_(std::move(cores)),
        priority_(priority),
        config_(part_of(chip_->config(), static_cast<int>(cores_.size()))) {}

  const isa::MachineConfig& config() const override { return config_; }
  std::string machine() const override { return all().machine(); }
  bool can_profile() const override { return all().can_profile(); }
  uint64_t allocate(uint64_t size_bytes, uint64_t alignment) override { return all().allocate(size_bytes, alignment); }
  void free(uint64_t address) override { all().free(address); }
  void write(uint64_t address, std::span<const uint8_t> bytes) override { all().write(address, bytes); }
  void place(uint64_t address, std::span<const uint8_t> bytes) override { all().place(address, bytes); }
  void read(uint64_t address, std::span<uint8_t> bytes) override { all().read(address, bytes); }
  void copy(uint64_t to, uint64_t from, uint64_t size_bytes) override { all().copy(to, from, size_bytes); }
  std::vector<uint32_t> cores() const override { return cores_; }

  RunReport run(const RunRequest& request) override {
    if (request.others.size() >= cores_.size())
      throw Error(ErrorCode::kInvalidArgument, "programs for " + std::to_string(request.others.size() + 1) +
                                                   " cores on " + std::to_string(cores_.size()) + " of '" +
                                                   all().config().name + "'");
    if (request.check_races || request.check_allocations) return run_job(all(), {0, cores_, request});
    return chip_->run(*this, {0, cores_, request}, priority_);
  }

  SharedChip& chip() const { return *chip_; }

 private:
  Device& all() const { return *chip_->chip_; }

  std::shared_ptr<SharedChip> chip_;
  std::vector<uint32_t> cores_;
  int priority_;
  isa::MachineConfig config_;
};

SharedChip::SharedChip(std::shared_ptr<Device> chip) : chip_(std::move(chip)), thread_([this] { work(); }) {}

SharedChip::~SharedChip() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::shared_ptr<Device> SharedChip::part(std::vector<uint32_t> cores, int priority) {
  require_cores(config(), cores);
  return std::make_shared<Part>(shared_from_this(), std::move(cores), priority);
}

RunReport SharedChip::run(const Part& part, Job job, int priority) {
  std::future<RunReport> report;
  {
    const std::lock_guard lock(mutex_);
    job.number = ++numbers_;
    const auto behind =
        std::find_if(waiting_.begin(), waiting_.end(), [&](const Order& other) { return other.priority < priority; });
    report = waiting_.insert(behind, Order{std::move(job), &part, priority, {}})->report.get_future();
  }
  changed_.notify_all();
  return report.get();
}

/// Whether all that attend have a program here.
bool SharedChip::attended() const {
  return std::all_of(attending_.begin(), attending_.end(), [&](const Part* part) {
    const auto own = [&](const Order& order) { return order.part == part; };
    return std::any_of(waiting_.begin(), waiting_.end(), own) || std::any_of(running_.begin(), running_.end(), own);
  });
}

/// What can begin. A core that somebody waits for is not given to those behind.
std::vector<Job> SharedChip::choose() {
  std::vector<bool> taken(static_cast<size_t>(config().cores), false);
  for (const Order& order : running_) {
    for (const uint32_t core : order.job.cores) taken[core] = true;
  }
  std::vector<Job> jobs;
  for (auto order = waiting_.begin(); order != waiting_.end();) {
    const auto next = std::next(order);
    const auto& cores = order->job.cores;
    const bool free = std::none_of(cores.begin(), cores.end(), [&](uint32_t core) { return taken[core]; });
    for (const uint32_t core : cores) taken[core] = true;
    if (free) {
      jobs.push_back(order->job);
      running_.splice(running_.end(), waiting_, order);
    }
    order = next;
  }
  return jobs;
}

std::vector<Job> SharedChip::exchange(std::vector<JobEnd> ended) {
  std::unique_lock lock(mutex_);
  for (JobEnd& end : ended) {
    const auto order =
        std::find_if(running_.begin(), running_.end(), [&](const Order& one) { return one.job.number == end.number; });
    order->report.set_value(std::move(end.report));
    running_.erase(order);
  }
  changed_.wait(lock, [&] { return ends_ || attended(); });
  // Of parts that attend it does not matter which of the host's threads came first.
  const auto rank = [&](const Order& order) {
    return std::find(attending_.begin(), attending_.end(), order.part) - attending_.begin();
  };
  waiting_.sort([&](const Order& a, const Order& b) {
    return a.priority != b.priority ? a.priority > b.priority : rank(a) < rank(b);
  });
  return choose();
}

void SharedChip::fail(const std::exception_ptr& error) {
  const std::lock_guard lock(mutex_);
  for (Order& order : running_) order.report.set_exception(error);
  running_.clear();
}

void SharedChip::work() {
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return ends_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
    }
    try {
      chip_->run_jobs([this](std::vector<JobEnd> ended, bool) { return exchange(std::move(ended)); });
    } catch (...) {
      fail(std::current_exception());
    }
  }
}

SharedChip::Attendance::Attendance(const std::shared_ptr<Device>& part) : part_(part) {
  const auto* own = dynamic_cast<const Part*>(part_.get());
  if (own == nullptr) throw Error(ErrorCode::kInvalidArgument, "the device is no part of a chip that is shared");
  const std::lock_guard lock(own->chip().mutex_);
  own->chip().attending_.push_back(own);
}

SharedChip::Attendance::~Attendance() {
  const auto& own = static_cast<const Part&>(*part_);
  SharedChip& chip = own.chip();
  {
    const std::lock_guard lock(chip.mutex_);
    chip.attending_.erase(std::find(chip.attending_.begin(), chip.attending_.end(), &own));
  }
  chip.changed_.notify_all();
}

}  // namespace tessera::driver
