/* `resize`: measures the pause of a job's workers when another worker joins or leaves. Owns a
 * service, and the workers of one job at a time. */
#include "bench/resize/resize_worker.h"

#include "bench/commands.h"
#include "bench/lib/host.h"
#include "bench/lib/own_service.h"
#include "bench/savings/statistics.h"
#include "svc/base/clock.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CALM_STEPS 20 /* number of steps between two resizes */
#define CYCLES_MAX 200
#define PATIENCE_NS (120 * NS_PER_S)
#define LOOK_NS NS_PER_MS

struct resize {
    struct service service;
    struct resize_plan plan;
    pid_t pids[RESIZE_WORKERS];
    uint32_t cycles;
    const char *transport; /* the only transport that is measured; NULL: both transports */
    bool is_json;
    uint64_t wrong;
};

/* Pauses in ms, measured over one transport. */
struct pauses {
    double growths[CYCLES_MAX], shrinks[CYCLES_MAX], steps[RESIZE_STEPS_MAX];
    size_t count, steps_count;
    double lane_busy;
};

enum {
    KEY_CYCLES = 1000,
    KEY_TRANSPORT,
    KEY_STATE,
    KEY_GRADIENT,
    KEY_COMPUTE,
    KEY_SETUP,
    KEY_JSON
};

static const struct argp_option options[] = {
    {"cycles", KEY_CYCLES, "N", 0, "number of growths, each followed by a shrink (default 15)"},
    {"transport", KEY_TRANSPORT, "shm|tcp", 0, "only this transport (default: both)"},
    {"state-bytes", KEY_STATE, "BYTES", 0,
     "bytes of the state that a late worker receives (default 8 MB)"},
    {"gradient-bytes", KEY_GRADIENT, "BYTES", 0,
     "bytes of the gradients of each step (default 1 MiB)"},
    {"compute-ms", KEY_COMPUTE, "MS", 0, "emulated computing time of a step (default 25)"},
    {"setup-ms", KEY_SETUP, "MS", 0,
     "emulated work of a late worker between gp_deal_declare() and its first step (default 200)"},
    {"json", KEY_JSON, 0, 0, "a line of JSON for each transport"},
    {0},
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct resize *z = state->input;
    const uint64_t bytes_max = UINT64_C(1) << 30;
    switch (key) {
    case KEY_CYCLES: z->cycles = (uint32_t)command_number(state, argument, 1, CYCLES_MAX); return 0;
    case KEY_JSON: z->is_json = true; return 0;
    case KEY_STATE:
        z->plan.state_elements = command_number(state, argument, 4, bytes_max) / sizeof(float);
        return 0;
    case KEY_GRADIENT:
        z->plan.gradient_elements = command_number(state, argument, 4, bytes_max) / sizeof(float);
        return 0;
    case KEY_COMPUTE:
        z->plan.compute_ns = command_number(state, argument, 0, 10000) * NS_PER_MS;
        return 0;
    case KEY_SETUP:
        z->plan.setup_ns = command_number(state, argument, 0, 10000) * NS_PER_MS;
        return 0;
    case KEY_TRANSPORT:
        if (strcmp(argument, "shm") != 0 && strcmp(argument, "tcp") != 0)
            argp_error(state, "--transport: shm or tcp, not '%s'", argument);
        z->transport = argument;
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* ---- workers ---- */

static int start_worker(struct resize *z, uint32_t rank)
{
    fflush(NULL); /* otherwise the child would print the buffered text again */
    pid_t pid = process_fork(SIGKILL);
    if (pid == 0)
        _exit(resize_worker_run(&z->plan, rank) < 0 ? 1 : 0);
    z->pids[rank] = pid;
    return pid < 0 ? -errno : 0;
}

/* Ends the workers in the middle of their training; the service drops the job. */
static void kill_workers(struct resize *z)
{
    for (uint32_t rank = 0; rank < RESIZE_WORKERS; rank++) {
        if (z->pids[rank] <= 0)
            continue;
        kill(z->pids[rank], SIGKILL);
        (void)process_reap(z->pids[rank], clock_now_ns() + PATIENCE_NS);
        z->pids[rank] = 0;
    }
}

static unsigned steps(const struct resize *z) { return z->plan.board->steps[0]; }

/* Returns whether rank 0 has ended. Does not collect the exit status of rank 0. */
static bool has_ended(const struct resize *z)
{
    siginfo_t info = {0};
    return waitid(P_PID, (id_t)z->pids[0], &info, WEXITED | WNOHANG | WNOWAIT) < 0 ||
           info.si_pid != 0;
}

/* Waits until `number`, a count of the board, has reached `least`. -ECHILD: rank 0 has ended;
 * -ETIMEDOUT. */
static int await(const struct resize *z, const atomic_uint *number, unsigned least)
{
    uint64_t deadline_ns = clock_now_ns() + PATIENCE_NS;
    while (*number < least) {
        nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
        if (has_ended(z)) {
            fprintf(stderr, "gradpool-bench resize: rank 0 has ended\n");
            return -ECHILD;
        }
        if (clock_now_ns() > deadline_ns) {
            fprintf(stderr, "gradpool-bench resize: the job makes no progress\n");
            return -ETIMEDOUT;
        }
    }
    return 0;
}

static int await_calm(const struct resize *z)
{
    return await(z, &z->plan.board->steps[0], steps(z) + CALM_STEPS);
}

/* ---- figures ---- */

static double step_ms(const struct resize *z, uint32_t rank, unsigned step)
{
    const uint64_t *ends_ns = z->plan.board->ends_ns[rank];
    return (double)(ends_ns[step] - ends_ns[step - 1]) / NS_PER_MS;
}

/* Returns the longest step of the ranks that stay, from step `first` to the last step that all
 * these ranks have completed. */
static double longest_ms(const struct resize *z, unsigned first)
{
    double longest = 0;
    for (uint32_t rank = 0; rank < RESIZE_FOUNDERS; rank++)
        for (unsigned step = first; step < z->plan.board->steps[rank]; step++)
            longest = step_ms(z, rank, step) > longest ? step_ms(z, rank, step) : longest;
    return longest;
}

static int grow(struct resize *z, double *ret_longest_ms)
{
    struct resize_board *board = z->plan.board;
    unsigned first = steps(z);
    board->shares = 0;
    board->wanted = RESIZE_WORKERS;
    int error = start_worker(z, RESIZE_WORKERS - 1);
    if (error == 0)
        error = await(z, &board->shares, 1);
    if (error == 0)
        error = await(z, &board->settled, RESIZE_WORKERS);
    if (error == 0)
        error = await(z, &board->steps[0], steps(z) + 2);
    *ret_longest_ms = longest_ms(z, first);
    return error;
}

static int shrink(struct resize *z, double *ret_longest_ms)
{
    struct resize_board *board = z->plan.board;
    unsigned first = steps(z);
    board->wanted = RESIZE_FOUNDERS;
    int error = process_reap(z->pids[RESIZE_WORKERS - 1], clock_now_ns() + PATIENCE_NS);
    z->pids[RESIZE_WORKERS - 1] = 0;
    while (error == 0 && board->settled != RESIZE_FOUNDERS)
        error = await(z, &board->steps[0], steps(z) + 1);
    if (error == 0)
        error = await(z, &board->steps[0], steps(z) + 2);
    *ret_longest_ms = longest_ms(z, first);
    return error == 0 || error == -ETIMEDOUT ? error : -ECHILD;
}

static void note_steps(const struct resize *z, struct pauses *p, unsigned first)
{
    for (unsigned step = first + 1; step < steps(z); step++)
        p->steps[p->steps_count++] = step_ms(z, 0, step);
}

static int run_cycle(struct resize *z, struct pauses *p)
{
    unsigned first = steps(z);
    uint64_t begin_ns = clock_now_ns(), busy_ns = service_lanes_cpu_ns(&z->service);
    int error = await_calm(z);
    busy_ns = service_lanes_cpu_ns(&z->service) - busy_ns;
    p->lane_busy += (double)busy_ns / (double)(clock_now_ns() - begin_ns) / z->cycles;
    note_steps(z, p, first);
    if (error == 0)
        error = grow(z, &p->growths[p->count]);
    if (error == 0)
        error = await_calm(z);
    if (error == 0)
        error = shrink(z, &p->shrinks[p->count]);
    p->count += error == 0;
    return error;
}

static void print(const struct resize *z, struct pauses *p)
{
    const char *format =
        z->is_json ? "{\"transport\": \"%s\", \"cycles\": %zu, \"step_ms\": %.2f, \"lane_busy\": "
                     "%.3f, \"grow_pause_ms_p50\": %.2f, \"grow_pause_ms_p90\": %.2f, "
                     "\"shrink_pause_ms_p50\": %.2f, \"shrink_pause_ms_p90\": %.2f, \"wrong\": "
                     "%llu}\n"
                   : "%s, %zu cycles: a step %.2f ms, lanes busy %.3f; longest step beyond that, "
                     "growth: p50 %.2f ms, p90 %.2f ms, shrink: p50 %.2f ms, p90 %.2f ms; %llu "
                     "elements wrong\n";
    double median = statistics_quantile(p->steps, p->steps_count, 0.5);
    double *sets[] = {p->growths, p->shrinks}, pause[4];
    for (int i = 0; i < 4; i++)
        pause[i] = statistics_quantile(sets[i / 2], p->count, i % 2 ? 0.9 : 0.5) - median;
    printf(format, z->plan.transport, p->count, median, p->lane_busy, pause[0], pause[1], pause[2],
           pause[3], (unsigned long long)z->plan.board->wrong);
    fflush(stdout);
}

static int run_transport(struct resize *z, const char *transport)
{
    static struct pauses pauses;
    pauses = (struct pauses){0};
    memset(z->plan.board, 0, sizeof *z->plan.board);
    z->plan.board->wanted = z->plan.board->settled = RESIZE_FOUNDERS;
    z->plan.transport = transport;
    int error = 0;
    for (uint32_t rank = 0; error == 0 && rank < RESIZE_FOUNDERS; rank++)
        error = start_worker(z, rank);
    if (error == 0)
        error = await_calm(z);
    for (uint32_t i = 0; error == 0 && i < z->cycles; i++)
        error = run_cycle(z, &pauses);
    kill_workers(z);
    if (error < 0)
        return error;
    print(z, &pauses);
    z->wrong += z->plan.board->wrong;
    return 0;
}

static int run_all(struct resize *z)
{
    static const char *const transports[] = {"shm", "tcp"};
    void *memory = mmap(NULL, sizeof *z->plan.board, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return -errno;
    z->plan.board = memory;
    z->plan.endpoint = z->service.endpoint;
    int error = 0;
    for (size_t t = 0; error == 0 && t < 2; t++)
        if (!z->transport || strcmp(z->transport, transports[t]) == 0)
            error = run_transport(z, transports[t]);
    munmap(memory, sizeof *z->plan.board);
    return error;
}

int resize_command(int argc, char **argv)
{
    struct resize z = {.cycles = 15,
                       .plan = {.gradient_elements = (UINT64_C(1) << 20) / sizeof(float),
                                .state_elements = 8000000 / sizeof(float),
                                .compute_ns = 25 * NS_PER_MS,
                                .setup_ns = 200 * NS_PER_MS}};
    const struct argp argp = {
        options,
        parse,
        NULL,
        "Measure the pause of a job of two workers when a third worker joins and leaves: the "
        "longest step of the two workers minus their median step. The workers sleep in place of "
        "computing; gp_deal_declare() divides the samples of each step among them. The command "
        "starts a separate service.",
        NULL,
        NULL,
        NULL};
    argp_parse(&argp, argc, argv, 0, NULL, &z);
    int error = service_start_as(&z.service, &(struct service_setting){.scale = "off"});
    if (error == 0)
        error = run_all(&z);
    service_stop(&z.service);
    return error < 0 || z.wrong ? 1 : 0;
}
