/* Options of `simulate`. */
#include "bench/commands.h"
#include "bench/lib/calibrate.h"
#include "bench/lib/run_file.h"
#include "bench/live/live.h"
#include "bench/sim/input/csv.h"
#include "bench/sim/simulate.h"
#include "bench/simulate/simulate_report.h"
#include "packer/packer.h"

#include <stdlib.h>
#include <string.h>

struct arguments {
    const char *traces, *models, *report; /* report NULL: no page */
    /* simulated hours; 0: length of the trace, or a week of random jobs */
    double hours;
    const char *live; /* path of a trace that is also run on a real service */
    /* name of an option that has no effect on the live comparison; NULL: none */
    const char *not_live;
    double live_s, live_load;
    bool is_json, wants_rows;
    struct setting setting;
};

enum {
    KEY_TRACES = 1000,
    KEY_MODELS,
    KEY_JSON,
    KEY_X,
    KEY_POLICY,
    KEY_LIMIT,
    KEY_WIRE,
    KEY_LINE,
    KEY_JITTER,
    KEY_LANES,
    KEY_PIECE_MAX,
    KEY_WINDOWS,
    KEY_WINDOW,
    KEY_HOURS,
    KEY_SEED,
    KEY_STAY,
    KEY_SENSITIVITY,
    KEY_REPORT,
    KEY_LIVE,
    KEY_LIVE_S,
    KEY_LIVE_LOAD,
};

static const struct argp_option options[] = {
    {"traces", KEY_TRACES, "FILE", 0,
     "jobs: job_id, submit_s, duration_s, workers, model "
     "(default: drawn from the seed)"},
    {"models", KEY_MODELS, "DIR", 0, "tables of models (default: bench/models)"},
    {"json", KEY_JSON, 0, 0, "only a line of JSON at the end (and the rows of --sensitivity)"},
    {"x", KEY_X, "GIB", 0,
     "GiB of gradients that a core sums in a second (default: measured now on a lane of a real "
     "service, over tcp)"},
    {"policy", KEY_POLICY, "NAME", 0, "policy: shared (default), rate or cycle"},
    {"loss-limit", KEY_LIMIT, "PERCENT", 0, "loss limit of every job (default 5)"},
    {"wire", KEY_WIRE, "TYPE", 0, "type of the elements on the network: f32 (default) or f16"},
    {"line", KEY_LINE, "GBIT", 0,
     "bandwidth of each worker; a lane has four times this bandwidth (default 25)"},
    {"jitter", KEY_JITTER, "CV", 0,
     "standard deviation of a worker's step times divided by their mean (default 0.087)"},
    {"lanes", KEY_LANES, "N", 0,
     "number of shared lanes; a job that does not fit keeps separate lanes (default: as many as "
     "are needed)"},
    {"piece-max", KEY_PIECE_MAX, "BYTES", 0,
     "maximum size of a piece of a tensor, as for `gradpool serve`: 4096 to 4194304 (default "
     "4194304)"},
    {"windows", KEY_WINDOWS, "N", 0,
     "number of windows that are simulated chunk by chunk (default 200)"},
    {"window-s", KEY_WINDOW, "S", 0, "length of a window (default 10)"},
    {"hours", KEY_HOURS, "H", 0,
     "time at which the clock stops (default: the full hour after the last submission; 168 without "
     "a trace)"},
    {"seed", KEY_SEED, "N", 0, "seed of all random numbers (default 1)"},
    {"stay", KEY_STAY, 0, 0, "no task moves"},
    {"report", KEY_REPORT, "FILE", 0, "write a page with charts and tables, in one file"},
    {"sensitivity", KEY_SENSITIVITY, 0, 0,
     "repeat the simulation with other assumptions, one at a time"},
    {"live", KEY_LIVE, "FILE", 0,
     "run this trace, compressed in time, on a separate real service and in the simulation; prints "
     "busy core time and loss of both, with --json as series"},
    {"live-load", KEY_LIVE_LOAD, "PERCENT", 0,
     "mean lane time that the jobs of the trace need, in percent of one core; tensors are scaled "
     "to this load (default 40)"},
    {"live-s", KEY_LIVE_S, "S", 0, "length of the compressed trace (default 60)"},
    {0},
};

static double number(struct argp_state *state, const char *text, double least, double most)
{
    char *end;
    double value = strtod(text, &end);

    if (end == text || *end || !(value >= least && value <= most))
        argp_error(state, "'%s' is not a number from %g to %g", text, least, most);
    return value;
}

static const char *one_of(struct argp_state *state, const char *text, const char *const *names)
{
    for (size_t i = 0; names[i]; i++)
        if (strcmp(text, names[i]) == 0)
            return names[i];
    argp_error(state, "'%s' is not known; see --help", text);
    return NULL;
}

static const char *const policies[] = {"shared", "rate", "cycle", NULL};
static const char *const wires[] = {"f16", "f32", NULL};

static error_t parse_setting(int key, char *text, struct argp_state *state, struct setting *s)
{
    switch (key) {
    case KEY_X: s->x_gib_per_s = number(state, text, 0.01, 1000); return 0;
    case KEY_POLICY: s->policy = one_of(state, text, policies); return 0;
    case KEY_LIMIT: s->loss_limit_ppm = (uint32_t)(number(state, text, 0.01, 90) * 1e4); return 0;
    case KEY_WIRE: s->element_bytes = one_of(state, text, wires) == wires[0] ? 2 : 4; return 0;
    case KEY_LINE: s->line_gbit_per_s = number(state, text, 0.1, 10000); return 0;
    case KEY_JITTER: s->jitter = number(state, text, 0, 1); return 0;
    case KEY_LANES: s->lanes = (uint32_t)command_number(state, text, 1, 65536); return 0;
    case KEY_PIECE_MAX:
        s->piece_bytes_max = command_number(state, text, 4096, PACKER_PIECE_BYTES_MAX);
        return 0;
    case KEY_WINDOWS: s->windows = (uint32_t)command_number(state, text, 1, 100000); return 0;
    case KEY_WINDOW: s->window_s = number(state, text, 0.1, 3600); return 0;
    case KEY_SEED: s->seed = command_number(state, text, 0, UINT64_MAX); return 0;
    case KEY_STAY: s->moves = false; return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* Returns the name of the option if the live comparison ignores this option or sets its value; else
 * NULL. */
static const char *name_if_not_live(int key)
{
    static const int keys[] = {KEY_TRACES, KEY_HOURS, KEY_REPORT, KEY_SENSITIVITY, KEY_X,
                               KEY_LINE,   KEY_STAY,  KEY_WINDOW, KEY_PIECE_MAX};

    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        for (const struct argp_option *o = options; keys[i] == key && o->name; o++)
            if (o->key == key)
                return o->name;
    return NULL;
}

static error_t parse(int key, char *text, struct argp_state *state)
{
    struct arguments *a = state->input;
    const char *name = name_if_not_live(key);

    a->not_live = name ? name : a->not_live;
    switch (key) {
    case KEY_TRACES: a->traces = text; return 0;
    case KEY_MODELS: a->models = text; return 0;
    case KEY_JSON: a->is_json = true; return 0;
    case KEY_HOURS: a->hours = number(state, text, 0.01, 100000); return 0;
    case KEY_REPORT: a->report = text; return 0;
    case KEY_SENSITIVITY: a->wants_rows = true; return 0;
    case KEY_LIVE: a->live = text; return 0;
    case KEY_LIVE_S: a->live_s = number(state, text, 5, 600); return 0;
    case KEY_LIVE_LOAD: a->live_load = number(state, text, 1, 1000) / 100; return 0;
    case ARGP_KEY_END:
        if (a->live && a->not_live)
            argp_error(state, "--live and --%s do not go together", a->not_live);
        return 0;
    default: return parse_setting(key, text, state, &a->setting);
    }
}

static int complain(const char *error)
{
    fprintf(stderr, "gradpool-bench: %s\n", error);
    return 1;
}

static int load(struct arguments *a, struct models *models, struct workload *workload)
{
    char error[TABLE_ERROR_BYTES];

    if (models_load(models, a->models, error) < 0)
        return complain(error);
    if ((a->traces ? workload_read(workload, a->traces, a->hours, models, error)
                   : workload_generate(workload, a->setting.seed, a->hours ? a->hours : 168, models,
                                       error)) == 0) {
        if (workload->count > 0)
            return 0;
        snprintf(error, sizeof(error),
                 "the trace has no job of two or more workers in its first %.2f hours (--hours)",
                 (double)workload->end_ns / (double)NS_PER_HOUR);
        workload_fini(workload);
    }
    models_fini(models);
    return complain(error);
}

static int run(struct arguments *a, const struct workload *workload, struct trail *trail)
{
    const struct simulate_report report = {
        .traces = a->traces,
        .workload = workload,
        .setting = &a->setting,
        .is_x_given = a->setting.x_gib_per_s > 0,
        .is_json = a->is_json,
    };
    struct simulated result;
    char error[TABLE_ERROR_BYTES];

    if (!report.is_x_given && calibrate(&a->setting.x_gib_per_s) < 0)
        return 1;
    simulate_report_start(&report);
    if (simulate(workload, &a->setting, trail, &result, error) < 0)
        return complain(error);
    simulate_report_result(&report, &result);
    if (a->report && simulate_page(&report, &result, trail, a->report) < 0)
        return 1;
    if (a->wants_rows && simulate_report_rows(&report, &result, error) < 0)
        return complain(error);
    if (a->is_json)
        simulate_report_json(&report, &result);
    return 0;
}

/* Runs the live comparison. Step times are divided by three, so that a short stay has many steps.
 * Windows are short, too. */
static int run_live(const struct arguments *a)
{
    struct live *live = calloc(1, sizeof *live);
    int r = -1;
    if (!live)
        return 1;
    *live = (struct live){.trace = a->live,
                          .models_folder = a->models,
                          .replay_s = a->live_s,
                          .time_scale = 0.35,
                          .load = a->live_load,
                          .setting = a->setting,
                          .is_json = a->is_json};
    live->setting.is_known = true;
    live->setting.moves = false;
    live->setting.window_s = 3;
    r = live_run(live);
    live_fini(live);
    free(live);
    return r < 0 ? 1 : 0;
}

int simulate_command(int argc, char **argv)
{
    struct arguments a = {
        .models = BENCH_MODELS,
        .live_s = 60,
        .live_load = 0.4,
        .setting = {.policy = policies[0],
                    .line_gbit_per_s = 25,
                    .jitter = 0.087,
                    .element_bytes = 4,
                    .loss_limit_ppm = 50000,
                    .piece_bytes_max = PACKER_PIECE_BYTES_MAX,
                    .windows = 200,
                    .window_s = 10,
                    .moves = true,
                    .overlaps = true,
                    .seed = 1},
    };
    const struct argp argp = {
        options,
        parse,
        NULL,
        "Run a week of training jobs through the packer on a virtual clock. Figures: the cores "
        "that the jobs need, and the loss of the jobs (their slow-down by other jobs).\vLosses do "
        "not come from the packer's formula. They are measured in an event simulation, chunk by "
        "chunk, of random windows of the run.",
        NULL,
        NULL,
        NULL};
    struct models models;
    struct workload workload;
    struct trail *trail;
    int code = 1;

    argp_parse(&argp, argc, argv, 0, NULL, &a);
    if (a.live)
        return run_live(&a);
    if (a.report && run_can_write(a.report) < 0)
        return 1;
    if (load(&a, &models, &workload) != 0)
        return 1;
    trail = calloc(1, sizeof(*trail));
    if (trail) {
        code = run(&a, &workload, trail);
        trail_fini(trail);
    }
    free(trail);
    workload_fini(&workload);
    models_fini(&models);
    return code;
}
