/* Options and output of `explore`. */
#include "bench/commands.h"
#include "bench/explore/explore.h"
#include "bench/explore/input/stages.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPLORE_ERROR_BYTES 512
#define EXPLORE_JOBS 1000
#define EXPLORE_SLOTS 1024
#define EXPLORE_DECISIONS 20000
#define EXPLORE_QUICK_TRIALS 120

struct explore_arguments {
    const char *streams, *trace;
    bool simulates, has_stages, is_json, is_quick;
    uint32_t seeds; /* number of seeds; 0: the number that each stream defines */
};

enum {
    EXPLORE_KEY_SIMULATE = 1000,
    EXPLORE_KEY_STREAMS,
    EXPLORE_KEY_TRACE,
    EXPLORE_KEY_STAGES,
    EXPLORE_KEY_SEEDS,
    EXPLORE_KEY_JSON,
    EXPLORE_KEY_QUICK,
};

static const struct argp_option explore_options[] = {
    {"simulate", EXPLORE_KEY_SIMULATE, 0, 0, "run on a virtual clock, which is the only mode", 0},
    {"streams", EXPLORE_KEY_STREAMS, "FILE", 0,
     "streams of trials in JSON (default: the streams of the bars, drawn from seeds)", 0},
    {"trace", EXPLORE_KEY_TRACE, "FILE", 0,
     "CSV with submit_s, workers, carry: adds a stream with the arrivals of this trace", 0},
    {"stages", EXPLORE_KEY_STAGES, 0, 0,
     "only the stream with stages of 8 workers among narrow jobs (jobs with few workers)", 0},
    {"seeds", EXPLORE_KEY_SEEDS, "N", 0,
     "number of runs of each policy, with different seeds (default: 5 to 20, by stream)", 0},
    {"json", EXPLORE_KEY_JSON, 0, 0, "lines of JSON: first the rows, then the bars", 0},
    {"quick", EXPLORE_KEY_QUICK, 0, 0, "one seed and fewer trials; the bars are not judged", 0},
    {0},
};

static error_t explore_parse(int key, char *text, struct argp_state *state)
{
    struct explore_arguments *a = state->input;
    switch (key) {
    case EXPLORE_KEY_SIMULATE: a->simulates = true; return 0;
    case EXPLORE_KEY_STREAMS: a->streams = text; return 0;
    case EXPLORE_KEY_TRACE: a->trace = text; return 0;
    case EXPLORE_KEY_STAGES: a->has_stages = true; return 0;
    case EXPLORE_KEY_SEEDS: a->seeds = (uint32_t)command_number(state, text, 1, 1000); return 0;
    case EXPLORE_KEY_JSON: a->is_json = true; return 0;
    case EXPLORE_KEY_QUICK: a->is_quick = true; return 0;
    case ARGP_KEY_END:
        if (!a->simulates)
            argp_error(state, "the live bench does not exist yet; give --simulate");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* --- output --- */

static void explore_print_json(const struct explore_row *row)
{
    const struct world_figures *f = &row->figures;
    printf("{\"stream\": \"%s\", \"policy\": \"%s\", \"seeds\": %u, \"trials\": %u, "
           "\"slots\": %u, \"feedback_p50_s\": %.3f, \"feedback_p95_s\": %.3f, "
           "\"speed\": %.4f, \"whole_speed\": %.4f, \"makespan_s\": %.1f, "
           "\"slot_use\": %.4f, \"best\": %.5f, \"best_s\": %.1f, \"resizes\": %.1f, "
           "\"lane_changes\": %.1f, \"pause_p50_s\": %.3f, \"pause_max_s\": %.3f, "
           "\"samples_lost\": null, \"samples_doubled\": null, \"stage_wait_mean_s\": %.3f, "
           "\"stage_wait_max_s\": %.3f, \"waits_over_bound\": %.0f, "
           "\"rests_over_bound\": %.0f}\n",
           row->stream->name, row->policy.name, row->seeds, row->stream->trials, row->stream->slots,
           f->feedback_p50_s, f->feedback_p95_s, f->speed, f->whole_speed, f->makespan_s,
           f->slot_use, f->best, f->best_s, f->resizes, f->lane_changes, f->pause_p50_s,
           f->pause_max_s, f->stage_wait_mean_s, f->stage_wait_max_s, f->waits_over, f->rests_over);
}

static void explore_print_head(const struct trial_stream *stream, bool has_stages)
{
    printf("\n%s: %u trials on %u slots, %u seeds\n", stream->name, stream->trials, stream->slots,
           stream->seeds);
    printf("%-16s %12s %12s %7s %7s %10s %6s %8s %9s%s\n", "policy", "feedback p50", "p95", "speed",
           "whole", "makespan", "use", "resizes", "pause max",
           has_stages ? " stage wait       max" : "");
}

static void explore_print_line(const struct explore_row *row, bool has_stages)
{
    const struct world_figures *f = &row->figures;
    printf("%-16s %10.1f s %10.1f s %7.3f %7.3f %8.0f s %6.3f %8.0f %7.2f s", row->policy.name,
           f->feedback_p50_s, f->feedback_p95_s, f->speed, f->whole_speed, f->makespan_s,
           f->slot_use, f->resizes, f->pause_max_s);
    if (has_stages)
        printf(" %8.1f s %7.1f s", f->stage_wait_mean_s, f->stage_wait_max_s);
    printf("\n");
}

static void explore_print_bar(const struct explore_arguments *a, const struct explore_bar *bar)
{
    const char *verdict = explore_bar_holds(bar) ? "holds" : "missed";
    if (a->is_json)
        printf("{\"bar\": \"%s\", \"value\": %.4f, \"limit\": %g, \"at\": \"%s\", "
               "\"holds\": %s}\n",
               bar->text, bar->value, bar->limit, bar->is_least ? "least" : "most",
               explore_bar_holds(bar) ? "true" : "false");
    else
        printf("  %-62s %7.3f  %s %-5g %s\n", bar->text, bar->value,
               bar->is_least ? ">=" : "<=", bar->limit, a->is_quick ? "" : verdict);
}

/* Prints all rows. Returns -EPROTO if a wait has exceeded its bound. */
static int explore_print(const struct explore_arguments *a, const struct explore_rows *rows,
                         bool has_stages)
{
    struct explore_bar bars[EXPLORE_BARS_MAX];
    size_t count = has_stages ? explore_bars_of_stages(rows, bars) : explore_bars(rows, bars);
    int error = 0;
    if (!a->is_json)
        explore_print_head(rows->rows[0].stream, has_stages);
    for (size_t i = 0; i < rows->count; i++) {
        const struct explore_row *row = &rows->rows[i];
        if (a->is_json)
            explore_print_json(row);
        else
            explore_print_line(row, has_stages);
        if (!row->policy.is_fixed && !row->policy.options.never_rests &&
            row->policy.restart_s == 0 && row->figures.waits_over + row->figures.rests_over > 0)
            error = -EPROTO;
    }
    for (size_t i = 0; i < count; i++)
        explore_print_bar(a, &bars[i]);
    fflush(stdout);
    return error;
}

/* --- runs --- */

static int explore_complain(const char *name, int error)
{
    if (error == -EPROTO)
        fprintf(stderr,
                "gradpool-bench: explore: stream %s: a wait exceeded its bound, or an "
                "action was impossible\n",
                name);
    else if (error < 0)
        fprintf(stderr, "gradpool-bench: explore: stream %s: %s\n", name, strerror(-error));
    return error;
}

static void explore_adjust(const struct explore_arguments *a, struct trial_stream *stream)
{
    if (a->is_quick) {
        stream->seeds = 1;
        if (stream->trials > EXPLORE_QUICK_TRIALS)
            stream->trials = EXPLORE_QUICK_TRIALS;
    }
    if (a->seeds)
        stream->seeds = a->seeds;
}

static int explore_one_stream(const struct explore_arguments *a, struct trial_stream *stream,
                              const struct stream_trace *trace)
{
    struct explore_rows rows;
    explore_adjust(a, stream);
    if (stream->arrivals == STREAM_TRACE && trace->count < stream->trials) {
        if (a->trace)
            fprintf(stderr, "gradpool-bench: explore: %s has %zu jobs, the stream needs %u\n",
                    a->trace, trace->count, stream->trials);
        return a->trace ? -EINVAL : 0;
    }
    int error = explore_run(stream, trace, &rows);
    if (error == 0)
        error = explore_print(a, &rows, false);
    return explore_complain(stream->name, error);
}

static int explore_all_streams(const struct explore_arguments *a)
{
    struct trial_stream streams[STREAMS_MAX];
    struct stream_trace trace = {0};
    char text[EXPLORE_ERROR_BYTES] = "";
    size_t count = 0;
    int error = 0;
    if (a->streams)
        error = stream_read(a->streams, streams, &count, text, sizeof text);
    else
        count = stream_defaults(streams);
    if (error == 0 && a->trace)
        error = stream_read_trace(a->trace, &trace, text, sizeof text);
    if (error < 0)
        fprintf(stderr, "gradpool-bench: explore: %s\n", text);
    for (size_t i = 0; i < count && error == 0; i++)
        error = explore_one_stream(a, &streams[i], &trace);
    free(trace.submit_s);
    return error;
}

static int explore_stages(const struct explore_arguments *a)
{
    struct trial_stream stream = stages_stream();
    struct explore_rows rows;
    explore_adjust(a, &stream);
    int error = explore_run_stages(&stream, &rows);
    if (error == 0)
        error = explore_print(a, &rows, true);
    return explore_complain(stream.name, error);
}

static int explore_decisions(const struct explore_arguments *a)
{
    struct decisions d;
    uint32_t count = a->is_quick ? EXPLORE_DECISIONS / 20 : EXPLORE_DECISIONS;
    int error = decisions_measure(EXPLORE_JOBS, EXPLORE_SLOTS, count, 1, &d);
    if (error < 0)
        return explore_complain("decisions", error);
    struct explore_bar bar = explore_bar_of_decisions(&d);
    if (a->is_json)
        printf("{\"decisions\": %u, \"jobs\": %u, \"slots\": %u, \"decision_p50_us\": %.2f, "
               "\"decision_p99_us\": %.2f, \"decision_max_us\": %.2f}\n",
               d.count, d.jobs, d.slots, d.p50_us, d.p99_us, d.max_us);
    else
        printf("\n%u decisions with %u jobs on %u slots: %.1f us (p50), %.1f us (p99), %.1f us "
               "(longest)\n",
               d.count, d.jobs, d.slots, d.p50_us, d.p99_us, d.max_us);
    explore_print_bar(a, &bar);
    return 0;
}

int explore_command(int argc, char **argv)
{
    struct explore_arguments a = {0};
    const struct argp argp = {
        explore_options,
        explore_parse,
        NULL,
        "Run streams of trials with elastic and with fixed numbers of workers, with the scheduler "
        "of the coordinator on a virtual clock. Figures: time to the first report, speed and "
        "makespan.\vThe scheduler is a reconstruction of EPS from its abstract; rests are our own "
        "addition. Policies: fifo-W: W workers from start to end. noreuse: slots of an ended trial "
        "stay idle. eps: no rests. restart-R/H: a change restarts the job within R seconds, hold "
        "time H. rest: our scheduler. preload: our scheduler with preloaded workers. A bar "
        "compares means over the seeds of one run.",
        NULL,
        NULL,
        NULL};
    argp_parse(&argp, argc, argv, 0, NULL, &a);
    int error = a.has_stages ? 0 : explore_all_streams(&a);
    if (error == 0)
        error = explore_stages(&a);
    if (error == 0 && !a.has_stages)
        error = explore_decisions(&a);
    return error < 0 ? 1 : 0;
}
