// SPDX-License-Identifier: Apache-2.0
// ONNX models. Enters: the bytes of a model; mutations are those of onnx_mutator.h, now and then bytes. What is done
// with it, and which properties hold, is in model_run.h.
#include "tests/fuzz/model_run.h"

using namespace tessera;

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  fuzz::limit_memory();
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  fuzz::Traits traits;
  onnx_proto::ModelProto proto;
  if (proto.ParseFromArray(data, static_cast<int>(size))) {
    fuzz::look(proto.graph(), traits);
    for (const auto& function : proto.functions()) {
      onnx_proto::GraphProto body;
      *body.mutable_node() = function.node();
      fuzz::look(body, traits);
    }
  }
  fuzz::accepts([&] { fuzz::run_model(bytes, traits, fuzz::seed_of(bytes)); });
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t limit, unsigned seed) {
  fuzz::Random random(seed);
  onnx_proto::ModelProto model;
  if (random.chance(3) || !model.ParseFromArray(data, static_cast<int>(size)))
    return LLVMFuzzerMutate(data, size, limit);
  for (size_t k = 1 + random.below(4); k > 0; --k) fuzz::mutate(random, model);
  const std::string made = model.SerializeAsString();
  return fuzz::give_back(data, size, limit, made.data(), made.size());
}
