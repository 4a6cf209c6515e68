#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Yosys reads, elaborates and checks every cell, with default parameters and with all pipeline registers; problems that
# `check` finds (several drivers, loops, undriven wires) are errors, and so are inferred latches. Memory is limited to 8
# GB. With the argument --area it maps the arithmetic units to Xilinx primitives instead and prints what they take.
set -e
cd "$(dirname "$0")"
if ! command -v yosys > /dev/null; then
  echo "yosys not found: skipped"
  exit 0
fi
ulimit -v 8000000
if [ "$1" = "--area" ]; then
  for unit in requantise round_saturate fixed_fma second_op; do
    width=$(sed -n 's/.*parameter logic \[\([0-9]*\):0\] *Registers.*/\1/p' "tsr_$unit.sv")
    width=$((width + 1))
    echo "tsr_$unit, all $width registers"
    yosys -p "read_verilog -sv ../../isa/generated/tsr_isa_pkg.sv tsr_*.sv; chparam -set Registers $(((1 << width) - 1)) tsr_$unit; hierarchy -top tsr_$unit;
              synth_xilinx -noiopad -noclkbuf -flatten; tee -o /dev/stdout stat" -q |
      awk '/LUT[1-6]|FD[RSCP]E|CARRY4|DSP48|MUXF/ { printf "  %s %s", $1, $2 } END { print "" }'
  done
  exit 0
fi
for file in tsr_*.sv; do
  cell=$(basename "$file" .sv)
  width=$(sed -n 's/.*parameter logic \[\([0-9]*\):0\] *Registers.*/\1/p' "$file")
  choices="default"
  [ -n "$width" ] && choices="default all"
  for registers in $choices; do
    parameters=""
    [ "$registers" = all ] && parameters="chparam -set Registers $(((1 << (width + 1)) - 1)) $cell;"
    yosys -q -p "read_verilog -sv ../../isa/generated/tsr_isa_pkg.sv tsr_*.sv; $parameters hierarchy -check -top $cell; proc; flatten; opt_clean;
                 check -assert; select -assert-none t:\$dlatch t:\$_DLATCH_*"
  done
done
echo "$(ls tsr_*.sv | wc -l) cells pass"
