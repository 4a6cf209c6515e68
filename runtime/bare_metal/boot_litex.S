/* SPDX-License-Identifier: Apache-2.0 */
/* Entry at the processor's reset, with a stack in LiteX's SRAM of 8 KB or more; behind all of it the firmware. */
  .section .text.start, "ax"
  .global _start
_start:
  li sp, 0x10002000
  j boot

  .section .rodata
  .balign 4
  .global image, image_end
image:
  .incbin "firmware.bin"
  .balign 4
image_end:
