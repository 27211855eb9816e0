/* The bars (limits) of `explore --simulate`. Each bar compares a figure of our policy with the
 * same figure of another policy in the same run. */
#include "bench/explore/explore.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum bars_figure { BARS_P50, BARS_P95, BARS_SPEED, BARS_MAKESPAN, BARS_STAGE_WAIT };

static const char *const bars_names[] = {"feedback p50", "feedback p95", "speed", "makespan",
                                         "wait of a stage"};

struct bars_spec {
    /* compares the best policy whose name begins with `subject` and the best policy whose name
     * begins with `against` */
    const char *subject, *against;
    enum bars_figure figure;
    double limit;
};

static const struct bars_spec bars_of_load_08[] = {
    {"rest", "fifo", BARS_P50, 0.6},         {"rest", "fifo", BARS_P95, 0.45},
    {"rest", "fifo", BARS_SPEED, 1.3},       {"rest", "fifo-4", BARS_P50, 0.15},
    {"rest", "fifo-4", BARS_P95, 0.15},      {"rest", "fifo-4", BARS_SPEED, 1.5},
    {"rest", "restart-10", BARS_SPEED, 1.1}, {"rest", "restart-30", BARS_SPEED, 1.3},
    {"preload", "rest", BARS_SPEED, 1.1},
};
static const struct bars_spec bars_of_load_11[] = {
    {"rest", "fifo", BARS_P50, 0.5},
    {"rest", "fifo", BARS_P95, 0.3},
    {"rest", "fifo", BARS_SPEED, 1.5},
};
static const struct bars_spec bars_of_batch[] = {
    {"rest", "fifo", BARS_P50, 0.45},
    {"rest", "fifo", BARS_MAKESPAN, 0.65},
};
static const struct bars_spec bars_of_trace[] = {
    {"rest", "fifo", BARS_SPEED, 0.98},
};
static const struct bars_spec bars_of_stages[] = {
    {"rest", "priority", BARS_STAGE_WAIT, 1},
};

#define BARS_COUNT(table) (sizeof(table) / sizeof *(table))

static double bars_value(const struct world_figures *f, enum bars_figure figure)
{
    switch (figure) {
    case BARS_P50: return f->feedback_p50_s;
    case BARS_P95: return f->feedback_p95_s;
    case BARS_SPEED: return f->speed;
    case BARS_MAKESPAN: return f->makespan_s;
    case BARS_STAGE_WAIT: return f->stage_wait_mean_s;
    }
    return NAN;
}

static bool bars_is_policy(const char *name, const char *prefix)
{
    size_t length = strlen(prefix);
    return strncmp(name, prefix, length) == 0 &&
           (name[length] == 0 || name[length] == '-' || name[length] == '/');
}

/* Returns the best figure of all policies whose name begins with the prefix; NaN: there is no such
 * policy. */
static double bars_best(const struct explore_rows *rows, const char *prefix,
                        enum bars_figure figure)
{
    double best = NAN;
    for (size_t i = 0; i < rows->count; i++) {
        double value = bars_value(&rows->rows[i].figures, figure);
        if (!bars_is_policy(rows->rows[i].policy.name, prefix))
            continue;
        bool is_better = figure == BARS_SPEED ? value > best : value < best;
        best = isnan(best) || is_better ? value : best;
    }
    return best;
}

static size_t bars_make(const struct explore_rows *rows, const struct bars_spec *specs,
                        size_t count, struct explore_bar *ret_bars)
{
    for (size_t i = 0; i < count; i++) {
        const struct bars_spec *spec = &specs[i];
        struct explore_bar *bar = &ret_bars[i];
        *bar = (struct explore_bar){.limit = spec->limit, .is_least = spec->figure == BARS_SPEED};
        bar->value = bars_best(rows, spec->subject, spec->figure) /
                     bars_best(rows, spec->against, spec->figure);
        snprintf(bar->text, sizeof bar->text, "%s: %s, %s over %s%s", rows->rows[0].stream->name,
                 bars_names[spec->figure], spec->subject, spec->against,
                 strcmp(spec->against, "fifo") == 0 && rows->rows[0].stream->static_count
                     ? " (best W)"
                     : "");
    }
    return count;
}

static bool bars_is_load(const struct trial_stream *stream, double load)
{
    return stream->arrivals == STREAM_POISSON && fabs(stream->load - load) < 0.01 &&
           stream->slots >= 32;
}

size_t explore_bars(const struct explore_rows *rows, struct explore_bar ret_bars[EXPLORE_BARS_MAX])
{
    const struct trial_stream *stream = rows->rows[0].stream;
    if (bars_is_load(stream, 0.8))
        return bars_make(rows, bars_of_load_08, BARS_COUNT(bars_of_load_08), ret_bars);
    if (bars_is_load(stream, 1.1))
        return bars_make(rows, bars_of_load_11, BARS_COUNT(bars_of_load_11), ret_bars);
    if (stream->arrivals == STREAM_BATCH)
        return bars_make(rows, bars_of_batch, BARS_COUNT(bars_of_batch), ret_bars);
    if (stream->arrivals == STREAM_TRACE)
        return bars_make(rows, bars_of_trace, BARS_COUNT(bars_of_trace), ret_bars);
    return 0;
}

size_t explore_bars_of_stages(const struct explore_rows *rows,
                              struct explore_bar ret_bars[EXPLORE_BARS_MAX])
{
    size_t count = bars_make(rows, bars_of_stages, BARS_COUNT(bars_of_stages), ret_bars);
    struct explore_bar *bound = &ret_bars[count++];
    *bound = (struct explore_bar){.limit = 1};
    snprintf(bound->text, sizeof bound->text, "%s: longest wait of a stage over its bound (F7)",
             rows->rows[0].stream->name);
    for (size_t i = 0; i < rows->count; i++)
        if (strcmp(rows->rows[i].policy.name, "rest") == 0)
            bound->value = rows->rows[i].figures.bound_use;
    return count;
}

struct explore_bar explore_bar_of_decisions(const struct decisions *decisions)
{
    struct explore_bar bar = {.value = decisions->p99_us / 1000, .limit = 1};
    snprintf(bar.text, sizeof bar.text, "decision with %u jobs on %u slots: p99, ms",
             decisions->jobs, decisions->slots);
    return bar;
}

bool explore_bar_holds(const struct explore_bar *bar)
{
    return bar->is_least ? bar->value >= bar->limit : bar->value <= bar->limit;
}
