/* Conducts `faults`: jobs train, their tasks move, and something happens to some process of theirs
 * or of the service, again and again. A job that has failed is started anew. Owns the service and
 * all workers. Must never let a worker go that did not end: that is a hang. */
#include "bench/faults/faults.h"

#include "bench/compare/host.h"
#include "bench/compare/own_service.h"
#include "bench/faults/roam.h"
#include "bench/faults/strike.h"
#include "bench/faults/victim.h"
#include "bench/savings/look.h"
#include "svc/base/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define JOBS 4 /* sums over shm and tcp, update rules over both */
#define WORKERS 2
#define CALM_MS_MIN 200
#define CALM_MS_MAX 1200
#define STOP_MS_MAX 2500
#define MOVE_MS_MAX 80         /* from its order to what happens next */
#define END_NS (40 * NS_PER_S) /* of a worker whose job has failed, or is to end */

struct trainer {
    pid_t pid; /* 0: gone */
    int fd;    /* pidfd */
};

struct job {
    char name[32];
    uint32_t number; /* how often it was started */
    struct trainer trainers[WORKERS];
    uint64_t broken_ns; /* since when somebody is gone; 0: nobody is */
    bool is_hurt;       /* something was done to it that ends a job */
};

struct conductor {
    const struct faults *about;
    struct faults_result *result;
    struct service service;
    struct service_setting setting;
    struct job jobs[JOBS];
    struct victim_board *boards; /* of all; shared */
    struct roam roam;
    uint64_t random;
};

static uint32_t draw(struct conductor *c, uint32_t below)
{
    c->random = c->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(c->random >> 33) % below;
}

static struct victim_board *board_of(struct conductor *c, size_t job, uint32_t rank)
{
    return &c->boards[job * WORKERS + rank];
}

/* --- jobs --- */

static int start_worker(struct conductor *c, size_t job, uint32_t rank)
{
    static const char *const transports[] = {"shm", "tcp"};
    struct trainer *t = &c->jobs[job].trainers[rank];
    const struct victim victim = {.endpoint = c->service.endpoint,
                                  .transport = transports[job % 2],
                                  .job = c->jobs[job].name,
                                  .rank = rank,
                                  .workers = WORKERS,
                                  .updates = job >= JOBS / 2,
                                  .seed = c->about->seed + c->jobs[job].number,
                                  .board = board_of(c, job, rank)};
    memset(victim.board, 0, sizeof *victim.board);
    fflush(NULL); /* or the child would print it again */
    pid_t pid = process_fork(SIGKILL);
    if (pid == 0) {
        setenv("GRADPOOL_TIMEOUT_MS", "15000", 1);
        _exit(victim_run(&victim) < 0 ? 1 : 0);
    }
    *t = (struct trainer){pid > 0 ? pid : 0, pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1};
    return pid < 0 ? -errno : 0;
}

static int start_job(struct conductor *c, size_t job)
{
    struct job *j = &c->jobs[job];
    int r = 0;
    j->broken_ns = 0;
    j->is_hurt = false;
    snprintf(j->name, sizeof j->name, "job-%zu-%u", job, ++j->number);
    for (uint32_t rank = 0; r == 0 && rank < WORKERS; rank++)
        r = start_worker(c, job, rank);
    return r;
}

/* Whoever is named may be looked for: a rank, a process, a connection of somebody. */
static bool names_a_cause(const char *text)
{
    static const char *const words[] = {"rank",        "aggregator", "lane",
                                        "coordinator", "service",    "gradpool serve"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strstr(text, words[i]))
            return true;
    return false;
}

/* What there is a copy of is not lost; and without a loss that ends a job there is none. */
static void note_error(struct conductor *c, const struct job *job, uint32_t rank,
                       const struct victim_board *board)
{
    const char *verdict = !names_a_cause(board->text)  ? "   <- names nobody"
                          : board->code == -EOWNERDEAD ? "   <- there were copies"
                          : !job->is_hurt              ? "   <- nothing was done to it"
                                                       : "";
    c->result->errors++;
    c->result->unnamed += *verdict != 0;
    fprintf(stderr, "# %s, rank %u: %s%s\n", job->name, rank, board->text, verdict);
}

static void take_figures(struct conductor *c, size_t job, uint32_t rank)
{
    const struct victim_board *board = board_of(c, job, rank);
    struct faults_result *result = c->result;
    result->rounds += board->rounds;
    result->elements_checked += board->elements_checked;
    result->wrong += board->wrong;
    result->hangs += board->hangs;
    if (board->longest_wait_ns > result->longest_wait_ns)
        result->longest_wait_ns = board->longest_wait_ns;
    if (board->code < 0)
        note_error(c, &c->jobs[job], rank, board);
}

static void bury(struct conductor *c, size_t job, uint32_t rank)
{
    struct trainer *t = &c->jobs[job].trainers[rank];
    process_reap(t->pid, clock_now_ns() + NS_PER_S);
    close(t->fd);
    *t = (struct trainer){.fd = -1};
    take_figures(c, job, rank);
}

static size_t count_alive(const struct job *j)
{
    size_t alive = 0;
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        alive += j->trainers[rank].pid > 0;
    return alive;
}

static void bury_the_dead(struct conductor *c, size_t job)
{
    struct job *j = &c->jobs[job];
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        struct pollfd end = {.fd = j->trainers[rank].fd, .events = POLLIN};
        if (j->trainers[rank].pid > 0 && poll(&end, 1, 0) == 1)
            bury(c, job, rank);
    }
    if (count_alive(j) < WORKERS && j->broken_ns == 0)
        j->broken_ns = clock_now_ns();
}

/* Those that should have ended by now never will. */
static void end_the_hung(struct conductor *c, size_t job)
{
    struct job *j = &c->jobs[job];
    if (j->broken_ns == 0 || clock_now_ns() < j->broken_ns + END_NS)
        return;
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        if (j->trainers[rank].pid > 0) {
            fprintf(stderr, "# %s, rank %u hangs\n", j->name, rank);
            c->result->hangs++;
            kill(j->trainers[rank].pid, SIGKILL);
            bury(c, job, rank);
        }
}

static int tend(struct conductor *c, bool starts_anew)
{
    int r = 0;
    for (size_t job = 0; r == 0 && job < JOBS; job++) {
        bury_the_dead(c, job);
        end_the_hung(c, job);
        if (starts_anew && count_alive(&c->jobs[job]) == 0)
            r = start_job(c, job);
    }
    return r;
}

/* Until then, or until a worker ends. */
static void sleep_until(const struct conductor *c, uint64_t until_ns)
{
    struct pollfd ends[JOBS * WORKERS];
    for (size_t i = 0; i < JOBS * WORKERS; i++)
        ends[i] =
            (struct pollfd){.fd = c->jobs[i / WORKERS].trainers[i % WORKERS].fd, .events = POLLIN};
    (void)poll(ends, JOBS * WORKERS, clock_poll_ms(until_ns, clock_now_ns()));
}

static int be_calm(struct conductor *c, uint64_t until_ns)
{
    int r = 0;
    while (r == 0 && clock_now_ns() < until_ns) {
        sleep_until(c, until_ns);
        r = tend(c, true);
    }
    return r;
}

/* --- strikes --- */

/* Never the last that is up: the jobs need one. */
static pid_t some_aggregator(struct conductor *c)
{
    pid_t pids[SERVICE_PROCESSES_MAX];
    int count = look_at_aggregators(&c->service, pids, SERVICE_PROCESSES_MAX);
    return count > 1 ? pids[draw(c, (uint32_t)count)] : 0;
}

/* It may be gone. */
static const struct trainer *some_worker(struct conductor *c, size_t *ret_number)
{
    size_t i = draw(c, JOBS * WORKERS);
    *ret_number = i;
    return &c->jobs[i / WORKERS].trainers[i % WORKERS];
}

static int kill_aggregator(struct conductor *c)
{
    pid_t pid = some_aggregator(c);
    if (pid > 0 && kill(pid, SIGKILL) == 0)
        c->result->kills_aggregator++;
    return 0;
}

static int kill_worker(struct conductor *c)
{
    size_t number;
    const struct trainer *t = some_worker(c, &number);
    if (t->pid <= 0 || kill(t->pid, SIGKILL) < 0)
        return 0;
    c->jobs[number / WORKERS].is_hurt = true;
    c->result->kills_worker++;
    return 0;
}

static int kill_coordinator(struct conductor *c)
{
    kill(c->service.coordinator, SIGKILL);
    process_reap(c->service.coordinator, clock_now_ns() + NS_PER_S);
    c->service.coordinator = 0;
    c->result->kills_coordinator++;
    int r = be_calm(c, clock_now_ns() + draw(c, 1000) * NS_PER_MS);
    return r == 0 ? service_start_again(&c->service, &c->setting) : r;
}

static int stop_somebody(struct conductor *c)
{
    size_t number = JOBS * WORKERS;
    uint32_t kind = draw(c, 3);
    pid_t pid = kind == 0   ? some_aggregator(c)
                : kind == 1 ? some_worker(c, &number)->pid
                            : c->service.coordinator;
    if (pid <= 0 || kill(pid, SIGSTOP) < 0)
        return 0;
    c->result->stops++;
    if (number < JOBS * WORKERS)
        atomic_fetch_add(&c->boards[number].stops, 1);
    const uint64_t stop_ns = (100 + draw(c, STOP_MS_MAX - 100)) * NS_PER_MS;
    const struct timespec nap = {(time_t)(stop_ns / NS_PER_S), (long)(stop_ns % NS_PER_S)};
    nanosleep(&nap, NULL); /* who dies meanwhile is buried later, so the number stays its own */
    kill(pid, SIGCONT);
    return 0;
}

/* An aggregator's connection may be with any job. */
static int cut_somebody(struct conductor *c)
{
    size_t number = JOBS * WORKERS;
    pid_t pid = draw(c, 3) == 0 ? some_aggregator(c) : some_worker(c, &number)->pid;
    if (pid <= 0 || strike_cut(pid, draw(c, 256)) < 0)
        return 0;
    for (size_t job = 0; job < JOBS; job++)
        c->jobs[job].is_hurt |= number == JOBS * WORKERS || job == number / WORKERS;
    c->result->cuts++;
    return 0;
}

/* So that what happens next happens in the midst of it, now and then. */
static int move_somebody(struct conductor *c)
{
    uint32_t chance = draw(c, 1 << 16);
    roam_begin(&c->roam, c->jobs[draw(c, JOBS)].name, chance);
    return be_calm(c, clock_now_ns() + draw(c, MOVE_MS_MAX) * NS_PER_MS);
}

static int strike(struct conductor *c)
{
    static int (*const ways[])(struct conductor * c) = {
        kill_aggregator, kill_worker, kill_coordinator, stop_somebody, cut_somebody, stop_somebody};
    return ways[draw(c, sizeof ways / sizeof *ways)](c);
}

/* --- all --- */

static int rage(struct conductor *c)
{
    uint64_t end_ns = clock_now_ns() + c->about->seconds * NS_PER_S;
    int r = 0;
    for (size_t job = 0; r == 0 && job < JOBS; job++)
        r = start_job(c, job);
    if (r == 0)
        r = be_calm(c, clock_now_ns() + NS_PER_S);
    while (r == 0 && clock_now_ns() < end_ns) {
        r = draw(c, 4) > 0 ? move_somebody(c) : 0;
        if (r == 0)
            r = strike(c);
        uint64_t calm_ms = CALM_MS_MIN + draw(c, CALM_MS_MAX - CALM_MS_MIN);
        if (r == 0)
            r = be_calm(c, clock_now_ns() + calm_ms * NS_PER_MS);
    }
    return r;
}

/* Every worker ends, by itself or as a hang. */
static int let_end(struct conductor *c)
{
    uint64_t now_ns = clock_now_ns();
    size_t alive = 1;
    for (size_t job = 0; job < JOBS; job++) {
        atomic_store(&board_of(c, job, 0)->ends, 1);
        c->jobs[job].broken_ns = c->jobs[job].broken_ns ? c->jobs[job].broken_ns : now_ns;
    }
    while (alive > 0) {
        int r = tend(c, false);
        if (r < 0)
            return r;
        alive = 0;
        for (size_t job = 0; job < JOBS; job++)
            alive += count_alive(&c->jobs[job]);
        if (alive > 0)
            sleep_until(c, clock_now_ns() + NS_PER_S);
    }
    return 0;
}

static int run(struct conductor *c)
{
    size_t bytes = JOBS * WORKERS * sizeof *c->boards;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return -errno;
    c->boards = memory;
    c->roam.service = &c->service;
    int r = service_start_as(&c->service, &c->setting);
    if (r == 0) {
        r = rage(c);
        int ended = let_end(c);
        r = r < 0 ? r : ended;
        roam_end(&c->roam);
        fprintf(stderr, "# moves: %" PRIu64 " ordered, %" PRIu64 " done as ordered\n",
                c->roam.asked, c->roam.done);
    }
    pid_t aggregators[SERVICE_PROCESSES_MAX];
    int count = c->service.coordinator > 0
                    ? look_at_aggregators(&c->service, aggregators, SERVICE_PROCESSES_MAX)
                    : 0;
    service_stop(&c->service);
    for (int i = 0; i < count; i++) /* those of a former coordinator are nobody's children */
        kill(aggregators[i], SIGTERM);
    munmap(memory, bytes);
    return r;
}

int faults_run(const struct faults *faults, struct faults_result *ret_result)
{
    char cores[32];
    struct faults_result result = {0};
    snprintf(cores, sizeof cores, "%d,%d", process_core(0), process_core(1));
    struct conductor c = {.about = faults,
                          .result = &result,
                          .random = faults->seed + 1,
                          .setting = {.cores = process_core(0) == process_core(1) ? NULL : cores,
                                      .aggregators = "2",
                                      .scale = "off",
                                      .piece_max = "262144",
                                      .lanes_per_core = "2"}};
    for (size_t i = 0; i < JOBS * WORKERS; i++)
        c.jobs[i / WORKERS].trainers[i % WORKERS].fd = -1;
    int r = run(&c);
    if (r == 0)
        *ret_result = result;
    return r;
}
