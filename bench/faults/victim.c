/* The worker of `faults`, an ordinary client (B2). Owns its client and its memory. Must end with
 * the text of what failed, and never go on after that: its job is started anew. */
#include "bench/faults/victim.h"

#include "bench/gradient.h"
#include "client/gradpool.h"
#include "svc/base/clock.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define TENSORS 4 /* the first tells when to end */
#define COMPUTE_NS (4 * NS_PER_MS)
#define LATE_NS (2 * NS_PER_S) /* beyond a deadline: a hang */
#define TRIES 3                /* of a wait that has timed out */

static const uint64_t elements[TENSORS] = {1, 1000, 100000, 300000};

struct worker {
    const struct victim *about;
    gp_client *client;
    gp_job *job;
    gp_tensor *tensors[TENSORS];
    gp_item items[TENSORS];
    uint64_t round;
};

static int fail(const struct worker *w, int code)
{
    const char *text = gp_last_error();
    snprintf(w->about->board->text, sizeof w->about->board->text, "%s",
             *text ? text : gp_strerror(code));
    return code;
}

static int declare(struct worker *w)
{
    gp_tensor_spec specs[TENSORS];
    char names[TENSORS][16];
    for (size_t i = 0; i < TENSORS; i++) {
        snprintf(names[i], sizeof names[i], "tensor.%zu", i);
        specs[i] = (gp_tensor_spec){.name = names[i], .dtype = GP_F32, .elements = elements[i]};
    }
    return gp_tensors_declare(w->job, specs, TENSORS, w->tensors);
}

static int allocate(struct worker *w)
{
    int r = 0;
    for (size_t i = 0; r == 0 && i < TENSORS; i++) {
        void *gradient = NULL, *result = NULL;
        r = gp_alloc(w->job, elements[i] * sizeof(float), &gradient);
        if (r == 0)
            r = gp_alloc(w->job, elements[i] * sizeof(float), &result);
        w->items[i] = (gp_item){w->tensors[i], gradient, result};
    }
    return r;
}

static int come(struct worker *w)
{
    const struct victim *a = w->about;
    const gp_options options = {.transport = a->transport};
    const gp_job_spec spec = {.name = a->job, .rank = a->rank, .workers = a->workers};
    int r = gp_connect(a->endpoint, &options, &w->client);
    if (r == 0)
        r = gp_job_join(w->client, &spec, &w->job);
    if (r == 0)
        r = declare(w);
    if (r == 0)
        r = allocate(w);
    return r < 0 ? fail(w, r) : 0;
}

/* A stop of ours in the midst makes any wait long. */
static void note_wait(const struct worker *w, uint64_t began_ns, uint32_t stops)
{
    struct victim_board *board = w->about->board;
    uint64_t waited_ns = clock_now_ns() - began_ns;
    if (atomic_load(&board->stops) != stops)
        return;
    if (waited_ns > board->longest_wait_ns)
        board->longest_wait_ns = waited_ns;
    board->hangs += waited_ns > VICTIM_WAIT_MS * NS_PER_MS + LATE_NS;
}

static int wait(const struct worker *w, gp_request *request)
{
    int r = -ETIMEDOUT;
    for (int try = 0; r == -ETIMEDOUT && try < TRIES; try++) {
        uint32_t stops = atomic_load(&w->about->board->stops);
        uint64_t began_ns = clock_now_ns();
        r = gp_wait(request, VICTIM_WAIT_MS);
        note_wait(w, began_ns, stops);
    }
    return r;
}

static void check(const struct worker *w)
{
    struct victim_board *board = w->about->board;
    for (size_t i = 1; i < TENSORS; i++) {
        const struct gradient g = {w->about->seed, i, w->round};
        board->wrong +=
            gradient_count_wrong(&g, w->about->workers, false, w->items[i].result, elements[i]);
        board->elements_checked += elements[i];
    }
    board->rounds++;
}

/* 1: it was the last. */
static int run_round(struct worker *w)
{
    const struct timespec nap = {0, COMPUTE_NS};
    const struct victim *a = w->about;
    gp_request *request;
    for (size_t i = 1; i < TENSORS; i++) {
        const struct gradient g = {a->seed, i, w->round};
        gradient_fill(&g, a->rank, (float *)w->items[i].gradient, elements[i]);
    }
    *(float *)w->items[0].gradient = a->rank == 0 && atomic_load(&a->board->ends);
    nanosleep(&nap, NULL);
    int r = gp_push_pull_group(w->job, w->items, TENSORS, GP_SUM, &request);
    if (r == 0)
        r = wait(w, request);
    if (r < 0)
        return fail(w, r);
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
    if (w.job)
        gp_job_leave(w.job);
    gp_disconnect(w.client);
    return about->board->code;
}
