/* Pieces: made when the coordinator places them, found by number for every announcement.
 * Owns the job's hash table. README: A2. */
#include "svc/aggregator/lane_types.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Numbers are handed out one after the other: low bits spread them well. */
static struct piece **bucket(struct lane_job *job, uint32_t id)
{
    return &job->table[id & (job->table_size - 1)];
}

struct piece *piece_find(struct lane_job *job, uint32_t id)
{
    struct piece *p = *bucket(job, id);
    while (p && p->id != id)
        p = p->hash_next;
    return p;
}

static void table_grow(struct lane_job *job)
{
    struct arena *arena = job->lane->options.arena;
    size_t size = job->table_size * 4;
    struct piece **table = arena_alloc(arena, &job->account, size * sizeof *table);
    if (!table)
        return; /* longer chains, still right */
    arena_free(arena, &job->account, job->table);
    job->table = table;
    job->table_size = size;
    list_for_each (node, &job->pieces) {
        struct piece *p = list_entry(node, struct piece, link);
        struct piece **at = bucket(job, p->id);
        p->hash_next = *at;
        *at = p;
    }
}

static void ranks_init(struct piece *p)
{
    for (uint32_t i = 0; i < p->job->workers_count; i++) {
        p->ranks[i].piece = p;
        p->ranks[i].number = i;
        list_init(&p->ranks[i].said[0].tell_link);
        list_init(&p->ranks[i].said[1].tell_link);
    }
}

static bool piece_is_same(const struct piece *p, const struct lane_piece *spec)
{
    return p->dtype == spec->dtype && p->elements == spec->elements;
}

int piece_place(struct lane_job *job, const struct lane_piece *spec, uint32_t epoch,
                bool recovering)
{
    struct piece *p = piece_find(job, spec->id);
    if (p && (p->is_dropped || p->epoch != epoch))
        return -EBUSY;
    if (p)
        return piece_is_same(p, spec) ? 0 : -EINVAL;
    p = arena_alloc(job->lane->options.arena, &job->account,
                    sizeof *p + job->workers_count * sizeof *p->ranks);
    if (!p)
        return -ENOMEM;
    p->job = job;
    p->id = spec->id;
    p->task = spec->task;
    p->epoch = epoch;
    p->dtype = spec->dtype;
    p->elements = spec->elements;
    p->round = recovering ? 0 : 1;
    snprintf(p->tensor, sizeof p->tensor, "%s", spec->tensor);
    list_init(&p->run_link);
    ranks_init(p);
    if (++job->pieces_count > job->table_size)
        table_grow(job);
    list_append(&job->pieces, &p->link);
    struct piece **at = bucket(job, p->id);
    p->hash_next = *at;
    *at = p;
    return 0;
}

static void forget_announcement(struct lane_job *job, uint32_t rank, struct announcement *a)
{
    struct worker *w = &job->workers[rank];
    if (w->holding == a)
        worker_drop_payload(w);
    list_remove(&a->tell_link);
}

void piece_free(struct piece *p)
{
    struct lane_job *job = p->job;
    for (uint32_t i = 0; i < job->workers_count; i++) {
        forget_announcement(job, i, &p->ranks[i].said[0]);
        forget_announcement(job, i, &p->ranks[i].said[1]);
    }
    struct piece **at = bucket(job, p->id);
    while (*at != p)
        at = &(*at)->hash_next;
    *at = p->hash_next;
    job->pieces_count--;
    list_remove(&p->link);
    list_remove(&p->run_link);
    arena_free(job->lane->options.arena, &job->account, p);
}

/* All that is announced and not committed, laps too. */
static void tell_failure(struct piece *p)
{
    for (uint32_t i = 0; i < p->job->workers_count; i++) {
        for (int k = 0; k < 2; k++) {
            struct announcement *a = &p->ranks[i].said[k];
            if (a->round && a->round >= p->round && a->standing != RECORD_IDLE)
                tell_error(&p->job->workers[i], a);
        }
    }
}

void piece_fail(struct piece *p, int code, const char *format, ...)
{
    if (p->failure)
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(p->failure_text, sizeof p->failure_text, format, arguments);
    va_end(arguments);
    p->failure = code;
    list_remove(&p->run_link);
    tell_failure(p);
}
