/* SPDX-License-Identifier: Apache-2.0 */
/* A LiteX system with a VexRiscv: the NPU's registers stand on the bus, DRAM is shared, and the data cache writes
 * through. The addresses are those of the system's csr.csv or csr.h; the Makefile says how to give others. */
#include "tessera_console.h"
#include "tessera_port.h"

static volatile uint32_t* npu(uint32_t offset) { return (volatile uint32_t*)(uintptr_t)(TESSERA_NPU_BASE + offset); }
static volatile uint32_t* uart(uint32_t offset) { return (volatile uint32_t*)(uintptr_t)(TESSERA_UART_BASE + offset); }

enum { kRxTx = 0, kTxFull = 4, kRxEmpty = 8, kEventPending = 16, kEventReceived = 2 };

uint32_t tessera_port_read(uint32_t offset) { return *npu(offset); }

void tessera_port_write(uint32_t offset, uint32_t value) {
  __asm__ volatile("fence" ::: "memory");
  *npu(offset) = value;
}

uint64_t tessera_port_physical(const void* address) { return (uintptr_t)address; }

void tessera_port_clean(const void* address, size_t bytes) {
  (void)address, (void)bytes;
  __asm__ volatile("fence" ::: "memory");
}

/* VexRiscv's instruction that empties the data cache. */
void tessera_port_invalidate(const void* address, size_t bytes) {
  (void)address, (void)bytes;
  __asm__ volatile(".word 0x500F" ::: "memory");
}

void tessera_port_wait(uint32_t polls) { (void)polls; }

int tessera_port_get(void) {
  if (*uart(kRxEmpty) != 0) return -1;
  const int byte = (int)(*uart(kRxTx) & 0xFF);
  *uart(kEventPending) = kEventReceived;
  return byte;
}

void tessera_port_put(uint8_t byte) {
  while (*uart(kTxFull) != 0) continue;
  *uart(kRxTx) = byte;
}
