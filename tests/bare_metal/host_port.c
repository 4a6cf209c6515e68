/* SPDX-License-Identifier: Apache-2.0 */
/* A port for tests on the host: registers are functions that the test gives, the serial line is a pair of pipes. */
#include <poll.h>
#include <stddef.h>
#include <stdint.h>

#include "tessera_console.h"
#include "tessera_port.h"

long read(int descriptor, void* bytes, size_t count);
long write(int descriptor, const void* bytes, size_t count);

uint32_t (*host_read)(uint32_t offset);
void (*host_write)(uint32_t offset, uint32_t value);
uint64_t host_moved; /* added to all physical addresses */
int host_line_in, host_line_out;
uint64_t host_cleaned, host_invalidated; /* bytes */

uint32_t tessera_port_read(uint32_t offset) { return host_read(offset); }
void tessera_port_write(uint32_t offset, uint32_t value) { host_write(offset, value); }
uint64_t tessera_port_physical(const void* address) { return (uintptr_t)address + host_moved; }

void tessera_port_clean(const void* address, size_t bytes) {
  (void)address;
  host_cleaned += bytes;
}

void tessera_port_invalidate(const void* address, size_t bytes) {
  (void)address;
  host_invalidated += bytes;
}

void tessera_port_wait(uint32_t polls) { (void)polls; }

/* Waits a millisecond, so that a console that nobody speaks to leaves the processor to others. */
int tessera_port_get(void) {
  struct pollfd line = {host_line_in, POLLIN, 0};
  uint8_t byte;
  return poll(&line, 1, 1) == 1 && read(host_line_in, &byte, 1) == 1 ? byte : -1;
}

void tessera_port_put(uint8_t byte) {
  while (write(host_line_out, &byte, 1) != 1) continue;
}
