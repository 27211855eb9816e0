/* Declares and undeclares tensors: checks the caller's specs, sends the request to the coordinator,
 * and waits until the lanes are connected. If a lane cannot be reached, the declare fails. */
#include "client/lib/declare/declare.h"

#include "client/lib/declare/route.h"
#include "client/lib/job/piece.h"
#include "client/lib/link/link.h"
#include "client/lib/session/process.h"
#include "client/lib/stage/stage.h"
#include "svc/base/clock.h"
#include "svc/base/text.h"
#include "svc/wire/backup_terms.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define COMMIT_WAIT_NS (1 * NS_PER_S)

struct declaration {
    struct control_call call;
    struct gp_job *job;
    uint64_t timeout_ns, deadline_ns;
    /* tensors of all specs: those of this call, and those declared before */
    struct gp_tensor **all;
    size_t count;
    struct gp_tensor **fresh; /* the tensors of `all` that this call has added */
    size_t fresh_count;
    Gradpool__Wire__DeclareRequest request;
    Gradpool__Wire__TensorSpec *specs, **spec_pointers; /* `specs` owns the memory of both arrays */
    struct err err;
};

/* ---- checks ---- */

static int check_spec(const gp_tensor_spec *spec, size_t i)
{
    size_t name_bytes = spec->name ? strnlen(spec->name, TENSOR_NAME_BYTES_MAX + 1) : 0;
    if (name_bytes == 0 || name_bytes > TENSOR_NAME_BYTES_MAX)
        return client_error(-EINVAL, "tensor %zu: the name has %s bytes, expected 1 to %d", i,
                            name_bytes ? "too many" : "no", TENSOR_NAME_BYTES_MAX);
    if (!text_is_utf8(spec->name))
        return client_error(-EINVAL, "tensor %zu: the name is not UTF-8; encode the name as UTF-8",
                            i);
    if (strncmp(spec->name, NAME_RESERVED, strlen(NAME_RESERVED)) == 0)
        return client_error(
            -EINVAL, "tensor '%s': names that begin with '%s' are reserved; choose another name",
            spec->name, NAME_RESERVED);
    size_t element_bytes = reduce_element_bytes(spec->dtype);
    if (element_bytes == 0)
        return client_error(-EINVAL, "tensor '%s': dtype is %d, expected a value of enum gp_dtype",
                            spec->name, spec->dtype);
    if (spec->elements > PTRDIFF_MAX / element_bytes)
        return client_error(
            -EINVAL,
            "tensor '%s': %" PRIu64
            " elements need more bytes than an address space has; correct the number",
            spec->name, spec->elements);
    if (spec->wire && (!reduce_converts(spec->dtype, spec->wire) ||
                       reduce_element_bytes(spec->wire) > element_bytes))
        return client_error(
            -EINVAL,
            "tensor '%s': elements of %s cannot travel as %s; choose another gp_tensor_spec.wire",
            spec->name, reduce_dtype_name(spec->dtype), reduce_dtype_name(spec->wire));
    if (spec->rule && tensor_wire(spec) != GP_F32)
        return client_error(-EINVAL,
                            "tensor '%s': lanes update parameters in f32, not in %s; declare the "
                            "tensor with GP_F32",
                            spec->name, reduce_dtype_name(tensor_wire(spec)));
    return 0;
}

static uint16_t lag_of_sums(const struct gp_job *job)
{
    uint32_t lag = job->join_backup.lag;
    return (uint16_t)(lag > 0 ? lag : BACKUP_TERMS_LAG);
}

/* Returns the lag of the tensors in the job's rounds (W22): 0 if these tensors have update rules,
 * -1 if none of them is declared yet. */
static int followers_lag(const struct gp_job *job)
{
    if (job->backup.leader)
        return job->backup.leader->terms.lag;
    for_each_tensor (t, job) {
        if (terms_are_following(&t->terms))
            return t->terms.lag;
    }
    return -1;
}

/* Sets the terms of a tensor in a job with backup workers. Rounds of tensors that the library
 * declares need all ranks; only the hidden tensor is an exception. Returns the text of an error;
 * NULL: no error. */
static const char *follow_sets(const struct gp_job *job, const gp_tensor_spec *spec,
                               struct terms *terms)
{
    int lag = followers_lag(job);
    if (spec->flags & TERMS_LEADS && spec->flags & TERMS_FOLLOWS)
        terms->lag = lag > 0 ? (uint16_t)lag : 0;
    if (strncmp(spec->name, NAME_RESERVED, strlen(NAME_RESERVED)) == 0)
        return NULL;
    if (spec->quorum != GP_ALL || spec->ranks || spec->elements == 0)
        return "a job with backup workers has tensors of all ranks, with elements, with GP_ALL; "
               "declare other tensors in a job without gp_job_spec.backup";
    terms->quorum = QUORUM_CHOSEN;
    terms->flags |= TERMS_FOLLOWS;
    terms->lag = spec->rule ? 0 : lag_of_sums(job);
    if (lag >= 0 && lag != terms->lag)
        return "a job with backup workers has either tensors with update rules or tensors "
               "without; give all tensors of the job a rule, or none";
    return NULL;
}

static int read_terms(const struct gp_job *job, const gp_tensor_spec *spec, struct terms *ret_terms)
{
    const char *fault = NULL;
    *ret_terms = (struct terms){
        .quorum = spec->quorum,
        .bound = spec->bound,
        .flags = spec->flags,
        .rule = (unsigned)spec->rule > TERMS_RULES_MAX ? UINT8_MAX : (uint8_t)spec->rule};
    for (uint32_t i = 0; spec->ranks && i < spec->ranks_count && !fault; i++) {
        uint32_t rank = spec->ranks[i];
        if (rank >= job->workers)
            fault = "the set of ranks has a rank that the job does not have; name ranks of the job";
        else
            ranks_add(ret_terms->ranks, rank);
    }
    if (!fault && job->backup.count > 0)
        fault = follow_sets(job, spec, ret_terms);
    if (!fault && spec->ranks && spec->ranks_count == 0)
        fault = "the set of ranks is empty; name the ranks that push";
    if (!fault)
        fault = terms_fault(ret_terms, job->workers);
    if (!fault && !terms_have_rank(ret_terms, job->rank))
        fault = "the set of ranks lacks this rank; declare the tensor on ranks of the set only";
    return fault ? client_error(-EINVAL, "tensor '%s': %s", spec->name, fault)
                 : job_stage_check_declare(job, spec->name, ret_terms);
}

/* Refuses a declare while this rank fetches results of a closed round. Otherwise the rank would
 * also fetch a result of the new tensor, which this rank has never pushed. */
static int check_taken(const struct gp_job *job, const gp_tensor_spec *spec,
                       const struct terms *terms)
{
    const struct backup_rounds *b = &job->backup;
    bool lacks = b->leader && b->leader->terms.lag > 0 && b->held < b->newest;
    if (!terms_are_following(terms) || (b->phase == BACKUP_OPEN && !lacks))
        return 0;
    return client_error(-EBUSY,
                        "tensor '%s': round %" PRIu64 " of job '%s' is not ended on rank %u; call "
                        "gp_round_end(), and gp_round_next() until it returns 0, then declare",
                        spec->name, b->held + 1, job->name, job->rank);
}

static int check_same(const struct gp_tensor *t, const gp_tensor_spec *spec,
                      const struct terms *terms)
{
    if (!terms_are_same(&t->terms, terms))
        return client_error(-EEXIST,
                            "tensor '%s' was declared before with another quorum, rule or set of "
                            "ranks; undeclare the tensor first",
                            t->name);
    if (t->values == spec->dtype && t->dtype != tensor_wire(spec))
        return client_error(-EEXIST,
                            "tensor '%s' was declared to travel as %s before, now as %s; undeclare "
                            "the tensor first",
                            t->name, reduce_dtype_name(t->dtype),
                            reduce_dtype_name(tensor_wire(spec)));
    if (t->values == spec->dtype && t->elements == spec->elements)
        return 0;
    return client_error(-EEXIST,
                        "tensor '%s' was declared as %s with %" PRIu64 " elements, now as %s "
                        "with %" PRIu64 "; undeclare the tensor first",
                        t->name, reduce_dtype_name(t->values), t->elements,
                        reduce_dtype_name(spec->dtype), spec->elements);
}

/* ---- the request ---- */

static int add_fresh(struct declaration *d, const gp_tensor_spec *spec, const struct terms *terms,
                     struct gp_tensor **ret_tensor)
{
    int error = check_taken(d->job, spec, terms);
    if (error < 0)
        return error;
    error = tensor_add(d->job, spec, terms, ret_tensor);
    if (error < 0)
        return client_error(error, "this process has no memory for the tensors of the "
                                   "declaration; raise its memory limit");
    d->fresh[d->fresh_count++] = *ret_tensor;
    return 0;
}

static int take_specs(struct declaration *d, const gp_tensor_spec *specs)
{
    for (size_t i = 0; i < d->count; i++) {
        struct gp_tensor *t = tensor_find(d->job, specs[i].name);
        struct terms terms;
        int error = read_terms(d->job, &specs[i], &terms);
        if (error == 0 && t) {
            error = check_same(t, &specs[i], &terms);
        } else if (error == 0) {
            error = add_fresh(d, &specs[i], &terms, &t);
        }
        if (error < 0)
            return error;
        d->all[i] = t;
    }
    return 0;
}

static void route_all(struct declaration *d, const envelope *reply)
{
    if (reply->body_case != GRADPOOL__WIRE__ENVELOPE__BODY_DECLARE_REPLY ||
        reply->declare_reply->n_tensors != d->fresh_count) {
        err_set(&d->err, -EPROTO,
                "the coordinator did not answer the declaration with routes; install one version "
                "of gradpool on all hosts");
        return;
    }
    for (size_t i = 0; i < d->fresh_count; i++) {
        int error = route_take(d->fresh[i], reply->declare_reply->tensors[i]);
        if (error < 0) {
            err_set(&d->err, error, "tensor '%s': %s", d->fresh[i]->name,
                    error == -EPROTO ? "the coordinator's route does not cover the whole tensor"
                                     : err_text(error));
            return;
        }
    }
}

/* Stores the routes of the reply. Runs in the control thread, so that a route change in a later
 * message finds the tensors. */
static void declared(struct control_call *call, const envelope *reply, const struct err *err)
{
    struct declaration *d = container_of(call, struct declaration, call);
    pthread_mutex_lock(&d->job->lock);
    if (err)
        d->err = *err;
    else
        route_all(d, reply);
    pthread_mutex_unlock(&d->job->lock);
}

static void fill_request(struct declaration *d)
{
    for (size_t i = 0; i < d->fresh_count; i++) {
        struct gp_tensor *t = d->fresh[i];
        d->specs[i] = MESSAGE_PART(TensorSpec, tensor_spec, .name = t->name, .dtype = t->dtype,
                                   .elements = t->elements,
                                   .terms = {terms_bytes(&t->terms), (uint8_t *)&t->terms});
        d->spec_pointers[i] = &d->specs[i];
    }
    d->request = MESSAGE_PART(DeclareRequest, declare_request, .tensors = d->spec_pointers,
                              .n_tensors = d->fresh_count);
    d->call.request = ENVELOPE(0, DECLARE_REQUEST, declare_request, &d->request);
    d->call.done = declared;
}

int declare_unanswered(struct gp_job *job, const char *what, uint64_t timeout_ns)
{
    char reason[ERR_TEXT_BYTES / 2];
    if (control_has_reason(job->control, reason, sizeof reason))
        return client_error(-ETIMEDOUT,
                            "%s: job '%s' still waits after %" PRIu64 " ms: %s. To wait longer, "
                            "raise GRADPOOL_TIMEOUT_MS",
                            what, job->name, timeout_ns / NS_PER_MS, reason);
    return client_error(-ETIMEDOUT,
                        "%s: no answer within %" PRIu64
                        " ms: the coordinator at %s %s; see the log of gradpool "
                        "serve, or raise GRADPOOL_TIMEOUT_MS",
                        what, timeout_ns / NS_PER_MS, job->client->endpoint_text,
                        control_is_up(job->control) ? "has not answered" : "cannot be reached");
}

static int ask(struct declaration *d)
{
    if (d->fresh_count == 0)
        return 0;
    fill_request(d);
    control_post(d->job->control, &d->call);
    if (control_wait(d->job->control, &d->call, d->deadline_ns) < 0)
        return declare_unanswered(d->job, d->fresh[0]->name, d->timeout_ns);
    return d->err.code ? client_error_from(&d->err) : 0;
}

/* ---- connections ---- */

static const struct link *find_link(const struct declaration *d, bool hopeless_only)
{
    for (size_t i = 0; i < d->count; i++)
        for_each_piece (p, d->all[i])
            if (hopeless_only ? p->link->is_hopeless : p->link->state != LINK_OPEN)
                return p->link;
    return NULL;
}

static bool links_are_settled(void *context)
{
    const struct declaration *d = context;
    return d->job->failure.code || find_link(d, true) || !find_link(d, false);
}

/* Opens failed links again. Called before the request is sent, so that every later failure of a
 * link is an error of this declaration. */
static void retry_hopeless(struct declaration *d)
{
    for (size_t i = 0; i < d->count; i++)
        for_each_piece (p, d->all[i])
            if (p->link->is_hopeless)
                link_open(p->link);
}

/* Waits until all lanes of the tensors are connected. If a lane is lost meanwhile, waits for its
 * successor. */
static int connect_lanes(struct declaration *d)
{
    char name[128];
    bool settled = engine_run(&d->job->engine, d->deadline_ns, links_are_settled, d);
    if (d->job->failure.code)
        return client_error_from(&d->job->failure);
    const struct link *l = find_link(d, settled);
    if (!l)
        return 0;
    if (l->failure.code)
        return client_error_from(&l->failure);
    return client_error(-ETIMEDOUT,
                        "%s: not connected after %" PRIu64 " ms. Look at that host, or raise "
                        "GRADPOOL_TIMEOUT_MS",
                        link_name(l, name, sizeof name), d->timeout_ns / NS_PER_MS);
}

/* ---- declare ---- */

static void forget_fresh(struct declaration *d)
{
    for (size_t i = 0; i < d->fresh_count; i++)
        tensor_remove(d->fresh[i]);
    d->fresh_count = 0;
}

static int declare_locked(struct declaration *d, const gp_tensor_spec *specs)
{
    struct gp_job *job = d->job;
    d->deadline_ns = clock_now_ns() + d->timeout_ns;
    pthread_mutex_lock(&job->lock);
    int error = job->failure.code ? client_error_from(&job->failure) : take_specs(d, specs);
    if (error == 0)
        retry_hopeless(d);
    pthread_mutex_unlock(&job->lock);
    if (error == 0)
        error = ask(d);
    pthread_mutex_lock(&job->lock);
    if (error < 0)
        forget_fresh(d);
    else
        error = connect_lanes(d);
    engine_flush(&job->engine);
    pthread_mutex_unlock(&job->lock);
    return error;
}

static int declare(gp_job *job, const gp_tensor_spec *specs, size_t count, uint64_t timeout_ns,
                   gp_tensor **ret_tensors)
{
    struct declaration d = {.job = job, .count = count, .timeout_ns = timeout_ns};
    d.specs = calloc(count, sizeof *d.specs + sizeof *d.spec_pointers + 2 * sizeof *d.all);
    if (!d.specs)
        return client_error(-ENOMEM, "this process has no memory for the tensors of the "
                                     "declaration; raise its memory limit");
    d.spec_pointers = (void *)(d.specs + count);
    d.all = (void *)(d.spec_pointers + count);
    d.fresh = d.all + count;
    pthread_mutex_lock(&job->declaring);
    int error = declare_locked(&d, specs);
    pthread_mutex_unlock(&job->declaring);
    if (error == 0)
        memcpy(ret_tensors, d.all, count * sizeof *d.all);
    free(d.specs);
    return error;
}

static int check_specs(const gp_tensor_spec *specs, size_t count, gp_tensor **ret_tensors)
{
    int error = 0;
    if (!specs || !ret_tensors)
        return client_error(-EINVAL,
                            "a declaration of tensors: specs or ret_tensors is NULL; pass both");
    for (size_t i = 0; i < count && error == 0; i++)
        error = check_spec(&specs[i], i);
    return error;
}

int gp_tensors_declare(gp_job *job, const gp_tensor_spec *specs, size_t count,
                       gp_tensor **ret_tensors)
{
    int error = job_check(job);
    if (error < 0 || count == 0)
        return error;
    error = check_specs(specs, count, ret_tensors);
    return error < 0 ? error : declare(job, specs, count, job->client->timeout_ns, ret_tensors);
}

int declare_together(struct gp_job *job, const gp_tensor_spec *hidden, size_t hidden_count,
                     const gp_tensor_spec *specs, size_t count, struct gp_tensor **ret_tensors)
{
    int error = count > 0 ? check_specs(specs, count, ret_tensors) : 0;
    if (error < 0)
        return error;
    gp_tensor_spec *all = calloc(hidden_count + count, sizeof *all);
    if (!all)
        return client_error(-ENOMEM, "this process has no memory for the tensors of the "
                                     "declaration; raise its memory limit");
    memcpy(all, hidden, hidden_count * sizeof *all);
    for (size_t i = 0; i < count; i++)
        all[hidden_count + i] = specs[i];
    error = declare(job, all, hidden_count + count, job->client->timeout_ns, ret_tensors);
    free(all);
    return error;
}

int gp_tensor_declare(gp_job *job, const char *name, enum gp_dtype dtype, uint64_t elements,
                      gp_tensor **ret_tensor)
{
    gp_tensor_spec spec = {.name = name, .dtype = dtype, .elements = elements};
    return gp_tensors_declare(job, &spec, 1, ret_tensor);
}

int declare_internal(struct gp_job *job, const char *name, enum gp_dtype dtype, uint64_t elements,
                     uint64_t timeout_ns, struct gp_tensor **ret_tensor)
{
    gp_tensor_spec spec = {.name = name, .dtype = dtype, .elements = elements};
    return declare(job, &spec, 1, timeout_ns, ret_tensor);
}

int declare_hidden(struct gp_job *job, const gp_tensor_spec *spec, uint64_t timeout_ns,
                   struct gp_tensor **ret_tensor)
{
    return declare(job, spec, 1, timeout_ns, ret_tensor);
}

int declare_leader(struct gp_job *job, uint64_t timeout_ns, struct gp_tensor **ret_tensor)
{
    gp_tensor_spec spec = {.name = NAME_RESERVED "rounds",
                           .dtype = GP_F32,
                           .quorum = GP_FIRST,
                           .bound = job->backup.count,
                           .flags = TERMS_LEADS | TERMS_FOLLOWS};
    return declare(job, &spec, 1, timeout_ns, ret_tensor);
}

/* ---- undeclare ---- */

static bool is_committed(void *context)
{
    const struct gp_tensor *t = context;
    return t->without_commit == 0 || t->failure.code || t->job->failure.code;
}

/* Waits until the tensor's last round is committed. Returns 0, or -EBUSY with a text if a request
 * of the tensor is open or the COMMIT does not arrive in time. */
static int check_idle(struct gp_tensor *t)
{
    bool has_failed = t->failure.code || t->job->failure.code;
    if (t->request || (t->open.is_taking && !has_failed))
        return client_error(
            -EBUSY,
            "tensor '%s' has an open request; wait for the request, then undeclare the tensor",
            t->name);
    if (engine_run(&t->job->engine, clock_now_ns() + COMMIT_WAIT_NS, is_committed, t))
        return 0;
    return client_error(-EBUSY, "tensor '%s' round %" PRIu64 " is not committed yet", t->name,
                        t->round);
}

static int tell_coordinator(struct gp_job *job, struct gp_tensor *t)
{
    struct err refusal = {0};
    uint64_t timeout_ns = job->client->connect_timeout_ns;
    if (control_ask(
            job->control,
            &MESSAGE(0, UNDECLARE_REQUEST, undeclare_request, .tensors = &t->id, .n_tensors = 1),
            clock_now_ns() + timeout_ns, &refusal) < 0)
        return declare_unanswered(job, t->name, timeout_ns);
    return refusal.code ? client_error_from(&refusal) : 0;
}

int gp_tensor_undeclare(gp_tensor *tensor)
{
    int error = tensor_check(tensor);
    if (error < 0)
        return error;
    struct gp_job *job = tensor->job;
    pthread_mutex_lock(&job->declaring);
    pthread_mutex_lock(&job->lock);
    error = check_idle(tensor);
    pthread_mutex_unlock(&job->lock);
    if (error == 0)
        error = tell_coordinator(job, tensor);
    if (error == 0) {
        pthread_mutex_lock(&job->lock);
        tensor_remove(tensor);
        pthread_mutex_unlock(&job->lock);
    }
    pthread_mutex_unlock(&job->declaring);
    return error;
}
