/* Push-pulls of all kinds: checks the arguments, then makes a push of each tensor. push.c decides
 * about memory and rounds. */
#include "client/lib/round/push_pull.h"

#include "client/lib/elastic/steps.h"
#include "client/lib/job/piece.h"
#include "client/lib/job/request.h"
#include "client/lib/link/link.h"
#include "client/lib/round/entry.h"
#include "client/lib/round/gradients.h"
#include "client/lib/round/push.h"
#include "client/lib/session/process.h"
#include "client/lib/stage/stage.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* Number of copied bytes after which lanes are woken. Waking a lane costs as much as copying some
 * tens of KiB. */
#define FLUSH_BYTES (1u << 20)

_Static_assert((int)GP_SUM == RECORD_SUM && (int)GP_MEAN == RECORD_MEAN &&
                   (int)GP_BROADCAST == RECORD_BROADCAST && (int)GP_MIN == RECORD_MIN &&
                   (int)GP_MAX == RECORD_MAX && (int)GP_PRODUCT == RECORD_PRODUCT &&
                   (int)GP_GATHER == RECORD_GATHER && (int)GP_ALL_TO_ALL == RECORD_ALL_TO_ALL &&
                   (int)GP_REDUCE_SCATTER == RECORD_REDUCE_SCATTER &&
                   (int)GP_FIRST == QUORUM_FIRST && (int)GP_CHOSEN == QUORUM_CHOSEN &&
                   (int)GP_STALE == QUORUM_STALE && (int)GP_ANY == QUORUM_ANY &&
                   GP_LEADS == TERMS_LEADS && GP_MEASURES == TERMS_MEASURES &&
                   (int)GP_SGD == UPDATE_SGD && (int)GP_MOMENTUM == UPDATE_MOMENTUM &&
                   (int)GP_NESTEROV == UPDATE_NESTEROV && (int)GP_ADAM == UPDATE_ADAM &&
                   (int)GP_ADAMW == UPDATE_ADAMW && TERMS_RULES_MAX == UPDATE_RULES - 1 &&
                   (int)GP_F32 == REDUCE_F32 && (int)GP_F64 == REDUCE_F64 &&
                   (int)GP_F16 == REDUCE_F16 && (int)GP_BF16 == REDUCE_BF16 &&
                   (int)GP_I32 == REDUCE_I32 && (int)GP_I64 == REDUCE_I64,
               "operations, quorums, rules and dtypes have the same numbers on the wire");

struct starting {
    struct gp_job *job;
    const gp_item *items;
    size_t count;
    uint8_t operation;
    uint32_t root;
    const gp_settings *settings;      /* settings of an update */
    uint64_t steps;                   /* update count of a restore */
    uint64_t iterations[HOLD_SCOPES]; /* iterations of the rounds, set by hold_find_iterations() */
    bool is_uncounted;                /* the rounds belong to no iteration */
    bool is_taking;                   /* the round is announced without a gradient of this rank */
};

/* ---- inputs and results of operations (the table in gradpool.h) ---- */

static bool has_root(uint8_t operation)
{
    return operation == RECORD_BROADCAST || operation == RECORD_SEND || operation == RECORD_RESTORE;
}

/* Returns whether the gradient or the result has one block for each rank. */
static bool has_blocks(uint8_t operation)
{
    return operation == RECORD_ALL_TO_ALL || operation == RECORD_REDUCE_SCATTER ||
           operation == RECORD_GATHER;
}

static uint64_t gradient_bytes(const struct gp_tensor *t, uint8_t operation)
{
    bool splits = operation == RECORD_ALL_TO_ALL || operation == RECORD_REDUCE_SCATTER;
    if (operation == RECORD_RESTORE)
        return tensor_state_bytes(t);
    return splits ? t->bytes * t->members : t->bytes;
}

static uint64_t result_bytes(const struct gp_tensor *t, uint8_t operation)
{
    bool collects = operation == RECORD_ALL_TO_ALL || operation == RECORD_GATHER;
    if (operation == RECORD_SAVE)
        return tensor_state_bytes(t);
    return collects ? t->bytes * t->members : t->bytes;
}

/* ---- checks ---- */

static const struct link *find_hopeless(const struct gp_tensor *t)
{
    for_each_piece (p, t)
        if (p->link->is_hopeless)
            return p->link;
    return NULL;
}

static int check_places(const struct starting *s, const struct gp_tensor *t, const gp_item *item)
{
    bool is_root = has_root(s->operation) && s->job->rank == s->root;
    bool gives = s->operation != RECORD_BARRIER && s->operation != RECORD_SAVE &&
                 (!has_root(s->operation) || is_root);
    /* a rank may leave out the result of a gather or of a state */
    bool takes = !is_root && s->operation != RECORD_GATHER && !is_of_state(s->operation);
    if (t->elements > 0 && gives && !item->gradient)
        return client_error(
            -EINVAL, "tensor '%s': the gradient is NULL; pass the values of this rank", t->name);
    if (t->elements > 0 && takes && !item->result)
        return client_error(-EINVAL, "tensor '%s': the result is NULL; pass memory for the result",
                            t->name);
    if (has_root(s->operation) && !terms_have_rank(&t->terms, s->root))
        return client_error(
            -EINVAL, "tensor '%s': root %u is not in its set of ranks; name a rank of the set",
            t->name, s->root);
    bool has_idle = !s->job->is_elastic && t->knows_ranks && t->members < s->job->workers;
    if (has_root(s->operation) && has_idle && !ranks_have(t->ranks, s->root))
        return client_error(-EPERM,
                            "tensor '%s': root %u is idle in the present stage; name a member of "
                            "the stage",
                            t->name, s->root);
    bool is_counted = !is_of_state(s->operation) && (gradient_bytes(t, s->operation) > t->bytes ||
                                                     result_bytes(t, s->operation) > t->bytes);
    bool is_unknown = s->job->is_elastic ? is_counted : has_idle && has_blocks(s->operation);
    if (is_unknown && terms_are_for_all(&t->terms))
        return client_error(-EOPNOTSUPP,
                            "tensor '%s': the number of blocks is not known in a job whose workers "
                            "come and go; declare the tensor for a set of ranks",
                            t->name);
    uint64_t most;
    if (__builtin_mul_overflow(t->bytes, t->members, &most))
        return client_error(-EINVAL,
                            "tensor '%s': %u blocks need more bytes than an address space has; "
                            "declare a smaller tensor",
                            t->name, t->members);
    return 0;
}

static bool gives_settings(const struct starting *s, const struct gp_tensor *t)
{
    bool is_giver = terms_are_following(&t->terms) || t->first_rank == s->job->rank;
    return s->operation == RECORD_UPDATE && is_giver;
}

static struct update_settings settings_of(const gp_settings *s)
{
    return (struct update_settings){.rate = s->rate,
                                    .weight_decay = s->weight_decay,
                                    .momentum = s->momentum,
                                    .dampening = s->dampening,
                                    .beta1 = s->beta1,
                                    .beta2 = s->beta2,
                                    .epsilon = s->epsilon};
}

static int check_rule(const struct starting *s, const struct gp_tensor *t)
{
    bool is_update = s->operation == RECORD_UPDATE;
    if (is_update && !t->terms.rule)
        return client_error(-EINVAL,
                            "tensor '%s' was declared without an update rule; declare the tensor "
                            "with a rule, or push and pull",
                            t->name);
    if (t->terms.rule && !is_update && !is_of_state(s->operation) &&
        s->operation != RECORD_BROADCAST)
        return client_error(-EINVAL,
                            "tensor '%s' has an update rule: broadcast its parameters, then "
                            "update them",
                            t->name);
    if (terms_are_following(&t->terms) && !t->terms.rule && s->operation != RECORD_BROADCAST &&
        !tensor_follows(t, s->operation))
        return client_error(-EOPNOTSUPP,
                            "tensor '%s': a job with backup workers reduces and broadcasts only; "
                            "use a job without gp_job_spec.backup for other operations",
                            t->name);
    if (terms_are_following(&t->terms) && !tensor_follows(t, s->operation) &&
        s->job->backup.held > 0)
        /* a broadcast, save or restore has all ranks, and needs the same previous round on each
         * rank */
        return client_error(-EOPNOTSUPP,
                            "tensor '%s': a job with backup workers broadcasts, saves and restores "
                            "before its first round only; this rank has ended round %" PRIu64,
                            t->name, s->job->backup.held);
    if (!gives_settings(s, t))
        return 0;
    if (!s->settings && s->job->is_elastic)
        /* allowed: lanes use the settings of the last update, which a rank that has left may have
         * sent */
        return 0;
    if (!s->settings)
        return client_error(-EINVAL,
                            "tensor '%s': the update of rank %u has no settings; pass a rate",
                            t->name, s->job->rank);
    const struct update_settings settings = settings_of(s->settings);
    const char *wrong = update_wrong(t->terms.rule, &settings);
    return wrong ? client_error(-EINVAL, "tensor '%s': the value of %s is out of range for rule %s",
                                t->name, wrong, update_name(t->terms.rule))
                 : 0;
}

/* Checks that the tensor has parameters, because a refusal by a lane would fail the tensor
 * (L32). */
static int check_parameters(const struct starting *s, const struct gp_tensor *t)
{
    if (s->operation != RECORD_UPDATE || t->round > 0 || t->entering > 0)
        return 0;
    return client_error(-ENODATA, "tensor '%s' has no parameters yet: broadcast them first",
                        t->name);
}

/* Checks that this rank has fetched the sums of all closed rounds. After the push no call would
 * fetch them. */
static int check_missed(const struct starting *s, const struct gp_tensor *t)
{
    const struct backup_rounds *b = &s->job->backup;
    if (!tensor_follows(t, s->operation) || t->terms.rule || b->held >= b->newest)
        return 0;
    return client_error(-EBUSY,
                        "tensor '%s': rank %u lacks the results of rounds %" PRIu64 " to %" PRIu64
                        " of the job; call gp_round_next() until it returns 0, then push",
                        t->name, s->job->rank, b->held + 1, b->newest);
}

/* Returns the root of a push. For a tensor in the job's rounds, the root is the number of the round
 * (W22). */
static uint32_t root_of(const struct starting *s, const struct gp_tensor *t)
{
    return tensor_follows(t, s->operation) ? (uint32_t)(s->job->backup.held + 1) : s->root;
}

static uint32_t push_weight(const struct starting *s)
{
    bool is_weighed = s->operation == RECORD_MEAN || s->operation == RECORD_UPDATE;
    return is_weighed && s->job->steps ? s->job->steps->weight : RECORD_WEIGHT;
}

static bool counts_on(const struct starting *s)
{
    return s->operation == RECORD_RESTORE && s->steps == GP_SAME_STEPS;
}

/* Checks that the root of a restore with GP_SAME_STEPS knows the step count, because lanes use the
 * root's count (W16). */
static int check_steps(const struct starting *s, const struct gp_tensor *t)
{
    bool is_new = t->round == 0 && t->entering == 0;
    if (!counts_on(s) || s->root != s->job->rank || t->knows_steps || is_new)
        return 0;
    return client_error(
        -EINVAL,
        "tensor '%s': rank %u joined late, or was idle in a stage, and has not counted all "
        "updates; pass the number of steps",
        t->name, s->job->rank);
}

static int check_item(const struct starting *s, const gp_item *item, size_t i)
{
    const struct gp_tensor *t = item->tensor;
    if (!t || t->job != s->job)
        return client_error(
            -EINVAL,
            "item %zu: the tensor is not of job '%s'; pass a handle that this job declared", i,
            s->job->name);
    if (t->failure.code)
        return client_error_from(&t->failure);
    if (t->request)
        return client_error(
            -EBUSY,
            "tensor '%s' has a request that was not waited for; wait for the request, then push",
            t->name);
    if (s->operation == RECORD_MEAN && !reduce_divides(t->dtype))
        return client_error(-EINVAL,
                            "tensor '%s': the mean of %s values is not defined; push a sum",
                            t->name, reduce_dtype_name(t->dtype));
    int error = job_stage_check_tensor(t) ?: check_rule(s, t) ?: check_missed(s, t);
    if (error < 0)
        return error;
    const struct link *hopeless = find_hopeless(t);
    if (hopeless)
        return client_error_from(&hopeless->failure);
    error = check_places(s, t, item);
    error = error < 0 ? error : check_steps(s, t);
    return error < 0 ? error : check_parameters(s, t);
}

/* ---- the pushes of a call ---- */

static int prepare_item(const struct starting *s, const gp_item *item, size_t i,
                        struct gp_request *q)
{
    int error = check_item(s, item, i);
    if (error < 0)
        return error;
    struct gp_tensor *t = item->tensor;
    struct push push = {.operation = s->operation,
                        .root = root_of(s, t),
                        .weight = push_weight(s),
                        .steps = counts_on(s) ? t->steps[t->round % 3] : s->steps,
                        .counts_on = counts_on(s),
                        .has_settings = s->operation == RECORD_RESTORE && s->job->rank == s->root,
                        .loss = s->job->loss,
                        .is_taking = s->is_taking,
                        .gradient_bytes = gradient_bytes(t, s->operation),
                        .result_bytes = result_bytes(t, s->operation)};
    if (t->elements > 0) {
        push.gradient = item->gradient;
        push.result = item->result;
    }
    if (gives_settings(s, t) && s->settings) {
        push.settings = settings_of(s->settings);
        push.has_settings = true;
    }
    error = push_place(t, &push);
    if (error < 0)
        return error;
    memcpy(push.iterations, s->iterations, sizeof push.iterations);
    trace_step(s->job->trace, push.traced_ns, TRACE_PUSHED);
    t->next = push;
    t->request = q;
    list_append(&q->waiting, &t->in_request);
    if (push_may_begin(t) && !hold_stops(t)) {
        t->is_starting = true;
    } else {
        t->is_queued = true;
        s->job->queued++;
        if (t->entering > 0)
            entry_ask(s->job);
    }
    return 0;
}

static int prepare(const struct starting *s, struct gp_request *q)
{
    int error = 0;
    for (size_t i = 0; i < s->count && error == 0; i++) {
        if (s->items[i].tensor && !push_may_begin(s->items[i].tensor))
            engine_poll(&s->job->engine); /* the COMMIT may have arrived and not been read yet */
        error = prepare_item(s, &s->items[i], i, q);
    }
    return error;
}

static void start_all(const struct starting *s, const struct gp_request *q)
{
    uint64_t unflushed_bytes = 0;
    for (size_t i = 0; i < s->count; i++) {
        struct gp_tensor *t = s->items[i].tensor;
        if (!t->is_starting)
            /* the push is queued until the last round is committed, or has begun meanwhile */
            continue;
        push_start(t);
        unflushed_bytes += t->next.gradient_bytes;
        if (unflushed_bytes >= FLUSH_BYTES) {
            engine_flush(&s->job->engine);
            unflushed_bytes = 0;
        }
    }
    engine_flush(&s->job->engine);
}

/* Pushes another gradient of the open round. */
static int start_more(const struct starting *s, struct gp_request **ret_request)
{
    struct update_settings settings;
    if (s->operation == RECORD_UPDATE && !s->settings)
        return client_error(-EINVAL, "job '%s': the update has no settings; pass a rate",
                            s->job->name);
    if (s->settings)
        settings = settings_of(s->settings);
    return gradients_push(s->job, s->items, s->count, s->operation, s->settings ? &settings : NULL,
                          ret_request);
}

static int start_locked(struct starting *s, struct gp_request **ret_request)
{
    if (s->job->failure.code)
        return client_error_from(&s->job->failure);
    if (gradients_are_more(s->job, s->items, s->operation))
        return start_more(s, ret_request);
    struct gp_request *q = request_take(s->job);
    if (!q)
        return client_error(
            -ENOMEM, "job '%s': this process has no memory for a request; raise its memory limit",
            s->job->name);
    if (!s->is_uncounted)
        hold_find_iterations(s->job, s->items, s->count, s->operation, s->iterations);
    int error = prepare(s, q);
    if (error < 0) {
        request_release(q);
        return error;
    }
    hold_note_push(s->job, s->items, s->count, s->operation, s->iterations);
    start_all(s, q);
    *ret_request = q;
    return 0;
}

static int start(struct starting *s, struct gp_request **ret_request)
{
    if (!ret_request)
        return client_error(-EINVAL, "ret_request is NULL; pass a place for the request");
    pthread_mutex_lock(&s->job->lock);
    int error = start_locked(s, ret_request);
    pthread_mutex_unlock(&s->job->lock);
    return error;
}

/* ---- the API ---- */

int gp_push_pull_group(gp_job *job, const gp_item *items, size_t count, enum gp_operation operation,
                       gp_request **ret_request)
{
    int error = job_check(job);
    if (error < 0)
        return error;
    if (!items || count == 0)
        return client_error(-EINVAL, "the group is empty; pass at least one item");
    if (operation == GP_BROADCAST)
        return client_error(-EINVAL, "a broadcast needs a root: use gp_broadcast()");
    if (operation < GP_SUM || operation > GP_REDUCE_SCATTER || operation == (int)RECORD_BARRIER)
        return client_error(
            -EINVAL, "operation %d is unknown; expected a value of enum gp_operation", operation);
    struct starting s = {
        .job = job, .items = items, .count = count, .operation = (uint8_t)operation};
    return start(&s, ret_request);
}

int gp_push_pull(gp_tensor *tensor, const void *gradient, void *result, enum gp_operation operation,
                 gp_request **ret_request)
{
    gp_item item = {tensor, gradient, result};
    if (!tensor)
        return client_error(-EINVAL, "the tensor is NULL; pass a tensor of gp_tensor_declare()");
    return gp_push_pull_group(tensor->job, &item, 1, operation, ret_request);
}

int gp_update_group(gp_job *job, const gp_item *items, size_t count, const gp_settings *settings,
                    gp_request **ret_request)
{
    int error = job_check(job);
    if (error < 0)
        return error;
    if (!items || count == 0)
        return client_error(-EINVAL, "the group is empty; pass at least one item");
    struct starting s = {.job = job,
                         .items = items,
                         .count = count,
                         .operation = RECORD_UPDATE,
                         .settings = settings};
    return start(&s, ret_request);
}

int gp_update(gp_tensor *tensor, const void *gradient, void *parameters,
              const gp_settings *settings, gp_request **ret_request)
{
    gp_item item = {tensor, gradient, parameters};
    if (!tensor)
        return client_error(-EINVAL, "the tensor is NULL; pass a tensor of gp_tensor_declare()");
    return gp_update_group(tensor->job, &item, 1, settings, ret_request);
}

int gp_broadcast(gp_tensor *tensor, void *values, uint32_t root, gp_request **ret_request)
{
    int error = tensor_check(tensor);
    if (error < 0)
        return error;
    struct gp_job *job = tensor->job;
    if (root >= job->workers)
        return client_error(-EINVAL,
                            "tensor '%s': root %u is no rank of %u workers; name a rank of the job",
                            tensor->name, root, job->workers);
    bool is_root = job->rank == root;
    gp_item item = {tensor, is_root ? values : NULL, is_root ? NULL : values};
    struct starting s = {
        .job = job, .items = &item, .count = 1, .operation = RECORD_BROADCAST, .root = root};
    return start(&s, ret_request);
}

/* Begins a send or receive. The sender is the root of the operation on both ranks. */
static int send_or_receive(gp_tensor *t, const gp_item *item, bool is_sender,
                           gp_request **ret_request)
{
    int error = tensor_check(t);
    if (error < 0)
        return error;
    if (t->members != 2)
        return client_error(
            -EINVAL,
            "tensor '%s' is of %u ranks, and a send is of two; declare the tensor for "
            "the sender and the receiver",
            t->name, t->members);
    struct starting s = {.job = t->job,
                         .items = item,
                         .count = 1,
                         .operation = RECORD_SEND,
                         .root = is_sender ? t->job->rank : t->peer};
    return start(&s, ret_request);
}

int gp_send(gp_tensor *tensor, const void *values, gp_request **ret_request)
{
    return send_or_receive(tensor, &(gp_item){tensor, values, NULL}, true, ret_request);
}

int gp_receive(gp_tensor *tensor, void *values, gp_request **ret_request)
{
    return send_or_receive(tensor, &(gp_item){tensor, NULL, values}, false, ret_request);
}

int gp_job_tell_loss(gp_job *job, float loss)
{
    int error = job_check(job);
    if (error < 0)
        return error;
    pthread_mutex_lock(&job->lock);
    job->loss = loss;
    pthread_mutex_unlock(&job->lock);
    return 0;
}

int push_internal(struct gp_tensor *t, uint8_t operation, struct gp_request **ret_request)
{
    gp_item item = {t, NULL, NULL};
    struct starting s = {.job = t->job, .items = &item, .count = 1, .operation = operation};
    return start_locked(&s, ret_request);
}

int push_without(struct gp_tensor *leader, struct gp_request **ret_request)
{
    gp_item item = {leader, NULL, NULL};
    struct starting s = {.job = leader->job,
                         .items = &item,
                         .count = 1,
                         .operation = RECORD_BARRIER,
                         .is_taking = true};
    return start_locked(&s, ret_request);
}

int push_words(struct gp_tensor *t, const void *words, void *ret_words, bool is_counted,
               struct gp_request **ret_request)
{
    gp_item item = {t, words, ret_words};
    struct starting s = {.job = t->job,
                         .items = &item,
                         .count = 1,
                         .operation = RECORD_SUM,
                         .is_uncounted = !is_counted};
    return start_locked(&s, ret_request);
}

int push_save(struct gp_tensor *t, void *state, struct gp_request **ret_request)
{
    gp_item item = {t, NULL, state};
    struct starting s = {.job = t->job, .items = &item, .count = 1, .operation = RECORD_SAVE};
    return start(&s, ret_request);
}

int push_restore(struct gp_tensor *t, uint32_t root, const void *state, void *parameters,
                 uint64_t steps, struct gp_request **ret_request)
{
    gp_item item = {t, state, parameters};
    struct starting s = {.job = t->job,
                         .items = &item,
                         .count = 1,
                         .operation = RECORD_RESTORE,
                         .root = root,
                         .steps = steps};
    return start(&s, ret_request);
}
