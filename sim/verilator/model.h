// SPDX-License-Identifier: Apache-2.0
// The pins of one verilated configuration. Enters: the class that Verilator made. Leaves: an RtlMachine. Included by the
// generated source of each configuration only. A cycle is two evaluations: inputs and rising edge, falling edge.
#pragma once

#include <cstring>

#include "sim/verilator/machine.h"
#include "verilated.h"

namespace tessera::sim {

template <typename Model>
class RtlModel : public RtlMachine {
 public:
  explicit RtlModel(const isa::MachineConfig& config) : RtlMachine(config), model_(&context_, "top") {
    model_.clk_i = 0;
    model_.rst_ni = 0;
    for (int cycle = 0; cycle < 4; ++cycle) {
      model_.eval();
      model_.clk_i = !model_.clk_i;
    }
    model_.clk_i = 0;
    model_.eval();
    model_.rst_ni = 1;
    model_.eval();
  }

 protected:
  void clock(Slave& slave, DramModel& dram) override {
    DramInputs in;
    in.ar_valid = model_.m_arvalid_o;
    in.ar_address = model_.m_araddr_o;
    in.ar_beats = model_.m_arlen_o + 1;
    in.r_ready = model_.m_rready_o;
    in.aw_valid = model_.m_awvalid_o;
    in.aw_address = model_.m_awaddr_o;
    in.aw_beats = model_.m_awlen_o + 1;
    in.w_valid = model_.m_wvalid_o;
    in.w_data = reinterpret_cast<const uint8_t*>(&model_.m_wdata_o);
    in.w_strobe = model_.m_wstrb_o;
    in.b_ready = model_.m_bready_o;
    const DramOutputs& out = dram.cycle(in);
    model_.m_arready_i = out.ar_ready;
    model_.m_rvalid_i = out.r_valid;
    if (out.r_valid) {
      std::memcpy(&model_.m_rdata_i, out.r_data.data(), sizeof(model_.m_rdata_i));
      model_.m_rresp_i = out.r_error ? 2 : 0;
      model_.m_rlast_i = out.r_last;
    }
    model_.m_awready_i = out.aw_ready;
    model_.m_wready_i = out.w_ready;
    model_.m_bvalid_i = out.b_valid;
    model_.m_bresp_i = out.b_error ? 2 : 0;

    slave.written = model_.s_bvalid_o;
    slave.read_valid = model_.s_rvalid_o;
    slave.read_data = model_.s_rdata_o;
    model_.s_awvalid_i = slave.write;
    model_.s_wvalid_i = slave.write;
    model_.s_awaddr_i = slave.write_address;
    model_.s_wdata_i = slave.write_data;
    model_.s_wstrb_i = 15;
    model_.s_bready_i = 1;
    model_.s_arvalid_i = slave.read;
    model_.s_araddr_i = slave.read_address;
    model_.s_rready_i = 1;

    model_.clk_i = 1;
    model_.eval();
    model_.clk_i = 0;
    model_.eval();
    interrupt_ = model_.interrupt_o;
  }

  template <typename Words>
  static Memory whole(Words& words, size_t entry_bytes, size_t entries) {
    return {reinterpret_cast<uint8_t*>(&words[0]), sizeof(words[0]), entry_bytes, entries};
  }

  VerilatedContext context_;
  Model model_;
};

}  // namespace tessera::sim
