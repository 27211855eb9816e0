/* The worker of a job that grows and shrinks. The gradients of a step are equal on all ranks, so
 * their mean is known. A late worker gets the state by gp_broadcast(), and checks the state before
 * leaving. Owns its client and its memory. */
#include "bench/resize/resize_worker.h"

#include "client/gradpool_elastic.h"
#include "svc/base/clock.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <time.h>

#define WAIT_MS 60000
#define LOOK_NS NS_PER_MS /* pause between two reads of the board, or two attempts to join */
#define BATCH 8
#define SAMPLES (UINT64_C(1) << 40) /* number of samples of the epoch: more than any run uses */
/* number of different gradients, which are small whole numbers with exact means */
#define VALUES 1024

struct resize_worker {
    const struct resize_plan *plan;
    uint32_t rank;
    gp_client *client;
    gp_job *job;
    gp_tensor *gradients, *state;
    float *gradient, *mean, *values; /* `values`: the state */
    bool has_state;
};

static int complain(const struct resize_worker *w, const char *what, int code)
{
    const char *text = gp_last_error();
    fprintf(stderr, "gradpool-bench resize: rank %u: %s: %s\n", w->rank, what,
            *text ? text : gp_strerror(code));
    return code;
}

static void rest(uint64_t ns)
{
    const struct timespec nap = {(time_t)(ns / NS_PER_S), (long)(ns % NS_PER_S)};
    nanosleep(&nap, NULL);
}

/* ---- join ---- */

/* Joins the job. A late worker repeats the attempt, because the service refuses this worker until
 * the job has been resized. */
static int join(struct resize_worker *w)
{
    const gp_job_spec spec = {.name = "resize",
                              .rank = w->rank,
                              .workers = RESIZE_FOUNDERS,
                              .workers_max = RESIZE_WORKERS,
                              .on_worker_loss = GP_CONTINUE};
    uint64_t deadline_ns = clock_now_ns() + WAIT_MS * NS_PER_MS;
    int error = gp_job_join(w->client, &spec, &w->job);
    while (error == -EPROTO && w->rank >= RESIZE_FOUNDERS && clock_now_ns() < deadline_ns) {
        rest(LOOK_NS);
        error = gp_job_join(w->client, &spec, &w->job);
    }
    return error;
}

static int allocate(struct resize_worker *w)
{
    const struct resize_plan *plan = w->plan;
    void *memory[3] = {0};
    const uint64_t elements[3] = {plan->gradient_elements, plan->gradient_elements,
                                  plan->state_elements};
    int error = 0;
    for (int i = 0; error == 0 && i < 3; i++)
        error = gp_alloc(w->job, elements[i] * sizeof(float), &memory[i]);
    w->gradient = memory[0];
    w->mean = memory[1];
    w->values = memory[2];
    return error;
}

static float state_at(uint64_t element) { return (float)(element % 251 + 1); }

static int come(struct resize_worker *w)
{
    const struct resize_plan *plan = w->plan;
    const gp_options options = {.transport = plan->transport};
    const gp_deal deal = {.samples = SAMPLES, .epochs = 1, .batch = BATCH};
    const gp_tensor_spec specs[] = {
        {.name = "gradient", .dtype = GP_F32, .elements = plan->gradient_elements},
        {.name = "state", .dtype = GP_F32, .elements = plan->state_elements}};
    gp_tensor *tensors[2];
    int error = gp_connect(plan->endpoint, &options, &w->client);
    if (error == 0)
        error = join(w);
    if (error == 0)
        error = allocate(w);
    if (error == 0)
        error = gp_deal_declare(w->job, &deal, specs, 2, tensors);
    if (error < 0)
        return complain(w, "join", error);
    w->gradients = tensors[0];
    w->state = tensors[1];
    w->has_state = w->rank < RESIZE_FOUNDERS;
    for (uint64_t e = 0; w->has_state && e < plan->state_elements; e++)
        w->values[e] = state_at(e);
    return 0;
}

/* ---- steps ---- */

static float gradient_of(const gp_step *step) { return (float)(step->number % VALUES); }

static void check(struct resize_worker *w, const gp_step *step)
{
    unsigned long long wrong = 0;
    for (uint64_t e = 0; e < w->plan->gradient_elements; e++)
        wrong += w->mean[e] != gradient_of(step);
    atomic_fetch_add(&w->plan->board->wrong, wrong);
}

static void check_state(struct resize_worker *w)
{
    unsigned long long wrong = 0;
    for (uint64_t e = 0; e < w->plan->state_elements; e++)
        wrong += w->values[e] != state_at(e);
    atomic_fetch_add(&w->plan->board->wrong, wrong);
}

/* Stores the end of a step on the board. */
static void note(const struct resize_worker *w, const gp_step *step)
{
    struct resize_board *board = w->plan->board;
    if (w->rank >= RESIZE_FOUNDERS) {
        board->shares += step->weight > 0;
        return;
    }
    unsigned at = board->steps[w->rank];
    if (at >= RESIZE_STEPS_MAX)
        return;
    board->ends_ns[w->rank][at] = clock_now_ns();
    board->steps[w->rank] = at + 1;
}

static int train(struct resize_worker *w, const gp_step *step)
{
    gp_request *request;
    uint64_t until_ns = clock_now_ns() + w->plan->compute_ns;
    for (uint64_t e = 0; e < w->plan->gradient_elements; e++)
        w->gradient[e] = gradient_of(step);
    uint64_t now_ns = clock_now_ns();
    if (now_ns < until_ns && !(step->flags & GP_STEP_ENTERS))
        rest(until_ns - now_ns);
    int error = gp_push_pull(w->gradients, w->gradient, w->mean, GP_MEAN, &request);
    if (error == 0)
        error = gp_wait(request, WAIT_MS);
    if (error < 0)
        return complain(w, "a step", error);
    note(w, step);
    check(w, step);
    return 0;
}

static int carry(struct resize_worker *w, const gp_step *step)
{
    gp_request *request;
    int error = gp_broadcast(w->state, w->values, step->giver, &request);
    if (error == 0)
        error = gp_wait(request, WAIT_MS);
    w->has_state = true;
    return error < 0 ? complain(w, "the state", error) : 0;
}

static int train_all(struct resize_worker *w)
{
    gp_step step;
    for (;;) {
        int result = gp_step_begin(w->job, WAIT_MS, &step);
        if (result < 0)
            return complain(w, "the beginning of a step", result);
        if (result == GP_LEAVES || result == GP_TRAINED || result == GP_ENDED)
            return 0;
        int error = result == GP_CARRIES ? carry(w, &step) : train(w, &step);
        if (error < 0)
            return error;
    }
}

/* ---- resizes ---- */

/* Resizes the job when the command orders a resize. Runs in a separate thread of rank 0. */
static void *resize(void *context)
{
    const struct resize_worker *w = context;
    struct resize_board *board = w->plan->board;
    for (;;) {
        unsigned wanted = board->wanted;
        if (wanted != board->settled && gp_job_resize(w->job, wanted, WAIT_MS) == 0)
            board->settled = wanted;
        rest(LOOK_NS);
    }
    return NULL;
}

int resize_worker_run(const struct resize_plan *plan, uint32_t rank)
{
    struct resize_worker w = {.plan = plan, .rank = rank};
    pthread_t thread;
    int error = come(&w);
    if (error == 0 && rank == 0 && pthread_create(&thread, NULL, resize, &w) != 0)
        error = complain(&w, "a thread", -EAGAIN);
    if (error == 0 && !w.has_state)
        rest(plan->setup_ns);
    if (error == 0)
        error = train_all(&w);
    if (error == 0)
        check_state(&w);
    gp_disconnect(w.client);
    return error;
}
