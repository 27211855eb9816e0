/* Measures the hand-over of 64 MiB to members that were idle, beside gp_broadcast() of the same
 * values, and beside a file that one rank writes and the new members read. */
#include "bench/savings/statistics.h"
#include "bench/stages/stages.h"
#include "svc/base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WAIT_MS 60000
#define TURNS_MAX 5
#define FORMER 4u /* members of the stage before */

enum way { WAY_CARRY, WAY_BROADCAST, WAY_FILE, WAYS };

/* Memory of one worker. */
struct hand_over_worker {
    struct tables_worker *w;
    gp_tensor *tensor;
    float *values;
    uint64_t count; /* values */
    double ms[WAYS][TURNS_MAX];
};

static bool is_giver(const struct hand_over_worker *h) { return h->w->rank < FORMER; }

/* Values of this turn; the new members begin with others. */
static void hand_over_fill(struct hand_over_worker *h, uint32_t turn)
{
    for (uint64_t i = 0; i < h->count; i++)
        h->values[i] = is_giver(h) ? (float)(i % 1000 + turn) : -1;
}

static void hand_over_check(struct hand_over_worker *h, uint32_t turn)
{
    for (uint64_t i = 0; i < h->count; i++)
        h->w->result->wrong += h->values[i] != (float)(i % 1000 + turn);
}

/* ---- the three ways ---- */

static int way_carry(struct hand_over_worker *h)
{
    const gp_carry carry = {h->values, h->count * sizeof *h->values};
    const gp_stage_spec wide = {
        .name = "wide", .workers = STAGES_RANKS, .carry = &carry, .carry_count = 1};
    gp_stage stage;
    return gp_stage_next(h->w->job, &wide, WAIT_MS, &stage);
}

static int way_broadcast(struct hand_over_worker *h)
{
    gp_request *request;
    int error = gp_broadcast(h->tensor, h->values, 0, &request);
    return error < 0 ? error : gp_wait(request, WAIT_MS);
}

static int file_transfer(int fd, char *values, size_t bytes, bool writes)
{
    for (size_t at = 0; at < bytes;) {
        ssize_t moved =
            writes ? write(fd, values + at, bytes - at) : read(fd, values + at, bytes - at);
        if (moved <= 0)
            return moved < 0 ? -errno : -EIO;
        at += (size_t)moved;
    }
    return writes && fsync(fd) < 0 ? -errno : 0;
}

static int file_access(const struct hand_over_worker *h, bool writes)
{
    char path[PATH_MAX + 16];
    snprintf(path, sizeof path, "%s/hand-over", h->w->plan->service->folder);
    int fd = open(path, writes ? O_WRONLY | O_CREAT | O_TRUNC : O_RDONLY, 0600);
    if (fd < 0)
        return -errno;
    int error = file_transfer(fd, (char *)h->values, h->count * sizeof *h->values, writes);
    close(fd);
    return error;
}

static int way_file(struct hand_over_worker *h)
{
    int error = h->w->rank == 0 ? file_access(h, true) : 0;
    if (error == 0)
        error = tables_barrier(h->w);
    if (error == 0 && !is_giver(h))
        error = file_access(h, false);
    return error < 0 ? error : tables_barrier(h->w);
}

/* ---- a turn ---- */

/* Between stages all ranks work, so a broadcast and a barrier need no stage. */
/* Writes the values before a barrier, so that no rank measures the writing of another rank. */
static int hand_over_prepare(struct hand_over_worker *h, uint32_t turn)
{
    hand_over_fill(h, turn);
    return tables_barrier(h->w);
}

static int hand_over_measure(struct hand_over_worker *h, enum way way, uint32_t turn)
{
    static int (*const run[WAYS])(struct hand_over_worker *) = {way_carry, way_broadcast, way_file};
    uint64_t began_ns = clock_now_ns();
    int error = run[way](h);
    h->ms[way][turn] = (double)(clock_now_ns() - began_ns) / NS_PER_MS;
    if (error == 0)
        hand_over_check(h, turn);
    return error;
}

static int turn_carry(struct hand_over_worker *h, uint32_t turn)
{
    gp_stage stage;
    int error = hand_over_prepare(h, turn);
    if (error == 0)
        error = stages_begin(h->w, "narrow", FORMER, &stage);
    if (error == 0)
        error = gp_stage_end(h->w->job, WAIT_MS);
    if (error == 0)
        error = hand_over_measure(h, WAY_CARRY, turn);
    if (error == 0)
        error = gp_stage_end(h->w->job, WAIT_MS);
    return error < 0 ? error : stages_begin(h->w, NULL, 0, &stage);
}

static int hand_over_turns(struct hand_over_worker *h)
{
    int error = gp_tensor_declare(h->w->job, "values", GP_F32, h->count, &h->tensor);
    for (uint32_t turn = 0; error == 0 && turn < h->w->plan->clocks; turn++) {
        error = turn_carry(h, turn);
        for (enum way way = WAY_BROADCAST; error == 0 && way < WAYS; way++) {
            error = hand_over_prepare(h, turn);
            if (error == 0)
                error = hand_over_measure(h, way, turn);
        }
    }
    return error;
}

/* Writes the medians to the board: carry, broadcast, file. */
static void hand_over_report(struct hand_over_worker *h)
{
    uint32_t turns = h->w->plan->clocks;
    h->w->result->value = statistics_quantile(h->ms[WAY_CARRY], turns, 0.5);
    h->w->result->p50_ms = statistics_quantile(h->ms[WAY_BROADCAST], turns, 0.5);
    h->w->result->p99_ms = statistics_quantile(h->ms[WAY_FILE], turns, 0.5);
}

static int hand_over_work(struct tables_worker *w)
{
    struct hand_over_worker *h = calloc(1, sizeof *h);
    if (!h)
        return -ENOMEM;
    *h = (struct hand_over_worker){.w = w, .count = w->plan->rows};
    int error = gp_alloc(w->job, h->count * sizeof *h->values, (void **)&h->values);
    if (error == 0)
        error = hand_over_turns(h);
    if (error == 0)
        hand_over_report(h);
    gp_free(w->job, h->values);
    free(h);
    return error;
}

int stages_hand_over(struct tables *t)
{
    struct tables_board *board;
    struct tables_plan plan = stages_plan(t, "hand-over", STAGES_RANKS, hand_over_work);
    plan.rows = (t->is_quick ? UINT64_C(1) << 20 : UINT64_C(64) << 20) / sizeof(float);
    plan.clocks = t->is_quick ? 2 : TURNS_MAX;
    int error = tables_crew_run(&plan, &board);
    if (error < 0)
        return error;
    /* the last rank is new, and receives the values */
    const struct tables_result *r = &board->results[STAGES_RANKS - 1];
    uint64_t wrong = tables_board_wrong(board, plan.workers);
    tables_print(t, &(struct tables_line){"hand_over_of_broadcast", "", r->value / r->p50_ms,
                                          TABLES_AT_MOST, 1.2, wrong});
    tables_print(t, &(struct tables_line){"hand_over_of_file", "", r->value / r->p99_ms,
                                          TABLES_AT_MOST, 0.3, wrong});
    tables_board_free(board);
    return 0;
}
