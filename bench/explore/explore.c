/* Runs policies over streams and seeds, and averages their figures. */
#include "bench/explore/explore.h"
#include "bench/explore/input/stages.h"

#include <errno.h>
#include <stdlib.h>

typedef struct trial *(*explore_draw_fn)(const struct trial_stream *stream, uint64_t seed,
                                         const struct stream_trace *trace, size_t *ret_count);

static struct trial *explore_draw(const struct trial_stream *stream, uint64_t seed,
                                  const struct stream_trace *trace, size_t *ret_count)
{
    *ret_count = stream->trials;
    return trial_draw(stream, seed, trace);
}

static struct trial *explore_draw_stages(const struct trial_stream *stream, uint64_t seed,
                                         const struct stream_trace *trace, size_t *ret_count)
{
    (void)trace;
    return stages_draw(stream, seed, ret_count);
}

static void explore_add(struct world_figures *sum, const struct world_figures *f, double weight)
{
    sum->feedback_p50_s += weight * f->feedback_p50_s;
    sum->feedback_p95_s += weight * f->feedback_p95_s;
    sum->speed += weight * f->speed;
    sum->whole_speed += weight * f->whole_speed;
    sum->makespan_s += weight * f->makespan_s;
    sum->slot_use += weight * f->slot_use;
    sum->best += weight * f->best;
    sum->best_s += weight * f->best_s;
    sum->pause_p50_s += weight * f->pause_p50_s;
    sum->pause_max_s += weight * f->pause_max_s;
    sum->resizes += weight * f->resizes;
    sum->lane_changes += weight * f->lane_changes;
    sum->stage_wait_mean_s += weight * f->stage_wait_mean_s;
    sum->stage_wait_max_s += weight * f->stage_wait_max_s;
    if (f->bound_use > sum->bound_use)
        sum->bound_use = f->bound_use;
    sum->waits_over += f->waits_over;
    sum->rests_over += f->rests_over;
}

static int explore_run_row(struct explore_row *row, const struct stream_trace *trace,
                           explore_draw_fn draw)
{
    for (uint32_t seed = 0; seed < row->seeds; seed++) {
        struct world_setting setting = {.policy = &row->policy,
                                        .slots = row->stream->slots,
                                        .costs = row->stream->costs,
                                        .seed = seed};
        struct world_figures figures;
        struct trial *trials = draw(row->stream, seed, trace, &setting.count);
        setting.trials = trials;
        int error = trials ? world_run(&setting, &figures) : -ENOMEM;
        free(trials);
        if (error < 0)
            return error;
        explore_add(&row->figures, &figures, 1.0 / row->seeds);
    }
    return 0;
}

static int explore_run_rows(const struct trial_stream *stream, const struct stream_trace *trace,
                            explore_draw_fn draw, const struct world_policy *policies, size_t count,
                            struct explore_rows *ret_rows)
{
    ret_rows->count = 0;
    for (size_t i = 0; i < count; i++) {
        struct explore_row *row = &ret_rows->rows[ret_rows->count++];
        *row =
            (struct explore_row){.stream = stream, .policy = policies[i], .seeds = stream->seeds};
        int error = explore_run_row(row, trace, draw);
        if (error < 0)
            return error;
    }
    return 0;
}

int explore_run(const struct trial_stream *stream, const struct stream_trace *trace,
                struct explore_rows *ret_rows)
{
    struct world_policy policies[POLICIES_MAX];
    size_t count = policies_of(stream, policies);
    if (stream->arrivals == STREAM_TRACE && (!trace || trace->count < stream->trials))
        return -EINVAL;
    return explore_run_rows(stream, trace, explore_draw, policies, count, ret_rows);
}

int explore_run_stages(const struct trial_stream *stream, struct explore_rows *ret_rows)
{
    struct world_policy policies[POLICIES_MAX];
    size_t count = policies_of_stages(stream->ask, policies);
    return explore_run_rows(stream, NULL, explore_draw_stages, policies, count, ret_rows);
}
