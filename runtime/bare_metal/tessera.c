/* SPDX-License-Identifier: Apache-2.0 */
/* Walks the steps of a model. A step of the NPU copies its inputs into the arena, starts the program, waits and copies
 * its outputs out; a step of compiled code is one call. Nothing here waits without an end. */
#include "tessera.h"

#include "tessera_port.h"
#include "tessera_registers.h"

#ifndef TESSERA_INTERRUPT
#define TESSERA_INTERRUPT 0
#endif

void* memcpy(void* to, const void* from, size_t bytes);
void* memset(void* to, int value, size_t bytes);

static uint64_t cycles;

static enum tessera_code report(struct tessera_status* status, enum tessera_code code, const char* name, uint64_t have,
                                uint64_t want) {
  status->code = code;
  status->name = name;
  status->have = have;
  status->want = want;
  return code;
}

static void write_wide(uint32_t offset, uint64_t value) {
  tessera_port_write(offset, (uint32_t)value);
  tessera_port_write(offset + 4, (uint32_t)(value >> 32));
}

static uint64_t read_wide(uint32_t offset) {
  const uint64_t low = tessera_port_read(offset);
  return low | (uint64_t)tessera_port_read(offset + 4) << 32;
}

static uint64_t smaller(uint64_t a, uint64_t b) { return b < a ? b : a; }
static uint64_t larger(uint64_t a, uint64_t b) { return a < b ? b : a; }

/* The NPU may touch what lies between the first and the last byte of the model's blocks. */
static void open_window(const struct tessera_model* model) {
  const uint64_t arena = tessera_port_physical(model->arena);
  const uint64_t instructions = tessera_port_physical(model->instructions);
  const uint64_t constants = tessera_port_physical(model->constants);
  write_wide(TESSERA_WINDOW_FIRST, smaller(smaller(arena, instructions), constants));
  write_wide(TESSERA_WINDOW_LAST, larger(larger(arena + model->arena_bytes, instructions + model->instruction_bytes),
                                         constants + model->constant_bytes) -
                                      1);
}

enum tessera_code tessera_open(const struct tessera_model* model, struct tessera_status* status) {
  memset(status, 0, sizeof *status);
  if (model->requirement_count == 0) return TESSERA_OK;
  const void* const blocks[] = {model->arena, model->instructions, model->constants};
  static const char* const names[] = {"arena", "instructions", "constants"};
  for (unsigned k = 0; k < 3; ++k)
    if (tessera_port_physical(blocks[k]) % 64 != 0)
      return report(status, TESSERA_MISPLACED, names[k], tessera_port_physical(blocks[k]), 64);
  for (unsigned k = 0; k < model->requirement_count; ++k) {
    const struct tessera_requirement* own = &model->requirements[k];
    const uint32_t have = tessera_port_read(own->offset);
    if (have == own->value) continue;
    const enum tessera_code code = own->offset == TESSERA_MAGIC         ? TESSERA_NO_NPU
                                   : own->offset == TESSERA_ISA_VERSION ? TESSERA_OTHER_VERSION
                                                                        : TESSERA_OTHER_CONFIGURATION;
    return report(status, code, own->name, have, own->value);
  }
  tessera_port_clean(model->instructions, model->instruction_bytes);
  tessera_port_clean(model->constants, model->constant_bytes);
  open_window(model);
  return TESSERA_OK;
}

static void copy_unit(uint8_t* to, const uint8_t* from, uint32_t unit) {
  if (unit == 1)
    *to = *from;
  else
    memcpy(to, from, unit);
}

/* Between the dense tensor and its place; the innermost axis is the loop below, the others count like an odometer. */
static void copy_place(const struct tessera_place* place, int to_device) {
  uint32_t at[8] = {0};
  const unsigned last = place->rank - 1u;
  const struct tessera_axis* inner = &place->axes[last];
  uint8_t *host = place->host, *device = place->device;
  for (;;) {
    uint8_t *h = host, *d = device;
    for (uint32_t i = 0; i < inner->extent; ++i, h += inner->host, d += inner->device) {
      if (to_device)
        copy_unit(d, h, place->unit);
      else
        copy_unit(h, d, place->unit);
    }
    unsigned axis = last;
    for (;;) {
      if (axis == 0) return;
      --axis;
      host += place->axes[axis].host;
      device += place->axes[axis].device;
      if (++at[axis] < place->axes[axis].extent) break;
      host -= (size_t)place->axes[axis].host * at[axis];
      device -= (size_t)place->axes[axis].device * at[axis];
      at[axis] = 0;
    }
  }
}

static void fill_border(const struct tessera_place* place) {
  for (int32_t n = 0; n < place->n; ++n)
    for (int32_t h = -place->top; h < place->h + place->bottom; ++h)
      for (int32_t w = -place->left; w < place->w + place->right; ++w) {
        const int inside = h >= 0 && h < place->h && w >= 0 && w < place->w;
        const int32_t begin = inside ? place->channel_bytes : 0;
        uint8_t* pixel = place->device + (ptrdiff_t)n * place->image_pitch + (ptrdiff_t)h * place->row_pitch +
                         (ptrdiff_t)w * place->pixel_pitch;
        if (begin < place->padded_bytes)
          memset(pixel + begin, place->border_value, (size_t)(place->padded_bytes - begin));
      }
}

static const char* layer_of(const struct tessera_program* program, uint32_t instruction) {
  const char* name = 0;
  for (uint32_t k = 0; k < program->layer_count && program->layers[k].begin <= instruction; ++k)
    name = program->layers[k].name;
  return name;
}

static enum tessera_code stopped(const struct tessera_program* program, enum tessera_code code,
                                 struct tessera_status* status) {
  const uint32_t fault = tessera_port_read(TESSERA_FAULT_REGISTER);
  status->instruction = tessera_port_read(TESSERA_FAULT_PC);
  status->fault = fault & 0xF;
  status->unit = fault >> 8 & 7;
  return report(status, code, layer_of(program, status->instruction), program->polls, 0);
}

static enum tessera_code execute(const struct tessera_model* model, const struct tessera_program* program,
                                 struct tessera_status* status) {
  if ((tessera_port_read(TESSERA_AP_CTRL) & TESSERA_AP_IDLE) == 0) return report(status, TESSERA_BUSY, 0, 0, 0);
  write_wide(TESSERA_PROGRAM_ADDRESS, tessera_port_physical(program->instructions));
  tessera_port_write(TESSERA_INSTRUCTION_COUNT, program->instruction_count);
  write_wide(TESSERA_BASE, tessera_port_physical(program->constants));
  write_wide(TESSERA_BASE + 8, tessera_port_physical(model->arena));
#if TESSERA_INTERRUPT
  tessera_port_write(TESSERA_IER, 1);
  tessera_port_write(TESSERA_GIE, 1);
#endif
  tessera_port_write(TESSERA_AP_CTRL, TESSERA_AP_START);
  for (uint32_t polls = 0;; ++polls) {
    if (tessera_port_read(TESSERA_AP_CTRL) & TESSERA_AP_DONE) break;
    if (polls >= program->polls) return stopped(program, TESSERA_TIMEOUT, status);
    tessera_port_wait(polls);
  }
#if TESSERA_INTERRUPT
  tessera_port_write(TESSERA_ISR, tessera_port_read(TESSERA_ISR));
#endif
  if ((tessera_port_read(TESSERA_FAULT_REGISTER) & 0xF) != 0) return stopped(program, TESSERA_FAULT, status);
  cycles += read_wide(TESSERA_CYCLES);
  return TESSERA_OK;
}

static enum tessera_code run_program(const struct tessera_model* model, const struct tessera_program* program,
                                     struct tessera_status* status) {
  for (unsigned k = 0; k < program->input_count; ++k) {
    const struct tessera_place* place = &program->inputs[k];
    if (place->border) fill_border(place);
    copy_place(place, 1);
    tessera_port_clean(place->first, place->bytes);
  }
  const enum tessera_code code = execute(model, program, status);
  if (code != TESSERA_OK) return code;
  for (unsigned k = 0; k < program->output_count; ++k) {
    const struct tessera_place* place = &program->outputs[k];
    tessera_port_invalidate(place->first, place->bytes);
    copy_place(place, 0);
  }
  return TESSERA_OK;
}

static enum tessera_code run_gather(const struct tessera_gather* gather, struct tessera_status* status) {
  const uint8_t* data = gather->data;
  uint8_t* to = gather->output;
  for (uint32_t outer = 0; outer < gather->outer; ++outer, data += (size_t)gather->rows * gather->row_bytes)
    for (uint32_t k = 0; k < gather->count; ++k, to += gather->row_bytes) {
      int64_t index = gather->wide ? ((const int64_t*)gather->indices)[k] : ((const int32_t*)gather->indices)[k];
      if (index < 0) index += gather->rows;
      if (index < 0 || index >= (int64_t)gather->rows)
        return report(status, TESSERA_BAD_INDEX, gather->name, k, gather->rows);
      memcpy(to, data + (size_t)index * gather->row_bytes, gather->row_bytes);
    }
  return TESSERA_OK;
}

enum tessera_code tessera_run(const struct tessera_model* model, struct tessera_status* status) {
  memset(status, 0, sizeof *status);
  cycles = 0;
  uint32_t programs = 0;
  for (unsigned k = 0; k < model->step_count; ++k) {
    const struct tessera_step* step = &model->steps[k];
    enum tessera_code code = TESSERA_OK;
    if (step->kind == TESSERA_STEP_CODE) {
      step->code((void**)step->what);
    } else if (step->kind == TESSERA_STEP_GATHER) {
      code = run_gather(step->what, status);
    } else if (step->kind == TESSERA_STEP_COPY) {
      const struct tessera_copy* copy = step->what;
      memcpy(copy->to, copy->from, copy->bytes);
    } else {
      status->program = programs++;
      code = run_program(model, step->what, status);
    }
    if (code != TESSERA_OK) return code;
  }
  return TESSERA_OK;
}

uint64_t tessera_cycles(void) { return cycles; }

size_t tessera_put_text(char* line, size_t size, size_t length, const char* text) {
  while (text != 0 && *text != 0 && length + 1 < size) line[length++] = *text++;
  if (size != 0) line[length] = 0;
  return length;
}

size_t tessera_put_number(char* line, size_t size, size_t length, uint64_t number) {
  char digits[21];
  unsigned at = sizeof digits - 1;
  digits[at] = 0;
  do {
    digits[--at] = (char)('0' + number % 10);
    number /= 10;
  } while (number != 0);
  return tessera_put_text(line, size, length, digits + at);
}

static const char* const kFaults[] = {TESSERA_FAULT_NAMES};
static const char* const kUnits[] = {"LOAD", "GEMM", "ALU", "STORE", "FETCH"};

/* "text number text": a sentence for a code of which one number says all. */
static size_t sentence(char* line, size_t size, const char* before, uint64_t number, const char* after) {
  size_t n = tessera_put_text(line, size, 0, before);
  n = tessera_put_number(line, size, n, number);
  return tessera_put_text(line, size, n, after);
}

static size_t where(const struct tessera_status* status, char* line, size_t size, size_t n) {
  n = tessera_put_text(line, size, n, " at instruction ");
  n = tessera_put_number(line, size, n, status->instruction);
  n = tessera_put_text(line, size, n, " of program ");
  n = tessera_put_number(line, size, n, status->program);
  if (status->name == 0) return n;
  n = tessera_put_text(line, size, n, ", node '");
  n = tessera_put_text(line, size, n, status->name);
  return tessera_put_text(line, size, n, "'");
}

size_t tessera_describe(const struct tessera_status* status, char* line, size_t size) {
  size_t n = 0;
  switch (status->code) {
    case TESSERA_OK: return tessera_put_text(line, size, 0, "no error");
    case TESSERA_NO_NPU:
      return sentence(line, size, "no NPU answers: its identity register reads ", status->have,
                      "; check the address of its registers and the bitstream");
    case TESSERA_OTHER_VERSION:
      n = sentence(line, size, "the NPU has version ", status->have, " of the instruction set, the model needs ");
      n = tessera_put_number(line, size, n, status->want);
      return tessera_put_text(line, size, n, "; export it again or load another bitstream");
    case TESSERA_OTHER_CONFIGURATION:
      n = tessera_put_text(line, size, 0, "the NPU is another machine: its ");
      n = tessera_put_text(line, size, n, status->name);
      n = tessera_put_text(line, size, n, " is ");
      n = tessera_put_number(line, size, n, status->have);
      n = tessera_put_text(line, size, n, ", the model was compiled for ");
      n = tessera_put_number(line, size, n, status->want);
      return tessera_put_text(line, size, n, "; export it with the machine's --config");
    case TESSERA_BUSY: return tessera_put_text(line, size, 0, "the NPU is busy before it was started; reset it");
    case TESSERA_TIMEOUT:
      n = sentence(line, size, "the NPU did not finish within ", status->have, " polls of program ");
      n = tessera_put_number(line, size, n, status->program);
      return tessera_put_text(line, size, n, "; reset it, or raise `polls` in model.c for a slower clock");
    case TESSERA_FAULT:
      n = tessera_put_text(line, size, 0, "the NPU stopped: ");
      n = tessera_put_text(line, size, n,
                           status->fault < sizeof kFaults / sizeof *kFaults ? kFaults[status->fault] : "fault");
      n = tessera_put_text(line, size, n, " in ");
      n = tessera_put_text(line, size, n, status->unit < 5 ? kUnits[status->unit] : "FETCH");
      return where(status, line, size, n);
    case TESSERA_MISPLACED:
      n = tessera_put_text(line, size, 0, "the model's ");
      n = tessera_put_text(line, size, n, status->name);
      n = tessera_put_text(line, size, n, " stand at address ");
      n = tessera_put_number(line, size, n, status->have);
      return tessera_put_text(line, size, n, ", which is no multiple of 64; change the linker script");
    case TESSERA_BAD_INDEX:
      n = tessera_put_text(line, size, 0, "node '");
      n = tessera_put_text(line, size, n, status->name);
      n = tessera_put_text(line, size, n, "': index number ");
      n = tessera_put_number(line, size, n, status->have);
      n = tessera_put_text(line, size, n, " is outside of an axis of ");
      return tessera_put_number(line, size, n, status->want);
    case TESSERA_BAD_FRAME:
    case TESSERA_BAD_COMMAND: return tessera_put_text(line, size, 0, status->name);
  }
  return tessera_put_text(line, size, 0, "unknown status");
}
