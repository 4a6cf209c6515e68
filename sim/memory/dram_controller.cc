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
bool DramController::crossbar_takes(const Command& command) const {
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

/// What the port asks of the crossbar in this cycle, and what that takes.
DramController::Request DramController::request() const {
  Request r;
  r.reads = ar_.valid && reads_reserved_ != kBuffer;
  r.writes = aw_.valid && write_data_.level() > writes_sent_;
  r.read = read_granted_ && r.reads;
  r.write = !read_granted_ && r.writes;
  const Burst& burst = r.read ? ar_ : aw_;
  r.last = (r.read || r.write) && burst.done + 1 == burst.words;
  if (split_ > 1) {
    r.valid = splitting_;
    const uint64_t first = split_word_ * static_cast<uint64_t>(split_);
    if (splitting_) r.command = command(first + static_cast<uint64_t>(split_count_), split_write_);
  } else if (r.read || r.write) {
    r.valid = true;
    r.command = command(burst.word, r.write);
  }
  r.accepted = r.valid && crossbar_takes(r.command);
  r.taken = (r.read || r.write) && (split_ > 1 ? !splitting_ : r.accepted);
  return r;
}

DramController::Outputs DramController::outputs() const {
  const Request r = request();
  Outputs out{};
  // A burst leaves its place with its last command.
  out.ar_ready = !ar_.valid || (r.read && r.taken && r.last);
  out.aw_ready = !aw_.valid || (r.write && r.taken && r.last);
  out.r_valid = read_data_.out;
  out.w_ready = (join_ > 1 && !joined_) || write_data_.writable(kBuffer);
  out.b_valid = responses_ > 0;
  return out;
}

/// A word of the port goes to the parts, when they ask for it; its burst may be answered then.
bool DramController::write_leaves() {
  if ((writes_asked_ & 1) == 0 || !write_data_.out) return false;
  if (++write_part_ < split_) return false;
  write_part_ = 0;
  if (!write_words_.empty() && --write_words_.front() == 0) {
    write_words_.pop_front();
    ++responses_;
  }
  return true;
}

/// A word of the port has come from the parts. Where it is put together that takes a cycle.
bool DramController::read_enters() {
  const bool comes = (reads_come_ & 1) != 0;
  if (split_ == 1) return comes;
  const bool whole = read_whole_;
  read_whole_ = comes && ++read_part_ == split_;
  if (read_whole_) read_part_ = 0;
  return whole;
}

/// Whether a beat is the last of its word; it moves on.
bool DramController::ends_word(std::deque<Beats>& queue) const {
  if (join_ == 1 || queue.empty()) return true;
  Beats& beats = queue.front();
  const bool last = --beats.left == 0;
  const bool ends = last || ++beats.place == join_;
  if (ends) beats.place = 0;
  if (last) queue.pop_front();
  return ends;
}

/// The master's write beat; whether a word enters the port's data.
bool DramController::write_enters(const Inputs& in, bool ready) {
  if (in.aw_valid && !announced_) {
    const uint64_t first = (in.aw_address - address_) / static_cast<uint64_t>(beat_bytes_);
    const auto place = static_cast<int>(first % static_cast<uint64_t>(join_));
    if (join_ > 1) write_beats_.push_back({in.aw_beats, place});
    write_words_.push_back((place + in.aw_beats + join_ - 1) / join_);
    announced_ = true;
  }
  const bool beat = in.w_valid && ready;
  if (join_ == 1) return beat;
  const bool moves = joined_ && write_data_.writable(kBuffer);
  const bool whole = beat && ends_word(write_beats_);
  joined_ = whole || (joined_ && !moves);
  return moves;
}

/// A burst takes the port's place for it; the place of its first beat in its word.
int DramController::enter(Burst& to, uint64_t address, int beats) const {
  const uint64_t first = (address - address_) / static_cast<uint64_t>(beat_bytes_);
  const uint64_t last = first + static_cast<uint64_t>(beats) - 1;
  const auto join = static_cast<uint64_t>(join_);
  to = {true, first / join, static_cast<int>(last / join - first / join) + 1, 0};
  return static_cast<int>(first % join);
}

/// The port moves on by what has been taken of it.
void DramController::advance(const Request& r) {
  Burst& burst = r.read ? ar_ : aw_;
  if (splitting_) {
    if (r.accepted && ++split_count_ == split_) splitting_ = false;
  } else if (split_ > 1 && r.taken) {
    splitting_ = true;
    split_count_ = 0;
    split_word_ = burst.word;
    split_write_ = r.write;
  }
  const bool passes = (!r.read && !r.write) || (r.taken && r.last);
  if (passes && (read_granted_ ? r.writes : r.reads)) read_granted_ = !read_granted_;
  if (!r.taken) return;
  (r.read ? reads_reserved_ : writes_sent_) += 1;
  ++burst.word;
  if (++burst.done == burst.words) burst.valid = false;
}

void DramController::clock(const Inputs& in) {
  const Outputs out = outputs();
  const Request asked = request();
  responses_ -= out.b_valid && in.b_ready ? 1 : 0;
  const bool write_left = write_leaves();
  const bool read_entered = read_enters();
  const bool read_left = out.r_valid && in.r_ready && ends_word(read_beats_);
  const bool write_entered = write_enters(in, out.w_ready);
  writes_asked_ >>= 1;
  reads_come_ >>= 1;
  clock_banks(asked);
  advance(asked);
  reads_reserved_ -= read_left ? 1 : 0;
  writes_sent_ -= write_left ? 1 : 0;
  read_data_.clock(read_entered, read_left);
  write_data_.clock(write_entered, write_left);
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

void DramController::clock_banks(const Request& asked) {
  const Chosen chosen = choose();
  count(chosen);
  const bool rests = banks_[static_cast<size_t>(active_)].write_over <= now_;
  const bool stops = state_ == BankState::kRefresh && rests && others_rest();
  const BankState state = next_state(chosen);
  const Mux mux = next_mux(chosen, stops);
  counters_.turns += mux != mux_ && (mux == Mux::kToRead || mux == Mux::kToWrite) ? 1 : 0;
  book(chosen);
  clock_refresh(chosen);
  state_ = state;
  mux_ = mux;
  others_refresh_ = chosen.refresh;
  const bool loads = !lookahead_.empty() && (!has_command_ || chosen.moved);
  if (chosen.moved) has_command_ = false;
  if (loads) {
    command_ = lookahead_.front();
    lookahead_.pop_front();
    has_command_ = true;
  }
  if (asked.accepted) {
    lookahead_.push_back(asked.command);
    active_ = asked.command.bank;
  }
}

/// What the active bank wants, beside the refresh, and whether it is in the multiplexer's direction.
DramController::Chosen DramController::wish() const {
  Chosen c;
  c.refreshed = refresh_ == Refresh::kRuns && now_ == refresh_over_;
  c.refresh = refresh_ == Refresh::kWaits || (refresh_ == Refresh::kRuns && !c.refreshed);
  c.kind = wanted(c.refresh);
  c.matches = (c.kind == Kind::kRead && mux_ == Mux::kRead) || (c.kind == Kind::kWrite && mux_ == Mux::kWrite);
  return c;
}

/// What the multiplexer takes of the active bank. It has an arbiter for data and, where a cycle has several clocks of
/// the DRAM, another one for rows; each needs a cycle to turn to another bank.
DramController::Chosen DramController::choose() {
  Chosen c = wish();
  const bool moves = mux_ == Mux::kRead || mux_ == Mux::kWrite;
  const bool columns_free = column_over_ <= now_;
  const bool row_free = c.kind != Kind::kActivate || (activate_over_ <= now_ && window_free_);
  const bool row = c.kind == Kind::kPrecharge || c.kind == Kind::kActivate;
  bool done = false;
  const auto arbitrate = [&](int& granted, bool valid, bool ready) {
    const bool chosen = valid && granted == active_;
    done = done || (chosen && ready);
    if ((!chosen || ready) && valid) granted = active_;
  };
  if (spec_.phases == 1) {
    arbitrate(granted_data_, c.matches || (row && (row_free || !moves)), moves && columns_free && row_free);
  } else {
    arbitrate(granted_data_, c.matches || (row && !moves), moves && columns_free);
    arbitrate(granted_row_, row, moves && row_free);
  }
  c.done = done;
  c.activated = done && c.kind == Kind::kActivate;
  c.moved = done && (c.kind == Kind::kRead || c.kind == Kind::kWrite);
  return c;
}

void DramController::count(const Chosen& c) {
  counters_.commands += c.moved ? 1 : 0;
  counters_.rows += c.activated ? 1 : 0;
  if (!has_command_ || c.moved) return;
  const bool data = c.kind == Kind::kRead || c.kind == Kind::kWrite;
  if (c.refresh || state_ == BankState::kRefresh) {
    ++counters_.refresh_cycles;
  } else if (!data) {
    ++counters_.row_cycles;
  } else if (!c.matches) {
    ++counters_.turn_cycles;
  }
}

/// Whether the banks beside the active one let a refresh begin; their rows are closed then.
bool DramController::others_rest() {
  if (!others_refresh_) return false;
  bool rest = true;
  for (Bank& other : banks_) {
    rest = rest && other.write_over <= now_;
    if (&other != &banks_[static_cast<size_t>(active_)]) other.open = false;
  }
  return rest;
}

/// A state that lasts `cycles`, or the one behind it where there are none.
DramController::BankState DramController::lasting(BankState state, int cycles, BankState then) {
  state_left_ = cycles;
  return cycles > 0 ? state : then;
}

/// The active bank's next state; its row is opened or closed.
DramController::BankState DramController::next_state(const Chosen& c) {
  Bank& bank = banks_[static_cast<size_t>(active_)];
  const auto closing = [&](bool over) {
    bank.open = false;
    return over ? lasting(BankState::kRp, spec_.t_rp - 1, BankState::kActivate) : state_;
  };
  switch (state_) {
    case BankState::kRegular: return next_regular(c, bank);
    case BankState::kPrecharge: return closing(c.done);
    case BankState::kAutoPrecharge: return closing(bank.write_over <= now_ && bank.row_over <= now_);
    case BankState::kActivate:
      if (bank.cycle_over <= now_) {
        bank.open = true;
        bank.row = command_.row;
      }
      return c.done ? lasting(BankState::kRcd, spec_.t_rcd - 1, BankState::kRegular) : state_;
    case BankState::kRp: return --state_left_ == 0 ? BankState::kActivate : state_;
    case BankState::kRcd: return --state_left_ == 0 ? BankState::kRegular : state_;
    case BankState::kRefresh: bank.open = false; return c.refresh ? state_ : BankState::kRegular;
  }
  return state_;
}

DramController::BankState DramController::next_regular(const Chosen& c, const Bank& bank) const {
  if (c.refresh) return BankState::kRefresh;
  if (!has_command_) return state_;
  if (!bank.open) return BankState::kActivate;
  if (bank.row != command_.row) return BankState::kPrecharge;
  const bool row_differs = !lookahead_.empty() && lookahead_.front().row != command_.row;
  return c.moved && row_differs ? BankState::kAutoPrecharge : state_;
}

DramController::Mux DramController::next_mux(const Chosen& c, bool stops) {
  switch (mux_) {
    case Mux::kRead:
      if (stops) return Mux::kRefresh;
      if (c.kind != Kind::kWrite) return mux_;
      to_write_left_ = spec_.read_latency - 1;
      return to_write_left_ > 0 ? Mux::kToWrite : Mux::kWrite;
    case Mux::kWrite:
      if (stops) return Mux::kRefresh;
      return c.kind == Kind::kRead ? Mux::kToRead : mux_;
    case Mux::kToRead: return turn_over_ <= now_ ? Mux::kRead : mux_;
    case Mux::kToWrite: return --to_write_left_ == 0 ? Mux::kWrite : mux_;
    case Mux::kRefresh: return c.refreshed ? Mux::kRead : mux_;
  }
  return mux_;
}

/// The times that begin with what was chosen.
void DramController::book(const Chosen& c) {
  const auto in = [&](int cycles) { return now_ + static_cast<uint64_t>(cycles); };
  Bank& bank = banks_[static_cast<size_t>(active_)];
  const int activates = std::popcount(activates_);
  if (activates <= 3) window_free_ = activates < 3 || !c.activated;
  if (spec_.t_faw > 0) {
    activates_ = (activates_ << 1 | (c.activated ? 1 : 0)) & ((uint64_t{1} << spec_.t_faw) - 1);
  }
  if (c.activated) {
    activate_over_ = in(spec_.t_rrd);
    bank.cycle_over = in(spec_.t_rc);
    bank.row_over = in(spec_.t_ras);
  }
  if (!c.moved) return;
  column_over_ = in(spec_.t_ccd);
  if (c.kind == Kind::kWrite) {
    bank.write_over = in(spec_.write_cas + spec_.t_wr + spec_.t_ccd);
    turn_over_ = in(spec_.t_wtr + spec_.write_cas + spec_.t_ccd);
    writes_asked_ |= uint64_t{1} << spec_.write_latency;
  } else {
    reads_come_ |= uint64_t{1} << spec_.read_latency;
  }
}

void DramController::clock_refresh(const Chosen& c) {
  if (refresh_ == Refresh::kWaits && mux_ == Mux::kRefresh) {
    refresh_ = Refresh::kRuns;
    refresh_over_ = now_ + static_cast<uint64_t>(spec_.t_rp + spec_.t_rfc) + 1;
    ++counters_.refreshes;
  } else if (c.refreshed) {
    refresh_ = Refresh::kIdle;
  } else if (refresh_ == Refresh::kIdle && refresh_wanted_) {
    refresh_ = Refresh::kWaits;
  }
  refresh_wanted_ = refresh_timer_ == 0;
  refresh_timer_ = refresh_wanted_ ? static_cast<uint64_t>(spec_.t_refi) - 1 : refresh_timer_ - 1;
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
