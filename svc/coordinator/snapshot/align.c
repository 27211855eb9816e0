/* Stops the tensors of a snapshot: one rank is held at the end of an iteration, then lanes release
 * all pieces. Decides which tensors belong to the snapshot. read.c reads the tensors (RULES.md:
 * K47). */
#include "svc/base/cleanup.h"
#include "svc/base/log.h"
#include "svc/coordinator/aggregator/call.h"
#include "svc/coordinator/job/claim.h"
#include "svc/coordinator/job/members.h"
#include "svc/coordinator/membership/membership.h"
#include "svc/coordinator/migration/migration.h"
#include "svc/coordinator/session/iteration_hold.h"
#include "svc/coordinator/snapshot/internal.h"
#include "svc/reduce/update.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PATIENCE_NS (10 * NS_PER_S) /* longest wait for another operation on the job */
#define AGAIN_NS (50 * NS_PER_MS)

static void try_again(struct timer *timer);

/* --- tensors and pieces --- */

static int compare_names(const void *a, const void *b)
{
    return strcmp((*(struct tensor *const *)a)->name, (*(struct tensor *const *)b)->name);
}

static int check_tensor(const struct tensor *tensor, struct err *err)
{
    if (tensor->failure)
        return err_set(err, tensor->failure_code, "tensor '%.255s' has failed: %s", tensor->name,
                       tensor->failure);
    if (!terms_are_for_all(&tensor->terms))
        return err_set(err, -EOPNOTSUPP,
                       "tensor '%.255s' has a set of ranks of its own, which a snapshot cannot "
                       "store; save the tensor in the script",
                       tensor->name);
    if (tensor->terms.quorum != QUORUM_ALL)
        return err_set(err, -EOPNOTSUPP,
                       "tensor '%.255s' has rounds without all ranks, so only the ranks know the "
                       "end of an iteration; call gp_job_snapshot() in the script",
                       tensor->name);
    if (ranks_count(tensor->members) < tensor->job->workers && members_follow_stage(tensor))
        return err_set(err, -EPERM,
                       "some ranks of job %.127s are idle in its present stage; try again in a "
                       "stage of all ranks, or call gp_job_snapshot() after the last stage",
                       tensor->job->name);
    tensor_each_piece (piece, tensor)
        if (piece->state != PIECE_READY || piece->lane->aggregator->state != AGGREGATOR_UP)
            return err_set(err, -EAGAIN, "task %u of job %.64s is being placed; try again",
                           piece->task, tensor->job->name);
    return 0;
}

static void note_tensor(struct saving *sv, const struct tensor *tensor)
{
    sv->tensors[sv->tensors_count++] =
        (struct saved_tensor){.tensor = tensor->id,
                              .elements = tensor->elements,
                              .arrays = 1 + (uint64_t)update_moments(tensor->terms.rule),
                              .first = sv->pieces_count,
                              .count = tensor->pieces_count};
    tensor_each_piece (piece, tensor) {
        sv->pieces[sv->pieces_count++] = (struct saved_piece){.piece = piece->id,
                                                              .lane = piece->lane->id,
                                                              .first = piece->first,
                                                              .elements = piece->elements};
    }
}

static int compare_numbers(const void *a, const void *b)
{
    const uint32_t *left = a, *right = b;
    return (*left > *right) - (*left < *right);
}

static bool is_wanted(const struct saving *sv, const struct tensor *tensor)
{
    return tensor->terms.rule != 0 &&
           (!sv->wanted || bsearch(&tensor->id, sv->wanted, sv->wanted_count, sizeof *sv->wanted,
                                   compare_numbers));
}

static int collect(struct saving *sv, const struct job *job, struct err *err)
{
    _cleanup_free_ struct tensor **found = calloc(job->tensors_count + 1, sizeof *found);
    size_t count = 0;
    int error = 0;
    free(sv->tensors);
    free(sv->pieces);
    sv->tensors_count = sv->pieces_count = 0;
    sv->tensors = calloc(job->tensors_count + 1, sizeof *sv->tensors);
    sv->pieces = calloc(job->index->pieces_count + 1, sizeof *sv->pieces);
    if (!found || !sv->tensors || !sv->pieces)
        return err_set(
            err, -ENOMEM,
            "gradpool serve has no memory for a snapshot of job %.64s; raise its memory limit",
            job->name);
    for (size_t i = 0; i < job->tensors_count && error == 0; i++) {
        if (!is_wanted(sv, job->tensors[i]))
            continue;
        found[count++] = job->tensors[i];
        error = check_tensor(job->tensors[i], err);
    }
    if (error == 0 && count == 0)
        return err_set(err, -ENODATA,
                       "job %.64s has no tensor with an update rule, so lanes store no parameters "
                       "and a snapshot would be empty; save in the script",
                       job->name);
    qsort(found, count, sizeof *found, compare_names);
    for (size_t i = 0; i < count && error == 0; i++)
        note_tensor(sv, found[i]);
    return error;
}

/* --- release of the pieces --- */

/* Context of a call: indexes of the pieces in its message. */
struct align_asked {
    uint64_t saving;
    uint32_t turn;
    size_t count;
    uint32_t at[];
};

static void try_later(struct saving *sv, uint64_t wait_ns)
{
    timer_stop(&sv->timer);
    timer_init(&sv->timer, try_again);
    timer_start(sv->service->loop, &sv->timer, clock_now_ns() + wait_ns);
}

void saving_hindered(struct saving *sv, const struct err *why)
{
    bool may_pass = why->code == -EBUSY || why->code == -EAGAIN || why->code == -ENOENT ||
                    why->code == -ECANCELED || why->code == -ECONNRESET;
    if (!may_pass || clock_now_ns() >= sv->patience_ns)
        return saving_break(sv, why->code, "%s", why->text);
    log_debug("a snapshot waits: %s", why->text);
    saving_let_go_on(sv);
    sv->state = SAVING_WAITS;
    try_later(sv, AGAIN_NS);
}

static const struct saved_tensor *tensor_of(const struct saving *sv, size_t at)
{
    const struct saved_tensor *t = sv->tensors;
    while (at >= t->first + t->count)
        t++;
    return t;
}

static int check_parameters(const struct saving *sv, const struct job *job, struct err *err)
{
    for (size_t i = 0; i < sv->pieces_count; i++) {
        if (sv->pieces[i].steps > 0)
            continue;
        const struct tensor *tensor = jobs_tensor(job, tensor_of(sv, i)->tensor);
        const char *name = tensor ? tensor->name : "?";
        if (sv->is_recovering)
            return err_set(
                err, -EAGAIN,
                "tensor '%.255s' of job %.64s: the lane was lost, and some workers have not yet "
                "reported the state of the tensor; try again",
                name, job->name);
        return err_set(err, -ENODATA,
                       "tensor '%.255s' of job %.64s has no parameters: none were broadcast yet, "
                       "or they were lost with their lane",
                       name, job->name);
    }
    return 0;
}

/* Checks that all pieces of a tensor are in the same round. After a lost connection or replica
 * holder, a round may have ended for the rank and still be open on one of the lanes. */
static int check_rounds(const struct saving *sv, const struct job *job, struct err *err)
{
    for (size_t i = 0; i < sv->pieces_count; i++) {
        const struct saved_tensor *t = tensor_of(sv, i);
        const struct tensor *tensor = jobs_tensor(job, t->tensor);
        if (sv->pieces[i].round != sv->pieces[t->first].round)
            return err_set(
                err, -EAGAIN,
                "tensor '%.255s' of job %.64s: some of its pieces repeat a round; try again",
                tensor ? tensor->name : "?", job->name);
    }
    return 0;
}

static void stand(struct saving *sv, const struct job *job)
{
    int error = saving_answer(sv, job);
    struct err err;
    if (error == -EMSGSIZE)
        return saving_break(
            sv, error,
            "job %.64s has too many tensors for one message; call gp_job_snapshot() in the script",
            job->name);
    if (error < 0) {
        err_set(&err, error, "no snapshot of job %.64s: %s", job->name,
                error == -EAGAIN ? "a tensor was undeclared" : err_text(error));
        return saving_hindered(sv, &err);
    }
    sv->request = 0;
    sv->state = SAVING_STANDS;
    sv->stood_ns = clock_now_ns();
    saving_await(sv);
}

/* Called when all lanes have released their pieces. The rank continues, and the lanes delay its
 * next rounds. */
static void all_rest(struct saving *sv)
{
    struct job *job = jobs_find_id(sv->service, sv->job);
    struct err err;
    if (!job)
        return saving_break(sv, -ECONNRESET, "the job has ended");
    if (check_parameters(sv, job, &err) < 0 || check_rounds(sv, job, &err) < 0)
        return saving_hindered(sv, &err);
    if (!sv->is_between)
        holding_end(job);
    stand(sv, job);
}

static void released(struct service *s, void *data, const envelope *reply, int code,
                     const char *text)
{
    const struct align_asked *asked = data;
    struct saving *sv = saving_find(s, asked->saving);
    struct err err;
    if (!sv || sv->turn != asked->turn || sv->state != SAVING_RESTS)
        return;
    const WIRE(ReleaseReply) *said = reply ? reply->release_reply : NULL;
    if (reply && (reply->body_case != BODY(RELEASE_REPLY) || said->n_rounds != asked->count ||
                  said->n_state_bytes != asked->count || said->n_steps != asked->count))
        return saving_break(sv, -EBADMSG, "a lane's reply lacks the released pieces");
    if (!reply) {
        err_set(&err, code, "%s", text);
        return saving_hindered(sv, &err);
    }
    for (size_t i = 0; i < asked->count; i++) {
        struct saved_piece *p = &sv->pieces[asked->at[i]];
        p->round = said->rounds[i];
        p->state_bytes = said->state_bytes[i];
        p->steps = said->steps[i];
    }
    sv->is_recovering |= said->recovering;
    if (--sv->pending == 0)
        all_rest(sv);
}

static int ask_lane(struct saving *sv, struct job *job, struct lane *lane)
{
    size_t asked_bytes = sizeof(struct align_asked) + sv->pieces_count * sizeof(uint32_t);
    _cleanup_free_ uint32_t *pieces = calloc(sv->pieces_count + 1, sizeof *pieces);
    _cleanup_free_ struct align_asked *asked = malloc(asked_bytes);
    if (!asked || !pieces)
        return -ENOMEM;
    *asked = (struct align_asked){.saving = sv->id, .turn = sv->turn};
    asked->count = saving_gather(sv, job, lane->id, asked->at);
    if (asked->count == 0)
        return 0;
    for (size_t i = 0; i < asked->count; i++)
        pieces[i] = sv->pieces[asked->at[i]].piece;
    int error = lane_call(lane, released, asked, asked_bytes, RELEASE_REQUEST, release_request,
                          .job_id = job->id, .pieces = pieces, .n_pieces = asked->count);
    sv->pending += error == 0;
    return error;
}

static void ask_all(struct saving *sv, struct job *job)
{
    int error = 0;
    sv->is_recovering = false;
    sv->turn++;
    sv->pending = 0;
    sv->state = SAVING_RESTS;
    sv->are_released = true;
    job_claim(job, CLAIM_SNAPSHOT);
    for (size_t i = 0; i < job->shares_count && error == 0; i++)
        error = ask_lane(sv, job, job->shares[i].lane);
    if (error < 0)
        saving_break(
            sv, error,
            "gradpool serve has no memory for a snapshot of job %.64s; raise its memory limit",
            job->name);
    else if (sv->pending == 0)
        saving_break(sv, -EAGAIN, "no snapshot: job %.64s has no tensors any more", job->name);
}

static int check_job(const struct saving *sv, const struct job *job, struct err *err)
{
    if (!job)
        return err_set(err, -ECONNRESET, "the job has ended");
    if (job->failure)
        return err_set(err, -EPIPE, "job %.64s has failed: %s", job->name, job->failure);
    if (moving_is_busy(job))
        return err_set(err, -EBUSY, "tasks of job %.64s are moving", job->name);
    if (job_has_claim(job, CLAIM_REGROUP))
        return err_set(err, -EAGAIN, "workers of job %.64s join or leave", job->name);
    const struct saving *other = saving_of(job);
    if (other && other != sv)
        return err_set(err, -EBUSY,
                       "a snapshot of job %.64s is being made already; try again when it has ended",
                       job->name);
    return 0;
}

static int look(struct saving *sv, struct job **ret_job, struct err *err)
{
    *ret_job = jobs_find_id(sv->service, sv->job);
    int error = check_job(sv, *ret_job, err);
    return error < 0 ? error : collect(sv, *ret_job, err);
}

/* Called when the rank is held or cannot be held. Checks the job again, because another operation
 * may have begun before the rank reached the end of its iteration. */
static void held(struct service *s, uint64_t id, int code, const char *text)
{
    struct saving *sv = saving_find(s, id);
    struct job *job;
    struct err err;
    if (!sv || (sv->state != SAVING_HOLDS && sv->state != SAVING_RESTS))
        return;
    if (code == -EOPNOTSUPP)
        return saving_break(sv, code,
                            "%s: not every tensor is updated once an iteration, so only the ranks "
                            "know the end of an iteration; call gp_job_snapshot() in the script",
                            text);
    int error = code < 0 ? err_set(&err, code, "%s", text) : look(sv, &job, &err);
    if (error < 0)
        return saving_hindered(sv, &err);
    ask_all(sv, job);
}

static void attempt(struct saving *sv)
{
    struct job *job;
    struct err err;
    int error = look(sv, &job, &err);
    if (error < 0 && !job)
        return saving_break(sv, error, "%s", err.text);
    if (error == 0 && sv->is_between)
        return ask_all(sv, job);
    if (error == 0)
        error = holding_begin(job, HOLD_UPDATES, held, sv->id, &err);
    if (error < 0)
        return saving_hindered(sv, &err);
    sv->state = SAVING_HOLDS;
}

static void try_again(struct timer *timer) { attempt(container_of(timer, struct saving, timer)); }

void saving_begin(struct saving *sv)
{
    sv->patience_ns = clock_now_ns() + PATIENCE_NS;
    if (sv->wanted)
        qsort(sv->wanted, sv->wanted_count, sizeof *sv->wanted, compare_numbers);
    timer_init(&sv->timer, try_again);
    attempt(sv);
}

void saving_give_way(const struct job *job, const char *why)
{
    struct saving *sv = saving_of(job);
    struct err err;
    if (!sv || sv->state == SAVING_WAITS)
        return;
    if (sv->are_released)
        return saving_break(sv, -EAGAIN, "job %.64s: no snapshot: %s; try again", job->name, why);
    err_set(&err, -EAGAIN, "job %.64s: no snapshot: %s", job->name, why);
    saving_hindered(sv, &err);
}
