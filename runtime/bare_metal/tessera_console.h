/* SPDX-License-Identifier: Apache-2.0 */
/* Firmware that answers over a serial line, in lines of text. What a port for it gives beside tessera_port.h: two
 * functions of the line. */
#ifndef TESSERA_CONSOLE_H
#define TESSERA_CONSOLE_H

#include "tessera.h"

/* The next byte, or -1 when none has come. */
int tessera_port_get(void);
/* Sends a byte; waits until the line takes it. */
void tessera_port_put(uint8_t byte);

/* Looks at the line without a byte before a frame counts as broken off. */
#ifndef TESSERA_PATIENCE
#define TESSERA_PATIENCE 5000000
#endif

/* Opens the model, then serves commands for ever. Each answer ends in a line "ok" or "error CODE TEXT".
 *
 *     info                              what the firmware is: name, machine, identity, inputs, outputs
 *     input K OFFSET BYTES CRC          then BYTES raw bytes (at most 1024) for input K from OFFSET on
 *     run [INPUTS]                      one run: outputs as text, the class, cycles of the NPU
 *     output K OFFSET BYTES             these bytes (at most 256) of the last run in hexadecimal, and CRC
 *
 * Numbers are decimal. CRC is the CRC-32 of IEEE 802.3 over K, OFFSET and BYTES as 32-bit little-endian words and the
 * bytes; that of an output has INPUTS as a fourth word, the CRC-32 of all bytes of all inputs. With INPUTS a run begins
 * only when memory holds just these. After an error what is left of the line is thrown away until nothing comes for a
 * while. */
void tessera_console(const struct tessera_model* model);

/* One command; returns when it has been answered. */
void tessera_console_once(const struct tessera_model* model);

#endif
