/* Copy of a piece's state in the memory of a worker or another aggregator. Each round writes to the
 * copy. If this lane is lost, the next owner reads the copy. Rounds write to the two halves
 * alternately, so one half contains the committed state while the other half is written. A copy is
 * read only after the coordinator has made sure that no former owner can write to the copy (W5).
 * RULES.md: A31, A49. */
#include "svc/lane/state/replica.h"

#include "svc/lane/job/table.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

static uint64_t array_bytes(const struct piece *p) { return piece_bytes(p, p->elements); }

static uint64_t copy_bytes(const struct piece *p) { return array_bytes(p) * parameters_arrays(p); }

/* ---- location of the copy ---- */

static bool is_lent(const struct worker *w, const struct record_backup *told, uint64_t bytes)
{
    bytes += worker_is_holder(w) ? sizeof(struct record_stamp) : 0;
    uint64_t lent = fabric_region_bytes(w->conn, told->region);
    for (int half = 0; half < 2; half++) {
        if (told->offset[half] > lent || bytes > lent - told->offset[half])
            return false;
    }
    return true;
}

static void unregister(struct piece *p, size_t fabrics)
{
    const struct lane *lane = p->job->lane;
    for (size_t i = 0; i < fabrics; i++)
        fabric_pool_unregister(lane->options.fabrics[i], p->parameters);
}

/* Registers the memory of the state with the fabrics, once. A fabric writes only from registered
 * memory. */
static int make_known(struct piece *p)
{
    const struct lane_options *options = &p->job->lane->options;
    if (p->parameters->replica.is_known)
        return 0;
    for (size_t i = 0; i < options->fabrics_count; i++) {
        int error = fabric_pool_register(options->fabrics[i], p->parameters,
                                         parameters_bytes(p->terms.rule, p->elements));
        if (error < 0) {
            unregister(p, i);
            return error;
        }
    }
    p->parameters->replica.is_known = true;
    return 0;
}

/* Returns whether the offer of another holder replaces the present holder. An offer without a copy
 * does not. Of two copies, the copy with the later `since` is valid, because this copy has replaced
 * the other copy. */
static bool is_better(const struct replica *b, const struct record_backup *told)
{
    return told->since != RECORD_ROUND_NONE &&
           (b->since == RECORD_ROUND_NONE || told->since > b->since);
}

bool replica_may_keep(struct piece *p, const struct worker *w)
{
    uint32_t holder = p->parameters->holder;
    if (worker_is_holder(w) || holder)
        return w->number == (RECORD_HOLDER | holder);
    return piece_rank(p, w->number) != NULL;
}

/* Stores the update counts of both halves, the older half first. The older half may be empty (round
 * 0). If both counts have the same index, the count of the newer half overwrites the other. */
static void take_steps(struct replica *b, const struct record_backup *told)
{
    int newer = told->rounds[1] > told->rounds[0];
    b->steps[told->rounds[1 - newer] % 3] = told->steps[1 - newer];
    b->steps[told->rounds[newer] % 3] = told->steps[newer];
}

/* Stores the location of the copy. A replica holder reports the round of each half, a worker the
 * round since which it has a copy. */
static void take_place(struct replica *b, struct worker *w, const struct record_backup *told)
{
    b->worker = w;
    b->region = told->region;
    b->note = told->note;
    memcpy(b->offset, told->offset, sizeof b->offset);
    memcpy(b->rounds, told->rounds, sizeof b->rounds);
    memcpy(b->ranks, told->ranks, sizeof b->ranks);
    if (worker_is_holder(w))
        take_steps(b, told);
    else
        memcpy(b->steps, told->steps, sizeof b->steps);
}

int replica_accept(struct piece *p, struct worker *w, const struct record_backup *told)
{
    struct replica *b = &p->parameters->replica;
    if (!is_lent(w, told, copy_bytes(p)))
        return -EFAULT;
    int error = fabric_maps(w->fabric) ? 0 : make_known(p);
    if (error < 0 || (b->worker && b->worker != w && !is_better(b, told)))
        return error;
    bool is_wiped = worker_is_holder(w) && !told->rounds[0] && !told->rounds[1];
    if (b->worker != w || told->since != RECORD_ROUND_NONE || is_wiped)
        /* otherwise `since` stays: the holder may have sent this offer before BACKED arrived */
        b->since = told->since;
    b->piece = p->id;
    take_place(b, w, told);
    return 0;
}

/* Stores an offer. The coordinator's message that names the holder may arrive after the holder's
 * offer. The lane stores at most two offers: the offer of the next holder, and the newest other
 * offer. */
void replica_hold_offer(struct parameters *q, struct worker *w, const struct record_backup *told)
{
    int at = q->early[0] == w || (!q->early[0] && q->early[1] != w) ? 0 : 1;
    bool is_full = q->early[0] && q->early[1] && q->early[at] != w;
    if (is_full && q->early[0]->number != (RECORD_HOLDER | q->next_holder))
        at = 0;
    q->early[at] = w;
    q->offers[at] = *told;
}

void replica_drop(struct replica *b)
{
    list_remove(&b->told.tell_link);
    b->worker = NULL;
    b->is_taken = false;
}

void replica_forget(struct worker *w)
{
    list_for_each_entry (struct piece, p, &w->job->pieces, link) {
        if (p->parameters && p->parameters->replica.worker == w)
            replica_drop(&p->parameters->replica);
        for (int i = 0; p->parameters && i < 2; i++) {
            if (p->parameters->early[i] == w)
                p->parameters->early[i] = NULL;
        }
    }
}

/* ---- the replica holder ---- */

bool replica_is_awaited(const struct piece *p)
{
    const struct parameters *q = p->parameters;
    return q && q->holder && p->elements > 0 && !p->failure && !q->replica.worker;
}

void replica_release(const struct piece *p, const struct worker *w)
{
    const struct record_backed released = {
        .kind = RECORD_BACKED, .piece = p->id, .note = p->parameters->replica.note};
    if (w && worker_is_holder(w))
        (void)fabric_send(w->conn, &released, sizeof released, NULL, 0);
}

void replica_take_offer(struct piece *p)
{
    struct parameters *q = p->parameters;
    for (int i = 0; i < 2; i++) {
        struct worker *w = q->early[i];
        if (!w || !replica_may_keep(p, w))
            continue;
        q->early[i] = NULL;
        if (replica_accept(p, w, &q->offers[i]) < 0)
            fabric_disconnect(w->conn);
        return;
    }
}

void replica_free(struct piece *p)
{
    if (!p->parameters)
        return;
    list_remove(&p->parameters->replica.told.tell_link);
    if (p->parameters->replica.is_known)
        unregister(p, p->job->lane->options.fabrics_count);
}

static uint64_t offset_of(const struct transfer *t, uint64_t round, uint32_t array)
{
    const struct piece *p = t->piece;
    return p->parameters->replica.offset[round & 1] + array * array_bytes(p) +
           piece_bytes(p, t->first);
}

/* ---- writing ---- */

/* Returns whether the chunk has new state for the copy. `ret_first`, `ret_end`: range of the arrays
 * with new state. */
static bool has_news(const struct transfer *t, uint32_t *ret_first, uint32_t *ret_end)
{
    const struct piece *p = t->piece;
    if (!p->parameters || p->parameters->fetched || !p->parameters->replica.is_taken ||
        t->elements == 0)
        return false;
    /* After a round that copies its result from a rank, this lane has the complete state (A44). */
    bool is_whole = !p->parameters->filled && (p->operation->updates || p->is_copy);
    *ret_first = t->array;
    *ret_end = is_whole ? parameters_arrays(p) : t->array + 1;
    return true;
}

static const float *news_at(const struct transfer *t, uint32_t array)
{
    const struct piece *p = t->piece;
    const struct parameters *q = p->parameters;
    bool is_committed = q->filled || p->operation->saves;
    return q->state[is_committed ? q->now : 1 - q->now][array] + t->first;
}

/* Returns the round whose state is being written. */
static uint64_t news_of(const struct piece *p)
{
    return p->parameters->filled ? p->parameters->filled : p->round;
}

/* One write to the copy. */
struct news {
    uint64_t offset;
    const void *from;
    size_t bytes;
};

/* Describes the write of a stamp. An empty stamp is written before the first array, and removes the
 * stamp of a former owner that did not commit this round. The valid stamp is written after the last
 * array. */
static void stamp_news(const struct transfer *t, const struct record_stamp *stamp,
                       struct news *ret_news)
{
    const struct piece *p = t->piece;
    const struct replica *b = &p->parameters->replica;
    *ret_news = (struct news){b->offset[news_of(p) & 1] + copy_bytes(p), stamp, sizeof *stamp};
}

/* Computes the FNV-1a hash of the ranks' numbers, in their order. */
static uint64_t hash_ranks(const struct piece *p)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (uint32_t i = 0; i < p->members; i++) {
        for (uint32_t number = p->ranks[i].worker->number, at = 0; at < 4; at++, number >>= 8)
            hash = (hash ^ (number & 0xff)) * UINT64_C(0x100000001b3);
    }
    return hash;
}

static const struct record_stamp *make_stamp(const struct piece *p)
{
    struct parameters *q = p->parameters;
    struct record_stamp *stamp = &q->replica.stamp[news_of(p) & 1];
    *stamp = (struct record_stamp){.round = news_of(p),
                                   .steps = q->filled ? q->steps : parameters_steps_after(p),
                                   .ranks = hash_ranks(p)};
    return stamp;
}

/* Finds write number `n` of a chunk to the copy. Returns false if the chunk has at most `n`
 * writes. */
static bool find_news(const struct transfer *t, uint32_t n, struct news *ret_news)
{
    const struct piece *p = t->piece;
    uint32_t first, end;
    if (!has_news(t, &first, &end))
        return false;
    const struct replica *b = &p->parameters->replica;
    bool has_stamp = worker_is_holder(b->worker);
    uint32_t voids = has_stamp && t->number == 0;
    if (n < voids)
        return stamp_news(t, &b->none, ret_news), true;
    uint32_t array = first + n - voids;
    if (array == end && has_stamp && t->is_last)
        return stamp_news(t, make_stamp(p), ret_news), true;
    if (array >= end)
        return false;
    *ret_news = (struct news){offset_of(t, news_of(p), array), news_at(t, array),
                              piece_bytes(p, t->elements)};
    return true;
}

int replica_store(const struct transfer *t)
{
    const struct piece *p = t->piece;
    struct news news;
    for (uint32_t n = 0; find_news(t, n, &news); n++) {
        const struct replica *b = &p->parameters->replica;
        if (!fabric_maps(b->worker->fabric))
            return 0;
        void *at = fabric_map(b->worker->conn, b->region, news.offset, news.bytes);
        if (!at)
            return -EFAULT;
        /* the fence lets the stamp become visible only after the state that it covers */
        atomic_thread_fence(memory_order_release);
        memcpy(at, news.from, news.bytes);
        if (!fabric_is_sound(b->worker->conn))
            /* the connection is checked before the stamp of this state is stored (A7) */
            return -EFAULT;
    }
    return 0;
}

int replica_post(struct transfer *t, uint32_t *ret_posted)
{
    const struct piece *p = t->piece;
    struct news news;
    *ret_posted = 0;
    while (find_news(t, t->replica_next, &news)) {
        const struct replica *b = &p->parameters->replica;
        if (fabric_maps(b->worker->fabric))
            return 0;
        int error = fabric_write(b->worker->conn, b->region, news.offset, news.from, news.bytes, t);
        if (error < 0)
            return error;
        t->replica_next++;
        (*ret_posted)++;
    }
    return 0;
}

/* ---- reading ---- */

static bool is_there(const struct replica *b, uint64_t round)
{
    bool is_kept = b->since != RECORD_ROUND_NONE && b->since <= round;
    return b->worker && round > 0 && (is_kept || b->rounds[round & 1] == round);
}

void replica_committed(struct piece *p)
{
    struct replica *b = &p->parameters->replica;
    if (b->is_taken && worker_is_holder(b->worker) && b->since == RECORD_ROUND_NONE)
        b->since = p->round;
}

bool replica_is_whole(const struct piece *p)
{
    const struct parameters *q = p->parameters;
    bool is_known = q->are_set && p->round > 1 && !q->filled && !q->fetched;
    return is_known && q->replica.since != RECORD_ROUND_NONE && is_there(&q->replica, p->round - 1);
}

bool replica_is_needless(const struct piece *p)
{
    const struct parameters *q = p->parameters;
    return p->failure || (p->round > 0 && !q->are_set && !q->fetched);
}

bool replica_is_ready(const struct piece *p)
{
    const struct parameters *q = p->parameters;
    if (!q || !q->holder || p->elements == 0 || p->failure)
        return true;
    bool is_sent = p->is_installed && q->are_set;
    return is_sent ? replica_is_whole(p) : q->replica.worker != NULL;
}

bool replica_has(const struct piece *p, uint64_t round)
{
    return is_there(&p->parameters->replica, round);
}

bool replica_begins_with(const struct piece *p, uint64_t round)
{
    const struct replica *b = &p->parameters->replica;
    /* only replica holders report the rounds of the halves */
    bool is_stamped = b->worker && worker_is_holder(b->worker);
    return is_stamped && is_there(b, round) && !is_there(b, round - 1) &&
           b->ranks[round & 1] == hash_ranks(p);
}

void replica_fetch(struct piece *p, uint64_t round) { p->parameters->fetched = round; }

void replica_fetched(struct piece *p)
{
    struct parameters *q = p->parameters;
    q->are_set = true;
    q->steps = q->replica.steps[q->fetched % 3];
    q->replica.since = q->fetched;
    q->swapped_round = q->fetched;
    q->has_before = false; /* the other state in memory does not belong to the previous round */
    q->fetched = 0;
}

uint64_t replica_offset(const struct transfer *t)
{
    return offset_of(t, t->piece->parameters->fetched, t->array);
}

/* ---- a new copy ---- */

bool replica_lacks(struct piece *p, uint64_t round)
{
    struct parameters *q = p->parameters;
    if (!q || !q->are_set || round == 0 || p->elements == 0 || !q->replica.worker)
        return false;
    bool has = is_there(&q->replica, round);
    if (has && q->replica.since == RECORD_ROUND_NONE)
        q->replica.since = round; /* this round and all later rounds are written to the copy */
    return !has;
}

void replica_fill(struct piece *p, uint64_t round) { p->parameters->filled = round; }

void replica_filled(struct piece *p)
{
    struct parameters *q = p->parameters;
    struct replica *b = &q->replica;
    uint64_t round = q->filled;
    q->filled = 0;
    if (!b->worker)
        return; /* the holder was lost in the meantime */
    b->since = round;
    replica_tell(p, round);
}

void replica_tell(struct piece *p, uint64_t round)
{
    struct replica *b = &p->parameters->replica;
    if (!b->worker || b->since == RECORD_ROUND_NONE)
        return;
    b->told_steps = p->parameters->steps;
    tell_backed(b->worker, &b->told, round);
}

void replica_carry_over(struct piece *p)
{
    struct replica *b = &p->parameters->replica;
    p->parameters->fetched = p->parameters->filled = 0;
    b->is_taken = false;
    if (b->worker && !replica_may_keep(p, b->worker))
        replica_drop(b);
}
