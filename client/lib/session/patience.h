/* Repeats attempts to connect while the service is not up. Services and workers may then start in
 * any order (L95). */
#ifndef GRADPOOL_CLIENT_LIB_SESSION_PATIENCE_H
#define GRADPOOL_CLIENT_LIB_SESSION_PATIENCE_H

#include "svc/base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct patience {
    const char *endpoint;
    uint64_t deadline_ns;
    uint64_t timeout_ns; /* time-out of the caller, for the log line */
    bool has_told;
    struct err last; /* error of the attempt before the last one */
};

/* Called after an attempt has ended with `error`. Logs the reason once, and sleeps for at most a
 * quarter of a second. False: another attempt cannot help, or the deadline has passed. */
bool patience_try_again(struct patience *p, int error, const struct err *err);
/* Corrects the error of the last attempt: if this attempt had no time left, `*error` and `err`
 * become the error of the attempt before. */
void patience_explain(const struct patience *p, int *error, struct err *err);

#endif
