/* SPDX-License-Identifier: Apache-2.0 */
/* Entry of firmware on RISC-V: stack, no content in .bss, main. */
  .section .text.start, "ax", @progbits
  .global _start
_start:
  .option push
  .option norelax
  la gp, __global_pointer$
  .option pop
  la sp, __stack_top
  la t0, __bss_begin
  la t1, __bss_end
1:
  bgeu t0, t1, 2f
  sw zero, 0(t0)
  addi t0, t0, 4
  j 1b
2:
  call main
3:
  j 3b
