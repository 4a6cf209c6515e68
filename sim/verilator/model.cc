// SPDX-License-Identifier: Apache-2.0
// The pins of one verilated configuration. Enters, as macros: TESSERA_RTL_MODEL, the class that Verilator made, and
// TESSERA_RTL_ENTRY, the name of the function that leaves. A cycle needs one evaluation: the falling edge changes
// nothing in this machine, so the model is told that it has seen it. Compiled once for each configuration. With
// TESSERA_RTL_CORES, of a machine of several cores, this is one of them, and the function also leaves the interconnect
// (interconnect.cc). With TESSERA_RTL_WRITE_PROFILE a function of that name writes what a model that counts branches
// has counted.
#define TESSERA_STRING_(x) #x
#define TESSERA_STRING(x) TESSERA_STRING_(x)
#define TESSERA_CONCAT_(a, b) a##b
#define TESSERA_CONCAT(a, b) TESSERA_CONCAT_(a, b)
#define TESSERA_RTL_ROOT TESSERA_CONCAT(TESSERA_RTL_MODEL, ___024root)
#define TESSERA_RTL_EVAL TESSERA_CONCAT(TESSERA_RTL_ROOT, ___eval)
#define TESSERA_RTL_EVAL_INPUTS TESSERA_CONCAT(TESSERA_RTL_ROOT, ___eval_ico)
#define TESSERA_RTL_EVAL_EDGE TESSERA_CONCAT(TESSERA_RTL_ROOT, ___eval_nba)

#include TESSERA_STRING(TESSERA_RTL_MODEL.h)
#include TESSERA_STRING(TESSERA_RTL_ROOT.h)

#include <cstring>
#include <memory>

#include "model_api.h"
#include "verilated.h"
#ifdef TESSERA_RTL_WAVES
#include "verilated_fst_c.h"
#endif

/// What eval() calls; around it there is only bookkeeping for threads, of which this machine has none.
void TESSERA_RTL_EVAL(TESSERA_RTL_ROOT*);
/// Its parts: logic behind inputs that have changed; registers at a clock edge and the logic behind them.
void TESSERA_RTL_EVAL_INPUTS(TESSERA_RTL_ROOT*);
void TESSERA_RTL_EVAL_EDGE(TESSERA_RTL_ROOT*);

#ifdef TESSERA_RTL_CORES
extern "C" const TesseraRtlInterconnectApi tessera_rtl_interconnect;
#endif

namespace {

class Model {
 public:
  Model() {
#ifdef TESSERA_RTL_WAVES
    context_.traceEverOn(true);
#endif
    model_ = std::make_unique<TESSERA_RTL_MODEL>(&context_, "top");
    model_->clk_i = 0;
    model_->rst_ni = 0;
    model_->s_wstrb_i = 15;
    for (int edge = 0; edge < 8; ++edge) {
      model_->eval();
      model_->clk_i = !model_->clk_i;
    }
    model_->rst_ni = 1;
    for (int edge = 0; edge < 40; ++edge) {  // the machine clears its base registers
      model_->eval();
      model_->clk_i = !model_->clk_i;
    }
    model_->eval();
  }

  ~Model() {
#ifdef TESSERA_RTL_WAVES
    if (waves_) waves_->close();
#endif
    // The library takes a model's scopes out of the thread's context, which is that of the last model made here.
    Verilated::threadContextp(&context_);
    model_->final();
    model_.reset();
    Verilated::threadContextp(Verilated::defaultContextp());
  }

  void cycle(TesseraRtlPins& pins) {
    drive(pins);
    edge();
    sample(pins);
  }

  void cycle_probed(TesseraRtlPins& pins, TesseraRtlProbe& probe) {
    drive(pins);
    model_->clk_i = 0;
    model_->eval();
    observe(probe);
    edge();
    sample(pins);
  }

  TesseraRtlMemory memory(int space) {
    auto* root = model_->rootp;
    switch (space) {
      case 0:
        return whole(root->tsr_top__DOT__u_scratchpads__DOT__u_inp__DOT__mem,
                     root->tsr_top__DOT__u_scratchpads__DOT__u_inp__DOT__parity_mem);
      case 1:
        return whole(root->tsr_top__DOT__u_scratchpads__DOT__u_wgt__DOT__mem,
                     root->tsr_top__DOT__u_scratchpads__DOT__u_wgt__DOT__parity_mem);
      case 2:
        return whole(root->tsr_top__DOT__u_scratchpads__DOT__u_acc__DOT__mem,
                     root->tsr_top__DOT__u_scratchpads__DOT__u_acc__DOT__parity_mem);
      case 3:
        return whole(root->tsr_top__DOT__u_scratchpads__DOT__u_out__DOT__mem,
                     root->tsr_top__DOT__u_scratchpads__DOT__u_out__DOT__parity_mem);
      case 4:
        return whole(root->tsr_top__DOT__u_scratchpads__DOT__u_param__DOT__mem,
                     root->tsr_top__DOT__u_scratchpads__DOT__u_param__DOT__parity_mem);
      default:
        return whole(root->tsr_top__DOT__u_alu__DOT__u_lanes__DOT__u_tables__DOT__table_mem,
                     root->tsr_top__DOT__u_alu__DOT__u_lanes__DOT__u_tables__DOT__parity_mem);
    }
  }

  void open_waves(const char* path) {
#ifdef TESSERA_RTL_WAVES
    waves_ = std::make_unique<VerilatedFstC>();
    model_->trace(waves_.get(), 99);
    waves_->open(path);
#else
    (void)path;
#endif
  }

 private:
  void drive(const TesseraRtlPins& pins) {
    // Responses and register accesses bring data, and end in the cycle after them; the rest are single bits.
    static_assert(offsetof(TesseraRtlPins, b_valid) == offsetof(TesseraRtlPins, reset) + 7);
    uint64_t bits = 0;
    std::memcpy(&bits, &pins.reset, sizeof(bits));
    const bool data = (pins.r_valid | pins.b_valid | pins.s_address | pins.s_data | pins.s_read | pins.s_hold) != 0;
    const bool others = drive_others(pins);
    changed_ = data || data_ || bits != bits_ || others;
    data_ = data;
    bits_ = bits;
    if (!changed_) return;
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

  /// What cores know of each other; whether it has changed.
  bool drive_others([[maybe_unused]] const TesseraRtlPins& pins) {
#ifdef TESSERA_RTL_CORES
    auto& m = *model_;
    constexpr size_t kBytes = 2 * TESSERA_RTL_CORES;
    const bool counted = pins.counters != nullptr && std::memcmp(&m.public_i, pins.counters, kBytes) != 0;
    if (!counted && m.clear_i == pins.clear && m.all_rest_i == pins.all_rest) return false;
    if (counted) std::memcpy(&m.public_i, pins.counters, kBytes);
    m.clear_i = pins.clear;
    m.all_rest_i = pins.all_rest;
    return true;
#else
    return false;
#endif
  }

  void edge() {
#ifdef TESSERA_RTL_WAVES
    if (waves_) {
      model_->clk_i = 0;
      model_->eval();
      waves_->dump(2 * now_);
    }
#endif
    model_->clk_i = 1;
    step(*model_->rootp);
#ifdef TESSERA_RTL_WAVES
    if (waves_) waves_->dump(2 * now_ + 1);
    ++now_;
#endif
  }

  /// A rising edge. Where the clock is all that triggers anything, it is known what eval() would find in its loops; and
  /// what stands behind inputs that have not changed is right since the last edge.
  template <typename Root>
  void step(Root& root) {
    if constexpr (sizeof(root.__VnbaTriggered) == sizeof(bool)) {
      if (changed_) {
        root.__VicoTriggered.at(0) = true;
        TESSERA_RTL_EVAL_INPUTS(&root);
      }
      root.__VnbaTriggered.at(0) = true;
      TESSERA_RTL_EVAL_EDGE(&root);
    } else {
      root.__Vtrigrprev__TOP__clk_i = 0;
      TESSERA_RTL_EVAL(&root);
    }
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
    pins.w_data = reinterpret_cast<const uint8_t*>(&m.m_wdata_o);
    pins.w_strobe = m.m_wstrb_o;
    pins.b_ready = m.m_bready_o;
    pins.s_written = m.s_bvalid_o;
    pins.s_read_valid = m.s_rvalid_o;
    pins.s_read_data = m.s_rdata_o;
    pins.interrupt = m.interrupt_o;
#ifdef TESSERA_RTL_CORES
    pins.w_last = m.m_wlast_o;
    pins.s_read_ready = m.s_arready_o;
    pins.idle = m.idle_o;
    pins.fault = m.fault_o;
    pins.rest = m.rest_o;
    pins.counter = m.public_o;
#endif
  }

  void observe(TesseraRtlProbe& probe) {
    const auto& root = *model_->rootp;
    probe.run = root.tsr_top__DOT__probe_run;
    probe.queued = root.tsr_top__DOT__probe_queued;
    probe.issued = root.tsr_top__DOT__probe_issued;
    probe.completed = root.tsr_top__DOT__probe_completed;
    probe.faulted = root.tsr_top__DOT__probe_faulted;
    probe.busy = root.tsr_top__DOT__probe_busy;
    for (int u = 0; u < 5; ++u) probe.waiting[u] = root.tsr_top__DOT__probe_waiting >> (4 * u) & 15;
    probe.stall_memory = root.tsr_top__DOT__probe_stall_memory;
    probe.stall_port = root.tsr_top__DOT__probe_stall_port;
    probe.finished = root.tsr_top__DOT__probe_finished;
    probe.read_granted = root.tsr_top__DOT__probe_read_granted;
    probe.read_fetch = root.tsr_top__DOT__probe_read_fetch;
    probe.store_granted = root.tsr_top__DOT__probe_store_granted;
    probe.store_length = root.tsr_top__DOT__probe_store_length;
    probe.queued_pc = root.tsr_top__DOT__probe_queued_pc;
    for (int e = 0; e < 4; ++e) {
      probe.head_pc[e] = root.tsr_top__DOT__probe_head_pc[e];
      probe.completed_pc[e] = root.tsr_top__DOT__probe_completed_pc[e];
    }
    probe.store_pc = root.tsr_top__DOT__probe_store_pc;
  }

  template <typename Words, typename Bits>
  static TesseraRtlMemory whole(Words& words, Bits& parity) {
    return {reinterpret_cast<uint8_t*>(&words[0]), sizeof(words[0]), sizeof(words) / sizeof(words[0]),
            reinterpret_cast<uint8_t*>(&parity[0]), sizeof(parity[0])};
  }

  VerilatedContext context_;
  std::unique_ptr<TESSERA_RTL_MODEL> model_;
  uint64_t bits_ = 0;  // of the last cycle
  bool data_ = true;
  bool changed_ = true;
#ifdef TESSERA_RTL_WAVES
  std::unique_ptr<VerilatedFstC> waves_;
  uint64_t now_ = 0;
#endif
};

}  // namespace

extern "C" __attribute__((visibility("default"))) const TesseraRtlApi* TESSERA_RTL_ENTRY() {
  static const TesseraRtlApi api = {
      kTesseraRtlApiVersion,
#ifdef TESSERA_RTL_WAVES
      1,
#else
      0,
#endif
      []() -> void* { return new Model; },
      [](void* model) { delete static_cast<Model*>(model); },
      [](void* model, TesseraRtlPins* pins) { static_cast<Model*>(model)->cycle(*pins); },
      [](void* model, TesseraRtlPins* pins, TesseraRtlProbe* probe) {
        static_cast<Model*>(model)->cycle_probed(*pins, *probe);
      },
      [](void* model, int space) { return static_cast<Model*>(model)->memory(space); },
      [](void* model, const char* path) { static_cast<Model*>(model)->open_waves(path); },
#ifdef TESSERA_RTL_CORES
      &tessera_rtl_interconnect,
#else
      nullptr,
#endif
  };
  return &api;
}

#ifdef TESSERA_RTL_WRITE_PROFILE
#ifdef __clang__
extern "C" int __llvm_profile_write_file();
extern "C" void __llvm_profile_set_filename(const char*);
#else
extern "C" void __gcov_dump();
#endif
/// `file`: where Clang's counts go; GCC's go beside the objects.
extern "C" __attribute__((visibility("default"))) void TESSERA_RTL_WRITE_PROFILE([[maybe_unused]] const char* file) {
#ifdef __clang__
  __llvm_profile_set_filename(file);
  __llvm_profile_write_file();
#else
  __gcov_dump();
#endif
}
#endif
