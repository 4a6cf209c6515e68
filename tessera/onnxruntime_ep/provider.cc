// SPDX-License-Identifier: Apache-2.0
// TesseraExecutionProvider: Tessera behind ONNX Runtime's interface for providers that stand in a library of their own.
// ONNX Runtime shows a graph, gets the nodes that Tessera takes, and then runs each partition by one call. No exception
// leaves this library: what is thrown becomes a status with one line.
#include <algorithm>
#include <climits>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <new>

#include "isa/program/artifact.h"
#include "tessera/message.h"
#include "tessera/onnxruntime_ep/context.h"
#include "tessera/onnxruntime_ep/partition.h"
#include "tessera/onnxruntime_ep/settings.h"
#include "tessera/onnxruntime_ep/tensors.h"

namespace tessera::ort {

namespace {

constexpr const char* kVendor = "Tessera";

// Versions of ONNX Runtime (24 is 1.24) since which
constexpr unsigned kNamesDiffer = 24;         // partitions of all graphs of a session have different names
constexpr unsigned kCapturedValuesPass = 27;  // a partition gets what only subgraphs of its nodes take from outside

/// Runs a body; null, or a status for what it threw.
template <typename F>
Status* guarded(const Api& api, F&& body) noexcept {
  try {
    body();
    return nullptr;
  } catch (const Error& error) {
    const Code code = error.code() == ErrorCode::kInvalidArgument ? Code::kInvalidArgument : Code::kEpFail;
    return api.status(code, std::string(kProviderName) + ": " + one_line(error.what()));
  } catch (const std::bad_alloc&) {
    return api.status(Code::kEpFail, std::string(kProviderName) + ": the host has not enough memory");
  } catch (const std::exception& error) {
    return api.status(Code::kEpFail, std::string(kProviderName) + ": " + one_line(error.what()));
  }
}

/// Lines of statistics from all partitions and threads.
void append_line(const std::string& path, const std::string& line) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  std::ofstream out(path, std::ios::app);
  out << line << '\n';
  out.close();
  if (!out) throw Error(ErrorCode::kIo, "cannot write '" + path + "'");
}

/// One partition as ONNX Runtime runs it.
struct Computation : NodeComputeInfo {
  Computation(const Api& interface, const Node* fused, std::shared_ptr<Session> opened, const Settings& settings)
      : NodeComputeInfo{kApiVersion, create_state_of, compute_of, release_state_of},
        api(interface),
        session(std::move(opened)),
        statistics(settings.statistics) {
    const auto names = [&](auto number, auto entries) {
      std::vector<std::string> all;
      for (const ValueInfo* value : api.list<ValueInfo>(number, entries, fused))
        all.emplace_back(value ? api.get<const char*>(kGetValueInfoName, value) : "");
      return all;
    };
    name = api.get<const char*>(kNodeGetName, fused);
    inputs = names(kNodeGetNumInputs, kNodeGetInputs);
    outputs = names(kNodeGetNumOutputs, kNodeGetOutputs);
    for (const Port& port : session->inputs())
      if (std::find(inputs.begin(), inputs.end(), port.name) == inputs.end())
        throw Error(ErrorCode::kInvalidModel,
                    "partition '" + name + "' was compiled with an input '" + port.name + "' that its node lacks");
  }

  static Status* create_state_of(NodeComputeInfo* self, NodeComputeContext*, void** state) {
    *state = self;
    return nullptr;
  }
  static void release_state_of(NodeComputeInfo*, void*) {}
  static Status* compute_of(NodeComputeInfo* self, void*, KernelContext* context) {
    auto& computation = *static_cast<Computation*>(self);
    return guarded(computation.api, [&] { computation.run(context); });
  }

  void run(KernelContext* context) {
    NamedValues feeds;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const auto takes = [&](const Port& port) { return port.name == inputs[i]; };
      if (std::none_of(session->inputs().begin(), session->inputs().end(), takes)) continue;
      const auto* value = api.get<const Value*>(kKernelContextGetInput, static_cast<const KernelContext*>(context), i);
      feeds.emplace_back(inputs[i], value ? ops::Value(to_tensor(api, value)) : ops::Value());
    }
    // The statistics are of the last run, so that another thread has to wait.
    std::unique_lock<std::mutex> lock(mutex, std::defer_lock);
    if (!statistics.empty()) lock.lock();
    const std::vector<ops::Value> results = session->run(feeds, outputs);
    for (size_t i = 0; i < results.size(); ++i) {
      if (results[i].kind != ops::Value::Kind::kTensor)
        throw Error(ErrorCode::kUnsupported, "output '" + outputs[i] + "' is no tensor");
      to_output(api, results[i].tensor, context, i);
    }
    if (!statistics.empty()) append_line(statistics, session->stats_json());
  }

  const Api& api;
  std::shared_ptr<Session> session;
  std::mutex mutex;
  std::string name, statistics;
  std::vector<std::string> inputs, outputs;
};

/// The provider of one session of ONNX Runtime.
struct Provider : Ep {
  Provider(const Api& interface, unsigned running, Settings given, const Logger* to)
      : Ep{kApiVersion, name_of, capability_of, compile_of, release_computations_of},
        api(interface),
        version(running),
        settings(std::move(given)),
        logger(to) {}

  static const char* name_of(const Ep*) { return kProviderName; }
  static Status* capability_of(Ep* self, const Graph* graph, EpGraphSupportInfo* support) {
    auto& provider = *static_cast<Provider*>(self);
    return guarded(provider.api, [&] { provider.choose(graph, support); });
  }
  static Status* compile_of(Ep* self, const Graph** graphs, const Node** fused, size_t count,
                            NodeComputeInfo** computations, Node** context_nodes) {
    auto& provider = *static_cast<Provider*>(self);
    return guarded(provider.api, [&] {
      for (size_t i = 0; i < count; ++i) {
        computations[i] = nullptr;
        computations[i] = provider.compile_one(graphs[i], fused[i], context_nodes ? &context_nodes[i] : nullptr);
      }
      provider.opened.clear();
    });
  }
  static void release_computations_of(Ep*, NodeComputeInfo** computations, size_t count) {
    for (size_t i = 0; i < count; ++i) delete static_cast<Computation*>(computations[i]);
  }

  void choose(const Graph* of, EpGraphSupportInfo* support) {
    const GraphReader graph(api, of);
    if (graph.nodes().empty() || leaves_to_parent(of)) return;
    if (version < kNamesDiffer && (chosen || looks_like_body(of))) return;
    std::vector<std::string> left_out(graph.nodes().size());
    for (size_t i = 0; i < left_out.size(); ++i) {
      const NodeFacts& node = graph.nodes()[i];
      const char* owner = api.get<const char*>(kNodeGetEpName, node.node);
      if (owner && *owner) {
        left_out[i] = "it runs on " + std::string(owner);
      } else if (is_own_context(graph, node)) {
        left_out[i] = kOwnContext;
        chosen = true;
        fuse({i}, graph, support);
      } else if (holds_partitions(node.node)) {
        left_out[i] = "parts of its bodies run on Tessera, and not the whole";
      }
    }
    Partitions partitions = partitions_of(graph, std::move(left_out), rules());
    for (Partition& partition : partitions.taken) {
      fuse(partition.nodes, graph, support);
      opened.push_back(std::move(partition));
      chosen = true;
    }
    tell(graph, partitions.reasons);
  }

  Rules rules() const { return {settings.session, version >= kCapturedValuesPass}; }

  /// Whether a graph is the body of a node that is taken with its bodies, or one where no partition may be: a model of
  /// contexts has none in bodies.
  bool leaves_to_parent(const Graph* of) const {
    const auto* parent = api.get<const Node*>(kGraphGetParentNode, of);
    if (parent && settings.context_enable) return true;
    return parent && reason_against(GraphReader(api, of, parent), rules()).empty();
  }

  bool holds_partitions(const Node* node) const {
    std::vector<const Graph*> bodies(api.get<size_t>(kNodeGetNumSubgraphs, node));
    std::vector<const char*> names(bodies.size());
    if (!bodies.empty()) api.call(kNodeGetSubgraphs, node, bodies.data(), bodies.size(), names.data());
    for (const Graph* body : bodies)
      for (const Node* inner : api.list<Node>(kGraphGetNumNodes, kGraphGetNodes, body)) {
        const char* owner = api.get<const char*>(kNodeGetEpName, inner);
        if ((owner && std::string_view(owner) == kProviderName) || holds_partitions(inner)) return true;
      }
    return false;
  }

  /// ONNX Runtime 1.23 numbers partitions from zero in each graph of a session, so that names of the second graph are
  /// refused, and does not tell a body from the main graph, which comes last. A body has no inputs, as those of If, or
  /// takes a number and a condition first and gives a condition first, as those of Loop.
  bool looks_like_body(const Graph* of) const {
    const auto inputs = api.list<ValueInfo>(kGraphGetNumInputs, kGraphGetInputs, of);
    const auto outputs = api.list<ValueInfo>(kGraphGetNumOutputs, kGraphGetOutputs, of);
    if (inputs.empty()) return true;
    const auto is = [&](const ValueInfo* value, ops::DType dtype) {
      return tensor_type(api, value) == static_cast<int>(dtype);
    };
    return inputs.size() > 1 && !outputs.empty() && is(inputs[0], ops::DType::kInt64) &&
           is(inputs[1], ops::DType::kBool) && is(outputs[0], ops::DType::kBool);
  }

  void fuse(const std::vector<size_t>& nodes, const GraphReader& graph, EpGraphSupportInfo* support) const {
    std::vector<const Node*> members;
    for (const size_t i : nodes) members.push_back(graph.nodes()[i].node);
    NodeFusionOptions fusion;
    fusion.drop_constant_initializers = true;
    api.call(kAddNodesToFuse, support, members.data(), members.size(), &fusion);
  }

  /// One line on what stays with ONNX Runtime, and the reasons for those who ask for more.
  void tell(const GraphReader& graph, const std::vector<std::string>& reasons) const {
    size_t count = 0;
    std::string first;
    for (size_t i = 0; i < reasons.size(); ++i) {
      if (reasons[i].empty() || reasons[i] == kOwnContext) continue;
      const std::string node = describe(graph.nodes()[i]) + ": ";
      const std::string text = reasons[i].starts_with(node) ? reasons[i] : node + reasons[i];
      if (count++ == 0) first = text;
      log(Severity::kInfo, text);
    }
    if (count)
      log(Severity::kWarning, "ONNX Runtime keeps " + std::to_string(count) + " of " + std::to_string(reasons.size()) +
                                  " nodes of graph '" + graph.name() + "', the first of them: " + first);
  }

  void log(Severity severity, const std::string& text) const {
    const std::string line = std::string(kProviderName) + ": " + text;
    if (Status* failed = api.raw(kLogMessage, logger, severity, line.c_str(), __FILE__, __LINE__, __func__))
      api.raw(kReleaseStatus, failed);
  }

  NodeComputeInfo* compile_one(const Graph* of, const Node* fused, Node** context_node) {
    const GraphReader graph(api, of);
    std::string content;  // what a context would hold
    std::shared_ptr<Session> session;
    if (graph.nodes().size() == 1 && is_own_context(graph, graph.nodes()[0])) {
      const NodeFacts& node = graph.nodes()[0];
      content = load_context(graph, node, settings);
      try {
        session = std::make_shared<Session>(Session::from_bytes(content, settings.session));
      } catch (const Error& error) {
        throw Error(error.code(), describe(node) + ": " + error.what());
      }
    } else {
      std::vector<size_t> nodes(graph.nodes().size());
      for (size_t i = 0; i < nodes.size(); ++i) nodes[i] = i;
      content = graph.model_of(nodes, border_of(fused));
      const auto same =
          std::find_if(opened.begin(), opened.end(), [&](const Partition& p) { return p.model == content; });
      session = same != opened.end() ? same->session
                                     : std::make_shared<Session>(Session::from_bytes(content, settings.session));
    }
    auto computation = std::make_unique<Computation>(api, fused, session, settings);
    if (settings.context_enable && context_node) {
      if (!is_artifact(content) && !is_dynamic(*session)) {
        const std::vector<uint8_t> artifact = program::serialize(session->artifact());
        content.assign(artifact.begin(), artifact.end());
      }
      *context_node = save_context(api, graph, fused, content, settings, contexts++);
    }
    return computation.release();
  }

  GraphReader::Border border_of(const Node* fused) const {
    GraphReader::Border border;
    const auto add = [&](auto number, auto entries, std::set<std::string>& names) {
      for (const ValueInfo* value : api.list<ValueInfo>(number, entries, fused))
        if (value) names.insert(api.get<const char*>(kGetValueInfoName, value));
    };
    add(kNodeGetNumInputs, kNodeGetInputs, border.inputs);
    add(kNodeGetNumOutputs, kNodeGetOutputs, border.outputs);
    return border;
  }

  static bool is_dynamic(const Session& session) {
    const auto open = [](const Port& port) {
      return !port.ranked || std::any_of(port.shape.begin(), port.shape.end(), [](int64_t d) { return d < 0; });
    };
    return std::any_of(session.inputs().begin(), session.inputs().end(), open);
  }

  static constexpr const char* kOwnContext = "a compiled context";
  const Api& api;
  unsigned version;     // of ONNX Runtime
  bool chosen = false;  // nodes of some graph
  Settings settings;
  const Logger* logger;
  std::vector<Partition> opened;  // between the choice and the compilation
  size_t contexts = 0;
};

struct Factory : EpFactory {
  Factory(const ApiTable* table, unsigned running)
      : EpFactory{kApiVersion,
                  name_of,
                  vendor_of,
                  devices_of,
                  create_of,
                  release_of,
                  vendor_id_of,
                  version_of,
                  nullptr,
                  create_allocator_of,
                  release_allocator_of,
                  create_transfer_of,
                  stream_aware_of,
                  create_stream_of},
        api(table),
        version(running) {}

  static const char* name_of(const EpFactory*) { return kProviderName; }
  static const char* vendor_of(const EpFactory*) { return kVendor; }
  static uint32_t vendor_id_of(const EpFactory*) { return 0; }
  static const char* version_of(const EpFactory*) { return TESSERA_VERSION; }

  /// The NPU, real or simulated, stands behind the host: ONNX Runtime sees the processor that drives it.
  static Status* devices_of(EpFactory* self, const HardwareDevice* const* devices, size_t count, EpDevice** supported,
                            size_t room, size_t* supported_count) {
    const Api& api = static_cast<Factory*>(self)->api;
    *supported_count = 0;
    return guarded(api, [&] {
      for (size_t i = 0; i < count && *supported_count < std::min<size_t>(room, 1); ++i) {
        if (api.raw(kHardwareDeviceType, devices[i]) != HardwareType::kCpu) continue;
        const KeyValuePairs* none = nullptr;
        api.call(kCreateEpDevice, self, devices[i], none, none, &supported[*supported_count]);
        ++*supported_count;
      }
    });
  }
  static Status* create_of(EpFactory* self, const HardwareDevice* const*, const KeyValuePairs* const*, size_t,
                           const OrtSessionOptions* options, const Logger* logger, Ep** ep) {
    const auto& factory = *static_cast<Factory*>(self);
    *ep = nullptr;
    return guarded(factory.api, [&] {
      *ep = new Provider(factory.api, factory.version, settings_of(factory.api, options), logger);
    });
  }
  static void release_of(EpFactory*, Ep* ep) { delete static_cast<Provider*>(ep); }

  // Tensors stay in the memory of the host, which ONNX Runtime allocates.
  static Status* create_allocator_of(EpFactory*, const void*, const KeyValuePairs*, Allocator** allocator) {
    *allocator = nullptr;
    return nullptr;
  }
  static void release_allocator_of(EpFactory*, Allocator*) {}
  static Status* create_transfer_of(EpFactory*, void** transfer) {
    *transfer = nullptr;
    return nullptr;
  }
  static bool stream_aware_of(const EpFactory*) { return false; }
  static Status* create_stream_of(EpFactory*, const void*, const KeyValuePairs*, void** stream) {
    *stream = nullptr;
    return nullptr;
  }

  Api api;
  unsigned version;
};

/// The version of the tables of a release: 23 for "1.23.2".
unsigned version_of(const std::string& release) {
  char* rest = nullptr;
  const unsigned long major = std::strtoul(release.c_str(), &rest, 10);
  const unsigned long minor = *rest == '.' ? std::strtoul(rest + 1, nullptr, 10) : 0;
  return major > 1 ? UINT_MAX : static_cast<unsigned>(minor);
}

}  // namespace

}  // namespace tessera::ort

extern "C" {

using tessera::ort::ApiBase;
using tessera::ort::EpFactory;
using tessera::ort::Logger;
using tessera::ort::Status;

__attribute__((visibility("default"))) Status* CreateEpFactories(const char*, const ApiBase* base, const Logger*,
                                                                 EpFactory** factories, size_t room, size_t* count) {
  using namespace tessera::ort;
  *count = 0;
  const ApiTable* table = nullptr;
  const unsigned version = version_of(base->version_string());
  if (version >= kApiVersion) table = base->get_api(kApiVersion);
  if (!table) {
    const std::string message = std::string(kProviderName) + ": ONNX Runtime " + base->version_string() +
                                " is too old; version 1.23 or newer is needed";
    return kCreateStatus.of(base->get_api(1))(Code::kNotImplemented, message.c_str());
  }
  if (room < 1)
    return kCreateStatus.of(table)(Code::kInvalidArgument, "TesseraExecutionProvider: there is no room for a factory");
  factories[0] = new Factory(table, version);
  *count = 1;
  return nullptr;
}

__attribute__((visibility("default"))) Status* ReleaseEpFactory(EpFactory* factory) {
  delete static_cast<tessera::ort::Factory*>(factory);
  return nullptr;
}

}  // extern "C"
