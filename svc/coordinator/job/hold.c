/* Holds: times after an operator's order in which growth does not move the job. Owns
 * job->growth->ordered_until_ns. A hold prevents neither a new placement after the loss of a lane
 * nor a later order. */
#include "svc/coordinator/job/hold.h"

#include "svc/coordinator/job/share.h"
#include "svc/coordinator/service.h"

#include <inttypes.h>
#include <stdio.h>

void order_hold_begin(struct job *job, const struct lane *lane)
{
    struct service *s = job->service;
    uint64_t until_ns = clock_now_ns() + s->options->order_hold_ns;
    job->growth->ordered_until_ns = until_ns;
    list_for_each_entry (struct job, other, &s->jobs, link)
        if (share_in_use(other, lane))
            other->growth->ordered_until_ns = until_ns;
}

uint64_t order_hold_ns(const struct job *job)
{
    uint64_t now_ns = clock_now_ns();
    return job->growth->ordered_until_ns > now_ns ? job->growth->ordered_until_ns - now_ns : 0;
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
