/* Measures the time of decisions. Owns the state of one job and the list of times. The measured
 * time does not include the events before and after a decision. */
#include "bench/backup/decisions.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "bench/sim/chance.h"
#include "packer/backup/backup.h"
#include "svc/base/clock.h"

#define ROUNDS 300
#define WORKERS_MAX 256
#define TIMES_MAX (ROUNDS * WORKERS_MAX * 4)
#define UNIT_NS 1e9

struct crowd {
    struct backup *backup;
    uint32_t workers;
    uint64_t state, now_ns, ends_ns[WORKERS_MAX];
    double *times_ns;
    uint64_t count;
};

static void crowd_fly(struct crowd *c, uint32_t rank)
{
    c->ends_ns[rank] = c->now_ns + (uint64_t)(UNIT_NS * (0.3 + chance_exponential(&c->state)));
}

static void crowd_begin(struct crowd *c, uint32_t rank)
{
    crowd_fly(c, rank);
    backup_began(c->backup, rank, c->now_ns);
}

static struct backup_decision crowd_decide(struct crowd *c)
{
    struct backup_decision decision;
    uint64_t before_ns = clock_now_ns();
    backup_decide(c->backup, c->now_ns, &decision);
    uint64_t after_ns = clock_now_ns();
    if (c->count < TIMES_MAX)
        c->times_ns[c->count++] = (double)(after_ns - before_ns);
    return decision;
}

static void crowd_round(struct crowd *c)
{
    struct backup_decision d = {.until_ns = BACKUP_NEVER_NS};
    while (d.verb == BACKUP_WAIT) {
        uint32_t next = 0;
        for (uint32_t i = 1; i < c->workers; i++)
            next = c->ends_ns[i] < c->ends_ns[next] ? i : next;
        bool is_moment = d.until_ns < c->ends_ns[next];
        c->now_ns = is_moment ? d.until_ns : c->ends_ns[next];
        if (!is_moment && backup_arrived(c->backup, next, c->now_ns) == BACKUP_LATE) {
            crowd_begin(c, next);
            continue;
        }
        if (!is_moment)
            c->ends_ns[next] = UINT64_MAX;
        d = crowd_decide(c);
        for (size_t i = 0; i < d.go_on_count; i++)
            crowd_fly(c, d.go_on[i]);
    }
}

/* Reports measurements of a round whose noise is about 30 times the signal. */
static void crowd_close(struct crowd *c)
{
    struct backup_view view;
    backup_look(c->backup, &view);
    double k = view.counted, noise = 30 * (0.9 + 0.2 * chance_unit(&c->state));
    const struct backup_measure measure = {.inputs = view.counted,
                                           .squares = k * (1 + noise),
                                           .mean = 1 + noise / k,
                                           .product = 0.7,
                                           .loss = NAN,
                                           .rate = NAN};
    backup_closed(c->backup, c->now_ns);
    backup_measured(c->backup, &measure);
    for (uint32_t i = 0; i < c->workers; i++)
        if (c->ends_ns[i] == UINT64_MAX)
            crowd_begin(c, i);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void crowd_run(struct crowd *c, struct decisions *ret_decisions)
{
    double sum = 0;
    for (uint32_t i = 0; i < c->workers; i++)
        crowd_begin(c, i);
    for (int round = 0; round < ROUNDS; round++) {
        crowd_round(c);
        crowd_close(c);
    }
    for (uint64_t i = 0; i < c->count; i++)
        sum += c->times_ns[i];
    qsort(c->times_ns, c->count, sizeof *c->times_ns, compare);
    *ret_decisions = (struct decisions){.count = c->count,
                                        .mean_ns = sum / (double)c->count,
                                        .p99_ns = c->times_ns[c->count * 99 / 100]};
}

int decisions_time(uint32_t workers, uint32_t gradients, struct decisions *ret_decisions)
{
    const struct backup_options options = {.rule = BACKUP_AUTO,
                                           .workers = workers,
                                           .absence = BACKUP_ABSENCE_NONE,
                                           .gradients = gradients};
    struct crowd *c = calloc(1, sizeof *c);
    int error = -ENOMEM;
    if (c) {
        c->workers = workers;
        c->state = 64;
        c->times_ns = calloc(TIMES_MAX, sizeof *c->times_ns);
        error = !c->times_ns            ? -ENOMEM
                : workers > WORKERS_MAX ? -EINVAL
                                        : backup_create(&options, 0, &c->backup);
    }
    if (error == 0) {
        crowd_run(c, ret_decisions);
        backup_destroy(c->backup);
    }
    if (c)
        free(c->times_ns);
    free(c);
    return error;
}
