// SPDX-License-Identifier: Apache-2.0
// Text form of instructions (syntax: isa/generated/isa.md, Assembly). Enters: text or instructions. Leaves: the other,
// without loss: assemble(disassemble(i)) == i for every instruction, legal or not. Both directions walk the generated
// field tables, so that a new field needs no code here.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "isa/generated/instructions.h"

namespace tessera::isa {

/// Assembles a program. Throws Error kInvalidProgram "source:line:column: what is wrong". Rules beyond the encoding are
/// check_program() of isa/verify/verify.h.
std::vector<Instruction> assemble(std::string_view text, std::string_view source = "assembly");

/// One line without a newline; fields at their default are left out.
std::string disassemble(const Instruction& instruction);

/// A program's listing: one line for each instruction with its number as a comment, before it its note as a comment
/// line where it differs from the previous instruction's. notes: empty or one for each instruction. assemble() reads
/// the listing back.
std::string listing(std::span<const Instruction> program, std::span<const std::string> notes = {});

}  // namespace tessera::isa
