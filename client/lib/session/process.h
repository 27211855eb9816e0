/* State of the process and its threads: the last error of each thread, the log function, and the
 * generation, a number that differs between a parent and its child. */
#ifndef GRADPOOL_CLIENT_LIB_SESSION_PROCESS_H
#define GRADPOOL_CLIENT_LIB_SESSION_PROCESS_H

#include "svc/base/err.h"

#include <stdbool.h>

/* Stores the text as the thread's last error, and returns `code`. */
int client_error(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Stores `err` of a lower layer as the thread's last error, and returns its code. */
int client_error_from(const struct err *err);

/* Returns the generation of the process, which differs in every forked child. Objects store the
 * value at their creation. */
unsigned generation_now(void);
/* Returns whether an object of this generation belongs to the parent process (L8). */
bool generation_is_foreign(unsigned generation);
/* Begins the next generation. Called in a forked child, while the child has only one thread. */
void generation_begin_next(void);

#endif
