/* Messages of a migration to lanes. A message has pieces of one lane only. An answer that belongs
 * to an earlier step is dropped. Owns struct migration_asked. migration.c decides about the
 * steps. */
#include "svc/base/cleanup.h"
#include "svc/coordinator/aggregator/lane.h"
#include "svc/coordinator/migration/internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct migration *migration_find(struct service *s, uint64_t id)
{
    list_for_each_entry (struct migration, m, &s->works->migrations, link)
        if (m->id == id && !migration_is_over(m))
            return m;
    return NULL;
}

struct job *migration_job(const struct migration *m) { return jobs_find_id(m->service, m->job); }

void migration_refused(struct migration *m, int code, const char *text)
{
    m->moved.code = code;
    snprintf(m->text, sizeof m->text, "%s", text);
    m->feed(m, code == -ETIMEDOUT ? MIGRATOR_E_TIMEOUT : MIGRATOR_E_REFUSED);
}

uint32_t migration_lane_of(const struct migration *m, const uint32_t *order, size_t i)
{
    const struct traveller *t = &m->travellers[order[i]];
    return order == m->by_source ? t->source : t->target;
}

/* Returns whether one message may contain both pieces: they need the same lane, and the same
 * replica holder if the message is for a target. */
static bool is_together(const struct migration *m, const uint32_t *order, size_t i, size_t k)
{
    bool is_kept_alike = m->travellers[order[i]].holder == m->travellers[order[k]].holder;
    return migration_lane_of(m, order, i) == migration_lane_of(m, order, k) &&
           (order == m->by_source || is_kept_alike);
}

/* Builds the next message, with pieces from `*cursor` on. Returns NULL if memory is missing. */
static struct migration_asked *next_message(const struct migration *m, const struct job *job,
                                            const uint32_t *order, size_t *cursor)
{
    size_t room = m->count < MESSAGE_PIECES_MAX ? m->count : MESSAGE_PIECES_MAX, first = *cursor;
    struct migration_asked *asked = malloc(sizeof *asked + room * sizeof asked->at[0]);
    if (!asked)
        return NULL;
    *asked = (struct migration_asked){.migration = m->id, .turn = m->turn};
    for (; *cursor < m->count && asked->count < room && is_together(m, order, first, *cursor);
         ++*cursor)
        if (jobs_piece(job, m->travellers[order[*cursor]].piece, NULL))
            asked->at[asked->count++] = order[*cursor];
    return asked;
}

static int ask_next(struct migration *m, const uint32_t *order, size_t *cursor, ask_fn ask)
{
    struct lane *lane = lane_find(m->service, migration_lane_of(m, order, *cursor));
    _cleanup_free_ struct migration_asked *asked = next_message(m, migration_job(m), order, cursor);
    if (!asked)
        return -ENOMEM;
    int error = lane && asked->count > 0 ? ask(m, lane, asked) : 1;
    m->pending += error == 0;
    return error;
}

int migration_ask_all(struct migration *m, const uint32_t *order, ask_fn ask)
{
    m->turn++;
    m->pending = 0;
    int error = 0;
    for (size_t cursor = 0; error >= 0 && cursor < m->count;)
        error = ask_next(m, order, &cursor, ask);
    return error < 0 ? error : 0;
}

/* If all pieces were undeclared, no message is sent, and `then` is called before this function
 * returns. */
void migration_ask(struct migration *m, const uint32_t *order, ask_fn ask,
                   void (*then)(struct migration *m))
{
    m->then = then;
    int error = migration_ask_all(m, order, ask);
    if (error < 0)
        migration_refused(
            m, error,
            error == -ENOMEM
                ? "gradpool serve has no memory for a request to a lane; raise its memory limit"
                : "an aggregator has ended");
    else if (m->pending == 0)
        then(m);
}

struct migration *migration_awaiting(struct service *s, const struct migration_asked *asked)
{
    struct migration *m = migration_find(s, asked->migration);
    return m && m->turn == asked->turn ? m : NULL;
}

void migration_answered(struct service *s, void *data, const envelope *reply, int code,
                        const char *text)
{
    struct migration *m = migration_awaiting(s, data);
    if (!m)
        return;
    if (!reply)
        return migration_refused(m, code, text);
    if (--m->pending == 0)
        m->then(m);
}

int migration_list(const struct migration *m, const struct migration_asked *asked,
                   uint32_t **ret_pieces)
{
    uint32_t *pieces = calloc(asked->count, sizeof *pieces);
    if (!pieces)
        return -ENOMEM;
    for (size_t i = 0; i < asked->count; i++)
        pieces[i] = m->travellers[asked->at[i]].piece;
    *ret_pieces = pieces;
    return 0;
}
