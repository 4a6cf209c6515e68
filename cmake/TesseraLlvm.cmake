# SPDX-License-Identifier: Apache-2.0
# LLVM 19.1, as the library tessera_llvm: the shared one of the system, or its archives inside a target that has the
# property TESSERA_STATIC_LLVM (the module of the wheel, which runs where no LLVM is installed). The code
# generators among them are those of the host's architecture and of the processors of compiler/cpu/code/target.h.
find_package(LLVM 19.1 REQUIRED CONFIG HINTS /usr/lib/llvm-19/lib/cmake/llvm)
execute_process(
  COMMAND ${LLVM_TOOLS_BINARY_DIR}/llvm-config --link-static --libfiles native riscv arm aarch64 orcjit passes
  OUTPUT_VARIABLE TESSERA_LLVM_ARCHIVES OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
separate_arguments(TESSERA_LLVM_ARCHIVES)
find_package(ZLIB REQUIRED)
find_library(TESSERA_ZSTD zstd REQUIRED)
add_library(tessera_llvm INTERFACE)
target_link_libraries(tessera_llvm INTERFACE
  "$<IF:$<BOOL:$<TARGET_PROPERTY:TESSERA_STATIC_LLVM>>,-Wl$<COMMA>--start-group;${TESSERA_LLVM_ARCHIVES};-Wl$<COMMA>--end-group;${TESSERA_ZSTD};ZLIB::ZLIB;pthread,LLVM>")
