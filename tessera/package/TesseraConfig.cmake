# SPDX-License-Identifier: Apache-2.0
# The target Tessera::tessera: the C interface (tessera/tessera.h) and its library, which needs no other package.
include(${CMAKE_CURRENT_LIST_DIR}/TesseraTargets.cmake)
