/* Declaring and undeclaring tensors. The first rank that names a tensor creates it; the others
 * must agree with it. Owns struct tensor and its pieces. A declare is answered when every lane has
 * confirmed its pieces (K3), so an announcement never comes before its piece is known. */
#include "packer/packer.h"
#include "svc/base/cleanup.h"
#include "svc/base/log.h"
#include "svc/coordinator/service.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* As numbered on the wire (TensorSpec.dtype). */
static const struct dtype {
    const char *name;
    uint32_t bytes;
} dtypes[] = {[1] = {"f32", 4}};

static const struct dtype *dtype_find(uint32_t dtype)
{
    bool known = dtype < sizeof dtypes / sizeof *dtypes && dtypes[dtype].name;
    return known ? &dtypes[dtype] : NULL;
}

struct tensor *tensor_create(struct job *job, uint32_t id, const char *name, uint32_t dtype,
                             uint64_t elements)
{
    struct tensor *tensor = calloc(1, sizeof *tensor);
    if (!tensor)
        return NULL;
    *tensor = (struct tensor){.job = job, .id = id, .dtype = dtype, .elements = elements,
                              .hash = packer_hash(name), .name = strdup(name)};
    if (!tensor->name) {
        free(tensor);
        return NULL;
    }
    return tensor;
}

void tensor_destroy(struct tensor *tensor)
{
    free(tensor->pieces);
    free(tensor->failure);
    free(tensor->name);
    free(tensor);
}

uint64_t tensor_bytes(const struct tensor *tensor, uint64_t elements)
{
    return elements * dtypes[tensor->dtype].bytes;
}

bool tensor_has_rank(const struct tensor *tensor, uint32_t rank)
{
    return tensor->ranks[rank / 8] & (1u << rank % 8);
}

static void set_rank(struct tensor *tensor, uint32_t rank, bool on)
{
    if (tensor_has_rank(tensor, rank) == on)
        return;
    tensor->ranks[rank / 8] ^= (uint8_t)(1u << rank % 8);
    tensor->ranks_count += on ? 1 : (uint32_t)-1;
}

void tensor_row(const struct tensor *tensor, struct store_row *ret_row)
{
    *ret_row = (struct store_row){.table = STORE_TENSOR};
    ret_row->tensor = (struct store_tensor){.job = tensor->job->id, .tensor = tensor->id,
        .name = tensor->name, .dtype = tensor->dtype, .elements = tensor->elements,
        .failure = tensor->failure ? tensor->failure : "", .ranks = tensor->ranks};
}

void piece_row(const struct tensor *tensor, const struct piece *piece, struct store_row *ret_row)
{
    *ret_row = (struct store_row){.table = STORE_PIECE};
    ret_row->piece = (struct store_piece){.job = tensor->job->id, .piece = piece->id,
        .tensor = tensor->id, .task = piece->task, .lane = piece->lane ? piece->lane->id : 0,
        .epoch = piece->epoch, .first = piece->first, .elements = piece->elements};
}

int tensor_restore(struct service *s, const struct store_tensor *row)
{
    struct job *job = jobs_find_id(s, row->job);
    if (!job || !dtype_find(row->dtype))
        return -EBADMSG;
    struct tensor *tensor = tensor_create(job, row->tensor, row->name, row->dtype, row->elements);
    if (!tensor)
        return -ENOMEM;
    for (uint32_t rank = 0; rank < job->workers; rank++)
        if (row->ranks[rank / 8] & (1u << rank % 8))
            set_rank(tensor, rank, true);
    if (*row->failure)
        tensor->failure = strdup(row->failure);
    return jobs_add_tensor(job, tensor);
}

/* Rows come in order of (job, tensor, piece), so a tensor's pieces keep their order. */
int piece_restore(struct service *s, const struct store_piece *row)
{
    struct job *job = jobs_find_id(s, row->job);
    struct tensor *tensor = job ? jobs_tensor(job, row->tensor) : NULL;
    if (!tensor)
        return -EBADMSG;
    struct piece *grown = realloc(tensor->pieces, (tensor->pieces_count + 1) * sizeof *grown);
    if (!grown)
        return -ENOMEM;
    tensor->pieces = grown;
    struct piece *piece = &grown[tensor->pieces_count++];
    *piece = (struct piece){.id = row->piece, .task = row->task, .epoch = row->epoch,
                            .first = row->first, .elements = row->elements, .recovering = true};
    struct lane *lane = lane_find(s, row->lane);
    if (lane)
        piece_attach(tensor, piece, lane);
    return 0;
}

/* --- failing a tensor --- */

void tensor_fail(struct tensor *tensor, const struct session *except, int code, const char *text)
{
    struct job *job = tensor->job;
    struct store_row row;
    struct err err;
    if (tensor->failure)
        return;
    log_error("%s", text);
    tensor->failure = strdup(text);
    tensor_row(tensor, &row);
    store_begin(job->service->store);
    store_put(job->service->store, &row);
    if (store_commit(job->service->store, &err) < 0)
        log_error("%s", err.text);
    WIRE(TensorFailure) failure = GRADPOOL__WIRE__TENSOR_FAILURE__INIT;
    failure.tensor = tensor->id;
    failure.code = code;
    failure.text = (char *)text;
    envelope e = ENVELOPE_INIT;
    e.body_case = BODY(TENSOR_FAILURE);
    e.tensor_failure = &failure;
    for (uint32_t rank = 0; rank < job->workers; rank++) {
        const struct session *session = job->sessions[rank];
        if (tensor_has_rank(tensor, rank) && session && session != except && session->peer)
            peer_send(session->peer, &e);
    }
}

/* --- answering --- */

WIRE(TensorRoute) *tensor_route(const struct tensor *tensor, piece_wanted_fn wanted,
                                const void *context)
{
    size_t count = tensor->pieces_count;
    char *memory = calloc(1, sizeof(WIRE(TensorRoute)) +
                                 count * (sizeof(WIRE(Piece) *) + sizeof(WIRE(Piece))));
    if (!memory)
        return NULL;
    WIRE(TensorRoute) *route = (void *)memory;
    WIRE(Piece) **list = (void *)(route + 1);
    WIRE(Piece) *pieces = (void *)(list + count);
    gradpool__wire__tensor_route__init(route);
    route->tensor = tensor->id;
    route->pieces = list;
    for (size_t i = 0; i < count; i++) {
        const struct piece *piece = &tensor->pieces[i];
        if (!piece->lane || (wanted && !wanted(piece, context)))
            continue;
        WIRE(Piece) *out = &pieces[route->n_pieces];
        gradpool__wire__piece__init(out);
        out->id = piece->id;
        out->first = piece->first;
        out->elements = piece->elements;
        out->task = piece->task;
        out->lane = piece->lane->id;
        out->epoch = piece->epoch;
        list[route->n_pieces++] = out;
    }
    return route;
}

struct declaration {
    uint32_t job;
    size_t count;
    uint32_t tensors[]; /* in the order of the request */
};

static void send_routes(struct wait *wait, struct job *job, const struct declaration *declaration)
{
    WIRE(DeclareReply) reply = GRADPOOL__WIRE__DECLARE_REPLY__INIT;
    size_t count = declaration->count;
    reply.tensors = calloc(count ? count : 1, sizeof *reply.tensors);
    for (size_t i = 0; reply.tensors && i < count; i++) {
        reply.tensors[i] = tensor_route(jobs_tensor(job, declaration->tensors[i]), NULL, NULL);
        if (!reply.tensors[i])
            break;
        reply.n_tensors++;
    }
    envelope e = ENVELOPE_INIT;
    e.id = wait->request;
    e.body_case = BODY(DECLARE_REPLY);
    e.declare_reply = &reply;
    if (reply.tensors && reply.n_tensors == count)
        peer_send(wait->peer, &e);
    else
        peer_fail(wait->peer, wait->request, -ENOMEM, "gradpool serve is out of memory");
    for (size_t i = 0; i < reply.n_tensors; i++)
        free(reply.tensors[i]);
    free(reply.tensors);
}

static bool is_ready(const struct tensor *tensor)
{
    for (size_t i = 0; i < tensor->pieces_count; i++)
        if (tensor->pieces[i].state != PIECE_READY)
            return false;
    return true;
}

/* Whether the wait has been answered. */
static bool try_answer(struct wait *wait, struct job *job, const struct declaration *declaration)
{
    bool ready = true;
    for (size_t i = 0; i < declaration->count; i++) {
        const struct tensor *tensor = jobs_tensor(job, declaration->tensors[i]);
        if (!tensor)
            peer_fail(wait->peer, wait->request, -ECANCELED, "a tensor was undeclared meanwhile");
        else if (tensor->failure)
            peer_fail(wait->peer, wait->request, -EINVAL, "%s", tensor->failure);
        if (!tensor || tensor->failure)
            return true;
        ready = ready && is_ready(tensor);
    }
    if (ready)
        send_routes(wait, job, declaration);
    return ready;
}

static void declare_expired(struct wait *wait)
{
    const struct declaration *declaration = wait->data;
    const struct job *job = jobs_find_id(wait->peer->service, declaration->job);
    peer_fail(wait->peer, wait->request, -ETIMEDOUT, "job %s: the lanes did not confirm all pieces "
              "in time", job ? job->name : "?");
    wait_destroy(wait);
}

void tensors_check_waits(struct job *job)
{
    list_for_each_safe(node, &job->service->waits) {
        struct wait *wait = list_entry(node, struct wait, link);
        const struct declaration *declaration = wait->data;
        if (wait->expired == declare_expired && declaration->job == job->id &&
            try_answer(wait, job, declaration))
            wait_destroy(wait);
    }
}

/* --- declaring --- */

/* One request while it is worked on. New tensors become the job's when they are in the store. */
struct declare {
    struct peer *peer;
    struct job *job;
    uint64_t request;
    struct tensor **wanted; /* one for each spec */
    size_t wanted_count;
    struct tensor **created;
    size_t created_count;
    uint32_t next_tensor, next_piece, next_task; /* as they were */
};

static bool spec_is_valid(const struct declare *d, const WIRE(TensorSpec) *spec)
{
    size_t bytes = strlen(spec->name);
    const struct dtype *dtype = dtype_find(spec->dtype);
    if (bytes < 1 || bytes > TENSOR_NAME_BYTES_MAX)
        peer_fail(d->peer, d->request, -EINVAL, "a tensor's name has 1 to %d bytes; this one has "
                  "%zu: '%.32s'", TENSOR_NAME_BYTES_MAX, bytes, spec->name);
    else if (!dtype)
        peer_fail(d->peer, d->request, -EINVAL, "tensor '%s': dtype %u is not known; expected 1 "
                  "(f32)", spec->name, spec->dtype);
    else if (spec->elements > TENSOR_BYTES_MAX / dtype->bytes)
        peer_fail(d->peer, d->request, -EINVAL, "tensor '%s': %" PRIu64 " elements are more than "
                  "1 TiB", spec->name, spec->elements);
    else
        return true;
    return false;
}

static struct tensor *find_wanted(const struct declare *d, const char *name)
{
    uint32_t hash = packer_hash(name);
    for (size_t i = 0; i < d->created_count; i++)
        if (d->created[i]->hash == hash && strcmp(d->created[i]->name, name) == 0)
            return d->created[i];
    return jobs_tensor_named(d->job, name);
}

/* "rank 0", "ranks 0 and 2", "ranks 0, 1, 2 and 5 more" */
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

/* The same name with another shape or dtype: a mistake of this rank, if it has declared it before;
 * else the ranks disagree, which every one of them is told. */
static void refuse_mismatch(struct declare *d, struct tensor *tensor, const WIRE(TensorSpec) *spec)
{
    uint32_t rank = d->peer->session->rank;
    const char *had = dtypes[tensor->dtype].name, *came = dtypes[spec->dtype].name;
    bool again = tensor_has_rank(tensor, rank) || tensor->ranks_count == 0;
    char ranks[64], text[2 * ERR_TEXT_BYTES];
    if (again)
        return peer_fail(d->peer, d->request, -EEXIST, "tensor '%s' of job %s: rank %u declared it "
                         "as %s[%" PRIu64 "] before, now as %s[%" PRIu64 "]", tensor->name,
                         d->job->name, rank, had, tensor->elements, came, spec->elements);
    snprintf(text, sizeof text, "tensor '%.255s' of job %.127s: %s declared %s[%" PRIu64 "], rank "
             "%u declared %s[%" PRIu64 "]", tensor->name, d->job->name,
             ranks_text(tensor, ranks, sizeof ranks), had, tensor->elements, rank, came,
             spec->elements);
    tensor_fail(tensor, d->peer->session, -EINVAL, text);
    peer_fail(d->peer, d->request, -EINVAL, "%s", text);
    tensors_check_waits(d->job);
}

static struct tensor *create(struct declare *d, const WIRE(TensorSpec) *spec)
{
    struct tensor *tensor = tensor_create(d->job, d->job->next_tensor, spec->name, spec->dtype,
                                          spec->elements);
    if (!tensor) {
        peer_fail(d->peer, d->request, -ENOMEM, "gradpool serve is out of memory");
        return NULL;
    }
    d->job->next_tensor++;
    d->created[d->created_count++] = tensor;
    return tensor;
}

static bool resolve(struct declare *d, const WIRE(TensorSpec) *spec)
{
    if (!spec_is_valid(d, spec))
        return false;
    struct tensor *tensor = find_wanted(d, spec->name);
    if (!tensor) {
        tensor = create(d, spec);
    } else if (tensor->failure) {
        peer_fail(d->peer, d->request, -EINVAL, "%s", tensor->failure);
        return false;
    } else if (tensor->dtype != spec->dtype || tensor->elements != spec->elements) {
        refuse_mismatch(d, tensor, spec);
        return false;
    }
    if (tensor)
        d->wanted[d->wanted_count++] = tensor;
    return tensor;
}

static void set_ranks(struct declare *d, const bool *had, bool on)
{
    for (size_t i = 0; i < d->wanted_count; i++)
        if (!had[i])
            set_rank(d->wanted[i], d->peer->session->rank, on);
}

/* K1: one transaction; memory follows only when it is in the store. */
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
        for (size_t i = 0; i < d->created[t]->pieces_count; i++) {
            piece_row(d->created[t], &d->created[t]->pieces[i], &row);
            store_put(s->store, &row);
        }
    }
    return store_commit(s->store, err);
}

static void adopt(struct declare *d)
{
    for (size_t t = 0; t < d->created_count; t++) {
        struct tensor *tensor = d->created[t];
        for (size_t i = 0; i < tensor->pieces_count; i++) {
            struct lane *lane = tensor->pieces[i].lane;
            tensor->pieces[i].lane = NULL;
            piece_attach(tensor, &tensor->pieces[i], lane);
        }
    }
    d->created_count = 0;
}

static int reserve(struct job *job, struct declare *d)
{
    size_t at = job->tensors_count;
    for (size_t i = 0; i < d->created_count; i++) {
        if (jobs_add_tensor(job, d->created[i]) < 0) {
            job->tensors_count = at;
            return -ENOMEM;
        }
    }
    return 0;
}

static int settle(struct declare *d, struct err *err)
{
    struct job *job = d->job;
    size_t at = job->tensors_count;
    _cleanup_free_ bool *had = calloc(d->wanted_count ? d->wanted_count : 1, sizeof *had);
    if (!had)
        return err_set(err, -ENOMEM, "gradpool serve is out of memory");
    if (d->created_count > 0) {
        int error = placing_plan(job, d->created, d->created_count, err);
        if (error < 0)
            return error;
        if (reserve(job, d) < 0)
            return err_set(err, -ENOMEM, "gradpool serve is out of memory");
    }
    for (size_t i = 0; i < d->wanted_count; i++)
        had[i] = tensor_has_rank(d->wanted[i], d->peer->session->rank);
    set_ranks(d, had, true);
    int error = keep(d, had, err);
    if (error < 0) {
        set_ranks(d, had, false);
        job->tensors_count = at;
        return error;
    }
    adopt(d);
    return 0;
}

static void answer_when_ready(struct declare *d)
{
    struct declaration *declaration =
        calloc(1, sizeof *declaration + d->wanted_count * sizeof declaration->tensors[0]);
    if (!declaration)
        return peer_fail(d->peer, d->request, -ENOMEM, "gradpool serve is out of memory");
    declaration->job = d->job->id;
    declaration->count = d->wanted_count;
    for (size_t i = 0; i < d->wanted_count; i++)
        declaration->tensors[i] = d->wanted[i]->id;
    if (!wait_create(d->peer, d->request, DECLARE_DEADLINE_NS, declare_expired, declaration))
        return;
    placing_send(d->job);
    tensors_check_waits(d->job);
}

static void undo(struct declare *d)
{
    for (size_t i = 0; i < d->created_count; i++)
        tensor_destroy(d->created[i]);
    d->job->next_tensor = d->next_tensor;
    d->job->next_piece = d->next_piece;
}

void tensors_handle_declare(struct peer *p, const envelope *request)
{
    const WIRE(DeclareRequest) *wanted = request->declare_request;
    if (!p->session)
        return peer_fail(p, request->id, -ENOTCONN, "join a job first");
    struct job *job = p->session->job;
    if (job->failure)
        return peer_fail(p, request->id, -ECONNRESET, "job %s has failed: %s", job->name,
                         job->failure);
    size_t count = wanted->n_tensors ? wanted->n_tensors : 1;
    _cleanup_free_ struct tensor **found = calloc(count, sizeof *found);
    _cleanup_free_ struct tensor **created = calloc(count, sizeof *created);
    if (!found || !created)
        return peer_fail(p, request->id, -ENOMEM, "gradpool serve is out of memory");
    struct declare d = {.peer = p, .job = job, .request = request->id, .wanted = found,
        .created = created, .next_tensor = job->next_tensor, .next_piece = job->next_piece};
    struct err err;
    for (size_t i = 0; i < wanted->n_tensors; i++)
        if (!resolve(&d, wanted->tensors[i]))
            return undo(&d);
    int error = settle(&d, &err);
    if (error < 0) {
        undo(&d);
        return peer_fail(p, request->id, error, "%s", err.text);
    }
    answer_when_ready(&d);
}

/* --- undeclaring --- */

static int forget(struct job *job, struct tensor *const *tensors, size_t count, struct err *err)
{
    struct store *store = job->service->store;
    struct store_row row;
    store_begin(store);
    for (size_t i = 0; i < count; i++) {
        tensor_row(tensors[i], &row);
        if (tensors[i]->ranks_count > 0)
            store_put(store, &row);
        else
            store_erase(store, &row);
    }
    return store_commit(store, err);
}

/* One message for each lane that held some of it. */
static void drop(struct job *job, struct tensor *tensor)
{
    _cleanup_free_ uint32_t *pieces = calloc(tensor->pieces_count, sizeof *pieces);
    for (size_t share = 0; pieces && share < job->shares_count; share++) {
        size_t count = 0;
        for (size_t i = 0; i < tensor->pieces_count; i++)
            if (tensor->pieces[i].lane == job->shares[share].lane)
                pieces[count++] = tensor->pieces[i].id;
        if (count > 0)
            placing_drop(job->shares[share].lane, job->id, pieces, count);
    }
    jobs_remove_tensor(job, tensor);
}

static int undeclare(struct session *session, struct tensor **tensors, size_t count,
                     struct err *err)
{
    struct job *job = session->job;
    for (size_t i = 0; i < count; i++)
        set_rank(tensors[i], session->rank, false);
    int error = forget(job, tensors, count, err);
    for (size_t i = 0; i < count; i++) {
        if (error < 0)
            set_rank(tensors[i], session->rank, true);
        else if (tensors[i]->ranks_count == 0)
            drop(job, tensors[i]);
    }
    return error;
}

static bool is_before(struct tensor *const *tensors, size_t count, const struct tensor *tensor)
{
    for (size_t i = 0; i < count; i++)
        if (tensors[i] == tensor)
            return true;
    return false;
}

void tensors_handle_undeclare(struct peer *p, const envelope *request)
{
    const WIRE(UndeclareRequest) *wanted = request->undeclare_request;
    struct session *session = p->session;
    if (!session)
        return peer_fail(p, request->id, -ENOTCONN, "join a job first");
    size_t count = wanted->n_tensors;
    _cleanup_free_ struct tensor **tensors = calloc(count ? count : 1, sizeof *tensors);
    if (!tensors)
        return peer_fail(p, request->id, -ENOMEM, "gradpool serve is out of memory");
    for (size_t i = 0; i < count; i++) {
        tensors[i] = jobs_tensor(session->job, wanted->tensors[i]);
        if (!tensors[i] || !tensor_has_rank(tensors[i], session->rank) ||
            is_before(tensors, i, tensors[i]))
            return peer_fail(p, request->id, -ENOENT, "rank %u of job %s has not declared tensor "
                             "number %u", session->rank, session->job->name, wanted->tensors[i]);
    }
    struct err err;
    int error = undeclare(session, tensors, count, &err);
    if (error < 0)
        return peer_fail(p, request->id, error, "%s", err.text);
    tensors_check_waits(session->job);
    peer_reply_done(p, request->id);
}
