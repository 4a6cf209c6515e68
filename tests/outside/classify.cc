// SPDX-License-Identifier: Apache-2.0
// classify MODEL.onnx < floats > floats: one sample through the first input and the first output, as raw fp32. What a
// user of the C interface would write.
#include <cstdio>
#include <vector>

#include <tessera/tessera.h>

namespace {

int fail() {
  std::fprintf(stderr, "classify: %s\n", tessera_last_error());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  std::vector<float> sample(1 << 20);
  sample.resize(std::fread(sample.data(), sizeof(float), sample.size(), stdin));

  tessera_session* session = nullptr;
  if (tessera_session_open(argv[1], "fsim", "npu64", &session) != TESSERA_OK) return fail();
  tessera_port port;
  if (tessera_input(session, 0, &port) != TESSERA_OK) return fail();
  std::vector<int64_t> shape(port.shape, port.shape + port.rank);
  for (int64_t& dim : shape) dim = dim < 0 ? 1 : dim;
  const tessera_tensor input = {port.dtype, shape.size(), shape.data(), sample.data(), sample.size() * sizeof(float)};
  std::vector<tessera_tensor> outputs(tessera_output_count(session));
  if (tessera_run(session, &port.name, &input, 1, outputs.data()) != TESSERA_OK) return fail();
  std::fwrite(outputs[0].data, 1, outputs[0].bytes, stdout);
  tessera_session_close(session);
  return 0;
}
