/* Replicas of moving pieces whose replica holder changes with the move (K57). The new holder begins
 * to copy before the source releases the pieces, and has the whole copy before the routes are
 * stored. At any time, two processes therefore have the state. replica/replica.c chooses the
 * holder. */
#include "svc/base/cleanup.h"
#include "svc/coordinator/aggregator/call.h"
#include "svc/coordinator/aggregator/lane.h"
#include "svc/coordinator/migration/internal.h"
#include "svc/coordinator/replica/replica.h"

#include <errno.h>
#include <stdlib.h>

/* Removes from the message all pieces whose holder stays the same. Returns the number of remaining
 * pieces. */
static size_t keep_copied(const struct migration *m, struct migration_asked *asked)
{
    size_t count = 0;
    for (size_t i = 0; i < asked->count; i++)
        if (m->travellers[asked->at[i]].is_copied)
            asked->at[count++] = asked->at[i];
    return asked->count = count;
}

/* --- new holders begin --- */

/* Marks the replica holder as unfit, so that the next attempt chooses another aggregator. */
static void relieve(struct service *s, const struct migration_asked *asked, const char *why)
{
    struct migration *m = migration_find(s, asked->migration);
    const struct traveller *t = m ? &m->travellers[asked->at[0]] : NULL;
    struct aggregator *holder = t ? aggregator_find(s, t->holder) : NULL;
    if (holder)
        keeping_relieve(holder, migration_job(m), t->target, why);
}

static void answered(struct service *s, void *data, const envelope *reply, int code,
                     const char *text)
{
    bool is_refused = !reply && !call_went_unanswered(code);
    if (is_refused)
        relieve(s, data, text);
    migration_answered(s, data, reply, is_refused ? -EAGAIN : code, text);
}

static int ask_to_keep(struct migration *m, struct lane *lane, struct migration_asked *asked)
{
    struct job *job = migration_job(m);
    size_t count = keep_copied(m, asked);
    _cleanup_free_ WIRE(CopySpec) *specs = calloc(count + 1, sizeof *specs);
    if (!specs)
        return -ENOMEM;
    if (count == 0)
        return 1;
    for (size_t i = 0; i < count; i++) {
        struct tensor *tensor;
        struct piece *piece = jobs_piece(job, m->travellers[asked->at[i]].piece, &tensor);
        specs[i] = keeping_spec(tensor, piece, m->epoch, true);
    }
    struct aggregator *holder = aggregator_find(m->service, m->travellers[asked->at[0]].holder);
    if (!holder)
        return -ECONNRESET;
    return keeping_send(holder, job, lane->id, specs, count, answered, asked,
                        migration_asked_bytes(asked));
}

/* --- targets wait for holders --- */

static void waited(struct service *s, void *data, const envelope *reply, int code, const char *text)
{
    if (!reply && code == -ETIMEDOUT)
        relieve(s, data, "the new replica holder made no copy in time");
    migration_answered(s, data, reply, code, text);
}

static int ask_to_wait(struct migration *m, struct lane *lane, struct migration_asked *asked)
{
    _cleanup_free_ uint32_t *pieces = NULL;
    if (keep_copied(m, asked) == 0)
        return 1;
    int error = migration_list(m, asked, &pieces);
    if (error < 0)
        return error;
    return lane_call(lane, waited, asked, migration_asked_bytes(asked), COPIES_WAIT, copies_wait,
                     .job_id = m->job, .pieces = pieces, .n_pieces = asked->count);
}

void migration_begin_copies(struct migration *m, migration_fn then)
{
    migration_ask(m, m->by_target, ask_to_keep, then);
}

void migration_await_copies(struct migration *m, migration_fn then)
{
    migration_ask(m, m->by_target, ask_to_wait, then);
}

/* --- end of copies --- */

void migration_end_copies(struct migration *m, const struct job *job, bool are_all)
{
    for (size_t i = 0; job && i < m->count; i++) {
        const struct traveller *t = &m->travellers[i];
        if (t->is_copied && (are_all || !jobs_piece(job, t->piece, NULL)))
            keeping_end_piece(job, t->holder, t->piece);
    }
}
