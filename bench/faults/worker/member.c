/* The worker of the elastic jobs of `faults`, an ordinary client (B2). A late worker enters each
 * tensor at another round, so the job has only one tensor. Owns its client, its memory, and the
 * thread that resizes. Each gradient contains its rank and number, so the members compare their
 * results without the service. */
#include "bench/faults/worker/member.h"

#include "bench/faults/worker/timed.h"
#include "client/gradpool.h"
#include "svc/base/clock.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Longest time of repeated attempts to join: the service first has to detect the end of the
 * rank's former process. */
#define JOIN_NS (15 * NS_PER_S)
#define JOIN_AGAIN_NS (50 * NS_PER_MS)
#define RESIZE_MS 8000

struct resize {
    gp_job *job;
    uint32_t wanted; /* requested number of workers; 0: no resize is running */
    struct call call;
    _Atomic bool is_done;
    int code; /* result of the call, with the error text and the time of the end */
    char text[VICTIM_TEXT_BYTES];
    uint64_t ended_ns;
    pthread_t thread;
};

struct worker {
    const struct member *about;
    gp_client *client;
    gp_job *job;
    gp_tensor *tensor;
    float *gradient, *result;
    float *pushed; /* gradients of all ranks, computed again for the comparison */
    uint32_t count;
    struct trail trail;   /* pushes that the results so far contain, for a job that sums */
    struct mirror mirror; /* expected state of the lanes, for a job with an update rule */
    struct resize resize;
};

/* --- join and leave --- */

/* Returns whether the join failed because the job does not want this rank. */
static bool is_not_wanted(int code)
{
    return code == -EPROTO && strstr(gp_last_error(), "workers, without rank ");
}

/* Returns whether a later join may succeed. The service may not know yet that the rank's former
 * process has ended, that the rank is wanted again, or that all members have left. */
static bool may_join_later(int code)
{
    return code == -EEXIST || code == -ESTALE || is_not_wanted(code);
}

static int join(struct worker *w)
{
    const struct timespec again = {0, JOIN_AGAIN_NS};
    const struct member *a = w->about;
    const gp_job_spec spec = {.name = a->job,
                              .rank = a->rank,
                              .workers = a->rank < MEMBERS_FEWEST ? MEMBERS_FEWEST : a->rank + 1,
                              .workers_max = MEMBERS_MOST,
                              .on_worker_loss = GP_CONTINUE,
                              .durability = a->durability};
    uint64_t deadline_ns = clock_now_ns() + JOIN_NS;
    int r = victim_join(a->board, w->client, &spec, &w->job);
    while (may_join_later(r) && clock_now_ns() < deadline_ns && !atomic_load(&a->board->ends)) {
        call_judge(a->board, "gp_job_join", r, gp_last_error());
        nanosleep(&again, NULL);
        r = victim_join(a->board, w->client, &spec, &w->job);
    }
    return r;
}

static int prepare(struct worker *w)
{
    const struct member *a = w->about;
    if (a->updates)
        return mirror_init(&w->mirror, a->book, a->seed);
    w->pushed = calloc(LEDGER_RANKS, PUSH_ELEMENTS * sizeof *w->pushed);
    return w->pushed ? 0 : -ENOMEM;
}

static int declare(struct worker *w)
{
    const gp_tensor_spec spec = {.name = "tensor",
                                 .dtype = GP_F32,
                                 .elements = PUSH_ELEMENTS,
                                 .rule = w->about->updates ? GP_MOMENTUM : GP_NO_RULE};
    void *gradient = NULL, *result = NULL;
    int r = victim_declare(w->about->board, w->job, &spec, 1, &w->tensor);
    if (r == 0)
        r = gp_alloc(w->job, PUSH_ELEMENTS * sizeof(float), &gradient);
    if (r == 0)
        r = gp_alloc(w->job, PUSH_ELEMENTS * sizeof(float), &result);
    w->gradient = gradient;
    w->result = result;
    return r;
}

static int come(struct worker *w)
{
    const struct member *a = w->about;
    int r = prepare(w);
    if (r == 0)
        r = victim_connect(a->board, a->endpoint, a->transport, &w->client);
    if (r == 0)
        r = join(w);
    /* in this case the member that had to resize the job was killed */
    if (a->rank >= MEMBERS_FEWEST && is_not_wanted(r))
        return 1;
    if (r == 0)
        r = declare(w);
    return r < 0 ? victim_fail(a->board, r) : 0;
}

/* --- orders --- */

/* Resizes the job. Runs in a separate thread, because the call waits for a leaving member, which
 * may need further rounds of this worker first. */
static void *run_resize(void *context)
{
    struct resize *resize = context;
    resize->code = gp_job_resize(resize->job, resize->wanted, RESIZE_MS);
    resize->ended_ns = clock_now_ns();
    snprintf(resize->text, sizeof resize->text, "%s", resize->code < 0 ? gp_last_error() : "");
    atomic_store(&resize->is_done, true);
    return NULL;
}

/* Handles the end of a resize. A resize may fail if a strike killed a member that should join or
 * leave. Such an error counts only if it is late or names no cause. */
static void end_resize(struct worker *w)
{
    struct resize *resize = &w->resize;
    if (resize->wanted == 0)
        return;
    pthread_join(resize->thread, NULL);
    call_time(&resize->call, resize->ended_ns);
    call_judge(w->about->board, resize->call.name, resize->code, resize->text);
    w->about->board->resizes += resize->code == 0;
    resize->wanted = 0;
}

static void tend_resize(struct worker *w)
{
    struct resize *resize = &w->resize;
    if (resize->wanted && !atomic_load(&resize->is_done))
        return;
    end_resize(w);
    resize->wanted = atomic_exchange(&w->about->board->wanted, 0);
    if (resize->wanted == 0)
        return;
    resize->job = w->job;
    resize->is_done = false;
    resize->call = call_begin(w->about->board, "gp_job_resize", RESIZE_MS * NS_PER_MS);
    if (pthread_create(&resize->thread, NULL, run_resize, resize) != 0)
        resize->wanted = 0;
}

static bool is_unwanted(const struct worker *w)
{
    gp_membership membership;
    return gp_job_membership(w->job, &membership) == 0 && w->about->rank >= membership.wanted;
}

static void go(struct worker *w)
{
    end_resize(w);
    if (w->job)
        victim_leave(w->about->board, w->job);
    gp_disconnect(w->client);
    mirror_fini(&w->mirror);
    free(w->pushed);
}

/* --- a result --- */

/* Compares a result with the sum of the gradients of the round's ranks, added in rank order.
 * Element PUSH_END is not compared, because any rank may have set this element. */
static uint64_t count_wrong(const struct worker *w, const struct pushes *pushes)
{
    const void *present[LEDGER_RANKS];
    uint32_t count = pushes_draw_all(w->about->seed, pushes, w->pushed, present);
    uint64_t wrong = 0;
    for (size_t i = 0; count > 0 && i < PUSH_ELEMENTS; i++) {
        float sum = ((const float *)present[0])[i];
        for (uint32_t k = 1; k < count; k++)
            sum += ((const float *)present[k])[i];
        wrong += i != PUSH_END && memcmp(&sum, &w->result[i], sizeof sum) != 0;
    }
    return wrong;
}

static uint64_t follow_sum(struct worker *w, struct pushes *ret_pushes)
{
    double numbers[PUSH_END];
    for (size_t i = 0; i < PUSH_END; i++)
        numbers[i] = w->result[i];
    return pushes_read(numbers, ret_pushes) ? count_wrong(w, ret_pushes) : PUSH_ELEMENTS;
}

static uint64_t follow_update(struct worker *w, struct pushes *ret_pushes)
{
    const struct member *a = w->about;
    if (a->begins || w->count > 1)
        return mirror_follow(&w->mirror, w->result, ret_pushes);
    return mirror_find(&w->mirror, w->result, a->ledger->grace_ns, ret_pushes) ? 0 : PUSH_ELEMENTS;
}

/* A late worker of a tensor with a rule copies the trail of another member, so the late worker does
 * not record its first round again. */
static bool follow_trail(struct worker *w, const struct pushes *pushes)
{
    bool was_found = w->about->updates && !w->about->begins && w->count == 1;
    struct trail *trail = w->about->updates ? &w->mirror.now->trail : &w->trail;
    const struct ledger_push *own = &pushes->of[w->about->rank];
    return (was_found || trail_follow(trail, pushes->of)) && own->coming == w->about->coming &&
           own->count == w->count;
}

static void complain(const struct worker *w, const char *what, uint64_t wrong)
{
    if (w->about->board->wrong == 0)
        fprintf(stderr, "# %s, rank %u, start %u, round %u: %s (%llu of %d elements)\n",
                w->about->job, w->about->rank, w->about->coming, w->count, what,
                (unsigned long long)wrong, PUSH_ELEMENTS);
    w->about->board->wrong += wrong;
}

static void check(struct worker *w)
{
    struct pushes pushes;
    struct victim_board *board = w->about->board;
    uint64_t wrong = w->about->updates ? follow_update(w, &pushes) : follow_sum(w, &pushes);
    if (wrong > 0) {
        complain(w, "the result does not follow from the gradients that it contains", wrong);
    } else {
        if (!follow_trail(w, &pushes))
            complain(w, "a gradient is in two rounds, or is missing", PUSH_ELEMENTS);
        if (!ledger_note(w->about->ledger, w->about->rank, pushes.of))
            complain(w, "another member has a result of other gradients", PUSH_ELEMENTS);
        if (w->about->updates)
            mirror_show(&w->mirror, w->about->rank);
    }
    board->rounds++;
    board->elements_checked += PUSH_ELEMENTS;
}

/* --- a round --- */

static int push(struct worker *w, gp_request **ret_request)
{
    const struct update_settings s = mirror_settings();
    const gp_settings settings = {
        .rate = s.rate, .weight_decay = s.weight_decay, .momentum = s.momentum};
    return w->about->updates ? gp_update(w->tensor, w->gradient, w->result, &settings, ret_request)
                             : gp_push_pull(w->tensor, w->gradient, w->result, GP_SUM, ret_request);
}

static bool is_last(const struct worker *w)
{
    return w->about->updates ? mirror_ends(&w->mirror) : w->result[PUSH_END] > 0;
}

/* Runs one round. Returns 1 after the last one. */
static int run_round(struct worker *w)
{
    const struct member *a = w->about;
    const struct timespec nap = {0, (long)a->compute_ns};
    gp_request *request;
    tend_resize(w);
    if (is_unwanted(w))
        return 1;
    w->count++;
    pushes_draw(a->seed, a->rank, (struct ledger_push){a->coming, w->count}, w->gradient);
    w->gradient[PUSH_END] = atomic_load(&a->board->ends) > 0;
    nanosleep(&nap, NULL);
    int r = push(w, &request);
    if (r == 0)
        r = victim_wait(w->about->board, request);
    if (r < 0)
        return victim_fail(a->board, r);
    check(w);
    return is_last(w);
}

/* Sets the first parameters: each member computes them, and rank 0 broadcasts them to the lanes. */
static int begin(struct worker *w)
{
    gp_request *request;
    const struct member *a = w->about;
    if (!a->updates || !a->begins)
        return 0;
    mirror_set(&w->mirror, w->result);
    int r = gp_broadcast(w->tensor, w->result, 0, &request);
    if (r == 0)
        r = victim_wait(w->about->board, request);
    if (r == 0)
        mirror_show(&w->mirror, a->rank);
    return r < 0 ? victim_fail(a->board, r) : 0;
}

int member_run(const struct member *about)
{
    struct worker w = {.about = about};
    int r = come(&w);
    if (r == 0)
        r = begin(&w);
    while (r == 0)
        r = run_round(&w);
    atomic_store(&about->ledger->present[about->rank], 0);
    about->board->code = r < 0 ? r : 0;
    go(&w);
    return about->board->code;
}
