/* Begins steps. A rank sends the record of a step before its gradients, and awaits the complete
 * record at the beginning of the next step. This file owns the phases of struct job_steps. */
#include "client/lib/elastic/carry.h"
#include "client/lib/job/tensor.h"
#include "client/lib/round/entry.h"
#include "client/lib/round/push_pull.h"
#include "client/lib/round/wait.h"
#include "client/lib/session/process.h"
#include "client/lib/steps/internal.h"
#include "svc/base/clock.h"
#include "svc/wire/mixed_key.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#define END_NS (2 * NS_PER_S) /* longest wait for the round that marks the end */
#define BEGIN_GOES_ON 99      /* gp_step_begin() continues with the next phase */

struct beginning {
    struct gp_job *job;
    struct job_steps *steps;
    uint64_t deadline_ns, timeout_ns;
    gp_step *ret_step;
};

/* Stores the error, after which no step of the job can begin. */
static int begin_fail(const struct beginning *b, int error)
{
    b->steps->failure = error;
    return error;
}

/* ---- results for the script ---- */

/* Returns the number of a step in the training, which other jobs may have begun. */
static uint64_t begin_number(const struct beginning *b, uint64_t number)
{
    return b->steps->rest->before + number;
}

static void begin_describe(const struct beginning *b, const struct deal_step *step)
{
    uint32_t rank = b->job->rank;
    *b->ret_step = (gp_step){.number = begin_number(b, step->number),
                             .epoch = step->epoch,
                             .cursor = step->cursor,
                             .workers = ranks_count(step->members),
                             .place = ranks_below(step->members, rank),
                             .batch = (uint32_t)step->runs.samples,
                             .weight = (uint32_t)deal_share(step, rank)};
    b->steps->weight = b->ret_step->weight;
}

/* Describes a step of a rank that has no deal yet. */
static void begin_describe_late(const struct beginning *b)
{
    *b->ret_step = (gp_step){.number = begin_number(b, b->steps->number), .flags = GP_STEP_ENTERS};
    b->steps->weight = 0;
}

/* ---- tensors of the script ---- */

static bool is_of_steps(const struct beginning *b, const struct gp_tensor *t)
{
    bool is_counted = t->scopes >> GRADPOOL__WIRE__HOLD_SCOPE__HOLD_ROUNDS & 1;
    return is_counted && t != b->steps->record && !t->failure.code;
}

/* Returns the number of rounds that the script's tensors have completed, which must be the same on
 * all ranks with the state. */
static uint64_t begin_rounds(const struct beginning *b)
{
    uint64_t rounds = 0;
    for_each_tensor (t, b->job) {
        if (is_of_steps(b, t))
            rounds += t->round;
    }
    return rounds;
}

static int begin_check_requests(const struct beginning *b)
{
    for_each_tensor (t, b->job) {
        if (is_of_steps(b, t) && t->request)
            return client_error(
                -EBUSY, "tensor '%s' has an open request; call gp_wait(), then begin the next step",
                t->name);
    }
    return 0;
}

/* Returns whether the training has ended before the step: the deal has no more samples, or the
 * script has ended the deal. */
static bool begin_is_end(const struct job_steps *s, const struct deal_step *step)
{
    return step->is_end || s->rest->is_ended;
}

/* ---- the record ---- */

/* Returns a hash of the deal, its cursor at the beginning, and whether the script may end its
 * processes when the job rests: these are the same on all ranks. */
static uint64_t begin_print(const struct job_steps *s)
{
    uint64_t print = deal_print(&s->deal->spec);
    return s->rest->may_end ? mixed_key(s->rest->print, print) : print;
}

/* Returns whether the last resize has removed this rank. Before the first message about the
 * membership (version 0), the rank stays. */
static bool begin_has_to_leave(const struct gp_job *job)
{
    return job->membership.version > 0 && job->membership.wanted <= job->rank;
}

static int begin_send(const struct beginning *b, const struct deal_step *step, bool is_counted)
{
    struct job_steps *s = b->steps;
    bool is_end = step && begin_is_end(s, step);
    s->is_leaving |= begin_has_to_leave(b->job);
    step_words_write(&(struct step_word){.rank = b->job->rank,
                                         .is_leaving = s->is_leaving,
                                         .holds = s->holds,
                                         .is_full = step && !is_end && step->runs.samples > 0,
                                         .is_end = is_end,
                                         .rounds = begin_rounds(b),
                                         .print = begin_print(s),
                                         .rest = s->rest->newest & 1 ? s->rest->newest : 0},
                     s->sent);
    int error = push_words(s->record, s->sent, s->heard, is_counted, &s->request);
    if (error == 0)
        s->phase = STEPS_RECORD;
    return error;
}

static int begin_name_fault(const struct beginning *b, int error)
{
    const struct deal_spec *spec = &b->steps->deal->spec;
    const char *job = b->job->name;
    uint64_t number = begin_number(b, b->steps->number);
    if (error == -EOWNERDEAD)
        return client_error(error,
                            "job '%s' step %" PRIu64 ": all ranks with the state of the training "
                            "were lost, or have left before its end; start the job again, from "
                            "a snapshot",
                            job, number);
    if (error == -EINVAL)
        return client_error(error,
                            "job '%s' step %" PRIu64
                            ": ranks have declared different deals; this rank declared %" PRIu64
                            " samples, %" PRIu64 " epochs, seed %" PRIu64
                            ", batch %u, batch_per_worker %u, prefetch %u, share_least %u. Give "
                            "all ranks the same gp_deal",
                            job, number, spec->samples, spec->epochs, spec->seed, spec->batch,
                            spec->batch_per_worker, spec->prefetch, spec->share_least);
    return client_error(error,
                        "job '%s' step %" PRIu64 ": ranks have completed different numbers of "
                        "rounds. Push the same tensors on all ranks in each step, with one "
                        "version of the library",
                        job, number);
}

/* ---- the end ---- */

/* Ends the steps of this rank. A rank without the state has joined after the end of the
 * training. */
static int begin_be_over(const struct beginning *b)
{
    struct job_steps *s = b->steps;
    s->phase = STEPS_OVER;
    if (!s->holds) {
        begin_describe_late(b);
        return GP_ENDED;
    }
    const struct deal_step *step = deal_step(s->deal, s->number + 1);
    begin_describe(b, step);
    return begin_is_end(s, step) ? GP_TRAINED : GP_LEAVES;
}

/* Sends one more record than this rank's shares need. When this last record is complete, all ranks
 * have the previous record. If the rank left earlier, the other ranks might repeat the previous
 * record without this rank, and the rank's last shares would return to the deal. */
static int begin_send_last(const struct beginning *b, const struct deal_step *step)
{
    int error = begin_send(b, step, false);
    if (error < 0)
        return error;
    b->steps->phase = STEPS_LAST;
    return BEGIN_GOES_ON;
}

/* Ends the last record, whose errors are ignored, because every share of this rank is confirmed. */
static int begin_end_last(const struct beginning *b)
{
    struct job_steps *s = b->steps;
    if (wait_locked(s->request, b->deadline_ns, b->timeout_ns) == -ETIMEDOUT)
        return -ETIMEDOUT;
    s->request = NULL;
    if (!begin_is_end(s, deal_step(s->deal, s->number + 1)))
        return begin_be_over(b);
    s->phase = STEPS_END;
    return BEGIN_GOES_ON;
}

/* Makes the only round of `end`, whose number the lanes store. A late worker that finds this number
 * knows that the training has ended, even if all other ranks have left; without this round it gets
 * -EOWNERDEAD. The wait is short, because a worker in the middle of its entry does not push
 * `end`. */
static int begin_mark_end(const struct beginning *b)
{
    struct job_steps *s = b->steps;
    if (push_words(s->end, s->sent, s->heard, false, &s->request) == 0)
        (void)wait_locked(s->request, clock_now_ns() + END_NS, END_NS);
    return begin_be_over(b);
}

/* Returns whether all other ranks left before this late worker declared a tensor. The service has
 * then dropped the tensors, so the records start again. In a job with GP_CONTINUE the other ranks
 * may have been lost instead. */
static bool begin_is_deserted(const struct beginning *b)
{
    const struct job_steps *s = b->steps;
    return !s->holds && s->record->round == 1 && !b->job->join.continues;
}

/* ---- contents of the record ---- */

/* Returns the phase after the step: the hand-over of the deal, if ranks without the state have
 * entered all tensors. All ranks compute the same phase from the record. */
static enum steps_phase begin_find_phase(const struct job_steps *s)
{
    const struct deal_record *record = &s->sum.record;
    bool is_entered = memcmp(record->present, record->holds, sizeof record->present) != 0;
    return is_entered && s->sum.late_are_level ? STEPS_CARRY : STEPS_NEXT;
}

/* Handles the record on a rank without the state: compares the number of its rounds with the
 * members' number, because a late worker must have entered all tensors before this step. */
static int begin_hear_late(const struct beginning *b)
{
    struct job_steps *s = b->steps;
    if (s->sum.kind == STEP_END) {
        s->phase = STEPS_END;
        return BEGIN_GOES_ON;
    }
    if (begin_rounds(b) != s->sum.rounds)
        return begin_fail(b, client_error(-ESTALE,
                                          "job '%s': rank %u did not enter all tensors before "
                                          "step %" PRIu64 "; leave the job and join again",
                                          b->job->name, b->job->rank, begin_number(b, s->number)));
    s->phase = s->sum.kind == STEP_FULL ? STEPS_BODY : begin_find_phase(s);
    if (s->phase != STEPS_BODY)
        return BEGIN_GOES_ON;
    begin_describe_late(b);
    return 0;
}

static int begin_hear(const struct beginning *b)
{
    struct job_steps *s = b->steps;
    int error = wait_locked(s->request, b->deadline_ns, b->timeout_ns);
    if (error == -ETIMEDOUT)
        return error;
    s->request = NULL;
    if (error < 0)
        return begin_fail(b, error);
    s->number = s->holds ? s->number : s->record->round;
    error = step_words_read(s->heard, b->job->workers, b->job->rank, begin_print(s), &s->sum);
    if (error == -EOWNERDEAD && begin_is_deserted(b))
        return begin_be_over(b);
    if (error < 0)
        return begin_fail(b, begin_name_fault(b, error));
    s->rest->recorded = step_words_rest(s->heard);
    if (!s->holds)
        return begin_hear_late(b);
    error = deal_apply(s->deal, &s->sum.record);
    if (error < 0)
        return begin_fail(b,
                          error == -ENOMEM
                              ? client_error(error, "gp_step_begin: this process has no memory for "
                                                    "the state of the deal; raise its memory limit")
                              : begin_name_fault(b, error));
    s->phase = begin_find_phase(s);
    return BEGIN_GOES_ON;
}

/* ---- late workers ---- */

static bool begin_has_entered(void *context)
{
    const struct gp_job *job = context;
    if (job->failure.code)
        return true;
    for_each_tensor (t, job) {
        if (t->entering > 0 && !t->failure.code)
            return false;
    }
    return true;
}

/* Sends the first record of this rank, which does not have the state yet. The rank must have
 * entered all tensors, because the record contains the number of their rounds. */
static int begin_send_late(const struct beginning *b)
{
    struct gp_job *job = b->job;
    if (begin_has_to_leave(job)) {
        begin_describe_late(b);
        return GP_LEAVES;
    }
    entry_ask(job);
    if (!engine_run(&job->engine, b->deadline_ns, begin_has_entered, job))
        return client_error(-ETIMEDOUT,
                            "job '%s': rank %u has not entered all tensors after %" PRIu64
                            " ms; the other ranks have not ended a step. Call gp_step_begin() "
                            "again to continue waiting",
                            job->name, job->rank, b->timeout_ns / NS_PER_MS);
    if (job->failure.code)
        return client_error_from(&job->failure);
    if (b->steps->end->round > 0)
        return begin_be_over(b);
    int error = begin_send(b, NULL, true);
    return error < 0 ? error : BEGIN_GOES_ON;
}

/* Reads the deal from the words of the giver. Returns 1, or an error. 0: the giver was lost during
 * the hand-over, so this rank stays without the state, and a later giver sends the deal again. */
static int begin_take_carry(const struct beginning *b)
{
    struct job_steps *s = b->steps;
    const struct deal_spec spec = s->deal->spec;
    int error = s->carried ? carry_read(s->carried, s->carried_total, &spec, s->deal) : -ENOMEM;
    s->deal->spec = spec;
    if (error == 0 && s->deal->record != s->number)
        error = -EBADMSG; /* the giver has sent the state of another step */
    if (error == -ENOMEM)
        return begin_fail(b, client_error(error, "gp_step_begin: this process has no memory for "
                                                 "the state of the deal; raise its memory limit"));
    if (error == -EINVAL)
        return begin_fail(b, begin_name_fault(b, error));
    return error == 0;
}

static int begin_carry(const struct beginning *b)
{
    struct job_steps *s = b->steps;
    int result = carry_exchange(b->job, b->deadline_ns, b->timeout_ns);
    if (result == -ETIMEDOUT)
        return result;
    int taken = result > 0 && !s->holds ? begin_take_carry(b) : 1;
    free(s->carried);
    s->carried = NULL;
    s->carried_total = s->carried_count = 0;
    if (result < 0 || taken < 0)
        return begin_fail(b, result < 0 ? result : taken);
    s->phase = result == 0 ? STEPS_NEXT : taken ? STEPS_CARRIED : STEPS_MISSED;
    if (result == 0)
        return BEGIN_GOES_ON;
    *b->ret_step =
        (gp_step){.number = begin_number(b, s->number + 1), .giver = carry_giver(&s->sum.record)};
    return GP_CARRIES;
}

/* Ends the hand-over after the script's part. The rank has the state now, unless the hand-over was
 * incomplete. */
static int begin_end_carry(const struct beginning *b)
{
    struct job_steps *s = b->steps;
    const struct deal_spec spec = s->deal->spec;
    if (s->phase == STEPS_MISSED)
        deal_fini(s->deal);
    s->deal->spec = spec;
    s->holds |= s->phase == STEPS_CARRIED;
    s->phase = STEPS_NEXT;
    return BEGIN_GOES_ON;
}

/* ---- members ---- */

/* Returns whether this rank has left the deal and all its shares are confirmed. */
static bool begin_is_free(const struct beginning *b)
{
    const struct step_deal *deal = b->steps->deal;
    uint32_t rank = b->job->rank;
    if (!b->steps->is_leaving || ranks_have(deal->members, rank))
        return false;
    for (uint64_t number = deal->record; deal_step(deal, number); number++) {
        if (deal_share(deal_step(deal, number), rank) > 0)
            return false;
    }
    return true;
}

static int begin_next(const struct beginning *b)
{
    struct job_steps *s = b->steps;
    const struct deal_step *step = deal_step(s->deal, s->number + 1);
    bool is_full = step->runs.samples > 0;
    begin_describe(b, step);
    if (begin_is_end(s, step) || begin_is_free(b))
        return begin_send_last(b, step);
    int error = begin_send(b, step, is_full);
    if (error < 0)
        return error;
    s->number++;
    return is_full ? 0 : BEGIN_GOES_ON;
}

/* Returns whether the script gets GP_RESTS now. Only the record decides, because the record is the
 * same on all ranks: a message that ends the rest may have reached some ranks only. Returns false
 * if a rank leaves or lacks the state, because such a rank cannot take part. */
static bool begin_offers_end(const struct job_steps *s)
{
    const struct deal_record *record = &s->sum.record;
    return s->rest->may_end && s->holds && s->rest->recorded != 0 &&
           s->rest->offered != s->rest->recorded && ranks_are_none(record->leaving) &&
           memcmp(record->present, record->holds, sizeof record->present) == 0;
}

static int begin_offer_end(const struct beginning *b)
{
    struct job_steps *s = b->steps;
    s->rest->offered = s->rest->recorded;
    s->rest->is_offered = true;
    *b->ret_step = (gp_step){.number = begin_number(b, s->number + 1),
                             .workers = ranks_count(s->sum.record.present),
                             .giver = carry_giver(&s->sum.record)};
    return GP_RESTS;
}

/* Rests before the next step, unless the training has ended. After the rest the time-out of the
 * call begins again. */
static int begin_rest(struct beginning *b)
{
    struct job_steps *s = b->steps;
    const struct deal_step *step = s->holds ? deal_step(s->deal, s->number + 1) : NULL;
    if (step && begin_is_end(s, step))
        return BEGIN_GOES_ON;
    if (begin_offers_end(s))
        return begin_offer_end(b);
    if (steps_rest(b->job))
        b->deadline_ns = clock_now_ns() + b->timeout_ns;
    return BEGIN_GOES_ON;
}

static int begin_rest_and_next(struct beginning *b)
{
    int result = begin_rest(b);
    if (result != BEGIN_GOES_ON)
        return result;
    return b->steps->holds ? begin_next(b) : begin_send_late(b);
}

static int begin_go_on(struct beginning *b)
{
    switch (b->steps->phase) {
    case STEPS_NEXT: return begin_rest_and_next(b);
    case STEPS_RECORD: return begin_hear(b);
    case STEPS_BODY: b->steps->phase = begin_find_phase(b->steps); return BEGIN_GOES_ON;
    case STEPS_CARRY: return begin_carry(b);
    case STEPS_CARRIED:
    case STEPS_MISSED: return begin_end_carry(b);
    case STEPS_LAST: return begin_end_last(b);
    case STEPS_END: return begin_mark_end(b);
    case STEPS_OVER: return begin_be_over(b);
    }
    return -EINVAL;
}

static int begin_locked(struct beginning *b)
{
    struct job_steps *s = b->steps;
    int result = begin_check_requests(b);
    if (s->failure)
        return client_error(s->failure,
                            "job '%s': an earlier gp_step_begin() has failed, so no further step "
                            "can begin; leave the job",
                            b->job->name);
    if (result < 0)
        return result;
    s->rest->is_used = true;
    s->rest->is_offered = false;
    do {
        result = begin_go_on(b);
    } while (result == BEGIN_GOES_ON);
    s->rest->is_used = false;
    return result;
}

static int begin_check(const struct gp_job *job)
{
    if (!job->steps || !job->steps->record)
        return client_error(-EINVAL, "job '%s' has no deal; call gp_deal_declare() first",
                            job->name);
    if (job->steps->rest->is_used)
        return client_error(
            -EBUSY, "another thread is in gp_step_begin() of job '%s'; begin steps in one thread",
            job->name);
    return 0;
}

int gp_step_begin(gp_job *job, int timeout_ms, gp_step *ret_step)
{
    gp_step step;
    int error = job_check(job);
    if (error < 0)
        return error;
    if (!ret_step)
        return client_error(-EINVAL, "gp_step_begin: ret_step is NULL; pass a pointer");
    uint64_t timeout_ns = wait_timeout_ns(job->client, timeout_ms);
    uint64_t deadline_ns = clock_now_ns() + timeout_ns;
    job->users++;
    pthread_mutex_lock(&job->lock);
    error = begin_check(job);
    struct beginning b = {job, job->steps, deadline_ns, timeout_ns, &step};
    int result = error < 0 ? error : begin_locked(&b);
    job_end_use(job);
    if (result >= 0)
        *ret_step = step;
    return result;
}

/* ---- shares ---- */

int gp_step_share(gp_job *job, uint64_t step, uint64_t *ret_samples, size_t room)
{
    int error = job_check(job);
    if (error < 0)
        return error;
    if (!ret_samples && room > 0)
        return client_error(-EINVAL,
                            "gp_step_share: ret_samples is NULL; pass memory for the samples");
    pthread_mutex_lock(&job->lock);
    const struct job_steps *s = job->steps;
    bool is_late = s && s->record && !s->holds;
    uint64_t before = s ? s->rest->before : 0;
    const struct deal_step *dealt =
        s && s->holds && step > before ? deal_step(s->deal, step - before) : NULL;
    int count = 0;
    if (dealt)
        count = (int)deal_samples(s->deal, dealt, job->rank, 0, ret_samples, room);
    else if (!is_late)
        count = client_error(-ENOENT,
                             "job '%s': the shares of step %" PRIu64 " are not known; pass the "
                             "present step, or a step that is at most gp_deal.prefetch later",
                             job->name, step);
    pthread_mutex_unlock(&job->lock);
    return count;
}

int gp_step_missed(gp_job *job)
{
    int error = job_check(job);
    if (error < 0)
        return error;
    pthread_mutex_lock(&job->lock);
    struct job_steps *s = job->steps;
    bool is_given = s && (s->phase == STEPS_CARRIED || s->phase == STEPS_MISSED) && !s->holds;
    if (is_given)
        s->phase = STEPS_MISSED;
    else
        error = client_error(-EINVAL,
                             "gp_step_missed: job '%s': rank %u awaits no state; call "
                             "gp_step_missed() only after GP_CARRIES",
                             job->name, job->rank);
    pthread_mutex_unlock(&job->lock);
    return error;
}

int gp_deal_end(gp_job *job)
{
    int error = job_check(job);
    if (error < 0)
        return error;
    pthread_mutex_lock(&job->lock);
    if (job->steps && job->steps->record)
        job->steps->rest->is_ended = true;
    else
        error = client_error(-EINVAL, "job '%s' has no deal to end; call gp_deal_declare() first",
                             job->name);
    pthread_mutex_unlock(&job->lock);
    return error;
}
