// SPDX-License-Identifier: Apache-2.0
// The pins of a verilated interconnect, beside model.cc for machines of several cores. Enters, as macros:
// TESSERA_RTL_INTERCONNECT, the class that Verilator made; TESSERA_RTL_CORES and TESSERA_RTL_AXI_BYTES. The ports of
// the cores stand side by side in vectors, core 0 in the lowest bits, as memory has them on a little-endian host.
#define TESSERA_STRING_(x) #x
#define TESSERA_STRING(x) TESSERA_STRING_(x)
#define TESSERA_CONCAT_(a, b) a##b
#define TESSERA_CONCAT(a, b) TESSERA_CONCAT_(a, b)
#define TESSERA_RTL_ROOT TESSERA_CONCAT(TESSERA_RTL_INTERCONNECT, ___024root)
#define TESSERA_RTL_EVAL TESSERA_CONCAT(TESSERA_RTL_ROOT, ___eval)
#define TESSERA_RTL_EVAL_INPUTS TESSERA_CONCAT(TESSERA_RTL_ROOT, ___eval_ico)
#define TESSERA_RTL_EVAL_EDGE TESSERA_CONCAT(TESSERA_RTL_ROOT, ___eval_nba)

#include TESSERA_STRING(TESSERA_RTL_INTERCONNECT.h)
#include TESSERA_STRING(TESSERA_RTL_ROOT.h)

#include <array>
#include <cstring>
#include <memory>

#include "model_api.h"
#include "port.h"
#include "verilated.h"

/// As in model.cc.
void TESSERA_RTL_EVAL(TESSERA_RTL_ROOT*);
void TESSERA_RTL_EVAL_INPUTS(TESSERA_RTL_ROOT*);
void TESSERA_RTL_EVAL_EDGE(TESSERA_RTL_ROOT*);

namespace {

constexpr int kCores = TESSERA_RTL_CORES;
constexpr size_t kAxiBytes = TESSERA_RTL_AXI_BYTES;

class Interconnect {
 public:
  Interconnect() : model_(std::make_unique<TESSERA_RTL_INTERCONNECT>(&context_, "interconnect")) {
    model_->clk_i = 0;
    model_->rst_ni = 0;
    model_->s_wstrb_i = 15;
    for (int edge = 0; edge < 8; ++edge) {
      model_->eval();
      model_->clk_i = !model_->clk_i;
    }
    model_->rst_ni = 1;
    model_->eval();
  }

  ~Interconnect() {
    Verilated::threadContextp(&context_);
    model_->final();
    model_.reset();
    Verilated::threadContextp(Verilated::defaultContextp());
  }

  void cycle(TesseraRtlPins& pins, const TesseraRtlPins* from, TesseraRtlPins* to) {
    changed_ = false;
    drive_cores(from);
    changed_ = port_.drive(*model_, pins, changed_);
    if (rests(pins)) return;
    model_->clk_i = 1;
    rising_edge(*model_->rootp, changed_, TESSERA_RTL_EVAL, TESSERA_RTL_EVAL_INPUTS, TESSERA_RTL_EVAL_EDGE);
    Port::sample(*model_, pins);
    sample_cores(pins, to);
  }

 private:
  template <typename Input>
  void set(Input& input, uint32_t value) {
    changed_ |= input != value;
    input = static_cast<Input>(value);
  }

  /// Nothing is under way, and no input has changed for so long that nothing moves any more: all outputs stand, in both
  /// of what cores read by turns.
  bool rests(const TesseraRtlPins& pins) {
    constexpr uint32_t kSettled = 16;
    auto& m = *model_;
    if (pins.reset) {
      reads_ = writes_ = 0;
    } else {
      reads_ += (m.m_arvalid_o && m.m_arready_i) - (m.m_rvalid_i && m.m_rlast_i);
      writes_ += (m.m_awvalid_o && m.m_awready_i) - m.m_bvalid_i;
    }
    const bool moves = changed_ || reads_ != 0 || writes_ != 0 || m.c_arvalid_i || m.c_awvalid_i || m.c_wvalid_i ||
                       m.m_arvalid_o || m.m_awvalid_o || m.m_wvalid_o || m.c_rvalid_o || m.c_bvalid_o;
    still_ = moves ? 0 : still_ + 1;
    return still_ > kSettled;
  }

  void drive_cores(const TesseraRtlPins* from) {
    auto& m = *model_;
    uint32_t ar = 0, r = 0, aw = 0, w = 0, last = 0, b = 0, written = 0, ready = 0, read = 0;
    uint32_t interrupt = 0, idle = 0, fault = 0, rest = 0;
    for (int c = 0; c < kCores; ++c) {
      const TesseraRtlPins& p = from[c];
      const auto bit = [&](uint8_t on) { return uint32_t{on != 0} << c; };
      ar |= bit(p.ar_valid);
      r |= bit(p.r_ready);
      aw |= bit(p.aw_valid);
      w |= bit(p.w_valid);
      last |= bit(p.w_last);
      b |= bit(p.b_ready);
      written |= bit(p.s_written);
      ready |= bit(p.s_read_ready);
      read |= bit(p.s_read_valid);
      interrupt |= bit(p.interrupt);
      idle |= bit(p.idle);
      fault |= bit(p.fault);
      rest |= bit(p.rest);
      if (p.ar_valid) {
        std::memcpy(bytes(m.c_araddr_i) + 8 * c, &p.ar_address, 8);
        bytes(m.c_arlen_i)[c] = p.ar_length;
      }
      if (p.aw_valid) {
        std::memcpy(bytes(m.c_awaddr_i) + 8 * c, &p.aw_address, 8);
        bytes(m.c_awlen_i)[c] = p.aw_length;
      }
      if (p.w_valid) {
        std::memcpy(bytes(m.c_wdata_i) + kAxiBytes * c, p.w_data, kAxiBytes);
        if constexpr (kAxiBytes < 8) {
          uint8_t& pair = bytes(m.c_wstrb_i)[c / 2];
          pair = static_cast<uint8_t>(c % 2 == 0 ? (pair & 0xf0) | p.w_strobe : (pair & 0x0f) | p.w_strobe << 4);
        } else {
          std::memcpy(bytes(m.c_wstrb_i) + kAxiBytes / 8 * c, &p.w_strobe, kAxiBytes / 8);
        }
      }
      if (p.s_read_valid) std::memcpy(bytes(m.c_read_data_i) + 4 * c, &p.s_read_data, 4);
      changed_ |= (p.ar_valid | p.aw_valid | p.w_valid | p.s_read_valid) != 0;
    }
    set(m.c_arvalid_i, ar);
    set(m.c_rready_i, r);
    set(m.c_awvalid_i, aw);
    set(m.c_wvalid_i, w);
    set(m.c_wlast_i, last);
    set(m.c_bready_i, b);
    set(m.c_written_i, written);
    set(m.c_read_ready_i, ready);
    set(m.c_read_valid_i, read);
    set(m.interrupt_i, interrupt);
    set(m.idle_i, idle);
    set(m.fault_i, fault);
    set(m.rest_i, rest);
  }

  void sample_cores(const TesseraRtlPins& pins, TesseraRtlPins* to) {
    auto& m = *model_;
    turn_ = 1 - turn_;
    for (int c = 0; c < kCores; ++c) {
      TesseraRtlPins& p = to[c];
      p.reset = pins.reset;
      p.ar_ready = m.c_arready_o >> c & 1;
      p.r_valid = m.c_rvalid_o >> c & 1;
      p.r_error = bytes(m.c_rresp_o)[c / 4] >> (2 * (c % 4) + 1) & 1;
      p.r_last = m.c_rlast_o >> c & 1;
      if (p.r_valid) {
        uint8_t* data = data_[turn_][static_cast<size_t>(c)].data();
        std::memcpy(data, bytes(m.c_rdata_o) + kAxiBytes * c, kAxiBytes);
        p.r_data = data;
      }
      p.aw_ready = m.c_awready_o >> c & 1;
      p.w_ready = m.c_wready_o >> c & 1;
      p.b_valid = m.c_bvalid_o >> c & 1;
      p.b_error = bytes(m.c_bresp_o)[c / 4] >> (2 * (c % 4) + 1) & 1;
      p.s_address = p.s_data = m.c_write_o >> c & 1;
      p.s_write_address = m.c_waddr_o;
      p.s_write_data = m.c_wdata_o;
      p.s_read = m.c_read_o >> c & 1;
      p.s_read_address = m.c_raddr_o;
      p.s_hold = 0;
      p.clear = m.clear_o >> c & 1;
      p.all_rest = m.all_rest_o;
    }
  }

  VerilatedContext context_;
  std::unique_ptr<TESSERA_RTL_INTERCONNECT> model_;
  std::array<std::array<std::array<uint8_t, kAxiBytes>, kCores>, 2> data_{};
  size_t turn_ = 0;
  Port port_;
  bool changed_ = true;             // an input, in this cycle
  int64_t reads_ = 0, writes_ = 0;  // bursts that memory has not answered
  uint32_t still_ = 0;              // cycles in which nothing was under way
};

}  // namespace

extern "C" const TesseraRtlInterconnectApi tessera_rtl_interconnect = {
    kCores,
    []() -> void* { return new Interconnect; },
    [](void* model) { delete static_cast<Interconnect*>(model); },
    [](void* model, TesseraRtlPins* pins, const TesseraRtlPins* from, TesseraRtlPins* to) {
      static_cast<Interconnect*>(model)->cycle(*pins, from, to);
    },
};
