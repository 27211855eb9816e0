/* Declares of tensors. The first rank that names a tensor creates the tensor. All other ranks must
 * declare the same shape, dtype and terms. A declare is answered after every lane has confirmed the
 * tensor's pieces (K3), so each lane knows a piece before it receives an announcement of the
 * piece. */
#include "svc/coordinator/declare/declaration.h"

#include "svc/base/cleanup.h"
#include "svc/base/text.h"
#include "svc/coordinator/declare/tables.h"
#include "svc/coordinator/job/members.h"
#include "svc/coordinator/job/quota.h"
#include "svc/coordinator/job/share.h"
#include "svc/coordinator/measure/measure.h"
#include "svc/coordinator/membership/membership.h"
#include "svc/coordinator/placement/apply_plan.h"
#include "svc/coordinator/placement/history.h"
#include "svc/coordinator/placement/waiting.h"
#include "svc/coordinator/route/tell_lane.h"
#include "svc/coordinator/service.h"
#include "svc/coordinator/session/kept.h"
#include "svc/coordinator/session/wait.h"
#include "svc/coordinator/store/numbers.h"
#include "svc/reduce/reduce.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DECLARE_DEADLINE_NS (30 * NS_PER_S) /* time within which all lanes have to confirm */

struct declared {
    uint32_t job;
    size_t count;
    uint32_t tensors[]; /* numbers of the tensors, in the order of the request */
};

static void send_routes(struct wait *wait, struct job *job, const struct declared *declaration)
{
    size_t count = declaration->count, made = 0, place = 0;
    _cleanup_free_ WIRE(TensorRoute) **routes = calloc(count + 1, sizeof *routes);
    for (; routes && made < count; made++) {
        const struct tensor *tensor = jobs_tensor_after(job, declaration->tensors[made], &place);
        routes[made] = tensor_route(tensor, NULL, NULL);
        if (!routes[made])
            break;
    }
    if (routes && made == count)
        peer_reply(wait->peer, wait->request, DECLARE_REPLY, declare_reply, .tensors = routes,
                   .n_tensors = count);
    else
        peer_fail_memory(wait->peer, wait->request);
    for (size_t i = 0; i < made; i++)
        free(routes[i]);
}

static bool is_ready(const struct tensor *tensor)
{
    for (size_t i = 0; i < tensor->pieces_count; i++)
        if (tensor->pieces[i].state != PIECE_READY)
            return false;
    return true;
}

/* Answers the declare if all tensors are ready or one has failed. Returns whether an answer was
 * sent. */
static bool try_answer(struct wait *wait, struct job *job, const struct declared *declaration)
{
    const struct session *session = wait->peer->session;
    bool ready = true, is_ahead = entering_is_ahead(job, session->rank);
    if (job->failure) {
        peer_fail(wait->peer, wait->request, -ECONNRESET, "job %s has failed: %s", job->name,
                  job->failure);
        return true;
    }
    size_t place = 0;
    for (size_t i = 0; i < declaration->count; i++) {
        const struct tensor *tensor = jobs_tensor_after(job, declaration->tensors[i], &place);
        if (!tensor)
            peer_fail(
                wait->peer, wait->request, -ECANCELED,
                "a tensor of this declare was undeclared meanwhile; declare the tensors again");
        else if (tensor->failure)
            peer_fail(wait->peer, wait->request, tensor->failure_code, "%s", tensor->failure);
        if (!tensor || tensor->failure)
            return true;
        ready = ready && is_ready(tensor) && (is_ahead || members_has_entered(tensor, session));
    }
    if (ready)
        send_routes(wait, job, declaration);
    return ready;
}

static void declare_expired(struct wait *wait)
{
    const struct declared *declaration = wait->data;
    const struct job *job = jobs_find_id(wait->peer->service, declaration->job);
    peer_fail(wait->peer, wait->request, -ETIMEDOUT,
              "job %s: the lanes did not confirm all pieces in time; see gradpool status, then "
              "declare again",
              job ? job->name : "?");
    wait_destroy(wait);
}

void declare_check_waits(struct job *job)
{
    list_for_each_safe_entry (struct wait, wait, &job->service->door->waits, link) {
        const struct declared *declaration = wait->data;
        if (wait->expired == declare_expired && declaration->job == job->id &&
            try_answer(wait, job, declaration))
            wait_destroy(wait);
    }
}

/* --- the declare of one rank --- */

/* A declare whose message is being handled. If the store fails, undo() removes the new tensors from
 * the job. */
struct declare {
    struct peer *peer;
    struct job *job;
    uint64_t request;
    struct tensor **wanted; /* one tensor for each spec */
    size_t wanted_count;
    size_t created_count; /* number of new tensors, which are at the end of job->tensors */
    uint32_t next_tensor, next_piece; /* counters of the job before the declare, for undo() */
};

static bool spec_is_valid(const struct declare *d, const WIRE(TensorSpec) * spec)
{
    size_t bytes = strlen(spec->name);
    size_t element_bytes = reduce_element_bytes(spec->dtype);
    if (bytes < 1 || bytes > TENSOR_NAME_BYTES_MAX)
        peer_fail(d->peer, d->request, -EINVAL,
                  "a tensor's name has 1 to %d bytes; this one has %zu: '%.32s'",
                  TENSOR_NAME_BYTES_MAX, bytes, spec->name);
    else if (!text_is_utf8(spec->name))
        peer_fail(d->peer, d->request, -EINVAL,
                  "a tensor's name is not UTF-8; encode the name as UTF-8");
    else if (element_bytes == 0)
        peer_fail(
            d->peer, d->request, -EINVAL,
            "tensor '%s': dtype %u is not known; install the same version of gradpool on both "
            "hosts",
            spec->name, spec->dtype);
    else if (spec->elements > TENSOR_BYTES_MAX / element_bytes)
        peer_fail(d->peer, d->request, -EINVAL,
                  "tensor '%s': %" PRIu64 " elements are more than 1 TiB; declare several tensors",
                  spec->name, spec->elements);
    else
        return true;
    return false;
}

/* Writes "rank 0", "ranks 0, 2" or "ranks 0, 1, 2 and 5 more". Returns `buffer`. */
static const char *ranks_text(const struct tensor *tensor, char *buffer, size_t buffer_bytes)
{
    uint32_t shown = 0;
    int used = snprintf(buffer, buffer_bytes, tensor->ranks_count == 1 ? "rank" : "ranks");
    for (uint32_t rank = 0; rank < tensor->job->workers && shown < 3; rank++)
        if (tensor_has_rank(tensor, rank))
            used += snprintf(buffer + used, buffer_bytes - (size_t)used, "%s %u",
                             shown++ ? "," : "", rank);
    if (tensor->ranks_count > shown)
        snprintf(buffer + used, buffer_bytes - (size_t)used, " and %u more",
                 tensor->ranks_count - shown);
    return buffer;
}

/* Returns whether a late worker declares a tensor that other ranks have declared. A wrong declare
 * of a late worker must not make the tensor fail for the other ranks (K50). */
static bool is_newcomer(const struct declare *d, const struct tensor *tensor)
{
    return tensor->ranks_count > 0 && !tensor_has_rank(tensor, d->peer->session->rank) &&
           !members_has_entered(tensor, d->peer->session);
}

static void refuse_newcomer(struct declare *d, const struct tensor *tensor, const char *expected,
                            const char *got)
{
    char ranks[64];
    peer_fail(d->peer, d->request, -EINVAL,
              "tensor '%.255s' of job %.127s: late rank %u declared %s; expected %s, as %s "
              "declared; correct the declaration of the late rank; the other ranks train on",
              tensor->name, d->job->name, d->peer->session->rank, got, expected,
              ranks_text(tensor, ranks, sizeof ranks));
}

/* Refuses a tensor whose shape or dtype differs from that of an earlier declare. If this rank has
 * declared the tensor before, only this declare fails. Otherwise the ranks disagree, and the tensor
 * fails for all ranks. */
static void refuse_mismatch(struct declare *d, struct tensor *tensor, const WIRE(TensorSpec) * spec)
{
    uint32_t rank = d->peer->session->rank;
    const char *had = reduce_dtype_name(tensor->dtype), *came = reduce_dtype_name(spec->dtype);
    bool again = tensor_has_rank(tensor, rank) || tensor->ranks_count == 0;
    char ranks[64], text[2 * ERR_TEXT_BYTES], expected[64], got[64];
    snprintf(expected, sizeof expected, "%s[%" PRIu64 "]", had, tensor->elements);
    snprintf(got, sizeof got, "%s[%" PRIu64 "]", came, spec->elements);
    if (is_newcomer(d, tensor))
        return refuse_newcomer(d, tensor, expected, got);
    if (again)
        return peer_fail(d->peer, d->request, -EEXIST,
                         "tensor '%s' of job %s: rank %u declared it as %s before, now as %s; "
                         "undeclare the tensor first",
                         tensor->name, d->job->name, rank, expected, got);
    snprintf(text, sizeof text,
             "tensor '%.255s' of job %.127s: %s declared %s, rank %u declared %s; all ranks must "
             "declare the same",
             tensor->name, d->job->name, ranks_text(tensor, ranks, sizeof ranks), expected, rank,
             got);
    tensor_fail(tensor, d->peer->session, -EINVAL, text);
    peer_fail(d->peer, d->request, -EINVAL, "%s", text);
    declare_check_waits(d->job);
}

/* Creates a tensor and adds it to the job, so that a later spec of the same request finds it. After
 * an error, undo() removes the tensor. */
static struct tensor *create(struct declare *d, const WIRE(TensorSpec) * spec,
                             const struct terms *terms)
{
    struct tensor *tensor =
        tensor_create(d->job, d->job->next_tensor, spec->name, spec->dtype, spec->elements, terms);
    int error = tensor ? jobs_add_tensor(d->job, tensor) : -ENOMEM;
    if (error == 0) {
        d->job->next_tensor++;
        d->created_count++;
        return tensor;
    }
    if (tensor)
        tensor_destroy(tensor);
    peer_fail_memory(d->peer, d->request);
    return NULL;
}

static bool terms_are_valid(const struct declare *d, const WIRE(TensorSpec) * spec,
                            struct terms *ret_terms)
{
    const char *fault = "the terms are those of another version; install the same version of "
                        "gradpool on both hosts";
    uint32_t rank = d->peer->session->rank;
    if (terms_read(spec->terms.data, spec->terms.len, ret_terms) == 0)
        fault = terms_fault(ret_terms, d->job->workers);
    if (!fault && !terms_have_rank(ret_terms, rank))
        fault = "the set of ranks lacks the rank that declares; declare the tensor on ranks of the "
                "set only";
    bool follows = !fault && ret_terms->flags & TERMS_FOLLOWS;
    if (follows && d->job->terms->backup.rule == BACKUP_TERMS_ALL)
        fault = "parameters follow sets in jobs with backup workers only; declare GP_ALL";
    if (fault)
        peer_fail(d->peer, d->request, -EINVAL, "tensor '%s' of job %s, rank %u: %s", spec->name,
                  d->job->name, rank, fault);
    return !fault;
}

/* Refuses a tensor whose terms differ from those of an earlier declare. For example, the quorum
 * says for which ranks a round waits, so all ranks must declare the same quorum. */
static void refuse_terms(struct declare *d, struct tensor *tensor)
{
    uint32_t rank = d->peer->session->rank;
    char ranks[64], text[2 * ERR_TEXT_BYTES];
    if (is_newcomer(d, tensor))
        return refuse_newcomer(d, tensor, "the quorum, rule and set of ranks",
                               "another quorum, rule or set of ranks");
    snprintf(text, sizeof text,
             "tensor '%.255s' of job %.127s: rank %u declared another quorum or set of ranks than "
             "%s; all ranks must declare the same",
             tensor->name, d->job->name, rank, ranks_text(tensor, ranks, sizeof ranks));
    if (!tensor_has_rank(tensor, rank))
        tensor_fail(tensor, d->peer->session, -EINVAL, text);
    peer_fail(d->peer, d->request, -EINVAL, "%s", text);
    declare_check_waits(d->job);
}

static bool resolve(struct declare *d, const WIRE(TensorSpec) * spec)
{
    struct terms terms;
    if (!spec_is_valid(d, spec) || !terms_are_valid(d, spec, &terms))
        return false;
    struct tensor *tensor = jobs_tensor_named(d->job, spec->name);
    if (!tensor) {
        tensor = create(d, spec, &terms);
    } else if (tensor->failure) {
        peer_fail(d->peer, d->request, tensor->failure_code, "%s", tensor->failure);
        return false;
    } else if (tensor->dtype != spec->dtype || tensor->elements != spec->elements) {
        refuse_mismatch(d, tensor, spec);
        return false;
    } else if (!terms_are_same(&tensor->terms, &terms)) {
        refuse_terms(d, tensor);
        return false;
    }
    if (tensor)
        d->wanted[d->wanted_count++] = tensor;
    return tensor;
}

static struct tensor **created(const struct declare *d)
{
    return d->job->tensors + d->job->tensors_count - d->created_count;
}

static void set_ranks(struct declare *d, const bool *had, bool on)
{
    for (size_t i = 0; i < d->wanted_count; i++)
        if (!had[i])
            tensor_set_rank(d->wanted[i], d->peer->session->rank, on);
}

/* Stores the declare in one transaction. The memory is not changed before the transaction has
 * succeeded (K1). */
static int keep(struct declare *d, const bool *had, struct err *err)
{
    struct service *s = d->peer->service;
    struct store_row row;
    store_begin(s->store);
    if (d->created_count > 0) {
        service_put_numbers(s);
        jobs_row(d->job, &row);
        store_put(s->store, &row);
    }
    for (size_t i = 0; i < d->wanted_count; i++) {
        if (had[i])
            continue;
        tensor_row(d->wanted[i], &row);
        store_put(s->store, &row);
    }
    for (size_t t = 0; t < d->created_count; t++) {
        for (size_t i = 0; i < created(d)[t]->pieces_count; i++) {
            piece_row(created(d)[t], &created(d)[t]->pieces[i], &row);
            store_put(s->store, &row);
        }
    }
    return store_commit(s->store, err);
}

static void adopt(struct declare *d)
{
    for (size_t t = 0; t < d->created_count; t++) {
        struct tensor *tensor = created(d)[t];
        for (size_t i = 0; i < tensor->pieces_count; i++) {
            struct lane *lane = tensor->pieces[i].lane;
            tensor->pieces[i].lane = NULL;
            piece_attach(tensor, &tensor->pieces[i], lane);
        }
    }
    d->created_count = 0;
    d->job->figures->trained_ns = clock_now_ns();
    d->job->service->on->service->training_may_begin(d->job->service);
}

/* Loads the measurements of earlier runs of the same job. A job is recognized by the tensors of its
 * first declare. */
static void recall(struct declare *d)
{
    if (d->job->terms->layout == 0)
        d->job->terms->layout = profiles_layout(created(d), d->created_count);
    profiles_recall(d->job, created(d), d->created_count);
}

/* Chooses pieces and lanes for the new tensors. Limits are checked twice: first for the smallest
 * possible number of pieces, then for the actual number. */
static int plan(struct declare *d, struct err *err)
{
    if (d->created_count == 0)
        return 0;
    int error = quota_check_declared(d->job, created(d), d->created_count, err);
    recall(d);
    if (error == 0)
        error = placing_plan(d->job, created(d), d->created_count, err);
    if (error == 0)
        error = quota_check_declared(d->job, created(d), d->created_count, err);
    return error < 0 ? error : quota_check_lanes(d->job, created(d), d->created_count, err);
}

static int settle(struct declare *d, struct err *err)
{
    _cleanup_free_ bool *had = calloc(d->wanted_count ? d->wanted_count : 1, sizeof *had);
    if (!had)
        return err_set(
            err, -ENOMEM,
            "gradpool serve has no memory for a declaration of job %.64s; raise its memory limit",
            d->job->name);
    int error = plan(d, err);
    if (error < 0)
        return error;
    for (size_t i = 0; i < d->wanted_count; i++)
        had[i] = tensor_has_rank(d->wanted[i], d->peer->session->rank);
    set_ranks(d, had, true);
    error = keep(d, had, err);
    if (error < 0)
        set_ranks(d, had, false);
    else
        adopt(d);
    return error;
}

static bool fits_a_reply(const struct declare *d)
{
    size_t pieces = 0;
    for (size_t i = 0; i < d->wanted_count; i++)
        pieces += d->wanted[i]->pieces_count;
    return pieces <= DECLARE_PIECES_MAX;
}

static void answer_when_ready(struct declare *d)
{
    if (!fits_a_reply(d))
        return peer_fail(d->peer, d->request, -EMSGSIZE,
                         "these tensors have more than %u pieces: declare them in several calls",
                         DECLARE_PIECES_MAX);
    struct declared *declaration =
        calloc(1, sizeof *declaration + d->wanted_count * sizeof declaration->tensors[0]);
    if (!declaration)
        return peer_fail_memory(d->peer, d->request);
    declaration->job = d->job->id;
    declaration->count = d->wanted_count;
    for (size_t i = 0; i < d->wanted_count; i++)
        declaration->tensors[i] = d->wanted[i]->id;
    if (!wait_create(d->peer, d->request, DECLARE_DEADLINE_NS, declare_expired, declaration))
        return;
    telling_place(d->job);
    regrouping_check(d->job);
    declare_check_waits(d->job);
}

/* Removes the new tensors after an error. No lane has received their pieces yet. */
static void undo(struct declare *d)
{
    for (; d->created_count > 0; d->created_count--) {
        struct tensor *last = d->job->tensors[d->job->tensors_count - 1];
        d->job->index->pieces_count -= last->pieces_count;
        last->pieces_count = 0;
        jobs_remove_tensor(d->job, last);
    }
    d->job->next_tensor = d->next_tensor;
    d->job->next_piece = d->next_piece;
    if (d->job->tensors_count > 0)
        return;
    d->job->terms->layout = 0; /* The next declare counts as the first declare of the job. */
    *d->job->profile = (struct profile){0};
    d->job->figures->knows_tensors = false;
}

/* Stores the request until the service has lanes for the tensors. */
static void keep_request(struct peer *p, const envelope *request, const struct err *why)
{
    struct job *job = p->session->job;
    waiting_begin(job, why->text);
    kept_add(p, request, waiting_left_ns(job), declare_handle, "lanes");
}

void declare_handle(struct peer *p, const envelope *request)
{
    const WIRE(DeclareRequest) *wanted = request->declare_request;
    if (!p->session)
        return peer_fail(p, request->id, -ENOTCONN, "this connection has no job; join a job first");
    struct job *job = p->session->job;
    if (job->failure)
        return peer_fail(p, request->id, -ECONNRESET, "job %s has failed: %s", job->name,
                         job->failure);
    struct err err;
    int error = quota_check_request(job, &err);
    if (error < 0)
        return peer_fail(p, request->id, error, "%s", err.text);
    if (wanted->n_tables > 0) {
        if (tables_declare(p, request, &err) == -EINPROGRESS)
            keep_request(p, request, &err);
        return;
    }
    size_t count = wanted->n_tensors ? wanted->n_tensors : 1;
    _cleanup_free_ struct tensor **found = calloc(count, sizeof *found);
    if (!found)
        return peer_fail_memory(p, request->id);
    struct declare d = {.peer = p,
                        .job = job,
                        .request = request->id,
                        .wanted = found,
                        .next_tensor = job->next_tensor,
                        .next_piece = job->next_piece};
    error = quota_check_count(job->tenant, wanted->n_tensors, job->name, &err);
    if (error < 0)
        return peer_fail(p, request->id, error, "%s", err.text);
    for (size_t i = 0; i < wanted->n_tensors; i++)
        if (!resolve(&d, wanted->tensors[i]))
            return undo(&d);
    error = settle(&d, &err);
    if (error < 0)
        undo(&d);
    if (error == -EINPROGRESS)
        return keep_request(p, request, &err);
    if (error < 0) {
        waiting_end(job, false);
        return peer_fail(p, request->id, error, "%s", err.text);
    }
    waiting_placed(job);
    waiting_end(job, true);
    answer_when_ready(&d);
}
