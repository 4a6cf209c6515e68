// SPDX-License-Identifier: Apache-2.0
// The interface between the harness and a verilated machine, in plain C types, so that a machine may be linked in or
// loaded from a library that was built later. The harness fills the inputs of TesseraRtlPins; cycle() makes one clock
// cycle of them and fills the outputs with what the machine drives in the next one. Outputs of the bus depend on state
// only, so memory can answer them in the same cycle. A machine of several cores is two models, the core and the
// interconnect: the harness makes as many cores as it needs.
#pragma once

#include <cstddef>
#include <cstdint>

/// Counts up whenever a structure or the meaning of a member changes.
inline constexpr uint32_t kTesseraRtlApiVersion = 5;

extern "C" {

/// Cores on several threads share no line of a cache.
struct alignas(64) TesseraRtlPins {
  // Inputs: reset, the memory's answers, the AXI4-Lite master.
  uint8_t reset;
  uint8_t ar_ready, r_valid, r_error, r_last, aw_ready, w_ready, b_valid, b_error;
  const uint8_t* r_data;      // a beat, with r_valid
  uint8_t s_address, s_data;  // the halves of a write are offered
  uint8_t s_read;
  uint8_t s_hold;  // responses are not taken
  uint32_t s_write_address, s_write_data, s_read_address;
  // Inputs of one of several cores.
  uint8_t clear, all_rest;
  const uint16_t* counters;  // the public counters by core
  // Outputs: the bus, the slave's answers.
  uint8_t ar_valid, r_ready, aw_valid, w_valid, b_ready;
  uint8_t ar_length, aw_length;  // beats - 1
  uint64_t ar_address, aw_address, w_strobe;
  const uint8_t* w_data;  // a beat
  uint8_t s_written, s_read_valid, interrupt;
  uint32_t s_read_data;
  // Outputs that an interconnect wants of a core.
  uint8_t w_last, s_read_ready, idle, fault, rest;
  uint16_t counter;       // its public counter
  uint16_t next_counter;  // and in the next cycle, unless reset or `clear` make it 0
};

/// What happens inside in one cycle; bit e of a mask is engine e, bit 4 FETCH.
struct TesseraRtlProbe {
  uint8_t run;         // a program runs in this cycle
  uint8_t queued;      // FETCH puts instruction queued_pc into this queue
  uint8_t issued;      // the head of this queue is taken
  uint8_t completed;   // the oldest instruction inside completes
  uint8_t faulted;     // with a fault
  uint8_t busy;        // a tile, vector or beat
  uint8_t waiting[5];  // the head's first condition that does not hold is on this engine
  uint8_t stall_memory;
  uint8_t stall_port;
  uint8_t finished;       // FINISH is executed
  uint8_t read_granted;   // the arbiter takes a read burst
  uint8_t read_fetch;     // of FETCH, else of LOAD
  uint8_t store_granted;  // STORE sends a burst
  uint8_t store_length;   // of so many beats, less 1
  uint32_t queued_pc;
  uint32_t head_pc[4];
  uint32_t completed_pc[4];
  uint32_t store_pc;
};

/// Where the model keeps a memory: word n begins at data + n * stride_bytes. Bit b of the word at parity + n *
/// parity_stride_bytes belongs to byte b, in a machine with parity; in others there is nothing.
struct TesseraRtlMemory {
  uint8_t* data;
  size_t stride_bytes;
  size_t words;
  uint8_t* parity;
  size_t parity_stride_bytes;
};

/// The interconnect of a machine of several cores.
struct TesseraRtlInterconnectApi {
  uint32_t cores;
  void* (*create)();
  void (*destroy)(void* model);
  /// One clock cycle. `pins`: the chip's own, inputs and outputs. `from`: what each core drives in this cycle. `to`:
  /// the inputs of each core in the next one, but for `counters`; its data stay until the call after the next.
  void (*cycle)(void* model, TesseraRtlPins* pins, const TesseraRtlPins* from, TesseraRtlPins* to);
};

struct TesseraRtlApi {
  uint32_t version;  // kTesseraRtlApiVersion
  uint32_t traces;   // waveforms are compiled in
  void* (*create)();
  void (*destroy)(void* model);
  /// One clock cycle.
  void (*cycle)(void* model, TesseraRtlPins* pins);
  /// The same, and what happened in it. Slower.
  void (*cycle_probed)(void* model, TesseraRtlPins* pins, TesseraRtlProbe* probe);
  /// INP, WGT, ACC, OUT, PARAM, TABLE by isa::Space.
  TesseraRtlMemory (*memory)(void* model, int space);
  /// Writes waveforms of all further cycles to a file; nothing without `traces`.
  void (*open_waves)(void* model, const char* path);
  /// Of several cores, of which this is one; else null.
  const TesseraRtlInterconnectApi* interconnect;
};

}  // extern "C"
