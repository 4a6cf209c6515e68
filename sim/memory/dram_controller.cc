// SPDX-License-Identifier: Apache-2.0
// One cycle: first all that the registers say, then what the master drives, then the registers of the next cycle.
#include "sim/memory/dram_controller.h"

#include <algorithm>
#include <bit>
#include <string>

#include "base/error.h"

namespace tessera::sim {

DramController::DramController(const isa::DramSpec& spec, uint64_t address, int beat_bytes)
    : spec_(spec), address_(address), beat_bytes_(beat_bytes) {
  split_ = std::max(1, beat_bytes / spec.word_bytes());
  join_ = std::max(1, spec.word_bytes() / beat_bytes);
  if (spec.read_latency + 1 >= 64 || spec.write_latency + 1 >= 64 || spec.t_faw >= 64) {
    throw Error(ErrorCode::kInvalidArgument, "DRAM '" + spec.name + "' has a latency of 63 cycles or more");
  }
  restart();
}

void DramController::restart() {
  now_ = 0;
  counters_ = {};
  ar_ = aw_ = {};
  read_granted_ = false;
  reads_reserved_ = writes_sent_ = responses_ = 0;
  read_data_ = write_data_ = {};
  read_beats_.clear();
  write_beats_.clear();
  write_words_.clear();
  announced_ = joined_ = splitting_ = read_whole_ = false;
  write_part_ = read_part_ = 0;
  writes_asked_ = reads_come_ = 0;
  lookahead_.clear();
  has_command_ = others_refresh_ = false;
  active_ = 0;
  state_ = BankState::kRegular;
  banks_.assign(static_cast<size_t>(spec_.banks), {});
  mux_ = Mux::kRead;
  granted_data_ = granted_row_ = 0;
  column_over_ = turn_over_ = activate_over_ = activates_ = 0;
  window_free_ = true;
  refresh_timer_ = static_cast<uint64_t>(spec_.t_refi) - 1;
  refresh_wanted_ = false;
  refresh_ = Refresh::kIdle;
  refresh_over_ = 0;
}

DramController::Command DramController::command(uint64_t word, bool write) const {
  const uint64_t page = word / static_cast<uint64_t>(spec_.row_words());
  const auto banks = static_cast<uint64_t>(spec_.banks);
  return {write, static_cast<int>(page % banks), page / banks};
}

/// Whether the crossbar takes a command for that bank.
bool DramController::native_ready(const Command& command) const {
  const bool locked = !lookahead_.empty() || has_command_;
  return (!locked || active_ == command.bank) && lookahead_.size() != kLookahead;
}

/// What the active bank asks of the multiplexer.
DramController::Kind DramController::wanted(bool refresh) const {
  const Bank& bank = banks_[static_cast<size_t>(active_)];
  switch (state_) {
    case BankState::kRegular:
      if (refresh || !has_command_ || !bank.open || bank.row != command_.row) return Kind::kNone;
      return command_.write ? Kind::kWrite : Kind::kRead;
    case BankState::kPrecharge:
      return bank.write_over <= now_ && bank.row_over <= now_ ? Kind::kPrecharge : Kind::kNone;
    case BankState::kActivate: return bank.cycle_over <= now_ ? Kind::kActivate : Kind::kNone;
    default: return Kind::kNone;
  }
}

DramController::Outputs DramController::outputs() const {
  // A burst leaves its place with its last command.
  const bool takes_read = read_granted_ && ar_.valid && reads_reserved_ != kBuffer;
  const bool takes_write = !read_granted_ && aw_.valid && write_data_.level() > writes_sent_;
  const bool taken =
      split_ > 1 ? !splitting_
                 : (takes_read || takes_write) && native_ready(command((takes_read ? ar_ : aw_).word, takes_write));
  const auto over = [&](const Burst& burst, bool takes) { return takes && taken && burst.done + 1 == burst.words; };
  Outputs out{};
  out.ar_ready = !ar_.valid || over(ar_, takes_read);
  out.aw_ready = !aw_.valid || over(aw_, takes_write);
  out.r_valid = read_data_.out;
  out.w_ready = join_ > 1 ? !joined_ || write_data_.writable(kBuffer) : write_data_.writable(kBuffer);
  out.b_valid = responses_ > 0;
  return out;
}

void DramController::clock(const Inputs& in) {
  const Outputs out = outputs();

  // ---- the port's command
  const bool takes_read = read_granted_ && ar_.valid && reads_reserved_ != kBuffer;
  const bool takes_write = !read_granted_ && aw_.valid && write_data_.level() > writes_sent_;
  Burst& burst = takes_read ? ar_ : aw_;
  const bool port_valid = takes_read || takes_write;
  bool native_valid = false;
  Command native{};
  if (split_ > 1) {
    native_valid = splitting_;
    if (splitting_)
      native = command(split_word_ * static_cast<uint64_t>(split_) + static_cast<uint64_t>(split_count_), split_write_);
  } else if (port_valid) {
    native_valid = true;
    native = command(burst.word, takes_write);
  }
  const bool native_taken = native_valid && native_ready(native);
  const bool port_taken = port_valid && (split_ > 1 ? !splitting_ : native_taken);
  const bool port_last = port_valid && burst.done + 1 == burst.words;
  const bool read_request = ar_.valid && reads_reserved_ != kBuffer;
  const bool write_request = aw_.valid && write_data_.level() > writes_sent_;

  // ---- data to the parts: the bank's answer comes after the write latency
  const bool write_asked = (writes_asked_ & 1) != 0;
  bool write_leaves = false;  // a word of the port
  if (write_asked && write_data_.out) {
    if (split_ > 1) {
      write_leaves = ++write_part_ == split_;
      if (write_leaves) write_part_ = 0;
    } else {
      write_leaves = true;
    }
  }
  bool responds = false;
  if (write_leaves && !write_words_.empty() && --write_words_.front() == 0) {
    responds = true;
    write_words_.pop_front();
  }

  // ---- data from the parts
  const bool read_comes = (reads_come_ & 1) != 0;
  bool read_enters = split_ > 1 ? read_whole_ : read_comes;
  if (split_ > 1) {
    read_whole_ = false;
    if (read_comes && ++read_part_ == split_) {
      read_part_ = 0;
      read_whole_ = true;
    }
  }
  bool read_leaves = out.r_valid && in.r_ready;
  if (read_leaves && join_ > 1 && !read_beats_.empty()) {
    Beats& beats = read_beats_.front();
    const bool last = --beats.left == 0;
    read_leaves = last || ++beats.place == join_;
    if (read_leaves) beats.place = 0;
    if (last) read_beats_.pop_front();
  }

  // ---- the master's write beats
  if (in.aw_valid && !announced_) {
    const int place = static_cast<int>((in.aw_address - address_) / static_cast<uint64_t>(beat_bytes_) %
                                       static_cast<uint64_t>(join_));
    write_beats_.push_back({in.aw_beats, place});
    write_words_.push_back((place + in.aw_beats + join_ - 1) / join_);
    announced_ = true;
  }
  bool write_enters = in.w_valid && out.w_ready;
  if (join_ > 1) {
    const bool moves = joined_ && write_data_.writable(kBuffer);
    bool whole = false;
    if (write_enters && !write_beats_.empty()) {
      Beats& beats = write_beats_.front();
      const bool last = --beats.left == 0;
      whole = last || ++beats.place == join_;
      if (whole) beats.place = 0;
      if (last) write_beats_.pop_front();
    }
    write_enters = moves;
    joined_ = whole || (joined_ && !moves);
  }

  // ---- banks, multiplexer and refresh
  writes_asked_ >>= 1;
  reads_come_ >>= 1;
  clock_banks(native_valid, native, native_taken);

  // ---- the registers of the port
  if (split_ > 1) {
    if (splitting_) {
      if (native_taken && ++split_count_ == split_) splitting_ = false;
    } else if (port_taken) {
      splitting_ = true;
      split_count_ = 0;
      split_word_ = burst.word;
      split_write_ = takes_write;
    }
  }
  reads_reserved_ += (port_taken && takes_read ? 1 : 0) - (read_leaves ? 1 : 0);
  writes_sent_ += (port_taken && takes_write ? 1 : 0) - (write_leaves ? 1 : 0);
  read_data_.clock(read_enters, read_leaves);
  write_data_.clock(write_enters, write_leaves);
  responses_ += (responds ? 1 : 0) - (out.b_valid && in.b_ready ? 1 : 0);
  if (!port_valid || (port_taken && port_last)) {
    if (read_granted_ ? write_request : read_request) read_granted_ = !read_granted_;
  }
  if (port_taken) {
    ++burst.word;
    if (++burst.done == burst.words) burst.valid = false;
  }
  const auto enter = [&](Burst& place, uint64_t address, int beats) {
    const uint64_t first = (address - address_) / static_cast<uint64_t>(beat_bytes_);
    const uint64_t last = first + static_cast<uint64_t>(beats) - 1;
    const auto join = static_cast<uint64_t>(join_);
    place = {true, first / join, static_cast<int>(last / join - first / join) + 1, 0};
    return static_cast<int>(first % join);
  };
  if (in.ar_valid && out.ar_ready) {
    const int place = enter(ar_, in.ar_address, in.ar_beats);
    if (join_ > 1) read_beats_.push_back({in.ar_beats, place});
  }
  if (in.aw_valid && out.aw_ready) {
    enter(aw_, in.aw_address, in.aw_beats);
    announced_ = false;
  }
  ++now_;
}

void DramController::clock_banks(bool offered, const Command& command, bool accepted) {
  const auto cycles = [](int count) { return static_cast<uint64_t>(count); };
  Bank& bank = banks_[static_cast<size_t>(active_)];
  const bool refresh_done = refresh_ == Refresh::kRuns && now_ == refresh_over_;
  const bool refresh = refresh_ == Refresh::kWaits || (refresh_ == Refresh::kRuns && !refresh_done);
  const Kind kind = wanted(refresh);

  // ---- the multiplexer chooses
  const bool moves = mux_ == Mux::kRead || mux_ == Mux::kWrite;
  const bool columns_free = column_over_ <= now_;
  const bool rows_free = activate_over_ <= now_ && window_free_;
  const bool data = kind == Kind::kRead || kind == Kind::kWrite;
  const bool row = kind == Kind::kPrecharge || kind == Kind::kActivate;
  const bool matches = (kind == Kind::kRead && mux_ == Mux::kRead) || (kind == Kind::kWrite && mux_ == Mux::kWrite);
  bool done = false;
  const auto choose = [&](int& granted, bool valid, bool ready) {
    const bool chosen = valid && granted == active_;
    if (chosen && ready) done = true;
    if ((!chosen || ready) && valid) granted = active_;
  };
  if (spec_.phases == 1) {
    const bool valid = matches || (row && (kind != Kind::kActivate || rows_free || !moves));
    choose(granted_data_, valid, moves && columns_free && (kind != Kind::kActivate || rows_free));
  } else {
    choose(granted_data_, matches || (row && !moves), moves && columns_free);
    choose(granted_row_, row, moves && (kind != Kind::kActivate || rows_free));
  }
  const bool activated = done && kind == Kind::kActivate;
  const bool moved = done && data;

  // ---- what the cycles are lost on
  if (has_command_ && !moved) {
    if (refresh || state_ == BankState::kRefresh) {
      ++counters_.refresh_cycles;
    } else if (data && !matches) {
      ++counters_.turn_cycles;
    } else if (!data) {
      ++counters_.row_cycles;
    }
  }
  counters_.commands += moved ? 1 : 0;
  counters_.rows += activated ? 1 : 0;

  // ---- the bank's state
  const bool row_differs = !lookahead_.empty() && has_command_ && lookahead_.front().row != command_.row;
  const bool rests = bank.write_over <= now_;
  BankState next = state_;
  bool others = false;
  switch (state_) {
    case BankState::kRegular:
      if (refresh) {
        next = BankState::kRefresh;
      } else if (has_command_) {
        if (!bank.open) {
          next = BankState::kActivate;
        } else if (bank.row != command_.row) {
          next = BankState::kPrecharge;
        } else if (moved && row_differs) {
          next = BankState::kAutoPrecharge;
        }
      }
      break;
    case BankState::kPrecharge:
      bank.open = false;
      if (done) next = BankState::kRp;
      break;
    case BankState::kAutoPrecharge:
      bank.open = false;
      if (rests && bank.row_over <= now_) next = BankState::kRp;
      break;
    case BankState::kActivate:
      if (bank.cycle_over <= now_) {
        bank.open = true;
        bank.row = command_.row;
      }
      if (done) next = BankState::kRcd;
      break;
    case BankState::kRp:
      if (--state_left_ == 0) next = BankState::kActivate;
      break;
    case BankState::kRcd:
      if (--state_left_ == 0) next = BankState::kRegular;
      break;
    case BankState::kRefresh:
      bank.open = false;
      if (!refresh) next = BankState::kRegular;
      break;
  }
  others = refresh;
  const bool in_refresh = state_ == BankState::kRefresh && rests && others_refresh_;
  bool go_to_refresh = in_refresh;
  if (others_refresh_) {
    for (Bank& other : banks_) {
      go_to_refresh = go_to_refresh && other.write_over <= now_;
      if (&other != &bank) other.open = false;
    }
  }
  if (next == BankState::kRp && state_ != BankState::kRp) {
    state_left_ = spec_.t_rp - 1;
    if (state_left_ == 0) next = BankState::kActivate;
  }
  if (next == BankState::kRcd && state_ != BankState::kRcd) {
    state_left_ = spec_.t_rcd - 1;
    if (state_left_ == 0) next = BankState::kRegular;
  }

  // ---- the multiplexer's state
  Mux mux = mux_;
  switch (mux_) {
    case Mux::kRead:
      if (kind == Kind::kWrite) {
        mux = spec_.read_latency > 1 ? Mux::kToWrite : Mux::kWrite;
        to_write_left_ = spec_.read_latency - 1;
      }
      if (go_to_refresh) mux = Mux::kRefresh;
      break;
    case Mux::kWrite:
      if (kind == Kind::kRead) mux = Mux::kToRead;
      if (go_to_refresh) mux = Mux::kRefresh;
      break;
    case Mux::kToRead:
      if (turn_over_ <= now_) mux = Mux::kRead;
      break;
    case Mux::kToWrite:
      if (--to_write_left_ == 0) mux = Mux::kWrite;
      break;
    case Mux::kRefresh:
      if (refresh_done) mux = Mux::kRead;
      break;
  }
  if (mux != mux_) counters_.turns += mux == Mux::kToRead || mux == Mux::kToWrite ? 1 : 0;

  // ---- times
  window_free_ = std::popcount(activates_) < 3 || (std::popcount(activates_) == 3 && !activated) ||
                 (std::popcount(activates_) > 3 && window_free_);
  if (spec_.t_faw > 0) {
    activates_ = (activates_ << 1 | (activated ? 1 : 0)) & ((uint64_t{1} << spec_.t_faw) - 1);
  }
  if (activated) {
    activate_over_ = now_ + cycles(spec_.t_rrd);
    bank.cycle_over = now_ + cycles(spec_.t_rc);
    bank.row_over = now_ + cycles(spec_.t_ras);
  }
  if (moved) {
    column_over_ = now_ + cycles(spec_.t_ccd);
    if (kind == Kind::kWrite) {
      bank.write_over = now_ + cycles(spec_.write_cas + spec_.t_wr + spec_.t_ccd);
      turn_over_ = now_ + cycles(spec_.t_wtr + spec_.write_cas + spec_.t_ccd);
      writes_asked_ |= uint64_t{1} << spec_.write_latency;
    } else {
      reads_come_ |= uint64_t{1} << spec_.read_latency;
    }
  }

  // ---- refresh
  const bool start = refresh_ == Refresh::kWaits && mux_ == Mux::kRefresh;
  if (start) {
    refresh_ = Refresh::kRuns;
    refresh_over_ = now_ + cycles(spec_.t_rp + spec_.t_rfc) + 1;
    ++counters_.refreshes;
  } else if (refresh_done) {
    refresh_ = Refresh::kIdle;
  } else if (refresh_ == Refresh::kIdle && refresh_wanted_) {
    refresh_ = Refresh::kWaits;
  }
  refresh_wanted_ = refresh_timer_ == 0;
  refresh_timer_ = refresh_timer_ == 0 ? cycles(spec_.t_refi) - 1 : refresh_timer_ - 1;

  // ---- the queues
  state_ = next;
  others_refresh_ = others;
  mux_ = mux;
  const bool loads = !lookahead_.empty() && (!has_command_ || moved);
  if (moved) has_command_ = false;
  if (loads) {
    command_ = lookahead_.front();
    lookahead_.pop_front();
    has_command_ = true;
  }
  if (offered && accepted) {
    lookahead_.push_back(command);
    active_ = command.bank;
  }
}

bool DramController::quiet() const {
  return !ar_.valid && !aw_.valid && read_data_.level() == 0 && write_data_.level() == 0 && reads_reserved_ == 0 &&
         write_beats_.empty() && write_words_.empty() && !announced_ && !joined_ && responses_ == 0 && !splitting_ &&
         !read_whole_ && writes_asked_ == 0 && reads_come_ == 0 && lookahead_.empty() && !has_command_ &&
         state_ == BankState::kRegular && !others_refresh_ && (mux_ == Mux::kRead || mux_ == Mux::kWrite) &&
         activates_ == 0 && refresh_ == Refresh::kIdle && !refresh_wanted_;
}

void DramController::skip(uint64_t cycles) {
  now_ += cycles;
  refresh_timer_ -= cycles;
}

}  // namespace tessera::sim
