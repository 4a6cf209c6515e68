# SPDX-License-Identifier: Apache-2.0
# MLIR 19.1 for the rooms that need them, and two helpers: one library with MLIR's includes and flags, one TableGen step.
# Included by compiler/CMakeLists.txt only when TESSERA_COMPILER is on.

find_package(MLIR REQUIRED CONFIG HINTS ${LLVM_DIR}/../mlir /usr/lib/llvm-19/lib/cmake/mlir)
list(APPEND CMAKE_MODULE_PATH ${MLIR_CMAKE_DIR} ${LLVM_CMAKE_DIR})
include(TableGen)
include(AddLLVM)
include(AddMLIR)
separate_arguments(TESSERA_LLVM_DEFINITIONS NATIVE_COMMAND "${LLVM_DEFINITIONS}")

# MLIR inside a target with the property TESSERA_STATIC_LLVM; all others load the shared library.
file(GLOB TESSERA_MLIR_ARCHIVES ${MLIR_DIR}/../../libMLIR*.a)
list(FILTER TESSERA_MLIR_ARCHIVES EXCLUDE REGEX "Test|CAPI|Execution")
add_library(tessera_mlir INTERFACE)
target_link_libraries(tessera_mlir INTERFACE
  "$<IF:$<BOOL:$<TARGET_PROPERTY:TESSERA_STATIC_LLVM>>,-Wl$<COMMA>--start-group;${TESSERA_MLIR_ARCHIVES};-Wl$<COMMA>--end-group,MLIR>"
  tessera_llvm)

# What every target with an MLIR translation unit gets. LLVM's headers are system headers (no warnings from them) and its
# compile time is template instantiation, not our loops.
function(tessera_mlir_target name)
  target_include_directories(${name} SYSTEM PUBLIC ${LLVM_INCLUDE_DIRS} ${MLIR_INCLUDE_DIRS})
  target_compile_definitions(${name} PUBLIC ${TESSERA_LLVM_DEFINITIONS})
  tessera_cold(${name})
  target_link_libraries(${name} PUBLIC tessera_mlir)
endfunction()

# tessera_mlir_library(NAME SOURCES... [LINK libs...] [DEPENDS tablegen-targets...])
function(tessera_mlir_library name)
  cmake_parse_arguments(ARG "" "" "LINK;DEPENDS" ${ARGN})
  tessera_library(${name} ${ARG_UNPARSED_ARGUMENTS} LINK ${ARG_LINK})
  tessera_mlir_target(${name})
  # A source spends two thirds of its time in MLIR's headers: 5 to 9 s, and half a gigabyte.
  tessera_together(${name})
  set_target_properties(${name} PROPERTIES UNITY_BUILD_BATCH_SIZE 16)
  if(ARG_DEPENDS)
    add_dependencies(${name} ${ARG_DEPENDS})
  endif()
endfunction()

# tessera_mlir_tablegen(TARGET file.td [OUTPUTS out1 "-gen-x;-y" ...]): runs mlir-tblgen for pairs of output file and options.
function(tessera_mlir_tablegen target td)
  set(LLVM_TARGET_DEFINITIONS ${td})
  set(rest ${ARGN})
  while(rest)
    list(POP_FRONT rest output options)
    separate_arguments(options UNIX_COMMAND "${options}")
    mlir_tablegen(${output} ${options} -I ${PROJECT_SOURCE_DIR} EXTRA_INCLUDES ${MLIR_INCLUDE_DIRS})
  endwhile()
  add_public_tablegen_target(${target})
  set(TABLEGEN_OUTPUT ${TABLEGEN_OUTPUT} PARENT_SCOPE)
endfunction()
