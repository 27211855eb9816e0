/* Workers that sleep and push (B2), and the board with their orders to pause and stop. Owns the
 * processes and the memory shared with them. Must never compute during measured rounds. */
#include "bench/stragglers/herd.h"

#include "bench/lib/host.h"
#include "bench/lib/model_worker.h"
#include "svc/base/clock.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define WAIT_MS 60000
#define DEADLINE_NS (60 * NS_PER_S)
#define END_NS (20 * NS_PER_S)

/* --- the board --- */

static struct herd_board *board_create(void)
{
    pthread_mutexattr_t mutex;
    pthread_condattr_t condition;
    struct herd_board *b =
        mmap(NULL, sizeof *b, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (b == MAP_FAILED)
        return NULL;
    b->stop_after = b->pause_after = UINT32_MAX;
    pthread_mutexattr_init(&mutex);
    pthread_mutexattr_setpshared(&mutex, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&b->lock, &mutex);
    pthread_mutexattr_destroy(&mutex);
    pthread_condattr_init(&condition);
    pthread_condattr_setpshared(&condition, PTHREAD_PROCESS_SHARED);
    pthread_condattr_setclock(&condition, CLOCK_MONOTONIC);
    pthread_cond_init(&b->changed, &condition);
    pthread_condattr_destroy(&condition);
    return b;
}

static int board_wait(struct herd_board *b, uint64_t deadline_ns)
{
    const struct timespec until = {(time_t)(deadline_ns / NS_PER_S),
                                   (long)(deadline_ns % NS_PER_S)};
    return -pthread_cond_timedwait(&b->changed, &b->lock, &until);
}

/* --- a worker --- */

struct worker {
    const struct herd_setting *setting;
    struct herd_board *board;
    struct model_worker client;
};

static void sleep_ns(uint64_t ns)
{
    struct timespec left = {(time_t)(ns / NS_PER_S), (long)(ns % NS_PER_S)};
    while (nanosleep(&left, &left) < 0 && errno == EINTR) {
    }
}

static void check(struct worker *w, uint32_t round)
{
    uint64_t wrong = model_worker_count_wrong(&w->client, round);
    pthread_mutex_lock(&w->board->lock);
    w->board->wrong += wrong;
    w->board->checked++;
    pthread_mutex_unlock(&w->board->lock);
}

/* Returns false after the last round. The result is the same on all ranks, because an order applies
 * to a round that no rank has begun: two rounds ahead. */
static bool may_go_on(struct worker *w, uint32_t round)
{
    struct herd_board *b = w->board;
    pthread_mutex_lock(&b->lock);
    b->paused++;
    while (round >= b->pause_after && round < b->stop_after) {
        pthread_cond_broadcast(&b->changed);
        pthread_cond_wait(&b->changed, &b->lock);
    }
    b->paused--;
    bool goes_on = round < b->stop_after;
    pthread_mutex_unlock(&b->lock);
    return goes_on;
}

static void note_end(struct worker *w, uint32_t round)
{
    struct herd_board *b = w->board;
    if (w->client.rank != 0)
        return;
    pthread_mutex_lock(&b->lock);
    b->ended_ns[round] = clock_now_ns();
    b->rounds = round + 1;
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
}

static int run_round(struct worker *w, uint32_t round)
{
    gp_request *request;
    size_t count = w->setting->model->tensors_count;
    model_worker_stamp(&w->client, round + 1);
    sleep_ns(w->setting->step_ns);
    int r = gp_push_pull_group(w->client.membership, w->client.items, count, GP_SUM, &request);
    if (r == 0)
        r = gp_wait(request, WAIT_MS);
    if (r < 0)
        return model_worker_complain(&w->client, "round", r);
    note_end(w, round);
    return 0;
}

static int work(struct worker *w)
{
    if (w->setting->is_bound)
        process_bind(w->setting->core);
    int r = model_worker_come(&w->client);
    uint32_t round = 0;
    for (; r == 0 && round < HERD_ROUNDS_MAX && may_go_on(w, round); round++) {
        r = run_round(w, round);
        if (r == 0 && round == 0)
            check(w, round + 1);
    }
    if (r == 0)
        check(w, round);
    model_worker_go(&w->client);
    return r;
}

/* --- all of them --- */

int herd_start(struct herd *herd, const struct herd_setting *setting)
{
    *herd = (struct herd){.setting = *setting, .board = board_create()};
    if (!herd->board)
        return -ENOMEM;
    for (uint32_t rank = 0; rank < setting->workers; rank++) {
        struct worker w = {.setting = &herd->setting,
                           .board = herd->board,
                           .client = {.endpoint = setting->endpoint,
                                      .transport = setting->transport,
                                      .job = setting->job,
                                      .rank = rank,
                                      .workers = setting->workers,
                                      .model = setting->model,
                                      .bytes_scale = setting->bytes_scale}};
        fflush(NULL); /* otherwise the child would print the buffered text again */
        pid_t pid = process_fork(SIGKILL);
        if (pid < 0)
            return -errno;
        if (pid == 0)
            _exit(work(&w) < 0 ? 1 : 0);
        herd->workers[rank] = pid;
    }
    return 0;
}

int herd_await(struct herd *herd, uint32_t rounds)
{
    struct herd_board *b = herd->board;
    int r = 0;
    pthread_mutex_lock(&b->lock);
    while (r == 0 && b->rounds < rounds) {
        uint32_t before = b->rounds;
        uint64_t deadline_ns = clock_now_ns() + DEADLINE_NS;
        while (r == 0 && b->rounds == before)
            r = board_wait(b, deadline_ns);
    }
    uint32_t done = b->rounds;
    pthread_mutex_unlock(&b->lock);
    if (r < 0)
        fprintf(stderr, "gradpool-bench: no further round ended after %u of %u rounds\n", done,
                rounds);
    return r;
}

uint32_t herd_rounds(struct herd *herd)
{
    pthread_mutex_lock(&herd->board->lock);
    uint32_t rounds = herd->board->rounds;
    pthread_mutex_unlock(&herd->board->lock);
    return rounds;
}

/* Orders the pause for a later round, because the ranks differ by up to one round. */
int herd_pause(struct herd *herd)
{
    struct herd_board *b = herd->board;
    uint64_t deadline_ns = clock_now_ns() + DEADLINE_NS;
    int r = 0;
    pthread_mutex_lock(&b->lock);
    b->pause_after = b->rounds + 3;
    while (r == 0 && (b->rounds < b->pause_after || b->paused < herd->setting.workers))
        r = board_wait(b, deadline_ns);
    pthread_mutex_unlock(&b->lock);
    return r;
}

void herd_go_on(struct herd *herd)
{
    pthread_mutex_lock(&herd->board->lock);
    herd->board->pause_after = UINT32_MAX;
    pthread_cond_broadcast(&herd->board->changed);
    pthread_mutex_unlock(&herd->board->lock);
}

/* Waits for the ends of all workers, also after a failure of one. */
static int reap(struct herd *herd)
{
    int r = 0;
    for (uint32_t i = 0; i < HERD_WORKERS_MAX; i++) {
        int code = 0;
        if (herd->workers[i] > 0)
            code = process_reap(herd->workers[i], clock_now_ns() + END_NS);
        if (code != 0) {
            fprintf(stderr, "gradpool-bench: worker %u failed: exit code %d\n", i, code);
            r = -EIO;
        }
        herd->workers[i] = 0;
    }
    return r;
}

/* Returns an error if a worker has checked no result, because such a worker would count as
 * correct. */
static int demand_checks(const struct herd *herd, const struct herd_checks *checks)
{
    uint64_t due = UINT64_C(2) * herd->setting.workers;
    if (checks->checked == due)
        return 0;
    fprintf(stderr, "gradpool-bench: results were checked %llu times, not %llu\n",
            (unsigned long long)checks->checked, (unsigned long long)due);
    return -EIO;
}

int herd_stop(struct herd *herd, struct herd_checks *ret_checks)
{
    *ret_checks = (struct herd_checks){0};
    if (!herd->board)
        return 0;
    pthread_mutex_lock(&herd->board->lock);
    herd->board->stop_after = herd->board->rounds + 3;
    pthread_cond_broadcast(&herd->board->changed);
    pthread_mutex_unlock(&herd->board->lock);
    int r = reap(herd);
    *ret_checks = (struct herd_checks){herd->board->wrong, herd->board->checked};
    munmap(herd->board, sizeof *herd->board);
    herd->board = NULL;
    return r < 0 ? r : demand_checks(herd, ret_checks);
}

void herd_times(struct herd *herd, uint32_t first, uint32_t end, double *ret_ns)
{
    pthread_mutex_lock(&herd->board->lock);
    for (uint32_t i = first; i < end; i++)
        ret_ns[i - first] =
            (double)(herd->board->ended_ns[i] - (i ? herd->board->ended_ns[i - 1] : 0));
    pthread_mutex_unlock(&herd->board->lock);
}
