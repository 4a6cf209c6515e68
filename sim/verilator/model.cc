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
#include "port.h"
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
    if (!rests()) edge();
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
  void drive(const TesseraRtlPins& pins) { changed_ = port_.drive(*model_, pins, drive_others(pins)); }

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

  /// A core without a program, whose inputs have not changed for so long that nothing in it moves any more.
  bool rests() {
#ifdef TESSERA_RTL_CORES
    constexpr uint32_t kSettled = 64;
    still_ = changed_ || !model_->idle_o ? 0 : still_ + 1;
    return still_ > kSettled;
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
    rising_edge(*model_->rootp, changed_, TESSERA_RTL_EVAL, TESSERA_RTL_EVAL_INPUTS, TESSERA_RTL_EVAL_EDGE);
#ifdef TESSERA_RTL_WAVES
    if (waves_) waves_->dump(2 * now_ + 1);
    ++now_;
#endif
  }

  void sample(TesseraRtlPins& pins) {
    Port::sample(*model_, pins);
#ifdef TESSERA_RTL_CORES
    auto& m = *model_;
    pins.w_last = m.m_wlast_o;
    pins.s_read_ready = m.s_arready_o;
    pins.idle = m.idle_o;
    pins.fault = m.fault_o;
    pins.rest = m.rest_o;
    pins.counter = m.public_o;
    pins.next_counter = m.rootp->tsr_top__DOT__gen_cores__DOT__probe_public;
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
  Port port_;
  bool changed_ = true;  // an input, in this cycle
#ifdef TESSERA_RTL_CORES
  uint32_t still_ = 0;  // cycles without a program in which no input has changed
#endif
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
