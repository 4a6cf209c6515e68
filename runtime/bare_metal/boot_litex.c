/* SPDX-License-Identifier: Apache-2.0 */
/* First steps of a LiteX system of hw/litex, whose processor begins in a memory at address 0 and finds a DRAM that
 * nobody has started: starts it by the writes of the system's description (hw/litex/describe.py), copies the firmware
 * that stands behind this program to its beginning, and jumps there. */
#include <stdint.h>

enum { kWrites = 16 }; /* word of the description: how many, then three words each */

extern const uint32_t image[], image_end[];

static volatile uint32_t* at(uint32_t address) { return (volatile uint32_t*)(uintptr_t)address; }

void boot(void) {
  const volatile uint32_t* description = at(0x91000000u);
  const volatile uint32_t* write = description + kWrites + 1;
  for (uint32_t k = 0; k < description[kWrites]; ++k, write += 3) {
    *at(write[0]) = write[1];
    for (volatile uint32_t cycles = write[2]; cycles > 4; cycles -= 4) continue; /* a round takes more */
  }
  volatile uint32_t* to = at(0x40000000u);
  for (const uint32_t* from = image; from < image_end; ++from) *to++ = *from;
  /* VexRiscv's instruction that empties the instruction cache; it ends some instructions later. */
  __asm__ volatile("fence\n .word 0x100F\n nop\n nop\n nop\n nop\n nop\n" ::: "memory");
  ((void (*)(void))(uintptr_t)0x40000000u)();
}
