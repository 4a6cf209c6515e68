// SPDX-License-Identifier: Apache-2.0
// Streams of a core by hand, for tests of what orders them: works without instructions of their own.
#pragma once

#include <initializer_list>
#include <vector>

#include "compiler/npu/cores/cores_order.h"

namespace tessera::npu::test {

/// What an instruction does: its engine, and the bytes that it touches.
inline emit::Work work(isa::Engine engine, std::initializer_list<emit::Touch> touches) {
  emit::Work made;
  made.engine = engine;
  made.idle = false;
  for (const emit::Touch& touch : touches) made.touches.push_back(touch);
  return made;
}

/// A core that does so in this order; tags and layers are the places in it.
inline CoreCode core_code(const std::vector<emit::Work>& works) {
  CoreCode code;
  for (uint32_t i = 0; i < works.size(); ++i) {
    code.works.push_back(code.pool.add(works[i]));
    code.instructions.emplace_back(isa::Fence{});
    code.tags.push_back(i);
    code.layers.push_back(i);
  }
  return code;
}

}  // namespace tessera::npu::test
