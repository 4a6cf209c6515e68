// SPDX-License-Identifier: Apache-2.0
// The part of ONNX Runtime's C interface that an execution provider in a library of its own needs, in our words. The
// interface is a few tables of function pointers. A table only grows at its end, so an entry is told by its index, its
// type and the version in which it appeared; the rest of the table is not declared. The reference is
// https://onnxruntime.ai/docs/api/c; tests/system/interfaces/test_execution_provider.py checks indices and types
// against the wheels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"

namespace tessera::ort {

/// The version of the interface that is asked for, and that our own tables below are filled for: 1.23.
inline constexpr uint32_t kApiVersion = 23;

// Objects of ONNX Runtime, known by their addresses.
struct Status;
struct Value;
struct TypeInfo;
struct TensorInfo;
struct SequenceInfo;
struct OptionalInfo;
struct ModelMetadata;
struct Allocator;
struct KernelContext;
struct OrtSessionOptions;
struct KeyValuePairs;
struct Logger;
struct OpAttr;
struct ValueInfo;
struct Node;
struct Graph;
struct HardwareDevice;
struct EpDevice;
struct EpGraphSupportInfo;
struct NodeComputeContext;
// The tables. Their entries stand below.
struct ApiTable;
struct EpApiTable;
struct EditorTable;

enum class Code : int { kFail = 1, kInvalidArgument = 2, kNotImplemented = 9, kEpFail = 11 };
enum class Kind : int { kUnknown = 0, kTensor = 1, kSequence = 2, kMap = 3, kOpaque = 4, kSparse = 5, kOptional = 6 };
enum class Severity : int { kVerbose = 0, kInfo = 1, kWarning = 2, kError = 3 };
enum class AttrType : int {
  kUndefined = 0,
  kInt = 1,
  kInts = 2,
  kFloat = 3,
  kFloats = 4,
  kString = 5,
  kStrings = 6,
  kGraph = 7,
  kTensor = 8,
};
enum class HardwareType : int { kCpu = 0, kGpu = 1, kNpu = 2 };

struct ApiBase {
  const ApiTable* (*get_api)(uint32_t version);
  const char* (*version_string)();
};

/// A function of a table: its index, the version in which it appeared (22 is 1.22) and its type.
template <typename Table, size_t kIndex, uint32_t kSince, typename Signature>
struct Entry {
  static_assert(kSince <= kApiVersion);
  using Pointer = Signature*;
  static Pointer of(const Table* table) { return reinterpret_cast<Pointer const*>(table)[kIndex]; }
};

template <size_t kIndex, uint32_t kSince, typename Signature>
inline constexpr Entry<ApiTable, kIndex, kSince, Signature> kApi{};

inline constexpr auto kCreateStatus = kApi<0, 1, Status*(Code, const char*)>;
inline constexpr auto kGetErrorMessage = kApi<2, 1, const char*(const Status*)>;
inline constexpr auto kGetTensorMutableData = kApi<51, 1, Status*(Value*, void**)>;
inline constexpr auto kFillStringTensor = kApi<52, 1, Status*(Value*, const char* const*, size_t)>;
inline constexpr auto kGetStringTensorDataLength = kApi<53, 1, Status*(const Value*, size_t*)>;
inline constexpr auto kGetStringTensorContent = kApi<54, 1, Status*(const Value*, void*, size_t, size_t*, size_t)>;
inline constexpr auto kCastTypeInfoToTensorInfo = kApi<55, 1, Status*(const TypeInfo*, const TensorInfo**)>;
inline constexpr auto kGetOnnxTypeFromTypeInfo = kApi<56, 1, Status*(const TypeInfo*, Kind*)>;
inline constexpr auto kGetTensorElementType = kApi<60, 1, Status*(const TensorInfo*, int*)>;
inline constexpr auto kGetDimensionsCount = kApi<61, 1, Status*(const TensorInfo*, size_t*)>;
inline constexpr auto kGetDimensions = kApi<62, 1, Status*(const TensorInfo*, int64_t*, size_t)>;
inline constexpr auto kGetSymbolicDimensions = kApi<63, 1, Status*(const TensorInfo*, const char**, size_t)>;
inline constexpr auto kGetTensorTypeAndShape = kApi<65, 1, Status*(const Value*, TensorInfo**)>;
inline constexpr auto kAllocatorFree = kApi<76, 1, Status*(Allocator*, void*)>;
inline constexpr auto kGetDefaultAllocator = kApi<78, 1, Status*(Allocator**)>;
inline constexpr auto kKernelContextGetInput = kApi<90, 1, Status*(const KernelContext*, size_t, const Value**)>;
inline constexpr auto kKernelContextGetOutput =
    kApi<91, 1, Status*(KernelContext*, size_t, const int64_t*, size_t, Value**)>;
inline constexpr auto kReleaseStatus = kApi<93, 1, void(Status*)>;
inline constexpr auto kReleaseValue = kApi<96, 1, void(Value*)>;
inline constexpr auto kReleaseTypeInfo = kApi<98, 1, void(TypeInfo*)>;
inline constexpr auto kReleaseTensorInfo = kApi<99, 1, void(TensorInfo*)>;
inline constexpr auto kCastTypeInfoToSequenceInfo = kApi<104, 2, Status*(const TypeInfo*, const SequenceInfo**)>;
inline constexpr auto kGetSequenceElementType = kApi<107, 2, Status*(const SequenceInfo*, TypeInfo**)>;
inline constexpr auto kMetadataLookup = kApi<116, 2, Status*(const ModelMetadata*, Allocator*, const char*, char**)>;
inline constexpr auto kReleaseModelMetadata = kApi<118, 2, void(ModelMetadata*)>;
inline constexpr auto kCreateOpAttr = kApi<211, 12, Status*(const char*, const void*, int, AttrType, OpAttr**)>;
inline constexpr auto kReleaseOpAttr = kApi<212, 12, void(OpAttr*)>;
inline constexpr auto kLogMessage =
    kApi<247, 15, Status*(const Logger*, Severity, const char*, const char*, int, const char*)>;
inline constexpr auto kCastTypeInfoToOptionalInfo = kApi<250, 15, Status*(const TypeInfo*, const OptionalInfo**)>;
inline constexpr auto kGetOptionalContainedType = kApi<251, 15, Status*(const OptionalInfo*, TypeInfo**)>;
inline constexpr auto kReadOpAttr = kApi<272, 17, Status*(const OpAttr*, AttrType, void*, size_t, size_t*)>;
inline constexpr auto kGetValueInfoName = kApi<289, 22, Status*(const ValueInfo*, const char**)>;
inline constexpr auto kGetValueInfoTypeInfo = kApi<290, 22, Status*(const ValueInfo*, const TypeInfo**)>;
inline constexpr auto kGetModelEditorApi = kApi<291, 22, const EditorTable*()>;
inline constexpr auto kGetKeyValuePairs =
    kApi<298, 22, void(const KeyValuePairs*, const char* const**, const char* const**, size_t*)>;
inline constexpr auto kReleaseKeyValuePairs = kApi<300, 22, void(KeyValuePairs*)>;
inline constexpr auto kHardwareDeviceType = kApi<307, 22, HardwareType(const HardwareDevice*)>;
inline constexpr auto kGetEpApi = kApi<317, 22, const EpApiTable*()>;
inline constexpr auto kGetTensorSizeInBytes = kApi<318, 23, Status*(const Value*, size_t*)>;
inline constexpr auto kValueInfoGetInitializerValue = kApi<326, 23, Status*(const ValueInfo*, const Value**)>;
inline constexpr auto kValueInfoIsConstantInitializer = kApi<331, 23, Status*(const ValueInfo*, bool*)>;
inline constexpr auto kGraphGetName = kApi<333, 23, Status*(const Graph*, const char**)>;
inline constexpr auto kGraphGetModelPath = kApi<334, 23, Status*(const Graph*, const char**)>;
inline constexpr auto kGraphGetIrVersion = kApi<335, 23, Status*(const Graph*, int64_t*)>;
inline constexpr auto kGraphGetNumOperatorSets = kApi<336, 23, Status*(const Graph*, size_t*)>;
inline constexpr auto kGraphGetOperatorSets = kApi<337, 23, Status*(const Graph*, const char**, int64_t*, size_t)>;
inline constexpr auto kGraphGetNumInputs = kApi<338, 23, Status*(const Graph*, size_t*)>;
inline constexpr auto kGraphGetInputs = kApi<339, 23, Status*(const Graph*, const ValueInfo**, size_t)>;
inline constexpr auto kGraphGetNumOutputs = kApi<340, 23, Status*(const Graph*, size_t*)>;
inline constexpr auto kGraphGetOutputs = kApi<341, 23, Status*(const Graph*, const ValueInfo**, size_t)>;
inline constexpr auto kGraphGetNumInitializers = kApi<342, 23, Status*(const Graph*, size_t*)>;
inline constexpr auto kGraphGetInitializers = kApi<343, 23, Status*(const Graph*, const ValueInfo**, size_t)>;
inline constexpr auto kGraphGetNumNodes = kApi<344, 23, Status*(const Graph*, size_t*)>;
inline constexpr auto kGraphGetNodes = kApi<345, 23, Status*(const Graph*, const Node**, size_t)>;
inline constexpr auto kGraphGetParentNode = kApi<346, 23, Status*(const Graph*, const Node**)>;
inline constexpr auto kNodeGetId = kApi<348, 23, Status*(const Node*, size_t*)>;
inline constexpr auto kNodeGetName = kApi<349, 23, Status*(const Node*, const char**)>;
inline constexpr auto kNodeGetOperatorType = kApi<350, 23, Status*(const Node*, const char**)>;
inline constexpr auto kNodeGetDomain = kApi<351, 23, Status*(const Node*, const char**)>;
inline constexpr auto kNodeGetNumInputs = kApi<353, 23, Status*(const Node*, size_t*)>;
inline constexpr auto kNodeGetInputs = kApi<354, 23, Status*(const Node*, const ValueInfo**, size_t)>;
inline constexpr auto kNodeGetNumOutputs = kApi<355, 23, Status*(const Node*, size_t*)>;
inline constexpr auto kNodeGetOutputs = kApi<356, 23, Status*(const Node*, const ValueInfo**, size_t)>;
inline constexpr auto kNodeGetNumImplicitInputs = kApi<357, 23, Status*(const Node*, size_t*)>;
inline constexpr auto kNodeGetImplicitInputs = kApi<358, 23, Status*(const Node*, const ValueInfo**, size_t)>;
inline constexpr auto kNodeGetNumAttributes = kApi<359, 23, Status*(const Node*, size_t*)>;
inline constexpr auto kNodeGetAttributes = kApi<360, 23, Status*(const Node*, const OpAttr**, size_t)>;
inline constexpr auto kOpAttrGetTensor = kApi<362, 23, Status*(const OpAttr*, Value**)>;
inline constexpr auto kOpAttrGetType = kApi<363, 23, Status*(const OpAttr*, AttrType*)>;
inline constexpr auto kOpAttrGetName = kApi<364, 23, Status*(const OpAttr*, const char**)>;
inline constexpr auto kNodeGetNumSubgraphs = kApi<365, 23, Status*(const Node*, size_t*)>;
inline constexpr auto kNodeGetSubgraphs = kApi<366, 23, Status*(const Node*, const Graph**, size_t, const char**)>;
inline constexpr auto kNodeGetEpName = kApi<368, 23, Status*(const Node*, const char**)>;
inline constexpr auto kGetSessionConfigEntries = kApi<379, 23, Status*(const OrtSessionOptions*, KeyValuePairs**)>;
inline constexpr auto kGraphGetModelMetadata = kApi<387, 23, Status*(const Graph*, ModelMetadata**)>;

struct EpFactory;
struct NodeFusionOptions {
  uint32_t version = kApiVersion;
  bool drop_constant_initializers = false;  // constants of the nodes are kept by the provider
};

inline constexpr Entry<EpApiTable, 0, 22,
                       Status*(EpFactory*, const HardwareDevice*, const KeyValuePairs*, const KeyValuePairs*,
                               EpDevice**)>
    kCreateEpDevice{};
inline constexpr Entry<EpApiTable, 2, 23,
                       Status*(EpGraphSupportInfo*, const Node* const*, size_t, const NodeFusionOptions*)>
    kAddNodesToFuse{};
inline constexpr Entry<EditorTable, 6, 22,
                       Status*(const char*, const char*, const char*, const char* const*, size_t, const char* const*,
                               size_t, OpAttr**, size_t, Node**)>
    kCreateNode{};

// Tables that we fill and ONNX Runtime reads. `version` tells it how far. A function that is optional may be null.

struct NodeComputeInfo {
  uint32_t version;
  Status* (*create_state)(NodeComputeInfo*, NodeComputeContext*, void** state);
  Status* (*compute)(NodeComputeInfo*, void* state, KernelContext*);
  void (*release_state)(NodeComputeInfo*, void* state);
};

struct Ep {
  uint32_t version;
  const char* (*get_name)(const Ep*);
  Status* (*get_capability)(Ep*, const Graph*, EpGraphSupportInfo*);
  Status* (*compile)(Ep*, const Graph** graphs, const Node** fused, size_t count, NodeComputeInfo** computations,
                     Node** context_nodes);
  void (*release_computations)(Ep*, NodeComputeInfo**, size_t count);
  Status* (*get_preferred_data_layout)(Ep*, int*);
  Status* (*should_convert_data_layout)(Ep*, const char*, const char*, int, int*);
  Status* (*set_dynamic_options)(Ep*, const char* const*, const char* const*, size_t);
  Status* (*on_run_start)(Ep*, const void*);
  Status* (*on_run_end)(Ep*, const void*, bool);
  Status* (*create_allocator)(Ep*, const void*, Allocator**);
  Status* (*create_sync_stream)(Ep*, const void*, void**);
  const char* (*compatibility_info)(Ep*, const Graph*);
};

struct EpFactory {
  uint32_t version;
  const char* (*get_name)(const EpFactory*);
  const char* (*get_vendor)(const EpFactory*);
  Status* (*get_supported_devices)(EpFactory*, const HardwareDevice* const* devices, size_t count, EpDevice** supported,
                                   size_t room, size_t* supported_count);
  Status* (*create_ep)(EpFactory*, const HardwareDevice* const*, const KeyValuePairs* const*, size_t,
                       const OrtSessionOptions*, const Logger*, Ep**);
  void (*release_ep)(EpFactory*, Ep*);
  uint32_t (*get_vendor_id)(const EpFactory*);
  const char* (*get_version)(const EpFactory*);
  Status* (*validate_compatibility)(EpFactory*, const HardwareDevice* const*, size_t, const char*, int*);
  Status* (*create_allocator)(EpFactory*, const void*, const KeyValuePairs*, Allocator**);
  void (*release_allocator)(EpFactory*, Allocator*);
  Status* (*create_data_transfer)(EpFactory*, void**);
  bool (*is_stream_aware)(const EpFactory*);
  Status* (*create_sync_stream)(EpFactory*, const void*, const KeyValuePairs*, void**);
};

/// ONNX Runtime as it is called: by entry. What returns a status throws when there is one.
class Api {
 public:
  explicit Api(const ApiTable* table)
      : table_(table), ep_(kGetEpApi.of(table)()), editor_(kGetModelEditorApi.of(table)()) {}

  /// Errors: kInternal with ONNX Runtime's message.
  template <size_t kIndex, uint32_t kSince, typename... P, typename... A>
  void call(Entry<ApiTable, kIndex, kSince, Status*(P...)> entry, A... arguments) const {
    check(entry.of(table_)(arguments...));
  }
  template <size_t kIndex, uint32_t kSince, typename... P, typename... A>
  void call(Entry<EpApiTable, kIndex, kSince, Status*(P...)> entry, A... arguments) const {
    check(entry.of(ep_)(arguments...));
  }
  template <size_t kIndex, uint32_t kSince, typename... P, typename... A>
  void call(Entry<EditorTable, kIndex, kSince, Status*(P...)> entry, A... arguments) const {
    check(entry.of(editor_)(arguments...));
  }
  /// An entry that returns no status, or whose status the caller looks at.
  template <size_t kIndex, uint32_t kSince, typename Signature, typename... A>
  auto raw(Entry<ApiTable, kIndex, kSince, Signature> entry, A... arguments) const {
    return entry.of(table_)(arguments...);
  }

  /// The last argument of an entry as its result.
  template <typename T, typename E, typename... A>
  T get(E entry, A... arguments) const {
    T result{};
    call(entry, arguments..., &result);
    return result;
  }
  /// The objects of which one entry tells the number and the other one fills an array.
  template <typename T, typename N, typename E, typename Of>
  std::vector<const T*> list(N number, E entries, const Of* of) const {
    std::vector<const T*> all(get<size_t>(number, of));
    if (!all.empty()) call(entries, of, all.data(), all.size());
    return all;
  }

  Status* status(Code code, const std::string& message) const { return raw(kCreateStatus, code, message.c_str()); }

 private:
  void check(Status* status) const {
    if (!status) return;
    const std::string message = raw(kGetErrorMessage, static_cast<const Status*>(status));
    raw(kReleaseStatus, status);
    throw Error(ErrorCode::kInternal, "ONNX Runtime: " + message);
  }

  const ApiTable* table_;
  const EpApiTable* ep_;
  const EditorTable* editor_;
};

}  // namespace tessera::ort
