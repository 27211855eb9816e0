/* State of the process and its threads, not of an object: each thread's last error, the function
 * that gets log lines, and the generation by which a child differs from its parent. */
#ifndef GRADPOOL_CLIENT_LIB_SESSION_PROCESS_H
#define GRADPOOL_CLIENT_LIB_SESSION_PROCESS_H

#include "svc/base/err.h"

#include <stdbool.h>

/* Stores the sentence as the thread's last error; returns `code`. */
int client_error(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same for an error that a lower layer has put into words. */
int client_error_from(const struct err *err);

/* Changes in every forked child: objects store the value under which they were made. */
unsigned generation_now(void);
/* Whether an object of that generation belongs to the parent process (L8). */
bool generation_is_foreign(unsigned generation);
/* In a forked child, while it has one thread. */
void generation_begin_next(void);

#endif
