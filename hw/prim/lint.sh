#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Verilator's lint with all warnings over every cell: with default parameters, and with all pipeline registers where it
# has any.
set -e
cd "$(dirname "$0")"
package=../../isa/generated/tsr_isa_pkg.sv
for file in tsr_*.sv; do
  cell=$(basename "$file" .sv)
  verilator --lint-only -Wall -I. --top-module "$cell" $package "$file"
  width=$(sed -n 's/.*parameter logic \[\([0-9]*\):0\] *Registers.*/\1/p' "$file")
  if [ -n "$width" ]; then
    width=$((width + 1))
    verilator --lint-only -Wall -I. --top-module "$cell" $package "-GRegisters=$width'd$(((1 << width) - 1))" "$file"
  fi
done
echo "$(ls tsr_*.sv | wc -l) cells pass"
