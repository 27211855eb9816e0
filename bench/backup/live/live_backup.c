/* Owns the live runs, and prints their rows and bars. For each transport and step time the rule
 * `all` runs first, because the other rules are compared with this run. */
#include "bench/backup/live/live_backup.h"

#include "bench/backup/decisions.h"
#include "bench/backup/live/crew.h"
#include "bench/lib/own_service.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define SEED 1

struct live_bar {
    enum times_kind times;
    double most; /* limit for the time of `auto` divided by the time of the rule `all`, over TCP */
};

static const struct live_bar bars[] = {{TIMES_CALM, 1.02}, {TIMES_ONE, 0.4}, {TIMES_JITTER, 0.85}};
#define BARS (sizeof bars / sizeof *bars)

struct live_row {
    const struct grid_rule *rule;
    struct crew_result result;
};

/* All rules with one transport and one kind of step times. */
struct live_group {
    const char *transport;
    const struct grid_times *times;
    /* `all_s`: time of the rule `all` in seconds; NAN: the rule was not run */
    double target, all_s;
    /* k of the fastest run with a static k; 0: no such run has reached the target */
    uint32_t best_static;
    struct live_row rows[GRID_RULES_MAX];
    size_t rows_count;
};

struct live_runs {
    const struct live_backup *live;
    struct service service;
    /* times of decisions of `auto` with the same number of workers, measured in this process */
    struct decisions decisions;
    /* values of `auto` over TCP that are compared with the bars; NAN: not measured */
    double ratios[BARS];
    int different; /* number of runs in which ranks had different parameters */
    unsigned jobs;
};

/* ---- rows ---- */

static void live_print_number(const char *name, double value)
{
    if (isnan(value))
        printf(",\"%s\":null", name);
    else
        printf(",\"%s\":%.4g", name, value);
}

static void live_print_json(const struct live_runs *runs, const struct live_group *g,
                            const struct live_row *row)
{
    const struct crew_result *r = &row->result;
    bool is_auto = row->rule->rule == BACKUP_AUTO;
    printf("{\"transport\":\"%s\",\"times\":\"%s\",\"problem\":\"quadratic\",\"rule\":\"%s\","
           "\"seed\":%d,\"target\":%.4g,\"unit_ms\":%.4g",
           g->transport, g->times->name, row->rule->name, SEED, g->target,
           (double)runs->live->unit_ns / 1e6);
    live_print_number("seconds", r->seconds);
    printf(",\"rounds\":%llu,\"k_mean\":%.4g,\"dropped\":%.4g,\"absence\":%llu",
           (unsigned long long)r->rounds, r->k_mean, r->dropped, (unsigned long long)r->absence);
    live_print_number("best_static", g->best_static > 0 ? g->best_static : (double)NAN);
    live_print_number("ratio", r->seconds / g->all_s);
    live_print_number("decide_ns", is_auto ? runs->decisions.mean_ns : (double)NAN);
    printf(",\"compared\":%llu,\"bits_equal\":%s}\n", (unsigned long long)r->compared,
           r->bits_equal ? "true" : "false");
}

static void live_print_text(const struct live_group *g, const struct live_row *row)
{
    const struct crew_result *r = &row->result;
    printf("%-4s  %-14s  %-12s  %6.2f s  ratio %5.2f  %5llu rounds of %5.2f  dropped %5.1f %%  "
           "bits %s\n",
           g->transport, g->times->name, row->rule->name, r->seconds, r->seconds / g->all_s,
           (unsigned long long)r->rounds, r->k_mean, 100 * r->dropped,
           r->bits_equal ? "equal" : "DIFFER");
}

static void live_note(struct live_runs *runs, const struct live_group *g,
                      const struct live_row *row)
{
    runs->different += !row->result.bits_equal;
    for (size_t i = 0; i < BARS; i++) {
        if (bars[i].times == g->times->kind && row->rule->rule == BACKUP_AUTO &&
            !row->rule->has_second && strcmp(g->transport, "tcp") == 0)
            runs->ratios[i] = row->result.seconds / g->all_s;
    }
}

/* ---- runs ---- */

static int live_run_one(struct live_runs *runs, struct live_group *g, const struct grid_rule *rule)
{
    char job[32];
    struct live_row *row = &g->rows[g->rows_count++];
    const struct crew_setting setting = {.endpoint = runs->service.endpoint,
                                         .transport = g->transport,
                                         .job = job,
                                         .rule = rule,
                                         .times = g->times,
                                         .jitter = runs->live->jitter,
                                         .seed = SEED,
                                         .unit_ns = runs->live->unit_ns,
                                         .target = g->target};
    row->rule = rule;
    snprintf(job, sizeof job, "crew-%u", ++runs->jobs);
    int error = live_crew_run(&setting, &row->result);
    if (error == 0 && rule->rule == BACKUP_ALL)
        g->all_s = row->result.seconds;
    return error;
}

static void live_find_best(struct live_group *g)
{
    double least_s = INFINITY;
    for (size_t i = 0; i < g->rows_count; i++) {
        const struct live_row *row = &g->rows[i];
        if (row->rule->rule == BACKUP_STATIC && !row->rule->has_second &&
            row->result.seconds < least_s) {
            least_s = row->result.seconds;
            g->best_static = row->rule->k;
        }
    }
}

static int live_run_times(struct live_runs *runs, const char *transport,
                          const struct grid_times *times)
{
    const struct grid *grid = runs->live->grid;
    struct live_group g = {.transport = transport,
                           .times = times,
                           .target = runs->live->is_quick ? 2 : 0.25,
                           .all_s = (double)NAN};
    int error = 0;
    for (int first = 1; first >= 0; first--) {
        for (size_t i = 0; i < grid->rules_count && error == 0; i++) {
            if ((grid->rules[i].rule == BACKUP_ALL) == first)
                error = live_run_one(runs, &g, &grid->rules[i]);
        }
    }
    if (error < 0)
        return error;
    live_find_best(&g);
    for (size_t i = 0; i < g.rows_count; i++) {
        live_note(runs, &g, &g.rows[i]);
        if (runs->live->is_json)
            live_print_json(runs, &g, &g.rows[i]);
        else
            live_print_text(&g, &g.rows[i]);
    }
    fflush(stdout);
    return 0;
}

static int live_run_all(struct live_runs *runs)
{
    static const char *const transports[] = {"tcp", "shm"};
    const struct live_backup *live = runs->live;
    int error = 0;
    for (size_t t = 0; t < 2; t++) {
        if (live->transport && strcmp(live->transport, transports[t]) != 0)
            continue;
        for (size_t i = 0; i < live->grid->times_count && error == 0; i++)
            error = live_run_times(runs, transports[t], &live->grid->times[i]);
    }
    return error;
}

/* ---- bars ---- */

/* Prints the figures and their bars (limits). Figures of a quick run are not judged, because such a
 * run is too short. */
static void live_print_bars(const struct live_runs *runs)
{
    static const char *const names[BARS] = {"auto_calm", "auto_one_slow", "auto_jitter"};
    const char *separator = "";
    if (runs->live->is_json)
        printf("{\"bars\":[");
    for (size_t i = 0; i < BARS; i++) {
        double ratio = runs->ratios[i];
        const char *holds = runs->live->is_quick    ? "null"
                            : ratio <= bars[i].most ? "true"
                                                    : "false";
        if (isnan(ratio))
            continue;
        if (runs->live->is_json)
            printf("%s{\"name\":\"%s\",\"value\":%.4g,\"most\":%.4g,\"holds\":%s}", separator,
                   names[i], ratio, bars[i].most, holds);
        else
            printf("%s, time divided by time of `all`, tcp: %.2f, bar %.2f, holds: %s\n", names[i],
                   ratio, bars[i].most, holds);
        separator = ",";
    }
    if (runs->live->is_json)
        printf("]}\n");
}

int live_backup_run(const struct live_backup *live)
{
    struct live_runs runs = {.live = live};
    for (size_t i = 0; i < BARS; i++)
        runs.ratios[i] = NAN;
    int error = decisions_time(CREW_WORKERS, 1, &runs.decisions);
    if (error < 0)
        return error;
    error = service_start(&runs.service);
    if (error == 0)
        error = live_run_all(&runs);
    if (error == 0)
        live_print_bars(&runs);
    service_stop(&runs.service);
    return error < 0 ? error : runs.different;
}
