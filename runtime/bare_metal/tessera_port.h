/* SPDX-License-Identifier: Apache-2.0 */
/* What a system gives the runtime: six functions. A port for a board is one source file with them; tessera_port_*.c of
 * this folder are examples. The runtime calls them from one context, never from an interrupt.
 *
 * Memory. The NPU reads its instructions and its constants, and reads and writes its arena. They stand in the sections
 * .tessera.instructions, .tessera.constants (both only read) and .tessera.arena (without initial content). The linker
 * script puts them where the NPU's bus reaches; each is one block, aligned to 64 bytes, whose physical addresses are
 * contiguous. All other data is the CPU's alone. */
#ifndef TESSERA_PORT_H
#define TESSERA_PORT_H

#include <stddef.h>
#include <stdint.h>

/* Reads or writes a 32-bit register of the NPU's control bus; `offset` is in bytes, a multiple of 4 below 4096.
 * Accesses happen in the order of the calls, and after all writes to memory that stand before them. */
uint32_t tessera_port_read(uint32_t offset);
void tessera_port_write(uint32_t offset, uint32_t value);

/* The address by which the NPU's bus master reaches what the CPU has at `address`. Without address translation and
 * without a bus of its own this is the address itself. */
uint64_t tessera_port_physical(const void* address);

/* Cache maintenance over `bytes` bytes from `address`; both may be empty where the memory is not cached, or where the
 * NPU's bus is coherent. `clean`: what the CPU has written reaches memory, before the NPU reads it. `invalidate`: what
 * the CPU reads next comes from memory, which the NPU has written; the CPU has no unwritten data there. */
void tessera_port_clean(const void* address, size_t bytes);
void tessera_port_invalidate(const void* address, size_t bytes);

/* Called between two looks at the NPU while it runs; `polls` counts the looks of this program from 0. It may return at
 * once, or sleep until the NPU's interrupt: a build with TESSERA_INTERRUPT=1 switches the interrupt on for each program
 * and clears its status afterwards. It must return after a while even when no interrupt comes, because the runtime
 * gives up after a number of looks (struct tessera_program, polls). */
void tessera_port_wait(uint32_t polls);

#endif
