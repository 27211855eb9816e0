/* The script of a worker. The time of a gradient begins when the rank has new parameters, and
 * consists of the computation and a sleep. Rank 0, which is never slow, evaluates the loss. */
#include "bench/backup/live/crew_worker.h"

#include "bench/backup/training/virtual.h"
#include "bench/sim/chance.h"
#include "client/gradpool.h"
#include "svc/base/clock.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* number of consecutive evaluations at or below the target that end the run */
#define SMOOTHED 3
/* number of rounds after which all ranks stop once rank 0 has reached the target */
#define STOP_MARGIN 20
#define GOES_ON 2 /* result of gp_round_end() */

struct crew_worker {
    const struct crew_setting *setting;
    struct crew_board *board;
    struct crew_log *log;
    uint32_t rank;
    struct durations durations;
    gp_client *client;
    gp_job *job;
    gp_tensor *tensors[CREW_TENSORS];
    float *parameters, *gradient;
    uint64_t begun_ns;
    unsigned below; /* number of consecutive evaluations at or below the target so far */
    uint64_t absent;
};

static int worker_fail(const struct crew_worker *w, const char *what)
{
    fprintf(stderr, "gradpool-bench: rank %u: %s: %s\n", w->rank, what, gp_last_error());
    return 1;
}

static gp_backup_spec worker_backup(const struct grid_rule *rule)
{
    static const enum gp_backup_rule rules[BACKUP_RULES] = {[BACKUP_STATIC] = GP_BACKUP_STATIC,
                                                            [BACKUP_AUTO] = GP_BACKUP_AUTO,
                                                            [BACKUP_DBW] = GP_BACKUP_DBW,
                                                            [BACKUP_BLIND] = GP_BACKUP_BLIND,
                                                            [BACKUP_ADASYNC] = GP_BACKUP_ADASYNC};
    return (gp_backup_spec){.rule = rules[rule->rule],
                            .k = rule->k,
                            .absence = UINT32_MAX,
                            .gradients = rule->has_second ? VIRTUAL_SECOND_MOST : 1};
}

/* For the rule `all` the job joins with a static k that equals the number of ranks. A job without
 * backup workers counts no rounds, so its workers could not stop at the same round. */
static int worker_join(struct crew_worker *w)
{
    const struct crew_setting *s = w->setting;
    const gp_options options = {.transport = s->transport};
    gp_job_spec spec = {.name = s->job,
                        .rank = w->rank,
                        .workers = CREW_WORKERS,
                        .durability = GP_DURABILITY_NONE,
                        .backup = worker_backup(s->rule)};
    if (s->rule->rule == BACKUP_ALL)
        spec.backup =
            (gp_backup_spec){.rule = GP_BACKUP_STATIC, .k = CREW_WORKERS, .absence = UINT32_MAX};
    if (gp_connect(s->endpoint, &options, &w->client) < 0)
        return worker_fail(w, "connect");
    return gp_job_join(w->client, &spec, &w->job) < 0 ? worker_fail(w, "join") : 0;
}

static int worker_declare(struct crew_worker *w)
{
    static const char *const names[CREW_TENSORS] = {"a", "b", "c", "d"};
    gp_tensor_spec specs[CREW_TENSORS];
    void *memory[2];
    for (int i = 0; i < CREW_TENSORS; i++)
        specs[i] = (gp_tensor_spec){
            .name = names[i], .dtype = GP_F32, .elements = CREW_TENSOR_FLOATS, .rule = GP_SGD};
    if (gp_tensors_declare(w->job, specs, CREW_TENSORS, w->tensors) < 0)
        return worker_fail(w, "declare");
    for (int i = 0; i < 2; i++) {
        if (gp_alloc(w->job, CREW_FLOATS * sizeof(float), &memory[i]) < 0)
            return worker_fail(w, "memory");
    }
    w->parameters = memory[0];
    w->gradient = memory[1];
    crew_problem_start(w->parameters);
    for (int i = 0; i < CREW_TENSORS; i++) {
        gp_request *request;
        float *at = w->parameters + (size_t)i * CREW_TENSOR_FLOATS;
        if (gp_broadcast(w->tensors[i], at, 0, &request) < 0 || gp_wait(request, 0) < 0)
            return worker_fail(w, "broadcast");
    }
    return 0;
}

/* Draws the step times of this rank. All ranks use the same distribution of the job, but different
 * random numbers. */
static void worker_durations(struct crew_worker *w)
{
    const struct crew_setting *s = w->setting;
    durations_init(&w->durations, s->times, CREW_WORKERS, s->seed, s->jitter);
    w->durations.state = chance_hash(s->seed * 7919, w->rank);
}

static void worker_sleep_until(uint64_t until_ns)
{
    const struct timespec until = {.tv_sec = (time_t)(until_ns / NS_PER_S),
                                   .tv_nsec = (long)(until_ns % NS_PER_S)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) != 0)
        continue;
}

/* Pushes a gradient and ends the round. Returns 0 or 1, whether the gradient was dropped; GOES_ON,
 * if another gradient on the same parameters is wanted; or a negative value. */
static int worker_push(struct crew_worker *w, double loss, gp_round *ret_round)
{
    const gp_settings settings = {.rate = CREW_RATE};
    gp_item items[CREW_TENSORS];
    gp_request *request;
    for (int i = 0; i < CREW_TENSORS; i++) {
        size_t first = (size_t)i * CREW_TENSOR_FLOATS;
        items[i] = (gp_item){w->tensors[i], w->gradient + first, w->parameters + first};
    }
    if (gp_update_group(w->job, items, CREW_TENSORS, &settings, &request) < 0)
        return -1;
    int is_dropped = gp_round_end(w->job, loss, 0, ret_round);
    if (is_dropped == GOES_ON)
        return GOES_ON;
    return is_dropped < 0 || gp_wait(request, 0) < 0 ? -1 : is_dropped;
}

static uint64_t worker_digest(const float *parameters)
{
    uint64_t digest = UINT64_C(0xcbf29ce484222325), word;
    for (size_t i = 0; i < CREW_FLOATS; i += 2) {
        memcpy(&word, &parameters[i], sizeof word);
        digest = (digest ^ word) * UINT64_C(0x9e3779b97f4a7c15);
        digest ^= digest >> 32;
    }
    return digest ? digest : 1;
}

static void worker_note(struct crew_worker *w, const gp_round *round, bool is_dropped)
{
    struct crew_log *log = w->log;
    log->ends++;
    log->dropped += round->missed;
    w->absent = is_dropped ? w->absent + round->missed : 0;
    log->absence = w->absent > log->absence ? w->absent : log->absence;
    log->last = round->number;
    memcpy(log->parameters, w->parameters, sizeof log->parameters);
    if (round->number >= CREW_ROUNDS_MAX)
        return;
    log->digests[round->number] = worker_digest(w->parameters);
    log->counted[round->number] = (uint8_t)round->counted;
}

/* Evaluates the loss on rank 0, and announces the last round after SMOOTHED consecutive evaluations
 * at or below the target. */
static void worker_evaluate(struct crew_worker *w, const struct crew_problem *problem,
                            uint64_t round)
{
    struct crew_board *board = w->board;
    double loss = crew_problem_loss(problem, w->parameters);
    w->below = loss <= w->setting->target ? w->below + 1 : 0;
    bool is_over = w->below >= SMOOTHED || round >= CREW_ROUNDS_MAX - 2 * STOP_MARGIN;
    if (!is_over || board->stop_round > 0)
        return;
    if (w->below >= SMOOTHED)
        board->reached_s = (double)clock_now_ns() / 1e9;
    board->reached_round = round;
    __atomic_store_n(&board->stop_round, round + STOP_MARGIN, __ATOMIC_RELEASE);
}

static int worker_train(struct crew_worker *w, struct crew_problem *problem)
{
    gp_round round = {0};
    uint64_t stop = 0;
    w->begun_ns = clock_now_ns();
    if (w->rank == 0)
        w->board->begun_s = (double)w->begun_ns / 1e9;
    while (stop == 0 || round.number < stop) {
        uint64_t now_ns = clock_now_ns();
        double at = (double)(now_ns - w->begun_ns) / (double)w->setting->unit_ns;
        double units = durations_draw(&w->durations, w->rank, at);
        double loss = crew_problem_gradient(problem, w->parameters, w->gradient);
        worker_sleep_until(now_ns + (uint64_t)(units * (double)w->setting->unit_ns));
        int is_dropped = worker_push(w, loss, &round);
        if (is_dropped < 0)
            return worker_fail(w, "round");
        if (is_dropped == GOES_ON)
            continue;
        worker_note(w, &round, is_dropped > 0);
        if (w->rank == 0)
            worker_evaluate(w, problem, round.number);
        stop = __atomic_load_n(&w->board->stop_round, __ATOMIC_ACQUIRE);
    }
    return 0;
}

int crew_work(const struct crew_setting *setting, uint32_t rank, struct crew_board *board)
{
    struct crew_worker w = {
        .setting = setting, .board = board, .log = &board->logs[rank], .rank = rank};
    struct crew_problem *problem = malloc(sizeof *problem);
    if (!problem)
        return 1;
    crew_problem_init(problem, setting->seed, rank);
    worker_durations(&w);
    int code = worker_join(&w) || worker_declare(&w) || worker_train(&w, problem);
    if (w.client)
        gp_disconnect(w.client);
    free(problem);
    return code;
}
