/* From begins of rounds to when the next will come, where that is known at all. Must never read a
 * clock, and never name a window of a job whose begins were not where they had to be: who is named
 * apart from others is placed beside them. README.md: R6 to R8. */
#include "packer/phase.h"

#include <stdbool.h>
#include <string.h>

#include "packer/packer.h"

static uint64_t distance(uint64_t a, uint64_t b) { return a > b ? a - b : b - a; }
static uint64_t longer(uint64_t a, uint64_t b) { return a > b ? a : b; }

void phase_take(struct phase *p, uint64_t begun_ns, uint64_t span_ns)
{
    if (p->count > 0 && begun_ns <= p->begun_ns[p->count - 1])
        p->count = 0; /* of another process */
    if (begun_ns == 0 || span_ns == 0) {
        p->count = 0;
        return;
    }
    if (p->count == PHASE_LOOKS) {
        p->count--;
        memmove(p->begun_ns, p->begun_ns + 1, p->count * sizeof p->begun_ns[0]);
        memmove(p->span_ns, p->span_ns + 1, p->count * sizeof p->span_ns[0]);
    }
    p->begun_ns[p->count] = begun_ns;
    p->span_ns[p->count++] = span_ns;
}

/* So many periods after the first, and off by no more than the guard? */
static bool is_on_time(const struct phase *p, uint32_t at, double period_ns)
{
    double elapsed_ns = (double)(p->begun_ns[at] - p->begun_ns[0]);
    double rounds = (double)(uint64_t)(elapsed_ns / period_ns + 0.5);
    double off_ns = elapsed_ns - rounds * period_ns;
    return (off_ns < 0 ? -off_ns : off_ns) * PHASE_GUARD_PARTS <= period_ns;
}

static uint64_t longest_span_ns(const struct phase *p)
{
    uint64_t longest_ns = 0;
    for (uint32_t i = 0; i < p->count; i++)
        longest_ns = longer(longest_ns, p->span_ns[i]);
    return longest_ns;
}

/* First and last begin say how long a round took in between, more exactly than any mean of a few
 * rounds; were it another number of rounds, the begins between would be off. */
struct phase_burst phase_find(const struct phase *p, uint64_t period_ns)
{
    const struct phase_burst none = {0};
    if (p->count < PHASE_LOOKS || period_ns == 0 || period_ns > PACKER_PERIOD_NS_MAX)
        return none;
    uint64_t elapsed_ns = p->begun_ns[p->count - 1] - p->begun_ns[0];
    uint64_t rounds =
        elapsed_ns / period_ns + (elapsed_ns % period_ns >= period_ns - period_ns / 2);
    if (rounds == 0 || rounds + 1 < p->count)
        return none;
    double exact_ns = (double)elapsed_ns / (double)rounds;
    for (uint32_t i = 1; i + 1 < p->count; i++)
        if (!is_on_time(p, i, exact_ns))
            return none;
    struct phase_burst burst = {.begun_ns = p->begun_ns[p->count - 1],
                                .period_ns = (uint64_t)(exact_ns + 0.5),
                                .window_ns = longest_span_ns(p)};
    return burst.window_ns < burst.period_ns ? burst : none;
}

struct phase_burst phase_join(const struct phase_burst *a, const struct phase_burst *b)
{
    const struct phase_burst none = {0};
    const struct phase_burst *newer = a->begun_ns >= b->begun_ns ? a : b;
    const struct phase_burst *older = newer == a ? b : a;
    uint64_t period_ns = newer->period_ns;
    if (a->window_ns == 0 || b->window_ns == 0 ||
        distance(a->period_ns, b->period_ns) > period_ns / PHASE_GUARD_PARTS)
        return none;
    uint64_t before_ns = (newer->begun_ns - older->begun_ns) % period_ns;
    struct phase_burst burst = *newer;
    if (before_ns <= period_ns / 2) {
        burst.window_ns = longer(before_ns + newer->window_ns, older->window_ns);
        burst.begun_ns -= before_ns;
    } else {
        burst.window_ns = longer(period_ns - before_ns + older->window_ns, newer->window_ns);
    }
    return burst.window_ns < period_ns ? burst : none;
}

uint64_t phase_offset_ns(const struct phase_burst *burst, uint64_t now_ns)
{
    if (burst->window_ns == 0 || now_ns < burst->begun_ns)
        return burst->begun_ns;
    return burst->begun_ns + (now_ns - burst->begun_ns) / burst->period_ns * burst->period_ns;
}
