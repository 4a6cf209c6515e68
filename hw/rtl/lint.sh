#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Verilator's lint with all warnings over the whole machine: npu64; the shipped bus widths; blocks that are not square with
# rows of two and of three; lanes for rows; memories with parity; weights of 4 bits; entries narrower than the bus;
# everything as small as it may be. Then chips of several cores. WIDTHCONCAT is about size alone: wide entries are meant.
set -e
cd "$(dirname "$0")"
lint() {
  verilator --lint-only -Wall -Wno-WIDTHCONCAT ../../isa/generated/tsr_isa_pkg.sv tsr_alu_pkg.sv -y . -y ../prim --top-module tsr_top \
    "$@" tsr_top.sv
}
lint
lint -GBlockIn=16 -GBlockOut=16 -GAxiBytes=16 -GInpDepth=2048 -GWgtDepth=1024 -GAccDepth=2048 -GOutDepth=2048
lint -GBlockIn=64 -GBlockOut=64 -GAxiBytes=64
lint -GBatch=2 -GBlockIn=8 -GBlockOut=32 -GAxiBytes=16 -GInpDepth=40 -GWgtDepth=40 -GAccDepth=40 -GOutDepth=40 \
  -GParamDepth=40 -GTableCount=3 -GAluQueue=1
lint -GBatch=3 -GBlockIn=16 -GBlockOut=16 -GAxiBytes=32
lint -GBlockIn=16 -GBlockOut=16 -GRowLanes=4 -GTableCount=8
lint -GBlockIn=16 -GBlockOut=16 -GMemoryParity=1
lint -GBatch=3 -GBlockIn=16 -GBlockOut=16 -GAxiBytes=32 -GMemoryParity=1
lint -GBlockIn=16 -GBlockOut=16 -GPackedWeights=1
lint -GBlockIn=16 -GBlockOut=16 -GRasterPairs=1
lint -GBlockIn=16 -GBlockOut=16 -GRasterPairs=2
lint -GBatch=2 -GBlockIn=32 -GBlockOut=8 -GAxiBytes=16 -GInpDepth=41 -GMemoryParity=1 -GRasterPairs=1
lint -GBatch=2 -GBlockIn=32 -GBlockOut=8 -GAxiBytes=16 -GInpDepth=41 -GMemoryParity=1 -GRasterPairs=2
lint -GBlockIn=4 -GBlockOut=64 -GAxiBytes=4 -GMemoryParity=1 -GPackedWeights=1
lint -GBlockIn=4 -GBlockOut=4 -GAxiBytes=64 -GInpDepth=1 -GWgtDepth=1 -GAccDepth=1 -GOutDepth=1 -GParamDepth=1 \
  -GTableCount=1 -GLoadQueue=1 -GReadsInFlight=1 -GWritesInFlight=1
echo "tsr_top passes"
chip() {
  verilator --lint-only -Wall -Wno-WIDTHCONCAT ../../isa/generated/tsr_isa_pkg.sv tsr_alu_pkg.sv -y . -y ../prim --top-module tsr_chip \
    "$@" tsr_chip.sv
}
chip -GCores=2
chip -GCores=3 -GBatch=2 -GBlockIn=8 -GBlockOut=32 -GAxiBytes=16 -GMemoryAxiBytes=64
chip -GCores=16 -GAxiBytes=4 -GMemoryAxiBytes=128 -GReadsInFlight=1 -GWritesInFlight=1 -GStoreQueue=1
echo "tsr_chip passes"
