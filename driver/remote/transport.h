/* SPDX-License-Identifier: Apache-2.0 */
/* A stream of messages to a server, as a library of its own has it: gRPC is large, and only who says `remote:` needs
   it. A C interface, so that neither side sees the other's C++ runtime types. One thread at a time uses a stream. */
#ifndef TESSERA_DRIVER_REMOTE_TRANSPORT_H
#define TESSERA_DRIVER_REMOTE_TRANSPORT_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TESSERA_TRANSPORT_VERSION 1

typedef struct TesseraStreamOptions {
  const char* address; /* HOST:PORT */
  const char* method;  /* of gRPC, with its service */
  int tls;             /* 0: in clear */
  const char* roots;   /* PEM of trusted certificates; empty: the system's */
  const char* token;   /* empty: none */
  const char* device;  /* metadata tessera-device; empty: none */
} TesseraStreamOptions;

typedef struct TesseraStatus {
  int code; /* of gRPC; 0 while the stream is open, -1 when nothing came in time */
  char message[1024];
} TesseraStatus;

typedef struct TesseraTransport {
  int version;
  /* Begins a stream; never null. The first send or receive says what is wrong with it. */
  void* (*open)(const TesseraStreamOptions* options);
  /* 0 when the message is on its way; else the stream has ended, as `status` says. */
  int (*send)(void* stream, const void* bytes, size_t count, double seconds, TesseraStatus* status);
  /* 0 and the next message, which is there until the next call; else as send. */
  int (*receive)(void* stream, const void** bytes, size_t* count, double seconds, TesseraStatus* status);
  void (*close)(void* stream);
} TesseraTransport;

/* The one symbol of the library: "tessera_transport". */
typedef const TesseraTransport* (*TesseraTransportEntry)(void);

#ifdef __cplusplus
}
#endif
#endif
