/* A hold begins with an operator's order to move tasks of a job. During the hold growth does not
 * move the job. Owns job->growth->ordered_until_ns. A hold delays neither later orders, nor a new
 * placement after the loss of a lane. */
#include "svc/coordinator/job/hold.h"

#include "svc/base/log.h"
#include "svc/coordinator/job/job.h"
#include "svc/coordinator/job/share.h"
#include "svc/coordinator/service.h"

#include <inttypes.h>
#include <stdio.h>

static void hold_until(struct job *job, uint64_t until_ns)
{
    struct store_row row;
    job->growth->ordered_until_ns = until_ns;
    jobs_row(job, &row);
    store_put(job->service->store, &row);
}

void order_hold_begin(struct job *job, const struct lane *lane)
{
    struct service *s = job->service;
    uint64_t until_ns = clock_now_ns() + s->options->order_hold_ns;
    struct err err;
    store_begin(s->store);
    hold_until(job, until_ns);
    list_for_each_entry (struct job, other, &s->jobs, link)
        if (other != job && share_in_use(other, lane))
            hold_until(other, until_ns);
    if (store_commit(s->store, &err) < 0)
        log_warn(
            "job %.64s: the hold after its move was not stored, and ends with gradpool serve: %s",
            job->name, err.text);
}

/* The end of a hold is stored as a time since the start of the host. After a reboot the hold may
 * therefore end too late, but never later than --order-hold from now. */
uint64_t order_hold_ns(const struct job *job)
{
    uint64_t now_ns = clock_now_ns(), until_ns = job->growth->ordered_until_ns;
    uint64_t left_ns = until_ns > now_ns ? until_ns - now_ns : 0;
    uint64_t most_ns = job->service->options->order_hold_ns;
    return left_ns < most_ns ? left_ns : most_ns;
}

const char *order_hold_text(const struct job *job, char *text, size_t text_bytes)
{
    uint64_t left_ns = order_hold_ns(job);
    if (left_ns == 0)
        return "";
    snprintf(text, text_bytes, "an operator's move holds it there for %" PRIu64 " s more",
             (left_ns + NS_PER_S - 1) / NS_PER_S);
    return text;
}
