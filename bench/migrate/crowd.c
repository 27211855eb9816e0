/* Starts the workers of a job, sends orders and ends the workers. Owns these processes, their
 * sockets and boards. */
#include "bench/migrate/crowd.h"

#include "bench/lib/host.h"
#include "svc/base/clock.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define PATIENCE_NS (120 * NS_PER_S) /* longest wait for one iteration, or for a restart */

static size_t boards_bytes(const struct crowd *c) { return c->workers * sizeof *c->boards; }

static int start_worker(struct crowd *c, uint32_t rank)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    struct trainee worker = c->plan;
    worker.rank = rank;
    worker.board = &c->boards[rank];
    worker.fd = pair[1];
    fflush(NULL); /* otherwise the child would print the buffered text again */
    pid_t pid = process_fork(SIGKILL);
    if (pid == 0) {
        close(pair[0]);
        _exit(trainee_run(&worker) < 0 ? 1 : 0);
    }
    close(pair[1]);
    c->fds[rank] = pair[0];
    c->pids[rank] = pid;
    return pid < 0 ? -errno : 0;
}

int crowd_start(struct crowd *c, const struct trainee *plan)
{
    *c = (struct crowd){.plan = *plan, .workers = plan->workers};
    for (uint32_t rank = 0; rank < c->workers; rank++)
        c->fds[rank] = -1;
    void *memory =
        mmap(NULL, boards_bytes(c), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return -errno;
    c->boards = memory;
    c->plan.board = memory;
    int r = 0;
    for (uint32_t rank = 0; r == 0 && rank < c->workers; rank++)
        r = start_worker(c, rank);
    return r;
}

/* Reads the next message of a worker. Returns an error if the worker has ended. */
static int hear(struct crowd *c, uint32_t rank, char *ret_word)
{
    uint64_t deadline_ns = clock_now_ns() + PATIENCE_NS;
    struct pollfd said = {.fd = c->fds[rank], .events = POLLIN};
    while (poll(&said, 1, clock_poll_ms(deadline_ns, clock_now_ns())) < 0 && errno == EINTR) {
    }
    if (!said.revents)
        return -ETIMEDOUT;
    return read(c->fds[rank], ret_word, 1) == 1 ? 0 : -ECHILD;
}

uint32_t crowd_iterations(const struct crowd *c) { return atomic_load(&c->boards[0].iterations); }

int crowd_await(struct crowd *c, uint32_t iterations)
{
    int r = 0;
    char word;
    while (r == 0 && crowd_iterations(c) < iterations)
        r = hear(c, 0, &word);
    return r;
}

static int await_pause(struct crowd *c, uint32_t rank)
{
    char word = 0;
    int r = 0;
    while (r == 0 && word != 'p')
        r = hear(c, rank, &word);
    return r;
}

int crowd_order(struct crowd *c, enum trainee_order order)
{
    int r = 0;
    atomic_store(&c->boards[0].order, order);
    for (uint32_t rank = 0; r == 0 && order != TRAINEE_END && rank < c->workers; rank++)
        r = await_pause(c, rank);
    for (uint32_t rank = 0; order == TRAINEE_END && rank < c->workers; rank++) {
        int code = process_reap(c->pids[rank], clock_now_ns() + PATIENCE_NS);
        r = r == 0 && code != 0 ? -ECHILD : r;
        c->pids[rank] = 0;
    }
    return r;
}

int crowd_go_on(struct crowd *c)
{
    for (uint32_t rank = 0; rank < c->workers; rank++)
        if (send(c->fds[rank], "g", 1, MSG_NOSIGNAL) != 1)
            return -ECHILD;
    return 0;
}

double crowd_lap_ms(const struct crowd *c, uint32_t iteration)
{
    uint64_t begin_ns = UINT64_MAX, end_ns = 0;
    for (uint32_t rank = 0; rank < c->workers; rank++) {
        const struct trainee_lap *lap = &c->boards[rank].laps[iteration];
        begin_ns = lap->begin_ns < begin_ns ? lap->begin_ns : begin_ns;
        end_ns = lap->end_ns > end_ns ? lap->end_ns : end_ns;
    }
    return (double)(end_ns - begin_ns) / NS_PER_MS;
}

double crowd_aggregation_ms(const struct crowd *c, uint32_t iteration)
{
    const struct trainee_lap *lap = &c->boards[0].laps[iteration];
    return (double)(lap->done_ns - lap->pushed_ns) / NS_PER_MS;
}

double crowd_pause_ms(const struct crowd *c, uint32_t iteration)
{
    uint64_t begin_ns = UINT64_MAX, end_ns = 0;
    for (uint32_t rank = 0; rank < c->workers; rank++) {
        const struct trainee_lap *lap = &c->boards[rank].laps[iteration];
        begin_ns = lap->done_ns < begin_ns ? lap->done_ns : begin_ns;
        end_ns = lap->end_ns > end_ns ? lap->end_ns : end_ns;
    }
    return (double)(end_ns - begin_ns) / NS_PER_MS;
}

double crowd_cpu_ms(const struct crowd *c, uint32_t iteration)
{
    uint64_t cpu_ns = 0;
    for (uint32_t rank = 0; rank < c->workers; rank++)
        cpu_ns += c->boards[rank].laps[iteration].cpu_ns;
    return (double)cpu_ns / NS_PER_MS;
}

int64_t crowd_count_wrong(const struct crowd *c)
{
    int64_t wrong = trainee_count_wrong(&c->plan);
    uint32_t iterations = crowd_iterations(c);
    for (uint32_t rank = 1; wrong >= 0 && rank < c->workers; rank++)
        for (uint32_t i = 0; i < iterations; i++) {
            const struct trainee_lap *first = &c->boards[0].laps[i],
                                     *lap = &c->boards[rank].laps[i];
            wrong += (lap->load_sum != first->load_sum) + (lap->part_sum != first->part_sum);
        }
    return wrong;
}

uint32_t crowd_failed(const struct crowd *c)
{
    uint32_t failed = 0;
    for (uint32_t rank = 0; rank < c->workers; rank++)
        failed += c->boards[rank].code < 0;
    return failed;
}

void crowd_end(struct crowd *c)
{
    for (uint32_t rank = 0; rank < c->workers; rank++) {
        if (c->pids[rank] > 0)
            process_reap(c->pids[rank], 0);
        if (c->fds[rank] >= 0)
            close(c->fds[rank]);
    }
    if (c->boards)
        munmap(c->boards, boards_bytes(c));
    *c = (struct crowd){0};
}
