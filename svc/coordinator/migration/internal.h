/* One migration under way: what the files of this room have in common. Nobody else includes this.
 * */
#ifndef GRADPOOL_COORDINATOR_MIGRATION_INTERNAL_H
#define GRADPOOL_COORDINATOR_MIGRATION_INTERNAL_H

#include "migrator/migrator.h"
#include "svc/coordinator/migration/migration.h"
#include "svc/coordinator/service.h"

/* By number: the piece itself may be gone at any time (undeclared, or the whole job). */
struct traveller {
    uint32_t piece, source, target; /* source, target: lanes */
    enum share_how how;
    uint64_t round, state_bytes; /* as the source released it */
    uint32_t keeper;             /* of its copy, once it is there (K57) */
    bool is_copied;              /* another than now: it has the copy before the switch */
};

struct migration;
/* The step that follows, once all lanes have answered. */
typedef void (*migration_fn)(struct migration *m);

struct migration {
    struct list link; /* in works.migrations */
    struct service *service;
    uint64_t id;
    uint32_t job, epoch;
    enum migrator_state state;
    struct traveller *travellers; /* pieces ascend */
    size_t count;
    uint32_t *by_source, *by_target; /* indexes of travellers */
    uint32_t turn;                   /* of asking; answers of former ones are passed over */
    uint32_t pending;                /* answers of this turn */
    migration_fn then;               /* what follows when all have come */
    void (*feed)(struct migration *m, enum migrator_event event); /* the protocol goes on */
    bool asks_release;                                            /* sources know of it */
    struct state_way *way; /* NULL: no state travels (state.c) */
    uint64_t rested_ns;    /* since when the first source's tasks rest */
    struct moved moved;
    char text[ERR_TEXT_BYTES];
    moving_done_fn done;
    uint64_t context;
    struct timer over; /* done() comes from the loop */
};

/* --- migration.c --- */

/* From IDLE on; the job's next epoch is its from now on. */
void migration_begin(struct migration *m, struct job *job);

/* --- ask.c --- */

static inline bool migration_is_over(const struct migration *m)
{
    return m->state == MIGRATOR_C_DONE || m->state == MIGRATOR_C_ABORTED;
}
/* NULL: it is over, or there is none. */
struct migration *migration_find(struct service *s, uint64_t id);
struct job *migration_job(const struct migration *m);
/* A side said no, or nothing: -ETIMEDOUT, -ECONNRESET, ... */
void migration_refused(struct migration *m, int code, const char *text);

/* Pieces of one message, and who waits for the answer. */
struct migration_asked {
    uint64_t migration;
    uint32_t turn;
    size_t count;
    uint32_t at[]; /* indexes of travellers */
};
static inline size_t migration_asked_bytes(const struct migration_asked *asked)
{
    return sizeof *asked + asked->count * sizeof asked->at[0];
}
/* Asks one lane, or somebody about it. Positive: there is nothing to be asked. */
typedef int (*ask_fn)(struct migration *m, struct lane *lane, struct migration_asked *asked);
/* Asks about all of one side (`order`: by_source or by_target), before the switch; then `then`. */
void migration_ask(struct migration *m, const uint32_t *order, ask_fn ask, migration_fn then);
/* The answer to that, if it is a Done. */
void migration_answered(struct service *s, void *data, const envelope *reply, int code,
                        const char *text);
/* Their numbers, to be freed. */
int migration_list(const struct migration *m, const struct migration_asked *asked,
                   uint32_t **ret_pieces);

/* The lane of that side of order[i]. */
uint32_t migration_lane_of(const struct migration *m, const uint32_t *order, size_t i);
/* Asks about all of one side; what follows is for the answers to say. -ENOMEM, -ECONNRESET. */
int migration_ask_all(struct migration *m, const uint32_t *order, ask_fn ask);
/* NULL: nobody waits for that answer any more. */
struct migration *migration_awaiting(struct service *s, const struct migration_asked *asked);

/* --- calls.c --- */

/* Each asks all lanes of its side, then `then`. */
void migration_prepare(struct migration *m, migration_fn then);
void migration_release(struct migration *m, migration_fn then);
void migration_install(struct migration *m, migration_fn then);
/* Sources drop what has moved, all of the job where nothing else of it is. */
void migration_let_go(struct migration *m);
/* Targets forget what did not come, or (`only_gone`) what has been undeclared meanwhile; of no
 * use to sources. `job` NULL: it has ended. */
void migration_drop_targets(struct migration *m, struct job *job, bool only_gone);
void migration_thaw_sources(struct migration *m, struct job *job);

/* --- copies.c --- */

/* Targets have made room: who is to keep copies there, and does not now, begins. */
void migration_begin_copies(struct migration *m, migration_fn then);
/* Targets answer when those are at hand, and again when they have what targets alone would have
 * else. */
void migration_await_copies(struct migration *m, migration_fn then);
/* They need not any more; of what has been undeclared meanwhile, or (`are_all`) of anything. */
void migration_end_copies(struct migration *m, const struct job *job, bool are_all);

/* --- state.c --- */

/* Carries the state of one piece after the other from source to target (K38), then `then`. */
void migration_send_state(struct migration *m, migration_fn then);

void migration_forget_state(struct migration *m);

#endif
