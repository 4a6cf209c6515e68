/* SPDX-License-Identifier: Apache-2.0 */
/* The machine `virt` of QEMU. Its RAM is a file that another process shares (`tessera console --qemu`): that process
 * runs the NPU on it and serves its registers by a mailbox in the last page. A request is there when `asked` has
 * changed, an answer when `answered` equals it. */
#include "tessera_console.h"
#include "tessera_port.h"

struct mailbox {
  uint32_t asked, answered, writes, offset, value;
};

static volatile struct mailbox* mailbox(void) { return (volatile struct mailbox*)(uintptr_t)TESSERA_MAILBOX; }
static volatile uint8_t* uart(uint32_t offset) { return (volatile uint8_t*)(uintptr_t)(0x10000000u + offset); }

enum { kData = 0, kLineStatus = 5, kReceived = 1, kSendable = 0x20 };

/* Polls for an answer, about ten seconds of them; without one the register reads 0, which is no NPU. */
static uint32_t ask(uint32_t writes, uint32_t offset, uint32_t value) {
  volatile struct mailbox* box = mailbox();
  box->writes = writes;
  box->offset = offset;
  box->value = value;
  const uint32_t number = box->asked + 1;
  __asm__ volatile("fence" ::: "memory");
  box->asked = number;
  for (uint32_t k = 0; box->answered != number; ++k) {
    if (k == UINT32_C(2000000000)) return 0;
  }
  __asm__ volatile("fence" ::: "memory");
  return box->value;
}

uint32_t tessera_port_read(uint32_t offset) { return ask(0, offset, 0); }
void tessera_port_write(uint32_t offset, uint32_t value) { ask(1, offset, value); }
uint64_t tessera_port_physical(const void* address) { return (uintptr_t)address; }

void tessera_port_clean(const void* address, size_t bytes) {
  (void)address, (void)bytes;
  __asm__ volatile("fence" ::: "memory");
}

void tessera_port_invalidate(const void* address, size_t bytes) {
  (void)address, (void)bytes;
  __asm__ volatile("fence" ::: "memory");
}

void tessera_port_wait(uint32_t polls) { (void)polls; }

int tessera_port_get(void) { return (*uart(kLineStatus) & kReceived) != 0 ? *uart(kData) : -1; }

void tessera_port_put(uint8_t byte) {
  while ((*uart(kLineStatus) & kSendable) == 0) continue;
  *uart(kData) = byte;
}
