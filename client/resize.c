/* Owns what a worker knows of who is in its job, where workers come and go: told by the
 * coordinator, asked for by the caller. What changes for tensors comes with their routes (L20). */
#include "client/fork.h"
#include "client/job.h"
#include "client/link.h"
#include "svc/base/clock.h"
#include "svc/base/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define RANKS_NAMED_MAX 16

static bool has_rank(const uint64_t *ranks, uint32_t rank)
{
    return ranks[rank / 64] >> (rank % 64) & 1;
}

/* ---- what is told ---- */

void membership_take(struct gp_job *job, const Gradpool__Wire__Membership *told)
{
    gp_membership *m = &job->membership;
    if (told->ranks.len != sizeof m->ranks || told->version < m->version)
        return; /* an older one, overtaken by a resume */
    memcpy(m->ranks, told->ranks.data, sizeof m->ranks);
    m->version = told->version;
    m->wanted = told->workers;
    m->workers = 0;
    for (uint32_t rank = 0; rank < job->workers; rank++)
        m->workers += has_rank(m->ranks, rank);
}

void membership_init(struct gp_job *job, uint32_t workers)
{
    gp_membership *m = &job->membership;
    m->workers = m->wanted = workers;
    for (uint32_t rank = 0; rank < workers; rank++)
        m->ranks[rank / 64] |= UINT64_C(1) << (rank % 64);
}

/* ---- what it means for a tensor ---- */

static bool has_blocks(const struct gp_tensor *t, const struct push *push)
{
    return !is_of_state(push->operation) &&
           (push->gradient_bytes > t->bytes || push->result_bytes > t->bytes);
}

/* Blocks are counted by ranks: a round of them cannot be done with others. */
static void break_blocks(struct gp_tensor *t)
{
    bool is_cut = (t->without_commit > 0 && has_blocks(t, &t->open)) ||
                  (t->is_queued && has_blocks(t, &t->next));
    if (!is_cut)
        return;
    char text[ERR_TEXT_BYTES];
    snprintf(text, sizeof text,
             "tensor '%.100s' round %" PRIu64 ": its ranks have changed while their blocks were on "
             "their way",
             t->name, t->round);
    tensor_break(t, -ECONNRESET, text);
}

static void find_peer(struct gp_tensor *t, const uint64_t *ranks)
{
    t->peer = 0;
    while (t->peer < t->job->workers && (t->peer == t->job->rank || !has_rank(ranks, t->peer)))
        t->peer++;
}

void tensor_take_ranks(struct gp_tensor *t, const Gradpool__Wire__TensorRoute *route)
{
    uint64_t ranks[RECORD_MISSING_WORDS];
    uint32_t members = 0;
    if (route->ranks.len != sizeof ranks)
        return;
    memcpy(ranks, route->ranks.data, sizeof ranks);
    for (uint32_t rank = t->job->workers; rank-- > 0;) {
        if (!has_rank(ranks, rank))
            continue;
        members++;
        t->first_rank = rank;
    }
    memcpy(t->ranks, ranks, sizeof ranks);
    t->knows_ranks = true;
    find_peer(t, ranks);
    if (members != t->members)
        break_blocks(t);
    t->members = members;
}

/* What landed before the tensor was whole is as if it had not (W15): its input and landing area are
 * as they were, and everybody hears one answer for all its pieces. */
void piece_reopen(struct piece *p)
{
    struct gp_tensor *t = p->tensor;
    bool is_committed = p->standing == PIECE_IDLE && p->committed == t->round;
    if (t->without_result == 0 || p->standing == PIECE_ANNOUNCED || p->is_entering)
        return;
    if (is_committed) {
        p->committed--;
        t->without_commit++;
    }
    p->standing = PIECE_ANNOUNCED;
    t->without_result++;
}

/* ---- a worker that is new ---- */

void piece_await_entry(struct piece *p)
{
    p->is_entering = p->owes_standing = true;
    p->tensor->entering++;
    link_announce(p->link, p);
}

void piece_enter(struct piece *p, uint64_t round)
{
    struct gp_tensor *t = p->tensor;
    p->is_entering = false;
    p->committed = round;
    if (round > t->round)
        t->round = round;
    t->knows_steps = t->knows_steps && t->steps_round == t->round; /* another is told, too */
    if (--t->entering == 0 && t->is_queued)
        push_begin_queued(t);
}

/* ---- the API ---- */

int gp_job_membership(gp_job *job, gp_membership *ret_membership)
{
    int r = job_check(job);
    if (r < 0)
        return r;
    if (!ret_membership)
        return client_error(-EINVAL, "gp_job_membership: no place for the result");
    pthread_mutex_lock(&job->lock);
    *ret_membership = job->membership;
    pthread_mutex_unlock(&job->lock);
    return 0;
}

uint32_t gp_job_workers(const gp_job *job)
{
    gp_membership membership;
    return gp_job_membership((gp_job *)job, &membership) < 0 ? 0 : membership.workers;
}

struct resizing {
    struct gp_job *job;
    uint32_t workers;
    uint32_t version; /* of the membership before it asked */
    struct control_call call;
    Gradpool__Wire__ResizeRequest request;
    struct err err;
};

static void resized(struct control_call *call, const envelope *reply, const struct err *err)
{
    struct resizing *z = container_of(call, struct resizing, call);
    if (err)
        z->err = *err;
}

static int ask(struct resizing *z, uint64_t deadline_ns, int timeout_ms)
{
    gradpool__wire__resize_request__init(&z->request);
    z->request.workers = z->workers;
    z->call.request = (envelope)GRADPOOL__WIRE__ENVELOPE__INIT;
    z->call.request.body_case = GRADPOOL__WIRE__ENVELOPE__BODY_RESIZE_REQUEST;
    z->call.request.resize_request = &z->request;
    z->call.done = resized;
    control_post(z->job->control, &z->call);
    if (control_wait(z->job->control, &z->call, deadline_ns) < 0)
        return client_error(-ETIMEDOUT,
                            "gp_job_resize: the coordinator at %s has not answered after %d ms",
                            z->job->client->endpoint_text, timeout_ms);
    return z->err.code ? client_error_from(&z->err) : 0;
}

/* The rank has still to come or to go. This one goes when its caller says so. */
static bool is_awaited(const struct resizing *z, uint32_t rank)
{
    bool is_in = has_rank(z->job->membership.ranks, rank);
    return rank < z->workers ? !is_in : is_in && rank != z->job->rank;
}

/* Its rounds are still made by others than those who are in the job (L29). */
static bool lags_behind(const struct gp_tensor *t)
{
    bool is_ours = strncmp(t->name, NAME_RESERVED, strlen(NAME_RESERVED)) == 0;
    if (!t->knows_ranks || t->failure.code || is_ours || !terms_are_for_all(&t->terms))
        return false;
    return memcmp(t->ranks, t->job->membership.ranks, sizeof t->ranks) != 0;
}

static const struct gp_tensor *find_lagging(const struct gp_job *job)
{
    list_for_each (node, &job->tensors) {
        const struct gp_tensor *t = list_entry(node, struct gp_tensor, node);
        if (lags_behind(t))
            return t;
    }
    return NULL;
}

/* What it asked for was told to all before it was answered: another number is a later one's. */
static bool is_superseded(const struct resizing *z)
{
    const gp_membership *m = &z->job->membership;
    return m->version > z->version && m->wanted != z->workers;
}

static bool is_done(void *context)
{
    const struct resizing *z = context;
    if (z->job->failure.code || is_superseded(z))
        return true;
    if (z->job->membership.wanted != z->workers)
        return false;
    for (uint32_t rank = 0; rank < z->job->workers; rank++) {
        if (is_awaited(z, rank))
            return false;
    }
    return !find_lagging(z->job);
}

static int say_what_lags(const struct resizing *z, const struct gp_tensor *t, int timeout_ms)
{
    for (uint32_t rank = 0; rank < z->job->workers; rank++) {
        if (has_rank(z->job->membership.ranks, rank) && !has_rank(t->ranks, rank))
            return client_error(-ETIMEDOUT,
                                "job '%s' with %u workers: rank %u has joined, but has not "
                                "declared tensor '%s' after %d ms",
                                z->job->name, z->workers, rank, t->name, timeout_ms);
    }
    return client_error(-ETIMEDOUT,
                        "job '%s' with %u workers: the lanes of tensor '%s' have not followed "
                        "after %d ms",
                        z->job->name, z->workers, t->name, timeout_ms);
}

static int say_who_is_late(const struct resizing *z, int timeout_ms)
{
    char text[ERR_TEXT_BYTES] = "";
    uint32_t named = 0;
    for (uint32_t rank = 0; rank < z->job->workers && named < RANKS_NAMED_MAX; rank++) {
        if (is_awaited(z, rank))
            text_append(text, sizeof text, "%s%u (%s)", named++ ? ", " : "", rank,
                        rank < z->workers ? "has not joined" : "has not left");
    }
    const struct gp_tensor *lagging = named ? NULL : find_lagging(z->job);
    if (lagging)
        return say_what_lags(z, lagging, timeout_ms);
    return client_error(-ETIMEDOUT, "job '%s' with %u workers: waits for rank %s after %d ms",
                        z->job->name, z->workers, text, timeout_ms);
}

static int await_resized(struct resizing *z, uint64_t deadline_ns, int timeout_ms)
{
    struct gp_job *job = z->job;
    bool done = engine_run(&job->engine, deadline_ns, is_done, z);
    if (job->failure.code)
        return client_error_from(&job->failure);
    if (is_superseded(z))
        return client_error(-ECANCELED, "job '%s' with %u workers: another rank asked for %u",
                            job->name, z->workers, job->membership.wanted);
    return done ? 0 : say_who_is_late(z, timeout_ms);
}

int gp_job_resize(gp_job *job, uint32_t workers, int timeout_ms)
{
    int r = job_check(job);
    if (r < 0)
        return r;
    struct resizing z = {.job = job, .workers = workers};
    if (timeout_ms <= 0)
        timeout_ms = (int)(job->client->timeout_ns / NS_PER_MS);
    uint64_t deadline_ns = clock_now_ns() + (uint64_t)timeout_ms * NS_PER_MS;
    job->users++;
    pthread_mutex_lock(&job->lock);
    z.version = job->membership.version;
    pthread_mutex_unlock(&job->lock);
    r = ask(&z, deadline_ns, timeout_ms);
    pthread_mutex_lock(&job->lock);
    if (r == 0) {
        hold_note_standing(job, true);
        r = await_resized(&z, deadline_ns, timeout_ms);
        hold_note_standing(job, false);
    }
    job_end_use(job);
    return r;
}
