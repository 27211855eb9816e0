/* The runs, their rows and bars. A run of all ranks comes first for each transport and step time,
 * because the other rules are compared with it. */
#include "bench/backup/live/live_backup.h"

#include "bench/backup/live/crew.h"
#include "bench/lib/own_service.h"
#include "svc/base/clock.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define SEED 1
#define UNIT_NS (20 * NS_PER_MS)

struct live_bar {
    enum times_kind times;
    double most; /* time of `auto` over the time of all ranks, over TCP */
};

static const struct live_bar bars[] = {{TIMES_CALM, 1.02}, {TIMES_ONE, 0.4}, {TIMES_JITTER, 0.85}};
#define BARS (sizeof bars / sizeof *bars)

struct live_runs {
    const struct live_backup *live;
    struct service service;
    double ratios[BARS]; /* of `auto` over TCP; NAN: not measured */
    int different;       /* runs in which parameters differ */
    unsigned jobs;
};

static void live_print_seconds(const char *name, double value)
{
    if (isnan(value))
        printf(",\"%s\":null", name);
    else
        printf(",\"%s\":%.4g", name, value);
}

static void live_print_json(const struct crew_setting *s, const struct crew_result *r, double ratio)
{
    printf("{\"transport\":\"%s\",\"times\":\"%s\",\"problem\":\"quadratic\",\"rule\":\"%s\","
           "\"seed\":%d,\"target\":%.4g",
           s->transport, s->times->name, s->rule->name, SEED, s->target);
    live_print_seconds("seconds", r->seconds);
    printf(",\"rounds\":%llu,\"k_mean\":%.4g,\"dropped\":%.4g,\"absence\":%llu",
           (unsigned long long)r->rounds, r->k_mean, r->dropped, (unsigned long long)r->absence);
    live_print_seconds("ratio", ratio);
    printf(",\"compared\":%llu,\"bits_equal\":%s}\n", (unsigned long long)r->compared,
           r->bits_equal ? "true" : "false");
}

static void live_print_text(const struct crew_setting *s, const struct crew_result *r, double ratio)
{
    printf("%-4s  %-14s  %-12s  %6.2f s  ratio %5.2f  %5llu rounds of %5.2f  dropped %5.1f %%  "
           "bits %s\n",
           s->transport, s->times->name, s->rule->name, r->seconds, ratio,
           (unsigned long long)r->rounds, r->k_mean, 100 * r->dropped,
           r->bits_equal ? "equal" : "DIFFER");
}

static void live_note(struct live_runs *runs, const struct crew_setting *s, double ratio)
{
    for (size_t i = 0; i < BARS; i++) {
        if (bars[i].times == s->times->kind && s->rule->rule == BACKUP_AUTO &&
            strcmp(s->transport, "tcp") == 0)
            runs->ratios[i] = ratio;
    }
}

/* Runs one rule. `all_s`: time of all ranks; NAN before that run. */
static int live_run_one(struct live_runs *runs, const char *transport,
                        const struct grid_times *times, const struct grid_rule *rule, double *all_s)
{
    char job[32];
    struct crew_result result;
    const struct crew_setting setting = {.endpoint = runs->service.endpoint,
                                         .transport = transport,
                                         .job = job,
                                         .rule = rule,
                                         .times = times,
                                         .jitter = runs->live->jitter,
                                         .seed = SEED,
                                         .unit_ns = UNIT_NS,
                                         .target = runs->live->is_quick ? 2 : 0.25};
    snprintf(job, sizeof job, "crew-%u", ++runs->jobs);
    int error = live_crew_run(&setting, &result);
    if (error < 0)
        return error;
    *all_s = rule->rule == BACKUP_ALL ? result.seconds : *all_s;
    double ratio = result.seconds / *all_s;
    runs->different += !result.bits_equal;
    live_note(runs, &setting, ratio);
    if (runs->live->is_json)
        live_print_json(&setting, &result, ratio);
    else
        live_print_text(&setting, &result, ratio);
    fflush(stdout);
    return 0;
}

static int live_run_times(struct live_runs *runs, const char *transport,
                          const struct grid_times *times)
{
    const struct grid *grid = runs->live->grid;
    double all_s = NAN;
    int error = 0;
    for (int first = 1; first >= 0; first--) {
        for (size_t i = 0; i < grid->rules_count && error == 0; i++) {
            if ((grid->rules[i].rule == BACKUP_ALL) == first)
                error = live_run_one(runs, transport, times, &grid->rules[i], &all_s);
        }
    }
    return error;
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

/* A short run is no measure, so its figures have no verdict. */
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
            printf("%s over all ranks, tcp: %.2f, bar %.2f, holds: %s\n", names[i], ratio,
                   bars[i].most, holds);
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
    int error = service_start(&runs.service);
    if (error == 0)
        error = live_run_all(&runs);
    if (error == 0)
        live_print_bars(&runs);
    service_stop(&runs.service);
    return error < 0 ? error : runs.different;
}
