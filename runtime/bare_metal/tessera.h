/* SPDX-License-Identifier: Apache-2.0 */
/* The runtime of an exported model: freestanding C11 without heap and operating system. A model is a table in read-only
 * memory (model.c) that names its steps; all tensors have places in two static arenas.
 *
 *     #include "model.h"
 *     struct tessera_status status;
 *     if (tessera_open(&tessera_model, &status) != TESSERA_OK) ...      once
 *     memcpy(tessera_model.inputs[0].data, image, tessera_model.inputs[0].bytes);
 *     if (tessera_run(&tessera_model, &status) != TESSERA_OK) ...
 *     ... tessera_model.outputs[0].data
 *
 * Inputs are written anew before each run: a tensor of the run may take their place once they have been read. */
#ifndef TESSERA_H
#define TESSERA_H

#include <stddef.h>
#include <stdint.h>

enum tessera_code {
  TESSERA_OK = 0,
  TESSERA_NO_NPU = 1,              /* the identity register holds something else */
  TESSERA_OTHER_VERSION = 2,       /* the NPU has another version of the instruction set */
  TESSERA_OTHER_CONFIGURATION = 3, /* the NPU's parameters are not those the model was compiled for */
  TESSERA_BUSY = 4,                /* the NPU is not idle before a start */
  TESSERA_TIMEOUT = 5,             /* the NPU did not finish a program */
  TESSERA_FAULT = 6,               /* the NPU stopped a program and says why */
  TESSERA_MISPLACED = 7,           /* a block that the NPU reads is not aligned to 64 bytes */
  TESSERA_BAD_INDEX = 8,           /* an index of Gather is outside its axis */
  TESSERA_BAD_FRAME = 9,           /* of the console: a garbled or truncated frame */
  TESSERA_BAD_COMMAND = 10         /* of the console: a line that is no command */
};

/* What happened. `name`, `have` and `want` say which register, layer or argument; tessera_describe() makes a line. */
struct tessera_status {
  enum tessera_code code;
  const char* name;
  uint64_t have, want;
  uint32_t program, instruction; /* of TIMEOUT and FAULT */
  uint8_t fault, unit;           /* as the register `fault` has them */
};

/* Numbered as ONNX does. */
enum tessera_type {
  TESSERA_FLOAT32 = 1,
  TESSERA_UINT8 = 2,
  TESSERA_INT8 = 3,
  TESSERA_UINT16 = 4,
  TESSERA_INT16 = 5,
  TESSERA_INT32 = 6,
  TESSERA_INT64 = 7,
  TESSERA_BOOL = 9,
  TESSERA_FLOAT16 = 10,
  TESSERA_FLOAT64 = 11,
  TESSERA_UINT32 = 12,
  TESSERA_UINT64 = 13,
  TESSERA_BFLOAT16 = 16
};

/* An input or output: dense, row-major, in the byte order of the processor. */
struct tessera_tensor {
  const char* name;
  void* data;
  uint32_t bytes;
  uint8_t type; /* enum tessera_type */
  uint8_t rank;
  const uint32_t* shape;
};

/* One axis of a copy between a dense tensor and its place in the NPU's arena; steps are in bytes. */
struct tessera_axis {
  uint32_t extent, host, device;
};

/* A tensor in the NPU's arena. `axes` run from the outermost in, and each element of the innermost is `unit` bytes.
 * [first, first + bytes) of the arena are all that is read or written. With `border` the bytes around the image and
 * behind its channels are set to `border_value`; their measures follow. */
struct tessera_place {
  void* host;
  uint8_t* device; /* pixel (0, 0), channel 0 of image 0 */
  uint8_t* first;
  uint32_t bytes;
  const struct tessera_axis* axes;
  uint32_t unit;
  uint8_t rank, border, border_value;
  int32_t n, h, w, top, left, bottom, right;   /* images, rows, columns; border in pixels */
  int32_t image_pitch, row_pitch, pixel_pitch; /* bytes */
  int32_t channel_bytes, padded_bytes;         /* of a pixel */
};

/* Instructions [begin, that of the next entry) belong to a layer. */
struct tessera_layer {
  uint32_t begin;
  const char* name;
};

/* A program of the NPU. */
struct tessera_program {
  const void *instructions, *constants;
  uint32_t instruction_count, constant_bytes;
  uint32_t polls; /* looks at the NPU before it is given up */
  const struct tessera_place *inputs, *outputs;
  uint16_t input_count, output_count;
  const struct tessera_layer* layers;
  uint32_t layer_count;
};

/* Rows of `data` chosen by indices: `outer` blocks of `rows` rows of `row_bytes` bytes. */
struct tessera_gather {
  const char* name;
  const void *data, *indices;
  void* output;
  uint32_t outer, rows, row_bytes, count;
  uint8_t wide; /* indices are int64, else int32 */
};

enum tessera_step_kind { TESSERA_STEP_NPU, TESSERA_STEP_CODE, TESSERA_STEP_GATHER, TESSERA_STEP_COPY };

struct tessera_copy {
  const void* from;
  void* to;
  uint32_t bytes;
};

/* One step; `what` is a struct tessera_program, tessera_gather or tessera_copy, or the buffers of `code`. */
struct tessera_step {
  enum tessera_step_kind kind;
  void (*code)(void** buffers);
  const void* what;
};

/* A register of the NPU and what the model needs it to hold. */
struct tessera_requirement {
  uint16_t offset;
  uint32_t value;
  const char* name;
};

struct tessera_model {
  const char *name, *machine, *identity; /* identity: digest of what was exported */
  const struct tessera_tensor *inputs, *outputs;
  const struct tessera_step* steps;
  const struct tessera_requirement* requirements; /* of the NPU; none where no step runs on it */
  void* arena;                                    /* of the NPU */
  const void *instructions, *constants;
  uint32_t arena_bytes, instruction_bytes, constant_bytes;
  uint16_t input_count, output_count, step_count, requirement_count;
};

/* Checks the NPU against the model and cleans what the NPU reads out of the caches. Once, before the first run. Returns
 * the code, which `status` holds too. */
enum tessera_code tessera_open(const struct tessera_model* model, struct tessera_status* status);

/* One run. The inputs' data have been written before; the outputs' data are valid until the next run. */
enum tessera_code tessera_run(const struct tessera_model* model, struct tessera_status* status);

/* Cycles of the NPU in the last run, of all its programs. */
uint64_t tessera_cycles(void);

/* One line without its end, cut to `size` bytes with the closing zero. Returns its length. */
size_t tessera_describe(const struct tessera_status* status, char* line, size_t size);

/* Writers behind `length` characters of a line of `size` bytes; each returns the new length, at most size - 1. */
size_t tessera_put_text(char* line, size_t size, size_t length, const char* text);
size_t tessera_put_number(char* line, size_t size, size_t length, uint64_t number);

#endif
