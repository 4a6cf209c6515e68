/* SPDX-License-Identifier: Apache-2.0 */
/* Firmware: the model behind a serial line. */
#include "model.h"
#include "tessera_console.h"

int main(void) {
  tessera_console(&tessera_model);
  return 0;
}
