// SPDX-License-Identifier: Apache-2.0
// Oracles and operand generators of the ALU's arithmetic units. The oracles are the host's own conversions,
// multiplications and std::fmaf under round-half-even, written from isa/semantics.md; NaN results compare as
// 0x7fc00000. Random operands come from a mixture: uniform bits; exponents that meet (alignment, cancellation); short
// significands (ties); the borders of the format; special operands among random ones.
#include "tests/alu_arithmetic/units.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "isa/second_operation.h"
#include "tests/alu_arithmetic/rows.h"

namespace tessera::alu_arithmetic {
namespace {

float as_float(uint32_t bits) { return std::bit_cast<float>(bits); }
uint32_t as_bits(float value) { return value != value ? 0x7fc00000u : std::bit_cast<uint32_t>(value); }
int16_t low_half(uint32_t word) { return static_cast<int16_t>(word & 0xffff); }
int16_t high_half(uint32_t word) { return static_cast<int16_t>(word >> 16); }
uint32_t halves(int32_t high, int32_t low) {
  return static_cast<uint32_t>(high) << 16 | (static_cast<uint32_t>(low) & 0xffff);
}
int32_t sign_extend_11(uint32_t word) { return static_cast<int32_t>(word << 21) >> 21; }
int32_t sign_extend_17(uint32_t word) { return static_cast<int32_t>(word << 15) >> 15; }

// ---- oracles ----

int32_t round_clamp(float value, int16_t low, int16_t high) {
  if (value != value) return low;
  const float at_least = value > static_cast<float>(low) ? value : static_cast<float>(low);
  const float clamped = at_least < static_cast<float>(high) ? at_least : static_cast<float>(high);
  return static_cast<int32_t>(std::nearbyintf(clamped));
}

uint32_t int_to_fp32_reference(const Operands& w) { return as_bits(static_cast<float>(static_cast<int32_t>(w[0]))); }
uint32_t int17_to_fp32_reference(const Operands& w) { return as_bits(static_cast<float>(sign_extend_17(w[0]))); }
uint32_t mul_reference(const Operands& w) { return as_bits(as_float(w[0]) * as_float(w[1])); }
uint32_t fma_reference(const Operands& w) { return as_bits(std::fmaf(as_float(w[0]), as_float(w[1]), as_float(w[2]))); }
uint32_t add_reference(const Operands& w) { return as_bits(as_float(w[0]) + as_float(w[1])); }
uint32_t unfused_reference(const Operands& w) {
  const float product = as_float(w[0]) * as_float(w[1]);
  return as_bits(product + as_float(w[2]));
}
uint32_t round_clamp_reference(const Operands& w) {
  return static_cast<uint32_t>(round_clamp(as_float(w[0]), low_half(w[1]), high_half(w[1])));
}

uint32_t requantise_reference(const Operands& w) {
  const int16_t low = low_half(w[3]), high = high_half(w[3]), zero = low_half(w[4]);
  if ((w[4] >> 16 & 1) == 0) {
    const auto value = static_cast<int32_t>(w[0]);
    const int32_t at_least = value > low ? value : low;
    return static_cast<uint32_t>((at_least < high ? at_least : high) + zero);
  }
  const float scaled = static_cast<float>(static_cast<int32_t>(w[0] + w[1])) * as_float(w[2]);
  return static_cast<uint32_t>(round_clamp(scaled, low, high) + zero);
}

// Words of a second operation: {y, x}; the operation; eight words as in PARAM; and for the oracle alone rx, ry, f and
// flags: bit 0, the constants stand for a binary32 form, bit 1, mul is fused.
constexpr size_t kConstants = 2, kForm = 10;

/// By the binary32 form.
float float_form(const Operands& w, int32_t x, int32_t y, const isa::SecondConstants& c) {
  const float rx = as_float(w[kForm]), ry = as_float(w[kForm + 1]), f = as_float(w[kForm + 2]);
  switch (w[1]) {
    case 1: return std::fmaf(static_cast<float>(x), rx, std::fmaf(static_cast<float>(y), ry, f));
    case 2: {
      const auto p = static_cast<float>((x - c.zx) * (y - c.zy));
      const float product = p * rx;
      return w[kForm + 3] & 2 ? std::fmaf(p, rx, f) : product + f;
    }
    default: return static_cast<float>(c.minimum == (x < y) ? x : y);
  }
}

int64_t wrap(int64_t value, int bits) {
  return static_cast<int64_t>(static_cast<uint64_t>(value) << (64 - bits)) >> (64 - bits);
}

/// By isa/semantics.md, for constants of any value; the host converts integers to binary32.
float fixed_form(const Operands& w, int32_t x, int32_t y, const isa::SecondConstants& c) {
  int64_t s = 0, t = c.minimum == (x < y) ? x : y;
  if (w[1] == 1) s = y, t = x;
  if (w[1] == 2) s = wrap((x - c.zx) * (y - c.zy), 18), t = 512;
  const auto inner = static_cast<float>(wrap(s * c.inner_factor + c.inner_addend, 48));
  const auto sum = static_cast<float>(wrap(static_cast<int64_t>(inner) + t * c.outer_factor, 48));
  return std::ldexp(sum, -25 - c.shift);
}

uint32_t second_op_reference(const Operands& w) {
  std::array<uint8_t, 32> bytes;
  std::memcpy(bytes.data(), &w[kConstants], bytes.size());
  const isa::SecondConstants c = isa::decode_second(bytes.data());
  const int32_t x = sign_extend_11(w[0]), y = sign_extend_11(w[0] >> 16);
  const auto is_byte = [](int32_t value) { return value >= -128 && value <= 255; };  // what the form was made for
  const float g = (w[kForm + 3] & 1) && is_byte(x) && is_byte(y) ? float_form(w, x, y, c) : fixed_form(w, x, y, c);
  const float rounded = std::nearbyintf(g);
  const auto low = static_cast<float>(c.low), high = static_cast<float>(c.high);
  return static_cast<uint32_t>(static_cast<int32_t>(rounded > high ? high : rounded < low ? low : rounded) + c.zero);
}

// ---- random operands ----

uint32_t make_float(uint32_t sign, int32_t exponent, uint32_t fraction) {
  const int32_t field = exponent < 0 ? 0 : exponent > 255 ? 255 : exponent;
  return sign << 31 | static_cast<uint32_t>(field) << 23 | (fraction & 0x7fffffu);
}

/// A fraction: any bits, few leading bits (ties), runs of ones (carries), or the border values.
uint32_t random_fraction(Random& random) {
  const uint32_t bits = random.bits();
  switch (random.below(8)) {
    case 0: return bits & ~(0x7fffffu >> random.below(24));
    case 1: return 0x7fffffu << random.below(23) & 0x7fffffu;
    case 2: return 0x7fffffu >> random.below(24);
    case 3: return (bits & 1 ? 0u : 0x7fffffu) ^ (1u << random.below(24));
    case 4: return bits & 0x7ff000u;
    default: return bits & 0x7fffffu;
  }
}

uint32_t random_near(Random& random, int32_t exponent_low, int32_t exponent_high) {
  return make_float(random.bits() & 1, random.between(exponent_low, exponent_high), random_fraction(random));
}

/// An odd integer of at most `bits` bits times a power of two: `exponent` is the field of its top bit; may come out
/// subnormal.
uint32_t random_short(Random& random, int32_t bits, int32_t exponent_low, int32_t exponent_high) {
  const uint32_t integer = random.below(1u << bits) | 1;
  const float magnitude =
      std::ldexp(static_cast<float>(integer), random.between(exponent_low, exponent_high) - 127 - bits);
  return std::bit_cast<uint32_t>(random.bits() & 1 ? -magnitude : magnitude);
}

uint32_t random_special(Random& random) {
  const std::vector<uint32_t>& list = special_floats();
  return list[random.below(static_cast<uint32_t>(list.size()))];
}

int32_t exponent_of(uint32_t word) { return static_cast<int32_t>(word >> 23 & 0xff); }

/// A pair whose product falls where rounding is hard.
void random_pair(Random& random, uint32_t& x, uint32_t& y) {
  switch (random.below(8)) {
    case 0:
      x = random.bits();
      y = random.bits();
      break;
    case 1:  // results around the smallest normal number and below
      x = random_near(random, 1, 140);
      y = random_near(random, 100 - exponent_of(x), 130 - exponent_of(x));
      break;
    case 2:  // around overflow
      x = random_near(random, 130, 254);
      y = random_near(random, 379 - exponent_of(x), 383 - exponent_of(x));
      break;
    case 3:
      x = random_short(random, 13, 100, 154);
      y = random_short(random, 12, 100, 154);
      break;
    case 4:
      x = random_near(random, 0, 0);
      y = random_near(random, 90, 254);
      break;
    case 5:
      x = random_special(random);
      y = random.bits();
      break;
    case 6:
      x = random_near(random, 110, 144);
      y = random_near(random, 110, 144);
      break;
    default:  // ties among subnormal results
      x = random_short(random, 8, 20, 120);
      y = random_short(random, 7, 98 - exponent_of(x), 132 - exponent_of(x));
      break;
  }
  if (random.bits() & 1) std::swap(x, y);
}

void random_int_to_fp32(Random& random, Operands& w) {
  const uint32_t bits = random.bits();
  switch (random.below(5)) {
    case 0: w[0] = bits; break;
    case 1: w[0] = bits >> random.below(32); break;
    case 2: w[0] = 0u - (bits >> random.below(32)); break;
    case 3: {  // halfway between two floats, or next to it
      const uint32_t shift = 1 + random.below(7);
      const uint32_t kept = (bits | 0x80000000u) >> (8 - shift) & ~((1u << shift) - 1);
      w[0] = kept + (1u << (shift - 1)) + random.below(3) - 1;
      w[0] = random.bits() & 1 ? w[0] : 0u - w[0];
      break;
    }
    default: w[0] = (1u << random.below(32)) + static_cast<uint32_t>(random.between(-130, 130)); break;
  }
}

void random_mul(Random& random, Operands& w) { random_pair(random, w[0], w[1]); }

void random_add(Random& random, Operands& w) {
  switch (random.below(6)) {
    case 0:
      w[0] = random.bits();
      w[1] = random.bits();
      break;
    case 1:
      w[0] = random_near(random, 1, 254);
      w[1] = random_near(random, exponent_of(w[0]) - 27, exponent_of(w[0]) + 27);
      break;
    case 2:
      w[0] = random.bits();
      w[1] = (w[0] ^ 0x80000000u) + static_cast<uint32_t>(random.between(-4, 4));
      break;
    case 3:
      w[0] = random_short(random, 12, 110, 140);
      w[1] = random_short(random, 12, 90, 160);
      break;
    case 4:
      w[0] = random_near(random, 0, 3);
      w[1] = random_near(random, 0, 27);
      break;
    default:
      w[0] = random_special(random);
      w[1] = random.bits();
      break;
  }
}

void random_fma(Random& random, Operands& w) {
  random_pair(random, w[0], w[1]);
  const int32_t product_exponent = exponent_of(w[0]) + exponent_of(w[1]) - 127;
  switch (random.below(8)) {
    case 0: w[2] = random.bits(); break;
    case 1:
    case 2: w[2] = random_near(random, product_exponent - 52, product_exponent + 30); break;
    case 3: w[2] = random_near(random, product_exponent - 2, product_exponent + 2); break;
    case 4: {  // cancellation down to the product's own rounding error
      const float product = as_float(w[0]) * as_float(w[1]);
      w[2] = (std::bit_cast<uint32_t>(product) ^ 0x80000000u) + static_cast<uint32_t>(random.between(-3, 3));
      break;
    }
    case 5: w[2] = random_short(random, 3, product_exponent - 30, product_exponent + 30); break;
    case 6: w[2] = random_near(random, 0, 30); break;
    default: w[2] = random_special(random); break;
  }
}

uint32_t random_bounds(Random& random) {
  static constexpr std::array<std::array<int32_t, 2>, 8> kUsual = {
      {{-128, 127}, {0, 255}, {-255, 0}, {-512, 511}, {-32768, 32767}, {0, 6}, {5, 5}, {-100, -3}}};
  if (random.below(4) != 0) {
    const auto& pair = kUsual[random.below(kUsual.size())];
    return halves(pair[1], pair[0]);
  }
  int32_t low = random.between(-32768, 32767), high = random.between(-32768, 32767);
  if (low > high && random.below(8) != 0) std::swap(low, high);  // a few in the wrong order: defined, too
  return halves(high, low);
}

void random_round_clamp(Random& random, Operands& w) {
  w[1] = random_bounds(random);
  switch (random.below(5)) {
    case 0: w[0] = random.bits(); break;
    case 1: w[0] = random_near(random, 120, 145); break;
    case 2: {  // halves and their neighbours
      const float half = static_cast<float>(random.between(-2 << random.below(17), 2 << random.below(17))) * 0.5f;
      w[0] = std::bit_cast<uint32_t>(half) + static_cast<uint32_t>(random.between(-1, 1));
      break;
    }
    case 3: w[0] = random_special(random); break;
    default: {  // around a bound
      const int16_t bound = random.bits() & 1 ? low_half(w[1]) : high_half(w[1]);
      w[0] = std::bit_cast<uint32_t>(static_cast<float>(bound) + 0.25f * static_cast<float>(random.between(-6, 6)));
      break;
    }
  }
}

/// A scale: as networks have it, dyadic (ties), any bits, or special.
uint32_t random_scale(Random& random) {
  switch (random.below(8)) {
    case 0: return random.bits();
    case 1: return random_special(random);
    case 2:
    case 3: return random_short(random, 4, 105, 130);
    default: return random_near(random, 105, 129);
  }
}

/// Bounds of ten bits in order, as the ISA has them.
uint32_t random_narrow_bounds(Random& random) {
  static constexpr std::array<std::array<int32_t, 2>, 7> kUsual = {
      {{-128, 127}, {0, 255}, {-255, 0}, {-512, 511}, {0, 6}, {5, 5}, {-100, -3}}};
  if (random.below(4) != 0) {
    const auto& pair = kUsual[random.below(kUsual.size())];
    return halves(pair[1], pair[0]);
  }
  const int32_t low = random.between(-512, 511);
  return halves(random.between(low, 511), low);
}

/// A sum and a scale whose product lies within some units of the 24th bit of k + 1/2: what the product's own rounding
/// decides. The sum has up to 31 bits, so that its rounding to 24 bits meets the tie as well.
void random_near_tie(Random& random, Operands& w) {
  const double tie = random.between(-520, 520) + 0.5;
  const uint32_t shift = random.below(31);
  auto sum = static_cast<int32_t>(random.bits() >> 1 >> shift) | 1;
  if (random.bits() & 1) sum = -sum;
  const auto scale = static_cast<float>(tie / static_cast<double>(static_cast<float>(sum)));
  w[0] = static_cast<uint32_t>(sum);
  w[1] = 0;
  w[2] = std::bit_cast<uint32_t>(scale) + static_cast<uint32_t>(random.between(-3, 3));
}

void random_requantise(Random& random, Operands& w) {
  if (random.below(4) == 0) {
    random_near_tie(random, w);
  } else {
    w[0] = random.below(4) == 0 ? random.bits()
                                : static_cast<uint32_t>(static_cast<int32_t>(random.bits()) >> random.below(31));
    w[1] = random.below(8) == 0 ? random.bits() : static_cast<uint32_t>(random.between(-40000, 40000));
    w[2] = random_scale(random);
  }
  w[3] = random_narrow_bounds(random);
  w[4] = halves(random.below(8) != 0, random.between(-256, 255));
}

constexpr isa::IntegerRange kBytes{-128, 255};

void set_second_op(Operands& w, int32_t x, int32_t y, uint32_t operation, const isa::SecondConstants& constants) {
  w[0] = (static_cast<uint32_t>(x) & 0xffff) | static_cast<uint32_t>(y) << 16;
  w[1] = operation;
  const auto bytes = isa::encode_second(constants);
  std::memcpy(&w[kConstants], bytes.data(), bytes.size());
  w[kForm + 3] = 0;
}

bool set_float_second_op(Operands& w, int32_t x, int32_t y, const isa::FloatSecond& form) {
  const auto constants = isa::fixed_second(form, kBytes, kBytes);
  if (!constants) return false;
  set_second_op(w, x, y, static_cast<uint32_t>(form.operation), *constants);
  w[kForm] = std::bit_cast<uint32_t>(form.rx);
  w[kForm + 1] = std::bit_cast<uint32_t>(form.ry);
  w[kForm + 2] = std::bit_cast<uint32_t>(form.f);
  w[kForm + 3] = 1 | static_cast<uint32_t>(form.fused) << 1;
  return true;
}

/// A few units in the last place away.
float beside(Random& random, float value) {
  return value == 0 ? value : as_float(std::bit_cast<uint32_t>(value) + static_cast<uint32_t>(random.between(-3, 3)));
}

/// Scales, zero points and bounds as models have them; half of them such that the result lies next to a tie.
void random_float_second_op(Random& random, Operands& w) {
  isa::FloatSecond form;
  do {
    const int32_t x = random.between(-128, 255), y = random.between(-128, 255);
    const auto scale = [&](int32_t low, int32_t high) {
      return random.below(4) ? as_float(random_near(random, 127 + low, 127 + high))
                             : as_float(random_short(random, 6, 127 + low, 127 + high));
    };
    form = {};
    form.operation = static_cast<isa::SecondOp>(1 + random.below(3));
    const bool product = form.operation == isa::SecondOp::kMul;
    form.rx = product ? scale(-14, -4) : scale(-11, 3);
    form.ry = scale(-11, 3);
    form.fused = random.bits() & 1;
    form.minimum = random.bits() & 1;
    form.zx = random.between(-128, 127);
    form.zy = random.between(-128, 127);
    const uint32_t bounds = random_narrow_bounds(random);
    form.low = low_half(bounds);
    form.high = high_half(bounds);
    form.zero = random.between(-256, 255);
    form.f = static_cast<float>(random.between(-600, 600)) * 0.5f;
    if (random.below(2)) {
      const double tie = random.between(-520, 520) + 0.5;
      const int32_t p = (x - form.zx) * (y - form.zy);
      if (!product) {
        form.f = beside(random, static_cast<float>(tie - double{form.rx} * x - double{form.ry} * y));
      } else if (p != 0) {
        form.f = static_cast<float>(random.between(-256, 256));
        form.rx = beside(random, static_cast<float>((tie - form.f) / p));
      }
    }
    if (set_float_second_op(w, x, y, form)) return;
  } while (true);
}

/// Any fields, factors of any length: sums that wrap, bounds that cross.
void random_wild_second_op(Random& random, Operands& w) {
  const auto any = [&](uint32_t bits) { return static_cast<int64_t>(random.bits64()) >> (63 - random.below(bits)); };
  isa::SecondConstants c;
  c.inner_factor = any(isa::kSecondFactorBits);
  c.inner_addend = any(isa::kSecondSumBits);
  c.outer_factor = any(isa::kSecondFactorBits);
  c.shift = random.between(0, 15);
  c.low = random.between(-512, 511);
  c.high = random.below(4) ? random.between(c.low, 511) : random.between(-512, 511);
  c.zero = random.between(-256, 255);
  c.zx = random.between(-256, 255);
  c.zy = random.between(-256, 255);
  c.minimum = random.bits() & 1;
  set_second_op(w, random.between(-1024, 1023), random.between(-1024, 1023), 1 + random.below(3), c);
}

void random_second_op(Random& random, Operands& w) {
  if (random.below(3) == 0) {
    random_wild_second_op(random, w);
  } else {
    random_float_second_op(random, w);
  }
}

// ---- cross products ----

void cross_ints(const std::function<void(const Operands&)>& emit) {
  for (int shift = 0; shift < 32; ++shift) {
    for (int32_t delta = -257; delta <= 257; ++delta) {
      const uint32_t value = (1u << shift) + static_cast<uint32_t>(delta);
      emit({value});
      emit({0u - value});
      emit({value + (1u << (shift / 2))});
      emit({(value << (shift / 3)) | (1u << (shift / 4))});
    }
  }
}

void cross_pairs(const std::function<void(const Operands&)>& emit) {
  for (const uint32_t x : special_floats()) {
    for (const uint32_t y : special_floats()) emit({x, y});
  }
}

void cross_triples(const std::function<void(const Operands&)>& emit) {
  for (const uint32_t x : special_floats()) {
    for (const uint32_t y : special_floats()) {
      for (const uint32_t z : special_floats()) emit({x, y, z});
    }
  }
}

constexpr std::array<std::array<int32_t, 2>, 10> kBounds = {{{-128, 127},
                                                             {0, 255},
                                                             {-255, 0},
                                                             {-512, 511},
                                                             {-32768, 32767},
                                                             {0, 0},
                                                             {32767, 32767},
                                                             {-32768, -32768},
                                                             {3, 6},
                                                             {1, -1}}};

void cross_round_clamp(const std::function<void(const Operands&)>& emit) {
  for (const auto& [low, high] : kBounds) {
    for (const uint32_t x : special_floats()) emit({x, halves(high, low)});
    for (int32_t quarter = -4 * 33000; quarter <= 4 * 33000; ++quarter) {
      emit({std::bit_cast<uint32_t>(0.25f * static_cast<float>(quarter)), halves(high, low)});
    }
  }
}

constexpr std::array<int32_t, 17> kIntegers = {
    0,         1,        -1,       2,        3,         -3,       127,        -128,
    255,       16777215, 16777216, 16777217, -16777217, 33554434, 2147483647, -2147483647 - 1,
    2147483584};

constexpr std::array<std::array<int32_t, 2>, 8> kNarrowBounds = {
    {{-128, 127}, {0, 255}, {-255, 0}, {-512, 511}, {0, 0}, {511, 511}, {-512, -512}, {3, 6}}};

void cross_requantise(const std::function<void(const Operands&)>& emit) {
  for (const int32_t value : kIntegers) {
    for (const int32_t bias : kIntegers) {
      for (const uint32_t scale : special_floats()) {
        for (const auto& [low, high] : kNarrowBounds) {
          emit({static_cast<uint32_t>(value), static_cast<uint32_t>(bias), scale, halves(high, low), halves(1, 7)});
        }
      }
      for (const auto& [low, high] : kNarrowBounds) {
        emit({static_cast<uint32_t>(value), static_cast<uint32_t>(bias), 0, halves(high, low), halves(0, -7)});
      }
    }
  }
  // Every tie within the bounds and next to them, as a sum of 1 to 31 bits times a power of two or a neighbour of one,
  // and what lies a unit of the sum beside it.
  for (int32_t twice = -1029; twice <= 1029; twice += 2) {
    for (int shift = 0; shift <= 20; ++shift) {
      for (int32_t beside = -2; beside <= 2; ++beside) {
        const uint32_t sum = (static_cast<uint32_t>(twice) << shift) + static_cast<uint32_t>(beside);
        const uint32_t scale = static_cast<uint32_t>(126 - shift) << 23;
        for (int32_t unit = -2; unit <= 2; ++unit) {
          emit({sum, 0, scale + static_cast<uint32_t>(unit), halves(511, -512), halves(1, 0)});
          emit({sum, 0, (scale + static_cast<uint32_t>(unit)) | 0x80000000u, halves(511, -512), halves(1, 0)});
        }
      }
    }
  }
}

void cross_second_op(const std::function<void(const Operands&)>& emit) {
  static constexpr std::array<float, 12> kScales = {0,    1,     -1,    0.5f,       1.5f,        2.5f,
                                                    0.1f, -0.3f, 7.75f, 0.0009765f, 1.00000012f, 0.99999994f};
  static constexpr std::array<int32_t, 8> kValues = {0, 1, -1, 2, 127, -128, 254, 255};
  Operands w = {};
  for (uint32_t mode = 0; mode < 12; ++mode) {
    isa::FloatSecond form;
    form.operation = static_cast<isa::SecondOp>(1 + mode / 4);
    form.fused = mode & 1;
    form.minimum = mode & 2;
    form.zx = 3, form.zy = -2, form.low = -128, form.high = 127, form.zero = 5;
    for (const float rx : kScales) {
      for (const float ry : kScales) {
        if (mode / 4 != 0 && ry != 0) continue;  // only add reads ry
        for (const float f : kScales) {
          form.rx = rx, form.ry = ry, form.f = f;
          for (const int32_t x : kValues) {
            for (const int32_t y : kValues) {
              if (set_float_second_op(w, x, y, form)) emit(w);
            }
          }
        }
      }
    }
  }
}

}  // namespace

const std::vector<uint32_t>& special_floats() {
  static const std::vector<uint32_t> list = [] {
    std::vector<uint32_t> magnitudes = {
        0x00000000,                                                  // zero
        0x00000001, 0x00000002, 0x00000003, 0x00000100, 0x00001fff,  // smallest subnormals
        0x003fffff, 0x00400000, 0x00400001, 0x007ffffe, 0x007fffff,  // middle and largest subnormals
        0x00800000, 0x00800001, 0x00800002, 0x00ffffff, 0x01000000,  // smallest normals
        0x0c000000, 0x1a800000, 0x1fffffff, 0x20000000, 0x20000001,  // 2^-103, 2^-74; products around the subnormals
        0x2b800000, 0x33000000, 0x33800000, 0x34000000,              // 2^-40, 2^-25, 2^-24, 2^-23
        0x39800000, 0x3dcccccd, 0x3effffff, 0x3f000000, 0x3f000001,  // 2^-12, 0.1, one half and its neighbours
        0x3f7fffff, 0x3f800000, 0x3f800001, 0x3f800003, 0x3fc00000,  // one and its neighbours, 1.5
        0x3fffffff, 0x40000000, 0x40200000, 0x40400000, 0x45800800,  // 2, 2.5, 3, 4097
        0x46fffe00, 0x47000000, 0x4affffff, 0x4b000000, 0x4b000001,  // 32767, 32768, 2^23 and its neighbours
        0x4b7fffff, 0x4b800000, 0x4b800001, 0x4f000000, 0x5e800000,  // around 2^24, 2^31, 2^62
        0x5f7fffff, 0x5f800000, 0x5f800001, 0x72ffffff, 0x7e800000,  // squares around overflow, 2^103, 2^126
        0x7f000000, 0x7f7ffffe, 0x7f7fffff, 0x7f800000,              // 2^127, largest, infinity
        0x7f800001, 0x7fbfffff, 0x7fc00000, 0x7fffffff};             // signalling and quiet NaNs
    std::vector<uint32_t> result;
    for (const uint32_t magnitude : magnitudes) {
      result.push_back(magnitude);
      result.push_back(magnitude | 0x80000000u);
    }
    return result;
  }();
  return list;
}

const std::vector<Unit>& units() {
  static const std::vector<Unit> list = [] {
    std::vector<Unit> all = {
        {"int_to_fp32", 0, 2, 1, true, int_to_fp32_reference, random_int_to_fp32, cross_ints},
        {"fp32_mul", 1, 3, 2, true, mul_reference, random_mul, cross_pairs},
        {"fp32_fma", 2, 6, 3, true, fma_reference, random_fma, cross_triples},
        {"fp32_add", 3, 6, 2, true, add_reference, random_add, cross_pairs},
        {"fp32_round_clamp", 4, 2, 1, false, round_clamp_reference, random_round_clamp, cross_round_clamp},
        {"requantise", 5, 9, 3, false, requantise_reference, random_requantise, cross_requantise},
        {"second_op", 6, 13, 1, false, second_op_reference, random_second_op, cross_second_op},
        {"mul_then_add", 7, 0, 3, true, unfused_reference, random_fma, cross_triples},
        {"int17_to_fp32", 8, 2, 1, true, int17_to_fp32_reference, random_int_to_fp32, cross_ints},
    };
    add_row_units(all);
    return all;
  }();
  return list;
}

}  // namespace tessera::alu_arithmetic
