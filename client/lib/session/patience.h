/* Repeated attempts to connect while the service is not up: boot order does not matter (L95). */
#ifndef GRADPOOL_CLIENT_LIB_SESSION_PATIENCE_H
#define GRADPOOL_CLIENT_LIB_SESSION_PATIENCE_H

#include "svc/base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct patience {
    const char *endpoint;
    uint64_t deadline_ns;
    uint64_t timeout_ns; /* the same as a length, for the log */
    bool has_told;
    struct err last; /* error of the last attempt but one */
};

/* `error` ended an attempt to connect. Logs the reason once, and pauses for at most a quarter of a
 * second. False: another attempt cannot help, or the deadline has come. */
bool patience_try_again(struct patience *p, int error, const struct err *err);
/* `*error` ended the last attempt. If that had no time left, the error of the one before replaces
 * it. */
void patience_explain(const struct patience *p, int *error, struct err *err);

#endif
