// SPDX-License-Identifier: Apache-2.0
// All slips and delays of a lane, one after the other. Writes need no leveling on ECP5, so the bytes that are read back
// stand in DRAM all the time. The order of register accesses is that of LiteX's own code for this PHY.
#include "driver/litex/leveling.h"

#include <random>

#include "base/error.h"

namespace tessera::driver::litex {
namespace {

constexpr size_t kTrialWords = 64;

class Lanes {
 public:
  Lanes(Window& window, const Description& system)
      : window_(window), level_(*system.leveling), memory_(system.memory), written_(kTrialWords), read_(kTrialWords) {
    std::mt19937 random(1);
    for (uint32_t& word : written_) word = random();
    window_.write(memory_, written_);
  }

  struct Setting {
    uint32_t bitslip = 0, delay = 0, width = 0;  // width: delays of the run whose middle it is; 0: none
  };

  Setting best(uint32_t lane) {
    Setting found;
    for (uint32_t bitslip = 0; bitslip < level_.bitslips; ++bitslip) {
      set(lane, bitslip, 0);
      uint32_t run = 0;
      for (uint32_t delay = 0; delay < level_.delays; ++delay) {
        if (delay > 0) step(lane, level_.delay_step);
        run = reads(lane) ? run + 1 : 0;
        if (run > found.width) found = {bitslip, delay - (run - 1) / 2, run};
      }
    }
    return found;
  }

  void set(uint32_t lane, uint32_t bitslip, uint32_t delay) {
    step(lane, level_.bitslip_reset);
    for (uint32_t n = 0; n < bitslip; ++n) step(lane, level_.bitslip_step);
    step(lane, level_.delay_reset);
    for (uint32_t n = 0; n < delay; ++n) step(lane, level_.delay_step);
  }

 private:
  /// One write to a register of a lane. Then all lanes' strobe logic is held and let go, which brings it in step.
  void step(uint32_t lane, uint32_t address) {
    window_.write(level_.select, 1U << lane);
    window_.write(address, 1);
    window_.write(level_.select, 0);
    window_.write(level_.select, 0xFF);
    window_.write(level_.select, 0);
  }

  bool reads(uint32_t lane) {
    window_.write(level_.burst_clear, 1);
    window_.read(memory_, read_);
    if ((window_.read(level_.burst_seen) >> lane & 1) == 0) return false;
    for (size_t n = 0; n < kTrialWords; ++n) {
      for (uint32_t byte = 0; byte < 4; ++byte) {
        if (byte % level_.lanes == lane && ((written_[n] ^ read_[n]) >> (8 * byte) & 0xFF) != 0) return false;
      }
    }
    return true;
  }

  Window& window_;
  const Leveling& level_;
  uint32_t memory_;
  std::vector<uint32_t> written_, read_;
};

}  // namespace

void level_reads(Window& window, const Description& system, const std::string& name) {
  if (!system.leveling || system.leveling->lanes == 0) return;
  Lanes lanes(window, system);
  for (uint32_t lane = 0; lane < system.leveling->lanes; ++lane) {
    const Lanes::Setting setting = lanes.best(lane);
    if (setting.width == 0) {
      throw Error(ErrorCode::kIo, "device litex: '" + name + "': the DRAM of " + system.board + " (" +
                                      system.memory_name + ") reads at no delay in byte " + std::to_string(lane) +
                                      " of its width; try the bitstream at a lower clock, or another board");
    }
    lanes.set(lane, setting.bitslip, setting.delay);
  }
}

}  // namespace tessera::driver::litex
