/* Searches for the number of workers of a stage. Owns no state. */
#include "packer/parallel/parallel.h"

#include <math.h>
#include <stdlib.h>

void parallel_init(struct parallel *p, enum parallel_goal goal, uint32_t least, uint32_t most)
{
    *p = (struct parallel){.goal = goal, .least = least, .most = most};
    if (least == most)
        p->chosen = most;
}

static double parallel_cost(const struct parallel *p, const struct parallel_trial *trial)
{
    return p->goal == PARALLEL_FRUGAL ? trial->unit_ns * trial->workers : trial->unit_ns;
}

/* Returns the best trial; of several equally good trials the first, which has the fewest
 * workers. */
static const struct parallel_trial *parallel_best(const struct parallel *p)
{
    const struct parallel_trial *best = &p->trials[0];
    for (uint32_t i = 1; i < p->count; i++)
        if (parallel_cost(p, &p->trials[i]) < parallel_cost(p, best))
            best = &p->trials[i];
    return best;
}

/* Returns the number of workers of the next trial. The first trial has `least` workers, each
 * further trial the next power of two, and the last one `most`. */
static uint32_t parallel_next(const struct parallel *p)
{
    uint64_t next = 1;
    if (p->count == 0)
        return p->least;
    if (p->repeats)
        return p->trials[p->count - 1].workers;
    while (next <= p->trials[p->count - 1].workers)
        next *= 2;
    return next < p->most ? (uint32_t)next : p->most;
}

uint32_t parallel_workers(const struct parallel *p)
{
    return p->chosen ? p->chosen : parallel_next(p);
}

bool parallel_is_trial(const struct parallel *p) { return p->chosen == 0; }

static int parallel_compare(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

double parallel_median(double *times, size_t count)
{
    if (count <= PARALLEL_DROPPED)
        return 0;
    times += PARALLEL_DROPPED;
    count -= PARALLEL_DROPPED;
    qsort(times, count, sizeof *times, parallel_compare);
    return count % 2 ? times[count / 2] : (times[count / 2 - 1] + times[count / 2]) / 2;
}

/* Stores a trial. Of two trials of a number of workers, the faster one counts. */
static const struct parallel_trial *parallel_store(struct parallel *p, double unit_ns)
{
    struct parallel_trial *trial = &p->trials[p->repeats ? p->count - 1 : p->count];
    if (!p->repeats)
        *trial = (struct parallel_trial){parallel_next(p), unit_ns};
    else if (unit_ns < trial->unit_ns)
        trial->unit_ns = unit_ns;
    p->count += !p->repeats;
    return trial;
}

static void parallel_add_trial(struct parallel *p, double unit_ns)
{
    const struct parallel_trial *trial = parallel_store(p, unit_ns), *best = parallel_best(p);
    bool is_worse = parallel_cost(p, trial) > PARALLEL_WORSE * parallel_cost(p, best);
    p->repeats = is_worse && !p->repeats;
    if (p->repeats)
        return;
    if (!is_worse && trial->workers < p->most && p->count < PARALLEL_TRIALS)
        return;
    p->chosen = best->workers;
    p->chosen_ns = best->unit_ns;
}

/* Begins a new search if the time of the chosen number of workers has drifted. If `least` equals
 * `most`, no trial has set `chosen_ns`, and there is nothing to search. */
static void parallel_check_drift(struct parallel *p, double unit_ns)
{
    if (p->chosen_ns > 0 && fabs(unit_ns - p->chosen_ns) > PARALLEL_DRIFT * p->chosen_ns)
        parallel_init(p, p->goal, p->least, p->most);
}

void parallel_measured(struct parallel *p, uint32_t workers, double unit_ns)
{
    if (!(unit_ns > 0) || workers != parallel_workers(p))
        return;
    if (p->chosen)
        parallel_check_drift(p, unit_ns);
    else
        parallel_add_trial(p, unit_ns);
}
