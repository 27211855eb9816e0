/* Repeats attempts to connect while the service is not up, so that the order of starting does not
 * matter (L95). */
#ifndef GRADPOOL_CLIENT_LIB_SESSION_PATIENCE_H
#define GRADPOOL_CLIENT_LIB_SESSION_PATIENCE_H

#include "svc/base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct patience {
    const char *endpoint;
    uint64_t deadline_ns;
    uint64_t timeout_ns; /* the time-out from which the deadline was computed; for the log */
    bool has_told;
    struct err last; /* error of the second last attempt */
};

/* Called when an attempt to connect has ended with `error`. Logs the reason once, and pauses for a
 * quarter of a second at most. False: another attempt cannot help, or the deadline has passed. */
bool patience_try_again(struct patience *p, int error, const struct err *err);
/* `*error` has ended the last attempt. If that attempt had no time left, the error of the one
 * before replaces it. */
void patience_explain(const struct patience *p, int *error, struct err *err);

#endif
