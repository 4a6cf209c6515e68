# SPDX-License-Identifier: Apache-2.0
# Writes a header with the digest of what a compiled program depends on: cmake -DROOT=... -DFILES=LIST -DOUTPUT=FILE
# -P source_digest.cmake. LIST is a file with a path a line. The header is written only if the digest has changed.
cmake_minimum_required(VERSION 3.25)
file(STRINGS ${FILES} sources)
set(all "")
foreach(source ${sources})
  file(SHA256 ${source} digest)
  file(RELATIVE_PATH name ${ROOT} ${source})
  string(APPEND all "${name} ${digest}\n")
endforeach()
string(SHA256 digest "${all}")
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT "#pragma once\n#define TESSERA_SOURCE_DIGEST \"@digest@\"\n" @ONLY)
