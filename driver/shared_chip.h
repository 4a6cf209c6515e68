// SPDX-License-Identifier: Apache-2.0
// A chip of several cores whose cores are divided among programs that know nothing of one another. Enters: an open
// chip. Leaves: devices of some of its cores each (parts), on which programs run at once. Parts may have cores in
// common: then the program of the higher priority comes first, and among equals the one that has waited longest. A
// program that has begun is not interrupted.
#pragma once

#include <condition_variable>
#include <exception>
#include <future>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "driver/device.h"

namespace tessera::driver {

/// The machine that so many cores of a chip make, with their share of its master: that of npu256x2 for two cores of
/// npu256x4, and npu256 for one. Errors: kInvalidArgument for less than one core or more than there are.
isa::MachineConfig part_of(const isa::MachineConfig& chip, int cores);

/// Errors: kInvalidArgument for no core, one that the chip has not, or one that is named twice.
void require_cores(const isa::MachineConfig& chip, const std::vector<uint32_t>& cores);

class SharedChip : public std::enable_shared_from_this<SharedChip> {
 public:
  explicit SharedChip(std::shared_ptr<Device> chip);
  ~SharedChip();
  SharedChip(const SharedChip&) = delete;
  SharedChip& operator=(const SharedChip&) = delete;

  const isa::MachineConfig& config() const { return chip_->config(); }

  /// A device of these cores, a program's core k on the k-th of them. Its memory is the chip's. Errors: those of
  /// require_cores.
  std::shared_ptr<Device> part(std::vector<uint32_t> cores, int priority = 0);

  /// While it lives, time stands still on the chip as long as it has no program of this part: the part's next program
  /// begins in the cycle behind the last one's end, however long the host takes to give it. So programs that run beside
  /// each other take the same cycles each time.
  class Attendance {
   public:
    /// `part`: of part(). Errors: kInvalidArgument for another device.
    explicit Attendance(const std::shared_ptr<Device>& part);
    ~Attendance();
    Attendance(const Attendance&) = delete;
    Attendance& operator=(const Attendance&) = delete;

   private:
    std::shared_ptr<Device> part_;
  };

 private:
  class Part;
  /// A program that waits or runs.
  struct Order {
    Job job;
    const Part* part = nullptr;
    int priority = 0;
    std::promise<RunReport> report;
  };
  RunReport run(const Part& part, Job job, int priority);
  void work();
  std::vector<Job> exchange(std::vector<JobEnd> ended);
  std::vector<Job> choose();
  bool attended() const;
  void fail(const std::exception_ptr& error);

  std::shared_ptr<Device> chip_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::list<Order> waiting_;  // by priority, then by age
  std::list<Order> running_;
  std::vector<const Part*> attending_;
  uint64_t numbers_ = 0;
  bool ends_ = false;
  std::thread thread_;  // on which the chip runs; last
};

}  // namespace tessera::driver
