/* Options of `backup`. */
#include "bench/backup/grid/grid_file.h"
#include "bench/backup/live/live_backup.h"
#include "bench/backup/report.h"
#include "bench/commands.h"
#include "svc/base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct backup_arguments {
    bool is_virtual, is_fast_rate, is_quick, is_check, is_json;
    const char *grid, *digits, *jitter, *problem, *times, *rules, *transport;
    uint32_t absence;
    /* number of seeds that are run: this many of the grid's first seeds; 0: all seeds of the
     * grid */
    uint64_t seeds;
    uint64_t unit_ms; /* real duration in ms of one unit of time; 0: 20 ms */
};

enum {
    KEY_VIRTUAL = 1000,
    KEY_GRID,
    KEY_DIGITS,
    KEY_JITTER,
    KEY_FAST_RATE,
    KEY_QUICK,
    KEY_CHECK,
    KEY_PROBLEM,
    KEY_TIMES,
    KEY_RULES,
    KEY_SEEDS,
    KEY_ABSENCE,
    KEY_TRANSPORT,
    KEY_UNIT,
    KEY_JSON,
};

static const struct argp_option options[] = {
    {"virtual", KEY_VIRTUAL, 0, 0,
     "train on a virtual clock (default: 16 processes with a separate service)"},
    {"grid", KEY_GRID, "FILE", 0, "problems, step times, rules and seeds (default: built in)"},
    {"digits", KEY_DIGITS, "FILE", 0,
     "images as bench/backup/training/digits.py writes them (default: drawn from a seed)"},
    {"jitter", KEY_JITTER, "FILE", 0,
     "variation of step times (default: bench/backup/worker_jitter.csv)"},
    {"rate-2", KEY_FAST_RATE, 0, 0,
     "only softmax regression with learning rate 2, for which no static k is good"},
    {"quick", KEY_QUICK, 0, 0, "only a part of the grid, for some seconds"},
    {"check", KEY_CHECK, 0, 0, "repeat only the runs whose result is known, and compare"},
    {"problem", KEY_PROBLEM, "NAME", 0, "only this problem"},
    {"times", KEY_TIMES, "NAME", 0, "only these step times"},
    {"rules", KEY_RULES, "LIST", 0,
     "only these rules, separated by commas: static:K, auto, auto + second, before, dbw, blind, "
     "adasync:K, all"},
    {"seeds", KEY_SEEDS, "N", 0, "only the first N seeds"},
    {"absence", KEY_ABSENCE, "N", 0,
     "after N rounds without a rank a round waits for this rank (default: never)"},
    {"transport", KEY_TRANSPORT, "tcp|shm", 0, "without --virtual: only this transport"},
    {"unit", KEY_UNIT, "MS", 0,
     "without --virtual: milliseconds of a unit of time (default 20); use more if few cores run "
     "all workers"},
    {"json", KEY_JSON, 0, 0,
     "a line of JSON for each row, rule and seed, then one line with the bars"},
    {0},
};

static error_t parse(int key, char *text, struct argp_state *state)
{
    struct backup_arguments *a = state->input;
    switch (key) {
    case KEY_VIRTUAL: a->is_virtual = true; return 0;
    case KEY_GRID: a->grid = text; return 0;
    case KEY_DIGITS: a->digits = text; return 0;
    case KEY_JITTER: a->jitter = text; return 0;
    case KEY_FAST_RATE: a->is_fast_rate = true; return 0;
    case KEY_QUICK: a->is_quick = true; return 0;
    case KEY_CHECK: a->is_check = true; return 0;
    case KEY_PROBLEM: a->problem = text; return 0;
    case KEY_TIMES: a->times = text; return 0;
    case KEY_RULES: a->rules = text; return 0;
    case KEY_SEEDS: a->seeds = command_number(state, text, 1, GRID_SEEDS_MAX); return 0;
    case KEY_ABSENCE: a->absence = (uint32_t)command_number(state, text, 1, 1000000); return 0;
    case KEY_TRANSPORT: a->transport = text; return 0;
    case KEY_UNIT: a->unit_ms = command_number(state, text, 1, 1000); return 0;
    case KEY_JSON: a->is_json = true; return 0;
    case ARGP_KEY_END:
        if (!a->is_virtual && (a->grid || a->digits || a->is_fast_rate || a->is_check ||
                               a->problem || a->seeds || a->absence != BACKUP_ABSENCE_NONE))
            argp_error(state, "only --times, --rules, --transport, --unit, --quick, --jitter and "
                              "--json are for a live run; give --virtual for the others");
        if (a->transport &&
            (a->is_virtual || (strcmp(a->transport, "tcp") && strcmp(a->transport, "shm"))))
            argp_error(state, "--transport is tcp or shm, without --virtual");
        if (a->unit_ms && a->is_virtual)
            argp_error(state, "--unit is for a live run, without --virtual");
        if (a->is_quick && (a->grid || a->is_fast_rate))
            argp_error(state, "--quick is a part of the built-in grid; leave out --grid and "
                              "--rate-2");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* --- a part of the grid --- */

static int keep_problem(struct grid *grid, const char *name)
{
    const struct grid_problem *problem = grid_find_problem(grid, name);
    if (!problem) {
        fprintf(stderr, "gradpool-bench: the grid has no problem \"%s\"\n", name);
        return -EINVAL;
    }
    grid->problems[0] = *problem;
    grid->problems_count = 1;
    return 0;
}

static int keep_times(struct grid *grid, const char *name)
{
    const struct grid_times *times = grid_find_times(grid, name);
    if (!times) {
        fprintf(stderr, "gradpool-bench: the grid has no step times \"%s\"\n", name);
        return -EINVAL;
    }
    grid->times[0] = *times;
    grid->times_count = 1;
    return 0;
}

static int keep_rules(struct grid *grid, const char *list)
{
    char copy[512], *rest = copy;
    int error = 0;
    snprintf(copy, sizeof copy, "%s", list);
    grid->rules_count = 0;
    for (char *name = strsep(&rest, ","); name && error == 0; name = strsep(&rest, ",")) {
        error = grid_add_rule(grid, name);
        if (error < 0)
            fprintf(stderr, "gradpool-bench: the rule \"%s\" is not known; see --help\n", name);
    }
    return error;
}

static int grid_make(const struct backup_arguments *a, struct grid *ret_grid)
{
    char error[GRID_FILE_ERROR_BYTES];
    int r = 0;
    if (a->grid)
        r = grid_file_read(a->grid, a->is_fast_rate, ret_grid, error);
    else if (a->is_fast_rate)
        grid_fast_rate(ret_grid);
    else if (a->is_quick)
        grid_quick(ret_grid);
    else
        grid_whole(ret_grid);
    if (r < 0)
        fprintf(stderr, "gradpool-bench: %s: %s\n", a->grid, error);
    if (r == 0 && a->problem)
        r = keep_problem(ret_grid, a->problem);
    if (r == 0 && a->times)
        r = keep_times(ret_grid, a->times);
    if (r == 0 && a->rules)
        r = keep_rules(ret_grid, a->rules);
    if (r == 0 && a->seeds > 0 && a->seeds < ret_grid->seeds_count)
        ret_grid->seeds_count = a->seeds;
    return r;
}

/* --- the runs --- */

static int report(const struct backup_arguments *a, struct study *study)
{
    struct decisions decisions[2];
    int error = study_run(study);
    if (error == 0)
        error = decisions_time(64, 1, &decisions[0]);
    if (error == 0)
        error = decisions_time(64, VIRTUAL_SECOND_MOST, &decisions[1]);
    if (error < 0)
        return error;
    if (a->is_json)
        report_rows(study);
    else
        report_table(study, a->is_fast_rate);
    const struct report_kind kind = {.is_fast_rate = a->is_fast_rate,
                                     .is_whole = a->digits && !a->is_quick && !a->problem &&
                                                 !a->times && !a->rules && a->seeds == 0,
                                     .is_json = a->is_json};
    report_bars(study, &kind, decisions);
    return 0;
}

static int run(const struct backup_arguments *a, struct study *study)
{
    int r = a->is_check ? report_checks(study, a->digits != NULL) : report(a, study);
    if (r < 0)
        fprintf(stderr, "gradpool-bench: a run failed: %s\n", strerror(-r));
    study_fini(study);
    return r == 0 ? 0 : 1;
}

/* --- live --- */

/* Returns whether a service can run the rule. A service does not support BACKUP_BEFORE, which
 * chooses k before the round. */
static bool is_live_rule(const struct grid_rule *rule) { return rule->rule != BACKUP_BEFORE; }

/* Reduces the whole grid to the settings of a live run: three step times (calm workers, one slow
 * worker, jitter) and, without --rules, three rules. */
static int grid_make_live(const struct backup_arguments *a, struct grid *ret_grid)
{
    size_t times = 0;
    grid_whole(ret_grid);
    for (size_t i = 0; i < ret_grid->times_count; i++) {
        enum times_kind kind = ret_grid->times[i].kind;
        bool is_kept = a->is_quick
                           ? kind == TIMES_ONE
                           : kind == TIMES_CALM || kind == TIMES_ONE || kind == TIMES_JITTER;
        if (is_kept || a->times)
            ret_grid->times[times++] = ret_grid->times[i];
    }
    ret_grid->times_count = times;
    int r = a->times ? keep_times(ret_grid, a->times) : 0;
    if (r == 0)
        r = keep_rules(ret_grid, a->rules ? a->rules : "all,auto,static:15");
    for (size_t i = 0; r == 0 && i < ret_grid->rules_count; i++) {
        if (is_live_rule(&ret_grid->rules[i]))
            continue;
        fprintf(stderr, "gradpool-bench: no service has the rule \"%s\" yet; give --virtual\n",
                ret_grid->rules[i].name);
        r = -EINVAL;
    }
    return r;
}

static int run_live(const struct backup_arguments *a, struct grid *grid,
                    const struct jitter *jitter)
{
    const struct live_backup live = {.grid = grid,
                                     .jitter = jitter,
                                     .transport = a->transport,
                                     .unit_ns = (a->unit_ms ? a->unit_ms : 20) * NS_PER_MS,
                                     .is_quick = a->is_quick,
                                     .is_json = a->is_json};
    if (grid_make_live(a, grid) < 0)
        return 1;
    int r = live_backup_run(&live);
    if (r < 0)
        fprintf(stderr, "gradpool-bench: a run failed: %s\n", strerror(-r));
    return r == 0 ? 0 : 1;
}

int backup_command(int argc, char **argv)
{
    static struct digits digits;
    static struct jitter jitter;
    static struct grid grid;
    struct backup_arguments a = {.jitter = BENCH_JITTER, .absence = BACKUP_ABSENCE_NONE};
    const struct argp argp = {
        options,
        parse,
        NULL,
        "Train small models with rounds that close before the slowest worker arrives, and compare "
        "the rules that decide when a round closes. A live run compares them with rounds that wait "
        "for all ranks, a run on a virtual clock with the best static number of gradients.\vA unit "
        "of virtual time is about one gradient; messages and sums take no time. In a live run a "
        "unit is 20 ms.",
        NULL,
        NULL,
        NULL};
    argp_parse(&argp, argc, argv, 0, NULL, &a);
    if (jitter_read(a.jitter, &jitter) < 0)
        return 1;
    if (!a.is_virtual)
        return run_live(&a, &grid, &jitter);
    if (grid_make(&a, &grid) < 0)
        return 1;
    if (!a.digits)
        digits_generate(&digits);
    else if (digits_read(a.digits, &digits) < 0)
        return 1;
    struct study study = {
        .grid = &grid, .digits = &digits, .jitter = &jitter, .absence = a.absence};
    return run(&a, &study);
}
