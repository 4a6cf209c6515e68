// SPDX-License-Identifier: Apache-2.0
// The agenda against the kernel of SystemC: six processes that ask for turns at random get them in the same cycles and
// in the same order.
#include "sim/systemc/agenda.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <random>

/// libsystemc's own main() asks for it; this program has another.
extern "C" __attribute__((weak)) int sc_main(int, char**) { return 1; }

namespace tessera::sim::systemc {
namespace {

constexpr size_t kRecorded = 20000;

struct Turned {
  size_t who;
  Cycle at;
  bool operator==(const Turned&) const = default;
};

/// What the modules do in their turns: each asks for turns of itself and of others, in this cycle and in later ones,
/// and often for some that have been asked for already. The same calls leave the same record.
class Script {
 public:
  using Ask = std::function<void(size_t who, Cycle delay)>;

  explicit Script(uint64_t seed) : random_(seed), reach_(1 + static_cast<Cycle>(random_() % 30)) {}
  void start(const Ask& ask) {
    for (size_t who = 0; who < Agenda::kTurns; ++who) ask(who, pick());
  }
  /// False at the end.
  bool turn(size_t who, Cycle at, const Ask& ask) {
    record.push_back({who, at});
    if (record.size() == kRecorded) return false;
    ask(who, 1 + pick());  // the machine never stops by itself
    for (uint64_t more = random_() % 4; more > 0; --more) {
      const size_t other = random_() % Agenda::kTurns;
      // Turns of one cycle for one another would never end.
      ask(other, other > who && random_() % 3 == 0 ? 0 : 1 + pick());
    }
    return true;
  }
  std::vector<Turned> record;

 private:
  Cycle pick() { return static_cast<Cycle>(random_() % 8 == 0 ? random_() % 500 : random_() % reach_); }
  std::mt19937_64 random_;
  Cycle reach_;
};

std::vector<Turned> by_agenda(uint64_t seed) {
  Script script(seed);
  Agenda agenda;
  agenda.reset();
  const auto ask = [&](size_t who, Cycle delay) { agenda.ask(static_cast<Agenda::Turn>(who), agenda.now() + delay); };
  script.start(ask);
  for (bool on = true; on;) {
    if (!agenda.due() && agenda.next() == kNever) break;
    const Agenda::Turn turn = agenda.begin();
    on = script.turn(turn, agenda.now(), ask);
  }
  return script.record;
}

/// The same with a process and an event each.
class Processes : public sc_core::sc_module {
 public:
  SC_HAS_PROCESS(Processes);
  explicit Processes(sc_core::sc_module_name name) : sc_module(name) {
    for (size_t who = 0; who < Agenda::kTurns; ++who) {
      sc_core::sc_spawn_options options;
      options.spawn_method();
      options.dont_initialize();
      options.set_sensitivity(&events_[who]);
      sc_core::sc_spawn([this, who] { turn(who); }, sc_core::sc_gen_unique_name("turn"), &options);
    }
  }
  std::vector<Turned> run(uint64_t seed) {
    Script script(seed);
    script_ = &script;
    origin_ = sc_core::sc_time_stamp().value();
    script.start([this](size_t who, Cycle delay) { ask(who, delay); });
    sc_core::sc_start();
    script_ = nullptr;
    return script.record;
  }

 private:
  void ask(size_t who, Cycle delay) { events_[who].notify(sc_core::sc_time::from_value(delay)); }
  void turn(size_t who) {
    if (script_ == nullptr || script_->record.size() == kRecorded) return;
    const Cycle at = sc_core::sc_time_stamp().value() - origin_;
    if (script_->turn(who, at, [this](size_t other, Cycle delay) { ask(other, delay); })) return;
    sc_core::sc_stop();
  }

  std::array<sc_core::sc_event, Agenda::kTurns> events_;
  Script* script_ = nullptr;
  uint64_t origin_ = 0;
};

// The kernel runs once in a program: what has been notified and not yet happened stays in its heap.
TEST(Agenda, TurnsComeInTheKernelsOrder) {
  Processes processes("processes");
  constexpr uint64_t kSeed = 1;
  const std::vector<Turned> wanted = processes.run(kSeed), got = by_agenda(kSeed);
  ASSERT_EQ(wanted.size(), kRecorded);
  ASSERT_EQ(got.size(), kRecorded);
  for (size_t n = 0; n < kRecorded; ++n) {
    ASSERT_EQ(got[n].who, wanted[n].who) << "turn " << n << " in cycle " << wanted[n].at;
    ASSERT_EQ(got[n].at, wanted[n].at) << "turn " << n;
  }
}

TEST(Agenda, OneTurnForAModule) {
  Agenda agenda;
  agenda.reset();
  EXPECT_EQ(agenda.next(), kNever);
  agenda.ask(Agenda::kAlu, 9);
  agenda.ask(Agenda::kAlu, 12);  // later than asked: nothing
  agenda.ask(Agenda::kAlu, 5);   // earlier: instead
  EXPECT_EQ(agenda.next(), 5U);
  EXPECT_EQ(agenda.begin(), Agenda::kAlu);
  EXPECT_EQ(agenda.now(), 5U);
  EXPECT_FALSE(agenda.due());
  EXPECT_EQ(agenda.next(), kNever);
  agenda.ask(Agenda::kLoad, 3);  // has passed: now
  EXPECT_TRUE(agenda.due());
  EXPECT_EQ(agenda.begin(), Agenda::kLoad);
  EXPECT_EQ(agenda.now(), 5U);
}

}  // namespace
}  // namespace tessera::sim::systemc
