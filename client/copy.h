/* Copies between the caller's memory and staging. */
#ifndef GRADPOOL_CLIENT_COPY_H
#define GRADPOOL_CLIENT_COPY_H

#include "svc/reduce/reduce.h"

#include <stddef.h>

/* Shorter copies are not worth letting a job's lock go. */
#define COPY_LOCKED_BYTES 16384

/* As memcpy(), but long ones go past the cache: nobody reads the target soon enough to find it
 * there, and a store that fills a line it first reads moves half as much again. What was stored is
 * seen by other processes before any later store. */
void copy_values(void *target, const void *source, size_t bytes);
/* `bytes` of the side that is of dtype `wire`; the other side is of dtype `values`. */
void copy_to_wire(void *target, const void *source, size_t bytes, unsigned values, unsigned wire);
void copy_from_wire(void *target, const void *source, size_t bytes, unsigned values, unsigned wire);

#endif
