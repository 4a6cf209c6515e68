// SPDX-License-Identifier: Apache-2.0
#include "tessera/tuned.h"

#include <sqlite3.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "base/error.h"
#include "tessera/description.h"
#include "tessera/tuning.h"

namespace tessera {

namespace {

using nlohmann::json;

constexpr int kApplication = 0x54535254, kVersion = 1;  // as database.py has them
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
    if (number("PRAGMA user_version") != kVersion)
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
    after.emplace_back(piece, schedule);
    after.insert(after.end(), last, end);
    if (tuning.together(after, "replay").first >= tuning.together(before, "replay").first) continue;
    const auto place = state.erase(first, last);
    state.insert(place, {piece, schedule});
    changed = true;
  }
  return changed ? state : std::vector<Tuning::Placed>{};
}

}  // namespace

std::map<std::string, std::string> tuned_schedules(const std::string& database, const std::string& model, bool is_path,
                                                   const SessionOptions& options) {
  const Reader reader(database);
  Tuning tuning(model, is_path, options);
  const auto whole = reader.text("SELECT schedules FROM networks WHERE model=? AND machine=? AND compiler=?",
                                 {tuning.model_key(), tuning.machine_key(), compiler_version()});
  if (whole) return schedules_from(*whole, "tuning database '" + database + "'");
  std::map<std::string, std::string> schedules;
  for (const auto& [piece, schedule] : with_known_layers(reader, tuning)) {
    for (const std::string& layer : tuning.pieces()[piece].layers) schedules[layer] = schedule;
  }
  return schedules;
}

void add_tuned_schedules(compiler::CompileOptions& compile, const std::string& model, bool is_path,
                         const SessionOptions& options) {
  if (compile.tuned.empty()) return;
  if (compile.max_length > 0)
    throw Error(ErrorCode::kUnsupported, "tuned schedules are for fixed shapes; leave --tuned or --max-length out");
  std::map<std::string, std::string> tuned = tuned_schedules(compile.tuned, model, is_path, options);
  for (const auto& [layer, schedule] : compile.schedules) {
    const auto found = tuned.find(layer);
    if (found == tuned.end()) continue;
    const json chain = json::parse(found->second, nullptr, false);
    tuned.erase(found);
    if (!chain.is_object() || !chain.contains("chain")) continue;
    for (const json& link : chain["chain"]) {
      if (link.is_string()) tuned.erase(link.get<std::string>());
    }
  }
  compile.schedules.merge(tuned);
}

}  // namespace tessera
