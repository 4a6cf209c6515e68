// SPDX-License-Identifier: Apache-2.0
// The accesses of a nest against the positions that they were made of, address by address.
#include "compiler/npu/tasks/compute.h"

#include <gtest/gtest.h>

#include "compiler/npu/tests/random_graph.h"

namespace tessera::npu {
namespace {

using test::Random;

struct Fixture {
  Graph graph;
  std::vector<Placement> places;
  isa::MachineConfig config = isa::find_config("npu256");
  Options options;
  std::vector<Task> tasks;
  Maker maker{graph, places, config, options, tasks};

  TensorId add(Random& random) {
    Tensor tensor;
    tensor.n = random.between(1, 3), tensor.h = random.between(1, 9), tensor.w = random.between(1, 9), tensor.c = 7;
    Placement place;
    place.offset = random.between(0, 100);
    place.pixel_pitch = random.between(7, 20);
    place.row_pitch = tensor.w * place.pixel_pitch + random.between(0, 5);
    place.image_pitch = tensor.h * place.row_pitch + random.between(0, 5);
    places.push_back(place);
    return graph.add(tensor);
  }
};

int64_t value_of(const Index& index, const std::array<int64_t, kLoops>& at) {
  int64_t sum = index.constant;
  for (size_t i = 0; i < kLoops; ++i) sum += index.factor[i] * at[i];
  return sum;
}

int64_t address_of(const Element& element, const Placement& place, const std::array<int64_t, kLoops>& at) {
  const int64_t image = value_of(element.position[0], at), row = value_of(element.position[1], at),
                column = value_of(element.position[2], at), channel = value_of(element.position[3], at);
  return place.offset + image * place.image_pitch + row * place.row_pitch + column * place.pixel_pitch + channel;
}

/// A sum of the loops of pixels with small factors.
Index random_index(Random& random) {
  Index index = at(random.between(0, 3));
  for (const Index& loop : {loops::n, loops::h, loops::w})
    if (random.between(0, 2) == 0) index = index + random.between(1, 3) * loop;
  return index;
}

TEST(Compute, AddressesAreThoseOfThePositions) {
  Random random(5);
  for (int i = 0; i < 200; ++i) {
    Fixture f;
    const TensorId input = f.add(random), factor = f.add(random), output = f.add(random);
    Compute made;
    made.computation = schedule::Computation::kDense;
    made.extent = {random.between(1, 3), random.between(1, 5), random.between(1, 5), 7, 1, 1, 7};
    made.result = {output, {random_index(random), random_index(random), random_index(random), loops::c}};
    made.input = {input, {loops::n, loops::h, loops::w, loops::k}};
    made.factor = {factor, {random_index(random), random_index(random), loops::c, loops::k}};
    const schedule::Nest nest = f.maker.nest(made, {});
    const auto place = [&](TensorId id) { return f.maker.place(id); };
    for (int64_t n = 0; n < made[Loop::kN]; ++n) {
      for (int64_t h = 0; h < made[Loop::kH]; ++h) {
        for (int64_t w = 0; w < made[Loop::kW]; ++w) {
          const auto pixel = [&](const auto& a) { return a.offset + n * a.pitch_n + h * a.pitch_h + w * a.pitch_w; };
          EXPECT_EQ(pixel(nest.output), address_of(made.result, place(output), {n, h, w}));
          EXPECT_EQ(pixel(nest.input), address_of(made.input, place(input), {n, h, w}));
          EXPECT_EQ(pixel(nest.factor) + 3 * nest.factor.pitch_column + 2 * nest.factor.pitch_k,
                    address_of(*made.factor, place(factor), {n, h, w, 3, 0, 0, 2}));
        }
      }
    }
  }
}

TEST(Compute, WindowsAreStepsAndPads) {
  Random random(6);
  Fixture f;
  const TensorId input = f.add(random), output = f.add(random);
  Pool pool;
  pool.input = input, pool.output = output;
  pool.kernel_h = 3, pool.kernel_w = 2, pool.stride_h = 2, pool.dilation_w = 4;
  pool.pads = {1, 5, 0, 0};
  const schedule::Nest nest = f.maker.nest(f.maker.windows(pool, loops::c), {});
  EXPECT_EQ(nest.extent[schedule::Dim::kKh], 3);
  EXPECT_EQ(nest.extent[schedule::Dim::kKw], 2);
  EXPECT_EQ(std::pair(nest.stride_h, nest.stride_w), std::pair(int64_t{2}, int64_t{1}));
  EXPECT_EQ(std::pair(nest.dilation_h, nest.dilation_w), std::pair(int64_t{1}, int64_t{4}));
  EXPECT_EQ(std::pair(nest.pad_top, nest.pad_left), std::pair(int64_t{1}, int64_t{5}));
  EXPECT_EQ(nest.input.pitch_h, f.places[static_cast<size_t>(input)].row_pitch);
}

TEST(Compute, WhatIsReadAgainIsBroadcast) {
  Random random(7);
  Fixture f;
  const TensorId output = f.add(random), vector = f.add(random);
  f.graph.tensors[static_cast<size_t>(output)] = {.n = 2, .h = 3, .w = 4, .c = 7};
  f.graph.tensors[static_cast<size_t>(vector)] = {.n = 1, .h = 1, .w = 4, .c = 1};
  Compute made = f.maker.every(output);
  made.input = f.maker.beside(vector, made.result);
  const schedule::Access access = f.maker.nest(made, {}).input;
  EXPECT_TRUE(access.broadcast_n && access.broadcast_h && access.broadcast_c);
  EXPECT_FALSE(access.broadcast_w);
  EXPECT_EQ(access.pitch_n, 0);
  EXPECT_EQ(access.pitch_h, 0);
}

}  // namespace
}  // namespace tessera::npu
