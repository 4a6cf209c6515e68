// SPDX-License-Identifier: Apache-2.0
// LiteRT files. Enters: the bytes of a file; mutations write numbers into aligned words, where tables, vectors, offsets
// and the fields of options stand, copy words, and change bytes. What is done with it, and which properties hold, is in
// model_run.h.
#include <cstring>

#include "compiler/litert/to_onnx.h"
#include "tests/fuzz/model_run.h"

using namespace tessera;

namespace {

constexpr size_t kWord = 4;

void mutate(fuzz::Random& random, uint8_t* data, size_t size) {
  const size_t words = size / kWord;
  if (words == 0) return;
  uint8_t* at = data + kWord * random.below(words);
  if (random.chance(30)) {
    std::memmove(at, data + kWord * random.below(words), kWord);
    return;
  }
  const size_t width = random.of({size_t{1}, size_t{2}, kWord, kWord}), place = random.below(kWord / width) * width;
  uint32_t before = 0;
  std::memcpy(&before, at + place, width);
  const int64_t after = random.integer(static_cast<int64_t>(before));
  std::memcpy(at + place, &after, width);
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  fuzz::limit_memory();
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  fuzz::accepts([&] {
    if (!litert::is_litert(bytes)) throw Error(ErrorCode::kInvalidModel, "no LiteRT file");
    fuzz::Traits traits;
    fuzz::look(litert::to_onnx(bytes)->graph(), traits);
    fuzz::run_model(bytes, traits, fuzz::seed_of(bytes));
  });
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t limit, unsigned seed) {
  fuzz::Random random(seed);
  if (random.chance(15)) return LLVMFuzzerMutate(data, size, limit);
  for (size_t k = 1 + random.below(3); k > 0; --k) mutate(random, data, size);
  return size;
}
