// SPDX-License-Identifier: Apache-2.0
// Operators that the library does not know are left out. What remains is one group or a few; where the compiler refuses
// one, the nodes that it refuses alone or names in its message are left out too, until it takes each group as a whole.
#include "tessera/onnxruntime_ep/partition.h"

#include <algorithm>
#include <map>

#include "ops/operator.h"
#include "tessera/message.h"

namespace tessera::ort {

namespace {

bool is_dynamic(const Port& port) {
  return !port.ranked || std::any_of(port.shape.begin(), port.shape.end(), [](int64_t d) { return d < 0; });
}

/// Imports and optimises a model. Errors: those of both.
void try_model(const std::string& model, const SessionOptions& options) {
  compiler::Model::from_bytes(model, options.import).optimise({}, compiler::is_close(options.compile));
}

/// A session that has compiled what has no dynamic dimensions, and imported the rest. Errors: those of a session.
std::shared_ptr<Session> open(const std::string& model, const SessionOptions& options) {
  auto session = std::make_shared<Session>(Session::from_bytes(model, options));
  if (std::any_of(session->inputs().begin(), session->inputs().end(), is_dynamic)) try_model(model, options);
  return session;
}

std::string unknown_operator(const GraphReader& graph, const NodeFacts& node) {
  const auto version = graph.operator_sets().find(node.domain);
  if (version == graph.operator_sets().end()) return "its operator set has no version";
  if (ops::registry().find(node.domain, node.op_type, static_cast<int>(version->second))) return "";
  return "Tessera does not know the operator";
}

/// What only subgraphs of some nodes take from outside.
std::set<std::string> captured(const GraphReader& graph, const std::vector<size_t>& nodes) {
  std::set<std::string> names = graph.border_of(nodes).inputs;
  for (const size_t i : nodes) {
    const NodeFacts& node = graph.nodes()[i];
    for (const std::string& name : node.uses)
      if (std::find(node.captured.begin(), node.captured.end(), name) == node.captured.end()) names.erase(name);
  }
  return names;
}

class Search {
 public:
  Search(const GraphReader& graph, std::vector<std::string> left_out, const Rules& rules)
      : graph_(graph), rules_(rules), reasons_(std::move(left_out)) {}

  Partitions run() {
    for (size_t i = 0; i < reasons_.size(); ++i)
      if (reasons_[i].empty()) reasons_[i] = unknown_operator(graph_, graph_.nodes()[i]);
    while (!settle()) {
    }
    return {std::move(taken_), std::move(reasons_)};
  }

 private:
  /// Whether the compiler takes these nodes; if so they are a partition.
  bool take(const std::vector<size_t>& nodes, std::string& refusal) {
    const GraphReader::Border border = graph_.border_of(nodes);
    if (border.outputs.empty()) {
      refusal = "nobody uses its results";
      return false;
    }
    try {
      std::string model = graph_.model_of(nodes, border);
      std::shared_ptr<Session> session = open(model, rules_.options);
      taken_.push_back({nodes, std::move(model), std::move(session)});
      return true;
    } catch (const Error& error) {
      refusal = one_line(error.what());
      return false;
    }
  }

  /// Leaves out the nodes at the border of a group whose values do not pass there; whether there were any.
  bool trim(const std::vector<size_t>& group) {
    const GraphReader::Border border = graph_.border_of(group);
    bool any = false;
    const std::set<std::string> lost = rules_.captured_values_pass ? std::set<std::string>() : captured(graph_, group);
    for (const size_t i : group) {
      const NodeFacts& node = graph_.nodes()[i];
      const auto stops = [&](const std::vector<std::string>& names, const std::set<std::string>& at) {
        for (const std::string& name : names)
          if (at.contains(name) && !graph_.value(name).passes) {
            reasons_[i] = "'" + name + "' is no tensor, or of an element type that does not pass to Tessera";
            any = true;
          }
      };
      for (const std::string& name : node.captured)
        if (lost.contains(name)) {
          reasons_[i] = "this version of ONNX Runtime does not hand on '" + name + "', which its bodies take";
          any = true;
        }
      stops(node.uses, border.inputs);
      stops(node.results, border.outputs);
    }
    return any;
  }

  /// Tries the groups of the candidates; false when there are fewer candidates now, so that there are other groups.
  bool settle() {
    std::vector<bool> candidates;
    for (const std::string& why : reasons_) candidates.push_back(why.empty());
    std::vector<Partition> known = std::move(taken_);
    taken_.clear();
    for (const std::vector<size_t>& group : convex_groups(graph_.nodes(), candidates)) {
      const auto same = std::find_if(known.begin(), known.end(), [&](const Partition& p) { return p.nodes == group; });
      std::string refusal;
      if (same != known.end())
        taken_.push_back(std::move(*same));
      else if (trim(group))
        return false;
      else if (!take(group, refusal)) {
        exclude(group, refusal);
        return false;
      }
    }
    return true;
  }

  /// Finds out which nodes of a group the compiler does not want, at least one.
  void exclude(const std::vector<size_t>& group, const std::string& refusal) {
    const auto left_out = [&](auto&& unwanted) {
      bool any = false;
      for (const size_t i : group) {
        std::string why = unwanted(i);
        any = any || !why.empty();
        if (!why.empty()) reasons_[i] = std::move(why);
      }
      return any;
    };
    if (group.size() > 1 && left_out([&](size_t i) { return alone(i); })) return;
    const auto named = [&](size_t i) {
      return refusal.find(describe(graph_.nodes()[i])) != std::string::npos ? refusal : "";
    };
    if (group.size() > 1 && left_out(named)) return;
    left_out([&](size_t) { return refusal; });
  }

  /// Why the compiler does not take a node alone.
  std::string alone(size_t index) const {
    try {
      const std::string model = graph_.model_of({index}, graph_.border_of({index}));
      try_model(model, rules_.options);
      return "";
    } catch (const Error& error) {
      return one_line(error.what());
    }
  }

  const GraphReader& graph_;
  const Rules& rules_;
  std::vector<std::string> reasons_;
  std::vector<Partition> taken_;
};

}  // namespace

Partitions partitions_of(const GraphReader& graph, std::vector<std::string> left_out, const Rules& rules) {
  return Search(graph, std::move(left_out), rules).run();
}

std::string reason_against(const GraphReader& node, const Rules& rules) {
  std::string why = unknown_operator(node, node.nodes()[0]);
  if (!why.empty()) return why;
  if (!rules.captured_values_pass && !captured(node, {0}).empty()) return "its bodies take values from outside";
  try {
    try_model(node.model_of({0}, node.border_of({0})), rules.options);
  } catch (const Error& error) {
    why = one_line(error.what());
  }
  return why;
}

std::vector<std::vector<size_t>> convex_groups(const std::vector<NodeFacts>& nodes, const std::vector<bool>& taken) {
  // The group of a node that is taken; of another one the first group that may stand behind it.
  std::vector<size_t> group(nodes.size(), 0);
  std::map<std::string, size_t> producers;
  std::vector<std::vector<size_t>> groups;
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (const std::string& name : nodes[i].uses) {
      const auto producer = producers.find(name);
      if (producer == producers.end()) continue;
      const size_t from = producer->second;
      group[i] = std::max(group[i], group[from] + (taken[from] && !taken[i] ? 1 : 0));
    }
    for (const std::string& name : nodes[i].results) producers[name] = i;
    if (!taken[i]) continue;
    if (groups.size() <= group[i]) groups.resize(group[i] + 1);
    groups[group[i]].push_back(i);
  }
  std::erase_if(groups, [](const auto& members) { return members.empty(); });
  return groups;
}

}  // namespace tessera::ort
