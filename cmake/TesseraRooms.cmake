# SPDX-License-Identifier: Apache-2.0
# What every room shares: warnings, sanitizers, linker, compiler cache, and two helpers to declare libraries and tests.

find_program(TESSERA_CCACHE ccache)
if(TESSERA_CCACHE)
  set(CMAKE_C_COMPILER_LAUNCHER ${TESSERA_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${TESSERA_CCACHE})
endif()
find_program(TESSERA_MOLD mold)
if(TESSERA_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

# What runs once or waits for memory gains nothing from -O3, and it costs a fifth of the build: -O2 is the rule, hot loops ask
# for more (tessera_hot: a library; tessera_hot_sources: some sources), what only puts other things together for less
# (tessera_cold).
string(REPLACE "-O3" "-O2" CMAKE_CXX_FLAGS_RELEASE "${CMAKE_CXX_FLAGS_RELEASE}")
function(tessera_hot name)
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O3>)
endfunction()
function(tessera_hot_sources)
  set_property(SOURCE ${ARGN} APPEND PROPERTY COMPILE_OPTIONS $<$<CONFIG:Release>:-O3>)
  set_property(SOURCE ${ARGN} PROPERTY SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()
# Loops become vectors and nothing is unrolled, peeled or specialised: two thirds of -O3's time for sources with many loops.
function(tessera_vector_sources)
  set_property(SOURCE ${ARGN} APPEND PROPERTY COMPILE_OPTIONS
    "$<$<AND:$<CONFIG:Release>,$<CXX_COMPILER_ID:GNU>>:-ftree-vectorize;-fvect-cost-model=dynamic>")
  set_property(SOURCE ${ARGN} PROPERTY SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()
function(tessera_cold name)
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)
endfunction()

# GCC collects its garbage whenever its heap has doubled, from 128 MB on: of what headers hold little is ever garbage, and
# a tenth of the time goes there. Few sources need more than this gigabyte.
add_compile_options("$<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:--param=ggc-min-heapsize=1048576>")

# Sources that include much and hold little are compiled several at a time. tessera_together(TARGET SOURCES...): so many
# sources of a library are, but those that are named, whose own names others have too. Hot sources always stand alone.
option(TESSERA_UNITY "Compile several sources of a library together" ON)
function(tessera_together name)
  set_target_properties(${name} PROPERTIES UNITY_BUILD ${TESSERA_UNITY} UNITY_BUILD_BATCH_SIZE 12)
  foreach(source ${ARGN})
    set_source_files_properties(${source} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endforeach()
endfunction()

add_compile_options(-Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers)
# One meaning of every floating-point expression: no contraction, no excess precision.
add_compile_options(-ffp-contract=off -fno-fast-math)
if(TESSERA_SANITIZE)
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
endif()
if(TESSERA_FUZZ)
  # Counters of the edges that an input takes, for libFuzzer. LLVM's libraries are not built this way: what crosses the
  # border has no type information that the check of virtual tables and of function types could use.
  add_compile_options(-fsanitize=fuzzer-no-link -fno-sanitize=vptr,function)
endif()

# tessera_library(NAME SOURCES... [LINK libs...]): a static library that includes from the project's root.
function(tessera_library name)
  cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
  add_library(${name} STATIC ${ARG_UNPARSED_ARGUMENTS})
  target_include_directories(${name} PUBLIC ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
  target_link_libraries(${name} PUBLIC ${ARG_LINK})
endfunction()

# tessera_test(NAME SOURCES... [LINK libs...]): a GoogleTest binary, registered with CTest as one test; where
# TESSERA_SHARDS_NAME is set, as so many tests that share its cases, which cores then run side by side.
function(tessera_test name)
  if(NOT TESSERA_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
  find_package(GTest REQUIRED)
  add_executable(${name} ${ARG_UNPARSED_ARGUMENTS})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
  target_link_libraries(${name} PRIVATE ${ARG_LINK} GTest::gtest GTest::gtest_main)
  if(NOT TESSERA_SHARDS_${name})
    add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
    return()
  endif()
  foreach(shard RANGE 1 ${TESSERA_SHARDS_${name}})
    math(EXPR index "${shard} - 1")
    add_test(NAME ${name}_${shard} COMMAND ${name} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
    set_tests_properties(${name}_${shard} PROPERTIES
      ENVIRONMENT "GTEST_TOTAL_SHARDS=${TESSERA_SHARDS_${name}};GTEST_SHARD_INDEX=${index}")
  endforeach()
endfunction()
