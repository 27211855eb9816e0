/* Compares the clocks of a table that another aggregator copies with those of a table without a
 * copy. Then the owner of the rows is killed, and the first pull at the copy is timed. A sleep
 * emulates the computing, so the lanes are calm. All rows are checked at the end. */
#include "bench/savings/look.h"
#include "bench/savings/statistics.h"
#include "bench/tables/draw.h"
#include "bench/tables/tables.h"
#include "svc/base/clock.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define WORKERS 2
#define DIM 16
#define KEYS 4096
#define CLOCKS_MAX 100
#define COMPUTE_NS (20 * NS_PER_MS)
#define COPY_NS (120 * NS_PER_S) /* deadline of the copy of all rows */
#define WHOLE " has a whole copy of the tables on lane "

struct copies {
    uint64_t keys[KEYS];
    float gradients[KEYS * DIM], rows[KEYS * DIM];
    double clock_ms[CLOCKS_MAX];
};

static void nap(uint64_t ns)
{
    const struct timespec time = {(time_t)(ns / NS_PER_S), (long)(ns % NS_PER_S)};
    nanosleep(&time, NULL);
}

/* Returns the lane whose tables have a whole copy, from the log of the service; 0: none yet. */
static uint32_t copies_find_owner(const struct service *service)
{
    char line[1024];
    uint32_t owner = 0;
    FILE *log = fopen(service->log, "r");
    while (log && fgets(line, sizeof line, log)) {
        const char *at = strstr(line, WHOLE);
        owner = at ? (uint32_t)strtoul(at + strlen(WHOLE), NULL, 10) : owner;
    }
    if (log)
        fclose(log);
    return owner;
}

static int copies_await(const struct tables_worker *w)
{
    uint64_t deadline_ns = clock_now_ns() + COPY_NS;
    bool is_copied = w->plan->spec.durability == GP_DURABILITY_REPLICA;
    while (is_copied && copies_find_owner(w->plan->service) == 0) {
        if (clock_now_ns() > deadline_ns)
            return -ETIMEDOUT;
        nap(20 * NS_PER_MS);
    }
    return 0;
}

static int copies_clock(struct tables_worker *w, struct copies *c, uint32_t clock)
{
    uint64_t began_ns = clock_now_ns();
    tables_draw_keys(w->plan, w->rank, clock, c->keys);
    tables_draw_gradients(w->plan, w->rank, clock, c->keys, KEYS, c->gradients);
    int error = tables_pull(w, c->keys, KEYS, c->rows);
    nap(COMPUTE_NS);
    if (error == 0)
        error = tables_push(w, c->keys, KEYS, c->gradients);
    if (error == 0)
        error = gp_clock(w->job);
    c->clock_ms[clock - 1] = (double)(clock_now_ns() - began_ns) / NS_PER_MS;
    return error;
}

static int copies_measure(struct tables_worker *w, struct copies *c)
{
    struct tables_usage usage = tables_usage_begin(w);
    int error = 0;
    for (uint32_t clock = 1; error == 0 && clock <= w->plan->clocks; clock++)
        error = copies_clock(w, c, clock);
    if (error == 0) /* the pull waits until the last clock is applied */
        error = tables_pull(w, c->keys, 1, c->rows);
    if (error == 0)
        error = tables_barrier(w);
    tables_usage_end(w, &usage);
    w->result->p50_ms = statistics_quantile(c->clock_ms, w->plan->clocks, 0.5);
    return error;
}

/* Kills the aggregator of the lane. Each aggregator has one lane, and both lists have one order. */
static int copies_kill(const struct service *service, uint32_t owner)
{
    static struct look look;
    pid_t pids[SERVICE_PROCESSES_MAX];
    int count = look_at_aggregators(service, pids, SERVICE_PROCESSES_MAX);
    int error = count < 0 ? count : look_at_lanes(service, &look);
    for (int i = 0; error == 0 && i < count && (size_t)i < look.lanes_count; i++)
        if (look.lanes[i].lane == owner)
            return kill(pids[i], SIGKILL) < 0 ? -errno : 0;
    return error < 0 ? error : -ESRCH;
}

static int copies_lose_owner(struct tables_worker *w, struct copies *c)
{
    int error = copies_kill(w->plan->service, copies_find_owner(w->plan->service));
    uint64_t killed_ns = clock_now_ns();
    if (error == 0)
        error = tables_pull(w, c->keys, KEYS, c->rows);
    w->result->value = (double)(clock_now_ns() - killed_ns) / NS_PER_MS;
    return error;
}

static int copies_work(struct tables_worker *w)
{
    bool is_copied = w->plan->spec.durability == GP_DURABILITY_REPLICA;
    struct copies *c = calloc(1, sizeof *c);
    int error = c ? tables_make_rows(w) : -ENOMEM;
    if (error == 0)
        error = copies_await(w);
    if (error == 0)
        error = tables_barrier(w);
    if (error == 0)
        error = copies_measure(w, c);
    if (error == 0 && w->rank == 0 && is_copied)
        error = copies_lose_owner(w, c);
    if (error == 0 && w->rank == 0)
        error = tables_check_rows(w);
    free(c);
    return error;
}

/* Runs a job on a service of two aggregators. One shard has all rows, so one lane owns them. */
static int copies_run(const struct tables *t, enum gp_durability durability,
                      struct tables_board **ret_board)
{
    struct service service;
    const struct service_setting setting = {.lanes_per_core = "1",
                                            .aggregators = "2",
                                            .scale = "off",
                                            .job_memory_max = "8G",
                                            .lane_memory_max = "8G"};
    const struct tables_plan plan = {.service = &service,
                                     .transport = "shm",
                                     .job = "copies",
                                     .spec = {.name = "rows",
                                              .dim = DIM,
                                              .shards = 1,
                                              .dtype = GP_F32,
                                              .rule = GP_ROW_SGD,
                                              .combine = GP_SUM,
                                              .durability = durability},
                                     .rate = 1,
                                     .workers = WORKERS,
                                     .rows = t->is_quick ? 20000 : (256u << 20) / DIM / 4,
                                     .batch = KEYS,
                                     .clocks = t->is_quick ? 10 : CLOCKS_MAX,
                                     .seed = t->seed,
                                     .work = copies_work};
    int error = service_start_as(&service, &setting);
    if (error == 0)
        error = tables_crew_run(&plan, ret_board);
    service_stop(&service);
    return error;
}

int tables_copies(struct tables *t)
{
    struct tables_board *plain, *copied;
    int error = copies_run(t, GP_DURABILITY_NONE, &plain);
    if (error < 0)
        return error;
    error = copies_run(t, GP_DURABILITY_REPLICA, &copied);
    if (error == 0) {
        const struct tables_result *without = &plain->results[0], *with = &copied->results[0];
        uint64_t wrong = tables_board_wrong(copied, WORKERS) + tables_board_wrong(plain, WORKERS);
        double lanes = (double)with->lanes_ns / (double)without->lanes_ns;
        tables_print(t, &(struct tables_line){"copied_clock_of_plain", "",
                                              with->p50_ms / without->p50_ms, TABLES_AT_MOST, 1.3,
                                              wrong});
        tables_print(
            t, &(struct tables_line){"copied_cpu_of_plain", "", lanes, TABLES_AT_MOST, 2, wrong});
        tables_print(t, &(struct tables_line){"first_pull_ms", "ms", with->value, TABLES_AT_MOST,
                                              1000, wrong});
        tables_board_free(copied);
    }
    tables_board_free(plain);
    return error;
}
