// SPDX-License-Identifier: Apache-2.0
// Tables of a report are flat lists of numbers: a field of an entry is a column.
#include "driver/remote/messages.h"

#include <array>

#include <sodium.h>

#include "base/error.h"

namespace tessera::driver {
namespace {

/// Calls f on every field of an entry, in the order of the wire.
template <typename Unit, typename F>
void fields(Unit& unit, F&& f, const UnitCounters*) {
  f(unit.executed), f(unit.busy_cycles);
  for (auto& cycles : unit.wait_cycles) f(cycles);
  f(unit.stall_memory_cycles), f(unit.stall_port_cycles);
}

template <typename Entry, typename F>
void fields(Entry& entry, F&& f, const InstructionProfile*) {
  f(entry.pc), f(entry.unit), f(entry.core), f(entry.macs), f(entry.vectors), f(entry.steps), f(entry.bytes_read);
  f(entry.bytes_written), f(entry.queued_cycle), f(entry.start_cycle), f(entry.first_busy_cycle);
  f(entry.last_busy_cycle), f(entry.end_cycle);
  for (auto& cycles : entry.wait_cycles) f(cycles);
  f(entry.stall_memory_cycles), f(entry.stall_port_cycles);
}

template <typename Entry, typename F>
void fields(Entry& entry, F&& f, const BurstProfile*) {
  f(entry.unit), f(entry.write), f(entry.address), f(entry.bytes), f(entry.address_cycle), f(entry.first_cycle);
  f(entry.last_cycle), f(entry.core);
}

template <typename Entry, typename F>
void fields(Entry& entry, F&& f, const RaceReport*) {
  f(entry.first_pc), f(entry.first_unit), f(entry.first_writes), f(entry.second_pc), f(entry.second_unit);
  f(entry.second_writes), f(entry.dram), f(entry.space), f(entry.begin), f(entry.end), f(entry.first_core);
  f(entry.second_core);
}

template <typename Entry>
size_t columns() {
  size_t count = 0;
  const Entry entry{};
  fields(entry, [&](const auto&) { ++count; }, static_cast<const Entry*>(nullptr));
  return count;
}

template <typename Entry, typename List>
void append(List* list, const Entry& entry) {
  fields(
      entry, [&](const auto& field) { list->Add(static_cast<uint64_t>(field)); }, static_cast<const Entry*>(nullptr));
}

template <typename Entry, typename List>
Entry entry_at(const List& list, size_t number) {
  Entry entry{};
  int at = static_cast<int>(number * columns<Entry>());
  fields(
      entry, [&](auto& field) { field = static_cast<std::remove_reference_t<decltype(field)>>(list.Get(at++)); },
      static_cast<const Entry*>(nullptr));
  return entry;
}

[[noreturn]] void refuse(const char* what) {
  throw Error(ErrorCode::kIo, std::string("the report of a run came with a wrong number of ") + what);
}

/// The entries of a table with so many numbers each. Errors: kIo.
template <typename Entry, typename List>
std::vector<Entry> table(const List& list, uint32_t width, const char* what) {
  const auto size = static_cast<size_t>(list.size());
  if (size == 0) return {};
  if (width != columns<Entry>() || size % width != 0) refuse(what);
  std::vector<Entry> entries;
  entries.reserve(size / width);
  for (size_t i = 0; i < size / width; ++i) entries.push_back(entry_at<Entry>(list, i));
  return entries;
}

}  // namespace

std::string digest(std::span<const uint8_t> bytes, const std::string& key) {
  std::string out(crypto_generichash_BYTES, '\0');
  crypto_generichash(reinterpret_cast<unsigned char*>(out.data()), out.size(), bytes.data(), bytes.size(),
                     reinterpret_cast<const unsigned char*>(key.data()), key.size());
  return out;
}

std::string random_key() {
  static const int ready = sodium_init();
  TESSERA_INVARIANT(ready >= 0, "libsodium starts");
  std::string key(crypto_generichash_KEYBYTES, '\0');
  randombytes_buf(key.data(), key.size());
  return key;
}

namespace {

/// What a chip's report and that of one of its cores have in common.
template <typename Report>
remote::RunReport sums_of(const Report& report) {
  remote::RunReport message;
  message.set_fault_code(static_cast<uint32_t>(report.fault.code));
  message.set_fault_unit(static_cast<uint32_t>(report.fault.unit));
  message.set_fault_pc(report.fault.pc);
  if (report.cycles) message.set_cycles(*report.cycles);
  const Counters& c = report.counters;
  for (const uint64_t sum : {c.instructions, c.bytes_read, c.bytes_written, c.macs}) message.add_sums(sum);
  for (const UnitCounters& unit : c.units) append(message.mutable_units(), unit);
  return message;
}

template <typename Report>
Report report_of(const remote::RunReport& message) {
  Report report;
  report.fault.code = static_cast<isa::Fault>(message.fault_code());
  report.fault.unit = static_cast<isa::Unit>(message.fault_unit());
  report.fault.pc = message.fault_pc();
  if (message.has_cycles()) report.cycles = message.cycles();
  if (message.sums_size() != 4) refuse("sums");
  Counters& c = report.counters;
  c.instructions = message.sums(0), c.bytes_read = message.sums(1);
  c.bytes_written = message.sums(2), c.macs = message.sums(3);
  const auto units = table<UnitCounters>(message.units(), columns<UnitCounters>(), "units");
  if (units.size() != c.units.size()) refuse("units");
  std::copy(units.begin(), units.end(), c.units.begin());
  return report;
}

}  // namespace

remote::RunReport to_message(const RunReport& report) {
  remote::RunReport message = sums_of(report);
  message.set_fault_core(report.fault_core);
  for (const CoreReport& core : report.cores) {
    remote::RunReport& own = *message.add_cores() = sums_of(core);
    if (core.bus_wait_cycles) own.set_bus_cycles(*core.bus_wait_cycles);
  }
  if (report.bus_busy_cycles) message.set_bus_cycles(*report.bus_busy_cycles);
  message.set_columns(columns<InstructionProfile>());
  message.set_burst_columns(columns<BurstProfile>());
  message.mutable_profile()->Reserve(static_cast<int>(report.profile.size() * columns<InstructionProfile>()));
  for (const InstructionProfile& entry : report.profile) append(message.mutable_profile(), entry);
  for (const BurstProfile& entry : report.bursts) append(message.mutable_bursts(), entry);
  for (const RaceReport& race : report.races) append(message.add_races()->mutable_numbers(), race);
  return message;
}

RunReport to_report(const remote::RunReport& message) {
  auto report = report_of<RunReport>(message);
  report.fault_core = message.fault_core();
  for (const remote::RunReport& core : message.cores()) {
    report.cores.push_back(report_of<CoreReport>(core));
    if (core.has_bus_cycles()) report.cores.back().bus_wait_cycles = core.bus_cycles();
  }
  if (message.has_bus_cycles()) report.bus_busy_cycles = message.bus_cycles();
  report.profile = table<InstructionProfile>(message.profile(), message.columns(), "instructions");
  report.bursts = table<BurstProfile>(message.bursts(), message.burst_columns(), "bursts");
  for (const remote::Race& race : message.races()) {
    const auto one = table<RaceReport>(race.numbers(), columns<RaceReport>(), "races");
    report.races.insert(report.races.end(), one.begin(), one.end());
  }
  return report;
}

}  // namespace tessera::driver
