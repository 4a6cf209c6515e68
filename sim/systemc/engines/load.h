// SPDX-License-Identifier: Apache-2.0
// LOAD of isa/timing.md: the data side behind the walk. Runs wait in a queue; padding writes groups by itself, other
// runs with their beats.
#pragma once

#include <vector>

#include "sim/systemc/engines/transfer.h"
#include "sim/systemc/ring.h"

namespace tessera::sim::systemc {

class Load : public Transfer {
 public:
  Load(sc_core::sc_module_name name, Context& context, Npu& npu) : Transfer(name, isa::Engine::kLoad, context, npu) {}
  void reset() override;

  /// Others use a port in another share.
  void port_changed(Port port) {
    if (padding_.active && pieces_.front().port == port) wake();
  }

  Ready ready(const Burst& burst) const override;
  Cycle kept(const Burst& burst) const override;
  void begun(const Burst& burst, Cycle at, double beat_cycles) override;

 protected:
  void work(Cycle now) override;
  Cycle emit_from(const Run& run, Cycle ready) override;
  Cycle join_from(Cycle ready) override;
  bool joins() const override { return true; }
  void emitted(const Run& run, Cycle at, bool moves) override;
  void joined(const Run& run, Cycle at) override;
  void moved(Burst& burst, bool error, Cycle at) override;

 private:
  struct Piece {
    uint32_t groups;
    uint32_t refused;  // cycles in which TABLE does not take them
    uint32_t beats;
    uint32_t prime;  // cycles between the first beat and the first group
    uint32_t tail;   // cycles behind the last beat
    Cycle emitted;
    Port port;
    bool keeps;  // the run before leaves its last beat in the queue for this one
    bool pad;    // or all that it takes is a beat of the run before
    bool none;
    bool last;
    bool taken = false;    // out of the queue
    bool follows = false;  // behind a piece of the same run
    uint32_t joined = 0;   // runs that joined it and have not left the queue
    uint32_t moved = 0;    // beats of the bursts that have moved
  };
  /// What stands at the front and needs no beats is written; the next run leaves the queue.
  void drain(Cycle now) {
    if (!pieces_.empty() && (pieces_.front().pad || !pieces_.front().taken || pieces_.front().follows))
      drain_front(now);
  }
  void drain_front(Cycle now);
  Piece& push(const Run& run, Cycle at, uint32_t groups);
  void leave_queue(Cycle at) { left_queue_[left_++ & (left_queue_.size() - 1)] = at; }
  void written(Cycle from, Cycle boundary);
  void finish_instruction(Cycle at, bool error);

  /// A run that joined the one before.
  struct Joined {
    uint32_t before;  // beats in front of its own
    Cycle emitted;
  };
  /// The burst in hand, as its beats will move if nothing holds them up.
  struct Moving {
    Cycle seen = 0;  // its first beat
    uint32_t beats = 0;
    double beat_cycles = 1;
  };
  void joined_leave();

  Ring<Piece> pieces_;
  Ring<Joined> joined_;   // in the queue
  Moving moving_;         // of the piece at the front
  uint64_t emitted_ = 0;  // runs so far
  // When runs left the queue: of run n in place n modulo the places, of which there are at least those of the queue.
  std::vector<Cycle> left_queue_;
  uint64_t left_ = 0;  // runs that have left it
  uint64_t queue_places_ = 0;
  Cycle free_ = 0;      // boundary of the last group
  Cycle begun_ = 0;     // the first beat of the run in hand has been seen
  double blocked_ = 0;  // cycles that the port has cost the run in hand
  bool error_ = false;
  bool draining_ = false;
  /// Padding that is being written beside an engine that is served first.
  struct Padding {
    bool active = false;
    Cycle from = 0;   // first cycle
    Cycle since = 0;  // settled up to here
    double left = 0;  // groups
    double rate = 0;
  };
  bool pad(Cycle now);
  Cycle padding_end() const;
  void stalled(Cycle cycles);
  uint32_t refusals() const;
  uint32_t held(uint32_t beats) const;
  void share_inp(Port port, double share);
  Padding padding_;
  double ahead_ = 0;      // of one more group, that the port has had time for since the last boundary
  bool overdue_ = false;  // padding is written at once: beats behind it have come
};

Port load_port(isa::Space space);

}  // namespace tessera::sim::systemc
