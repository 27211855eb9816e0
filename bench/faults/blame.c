/* Stores the last strikes and the last ends of processes, to find the cause of a failure. Must
 * never excuse a failure that happened before its cause. */
#include "bench/faults/blame.h"

#include "svc/base/clock.h"

/* Time after a strike in which failures count as its effect: the deadline of a wait, with a
 * margin. */
#define HURT_NS (10 * NS_PER_S)
#define COPY_NS (3 * NS_PER_S)  /* time in which another aggregator starts and receives a copy */
#define LOSS_NS (15 * NS_PER_S) /* a loss is reported within this time */

void blame_hurt(struct blame_hurts *h, uint64_t at_ns)
{
    h->at_ns[h->count++ % BLAME_HURTS] = at_ns;
}

bool blame_was_hurt(const struct blame_hurts *h, uint64_t failed_ns, uint64_t patience_ns)
{
    uint64_t shows_ns = patience_ns > HURT_NS ? patience_ns : HURT_NS;
    for (size_t i = 0; i < BLAME_HURTS && i < h->count; i++)
        if (failed_ns >= h->at_ns[i] && failed_ns < h->at_ns[i] + shows_ns)
            return true;
    return false;
}

void blame_ended(struct blame_losses *l, uint64_t from_ns, uint64_t to_ns)
{
    l->ends[l->count++ % BLAME_ENDS] = (struct blame_end){from_ns, to_ns, l->still_ns};
}

void blame_stood_still(struct blame_losses *l, uint64_t ns) { l->still_ns += ns; }

static bool are_close(const struct blame_end *first, const struct blame_end *then)
{
    uint64_t still_ns = then->still_ns - first->still_ns;
    return then->from_ns <= first->to_ns + still_ns + COPY_NS;
}

bool blame_is_bereft(const struct blame_losses *l, uint64_t failed_ns)
{
    size_t oldest = l->count > BLAME_ENDS ? l->count - BLAME_ENDS : 0;
    for (size_t i = oldest + 1; i < l->count; i++) {
        const struct blame_end *first = &l->ends[(i - 1) % BLAME_ENDS];
        const struct blame_end *then = &l->ends[i % BLAME_ENDS];
        if (are_close(first, then) && failed_ns >= then->from_ns &&
            failed_ns < then->to_ns + LOSS_NS)
            return true;
    }
    return false;
}
