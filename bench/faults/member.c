/* The worker of the elastic job of `faults`, an ordinary client (B2). It has one tensor: who comes
 * late enters each tensor where its round is, so only of one does a round tell what was pushed.
 * Owns its client, its memory, and the thread that resizes. Must never learn from the service
 * alone of whom a result is: each gradient names itself, and the other members are asked. */
#include "bench/faults/member.h"

#include "bench/gradient.h"
#include "client/gradpool.h"
#include "svc/base/clock.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ELEMENTS 150000 /* some pieces */
#define COMPUTE_NS (4 * NS_PER_MS)
#define JOIN_NS (15 * NS_PER_S) /* until the service knows that the one before has gone */
#define JOIN_AGAIN_NS (50 * NS_PER_MS)
#define RESIZE_MS 8000
/* The tensor begins with two numbers of each rank, then whether to end. */
#define END_PLACE (2 * LEDGER_RANKS)
#define FIRST_PLACE (END_PLACE + 1)

struct resize {
    gp_job *job;
    uint32_t wanted; /* 0: none is under way */
    _Atomic bool is_done;
    int code;
    pthread_t thread;
};

struct worker {
    const struct member *about;
    gp_client *client;
    gp_job *job;
    gp_tensor *tensor;
    float *gradient, *result;
    float *pushed; /* of each rank, drawn again */
    uint32_t count;
    struct ledger_push last[LEDGER_RANKS]; /* the newest known of each */
    bool was_there[LEDGER_RANKS];          /* in the last result */
    struct resize resize;
};

/* --- coming and going --- */

/* Nobody has told the service yet that the former process of this rank is gone, that this rank is
 * wanted again, or that all have left the job. */
static bool may_join_later(int code)
{
    return code == -EEXIST || code == -ESTALE || code == -EPROTO;
}

static int join(struct worker *w)
{
    const struct timespec again = {0, JOIN_AGAIN_NS};
    const struct member *a = w->about;
    const gp_job_spec spec = {.name = a->job,
                              .rank = a->rank,
                              .workers = a->rank < MEMBERS_FEWEST ? MEMBERS_FEWEST : a->rank + 1,
                              .workers_max = MEMBERS_MOST,
                              .on_worker_loss = GP_CONTINUE};
    uint64_t deadline_ns = clock_now_ns() + JOIN_NS;
    int r = victim_join(w->client, &spec, &w->job);
    while (may_join_later(r) && clock_now_ns() < deadline_ns && !atomic_load(&a->board->ends)) {
        nanosleep(&again, NULL);
        r = victim_join(w->client, &spec, &w->job);
    }
    return r;
}

static int come(struct worker *w)
{
    const struct member *a = w->about;
    void *gradient = NULL, *result = NULL;
    w->pushed = calloc(ELEMENTS, LEDGER_RANKS * sizeof *w->pushed);
    int r = w->pushed ? victim_connect(a->endpoint, a->transport, &w->client) : -ENOMEM;
    if (r == 0)
        r = join(w);
    if (r == 0)
        r = gp_tensor_declare(w->job, "tensor", GP_F32, ELEMENTS, &w->tensor);
    if (r == 0)
        r = gp_alloc(w->job, ELEMENTS * sizeof(float), &gradient);
    if (r == 0)
        r = gp_alloc(w->job, ELEMENTS * sizeof(float), &result);
    w->gradient = gradient;
    w->result = result;
    if (r == -EPROTO && a->rank >= MEMBERS_FEWEST) /* who was to ask for this one was killed */
        return 1;
    return r < 0 ? victim_fail(a->board, r) : 0;
}

static void go(struct worker *w)
{
    if (w->resize.wanted)
        pthread_join(w->resize.thread, NULL);
    if (w->job)
        gp_job_leave(w->job);
    gp_disconnect(w->client);
    free(w->pushed);
}

/* --- orders --- */

/* A thread of its own: who is to leave may need rounds of this one to come to where it leaves. */
static void *run_resize(void *context)
{
    struct resize *resize = context;
    resize->code = gp_job_resize(resize->job, resize->wanted, RESIZE_MS);
    atomic_store(&resize->is_done, true);
    return NULL;
}

static void tend_resize(struct worker *w)
{
    struct resize *resize = &w->resize;
    if (resize->wanted && !atomic_load(&resize->is_done))
        return;
    if (resize->wanted) {
        pthread_join(resize->thread, NULL);
        w->about->board->resizes += resize->code == 0;
    }
    resize->job = w->job;
    resize->is_done = false;
    resize->wanted = atomic_exchange(&w->about->board->wanted, 0);
    if (resize->wanted && pthread_create(&resize->thread, NULL, run_resize, resize) != 0)
        resize->wanted = 0;
}

static bool is_unwanted(const struct worker *w)
{
    gp_membership membership;
    return gp_job_membership(w->job, &membership) == 0 && w->about->rank >= membership.wanted;
}

/* --- a round --- */

static void draw(const struct worker *w, uint32_t rank, struct ledger_push push, float *values)
{
    const struct gradient g = {w->about->seed, push.coming, push.count};
    gradient_fill(&g, rank, values, ELEMENTS);
    memset(values, 0, FIRST_PLACE * sizeof *values);
    values[2 * rank] = (float)push.coming;
    values[2 * rank + 1] = (float)push.count;
}

/* False: these are no numbers that anybody has pushed. */
static bool read_pushes(const struct worker *w, struct ledger_push *ret_pushes)
{
    bool has_sense = true;
    for (uint32_t rank = 0; rank < LEDGER_RANKS; rank++) {
        float coming = w->result[2 * rank], count = w->result[2 * rank + 1];
        has_sense &= coming >= 0 && coming < 1024 && count >= 0 && count < 1 << 22;
        if (!has_sense)
            return false;
        ret_pushes[rank] = (struct ledger_push){(uint32_t)coming, (uint32_t)count};
        has_sense &= (ret_pushes[rank].coming > 0) == (ret_pushes[rank].count > 0);
    }
    const struct ledger_push *own = &ret_pushes[w->about->rank];
    return has_sense && own->coming == w->about->coming && own->count == w->count;
}

/* No gradient is in two rounds, none is left out, and who came again begins at its first. */
static bool follows(const struct worker *w, uint32_t rank, struct ledger_push push)
{
    const struct ledger_push *last = &w->last[rank];
    if (w->count == 1 || push.count == 0)
        return true;
    if (push.coming == last->coming)
        return w->was_there[rank] && push.count == last->count + 1;
    return push.coming > last->coming && push.count == 1;
}

static bool follow(struct worker *w, const struct ledger_push *pushes)
{
    bool all = true;
    for (uint32_t rank = 0; rank < LEDGER_RANKS; rank++) {
        all &= follows(w, rank, pushes[rank]);
        w->was_there[rank] = pushes[rank].count > 0;
        if (w->was_there[rank])
            w->last[rank] = pushes[rank];
    }
    return all;
}

/* In rank order, of those present. The place of the end is whoever's. */
static uint64_t count_wrong(const struct worker *w, const struct ledger_push *pushes)
{
    const float *present[LEDGER_RANKS];
    uint32_t count = 0;
    uint64_t wrong = 0;
    for (uint32_t rank = 0; rank < LEDGER_RANKS; rank++)
        if (pushes[rank].count > 0) {
            draw(w, rank, pushes[rank], w->pushed + (size_t)rank * ELEMENTS);
            present[count++] = w->pushed + (size_t)rank * ELEMENTS;
        }
    for (size_t i = 0; i < ELEMENTS; i++) {
        float sum = present[0][i];
        for (uint32_t k = 1; k < count; k++)
            sum += present[k][i];
        wrong += i != END_PLACE && memcmp(&sum, &w->result[i], sizeof sum) != 0;
    }
    return wrong;
}

static void complain(const struct worker *w, const char *what, uint64_t wrong)
{
    if (w->about->board->wrong == 0)
        fprintf(stderr, "# %s, rank %u, coming %u, its round %u: %s (%llu of %d elements)\n",
                w->about->job, w->about->rank, w->about->coming, w->count, what,
                (unsigned long long)wrong, ELEMENTS);
    w->about->board->wrong += wrong;
}

static void check(struct worker *w)
{
    struct ledger_push pushes[LEDGER_RANKS];
    struct victim_board *board = w->about->board;
    if (!read_pushes(w, pushes)) {
        complain(w, "names gradients that nobody pushed", ELEMENTS);
    } else {
        uint64_t wrong = count_wrong(w, pushes);
        if (wrong > 0)
            complain(w, "not the sum of the gradients that it names", wrong);
        if (!follow(w, pushes))
            complain(w, "a gradient taken twice, or left out", ELEMENTS);
        if (!ledger_note(w->about->ledger, w->about->rank, pushes))
            complain(w, "others have a result of other gradients", ELEMENTS);
    }
    board->rounds++;
    board->elements_checked += ELEMENTS;
}

/* Nobody's loss or stop is longer than the deadlines: who still waits then has been forgotten. */
static int wait(const struct worker *w, gp_request *request)
{
    int r = victim_wait(w->about->board, request);
    w->about->board->hangs += r == -ETIMEDOUT;
    return r;
}

/* 1: it was the last. */
static int run_round(struct worker *w)
{
    const struct timespec nap = {0, COMPUTE_NS};
    gp_request *request;
    tend_resize(w);
    if (is_unwanted(w))
        return 1;
    w->count++;
    draw(w, w->about->rank, (struct ledger_push){w->about->coming, w->count}, w->gradient);
    w->gradient[END_PLACE] = atomic_load(&w->about->board->ends) > 0;
    nanosleep(&nap, NULL);
    int r = gp_push_pull(w->tensor, w->gradient, w->result, GP_SUM, &request);
    if (r == 0)
        r = wait(w, request);
    if (r < 0)
        return victim_fail(w->about->board, r);
    check(w);
    return w->result[END_PLACE] > 0;
}

int member_run(const struct member *about)
{
    struct worker w = {.about = about};
    int r = come(&w);
    while (r == 0)
        r = run_round(&w);
    atomic_store(&about->ledger->present[about->rank], 0);
    about->board->code = r < 0 ? r : 0;
    go(&w);
    return about->board->code;
}
