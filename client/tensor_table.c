/* Owns a job's tensors, their pieces and the words by which lanes name a piece's open round.
 * Decides nothing; checks what the coordinator says a route is. */
#include "client/job.h"
#include "client/state_copy.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS_FIRST 64
#define SLOTS_MAX (1u << 24) /* 24 bits of a word */
#define GENERATION_BITS 8
#define BUCKETS_FIRST 64

/* ---- words ---- */

static int grow_slots(struct gp_job *job)
{
    uint32_t count = job->slots_count ? job->slots_count * 2 : SLOTS_FIRST;
    if (count > SLOTS_MAX)
        return -ENOSPC;
    struct slot *slots = realloc(job->slots, count * sizeof *slots);
    if (!slots)
        return -ENOMEM;
    for (uint32_t i = job->slots_count; i < count; i++) {
        slots[i] = (struct slot){.next_free = job->free_slot};
        job->free_slot = i;
    }
    job->slots = slots;
    job->slots_count = count;
    return 0;
}

void piece_new_word(struct piece *p)
{
    struct slot *slot = &p->tensor->job->slots[p->slot];
    do {
        slot->generation++;
        p->word = p->slot << GENERATION_BITS | slot->generation;
    } while (p->word == RECORD_WORD_NONE); /* which means something else */
}

static int take_slot(struct gp_job *job, struct piece *p)
{
    int r = job->free_slot == UINT32_MAX ? grow_slots(job) : 0;
    if (r < 0)
        return r;
    p->slot = job->free_slot;
    job->free_slot = job->slots[p->slot].next_free;
    job->slots[p->slot].piece = p;
    piece_new_word(p); /* also an idle piece is named by its own: RECORD_WORD_NONE is the job */
    return 0;
}

static void give_slot_back(struct gp_job *job, struct piece *p)
{
    struct slot *slot = &job->slots[p->slot];
    slot->piece = NULL;
    slot->generation++; /* a word that is still on its way finds nobody */
    slot->next_free = job->free_slot;
    job->free_slot = p->slot;
}

static struct piece *find_in_slot(const struct gp_job *job, uint32_t word)
{
    uint32_t number = word >> GENERATION_BITS;
    return number < job->slots_count ? job->slots[number].piece : NULL;
}

struct piece *slot_piece(struct gp_job *job, uint32_t word)
{
    struct piece *p = find_in_slot(job, word);
    return p && p->word == word ? p : NULL;
}

struct piece *slot_piece_kept(struct gp_job *job, uint32_t word)
{
    struct piece *p = find_in_slot(job, word);
    return p && p->tensor->has_kept && p->kept_word == word ? p : NULL;
}

/* ---- tensors ---- */

static uint32_t hash_name(const char *name)
{
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (; *name; name++)
        hash = (hash ^ (uint8_t)*name) * 16777619u;
    return hash;
}

struct gp_tensor *tensor_find(struct gp_job *job, const char *name)
{
    uint32_t hash = hash_name(name);
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

static void hash_by_name(struct gp_tensor *t)
{
    struct gp_tensor **bucket = &t->job->by_name[t->name_hash % t->job->buckets];
    t->next_by_name = *bucket;
    *bucket = t;
}

static void hash_by_id(struct gp_tensor *t)
{
    struct gp_tensor **bucket = &t->job->by_id[t->id % t->job->buckets];
    t->next_by_id = *bucket;
    *bucket = t;
}

/* Doubled when there are as many tensors as buckets. Without memory for more the old ones do. */
static int make_buckets(struct gp_job *job)
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
    list_for_each (node, &job->tensors) {
        struct gp_tensor *t = list_entry(node, struct gp_tensor, node);
        hash_by_name(t);
        if (t->is_routed)
            hash_by_id(t);
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

int tensor_add(struct gp_job *job, const gp_tensor_spec *spec, const struct terms *terms,
               struct gp_tensor **ret_tensor)
{
    struct gp_tensor *t = calloc(1, sizeof *t);
    if (!t || make_buckets(job) < 0 || !(t->name = strdup(spec->name))) {
        free(t);
        return -ENOMEM;
    }
    t->job = job;
    t->name_hash = hash_name(spec->name);
    t->dtype = tensor_wire(spec);
    t->values = spec->dtype;
    t->elements = spec->elements;
    t->bytes = spec->elements * reduce_element_bytes(t->dtype);
    t->terms = *terms;
    t->members = terms_count(terms, job->workers);
    while (t->first_rank < job->workers && !terms_have_rank(terms, t->first_rank))
        t->first_rank++;
    while (t->peer < job->workers && (t->peer == job->rank || !terms_have_rank(terms, t->peer)))
        t->peer++;
    t->index = job->declared++;
    list_init(&t->in_request);
    list_append(&job->tensors, &t->node);
    hash_by_name(t);
    job->tensors_count++;
    *ret_tensor = t;
    return 0;
}

/* Pieces lie end to end and cover the tensor. */
static bool route_is_sound(const struct gp_tensor *t, const Gradpool__Wire__TensorRoute *route)
{
    uint64_t next = 0;
    for (size_t i = 0; i < route->n_pieces; i++) {
        const Gradpool__Wire__Piece *piece = route->pieces[i];
        if (piece->first != next || piece->elements > t->elements - next)
            return false;
        next += piece->elements;
    }
    return route->n_pieces > 0 && route->n_pieces <= SLOTS_MAX && next == t->elements;
}

static int add_piece(struct gp_tensor *t, const Gradpool__Wire__Piece *said)
{
    struct piece *p = &t->pieces[t->pieces_count];
    *p = (struct piece){.tensor = t,
                        .first = said->first,
                        .elements = said->elements,
                        .id = said->id,
                        .epoch = said->epoch};
    list_init(&p->unsent);
    p->link = link_get(t->job, said->lane);
    int r = p->link ? take_slot(t->job, p) : -ENOMEM;
    if (r == 0)
        t->pieces_count++;
    return r;
}

int tensor_route(struct gp_tensor *t, const Gradpool__Wire__TensorRoute *route)
{
    if (!route_is_sound(t, route))
        return -EPROTO;
    t->pieces = calloc(route->n_pieces, sizeof *t->pieces);
    if (!t->pieces)
        return -ENOMEM;
    for (size_t i = 0; i < route->n_pieces; i++) {
        int r = add_piece(t, route->pieces[i]);
        if (r < 0)
            return r;
    }
    t->id = route->tensor;
    hash_by_id(t);
    t->is_routed = true;
    tensor_take_ranks(t, route);
    for (uint32_t i = 0; i < t->pieces_count; i++)
        copy_choose(&t->pieces[i]);
    hold_note_tensor(t);
    int r = t->job->is_elastic ? copy_prepare(t) : 0;
    for (uint32_t i = 0; r == 0 && t->job->join_is_late && i < t->pieces_count; i++)
        piece_await_entry(&t->pieces[i]);
    return r;
}

static void unhash(struct gp_tensor *t)
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
    unhash(t);
    hold_forget_tensor(t);
    job->tensors_count--;
    for (uint32_t i = 0; i < t->pieces_count; i++) {
        link_retract(&t->pieces[i]);
        copy_free(&t->pieces[i]);
        give_slot_back(job, &t->pieces[i]);
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

static void fail(struct gp_tensor *t, int code, const char *text)
{
    if (!t->failure.code)
        err_set(&t->failure, code < 0 ? code : -EPROTO, "%s", *text ? text : err_text(code));
    if (t->request)
        request_fail(t->request, t->failure.code, t->failure.text);
}

/* Nobody chooses for them any more (W13). */
static void fail_followers(struct gp_tensor *leader)
{
    list_for_each (node, &leader->job->tensors) {
        struct gp_tensor *t = list_entry(node, struct gp_tensor, node);
        if (t->terms.quorum == QUORUM_CHOSEN)
            fail(t, leader->failure.code, leader->failure.text);
    }
}

void tensor_break(struct gp_tensor *t, int code, const char *text)
{
    fail(t, code, text);
    if (t->terms.flags & TERMS_LEADS)
        fail_followers(t);
    hold_check(t->job);
}

const char *gp_tensor_name(const gp_tensor *tensor) { return tensor ? tensor->name : ""; }
uint64_t gp_tensor_elements(const gp_tensor *tensor) { return tensor ? tensor->elements : 0; }
