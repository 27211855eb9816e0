/* Tries again while the service is not there: boot order does not matter (L95). */
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
    struct err last; /* of the tries so far */
};

/* `error` ended a try to connect. Logs for what the process waits, once, and pauses; false: another
 * try cannot help, or the deadline has come. Blocks for a quarter of a second at most. */
bool patience_try_again(struct patience *p, int error, const struct err *err);
/* `*error` ended the last try, which may have had no time left: then the one before says more. */
void patience_explain(const struct patience *p, int *error, struct err *err);

#endif
