/* Options of `stragglers`, its rows, and its two limits. RULES.md of packer describes the
 * algorithm (X1 to X10). */
#include "bench/commands.h"
#include "bench/savings/statistics.h"
#include "bench/sim/input/csv.h"
#include "bench/stragglers/cell.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB 1048576.0
#define TARGET_BYTES (1 * MIB) /* bytes of a scaled model */
#define WORK_BYTES (8 * MIB)   /* bytes of the model if lanes work instead of sleeping */
#define PIECES 64              /* minimum number of pieces of a model */
#define LANE_MS 8.0            /* sleep in each round of a lane that is not slow */
#define STEP_NS UINT64_C(20000000)
#define WORKERS 8
#define TIMES 4
#define SPEED_BAR 0.85
#define COST_BAR 0.03
#define WINDOWS_BAR 10
#define POLICIES 8
#define QUIET_TURNS 3

enum { KEY_QUICK = 1000, KEY_JSON, KEY_MODELS, KEY_MODEL, KEY_INJECTOR, KEY_POLICY };

static const struct policy policies[POLICIES] = {
    {"nothing", "shared", "off", false, false},
    {"explore", "shared", "on", true, false},
    {"proportional", "shared", "blind", true, false},
    {"stop-the-world", "shared", "off", false, true},
    {"hash", "hash", "off", false, false},
    {"mxnet", "mxnet", "off", false, false},
    {"round-robin", "round-robin", "off", false, false},
    {"paa", "paa", "off", false, false},
};

struct stragglers {
    bool is_quick, is_json;
    /* `folder` contains the models. `model`, `injector` and `policy` select the measured cells
     * (NULL: all). */
    const char *folder, *model, *injector, *policy;
    char cores[16], lanes_per_core[8];
    /* values of `--piece-max` for models of TARGET_BYTES and of WORK_BYTES */
    char piece_max[16], work_piece_max[16];
    /* Final round time of policy "nothing" with the present model; 0: not run. */
    double nothing_settled_ns[INJECTORS];
    /* round times without an injector, of the policies "nothing" and "explore" */
    double quiet_ns[2][QUIET_TURNS];
    /* worst value over the models for each limit; NAN: not run */
    double speed, cost;
    uint32_t windows;
    uint64_t wrong;
    size_t rows;
};

static const struct argp_option options[] = {
    {"quick", KEY_QUICK, 0, 0, "only resnet50, the injectors sleep and none, and two policies"},
    {"json", KEY_JSON, 0, 0, "a line of JSON for each row; the last one has the bars"},
    {"models", KEY_MODELS, "DIR", 0, "tables of models (default: bench/models)"},
    {"model", KEY_MODEL, "NAME", 0, "only this model (default: vgg16 and resnet50)"},
    {"injector", KEY_INJECTOR, "NAMES", 0,
     "only these injectors, separated by commas: none, sleep, task, hog, cap, skew"},
    {"policy", KEY_POLICY, "NAMES", 0,
     "only these policies, separated by commas: nothing, explore, proportional, ...; the injector "
     "none has only the first two"},
    {0},
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct stragglers *s = state->input;
    switch (key) {
    case KEY_QUICK: s->is_quick = true; return 0;
    case KEY_JSON: s->is_json = true; return 0;
    case KEY_MODELS: s->folder = argument; return 0;
    case KEY_MODEL: s->model = argument; return 0;
    case KEY_INJECTOR: s->injector = argument; return 0;
    case KEY_POLICY: s->policy = argument; return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* --- the selection --- */

/* Returns whether `list` contains the name; NULL contains all. */
static bool is_named(const char *list, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (strncmp(at, name, length) == 0 && (at[length] == ',' || !at[length]))
            return true;
    return !list;
}

static bool is_wanted(const struct stragglers *s, const struct policy *p, enum injector_kind kind)
{
    if (!is_named(s->injector, injector_name(kind)))
        return false;
    if (!is_named(s->policy, p->name))
        return false;
    if (kind == INJECTOR_SKEW && !p->adapts && strcmp(p->name, "nothing") != 0)
        return false; /* a policy that does not adapt has the result of "nothing" */
    return !s->is_quick || (kind == INJECTOR_SLEEP && p < policies + 2);
}

static double bytes_of(const struct model *model)
{
    double elements = 0;
    for (size_t i = 0; i < model->tensors_count; i++)
        elements += (double)model->tensors[i].elements;
    return elements * sizeof(float);
}

static struct cell make_cell(struct stragglers *s, const struct model *model,
                             const struct policy *policy, enum injector_kind kind)
{
    double lane_kib = TARGET_BYTES / CELL_LANES / 1024;
    bool works = kind == INJECTOR_HOG;
    return (struct cell){
        .policy = policy,
        .injector = kind,
        .lane = 1,
        .herd = {.job = "stragglers",
                 .model = model,
                 .bytes_scale = (works ? WORK_BYTES : TARGET_BYTES) / bytes_of(model),
                 .step_ns = STEP_NS,
                 .workers = WORKERS,
                 .is_bound = works,
                 .core = 0},
        .cores = s->cores,
        .lanes_per_core = s->lanes_per_core,
        .piece_max = works ? s->work_piece_max : s->piece_max,
        .usual_ns_per_kib = works ? 0 : (uint32_t)(LANE_MS * 1e6 / lane_kib),
        .times = TIMES,
        .task_ns = (uint32_t)(2 * LANE_MS * 1e6),
        /* bandwidth with which the slow lane transfers the bytes of all workers, in both
         * directions, in half of its time */
        .cap_mbit = (uint32_t)(TARGET_BYTES / CELL_LANES * 4 * WORKERS * 8 /
                               (TIMES * LANE_MS * 1e-3) / 1e6)};
}

/* --- rows --- */

static void print_row(const struct stragglers *s, const struct cell *c)
{
    double speed = c->before_ns / c->settled_ns;
    double against = s->nothing_settled_ns[c->injector] / c->settled_ns;
    if (!s->is_json) {
        if (*c->why_skipped)
            printf("%-9s %-6s %-15s skipped: %s\n", c->herd.model->name, injector_name(c->injector),
                   c->policy->name, c->why_skipped);
        else
            printf("%-9s %-6s %-15s %7.2f %7.2f %7.2f %7.2f %7.2f %4u %3u/%-3u %6.2f %6.2f %6.2f\n",
                   c->herd.model->name, injector_name(c->injector), c->policy->name,
                   c->before_ns / 1e6, c->onset_ns / 1e6, c->during_ns / 1e6, c->settled_ns / 1e6,
                   c->after_ns / 1e6, c->windows, c->kept, c->tried, c->bytes_moved / MIB, speed,
                   against);
        return;
    }
    printf("{\"model\": \"%s\", \"injector\": \"%s\", \"policy\": \"%s\"", c->herd.model->name,
           injector_name(c->injector), c->policy->name);
    if (*c->why_skipped) {
        printf(", \"skipped\": \"%s\"}\n", c->why_skipped);
        return;
    }
    printf(", \"round_before_ms\": %.3f, \"round_before_p95_ms\": %.3f, \"round_onset_ms\": %.3f, "
           "\"round_during_ms\": %.3f, \"round_during_p95_ms\": %.3f, \"round_settled_ms\": %.3f, "
           "\"round_settled_p95_ms\": %.3f",
           c->before_ns / 1e6, c->before_p95_ns / 1e6, c->onset_ns / 1e6, c->during_ns / 1e6,
           c->during_p95_ns / 1e6, c->settled_ns / 1e6, c->settled_p95_ns / 1e6);
    if (c->after_ns > 0)
        printf(", \"round_after_ms\": %.3f", c->after_ns / 1e6);
    if (c->windows > 0 && c->injector != INJECTOR_NONE)
        printf(", \"windows_to_recover\": %u, \"rounds_to_recover\": %u", c->windows, c->rounds);
    printf(", \"tried\": %u, \"kept\": %u, \"bytes_moved\": %.0f, \"speed_fraction\": %.4f",
           c->tried, c->kept, c->bytes_moved, speed);
    if (against > 0)
        printf(", \"speed_up\": %.3f", against);
    printf(", \"wrong\": %llu}\n", (unsigned long long)c->checks.wrong);
}

/* --- bars --- */

static void take_bars(struct stragglers *s, const struct cell *c)
{
    double speed = c->before_ns / c->settled_ns;
    s->wrong += c->checks.wrong;
    if (*c->why_skipped || c->injector == INJECTOR_NONE)
        return;
    if (strcmp(c->policy->name, "nothing") == 0) {
        s->nothing_settled_ns[c->injector] = c->settled_ns;
        return;
    }
    if (strcmp(c->policy->name, "explore") != 0)
        return;
    if (c->injector == INJECTOR_SLEEP) {
        s->speed = isnan(s->speed) || speed < s->speed ? speed : s->speed;
        uint32_t windows = c->windows ? c->windows : CELL_SLOW_WINDOWS + 1;
        s->windows = windows > s->windows ? windows : s->windows;
    }
}

/* --- runs and their rows --- */

static int run_cell(struct stragglers *s, struct cell *cell)
{
    int r = cell_run(cell);
    if (r < 0)
        return r;
    s->rows++;
    take_bars(s, cell);
    print_row(s, cell);
    fflush(stdout);
    return 0;
}

/* Runs both policies in turns, so that other load of the machine affects both. Compares medians. */
static int run_quiet(struct stragglers *s, const struct model *model)
{
    int r = 0;
    bool are_both = true;
    for (size_t turn = 0; turn < QUIET_TURNS; turn++)
        for (size_t p = 0; r == 0 && p < 2; p++) {
            struct cell cell = make_cell(s, model, &policies[p], INJECTOR_NONE);
            bool is_wanted = is_named(s->policy, policies[p].name);
            are_both = are_both && is_wanted;
            r = is_wanted ? run_cell(s, &cell) : 0;
            s->quiet_ns[p][turn] = cell.during_ns;
        }
    if (r < 0 || !are_both)
        return r;
    double cost = statistics_quantile(s->quiet_ns[1], QUIET_TURNS, 0.5) /
                      statistics_quantile(s->quiet_ns[0], QUIET_TURNS, 0.5) -
                  1;
    s->cost = isnan(s->cost) || cost > s->cost ? cost : s->cost;
    return 0;
}

/* --- the limits that decide the exit code --- */

static bool print_bars(const struct stragglers *s)
{
    bool is_fast = s->speed >= SPEED_BAR && s->windows <= WINDOWS_BAR;
    bool is_quiet = s->cost <= COST_BAR;
    if (!s->is_json) {
        if (!isnan(s->speed))
            printf("\none of 4 lanes 4x slower: %.1f %% of the straggler-free speed, reached in %u "
                   "windows (bar: 85 %% in 10): %s\n",
                   100 * s->speed, s->windows, is_fast ? "met" : "missed");
        if (!isnan(s->cost))
            printf("no straggler: %.1f %% slower than policy nothing (bar: 3 %%): %s\n",
                   100 * s->cost, is_quiet ? "met" : "missed");
        return is_fast && is_quiet;
    }
    printf("{\"wrong\": %llu", (unsigned long long)s->wrong);
    if (!isnan(s->speed))
        printf(", \"speed_fraction\": %.4f, \"windows_to_recover\": %u, \"speed_met\": %s",
               s->speed, s->windows, is_fast ? "true" : "false");
    if (!isnan(s->cost))
        printf(", \"cost_when_quiet\": %.4f, \"quiet_met\": %s", s->cost,
               is_quiet ? "true" : "false");
    printf("}\n");
    return is_fast && is_quiet;
}

/* --- the command --- */

static int run_model(struct stragglers *s, const struct model *model)
{
    memset(s->nothing_settled_ns, 0, sizeof s->nothing_settled_ns);
    bool is_quiet_wanted = is_named(s->injector, injector_name(INJECTOR_NONE));
    int error = is_quiet_wanted ? run_quiet(s, model) : 0;
    if (error < 0)
        return error;
    for (int kind = INJECTOR_SLEEP; kind < INJECTORS; kind++)
        for (size_t p = 0; p < POLICIES; p++) {
            if (!is_wanted(s, &policies[p], (enum injector_kind)kind))
                continue;
            struct cell cell = make_cell(s, model, &policies[p], (enum injector_kind)kind);
            int r = run_cell(s, &cell);
            if (r < 0)
                return r;
        }
    return 0;
}

static int demand_rows(const struct stragglers *s)
{
    if (s->rows > 0)
        return 0;
    fprintf(stderr, "gradpool-bench: no such policy is run beside such an injector\n");
    return -1;
}

static int run_all(struct stragglers *s, const struct models *models)
{
    const char *names[] = {"resnet50", "vgg16"};
    int r = 0;
    if (!s->is_json)
        printf("%-9s %-6s %-15s %7s %7s %7s %7s %7s %4s %7s %6s %6s %6s\n", "model", "slow",
               "policy", "before", "onset", "during", "settled", "after", "wind", "kept/of", "MiB",
               "speed", "gain");
    for (size_t i = 0; r == 0 && i < (s->is_quick ? 1 : 2); i++) {
        const char *name = s->model ? s->model : names[i];
        const struct model *model = models_find(models, name);
        if (!model) {
            fprintf(stderr, "gradpool-bench: no table of model %s\n", name);
            return -1;
        }
        r = run_model(s, model);
        if (s->model)
            break;
    }
    return r < 0 ? r : demand_rows(s);
}

/* Chooses the cores for four lanes. Two lanes share a core, because they sleep most of the time. */
static void choose_cores(struct stragglers *s)
{
    bool has_two = sysconf(_SC_NPROCESSORS_ONLN) >= 2;
    snprintf(s->cores, sizeof s->cores, has_two ? "0-1" : "0");
    snprintf(s->lanes_per_core, sizeof s->lanes_per_core, has_two ? "2" : "4");
    snprintf(s->piece_max, sizeof s->piece_max, "%d", (int)(TARGET_BYTES / PIECES));
    snprintf(s->work_piece_max, sizeof s->work_piece_max, "%d", (int)(WORK_BYTES / PIECES));
}

static const struct argp argp = {
    options,
    parse,
    NULL,
    "Measure how much a slow lane slows down a job, and how much of the speed each policy "
    "recovers. Eight emulated workers push the tensors of a real model, scaled to 1 MiB, to four "
    "lanes, which sleep in proportion to the bytes that they sum. An injector makes one lane slow. "
    "Times are ms for each round.",
    NULL,
    NULL,
    NULL};

int stragglers_command(int argc, char **argv)
{
    struct stragglers s = {.folder = BENCH_MODELS, .speed = NAN, .cost = NAN};
    struct models models = {0};
    char error[TABLE_ERROR_BYTES] = "";
    argp_parse(&argp, argc, argv, 0, NULL, &s);
    choose_cores(&s);
    int r = models_load(&models, s.folder, error);
    if (r < 0)
        fprintf(stderr, "gradpool-bench: %s\n", error);
    else
        r = run_all(&s, &models);
    bool are_met = r == 0 && print_bars(&s);
    models_fini(&models);
    return r < 0 || s.wrong || (!are_met && !s.injector && !s.policy);
}
