/* Names that no other process uses, on any host and in any container. */
#ifndef GRADPOOL_BASE_SYSTEM_UNIQUE_H
#define GRADPOOL_BASE_SYSTEM_UNIQUE_H

#include <stddef.h>

#define UNIQUE_BYTES 64

/* Writes "PREFIX-PID-XXXXXXXX" to the buffer and returns the buffer. The PID is only information.
 * The 32 random bits make the name unique, because the first process of each container has the same
 * PID. */
char *unique_name(const char *prefix, char *buffer, size_t buffer_bytes);

#endif
