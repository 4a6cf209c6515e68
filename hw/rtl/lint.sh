#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Verilator's lint with all warnings over the whole machine: npu64, and a configuration whose blocks are not square with
# rows of two and a wider bus.
set -e
cd "$(dirname "$0")"
lint() {
  verilator --lint-only -Wall ../../isa/generated/tsr_isa_pkg.sv -y . -y ../prim --top-module tsr_top "$@" tsr_top.sv
}
lint
lint -GBatch=2 -GBlockIn=8 -GBlockOut=32 -GAxiBytes=16 -GInpDepth=40 -GWgtDepth=40 -GAccDepth=40 -GOutDepth=40 \
  -GParamDepth=40 -GTableCount=3 -GAluQueue=1
echo "tsr_top passes"
