/* Owns the tensors of a job: two hash tables, and the memory of each tensor. Other files decide
 * about rounds and routes. */
#include "client/lib/job/tensor.h"

#include "client/lib/job/piece.h"
#include "client/lib/job/request.h"
#include "client/lib/job/state_copy.h"
#include "client/lib/session/process.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS_FIRST 64

static uint32_t tensor_hash(const char *name)
{
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (; *name; name++)
        hash = (hash ^ (uint8_t)*name) * 16777619u;
    return hash;
}

struct gp_tensor *tensor_find(struct gp_job *job, const char *name)
{
    uint32_t hash = tensor_hash(name);
    struct gp_tensor *t = job->buckets ? job->by_name[hash % job->buckets] : NULL;
    while (t && (t->name_hash != hash || strcmp(t->name, name) != 0))
        t = t->next_by_name;
    return t;
}

struct gp_tensor *tensor_find_id(struct gp_job *job, uint32_t id)
{
    struct gp_tensor *t = job->buckets ? job->by_id[id % job->buckets] : NULL;
    while (t && t->id != id)
        t = t->next_by_id;
    return t;
}

static void tensor_link_name(struct gp_tensor *t)
{
    struct gp_tensor **bucket = &t->job->by_name[t->name_hash % t->job->buckets];
    t->next_by_name = *bucket;
    *bucket = t;
}

static void tensor_link_id(struct gp_tensor *t)
{
    struct gp_tensor **bucket = &t->job->by_id[t->id % t->job->buckets];
    t->next_by_id = *bucket;
    *bucket = t;
}

/* Doubles the number of buckets when there are as many tensors. If memory lacks, the old buckets
 * remain. */
static int tensor_table_grow(struct gp_job *job)
{
    uint32_t count = job->buckets ? 2 * job->buckets : BUCKETS_FIRST;
    if (job->tensors_count < job->buckets)
        return 0;
    struct gp_tensor **by_name = calloc(count, sizeof *by_name);
    struct gp_tensor **by_id = calloc(count, sizeof *by_id);
    if (!by_name || !by_id) {
        free(by_name);
        free(by_id);
        return job->buckets ? 0 : -ENOMEM;
    }
    tensor_table_fini(job);
    job->by_name = by_name;
    job->by_id = by_id;
    job->buckets = count;
    for_each_tensor (t, job) {
        tensor_link_name(t);
        if (t->is_routed)
            tensor_link_id(t);
    }
    return 0;
}

void tensor_table_fini(struct gp_job *job)
{
    free(job->by_name);
    free(job->by_id);
    job->by_name = job->by_id = NULL;
    job->buckets = 0;
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
    t->name_hash = tensor_hash(spec->name);
    t->dtype = tensor_wire(spec);
    t->values = spec->dtype;
    t->elements = spec->elements;
    t->bytes = spec->elements * reduce_element_bytes(t->dtype);
    t->terms = *terms;
    tensor_count_ranks(t, terms_are_for_all(terms) ? all : terms->ranks);
    t->index = job->declared++;
    list_init(&t->in_request);
    list_append(&job->tensors, &t->node);
    tensor_link_name(t);
    job->tensors_count++;
    *ret_tensor = t;
    return 0;
}

void tensor_take_id(struct gp_tensor *t, uint32_t id)
{
    t->id = id;
    tensor_link_id(t);
    t->is_routed = true;
}

static void tensor_unlink(struct gp_tensor *t)
{
    struct gp_tensor **at = &t->job->by_name[t->name_hash % t->job->buckets];
    while (*at != t)
        at = &(*at)->next_by_name;
    *at = t->next_by_name;
    if (!t->is_routed)
        return;
    at = &t->job->by_id[t->id % t->job->buckets];
    while (*at != t)
        at = &(*at)->next_by_id;
    *at = t->next_by_id;
}

void tensor_remove(struct gp_tensor *t)
{
    struct gp_job *job = t->job;
    tensor_unlink(t);
    hold_forget_tensor(t);
    job->tensors_count--;
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
    return t ? job_check(t->job) : client_error(-EINVAL, "no tensor given");
}

const char *gp_tensor_name(const gp_tensor *tensor) { return tensor ? tensor->name : ""; }
uint64_t gp_tensor_elements(const gp_tensor *tensor) { return tensor ? tensor->elements : 0; }
