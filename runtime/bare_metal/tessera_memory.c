/* SPDX-License-Identifier: Apache-2.0 */
/* What compilers call even in freestanding code, for systems without a C library. To be compiled so that the loops do
 * not become calls of themselves (-fno-tree-loop-distribute-patterns). */
#include <stddef.h>
#include <stdint.h>

void* memcpy(void* to, const void* from, size_t bytes);
void* memset(void* to, int value, size_t bytes);
void* memmove(void* to, const void* from, size_t bytes);

/* A word that may stand for objects of any type. */
typedef uint32_t __attribute__((may_alias)) word;

void* memcpy(void* restrict to, const void* restrict from, size_t bytes) {
  uint8_t* t = to;
  const uint8_t* f = from;
  if ((((uintptr_t)t | (uintptr_t)f) & 3) == 0)
    for (; bytes >= 4; bytes -= 4, t += 4, f += 4) *(word*)t = *(const word*)f;
  while (bytes-- > 0) *t++ = *f++;
  return to;
}

void* memset(void* to, int value, size_t bytes) {
  uint8_t* t = to;
  for (; bytes > 0 && ((uintptr_t)t & 3) != 0; --bytes) *t++ = (uint8_t)value;
  const uint32_t four = (uint8_t)value * UINT32_C(0x01010101);
  for (; bytes >= 4; bytes -= 4, t += 4) *(word*)t = four;
  while (bytes-- > 0) *t++ = (uint8_t)value;
  return to;
}

void* memmove(void* to, const void* from, size_t bytes) {
  uint8_t* t = to;
  const uint8_t* f = from;
  if ((uintptr_t)t <= (uintptr_t)f || (uintptr_t)t - (uintptr_t)f >= bytes) return memcpy(to, from, bytes);
  while (bytes-- > 0) t[bytes] = f[bytes];
  return to;
}
