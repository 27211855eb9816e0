/* Decides after which connection errors another attempt can succeed: no process listens at the
 * endpoint yet, or the endpoint's name or route is not known yet. */
#include "client/lib/session/patience.h"

#include "svc/base/clock.h"
#include "svc/base/log.h"

#include <errno.h>
#include <poll.h>
#include <stddef.h>

#define PAUSE_MS 250

static bool may_pass(int error)
{
    return error == -ECONNREFUSED || error == -ENOENT || error == -EHOSTUNREACH ||
           error == -ENETUNREACH || error == -EHOSTDOWN || error == -EAGAIN;
}

bool patience_try_again(struct patience *p, int error, const struct err *err)
{
    uint64_t now_ns = clock_now_ns();
    if (!may_pass(error) || now_ns >= p->deadline_ns)
        return false;
    if (!p->has_told)
        log_warn("no connection to the service at %s yet; this worker tries for up to %g s "
                 "(GRADPOOL_CONNECT_TIMEOUT_MS): %s",
                 p->endpoint, (double)p->timeout_ns / NS_PER_S, err->text);
    p->has_told = true;
    p->last = *err;
    p->last.code = error;
    uint64_t left_ms = (p->deadline_ns - now_ns) / NS_PER_MS + 1;
    poll(NULL, 0, left_ms < PAUSE_MS ? (int)left_ms : PAUSE_MS);
    return true;
}

void patience_explain(const struct patience *p, int *error, struct err *err)
{
    if (*error != -ETIMEDOUT || !p->has_told)
        return;
    *error = p->last.code;
    *err = p->last;
}
