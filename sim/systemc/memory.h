// SPDX-License-Identifier: Apache-2.0
// The bus and DRAM of isa/timing.md. Enters: bursts of FETCH, LOAD (reads) and STORE (writes) through TLM-2.0 sockets.
// Leaves: for each burst the cycle in which the arbiter took it (END_REQ) and in which its last beat came, or its
// response (BEGIN_RESP). Method: reads and writes are two servers that share the data bus; a server's current burst has
// a rate that holds until something changes (a burst begins or ends on the other side, a port gets busy), then what has
// been done is settled and the rest planned anew. Behind a real DRAM (sim/memory/dram_controller.h) nothing holds for
// long: its controller is stepped cycle by cycle while anything is under way, one cycle behind the engines' turns, so
// that all that they do in a cycle is known. A core of a chip has an interconnect in the place of DRAM
// (interconnect.h), and the chip steps both.
#pragma once

#include <tlm_utils/multi_passthrough_target_socket.h>
#include <systemc>
#include <tlm>

#include <functional>
#include <optional>

#include "sim/memory/dram_controller.h"
#include "sim/systemc/context.h"
#include "sim/systemc/ring.h"

namespace tessera::sim::systemc {

struct Burst;

/// The engine's end of a burst: when it can take or give beats.
class BeatSide {
 public:
  virtual ~BeatSide() = default;
  struct Ready {
    Cycle first_beat;  // the earliest bus cycle of the burst's first beat, as far as the engine is concerned
    Port port;         // through which the engine moves the beats
    double moves = 1;  // of the port for each beat
    Cycle turns = 1;   // of the engine for each beat, behind those that the queue takes
    double ahead = 0;  // of the port's share for the first beat, less than one, has passed; unless it follows a burst
  };
  /// Of the burst in front of its side of the bus.
  virtual Ready ready(const Burst& burst) const = 0;
  /// Its first beat moves in cycle `at`, one more every `beat_cycles` if nothing holds them up.
  virtual void begun(const Burst&, Cycle /*at*/, double /*beat_cycles*/) {}
  /// Of a read: for so long the engine leaves the last beat in the queue behind its own use of it.
  virtual Cycle kept(const Burst&) const { return 0; }
  /// Of a write: its last beat has moved, its boundary is known. The response comes later.
  virtual void gone(Burst&) {}
};

/// What a transaction carries beside address and length. Data do not travel: the functional executor moves them.
struct Burst : tlm::tlm_extension<Burst> {
  isa::Unit unit = isa::Unit::kFetch;
  bool write = false;
  uint64_t address = 0;
  uint32_t beats = 1;
  bool run_first = false;  // of its run
  bool run_last = false;
  bool grows = false;  // more beats join it soon
  bool ends = false;   // the last of its instruction
  uint64_t tag = 0;    // the initiator's
  BeatSide* side = nullptr;
  tlm::tlm_generic_payload* payload = nullptr;  // that carries it
  Cycle offered = 0;   // at the arbiter from this cycle on; it may have passed when that shows only now
  Cycle granted = 0;   // taken by the arbiter
  Cycle first = 0;     // first beat on the bus
  Cycle boundary = 0;  // after the last beat on the bus
  Cycle response = 0;  // of writes
  double blocked = 0;  // cycles that the engine's port has cost
  double ahead = 0;    // of one more beat, that its cycles would have had room for

  tlm_extension_base* clone() const override { return new Burst(*this); }
  void copy_from(const tlm_extension_base& other) override { *this = static_cast<const Burst&>(other); }
};

/// A transaction with its extension; initiators keep theirs in a pool.
struct BurstTransaction {
  tlm::tlm_generic_payload payload;
  Burst burst;
  BurstTransaction() {
    payload.set_extension(&burst);
    burst.payload = &payload;
  }
  ~BurstTransaction() { payload.clear_extension(&burst); }
};

class Memory : public sc_core::sc_module, public Process {
 public:
  Memory(sc_core::sc_module_name name, Context& context);

  /// Bound in the order FETCH, LOAD, STORE.
  tlm_utils::multi_passthrough_target_socket<Memory> socket;

  /// Called when LOAD takes another share of INP's port and the ALU reads INP.
  std::function<void()> load_share_changed;

  void reset();
  /// Engines use a port in another share.
  void port_changed(Port port);
  /// An engine whose beats could not move can go on.
  void poke() {
    if (context_.interconnect != nullptr) return;
    planned_ = 0;
    wake_at(0);
  }
  void step() override;
  /// All reads have been taken by their owners; from the cycle reads_idle_from() on.
  bool reads_idle() const { return reads_.empty() && !offers_[0] && !offers_[1]; }
  Cycle reads_idle_from() const { return reads_idle_from_; }
  /// STORE expects at most so many answers as there are writes in flight: from when on one more has a place, kNever
  /// while there is none. A FENCE takes a place and gives it back.
  Cycle write_place() const { return write_slots_.empty() ? kNever : write_slots_.front(); }
  void take_write_place() { write_slots_.pop_front(); }
  void free_write_place(Cycle at) { write_slots_.push_back(at); }
  /// Of a core of a chip: one cycle of its bus.
  void clock(Cycle cycle) { clock_bus(cycle); }
  /// Nothing is under way: LOAD asks for no port.
  void rest() {
    asked_ = 0;
    share_inp();
  }
  /// The same of a core that has ended: it takes what still comes.
  void drain();
  /// Bursts are under way; else the first one offered, kNever without one.
  bool busy() const;
  Cycle first_offer() const;

  DramController::Counters dram_counters() const { return dram_ ? dram_->counters() : DramController::Counters{}; }

 private:
  tlm::tlm_sync_enum nb_transport_fw(int id, tlm::tlm_generic_payload& payload, tlm::tlm_phase& phase,
                                     sc_core::sc_time& delay);
  unsigned int transport_dbg(int, tlm::tlm_generic_payload&) { return 0; }
  void wake_at(Cycle at) { context_.agenda.ask(Agenda::kMemory, at); }

  struct Server {
    bool active = false;  // beats move
    double left = 0;      // beats of the current burst
    double rate = 0;      // beats a cycle
    Cycle since = 0;      // settled up to here
    Cycle free = 0;       // boundary of the previous burst
    double delay = 0;     // cycles a beat for which the engine is not ready
    double port = 1;      // share of cycles in which the engine's port is free
    Port through = Port::kNone;
    double moves = 1;    // of the port for each beat
    double queued = 0;   // beats that the bus has moved and the port has not; of writes, the port and not the bus
    double fills = 1;    // of writes: beats a cycle that the port can move ahead of the bus
    Cycle taken = 0;     // of reads: when the engine can take the first beat
    bool early = false;  // of reads: its beats wait in the queue by then

    /// A burst begins.
    void begin(double beats, Cycle now, Port its_port, double its_moves) {
      active = true;
      left = beats;
      rate = 0;
      since = now;
      delay = 0;
      taken = now;
      early = false;
      port = 1;
      through = its_port;
      moves = its_moves;
    }
  };

  void grant(Cycle now);
  Cycle uncrowded() const;
  void settle(Cycle now);
  void read_ahead(Cycle now);
  void plan(Cycle now);
  bool begin_read(Cycle now, Cycle& next);
  bool queued_whole(Cycle now, Cycle& next) const;
  void begin_write(Cycle now, Cycle& next);
  void share_bus(bool held);
  void answer_read(Burst& burst, Cycle at);
  void finish_read(Cycle now);
  void finish_write(Cycle now);
  // Behind a real DRAM.
  void follow(Cycle now);
  void clock_bus(Cycle cycle);
  DramController::Outputs bus_outputs() const;
  void drive_bus(const DramController::Inputs& in);
  bool takes_beat(Cycle cycle);
  bool gives_beat(Cycle cycle);
  void grant_cycle(Cycle cycle, bool read_free, bool write_free);
  void beat_taken(Cycle cycle);
  void beat_given(Cycle cycle);
  void share_inp();
  void respond(int id, Burst& burst, tlm::tlm_phase phase, Cycle at);
  bool refused(const Burst& burst) const;
  double cycles_per_beat(const Server& server, PortShares::Who who) const;
  bool plan_holds(Cycle now) const;
  double idle_beats(Cycle now) const;
  double read_demand(Cycle now) const;
  double writes_waiting() const;
  /// Whether a side that moves wants at least every second turn of the bus.
  bool takes_turns(const Server& server) const { return 2 * slot_ * server.rate > 1 - 1e-6; }

  static constexpr Cycle kLookahead = 8;  // bursts are granted this far ahead of their time

  Context& context_;
  std::array<Burst*, 3> offers_{};
  Ring<Burst*> reads_;   // granted
  Ring<Burst*> writes_;  // granted
  Server read_, write_;
  Ring<Cycle> read_slots_;  // when a slot of ReadsInFlight became free, oldest first
  Ring<Cycle> write_slots_;
  Cycle next_read_grant_ = 0;
  Cycle next_write_grant_ = 0;
  Cycle reads_idle_from_ = 0;
  Cycle last_response_ = 0;
  Cycle latency_ = 1;
  double slot_ = 1;       // cycles a beat that DRAM's bandwidth allows
  bool filling_ = false;  // the port is refused, and the queue of beats has room
  Cycle bus_free_ = 0;    // boundary of the last burst of either side
  // Of the last plan: when it ends, and whether it knew a front of each side.
  Cycle planned_ = 0;
  bool planned_read_ = false, planned_write_ = false;
  bool stepping_ = false;

  // A real DRAM, and the registers between it and the engines. In cycle c all cycles before c have been clocked.
  std::optional<DramController> dram_;
  Cycle clocked_ = 0;
  Burst* read_on_bus_ = nullptr;  // address offered
  Burst* write_on_bus_ = nullptr;
  uint32_t beats_waiting_ = 0;  // read beats that their owner has not taken
  uint32_t beats_taken_ = 0;    // of the read in front
  uint32_t beats_given_ = 0;    // of the write in front
  double read_credit_ = 1;      // moves of the port that the engine has had
  double groups_ahead_ = 0;     // read by STORE and not on the bus
  double asked_ = 0;            // moves of INP's second port, of LOAD
  Cycle last_read_ = 0;         // boundary of the read before
  double beat_cycles_ = 1;      // of reads, lately
  Ring<Burst*> unanswered_;     // writes whose beats have moved
};

inline Burst& burst_of(tlm::tlm_generic_payload& payload) { return *payload.get_extension<Burst>(); }

}  // namespace tessera::sim::systemc
