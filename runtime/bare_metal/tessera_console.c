/* SPDX-License-Identifier: Apache-2.0 */
/* Commands of the serial line. Every wait has an end, and nothing that comes over the line is used before it has been
 * checked. */
#include "tessera_console.h"

void* memcpy(void* to, const void* from, size_t bytes);

enum { kLine = 160, kMostInput = 1024, kMostOutput = 256, kMostText = 64 };

static enum tessera_code opened = TESSERA_NO_NPU;
static struct tessera_status open_status;
static int has_run;      /* the outputs are those of a run */
static uint32_t run_crc; /* of its inputs */

static void send(const char* text) {
  while (*text != 0) tessera_port_put((uint8_t)*text++);
}

static void send_number(uint64_t number) {
  char digits[24];
  tessera_put_number(digits, sizeof digits, 0, number);
  send(digits);
}

static void send_signed(int64_t number) {
  if (number < 0) send("-");
  send_number(number < 0 ? 0 - (uint64_t)number : (uint64_t)number);
}

static void send_hexadecimal(uint32_t number, unsigned digits) {
  while (digits-- > 0) tessera_port_put((uint8_t)"0123456789abcdef"[number >> (4 * digits) & 15]);
}

/* m * 2^e in six digits, rounded to the nearest by a decimal scaling whose errors are far below them. */
static void send_float(uint32_t bits) {
  if (bits >> 31 != 0) send("-");
  const uint32_t exponent = bits >> 23 & 0xFF;
  uint64_t m = bits & 0x7FFFFF;
  if (exponent == 0xFF) {
    send(m != 0 ? "nan" : "inf");
    return;
  }
  if (exponent == 0 && m == 0) {
    send("0");
    return;
  }
  m |= exponent == 0 ? 0 : 0x800000;
  int binary = (int)(exponent == 0 ? 1 : exponent) - 150, decimal = 0;
  for (; binary > 0; --binary) { /* m stays between 2^59 and 2^63 as far as it can */
    if (m >> 62 != 0) {
      m = (m + 5) / 10;
      ++decimal;
    }
    m <<= 1;
  }
  for (; binary < 0; ++binary) {
    if (m < (UINT64_C(1) << 59)) {
      m *= 10;
      --decimal;
    }
    m = (m + 1) >> 1;
  }
  while (m >= 1000000) {
    m = (m + (m >= 10000000 ? 0 : 5)) / 10;
    ++decimal;
  }
  while (m < 100000) {
    m *= 10;
    --decimal;
  }
  char digits[24];
  tessera_put_number(digits, sizeof digits, 0, m);
  const int point = decimal + 5; /* of d.ddddd */
  unsigned last = 5;
  while (last > 0 && digits[last] == '0') --last;
  if (point >= -4 && point < 0) {
    send("0.");
    for (int k = point + 1; k < 0; ++k) send("0");
    for (unsigned k = 0; k <= last; ++k) tessera_port_put((uint8_t)digits[k]);
    return;
  }
  const int whole = point >= 0 && point < 6 ? point : 0;
  for (int k = 0; k <= (int)last || k <= whole; ++k) {
    if (k == whole + 1) send(".");
    tessera_port_put((uint8_t)digits[k]);
  }
  if (point < 0 || point > 5) {
    send("e");
    send_signed(point);
  }
}

static unsigned width_of(uint8_t type) {
  switch (type) {
    case TESSERA_FLOAT64:
    case TESSERA_INT64:
    case TESSERA_UINT64: return 8;
    case TESSERA_FLOAT32:
    case TESSERA_INT32:
    case TESSERA_UINT32: return 4;
    case TESSERA_FLOAT16:
    case TESSERA_BFLOAT16:
    case TESSERA_INT16:
    case TESSERA_UINT16: return 2;
    default: return 1;
  }
}

static const char* type_name(uint8_t type) {
  static const char* const names[] = {"?",      "float32", "uint8", "int8", "uint16",  "int16",
                                      "int32",  "int64",   "?",     "bool", "float16", "float64",
                                      "uint32", "uint64",  "?",     "?",    "bfloat16"};
  return names[type < sizeof names / sizeof *names ? type : 0];
}

/* The element as an integer; of floats the bits. */
static int64_t element(const struct tessera_tensor* tensor, uint32_t k) {
  const void* data = tensor->data;
  switch (tensor->type) {
    case TESSERA_INT8: return ((const int8_t*)data)[k];
    case TESSERA_INT16: return ((const int16_t*)data)[k];
    case TESSERA_INT32: return ((const int32_t*)data)[k];
    default: break;
  }
  switch (width_of(tensor->type)) {
    case 8: return ((const int64_t*)data)[k];
    case 4: return ((const uint32_t*)data)[k];
    case 2: return ((const uint16_t*)data)[k];
    default: return ((const uint8_t*)data)[k];
  }
}

/* A float16 or bfloat16 as the bits of a float32. */
static uint32_t widened(uint32_t bits, uint8_t type) {
  if (type != TESSERA_FLOAT16) return bits << 16;
  const uint32_t sign = (bits & 0x8000) << 16;
  uint32_t exponent = bits >> 10 & 31, m = bits & 0x3FF;
  if (exponent == 31) return sign | 0x7F800000 | m << 13;
  if (exponent == 0) {
    if (m == 0) return sign;
    exponent = 1;
    while ((m & 0x400) == 0) {
      m <<= 1;
      --exponent;
    }
    m &= 0x3FF;
  }
  return sign | (exponent + 112) << 23 | m << 13;
}

static void send_element(const struct tessera_tensor* tensor, uint32_t k) {
  const int64_t value = element(tensor, k);
  switch (tensor->type) {
    case TESSERA_FLOAT32: send_float((uint32_t)value); break;
    case TESSERA_FLOAT16:
    case TESSERA_BFLOAT16: send_float(widened((uint32_t)value, tensor->type)); break;
    case TESSERA_FLOAT64:
      send("0x");
      send_hexadecimal((uint32_t)((uint64_t)value >> 32), 8);
      send_hexadecimal((uint32_t)value, 8);
      break;
    case TESSERA_UINT64: send_number((uint64_t)value); break;
    default: send_signed(value);
  }
}

/* A number that is larger where the element is. */
static int64_t order_of(const struct tessera_tensor* tensor, uint32_t k) {
  int64_t value = element(tensor, k);
  if (tensor->type == TESSERA_FLOAT16 || tensor->type == TESSERA_BFLOAT16)
    value = widened((uint32_t)value, tensor->type);
  const int narrow =
      tensor->type == TESSERA_FLOAT32 || tensor->type == TESSERA_FLOAT16 || tensor->type == TESSERA_BFLOAT16;
  if (narrow) return (value & 0x80000000) != 0 ? -(value & 0x7FFFFFFF) : value;
  if (tensor->type == TESSERA_FLOAT64 && value < 0) return -(value & INT64_MAX);
  return value;
}

static void describe_tensor(const char* what, const struct tessera_tensor* tensor) {
  send(what);
  send(tensor->name);
  send(" ");
  send(type_name(tensor->type));
  send(" [");
  for (unsigned k = 0; k < tensor->rank; ++k) {
    if (k != 0) send(",");
    send_number(tensor->shape[k]);
  }
  send("]");
}

static void answer(const struct tessera_status* status) {
  char line[kLine];
  if (status->code == TESSERA_OK) {
    send("ok\n");
    return;
  }
  tessera_describe(status, line, sizeof line);
  send("error ");
  send_number(status->code);
  send(" ");
  send(line);
  send("\n");
}

/* The next byte, or -1 after a while without one. */
static int byte_within(uint32_t patience) {
  for (uint32_t k = 0; k < patience; ++k) {
    const int byte = tessera_port_get();
    if (byte >= 0) return byte;
  }
  return -1;
}

static void fail(enum tessera_code code, const char* text) {
  struct tessera_status status = {0};
  status.code = code;
  status.name = text;
  while (byte_within(TESSERA_PATIENCE / 16) >= 0) continue;
  answer(&status);
}

static uint32_t crc_of(uint32_t crc, const uint8_t* bytes, uint32_t count) {
  crc = ~crc;
  for (uint32_t k = 0; k < count; ++k) {
    crc ^= bytes[k];
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (UINT32_C(0xEDB88320) & (0 - (crc & 1)));
  }
  return ~crc;
}

static uint32_t crc_of_words(const uint32_t* numbers, unsigned count) {
  uint32_t crc = 0;
  for (unsigned k = 0; k < 4 * count; ++k) {
    const uint8_t byte = (uint8_t)(numbers[k / 4] >> (8 * (k % 4)));
    crc = crc_of(crc, &byte, 1);
  }
  return crc;
}

/* Up to `count` numbers behind a word; returns whether the line holds exactly these. */
static int numbers_of(const char* text, uint32_t* numbers, unsigned count) {
  for (unsigned k = 0; k < count; ++k) {
    if (*text++ != ' ' || *text < '0' || *text > '9') return 0;
    uint64_t value = 0;
    for (; *text >= '0' && *text <= '9'; ++text) {
      value = value * 10 + (uint64_t)(*text - '0');
      if (value > UINT32_MAX) return 0;
    }
    numbers[k] = (uint32_t)value;
  }
  return *text == 0;
}

/* The rest of a line behind a word, or null when the line begins otherwise. */
static const char* behind(const char* line, const char* word) {
  while (*word != 0)
    if (*line++ != *word++) return 0;
  return line;
}

static int inside(const struct tessera_tensor* tensors, unsigned count, const uint32_t* numbers, uint32_t most) {
  if (numbers[0] >= count || numbers[2] == 0 || numbers[2] > most) return 0;
  const uint32_t bytes = tensors[numbers[0]].bytes;
  return numbers[1] <= bytes && numbers[2] <= bytes - numbers[1];
}

static void take_input(const struct tessera_model* model, const char* arguments) {
  static uint8_t frame[kMostInput];
  struct tessera_status status = {0};
  uint32_t numbers[4];
  if (!numbers_of(arguments, numbers, 4) || !inside(model->inputs, model->input_count, numbers, kMostInput)) {
    fail(TESSERA_BAD_FRAME, "the header of an input frame is garbled or outside of the input; send it again");
    return;
  }
  for (uint32_t k = 0; k < numbers[2]; ++k) {
    const int byte = byte_within(TESSERA_PATIENCE);
    if (byte < 0) {
      fail(TESSERA_BAD_FRAME, "an input frame broke off; send it again");
      return;
    }
    frame[k] = (uint8_t)byte;
  }
  if (crc_of(crc_of_words(numbers, 3), frame, numbers[2]) != numbers[3]) {
    fail(TESSERA_BAD_FRAME, "an input frame came garbled; send it again");
    return;
  }
  has_run = 0; /* outputs may share the memory of inputs */
  memcpy((uint8_t*)model->inputs[numbers[0]].data + numbers[1], frame, numbers[2]);
  answer(&status);
}

static void give_output(const struct tessera_model* model, const char* arguments) {
  struct tessera_status status = {0};
  uint32_t numbers[4];
  if (!has_run) {
    fail(TESSERA_BAD_COMMAND, "there are no outputs: run has not come since the last input");
    return;
  }
  if (!numbers_of(arguments, numbers, 3) || !inside(model->outputs, model->output_count, numbers, kMostOutput)) {
    fail(TESSERA_BAD_FRAME, "the request of an output is garbled or outside of the output; send it again");
    return;
  }
  const uint8_t* bytes = (const uint8_t*)model->outputs[numbers[0]].data + numbers[1];
  send("bytes ");
  for (uint32_t k = 0; k < numbers[2]; ++k) send_hexadecimal(bytes[k], 2);
  send(" ");
  numbers[3] = run_crc;
  send_number(crc_of(crc_of_words(numbers, 4), bytes, numbers[2]));
  send("\n");
  answer(&status);
}

static void show_output(const struct tessera_tensor* tensor) {
  const uint32_t count = tensor->bytes / width_of(tensor->type);
  describe_tensor("output ", tensor);
  send(":");
  for (uint32_t k = 0; k < count && k < kMostText; ++k) {
    send(" ");
    send_element(tensor, k);
  }
  if (count > kMostText) send(" ...");
  send("\n");
  /* A row of scores: the place of the largest one. */
  if (count < 2 || tensor->rank == 0 || tensor->shape[tensor->rank - 1] != count) return;
  uint32_t best = 0;
  for (uint32_t k = 1; k < count; ++k)
    if (order_of(tensor, k) > order_of(tensor, best)) best = k;
  send("class ");
  send_number(best);
  send("\n");
}

static void run(const struct tessera_model* model, const char* arguments) {
  struct tessera_status status;
  uint32_t wanted, crc = 0;
  const int named = numbers_of(arguments, &wanted, 1);
  for (unsigned k = 0; k < model->input_count; ++k) crc = crc_of(crc, model->inputs[k].data, model->inputs[k].bytes);
  if (named ? wanted != crc : *arguments != 0) {
    fail(TESSERA_BAD_FRAME, "memory holds other inputs than those of the run; send them again");
    return;
  }
  if (opened != TESSERA_OK) opened = tessera_open(model, &open_status);
  if (opened != TESSERA_OK) {
    answer(&open_status);
    return;
  }
  has_run = 0;
  if (tessera_run(model, &status) == TESSERA_OK) {
    has_run = 1;
    run_crc = crc;
    for (unsigned k = 0; k < model->output_count; ++k) show_output(&model->outputs[k]);
    send("cycles ");
    send_number(tessera_cycles());
    send("\n");
  }
  answer(&status);
}

static void info(const struct tessera_model* model) {
  send("model ");
  send(model->name);
  send("\nmachine ");
  send(model->machine);
  send("\nidentity ");
  send(model->identity);
  send("\n");
  for (unsigned k = 0; k < model->input_count; ++k) {
    describe_tensor("input ", &model->inputs[k]);
    send("\n");
  }
  for (unsigned k = 0; k < model->output_count; ++k) {
    describe_tensor("output ", &model->outputs[k]);
    send("\n");
  }
  answer(&open_status);
}

void tessera_console_once(const struct tessera_model* model) {
  char line[kLine];
  unsigned length = 0;
  for (;;) {
    const int byte = tessera_port_get();
    if (byte < 0) continue;
    if (byte == '\n' || byte == '\r') break;
    if (length + 1 == sizeof line || byte < ' ' || byte > '~') {
      fail(TESSERA_BAD_COMMAND, "a line is no command; the commands are info, input, run and output");
      return;
    }
    line[length++] = (char)byte;
  }
  line[length] = 0;
  if (length == 0) return;
  const char *input = behind(line, "input"), *output = behind(line, "output");
  const char *start = behind(line, "run"), *about = behind(line, "info");
  if (input != 0)
    take_input(model, input);
  else if (output != 0)
    give_output(model, output);
  else if (start != 0)
    run(model, start);
  else if (about != 0 && *about == 0)
    info(model);
  else
    fail(TESSERA_BAD_COMMAND, "a line is no command; the commands are info, input, run and output");
}

void tessera_console(const struct tessera_model* model) {
  opened = tessera_open(model, &open_status);
  send("Tessera ");
  send(model->name);
  send("\n");
  answer(&open_status);
  for (;;) tessera_console_once(model);
}
