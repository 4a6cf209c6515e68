// SPDX-License-Identifier: Apache-2.0
#include "tessera/tuning/tuned.h"

#include <sqlite3.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "base/error.h"
#include "tessera/report/description.h"
#include "tessera/tuning/tuning.h"

namespace tessera {

namespace {

using nlohmann::json;

constexpr int kApplication = 0x54535254, kVersion = 2, kVersionBefore = 1;  // as database.py has them
constexpr int kBusyMilliseconds = 60000;

/// A database that is read.
class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path) {
    if (!std::filesystem::is_regular_file(path))
      throw Error(ErrorCode::kIo, "tuning database '" + path + "': there is no such file; `tessera tune` makes it");
    sqlite3* file = nullptr;
    const int status = sqlite3_open_v2(path.c_str(), &file, SQLITE_OPEN_READONLY, nullptr);
    file_.reset(file);
    if (status != SQLITE_OK) refuse();
    sqlite3_busy_timeout(file, kBusyMilliseconds);
    if (number("PRAGMA application_id") != kApplication)
      throw Error(ErrorCode::kIo, "'" + path + "' is no tuning database; `tessera tune` makes one");
    if (const int version = number("PRAGMA user_version"); version != kVersion && version != kVersionBefore)
      throw Error(ErrorCode::kIo, "'" + path + "' is a tuning database of another version; tune again");
  }

  /// The first column of the first row.
  std::optional<std::string> text(const std::string& query, const std::vector<std::string>& values = {}) const {
    sqlite3_stmt* made = nullptr;
    if (sqlite3_prepare_v2(file_.get(), query.c_str(), -1, &made, nullptr) != SQLITE_OK) refuse();
    const std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)> statement(made, sqlite3_finalize);
    for (size_t i = 0; i < values.size(); ++i) {
      sqlite3_bind_text(made, static_cast<int>(i) + 1, values[i].data(), static_cast<int>(values[i].size()),
                        SQLITE_TRANSIENT);
    }
    const int status = sqlite3_step(made);
    if (status == SQLITE_DONE) return std::nullopt;
    if (status != SQLITE_ROW) refuse();
    const unsigned char* bytes = sqlite3_column_text(made, 0);
    return bytes == nullptr ? std::string() : std::string(reinterpret_cast<const char*>(bytes));
  }

 private:
  int number(const std::string& query) const { return std::stoi("0" + text(query).value_or("")); }

  [[noreturn]] void refuse() const {
    throw Error(ErrorCode::kIo, "tuning database '" + path_ + "': " + sqlite3_errmsg(file_.get()) +
                                    "; move the file away and tune again, or restore a copy");
  }

  const std::string path_;
  std::unique_ptr<sqlite3, int (*)(sqlite3*)> file_{nullptr, sqlite3_close};
};

/// What layers and chains of other models are known for, put in place of the generator's choice where that is better.
std::vector<Tuning::Placed> with_known_layers(const Reader& reader, Tuning& tuning) {
  const auto known = [&](size_t piece) {
    return reader.text("SELECT schedule FROM layers WHERE piece=? AND machine=? AND compiler=?",
                       {tuning.pieces()[piece].key, tuning.machine_key(), compiler_version()});
  };
  std::vector<std::pair<size_t, std::string>> records;
  for (size_t piece = 0; piece < tuning.pieces().size(); ++piece) {
    if (auto schedule = known(piece)) records.emplace_back(piece, std::move(*schedule));
  }
  if (records.empty()) return {};
  std::vector<Tuning::Placed> state = tuning.chosen();
  bool changed = false;
  for (auto& [piece, schedule] : records) {
    const Tuning::Piece& to = tuning.pieces()[piece];
    // The units of the same graph that the piece would replace, and their neighbours.
    const auto inside = [&](const Tuning::Placed& unit) {
      const Tuning::Piece& at = tuning.pieces()[unit.first];
      return at.graph == to.graph && at.first >= to.first && at.first + at.count <= to.first + to.count;
    };
    const auto first = std::find_if(state.begin(), state.end(), inside);
    auto last = first;
    size_t covered = 0;
    for (; last != state.end() && inside(*last); ++last) covered += tuning.pieces()[last->first].count;
    if (covered != to.count || !tuning.obstacle(piece, schedule).empty()) continue;
    auto begin = first, end = last;
    if (begin != state.begin() && tuning.pieces()[(begin - 1)->first].graph == to.graph) --begin;
    if (end != state.end() && tuning.pieces()[end->first].graph == to.graph) ++end;
    std::vector<Tuning::Placed> before(begin, end), after(begin, first);
    after.emplace_back(piece, tuning.named(piece, schedule));
    after.insert(after.end(), last, end);
    if (tuning.together(after, "replay").first >= tuning.together(before, "replay").first) continue;
    const auto place = state.erase(first, last);
    state.insert(place, {piece, tuning.named(piece, schedule)});
    changed = true;
  }
  return changed ? state : std::vector<Tuning::Placed>{};
}

/// What tunings have found for this very model, by one judge.
struct Record {
  std::map<std::string, std::string> schedules;
  int64_t replay = -1, default_replay = -1;  // of the build that found them; -1: it did not say
};

/// The strictest judge's first.
std::vector<Record> records_of(const Reader& reader, const Tuning& tuning, const std::string& from) {
  std::vector<Record> records;
  while (true) {
    const auto text = reader.text(
        "SELECT json_object('schedules', json(schedules), 'replay', json_extract(provenance, '$.replay'), 'default', "
        "json_extract(provenance, '$.default_replay')) FROM networks WHERE model=? AND machine=? AND compiler=? ORDER "
        "BY CASE judge WHEN 'rtl' THEN 0 WHEN 'sysc' THEN 1 WHEN 'replay' THEN 2 ELSE 3 END, judge LIMIT 1 OFFSET " +
            std::to_string(records.size()),
        {tuning.model_key(), tuning.machine_key(), compiler_version()});
    if (!text) return records;
    const nlohmann::ordered_json found = nlohmann::ordered_json::parse(*text);
    Record record;
    record.schedules = schedules_from(tuning.renamed(found["schedules"].dump()), from);
    if (found["replay"].is_number_integer()) record.replay = found["replay"];
    if (found["default"].is_number_integer()) record.default_replay = found["default"];
    records.push_back(std::move(record));
  }
}

/// The model under schedules by layer; nothing where they do not cover it.
std::optional<std::vector<Tuning::Placed>> placed(const Tuning& tuning,
                                                  const std::map<std::string, std::string>& schedules) {
  std::vector<Tuning::Placed> state;
  const std::vector<Tuning::Piece>& pieces = tuning.pieces();
  std::optional<std::pair<size_t, size_t>> end;  // of the last piece: its graph and what follows it
  for (size_t p = 0; p < pieces.size(); ++p) {
    // Pieces stand in order of what they begin with.
    const bool inside = end && end->first == pieces[p].graph && pieces[p].first < end->second;
    const auto schedule = schedules.find(pieces[p].layers[0]);
    if (inside || schedule == schedules.end()) continue;
    const json form = json::parse(schedule->second, nullptr, false);
    const bool chain = form.is_object() && form.contains("chain");
    if ((chain ? form["chain"] : json::array({pieces[p].links[0]})) != json(pieces[p].links)) continue;
    state.emplace_back(p, schedule->second);
    end = {pieces[p].graph, pieces[p].first + pieces[p].count};
  }
  size_t covered = 0, all = 0;
  for (const auto& [piece, schedule] : state) covered += pieces[piece].count;
  for (const Tuning::Piece& piece : pieces) all += piece.count == 1 ? 1 : 0;
  return covered == all ? std::optional(state) : std::nullopt;
}

int64_t replay_of(Tuning& tuning, const std::vector<Tuning::Placed>& state) {
  int64_t cycles = 0;
  for (auto begin = state.begin(); begin != state.end();) {
    const size_t graph = tuning.pieces()[begin->first].graph;
    const auto end = std::find_if(
        begin, state.end(), [&](const Tuning::Placed& unit) { return tuning.pieces()[unit.first].graph != graph; });
    cycles += tuning.whole({begin, end}, "replay").first;
    begin = end;
  }
  return cycles;
}

/// Of records of one model the schedules to be taken. A record stands as its judge has found it while the replay says
/// of its schedules and of the compiler's choice what it said then. Another build of the compiler may have written the
/// others: of these and of the compiler's choice (nothing is returned) the replay chooses.
std::map<std::string, std::string> judged_again(Tuning& tuning, std::vector<Record> records,
                                                const compiler::ModelSource& model, const SessionOptions& options) {
  const int64_t chosen = replay_of(tuning, tuning.chosen());
  int64_t least = chosen;
  std::map<std::string, std::string> best;
  for (Record& record : records) {
    // On a chip schedules are those of the record's divisions.
    std::optional<Tuning> divided;
    if (!tuning.divisions().empty()) {
      SessionOptions own = options;
      own.compile.schedules = record.schedules;
      divided.emplace(model, own);
    }
    Tuning& of = divided ? *divided : tuning;
    const auto state = placed(of, record.schedules);
    // What is not legal is refused with its reason, like schedules that a user gives.
    if (!state || std::any_of(state->begin(), state->end(), [&](const Tuning::Placed& unit) {
          return !of.obstacle(unit.first, unit.second).empty();
        }))
      return std::move(record.schedules);
    const int64_t cycles = replay_of(of, *state);
    if (cycles == record.replay && chosen == record.default_replay) return std::move(record.schedules);
    if (cycles >= least) continue;
    least = cycles;
    best = std::move(record.schedules);
  }
  return best;
}

}  // namespace

std::map<std::string, std::string> tuned_schedules(const std::string& database, const compiler::ModelSource& model,
                                                   const SessionOptions& options) {
  const Reader reader(database);
  Tuning tuning(model, options);
  std::vector<Record> records = records_of(reader, tuning, "tuning database '" + database + "'");
  if (!records.empty()) return judged_again(tuning, std::move(records), model, options);
  std::map<std::string, std::string> schedules;
  for (const auto& [piece, schedule] : with_known_layers(reader, tuning)) {
    for (const std::string& layer : tuning.pieces()[piece].layers) schedules[layer] = schedule;
  }
  if (!schedules.empty()) schedules.insert(tuning.divisions().begin(), tuning.divisions().end());
  return schedules;
}

void add_tuned_schedules(compiler::CompileOptions& compile, const compiler::ModelSource& model,
                         const SessionOptions& options) {
  if (compile.tuned.empty()) return;
  if (compile.max_length > 0)
    throw Error(ErrorCode::kUnsupported, "tuned schedules are for fixed shapes; leave --tuned or --max-length out");
  std::map<std::string, std::string> tuned = tuned_schedules(compile.tuned, model, options);
  for (const auto& [layer, schedule] : compile.schedules) {
    std::vector<std::string> replaced;  // its schedule, and on a chip those of its parts
    for (const auto& [name, text] : tuned)
      if (name == layer || name.starts_with(layer + "@")) replaced.push_back(name);
    for (const std::string& name : replaced) {
      const auto found = tuned.find(name);
      if (found == tuned.end()) continue;
      const std::string text = found->second;
      tuned.erase(found);
      const json chain = json::parse(text, nullptr, false);
      if (!chain.is_object() || !chain.contains("chain")) continue;
      std::erase_if(tuned, [&](const auto& other) { return other.second == text; });  // the other links
    }
  }
  compile.schedules.merge(tuned);
}

}  // namespace tessera
