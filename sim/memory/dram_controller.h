// SPDX-License-Identifier: Apache-2.0
// The time of a DRAM behind LiteDRAM's controller and its AXI port, one cycle at a time and without data. Enters: what
// an AXI4 master drives in a cycle. Leaves: what the port answers in the same cycle. Every answer depends on state
// only.
//
// From the port to the parts:
// - Bursts. One read and one write burst are in the port. Each turns into commands of one word; reads are limited by
// the
//   place for their data, writes by the data that have come. Reads and writes take turns by bursts.
// - Widths. A port wider than a command's data splits each of its words, which costs a cycle a word. A narrower one is
//   widened as AXI upsizers do: a burst takes the words that it touches, once each.
// - Banks. Commands wait in the queue of their bank. While one bank holds commands, no command goes to another. A bank
//   keeps its row open until a command wants another row, and closes it at once where it sees that coming.
// - Multiplexer. Reads or writes, not both; it turns when the next command is of the other kind. LiteDRAM's timeouts
//   against starvation choose between banks that want different things; behind one port, one bank at a time wants any.
// - Refresh. Every t_refi cycles all banks come to a stop, all rows are closed, and t_rp + t_rfc cycles pass.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <vector>

#include "isa/dram.h"

namespace tessera::sim {

class DramController {
 public:
  /// What the master drives. A write burst must be offered in the cycle of its first beat or earlier, as `aw_valid`.
  struct Inputs {
    bool ar_valid = false;
    uint64_t ar_address = 0;
    int ar_beats = 1;
    bool r_ready = false;
    bool aw_valid = false;
    uint64_t aw_address = 0;
    int aw_beats = 1;
    bool w_valid = false;
    bool b_ready = false;
  };
  struct Outputs {
    bool ar_ready, r_valid, aw_ready, w_ready, b_valid;
  };
  /// Where the cycles went, since the last restart().
  struct Counters {
    uint64_t commands = 0;  // words moved
    uint64_t rows = 0;      // rows opened
    uint64_t turns = 0;     // from reads to writes or back
    uint64_t refreshes = 0;
    uint64_t row_cycles = 0;      // in which commands waited for a row
    uint64_t turn_cycles = 0;     // in which they waited for a turn of the bus
    uint64_t refresh_cycles = 0;  // in which they waited for a refresh
  };

  /// Device addresses count from `address`; `beat_bytes` is the width of the port, a power of two up to 64.
  DramController(const isa::DramSpec& spec, uint64_t address, int beat_bytes);

  /// As after a reset: no bursts, no open rows, a whole refresh interval to go.
  void restart();
  /// The answers of this cycle.
  Outputs outputs() const;
  /// Ends the cycle.
  void clock(const Inputs& inputs);

  /// Whether nothing but the refresh timer is at work; then up to quiet_cycles() cycles without a burst may be skipped.
  bool quiet() const;
  uint64_t quiet_cycles() const { return refresh_timer_; }
  void skip(uint64_t cycles);

  uint64_t now() const { return now_; }
  const Counters& counters() const { return counters_; }

 private:
  /// A burst in the port, as words of the port.
  struct Burst {
    bool valid = false;
    uint64_t word = 0;
    int words = 0;
    int done = 0;
  };
  /// Beats of a burst in words that the port is too narrow for.
  struct Beats {
    int left;   // beats
    int place;  // of the next beat in its word
  };
  /// A queue behind a block RAM: what enters can be taken two cycles later.
  struct Fifo {
    int inner = 0;
    bool out = false;
    bool writable(int depth) const { return inner != depth; }
    int level() const { return inner + (out ? 1 : 0); }
    void clock(bool push, bool pop) {
      const bool moves = inner > 0 && (!out || pop);
      inner += (push ? 1 : 0) - (moves ? 1 : 0);
      out = moves || (out && !pop);
    }
  };
  struct Command {
    bool write;
    int bank;
    uint64_t row;
  };
  struct Bank {
    bool open = false;
    uint64_t row = 0;
    uint64_t write_over = 0, row_over = 0, cycle_over = 0;  // t_wr, t_ras, t_rc have passed
  };
  enum class BankState { kRegular, kPrecharge, kAutoPrecharge, kRp, kActivate, kRcd, kRefresh };
  enum class Mux { kRead, kWrite, kRefresh, kToRead, kToWrite };
  enum class Refresh { kIdle, kWaits, kRuns };
  enum class Kind { kNone, kRead, kWrite, kPrecharge, kActivate };

  static constexpr int kBuffer = 16;    // words of data in the port, each way
  static constexpr int kLookahead = 8;  // commands in a bank's queue

  /// The port's request for a command: whether each side has one, whose turn it is, and how far it comes.
  struct Request {
    bool reads = false, writes = false;
    bool read = false, write = false;  // granted, a word of the port
    bool last = false;                 // of its burst
    bool taken = false;
    bool valid = false, accepted = false;  // of a command at the crossbar
    Command command{};
  };
  /// What the active bank wants, and what the multiplexer made of it.
  struct Chosen {
    Kind kind = Kind::kNone;
    bool matches = false;  // the multiplexer's direction
    bool done = false, activated = false, moved = false;
    bool refresh = false, refreshed = false;
  };

  Command command(uint64_t word, bool write) const;
  bool crossbar_takes(const Command& command) const;
  Request request() const;
  bool write_leaves();
  bool read_enters();
  bool write_enters(const Inputs& in, bool ready);
  bool ends_word(std::deque<Beats>& queue) const;
  int enter(Burst& to, uint64_t address, int beats) const;
  void advance(const Request& request);

  Kind wanted(bool refresh) const;
  void clock_banks(const Request& asked);
  Chosen wish() const;
  Chosen choose();
  void count(const Chosen& chosen);
  bool others_rest();
  BankState lasting(BankState state, int cycles, BankState then);
  BankState next_state(const Chosen& chosen);
  BankState next_regular(const Chosen& chosen, const Bank& bank) const;
  Mux next_mux(const Chosen& chosen, bool stops);
  void book(const Chosen& chosen);
  void clock_refresh(const Chosen& chosen);

  isa::DramSpec spec_;
  uint64_t address_;
  int beat_bytes_;
  int split_ = 1;  // commands of a word of the port
  int join_ = 1;   // beats of a command
  uint64_t now_ = 0;
  Counters counters_;

  // The port.
  Burst ar_, aw_;
  bool read_granted_ = false;
  int reads_reserved_ = 0, writes_sent_ = 0;
  Fifo read_data_, write_data_;
  std::deque<Beats> read_beats_;   // of the bursts whose data have not all left, where beats are joined
  std::deque<Beats> write_beats_;  // of those whose data have not all come
  std::deque<int> write_words_;    // of the bursts whose data have not all gone
  bool announced_ = false;         // the burst at the port is in write_beats_ and write_words_
  bool joined_ = false;            // a word has been put together
  int responses_ = 0;

  // Splitting.
  bool splitting_ = false, split_write_ = false;
  uint64_t split_word_ = 0;
  int split_count_ = 0, write_part_ = 0, read_part_ = 0;
  bool read_whole_ = false;

  // The way to the parts and back.
  uint64_t writes_asked_ = 0, reads_come_ = 0;  // bit n: in n cycles

  // The bank that holds commands, and what the others need.
  std::deque<Command> lookahead_;
  bool has_command_ = false;
  Command command_{};
  int active_ = 0;
  BankState state_ = BankState::kRegular;
  int state_left_ = 0;
  bool others_refresh_ = false;
  std::vector<Bank> banks_;

  // The multiplexer.
  Mux mux_ = Mux::kRead;
  int to_write_left_ = 0;
  int granted_data_ = 0, granted_row_ = 0;
  uint64_t column_over_ = 0, turn_over_ = 0, activate_over_ = 0;
  uint64_t activates_ = 0;  // bit n: n + 1 cycles ago
  bool window_free_ = true;

  // Refresh.
  uint64_t refresh_timer_ = 0;
  bool refresh_wanted_ = false;
  Refresh refresh_ = Refresh::kIdle;
  uint64_t refresh_over_ = 0;
};

}  // namespace tessera::sim
