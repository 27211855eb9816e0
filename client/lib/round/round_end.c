/* Ends rounds of a job with backup workers. The hidden tensor is announced after the last gradient;
 * the leader lane answers with the set of the round. A rank outside the set fetches the results of
 * one closed round for all tensors, so that all parameters are of one round. Without update rules
 * the rank fetches the sums of every missed round, in order (W22). This file owns struct
 * backup_rounds. */
#include "client/lib/round/round_end.h"

#include "client/lib/declare/declare.h"
#include "client/lib/job/piece.h"
#include "client/lib/link/copy.h"
#include "client/lib/link/link.h"
#include "client/lib/round/gradients.h"
#include "client/lib/round/internal.h"
#include "client/lib/round/push_pull.h"
#include "client/lib/round/settle.h"
#include "client/lib/round/wait.h"
#include "client/lib/session/process.h"
#include "svc/base/clock.h"
#include "svc/wire/round_set.h"

#include <errno.h>
#include <inttypes.h>

/* Returns the failure of the job, of the hidden tensor, or of a tensor in the job's rounds; NULL:
 * none has failed. */
static const struct err *round_end_failure(struct gp_job *job)
{
    if (job->failure.code)
        return &job->failure;
    if (job->backup.leader && job->backup.leader->failure.code)
        return &job->backup.leader->failure;
    for_each_tensor (t, job) {
        if (terms_are_following(&t->terms) && t->failure.code)
            return &t->failure;
    }
    return NULL;
}

/* Returns a tensor of the request whose round stays open for another gradient of this rank, which
 * the leader lane wants or the script computes; NULL: there is none. */
static const struct gp_tensor *round_end_find_awaited(const struct gp_request *q)
{
    enum backup_phase phase = q->job->backup.phase;
    bool is_open = phase == BACKUP_WANTED || phase == BACKUP_AGAIN;
    if (!is_open || round_end_failure(q->job))
        return NULL;
    for_each_tensor (t, q->job) {
        if (terms_are_following(&t->terms) && t->request == q)
            return t;
    }
    return NULL;
}

bool round_end_is_awaited(const struct gp_request *q) { return round_end_find_awaited(q); }

static int round_end_refuse_wait(const struct gp_job *job, const struct gp_tensor *t)
{
    return client_error(-EDEADLK,
                        "tensor '%s': round %" PRIu64
                        " of the job is not ended; call gp_round_end() before gp_wait()",
                        t->name, job->backup.held + 1);
}

int round_end_is_due(const struct gp_request *q)
{
    const struct backup_rounds *b = &q->job->backup;
    const struct gp_tensor *awaited = round_end_find_awaited(q);
    if (awaited)
        return round_end_refuse_wait(q->job, awaited);
    if (b->count == 0 || b->phase != BACKUP_OPEN || round_end_failure(q->job))
        return 0; /* the request has failed, too, so gp_wait() returns the cause */
    list_for_each (node, &q->waiting) {
        const struct gp_tensor *t = list_entry(node, struct gp_tensor, in_request);
        const struct push *push = t->is_queued || t->is_starting ? &t->next : &t->open;
        /* false: this rank has ended this round */
        bool is_open = push->root == (uint32_t)(b->held + 1);
        if (tensor_follows(t, push->operation) && is_open)
            return round_end_refuse_wait(q->job, t);
    }
    return 0;
}

/* ---- conditions for the engine ---- */

static bool round_end_is_begun(const struct gp_tensor *t)
{
    return !t->is_queued && !t->is_starting;
}
static bool round_end_has_landed(const struct gp_tensor *t) { return t->without_result == 0; }
static bool round_end_is_answered(const struct gp_tensor *t) { return t->without_commit == 0; }

static bool round_end_all(struct gp_job *job, bool (*is_done)(const struct gp_tensor *t))
{
    for_each_tensor (t, job) {
        if (terms_are_following(&t->terms) && !is_done(t))
            return false;
    }
    return true;
}

static bool all_have_begun(void *job)
{
    return round_end_failure(job) || round_end_all(job, round_end_is_begun);
}

static bool all_have_landed(void *job)
{
    return round_end_failure(job) || round_end_all(job, round_end_has_landed);
}

static bool all_are_answered(void *job)
{
    return round_end_failure(job) || round_end_all(job, round_end_is_answered);
}

static bool leader_has_answered(void *context)
{
    struct gp_job *job = context;
    return round_end_failure(job) || job->backup.leader->without_commit == 0;
}

static bool report_is_answered(void *context)
{
    struct gp_job *job = context;
    return round_end_failure(job) || job->backup.report == REPORT_ANSWERED;
}

static int round_end_drive(struct gp_job *job, uint64_t deadline_ns, bool (*until)(void *job),
                           const char *awaited)
{
    bool is_done = engine_run(&job->engine, deadline_ns, until, job);
    const struct err *failure = round_end_failure(job);
    if (failure)
        return client_error_from(failure);
    if (is_done)
        return 0;
    return client_error(
        -ETIMEDOUT, "job '%s' round %" PRIu64 ": %s; call gp_round_end() again to go on waiting",
        job->name, job->backup.held + 1, awaited);
}

/* ---- the announcement ---- */

static int round_end_check_pushes(struct gp_job *job)
{
    uint32_t number = (uint32_t)(job->backup.held + 1);
    for_each_tensor (t, job) {
        bool is_pushed = tensor_follows(t, t->open.operation) && t->open.root == number;
        if (terms_are_following(&t->terms) && !is_pushed)
            return client_error(-EINVAL,
                                "tensor '%s' has no gradient in round %" PRIu64
                                " of the job; push each tensor once, then call gp_round_end()",
                                t->name, job->backup.held + 1);
    }
    return 0;
}

/* Announces the hidden tensor after all gradients. As soon as the leader lane has this
 * announcement, it may count this rank, and every lane must be able to read the gradients. */
static int round_end_announce(struct gp_job *job, uint64_t deadline_ns)
{
    struct backup_rounds *b = &job->backup;
    int error = round_end_drive(job, deadline_ns, all_have_begun,
                                "the round before is not committed by all lanes");
    if (error == 0)
        error = round_end_check_pushes(job);
    if (error == 0)
        error = push_internal(b->leader, RECORD_BARRIER, &b->request);
    if (error == 0)
        b->phase = BACKUP_ANNOUNCED;
    return error;
}

/* Announces another gradient. If the round has failed, its request may be gone, so the failure is
 * returned instead. */
static int round_end_announce_again(struct gp_job *job)
{
    const struct err *failure = round_end_failure(job);
    return failure ? client_error_from(failure) : gradients_announce(job);
}

/* Announces the hidden tensor without a gradient of this rank. The last results must be committed,
 * because the next results land in the same memory. */
int round_end_announce_none(struct gp_job *job, uint64_t deadline_ns)
{
    struct backup_rounds *b = &job->backup;
    int error = round_end_drive(job, deadline_ns, all_are_answered,
                                "the round before is not committed by all lanes");
    if (error == 0)
        error = push_without(b->leader, &b->request);
    if (error == 0)
        b->phase = BACKUP_ANNOUNCED;
    return error;
}

/* Reports that this rank is in the set of the round, and has given up another gradient of this
 * round. */
void round_end_leave(struct gp_job *job)
{
    struct backup_rounds *b = &job->backup;
    b->phase = BACKUP_ANNOUNCED;
    b->report = REPORT_LEFT;
    link_flush(b->leader->pieces->link);
    engine_flush(&job->engine);
}

/* ---- a rank outside the set ---- */

/* Requests the result of the round `ahead` rounds after the open one. From then on lanes do not
 * read this rank's gradient of the tensor. */
static void round_end_take(struct gp_tensor *t, uint64_t ahead)
{
    uint64_t steps = t->steps[t->round % 3];
    t->round += ahead;
    t->steps[t->round % 3] = steps + ahead;
    t->open.root += (uint32_t)ahead; /* READY gives a new owner the number of the job's round */
    t->open.is_taking = true;
    t->without_result = t->without_commit = t->pieces_count;
    for_each_piece (p, t) {
        piece_retract(p);
        piece_new_word(p);
        p->standing = PIECE_ANNOUNCED;
        link_announce(p->link, p);
    }
}

/* Requests the results of `round` for all tensors. `newest`: the last round that this rank
 * fetches. */
void round_end_take_all(struct gp_job *job, uint64_t from, uint64_t round, uint64_t newest)
{
    job->backup.taking = round;
    job->backup.newest = newest;
    job->backup.report = REPORT_NONE;
    for_each_tensor (t, job) {
        if (terms_are_following(&t->terms))
            round_end_take(t, round - from);
    }
    engine_flush(&job->engine);
}

/* Reports the fetched round to the leader lane, and waits for the answer: the same round if the
 * rank may continue, otherwise a newer round to fetch. */
static int round_end_report(struct gp_job *job, uint64_t deadline_ns)
{
    struct backup_rounds *b = &job->backup;
    if (b->report == REPORT_NONE) {
        b->report = REPORT_OWED;
        link_flush(b->leader->pieces->link);
        engine_flush(&job->engine);
    }
    return round_end_drive(job, deadline_ns, report_is_answered,
                           "the leader lane has not named the newest round");
}

/* Repeats the requests until all results are of one round, and the leader lane requires no newer
 * round. A lane that has dropped a round names a later round. */
static int round_end_await_taken(struct gp_job *job, uint64_t deadline_ns)
{
    struct backup_rounds *b = &job->backup;
    for (;;) {
        int error = round_end_drive(job, deadline_ns, all_are_answered,
                                    "a lane has not sent the parameters of a later round");
        if (error == 0)
            error = round_end_report(job, deadline_ns);
        if (error < 0)
            return error;
        if (b->newest == b->taking)
            break;
        round_end_take_all(job, b->taking, b->newest, b->newest);
    }
    return 0;
}

/* Waits for the results of one round. After the last round a report to the leader lane says that no
 * sums are missing; the answer may name a newer round. */
int round_end_await_sums(struct gp_job *job, uint64_t deadline_ns)
{
    const struct backup_rounds *b = &job->backup;
    int error = round_end_drive(job, deadline_ns, all_are_answered,
                                "a lane has not sent the result of a closed round");
    bool is_last = b->taking == b->newest || b->report != REPORT_NONE;
    return error == 0 && is_last ? round_end_report(job, deadline_ns) : error;
}

static void round_end_copy(const struct gp_tensor *t)
{
    struct gp_job *job = t->job;
    bool is_long = t->open.result_bytes > COPY_LOCKED_BYTES;
    if (is_long)
        pthread_mutex_unlock(&job->lock);
    copy_from_wire(t->open.result, slabs_at(&job->slabs, t->open.landing), t->open.result_bytes,
                   (struct copy_dtypes){t->values, t->dtype}, copy_streams_from(job->staged_bytes));
    if (is_long)
        pthread_mutex_lock(&job->lock);
}

/* Copies the results that this rank has fetched to the result arrays of its last push. */
void round_end_copy_taken(struct gp_job *job)
{
    for_each_tensor (t, job) {
        if (t->open.is_taking && t->open.copies_out)
            round_end_copy(t);
        /* set last, because a tensor in this state cannot be undeclared while its result is
         * copied */
        t->open.is_taking = false;
    }
}

static int round_end_await_dropped(struct gp_job *job, uint64_t deadline_ns)
{
    int error = job->backup.leader->terms.lag > 0 ? round_end_await_sums(job, deadline_ns)
                                                  : round_end_await_taken(job, deadline_ns);
    if (error < 0)
        return error;
    for_each_tensor (t, job) {
        if (terms_are_following(&t->terms) && t->request)
            settle_taken(t);
    }
    /* copied here, because a round without a push has no request whose wait would copy the
     * results */
    round_end_copy_taken(job);
    return 0;
}

/* ---- the answer ---- */

/* Returns whether this rank has a gradient in the open round. */
static bool round_end_has_pushed(const struct gp_job *job)
{
    for_each_tensor (t, job) {
        if (terms_are_following(&t->terms))
            return t->open.root == (uint32_t)(job->backup.held + 1);
    }
    return true;
}

static int round_end_hear(struct gp_job *job, uint64_t deadline_ns, uint64_t timeout_ns)
{
    struct backup_rounds *b = &job->backup;
    uint64_t round = b->held + 1;
    int error = b->request ? wait_locked(b->request, deadline_ns, timeout_ns) : 0;
    if (error == -ETIMEDOUT)
        return error;
    if (error == WAIT_GOES_ON) {
        b->phase = BACKUP_AGAIN;
        return 0;
    }
    b->request = NULL;
    if (error == 0)
        error = round_end_drive(job, deadline_ns, leader_has_answered,
                                "the leader lane has not committed the round");
    if (error < 0)
        return error;
    const struct record_chosen *set = &job->chosen[round & 1];
    bool is_counted = set->round == round && round_set_count(set, job->rank) > 0;
    uint64_t newest = b->leader->round, first = b->leader->terms.lag > 0 ? round : newest;
    bool skips = !round_end_has_pushed(job), is_open = skips && newest == b->held;
    b->phase = is_open ? BACKUP_OPEN : is_counted ? BACKUP_LANDING : BACKUP_TAKING;
    if (b->phase == BACKUP_TAKING)
        round_end_take_all(job, skips ? b->held : round, first, newest);
    return 0;
}

void round_end_finish(struct gp_job *job, gp_round *ret_round)
{
    struct backup_rounds *b = &job->backup;
    bool is_dropped = b->phase == BACKUP_TAKING || b->phase == BACKUP_NEXT;
    uint64_t round = is_dropped ? b->taking : b->held + 1;
    const struct record_chosen *set = &job->chosen[round & 1];
    gp_round end = {.number = round,
                    .missed = is_dropped ? round - b->held : 0,
                    .counted = set->round == round ? round_set_gradients(set) : 0,
                    .of = b->leader->members,
                    .own = is_dropped ? 0 : round_set_count(set, job->rank)};
    b->held = round;
    b->phase = BACKUP_OPEN;
    b->report = REPORT_NONE;
    if (backup_passed(b) <= round)
        backup_pass(b, 0);
    if (ret_round)
        *ret_round = end;
}

/* Refuses a second thread. Two threads would count the same round twice. */
int round_end_begin_use(struct gp_job *job)
{
    if (job->backup.is_used)
        return client_error(-EBUSY,
                            "job '%s': another thread ends a round of rank %u or fetches one; "
                            "make these calls in one thread",
                            job->name, job->rank);
    job->backup.is_used = true;
    return 0;
}

int round_end_check_missed(const struct gp_job *job)
{
    const struct backup_rounds *b = &job->backup;
    bool lacks = b->phase == BACKUP_OPEN && b->leader->terms.lag > 0 && b->held < b->newest;
    if (!lacks && b->phase != BACKUP_NEXT)
        return 0;
    return client_error(-EINVAL,
                        "job '%s': rank %u lacks the result of round %" PRIu64
                        "; call gp_round_next() until it returns 0, then push and end the round",
                        job->name, job->rank, b->held + 1);
}

/* Ends the announced round. If this rank has no gradient in the round and the lane that closed the
 * round has died, the round may be open again; the result is then ROUND_GOES_ON. */
int round_end_go_on(struct gp_job *job, uint64_t deadline_ns, uint64_t timeout_ns,
                    gp_round *ret_round)
{
    struct backup_rounds *b = &job->backup;
    int error = 0;
    if (b->phase == BACKUP_ANNOUNCED || b->phase == BACKUP_WANTED)
        error = round_end_hear(job, deadline_ns, timeout_ns);
    if (error == 0 && b->phase == BACKUP_LANDING)
        error =
            round_end_drive(job, deadline_ns, all_have_landed, "a lane has not sent its result");
    if (error == 0 && b->phase == BACKUP_TAKING)
        error = round_end_await_dropped(job, deadline_ns);
    if (error < 0)
        return error;
    if (b->phase == BACKUP_AGAIN)
        return ROUND_GOES_ON;
    if (b->phase == BACKUP_OPEN) {
        backup_pass(b, 0);
        return ROUND_GOES_ON;
    }
    int is_dropped = b->phase == BACKUP_TAKING;
    round_end_finish(job, ret_round);
    return is_dropped;
}

static int round_end_locked(struct gp_job *job, uint64_t deadline_ns, uint64_t timeout_ns,
                            gp_round *ret_round)
{
    const struct backup_rounds *b = &job->backup;
    int error = round_end_check_missed(job);
    if (error == 0 && b->phase == BACKUP_OPEN)
        error = round_end_announce(job, deadline_ns);
    if (error == 0 && b->phase == BACKUP_AGAIN)
        error = round_end_announce_again(job);
    return error < 0 ? error : round_end_go_on(job, deadline_ns, timeout_ns, ret_round);
}

int round_end_check_job(struct gp_job *job)
{
    int error = job_check(job);
    if (error < 0 || job->backup.count > 0)
        return error;
    return client_error(-EINVAL,
                        "job '%s' has no backup workers, so its rounds have no end; set "
                        "gp_job_spec.backup, or leave gp_round_end() out",
                        job->name);
}

int gp_round_end(gp_job *job, double loss, int timeout_ms, gp_round *ret_round)
{
    int error = round_end_check_job(job);
    if (error < 0)
        return error;
    struct gp_tensor *leader = job->backup.leader;
    uint64_t timeout_ns = wait_timeout_ns(job->client, timeout_ms);
    /* deadline of the declare and the wait together */
    uint64_t deadline_ns = clock_now_ns() + timeout_ns;
    job->users++;
    if (!leader)
        error = declare_leader(job, timeout_ns, &leader);
    pthread_mutex_lock(&job->lock);
    job->loss = (float)loss;
    if (error == 0)
        job->backup.leader = leader;
    if (error == 0)
        error = round_end_begin_use(job);
    if (error == 0) {
        error = round_end_locked(job, deadline_ns, timeout_ns, ret_round);
        job->backup.is_used = false;
    }
    job_end_use(job);
    return error;
}

/* Checks that gp_wait() has ended the last push, because the next results land in the same
 * memory. */
int round_end_check_requests(struct gp_job *job)
{
    for_each_tensor (t, job) {
        if (terms_are_following(&t->terms) && t->request)
            return client_error(-EBUSY,
                                "tensor '%s' has a request that nobody waited for; wait for the "
                                "request, then call again",
                                t->name);
    }
    return 0;
}
