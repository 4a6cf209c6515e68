// SPDX-License-Identifier: Apache-2.0
// Parts of the compiler that are chosen by name: cost models and searchers. A name, a sentence and a maker enter, from
// the core or from outside of it; a maker leaves by its name. Registration happens while the program starts or later,
// from one thread or several.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"

namespace tessera::schedule {

/// Runs a registration while the program or a plugin is loaded, where no exception may leave: a refusal is kept.
void guarded_registration(const std::function<void()>& registration);
/// What registrations were refused since the last call, as text; empty: none.
std::string take_registration_errors();

template <typename Make>
class Registry {
 public:
  /// `kind`: what is registered, for errors: "cost model".
  explicit Registry(std::string kind) : kind_(std::move(kind)) {}

  /// Errors: kInvalidArgument when the name is taken.
  void add(const std::string& name, const std::string& what, Make make) {
    const std::lock_guard lock(mutex_);
    if (!known_.emplace(name, Entry{what, std::move(make)}).second)
      throw Error(ErrorCode::kInvalidArgument, "a " + kind_ + " '" + name + "' is registered already");
  }

  /// Errors: kInvalidArgument with the names that are known.
  Make find(const std::string& name) const {
    const std::lock_guard lock(mutex_);
    const auto found = known_.find(name);
    if (found != known_.end()) return found->second.make;
    std::string names;
    for (const auto& [known, entry] : known_) names += (names.empty() ? "'" : ", '") + known + "'";
    throw Error(ErrorCode::kInvalidArgument, "there is no " + kind_ + " '" + name + "'; known: " + names);
  }

  /// Names with what they are, in order of names.
  std::vector<std::pair<std::string, std::string>> entries() const {
    const std::lock_guard lock(mutex_);
    std::vector<std::pair<std::string, std::string>> all;
    for (const auto& [name, entry] : known_) all.emplace_back(name, entry.what);
    return all;
  }

 private:
  struct Entry {
    std::string what;
    Make make;
  };
  std::string kind_;
  mutable std::mutex mutex_;
  std::map<std::string, Entry> known_;
};

}  // namespace tessera::schedule
