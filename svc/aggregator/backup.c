/* A copy of what a lane keeps for a piece with an update rule, in the memory of one of its workers:
 * written with each round, read by the next owner when this one has died. Two halves take turns, so
 * that the copy of the committed round stays whole while the next is written. Never reads a copy
 * while a former owner may write it: whoever tells of it has fenced that one (W5). README: A31. */
#include "svc/aggregator/backup.h"

#include <errno.h>
#include <string.h>

static uint64_t array_bytes(const struct piece *p) { return piece_bytes(p, p->elements); }

static uint64_t copy_bytes(const struct piece *p) { return array_bytes(p) * parameters_arrays(p); }

/* ---- where it is ---- */

static bool is_lent(const struct worker *w, const struct record_backup *told, uint64_t bytes)
{
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
    for (size_t i = 0; i < fabrics && !lane->is_closing; i++)
        fabric_pool_unregister(lane->options.fabrics[i], p->parameters);
}

/* What is written from must be known to the fabrics; once. */
static int make_known(struct piece *p)
{
    const struct lane_options *options = &p->job->lane->options;
    if (p->parameters->backup.is_known)
        return 0;
    for (size_t i = 0; i < options->fabrics_count; i++) {
        int r = fabric_pool_register(options->fabrics[i], p->parameters, parameters_bytes(p));
        if (r < 0) {
            unregister(p, i);
            return r;
        }
    }
    p->parameters->backup.is_known = true;
    return 0;
}

/* Who has a copy keeps it, as long as he is there: offers are for pieces without one. Of two that
 * claim to have one the other was let go. */
static bool is_better(const struct backup *b, const struct record_backup *told)
{
    return told->since != RECORD_ROUND_NONE &&
           (b->since == RECORD_ROUND_NONE || told->since > b->since);
}

int backup_hear(struct worker *w, const struct record_backup *told)
{
    struct piece *p = piece_find(w->job, told->piece);
    if (!p || !p->parameters || p->elements == 0 || !piece_rank(p, w->number))
        return 0; /* what it announces next is refused, too */
    if (!is_lent(w, told, copy_bytes(p)))
        return -EFAULT;
    int r = fabric_maps(w->fabric) ? 0 : make_known(p);
    if (r < 0)
        return r;
    struct backup *b = &p->parameters->backup;
    if (b->worker && b->worker != w && !is_better(b, told))
        return 0;
    if (b->worker != w || told->since != RECORD_ROUND_NONE)
        b->since = told->since; /* else it has not heard yet that it has one */
    b->worker = w;
    b->region = told->region;
    b->piece = p->id;
    b->note = told->note;
    memcpy(b->offset, told->offset, sizeof b->offset);
    memcpy(b->steps, told->steps, sizeof b->steps);
    round_go_on(p);
    return 0;
}

void backup_forget(struct worker *w)
{
    list_for_each (node, &w->job->pieces) {
        struct piece *p = list_entry(node, struct piece, link);
        if (p->parameters && p->parameters->backup.worker == w)
            p->parameters->backup.worker = NULL;
    }
}

void backup_free(struct piece *p)
{
    if (!p->parameters)
        return;
    list_remove(&p->parameters->backup.told.tell_link);
    if (p->parameters->backup.is_known)
        unregister(p, p->job->lane->options.fabrics_count);
}

static uint64_t offset_of(const struct transfer *t, uint64_t round, uint32_t array)
{
    const struct piece *p = t->piece;
    return p->parameters->backup.offset[round & 1] + array * array_bytes(p) +
           piece_bytes(p, t->first);
}

/* ---- writing ---- */

/* Whether the chunk made, or has at hand, anything of the state; then of which arrays. */
static bool has_news(const struct transfer *t, uint32_t *ret_first, uint32_t *ret_end)
{
    const struct piece *p = t->piece;
    if (!p->parameters || p->parameters->fetched || !p->parameters->backup.worker ||
        t->elements == 0)
        return false;
    /* A round that is copied from who holds its result has its whole state here (A44). */
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

/* Which round's it is. */
static uint64_t news_of(const struct piece *p)
{
    return p->parameters->filled ? p->parameters->filled : p->round;
}

int backup_store(const struct transfer *t)
{
    const struct piece *p = t->piece;
    uint32_t array, end;
    if (!has_news(t, &array, &end))
        return 0;
    const struct backup *b = &p->parameters->backup;
    size_t bytes = piece_bytes(p, t->elements);
    for (; fabric_maps(b->worker->fabric) && array < end; array++) {
        void *at = fabric_map(b->worker->conn, b->region, offset_of(t, news_of(p), array), bytes);
        if (!at)
            return -EFAULT;
        memcpy(at, news_at(t, array), bytes);
    }
    return 0;
}

int backup_post(struct transfer *t, uint32_t *ret_posted)
{
    const struct piece *p = t->piece;
    uint32_t first, end;
    *ret_posted = 0;
    if (!has_news(t, &first, &end) || fabric_maps(p->parameters->backup.worker->fabric))
        return 0;
    const struct backup *b = &p->parameters->backup;
    while (first + t->backup_next < end) {
        uint32_t array = first + t->backup_next;
        int r = fabric_write(b->worker->conn, b->region, offset_of(t, news_of(p), array),
                             news_at(t, array), piece_bytes(p, t->elements), t);
        if (r < 0)
            return r;
        t->backup_next++;
        (*ret_posted)++;
    }
    return 0;
}

/* ---- reading ---- */

bool backup_has(const struct piece *p, uint64_t round)
{
    const struct backup *b = &p->parameters->backup;
    return b->worker && b->since != RECORD_ROUND_NONE && b->since <= round;
}

void backup_fetch(struct piece *p, uint64_t round) { p->parameters->fetched = round; }

void backup_fetched(struct piece *p)
{
    struct parameters *q = p->parameters;
    q->are_set = true;
    q->steps = q->backup.steps[q->fetched % 3];
    q->swapped_round = q->fetched;
    q->has_before = false; /* another state is there, if any */
    q->fetched = 0;
}

uint64_t backup_offset(const struct transfer *t)
{
    return offset_of(t, t->piece->parameters->fetched, t->array);
}

/* ---- a copy that begins ---- */

bool backup_lacks(const struct piece *p, uint64_t round)
{
    const struct parameters *q = p->parameters;
    return q && q->are_set && round > 0 && p->elements > 0 && q->backup.worker &&
           (q->backup.since == RECORD_ROUND_NONE || q->backup.since > round);
}

void backup_fill(struct piece *p, uint64_t round) { p->parameters->filled = round; }

void backup_filled(struct piece *p)
{
    struct parameters *q = p->parameters;
    struct backup *b = &q->backup;
    uint64_t round = q->filled;
    q->filled = 0;
    if (!b->worker)
        return; /* it was lost meanwhile */
    b->since = round;
    backup_tell(p, round);
}

void backup_tell(struct piece *p, uint64_t round)
{
    struct backup *b = &p->parameters->backup;
    if (!b->worker || b->since == RECORD_ROUND_NONE)
        return;
    b->told_steps = p->parameters->steps;
    tell_backed(b->worker, &b->told, round);
}

void backup_carry_over(struct piece *p)
{
    struct backup *b = &p->parameters->backup;
    p->parameters->fetched = p->parameters->filled = 0;
    if (b->worker && !piece_rank(p, b->worker->number)) {
        list_remove(&b->told.tell_link);
        b->worker = NULL;
    }
}
