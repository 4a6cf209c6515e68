/* SPDX-License-Identifier: Apache-2.0 */
/* The C interface of Tessera: compile ONNX models and run them on an NPU device. Every function returns a status; no
 * exception leaves the library. After a failure tessera_last_error() says what happened, for the calling thread.
 * Strings are UTF-8. */
#ifndef TESSERA_H
#define TESSERA_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define TESSERA_API __attribute__((visibility("default")))
#else
#define TESSERA_API
#endif

typedef enum {
  TESSERA_OK = 0,
  TESSERA_INVALID_ARGUMENT = 1,
  TESSERA_INVALID_MODEL = 2,
  TESSERA_UNSUPPORTED = 3,
  TESSERA_INVALID_ARTIFACT = 4,
  TESSERA_INVALID_PROGRAM = 5,
  TESSERA_DOES_NOT_FIT = 6,
  TESSERA_DEVICE_FAULT = 7,
  TESSERA_IO = 8,
  TESSERA_INTERNAL = 9
} tessera_status;

/* Message of the last failure on this thread; valid until the next call on it. */
TESSERA_API const char* tessera_last_error(void);
TESSERA_API const char* tessera_version(void);

typedef struct tessera_session tessera_session;

/* A tensor: element type as in ONNX TensorProto.DataType (1 float32, 2 uint8, 3 int8, 6 int32, 7 int64, ...),
 * row-major. */
typedef struct {
  int32_t dtype;
  size_t rank;
  const int64_t* shape;
  const void* data;
  size_t bytes;
} tessera_tensor;

/* An input or output of the model. -1 in shape: dynamic; rank is SIZE_MAX where it is unknown. Owned by the session. */
typedef struct {
  const char* name;
  int32_t dtype;
  size_t rank;
  const int64_t* shape;
} tessera_port;

/* Compiles an ONNX file into an artifact. `shapes`: "name=1,3,224,224" for dynamic inputs, `shape_count` of them. */
TESSERA_API tessera_status tessera_compile(const char* onnx_path, const char* config, const char* const* shapes,
                                           size_t shape_count, const char* artifact_path);
/* The same with options of the compilation as "name=value", for example "traffic_weight=2". */
TESSERA_API tessera_status tessera_compile_with(const char* onnx_path, const char* config, const char* const* shapes,
                                                size_t shape_count, const char* const* options, size_t option_count,
                                                const char* artifact_path);

/* An option of the compilation: its name, what it does, its default. The strings live as long as the library. */
typedef struct {
  const char* name;
  const char* summary;
  const char* fallback;
} tessera_compile_option;
TESSERA_API size_t tessera_compile_option_count(void);
TESSERA_API tessera_status tessera_compile_option_at(size_t index, tessera_compile_option* option);

/* Opens a model (.onnx) or an artifact (.tsr). `device` NULL: "fsim"; `config` NULL: the artifact's, or what
 * the model was quantised for, or npu256. */
TESSERA_API tessera_status tessera_session_open(const char* path, const char* device, const char* config,
                                                tessera_session** session);
/* The same with options of the device, "name=value": latency, bandwidth, waves and others of its backend; and
 * "trusted_keys=PATH", a file or folder of public keys: an artifact that none of them has signed is refused with
 * TESSERA_INVALID_ARTIFACT before anything else of it is read. */
TESSERA_API tessera_status tessera_session_open_with(const char* path, const char* device, const char* config,
                                                     const char* const* options, size_t option_count,
                                                     tessera_session** session);
/* The same of a model or an artifact that lies in memory. The bytes are copied. */
TESSERA_API tessera_status tessera_session_open_memory(const void* data, size_t bytes, const char* device,
                                                       const char* config, const char* const* options,
                                                       size_t option_count, tessera_session** session);
TESSERA_API void tessera_session_close(tessera_session* session);

TESSERA_API size_t tessera_input_count(const tessera_session* session);
TESSERA_API size_t tessera_output_count(const tessera_session* session);
TESSERA_API tessera_status tessera_input(const tessera_session* session, size_t index, tessera_port* port);
/* Initializers that a run may give by name as inputs, and that keep their value where it does not. */
TESSERA_API size_t tessera_overridable_count(const tessera_session* session);
TESSERA_API tessera_status tessera_overridable(const tessera_session* session, size_t index, tessera_port* port);
TESSERA_API tessera_status tessera_output(const tessera_session* session, size_t index, tessera_port* port);

/* Runs. `names` and `inputs` have `input_count` entries in any order. `outputs` receives tessera_output_count() tensors
 * in the model's order; they belong to the session and stay valid until its next run or its end. */
TESSERA_API tessera_status tessera_run(tessera_session* session, const char* const* names, const tessera_tensor* inputs,
                                       size_t input_count, tessera_tensor* outputs);

/* A tensor in the memory of a session's device. It lives until it is released, also beyond its session. */
typedef struct tessera_device_tensor tessera_device_tensor;
/* Copies a tensor to the device of a session. */
TESSERA_API tessera_status tessera_to_device(tessera_session* session, const tessera_tensor* tensor,
                                             tessera_device_tensor** result);
/* Element type and shape; data is NULL. `description` belongs to the device tensor. */
TESSERA_API tessera_status tessera_device_tensor_describe(const tessera_device_tensor* tensor,
                                                          tessera_tensor* description);
/* Copies to `bytes` bytes at `data`. TESSERA_INVALID_ARGUMENT for another number of bytes, and when a later run has
 * written over a part of the tensor: what a decoder has left of its past is extended where it is. */
TESSERA_API tessera_status tessera_device_tensor_copy_to_host(const tessera_device_tensor* tensor, void* data,
                                                              size_t bytes);
TESSERA_API void tessera_device_tensor_release(tessera_device_tensor* tensor);

/* Inputs and outputs that are bound once and serve for several runs. The session must outlive it. */
typedef struct tessera_binding tessera_binding;
TESSERA_API tessera_status tessera_binding_create(tessera_session* session, tessera_binding** binding);
TESSERA_API void tessera_binding_release(tessera_binding* binding);
/* The data is copied. */
TESSERA_API tessera_status tessera_bind_input(tessera_binding* binding, const char* name, const tessera_tensor* tensor);
/* The binding holds the tensor itself; it may be released at once. */
TESSERA_API tessera_status tessera_bind_device_input(tessera_binding* binding, const char* name,
                                                     const tessera_device_tensor* tensor);
TESSERA_API tessera_status tessera_bind_output(tessera_binding* binding, const char* name);
TESSERA_API tessera_status tessera_bind_output_to_device(tessera_binding* binding, const char* name);
TESSERA_API tessera_status tessera_run_binding(tessera_binding* binding);
/* An output of the last run, by the order of binding: on the host (valid until the binding's next run or its end), or
 * on the device (to be released). TESSERA_INVALID_ARGUMENT when it is at the other place. */
TESSERA_API tessera_status tessera_binding_output(tessera_binding* binding, size_t index, tessera_tensor* output);
TESSERA_API tessera_status tessera_binding_device_output(tessera_binding* binding, size_t index,
                                                         tessera_device_tensor** output);

/* Statistics of the last run as JSON; valid until the session's next call. */
TESSERA_API tessera_status tessera_stats(tessera_session* session, const char** json);

#ifdef __cplusplus
}
#endif

#endif /* TESSERA_H */
