/* Conducts one cell. Owns its service, workers and injector. Must never query the service during
 * measured rounds, because a query takes time of the lanes and would count as slowness. */
#include "bench/stragglers/cell.h"

#include "bench/lib/host.h"
#include "bench/savings/look.h"
#include "bench/savings/statistics.h"
#include "svc/base/clock.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define WARM_ROUNDS 30
#define BEFORE_WINDOWS 2
#define SLOW_WINDOWS_SHORT 3 /* number of windows for a policy that does not adapt */
/* number of windows of the two policies that are compared without an injector */
#define QUIET_WINDOWS 6
/* number of windows before the stop-the-world baseline drains the slow lane */
#define DETECT_WINDOWS 2
#define COMMAND_NS (60 * NS_PER_S)
#define PORT_FIRST 17300

extern char **environ;

struct run {
    struct cell *cell;
    struct service service;
    struct herd herd;
    struct injector injector;
    char slow_path[64];
    struct look_share before[CELL_LANES], after[CELL_LANES];
    int before_count, after_count;
};

/* --- the service --- */

static int start_service(struct run *run)
{
    const struct cell *c = run->cell;
    char port[16];
    snprintf(port, sizeof port, "%d", PORT_FIRST);
    return service_start_as(
        &run->service,
        &(struct service_setting){.program = "gradpool-bench-slow",
                                  .cores = c->cores,
                                  .lanes_per_core = c->lanes_per_core,
                                  .policy = c->policy->placing,
                                  .scale = "off",
                                  .explore = c->policy->exploring,
                                  .piece_max = c->piece_max,
                                  .data_port = c->injector == INJECTOR_CAP ? port : NULL});
}

static int start(struct run *run)
{
    struct cell *c = run->cell;
    run->injector = (struct injector){.kind = c->injector,
                                      .lane = c->lane,
                                      .usual = c->usual_ns_per_kib,
                                      .times = c->times,
                                      .task_ns = c->task_ns,
                                      .port = PORT_FIRST,
                                      .cap_mbit = c->cap_mbit,
                                      .service = &run->service,
                                      .job = c->herd.job};
    int r = injector_init(&run->injector, run->slow_path, sizeof run->slow_path);
    if (r == 0)
        r = start_service(run);
    c->herd.endpoint = run->service.endpoint;
    c->herd.transport = c->injector == INJECTOR_CAP ? "tcp" : NULL;
    return r < 0 ? r : herd_start(&run->herd, &c->herd);
}

/* --- figures --- */

static double mean_of(struct run *run, uint32_t first, uint32_t end, double *ret_p95)
{
    double *times = calloc(end - first, sizeof *times), mean = 0;
    if (!times || end <= first) {
        free(times);
        return NAN;
    }
    herd_times(&run->herd, first, end, times);
    mean = statistics_mean(times, end - first);
    if (ret_p95)
        *ret_p95 = statistics_quantile(times, end - first, 0.95);
    free(times);
    return mean;
}

/* Finds the window of the recovery, counted from the start of the injector. */
static void see_recovery(struct run *run, uint32_t first, uint32_t windows)
{
    struct cell *c = run->cell;
    for (uint32_t w = 0; w < windows && c->windows == 0; w++) {
        uint32_t begin = first + w * CELL_WINDOW;
        if (mean_of(run, begin, begin + CELL_WINDOW, NULL) > c->before_ns / CELL_REACHES)
            continue;
        c->windows = w + 1;
        c->rounds = (w + 1) * CELL_WINDOW;
    }
}

static double bytes_on(const struct look_share *shares, int count, uint32_t lane)
{
    for (int i = 0; i < count; i++)
        if (shares[i].lane == lane)
            return (double)shares[i].bytes;
    return 0;
}

static double bytes_moved(const struct run *run)
{
    double moved = 0;
    for (uint32_t lane = 1; lane <= CELL_LANES; lane++)
        moved += fabs(bytes_on(run->after, run->after_count, lane) -
                      bytes_on(run->before, run->before_count, lane));
    return moved / 2;
}

static int see_experiments(struct run *run)
{
    struct look_events *seen = calloc(1, sizeof *seen);
    int r = seen ? look_at_events(&run->service, seen) : -ENOMEM;
    for (size_t i = 0; r == 0 && i < seen->count; i++) {
        run->cell->tried += strcmp(seen->events[i].kind, "explore") == 0;
        run->cell->kept += strcmp(seen->events[i].kind, "keep") == 0;
    }
    free(seen);
    return r;
}

/* --- phases --- */

/* Drains the lane of the stop-the-world baseline, so that no task stays on the slow lane. */
static int drain(const struct run *run)
{
    char lane[16];
    char *argv[] = {(char *)run->service.program,
                    (char *)"drain",
                    (char *)"lane",
                    lane,
                    (char *)"--endpoint",
                    (char *)run->service.endpoint,
                    NULL};
    snprintf(lane, sizeof lane, "%u", run->cell->lane + 1);
    pid_t pid = process_spawn_apart(argv, environ, "/dev/null", NULL);
    int code = pid < 0 ? pid : process_reap(pid, clock_now_ns() + COMMAND_NS);
    if (code != 0)
        fprintf(stderr, "gradpool-bench: gradpool drain lane %s failed: exit code %d\n", lane,
                code);
    return code == 0 ? 0 : -EIO;
}

static int take_lane_out(struct run *run)
{
    int r = herd_pause(&run->herd);
    if (r == 0)
        r = drain(run);
    herd_go_on(&run->herd);
    return r;
}

/* Reads the placement of tasks, and the first round after the query. */
static int see_shares(struct run *run, uint32_t *ret_round)
{
    run->before_count = look_at_shares(&run->service, run->cell->herd.job, run->before, CELL_LANES);
    *ret_round = herd_rounds(&run->herd) + 1;
    return run->before_count < 0 ? run->before_count : herd_await(&run->herd, *ret_round);
}

static int see_before(struct run *run, uint32_t *ret_round)
{
    struct cell *c = run->cell;
    uint32_t end = WARM_ROUNDS + BEFORE_WINDOWS * CELL_WINDOW;
    int r = herd_await(&run->herd, end);
    if (r < 0)
        return r;
    c->before_ns = mean_of(run, WARM_ROUNDS, end, &c->before_p95_ns);
    return see_shares(run, ret_round);
}

/* Starts the injector. Measured rounds begin after the injector's moves, because these are no moves
 * of the policy. */
static int begin_slow(struct run *run, uint32_t *first)
{
    int r = injector_begin(&run->injector);
    if (r < 0)
        fprintf(stderr, "gradpool-bench: injector %s does not work here\n",
                injector_name(run->cell->injector));
    return r == 0 && run->cell->injector == INJECTOR_SKEW ? see_shares(run, first) : r;
}

static int see_slow(struct run *run, uint32_t first, uint32_t windows)
{
    struct cell *c = run->cell;
    int r = begin_slow(run, &first);
    uint32_t end = first + windows * CELL_WINDOW;
    if (r == 0 && c->policy->stops_world) {
        r = herd_await(&run->herd, first + DETECT_WINDOWS * CELL_WINDOW);
        if (r == 0)
            r = take_lane_out(run);
    }
    if (r == 0)
        r = herd_await(&run->herd, end);
    if (r < 0)
        return r;
    c->onset_ns = mean_of(run, first, first + CELL_WINDOW, NULL);
    c->during_ns = mean_of(run, first, end, &c->during_p95_ns);
    c->settled_ns = mean_of(run, end - 2 * CELL_WINDOW, end, &c->settled_p95_ns);
    see_recovery(run, first, windows);
    run->after_count = look_at_shares(&run->service, c->herd.job, run->after, CELL_LANES);
    return run->after_count < 0 ? run->after_count : see_experiments(run);
}

static int see_after(struct run *run)
{
    struct cell *c = run->cell;
    uint32_t windows = c->policy->adapts ? 4 : 1;
    injector_end(&run->injector);
    uint32_t first = herd_rounds(&run->herd) + 1;
    uint32_t end = first + windows * CELL_WINDOW;
    int r = herd_await(&run->herd, end);
    if (r == 0)
        c->after_ns = mean_of(run, end - CELL_WINDOW, end, NULL);
    return r;
}

static int conduct(struct run *run)
{
    struct cell *c = run->cell;
    uint32_t first = 0;
    bool adapts = c->policy->adapts || c->policy->stops_world;
    uint32_t windows = c->injector == INJECTOR_NONE ? QUIET_WINDOWS
                       : adapts                     ? CELL_SLOW_WINDOWS
                                                    : SLOW_WINDOWS_SHORT;
    int r = start(run);
    if (r == 0)
        r = see_before(run, &first);
    if (r == 0)
        r = see_slow(run, first, windows);
    if (r == 0 && c->injector != INJECTOR_SKEW && c->injector != INJECTOR_NONE)
        r = see_after(run);
    if (r == 0)
        c->bytes_moved = bytes_moved(run);
    injector_end(&run->injector);
    return r;
}

static int run_here(struct cell *cell)
{
    struct run *run = calloc(1, sizeof *run);
    if (!run)
        return -ENOMEM;
    run->cell = cell;
    int r = conduct(run);
    int stopped = herd_stop(&run->herd, &cell->checks);
    service_stop(&run->service);
    injector_fini(&run->injector, run->slow_path);
    free(run);
    return r < 0 ? r : stopped;
}

/* Runs the cell in a network namespace, which ends with its process. */
static int run_in_network(struct cell *cell)
{
    struct cell *shared =
        mmap(NULL, sizeof *cell, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return -ENOMEM;
    *shared = *cell;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        int r = injector_enter_network();
        if (r < 0)
            snprintf(shared->why_skipped, sizeof shared->why_skipped,
                     "a separate network namespace is not possible: %s", strerror(-r));
        _exit(r < 0 ? 0 : run_here(shared) < 0);
    }
    int code = pid < 0 ? 1 : process_reap(pid, clock_now_ns() + 600 * NS_PER_S);
    *cell = *shared;
    munmap(shared, sizeof *cell);
    return code ? -EIO : 0;
}

int cell_run(struct cell *cell)
{
    return cell->injector == INJECTOR_CAP ? run_in_network(cell) : run_here(cell);
}
