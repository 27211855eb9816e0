/* Agreements of all ranks before each step of a snapshot or restore: on the step, the declarations,
 * the clock, and the absence of errors. README: L27, L31. */
#include "client/lib/job/job_tables.h"
#include "client/lib/round/push_pull.h"
#include "client/lib/session/process.h"
#include "client/lib/state/internal.h"
#include "svc/base/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

/* Longest time between two agreements: one second, or a quarter of the client's time-out if this is
 * shorter. */
#define PART_NS NS_PER_S
#define DEADLINE_PARTS 4

/* Packs an error and its rank into one negative number. */
#define FAILURE_RANKS 1024
_Static_assert(FAILURE_RANKS >= RECORD_MISSING_WORDS * 64, "each rank has its own");

static int64_t failure_of(int code, uint32_t rank)
{
    return code < 0 ? (int64_t)code * FAILURE_RANKS + rank : 0;
}

static uint32_t failure_rank(int64_t failure) { return (uint32_t)(failure & (FAILURE_RANKS - 1)); }

static int failure_code(int64_t failure)
{
    return (int)((failure - failure_rank(failure)) / FAILURE_RANKS);
}

int wait_for(struct snapshot *s, int started, gp_request *const *q)
{
    int error = started < 0 ? started : gp_wait(*q, GP_TIMEOUT_DEFAULT);
    if (started == 0 && error == -ETIMEDOUT)
        s->unfinished = *q;
    return error;
}

int say_who_is_late(const struct snapshot *s)
{
    char text[ERR_TEXT_BYTES];
    snprintf(text, sizeof text, "%s", gp_last_error());
    return client_error(-ETIMEDOUT, "job '%s': gp_job_%s() waits for all ranks: %s", s->job->name,
                        s->restores ? "restore" : "snapshot", text);
}

static bool is_in_step(const struct agreement *least)
{
    return least->step == -least->negative_step;
}

bool is_agreed(const struct agreement *least)
{
    return least->failure == 0 && is_in_step(least) && least->print == -least->negative_print &&
           least->clock == -least->negative_clock;
}

/* Describes the loss of the rank with the file. A restore whose first row was sent cannot begin
 * again, because an import needs tables without rows. */
static int judge_lost(const struct snapshot *s)
{
    if (s->restores && s->tables.count > 0 && s->tables.state != TABLES_UNTOUCHED)
        return client_error(-ECONNRESET,
                            "job '%s': rank %u was to read the file, but is lost, and tables may "
                            "have rows of the file already; start the job again, and restore again",
                            s->job->name, s->root);
    return client_error(-ECONNRESET,
                        "job '%s': rank %u was to read or write the file, but is lost; call again",
                        s->job->name, s->root);
}

/* Returns the result of an agreement: this rank's own error with its text, or the error of another
 * rank. */
static int judge(const struct snapshot *s)
{
    if (!is_in_step(s->least))
        return -ERESTART;
    if (s->err.code)
        return client_error_from(&s->err);
    int64_t failure = s->least->failure;
    if (failure)
        return client_error(failure_code(failure),
                            "job '%s': rank %u failed (%s); see the error of that rank",
                            s->job->name, failure_rank(failure), err_text(failure_code(failure)));
    if (s->least->print != -s->least->negative_print)
        return client_error(-EINVAL,
                            "job '%s': ranks have declared different tensors with update rules; "
                            "declare the same ones on all ranks",
                            s->job->name);
    if (s->least->clock != -s->least->negative_clock)
        return client_error(-EINVAL,
                            "job '%s': ranks have ended different clocks: one is in clock %" PRId64
                            ", another one in clock %" PRId64 "; call gp_job_%s() after the same "
                            "clock on all ranks",
                            s->job->name, s->least->clock, -s->least->negative_clock,
                            s->restores ? "restore" : "snapshot");
    return s->least->step > AT_BEGIN && s->least->rank != s->root ? judge_lost(s) : 0;
}

/* Returns the clock of this rank in tables with GP_BSP; 0: the job has no such table. */
static uint64_t agreement_clock(const struct snapshot *s)
{
    return s->tables.has_bsp ? worker_clock_now(&s->job->tables->clock) : 0;
}

int agree(struct snapshot *s, size_t step, uint64_t *steps)
{
    gp_request *q = NULL;
    *s->ours = (struct agreement){.failure = failure_of(s->err.code, s->job->rank),
                                  .print = (int64_t)s->print,
                                  .negative_print = -(int64_t)s->print,
                                  .negative_steps = steps ? -(int64_t)*steps : 0,
                                  .step = (int64_t)step,
                                  .negative_step = -(int64_t)step,
                                  .rank = s->job->rank,
                                  .clock = (int64_t)agreement_clock(s),
                                  .negative_clock = -(int64_t)agreement_clock(s),
                                  .is_over = s->is_over};
    int error = wait_for(s, gp_push_pull(s->agreement, s->ours, s->least, GP_MIN, &q), &q);
    if (error == -ETIMEDOUT)
        return say_who_is_late(s);
    if (error == 0 && step == AT_BEGIN)
        s->root = (uint32_t)s->least->rank;
    if (error == 0)
        error = judge(s);
    if (error == 0 && steps)
        *steps = (uint64_t)-s->least->negative_steps;
    return error;
}

int agree_in_parts(struct snapshot *s, part_fn part, void *context, size_t *step)
{
    uint64_t limit_ns = s->job->client->timeout_ns / DEADLINE_PARTS;
    uint64_t part_ns = limit_ns < PART_NS ? limit_ns : PART_NS;
    int error = 0;
    s->is_over = !has_file(s);
    do {
        if (!s->is_over)
            s->is_over = part(s, context, clock_now_ns() + part_ns) <= 0;
        error = agree(s, (*step)++, NULL);
    } while (error == 0 && !s->least->is_over);
    return error;
}
