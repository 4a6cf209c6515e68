// SPDX-License-Identifier: Apache-2.0
// The pins of a verilated interconnect, beside model.cc for machines of several cores. Enters, as macros:
// TESSERA_RTL_INTERCONNECT, the class that Verilator made; TESSERA_RTL_CORES and TESSERA_RTL_AXI_BYTES. The ports of
// the cores stand side by side in vectors, core 0 in the lowest bits, as memory has them on a little-endian host.
#define TESSERA_STRING_(x) #x
#define TESSERA_STRING(x) TESSERA_STRING_(x)
#define TESSERA_CONCAT_(a, b) a##b
#define TESSERA_CONCAT(a, b) TESSERA_CONCAT_(a, b)

#include TESSERA_STRING(TESSERA_RTL_INTERCONNECT.h)
#include TESSERA_STRING(TESSERA_CONCAT(TESSERA_RTL_INTERCONNECT, ___024root).h)

#include <array>
#include <cstring>
#include <memory>

#include "model_api.h"
#include "verilated.h"

namespace {

constexpr int kCores = TESSERA_RTL_CORES;
constexpr size_t kAxiBytes = TESSERA_RTL_AXI_BYTES;

template <typename Vector>
uint8_t* bytes(Vector& vector) {
  return reinterpret_cast<uint8_t*>(&vector);
}

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
    drive(pins);
    drive_cores(from);
    model_->clk_i = 1;
    model_->rootp->__Vtrigrprev__TOP__clk_i = 0;  // a rising edge without the falling one before it, which does nothing
    model_->eval();
    sample(pins);
    sample_cores(pins, to);
  }

 private:
  void drive(const TesseraRtlPins& pins) {
    auto& m = *model_;
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
    }
    m.c_arvalid_i = ar;
    m.c_rready_i = r;
    m.c_awvalid_i = aw;
    m.c_wvalid_i = w;
    m.c_wlast_i = last;
    m.c_bready_i = b;
    m.c_written_i = written;
    m.c_read_ready_i = ready;
    m.c_read_valid_i = read;
    m.interrupt_i = interrupt;
    m.idle_i = idle;
    m.fault_i = fault;
    m.rest_i = rest;
  }

  void sample(TesseraRtlPins& pins) {
    auto& m = *model_;
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
