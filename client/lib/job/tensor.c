/* Owns the tensors of a job: two hash tables, and the memory of each tensor. Rounds and routes are
 * decided in other files. */
#include "client/lib/job/tensor.h"

#include "client/lib/job/piece.h"
#include "client/lib/job/request.h"
#include "client/lib/job/state_copy.h"
#include "client/lib/session/process.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct gp_tensor *tensor_find(struct gp_job *job, const char *name)
{
    hash_for_each (struct gp_tensor, t, &job->by_name, hash_text(name), by_name)
        if (strcmp(t->name, name) == 0)
            return t;
    return NULL;
}

struct gp_tensor *tensor_find_id(struct gp_job *job, uint32_t id)
{
    hash_for_each (struct gp_tensor, t, &job->by_id, id, by_id)
        return t;
    return NULL;
}

static int tensor_table_grow(struct gp_job *job)
{
    int error = hash_reserve(&job->by_name);
    return error ? error : hash_reserve(&job->by_id);
}

void tensor_table_fini(struct gp_job *job)
{
    hash_fini(&job->by_name);
    hash_fini(&job->by_id);
}

uint8_t tensor_wire(const gp_tensor_spec *spec)
{
    return (uint8_t)(spec->wire ? spec->wire : spec->dtype);
}

void tensor_count_ranks(struct gp_tensor *t, const uint64_t *ranks)
{
    t->members = 0;
    t->peer = t->job->workers;
    for (uint32_t rank = t->job->workers; rank-- > 0;) {
        if (!ranks_have(ranks, rank))
            continue;
        t->members++;
        t->first_rank = rank;
        t->peer = rank == t->job->rank ? t->peer : rank;
    }
}

bool tensor_suits_stages(const struct gp_tensor *t)
{
    return !t->job->is_elastic && terms_are_for_all(&t->terms) && t->terms.quorum == QUORUM_ALL &&
           strncmp(t->name, NAME_RESERVED, strlen(NAME_RESERVED)) != 0;
}

int tensor_add(struct gp_job *job, const gp_tensor_spec *spec, const struct terms *terms,
               struct gp_tensor **ret_tensor)
{
    static const uint64_t all[TERMS_RANK_WORDS] = {[0 ... TERMS_RANK_WORDS - 1] = UINT64_MAX};
    struct gp_tensor *t = calloc(1, sizeof *t);
    if (!t || tensor_table_grow(job) < 0 || !(t->name = strdup(spec->name))) {
        free(t);
        return -ENOMEM;
    }
    t->job = job;
    t->dtype = tensor_wire(spec);
    t->values = spec->dtype;
    t->elements = spec->elements;
    t->bytes = spec->elements * reduce_element_bytes(t->dtype);
    t->terms = *terms;
    tensor_count_ranks(t, terms_are_for_all(terms) ? all : terms->ranks);
    t->index = job->declared++;
    list_init(&t->in_request);
    list_append(&job->tensors, &t->node);
    hash_add(&job->by_name, &t->by_name, hash_text(t->name));
    *ret_tensor = t;
    return 0;
}

void tensor_take_id(struct gp_tensor *t, uint32_t id)
{
    t->id = id;
    hash_add(&t->job->by_id, &t->by_id, id);
    t->is_routed = true;
}

void tensor_remove(struct gp_tensor *t)
{
    struct gp_job *job = t->job;
    hash_remove(&job->by_name, &t->by_name);
    if (t->is_routed)
        hash_remove(&job->by_id, &t->by_id);
    hold_forget_tensor(t);
    for_each_piece (p, t) {
        piece_retract(p);
        copy_free(p);
        piece_give_slot_back(p);
    }
    for (int i = 0; i < 2; i++) {
        if (t->staging_input[i])
            slabs_free(&job->slabs, t->staging_input[i]);
        if (t->staging_landing[i])
            slabs_free(&job->slabs, t->staging_landing[i]);
    }
    job->staged_bytes -= t->staged_bytes;
    list_remove(&t->in_request);
    list_remove(&t->node);
    free(t->pieces);
    free(t->name);
    free(t);
}

static void tensor_fail(struct gp_tensor *t, int code, const char *text)
{
    if (!t->failure.code)
        err_set(&t->failure, code < 0 ? code : -EPROTO, "%s", *text ? text : err_text(code));
    if (t->request)
        request_fail(t->request, t->failure.code, t->failure.text);
}

/* Fails the job's GP_CHOSEN tensors. Their sets come from rounds of the leader, which has failed
 * (W13). */
static void tensor_fail_followers(struct gp_tensor *leader)
{
    for_each_tensor (t, leader->job) {
        if (t->terms.quorum == QUORUM_CHOSEN)
            tensor_fail(t, leader->failure.code, leader->failure.text);
    }
}

void tensor_break(struct gp_tensor *t, int code, const char *text)
{
    tensor_fail(t, code, text);
    if (t->terms.flags & TERMS_LEADS)
        tensor_fail_followers(t);
    hold_check(t->job);
}

int tensor_check(const struct gp_tensor *t)
{
    return t ? job_check(t->job)
             : client_error(-EINVAL, "the tensor is NULL; pass a tensor of gp_tensor_declare()");
}

const char *gp_tensor_name(const gp_tensor *tensor) { return tensor ? tensor->name : ""; }
uint64_t gp_tensor_elements(const gp_tensor *tensor) { return tensor ? tensor->elements : 0; }
