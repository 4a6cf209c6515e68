// SPDX-License-Identifier: Apache-2.0
// The commands on instructions and artifacts: asm, disasm, keygen, sign.
#include <cstdio>

#include "isa/assembler.h"
#include "isa/program/signature.h"
#include "isa/verify/verify.h"
#include "tessera/command/commands.h"

namespace tessera {

int asm_command(const Arguments& a) {
  const auto program = isa::assemble(read_text(a.model), a.model);
  isa::check_program(program, isa::find_config(a.config.empty() ? "npu256" : a.config));
  std::string bytes;
  for (const isa::Instruction& instruction : program) {
    const isa::Word word = isa::encode(instruction);
    bytes.append(reinterpret_cast<const char*>(word.data()), word.size());
  }
  write_text(a.output.empty() ? a.model.substr(0, a.model.rfind('.')) + ".bin" : a.output, bytes);
  return 0;
}

int disasm_command(const Arguments& a) {
  const std::string bytes = read_text(a.model);
  std::string text;
  if (holds_artifact(a, bytes)) {
    const program::Artifact artifact = artifact_of(a, bytes);
    for (size_t p = 0; p < artifact.npu_programs.size(); ++p) {
      const program::NpuProgram& npu = artifact.npu_programs[p];
      for (size_t core = 0; core < program::streams_of(npu); ++core) {
        std::vector<std::string> notes;
        for (uint32_t layer : program::layers_of(npu, core))
          notes.push_back(layer < npu.layers.size() ? npu.layers[layer].name + " (" + npu.layers[layer].op + ")" : "");
        text += "# program " + std::to_string(p) + " for " + artifact.config.name +
                (npu.others.empty() ? "" : ", core " + std::to_string(core)) + "\n" +
                isa::listing(program::instructions_of(npu, core), notes);
      }
    }
  } else {
    if (a.trusted_keys)
      refuse("'" + a.model + "' is no artifact, so that it has no signature; leave out --trusted-keys");
    if (bytes.size() % 64 != 0)
      throw Error(ErrorCode::kInvalidProgram,
                  "'" + a.model + "' is no artifact and no whole number of 64-byte instructions");
    program::NpuProgram raw;
    raw.instructions.assign(bytes.begin(), bytes.end());
    text = on_file(a, bytes, [&](std::span<const uint8_t>) { return isa::listing(program::instructions_of(raw)); });
  }
  write_text(a.output, text);
  return 0;
}

int keygen_command(const Arguments& a) {
  const program::PublicKey key = program::make_key(a.output);
  if (!a.quiet)
    std::printf("%s.key: secret, for tessera sign --key\n%s.pub: for --trusted-keys, key %s\n", a.output.c_str(),
                a.output.c_str(), program::to_text(key).c_str());
  return 0;
}

int sign_command(const Arguments& a) {
  const std::string bytes = read_text(a.model);
  const program::SecretKey key = program::load_secret_key(a.key);
  const std::vector<uint8_t> made = on_file(a, bytes, [&](std::span<const uint8_t> content) {
    program::parse(content);  // who signs answers for a whole artifact
    return program::sign(content, key);
  });
  const std::string output = a.output.empty() ? a.model : a.output;
  write_text(output, std::string(made.begin(), made.end()));
  if (!a.quiet) std::printf("%s: signed\n", output.c_str());
  return 0;
}

}  // namespace tessera
