/* Owns the order of a comparison and both services: scales tensors, measures the jobs, simulates
 * them, and replays the trace twice, on separate lanes for each job and on shared lanes. The
 * simulation must never use a result of the two replays. */
#include "bench/live/live.h"

#include "bench/lib/host.h"
#include "bench/sim/input/csv.h"

#include <errno.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#define SCALE_FIRST 0.02 /* scale of tensors for the first measurement */
#define SCALE_NS 1e9
#define MEASURE_PASSES 2
#define LOOKS_FOR_JOBS 2
#define GIB ((double)(1 << 30))

static struct turn *turn_create(struct live *live, const struct service *service)
{
    struct turn *turn = calloc(1, sizeof *turn);
    if (turn) {
        turn->plan = &live->plan;
        turn->service = service;
        turn->jobs_looks = LOOKS_FOR_JOBS;
    }
    return turn;
}

static double pushed_bytes(const struct live *live, const struct turn *turn)
{
    double bytes = 0;
    for (size_t i = 0; i < live->plan.jobs_count; i++)
        bytes += (double)plan_bytes(&live->plan, &live->plan.jobs[i]) * live->plan.jobs[i].workers *
                 turn->jobs[i].rounds;
    return bytes;
}

/* Measures twice with the jobs of the largest group: first to scale the tensors, then to find
 * the lane time of a byte at that scale. */
static int find_scale(struct live *live, const struct service *service)
{
    live->plan.bytes_scale = SCALE_FIRST;
    for (int pass = 0; pass < 2; pass++) {
        struct turn *turn = turn_create(live, service);
        if (!turn)
            return -ENOMEM;
        for (size_t i = 0; i < live_group(live, 0); i++)
            turn_add(turn, i, SCALE_NS, 1);
        int r = turn_run(turn);
        if (r == 0)
            live_scale(live, turn->used_s * 1e9 / pushed_bytes(live, turn));
        free(turn);
        if (r < 0)
            return r;
    }
    return 0;
}

struct clocks {
    double reported_ns, clock_ns;
};

static int measure_group(struct live *live, const struct service *service, size_t first, size_t end,
                         struct clocks *clocks)
{
    struct turn *turn = turn_create(live, service);
    if (!turn)
        return -ENOMEM;
    turn->jobs_looks = 1;
    for (size_t i = first; i < end; i++)
        if (live->lane_ns[i] <= 0)
            turn_add(turn, i, PLAN_PROFILE_NS, PLAN_PROFILE_ROUNDS);
    int r = turn_run(turn);
    double reported_ns = 0;
    bool is_whole = true;
    for (size_t i = first; r == 0 && i < end; i++) {
        const struct turn_job *job = &turn->jobs[i];
        if (!job->takes_part)
            continue;
        is_whole &= job->is_known && job->lane_ns > 0;
        live->lane_ns[i] = job->is_known ? (double)job->lane_ns : 0;
        reported_ns += (double)job->lane_ns * job->rounds;
    }
    if (r == 0 && is_whole) {
        clocks->reported_ns += reported_ns;
        clocks->clock_ns += turn->used_s * 1e9;
    }
    free(turn);
    return r;
}

static size_t count_unknown(const struct live *live)
{
    size_t count = 0;
    for (size_t i = 0; i < live->plan.jobs_count; i++)
        count += live->lane_ns[i] <= 0;
    return count;
}

/* Measures jobs on separate lanes, in groups. The jobs of a group (live_group()) run at the same
 * time. The service stores each profile for the next start of the job. */
static int measure_jobs(struct live *live, const struct service *service)
{
    struct clocks clocks = {0};
    int r = 0;
    for (int pass = 0; pass < MEASURE_PASSES && r == 0 && count_unknown(live) > 0; pass++)
        for (size_t first = 0, end; first < live->plan.jobs_count && r == 0; first = end) {
            bool is_due = false;
            end = live_group(live, first);
            for (size_t i = first; i < end; i++)
                is_due |= live->lane_ns[i] <= 0;
            if (is_due)
                r = measure_group(live, service, first, end, &clocks);
        }
    if (r == 0 && count_unknown(live) > 0) {
        fprintf(stderr, "gradpool-bench: the service has not measured %zu of %zu jobs\n",
                count_unknown(live), live->plan.jobs_count);
        return -ETIMEDOUT;
    }
    live->clocks_by_reports = clocks.reported_ns > 0 ? clocks.clock_ns / clocks.reported_ns : 1;
    live->setting.x_gib_per_s = 1e9 / live->lane_ns_a_byte / GIB;
    return r;
}

/* Replays the trace. Each job does as many rounds as in the simulation. */
static int play(struct live *live, const struct service *service, struct turn **ret_turn)
{
    struct turn *turn = turn_create(live, service);
    if (!turn)
        return -ENOMEM;
    turn_all(turn);
    for (size_t i = 0; i < live->plan.jobs_count; i++) {
        uint32_t least = turn->jobs[i].rounds; /* number of rounds computed from step times alone */
        double rounds = round(live->plan.jobs[i].stay_ns / live->periods_ns[i]);
        turn->jobs[i].rounds = rounds < least ? (uint32_t)fmax(rounds, 1) : least;
    }
    *ret_turn = turn;
    return turn_run(turn);
}

static int run(struct live *live, const struct service *dedicated, const struct service *shared)
{
    char error[TABLE_ERROR_BYTES] = "";
    int r = find_scale(live, dedicated);
    if (r == 0) {
        live_report_plan(live);
        r = measure_jobs(live, shared);
    }
    if (r < 0)
        return r;
    r = live_simulate(live, error);
    if (r < 0)
        fprintf(stderr, "gradpool-bench: %s\n", error);
    if (r == 0)
        r = play(live, dedicated, &live->dedicated);
    return r < 0 ? r : play(live, shared, &live->shared);
}

static int start(const struct live *live, struct service *service, const char *policy)
{
    char cores[64], per_core[16];
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    if (sched_getaffinity(0, sizeof allowed, &allowed) < 0)
        return -errno;
    uint32_t count = CPU_COUNT(&allowed) > 1 ? 2 : 1;
    snprintf(cores, sizeof cores, count > 1 ? "%d,%d" : "%d", process_core(0), process_core(1));
    snprintf(per_core, sizeof per_core, "%u", (live->lanes + count - 1) / count);
    return service_start_as(service, &(struct service_setting){cores, per_core, policy});
}

int live_run(struct live *live)
{
    char error[TABLE_ERROR_BYTES] = "";
    struct service dedicated = {0}, shared = {0};
    int r = live_plan(live, error);
    if (r < 0)
        fprintf(stderr, "gradpool-bench: %s\n", error);
    if (r == 0)
        r = start(live, &dedicated, "dedicated");
    if (r == 0)
        r = start(live, &shared, live->setting.policy);
    if (r == 0)
        r = run(live, &dedicated, &shared);
    service_stop(&shared);
    service_stop(&dedicated);
    if (r == 0)
        live_report(live);
    return r;
}
