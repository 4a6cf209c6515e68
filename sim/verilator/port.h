// SPDX-License-Identifier: Apache-2.0
// The bus and the register interface of a verilated module, tsr_top or tsr_interconnect, which name their pins alike.
// Enters: what the harness drives. Leaves: what the module drives; and whether any of its inputs has changed, since
// what stands behind unchanged ones need not be computed again. Included by the pins of one configuration.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "model_api.h"

namespace {

template <typename Vector>
uint8_t* bytes(Vector& vector) {
  return reinterpret_cast<uint8_t*>(&vector);
}

class Port {
 public:
  /// Drives the module's inputs when any of them has changed, or when `others` says so; leaves whether that was so.
  template <typename Model>
  bool drive(Model& m, const TesseraRtlPins& pins, bool others) {
    // Responses and register accesses bring data, and end in the cycle after them; the rest are single bits.
    static_assert(offsetof(TesseraRtlPins, b_valid) == offsetof(TesseraRtlPins, reset) + 7);
    uint64_t bits = 0;
    std::memcpy(&bits, &pins.reset, sizeof(bits));
    const bool data = (pins.r_valid | pins.b_valid | pins.s_address | pins.s_data | pins.s_read | pins.s_hold) != 0;
    const bool changed = data || data_ || bits != bits_ || others;
    data_ = data;
    bits_ = bits;
    if (!changed) return false;
    m.rst_ni = !pins.reset;
    m.m_arready_i = pins.ar_ready;
    m.m_rvalid_i = pins.r_valid;
    if (pins.r_valid) {
      std::memcpy(&m.m_rdata_i, pins.r_data, sizeof(m.m_rdata_i));
      m.m_rresp_i = pins.r_error ? 2 : 0;
      m.m_rlast_i = pins.r_last;
    }
    m.m_awready_i = pins.aw_ready;
    m.m_wready_i = pins.w_ready;
    m.m_bvalid_i = pins.b_valid;
    m.m_bresp_i = pins.b_error ? 2 : 0;
    m.s_awvalid_i = pins.s_address;
    m.s_wvalid_i = pins.s_data;
    m.s_bready_i = !pins.s_hold;
    m.s_rready_i = !pins.s_hold;
    m.s_awaddr_i = pins.s_write_address;
    m.s_wdata_i = pins.s_write_data;
    m.s_arvalid_i = pins.s_read;
    m.s_araddr_i = pins.s_read_address;
    return true;
  }

  template <typename Model>
  static void sample(Model& m, TesseraRtlPins& pins) {
    pins.ar_valid = m.m_arvalid_o;
    pins.ar_address = m.m_araddr_o;
    pins.ar_length = m.m_arlen_o;
    pins.r_ready = m.m_rready_o;
    pins.aw_valid = m.m_awvalid_o;
    pins.aw_address = m.m_awaddr_o;
    pins.aw_length = m.m_awlen_o;
    pins.w_valid = m.m_wvalid_o;
    pins.w_data = bytes(m.m_wdata_o);
    pins.w_strobe = 0;
    std::memcpy(&pins.w_strobe, bytes(m.m_wstrb_o), std::min(sizeof(m.m_wstrb_o), sizeof(pins.w_strobe)));
    pins.b_ready = m.m_bready_o;
    pins.s_written = m.s_bvalid_o;
    pins.s_read_valid = m.s_rvalid_o;
    pins.s_read_data = m.s_rdata_o;
    pins.interrupt = m.interrupt_o;
  }

 private:
  uint64_t bits_ = 0;  // of the last cycle
  bool data_ = true;
};

/// A rising edge. Where the clock is all that triggers anything, it is known what eval() would find in its loops; and
/// what stands behind inputs that have not changed is right since the last edge. `inputs` and `edge` are the parts of
/// eval() for the two.
template <typename Root>
void rising_edge(Root& root, bool changed, void (*eval)(Root*), void (*inputs)(Root*), void (*edge)(Root*)) {
  if constexpr (sizeof(root.__VnbaTriggered) == sizeof(bool)) {
    if (changed) {
      root.__VicoTriggered.at(0) = true;
      inputs(&root);
    }
    root.__VnbaTriggered.at(0) = true;
    edge(&root);
  } else {
    root.__Vtrigrprev__TOP__clk_i = 0;
    eval(&root);
  }
}

}  // namespace
