/* The worker of `faults`, an ordinary client (B2). Owns its client and its memory. Ends at the
 * first failure with its text; the job is then restarted. */
#include "bench/faults/worker/victim.h"

#include "bench/faults/worker/replay.h"
#include "bench/faults/worker/timed.h"
#include "bench/lib/gradient.h"
#include "svc/base/clock.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define TENSORS_MAX 5
#define CONNECT_NS (10 * NS_PER_S) /* time-out of gp_connect(), and of all attempts together */
#define DECLARE_NS (15 * NS_PER_S) /* deadline of gp_tensors_declare(); equal to VICTIM_TIMEOUT */
#define LEAVE_NS (10 * NS_PER_S)   /* deadline of gp_job_leave() */
#define CONNECT_AGAIN_NS (50 * NS_PER_MS)
#define LONG_WAIT_NS (4 * NS_PER_S)
#define TRIES 3 /* number of attempts of a wait that has timed out */

/* A tensor of the job. The first tensor announces the end of the run. Its memory is private, so
 * lanes cannot read this memory in place. */
struct plan {
    uint64_t elements;
    enum gp_rule rule;
    bool is_private;
};

static const struct plan sums[] = {{.elements = 1}, {1000}, {100000}, {300000}};
static const struct plan updates[] = {{.elements = 1},
                                      {1000, GP_MOMENTUM, true},
                                      {1500, GP_ADAM},
                                      {100000, GP_MOMENTUM},
                                      {60000, GP_ADAM, true}};

bool victim_rule(size_t tensor, struct victim_rule *ret_rule)
{
    if (tensor < 1 || tensor >= sizeof updates / sizeof *updates)
        return false;
    *ret_rule = (struct victim_rule){updates[tensor].elements, updates[tensor].rule};
    return true;
}

struct worker {
    const struct victim *about;
    const struct plan *plan;
    size_t tensors_count;
    gp_client *client;
    gp_job *job;
    gp_tensor *tensors[TENSORS_MAX];
    gp_item items[TENSORS_MAX];
    struct replay replays[TENSORS_MAX]; /* replays of tensors with an update rule */
    uint64_t round;
};

int victim_fail(struct victim_board *board, int code)
{
    const char *text = gp_last_error();
    snprintf(board->text, sizeof board->text, "%s", *text ? text : gp_strerror(code));
    board->failed_ns = clock_now_ns();
    return code;
}

/* --- join and leave --- */

/* Returns whether the coordinator was just killed and will be restarted. */
static bool is_away(int code)
{
    return code == -ECONNREFUSED || code == -ECONNRESET || code == -ENOENT;
}

static int join_once(struct victim_board *board, gp_client *client, const gp_job_spec *spec,
                     gp_job **ret_job)
{
    struct call call = call_begin(board, "gp_job_join", CONNECT_NS);
    return call_end(&call, gp_job_join(client, spec, ret_job));
}

int victim_join(struct victim_board *board, gp_client *client, const gp_job_spec *spec,
                gp_job **ret_job)
{
    const struct timespec again = {0, CONNECT_AGAIN_NS};
    uint64_t deadline_ns = clock_now_ns() + CONNECT_NS;
    int r = join_once(board, client, spec, ret_job);
    while (is_away(r) && clock_now_ns() < deadline_ns) {
        call_judge(board, "gp_job_join", r, gp_last_error());
        nanosleep(&again, NULL);
        r = join_once(board, client, spec, ret_job);
    }
    return r;
}

static int connect_once(struct victim_board *board, const char *endpoint, const gp_options *options,
                        gp_client **ret_client)
{
    struct call call = call_begin(board, "gp_connect", CONNECT_NS);
    return call_end(&call, gp_connect(endpoint, options, ret_client));
}

int victim_connect(struct victim_board *board, const char *endpoint, const char *transport,
                   gp_client **ret_client)
{
    const struct timespec again = {0, CONNECT_AGAIN_NS};
    const gp_options options = {.transport = transport};
    uint64_t deadline_ns = clock_now_ns() + CONNECT_NS;
    int r = connect_once(board, endpoint, &options, ret_client);
    while (is_away(r) && clock_now_ns() < deadline_ns) {
        call_judge(board, "gp_connect", r, gp_last_error());
        nanosleep(&again, NULL);
        r = connect_once(board, endpoint, &options, ret_client);
    }
    return r;
}

int victim_declare(struct victim_board *board, gp_job *job, const gp_tensor_spec *specs,
                   size_t count, gp_tensor **ret_tensors)
{
    struct call call = call_begin(board, "gp_tensors_declare", DECLARE_NS);
    return call_end(&call, gp_tensors_declare(job, specs, count, ret_tensors));
}

void victim_leave(struct victim_board *board, gp_job *job)
{
    struct call call = call_begin(board, "gp_job_leave", LEAVE_NS);
    gp_job_leave(job);
    call_end(&call, 0);
}

static int declare(struct worker *w)
{
    gp_tensor_spec specs[TENSORS_MAX];
    char names[TENSORS_MAX][16];
    for (size_t i = 0; i < w->tensors_count; i++) {
        snprintf(names[i], sizeof names[i], "tensor.%zu", i);
        specs[i] = (gp_tensor_spec){.name = names[i],
                                    .dtype = GP_F32,
                                    .elements = w->plan[i].elements,
                                    .rule = w->plan[i].rule};
    }
    return victim_declare(w->about->board, w->job, specs, w->tensors_count, w->tensors);
}

static int allocate_one(struct worker *w, const struct plan *plan, void **ret_memory)
{
    if (!plan->is_private)
        return gp_alloc(w->job, plan->elements * sizeof(float), ret_memory);
    *ret_memory = calloc(plan->elements, sizeof(float));
    return *ret_memory ? 0 : -ENOMEM;
}

static int allocate(struct worker *w)
{
    int r = 0;
    for (size_t i = 0; r == 0 && i < w->tensors_count; i++) {
        void *gradient = NULL, *result = NULL;
        r = allocate_one(w, &w->plan[i], &gradient);
        if (r == 0)
            r = allocate_one(w, &w->plan[i], &result);
        w->items[i] = (gp_item){w->tensors[i], gradient, result};
    }
    return r;
}

static int prepare_replays(struct worker *w)
{
    int r = 0;
    for (size_t i = 1; w->about->updates && r == 0 && i < w->tensors_count; i++) {
        w->replays[i] = (struct replay){.rule = (enum update_rule)w->plan[i].rule,
                                        .seed = w->about->seed,
                                        .tensor = i,
                                        .elements = w->plan[i].elements,
                                        .workers = w->about->workers};
        r = replay_init(&w->replays[i]);
    }
    return r;
}

static int come(struct worker *w)
{
    const struct victim *a = w->about;
    const gp_job_spec spec = {
        .name = a->job, .rank = a->rank, .workers = a->workers, .durability = a->durability};
    w->plan = a->updates ? updates : sums;
    w->tensors_count = a->updates ? sizeof updates / sizeof *updates : sizeof sums / sizeof *sums;
    int r = prepare_replays(w);
    if (r == 0)
        r = victim_connect(a->board, a->endpoint, a->transport, &w->client);
    if (r == 0)
        r = victim_join(a->board, w->client, &spec, &w->job);
    if (r == 0)
        r = declare(w);
    if (r == 0)
        r = allocate(w);
    return r < 0 ? victim_fail(w->about->board, r) : 0;
}

static void go(struct worker *w)
{
    if (w->job)
        victim_leave(w->about->board, w->job);
    gp_disconnect(w->client);
    for (size_t i = 0; i < w->tensors_count; i++) {
        replay_fini(&w->replays[i]);
        if (!w->plan[i].is_private)
            continue;
        free((void *)w->items[i].gradient);
        free(w->items[i].result);
    }
}

/* --- waiting --- */

/* Records the duration of a wait, unless the bench stopped the process meanwhile. */
static void note_wait(const struct call *call)
{
    struct victim_board *board = call->board;
    uint64_t waited_ns = clock_now_ns() - call->began_ns;
    if (atomic_load(&board->stops) != call->stops)
        return;
    if (waited_ns > LONG_WAIT_NS)
        fprintf(stderr, "# a wait of pid %d took %.3f s\n", (int)getpid(),
                (double)waited_ns / NS_PER_S);
    if (waited_ns > board->longest_wait_ns)
        board->longest_wait_ns = waited_ns;
}

/* Repeats a wait that has timed out. Strikes and stops delay a round by less time than all attempts
 * together, so if all attempts fail, the service has lost the round. */
int victim_wait(struct victim_board *board, gp_request *request)
{
    int r = -ETIMEDOUT;
    for (int try = 0; r == -ETIMEDOUT && try < TRIES; try++) {
        struct call call = call_begin(board, "gp_wait", VICTIM_WAIT_MS * NS_PER_MS);
        r = call_end(&call, gp_wait(request, VICTIM_WAIT_MS));
        note_wait(&call);
        if (r == -ETIMEDOUT)
            call_judge(board, call.name, r, gp_last_error());
    }
    board->hangs += r == -ETIMEDOUT;
    return r;
}

/* --- a round --- */

static bool sets_parameters(const struct worker *w)
{
    return w->about->updates && w->round % VICTIM_SET_ROUNDS == 0;
}

/* Fills the gradients. Rank 0 broadcasts parameters of its replay; the other ranks first fill their
 * result memory with other values. */
static void compute(struct worker *w)
{
    const struct victim *a = w->about;
    const struct timespec nap = {0, (long)a->compute_ns};
    *(float *)w->items[0].gradient = a->rank == 0 && atomic_load(&a->board->ends);
    for (size_t i = 1; i < w->tensors_count; i++) {
        const struct gradient g = {a->seed, i, w->round};
        if (sets_parameters(w)) {
            replay_set(&w->replays[i], w->round, w->items[i].result);
            if (a->rank > 0)
                memset(w->items[i].result, 0, w->plan[i].elements * sizeof(float));
        } else {
            gradient_fill(&g, a->rank, (float *)w->items[i].gradient, w->plan[i].elements);
        }
    }
    nanosleep(&nap, NULL);
}

static int update(struct worker *w, gp_request **ret_request)
{
    const struct update_settings s = replay_settings(w->round);
    const gp_settings settings = {.rate = s.rate,
                                  .weight_decay = s.weight_decay,
                                  .momentum = s.momentum,
                                  .dampening = s.dampening,
                                  .beta1 = s.beta1,
                                  .beta2 = s.beta2,
                                  .epsilon = s.epsilon};
    return gp_update_group(w->job, w->items + 1, w->tensors_count - 1,
                           w->about->rank == 0 ? &settings : NULL, ret_request);
}

/* Pushes all tensors of this round. */
static int push(struct worker *w, gp_request **ret_requests, size_t *ret_count)
{
    size_t together = w->about->updates ? 1 : w->tensors_count, count = 0;
    int r = gp_push_pull_group(w->job, w->items, together, GP_SUM, &ret_requests[count++]);
    if (r == 0 && w->about->updates && !sets_parameters(w))
        r = update(w, &ret_requests[count++]);
    for (size_t i = 1; r == 0 && sets_parameters(w) && i < w->tensors_count; i++)
        r = gp_broadcast(w->tensors[i], w->items[i].result, 0, &ret_requests[count++]);
    *ret_count = count;
    return r;
}

static uint64_t count_wrong(struct worker *w, size_t tensor)
{
    const struct gradient g = {w->about->seed, tensor, w->round};
    const float *result = w->items[tensor].result;
    if (!w->about->updates)
        return gradient_count_wrong(&g, w->about->workers, false, result, w->plan[tensor].elements);
    if (!sets_parameters(w))
        replay_step(&w->replays[tensor], w->round);
    return replay_count_wrong(&w->replays[tensor], result);
}

static void note(struct worker *w, size_t tensor, uint64_t wrong)
{
    struct victim_board *board = w->about->board;
    if (wrong > 0 && board->wrong == 0)
        fprintf(stderr, "# %s, rank %u: %llu of %llu elements of tensor %zu, round %llu, wrong\n",
                w->about->job, w->about->rank, (unsigned long long)wrong,
                (unsigned long long)w->plan[tensor].elements, tensor, (unsigned long long)w->round);
    board->wrong += wrong;
    board->elements_checked += w->plan[tensor].elements;
}

/* Returns whether the first tensor's result is wrong. Its value, 0 or 1, was chosen by rank 0, so
 * rank 0 compares exactly. */
static bool is_first_wrong(const struct worker *w)
{
    float result = *(const float *)w->items[0].result;
    if (w->about->rank == 0)
        return result != *(const float *)w->items[0].gradient;
    return result != 0 && result != 1;
}

static void check(struct worker *w)
{
    note(w, 0, is_first_wrong(w));
    for (size_t i = 1; i < w->tensors_count; i++)
        note(w, i, count_wrong(w, i));
    w->about->board->rounds++;
}

/* Runs one round. Returns 1 after the last one. */
static int run_round(struct worker *w)
{
    gp_request *requests[TENSORS_MAX];
    size_t count = 0;
    compute(w);
    int r = push(w, requests, &count);
    for (size_t i = 0; r == 0 && i < count; i++)
        r = victim_wait(w->about->board, requests[i]);
    if (r < 0)
        return victim_fail(w->about->board, r);
    check(w);
    w->round++;
    return *(const float *)w->items[0].result > 0;
}

int victim_run(const struct victim *about)
{
    struct worker w = {.about = about};
    int r = come(&w);
    while (r == 0)
        r = run_round(&w);
    about->board->code = r < 0 ? r : 0;
    go(&w);
    return about->board->code;
}
