/* A migration in progress. Private to this room. */
#ifndef GRADPOOL_COORDINATOR_MIGRATION_INTERNAL_H
#define GRADPOOL_COORDINATOR_MIGRATION_INTERNAL_H

#include "migrator/migrator.h"
#include "svc/coordinator/migration/migration.h"
#include "svc/coordinator/service.h"

/* A piece that moves. The struct has numbers instead of pointers, because the piece or the job may
 * be freed during the move. */
struct traveller {
    uint32_t piece, source, target; /* source and target are numbers of lanes */
    enum share_how how;
    uint64_t round, state_bytes; /* values from the ReleaseReply of the source */
    uint32_t holder;             /* replica holder after the switch (K57); 0: none */
    bool is_copied; /* the replica holder is new and copies the state before the switch */
};

struct migration;
/* Next step of a migration, called when all lanes have answered. */
typedef void (*migration_fn)(struct migration *m);

struct migration {
    struct list link; /* node in works.migrations */
    struct service *service;
    uint64_t id;
    uint32_t job, epoch;
    enum migrator_state state;
    struct traveller *travellers; /* sorted by piece */
    size_t count;
    /* indexes of travellers: by_source is sorted by source lane, by_target by target lane */
    uint32_t *by_source, *by_target;
    /* number of the current group of calls; answers to an earlier group are dropped */
    uint32_t turn;
    uint32_t pending;  /* number of unanswered calls of the current group */
    migration_fn then; /* function of the next step */
    /* function of migration.c that handles an event of the state machine */
    void (*feed)(struct migration *m, enum migrator_event event);
    bool asks_release;     /* a request to release the pieces was sent */
    struct state_way *way; /* transfer of the state (state.c); NULL: none */
    uint64_t rested_ns;    /* time at which the first pieces were released */
    struct moved moved;
    char text[ERR_TEXT_BYTES];
    moving_done_fn done;
    uint64_t context;
    struct timer over; /* fires at once, so that the event loop calls done() */
};

/* --- migration.c --- */

/* Starts the state machine, and reserves the next epoch of the job for the new routes. */
void migration_begin(struct migration *m, struct job *job);

/* --- ask.c --- */

static inline bool migration_is_over(const struct migration *m)
{
    return m->state == MIGRATOR_C_DONE || m->state == MIGRATOR_C_ABORTED;
}
/* Finds a migration. Returns NULL if none has this number, or if it has ended. */
struct migration *migration_find(struct service *s, uint64_t id);
struct job *migration_job(const struct migration *m);
/* Reports a failure to the state machine: a refusal by a lane, a missing answer (-ETIMEDOUT), or a
 * lost lane. The migration is aborted unless its new routes are stored. */
void migration_refused(struct migration *m, int code, const char *text);

/* Context of a call: the migration, the number of the group of calls, and the pieces of the
 * message. */
struct migration_asked {
    uint64_t migration;
    uint32_t turn;
    size_t count;
    uint32_t at[]; /* indexes in `travellers` */
};
static inline size_t migration_asked_bytes(const struct migration_asked *asked)
{
    return sizeof *asked + asked->count * sizeof asked->at[0];
}
/* Sends one message about the pieces of one lane. Returns 0, a negative errno, or a positive number
 * if these pieces need no message. */
typedef int (*ask_fn)(struct migration *m, struct lane *lane, struct migration_asked *asked);
/* Sends messages about all pieces before the switch, to sources (`order`: by_source) or targets
 * (by_target). Calls `then` when all messages are answered. */
void migration_ask(struct migration *m, const uint32_t *order, ask_fn ask, migration_fn then);
/* Handles the answer to a message of migration_ask(). An error aborts the migration. */
void migration_answered(struct service *s, void *data, const envelope *reply, int code,
                        const char *text);
/* Lists the numbers of the pieces. The caller frees the list. Returns 0 or -ENOMEM. */
int migration_list(const struct migration *m, const struct migration_asked *asked,
                   uint32_t **ret_pieces);

/* Returns the lane of piece order[i]: its source or target, depending on `order`. */
uint32_t migration_lane_of(const struct migration *m, const uint32_t *order, size_t i);
/* Sends messages about all pieces to sources or to targets. The messages form a new group of calls.
 * Returns 0, -ENOMEM or -ECONNRESET. */
int migration_ask_all(struct migration *m, const uint32_t *order, ask_fn ask);
/* Returns the migration that waits for this answer, or NULL. */
struct migration *migration_awaiting(struct service *s, const struct migration_asked *asked);

/* --- calls.c --- */

/* Each of these functions sends messages to all sources or to all targets. After the last answer,
 * `then` is called. */
void migration_prepare(struct migration *m, migration_fn then);
void migration_release(struct migration *m, migration_fn then);
void migration_install(struct migration *m, migration_fn then);
/* Orders the sources to drop the moved pieces. A source that has no other pieces of the job drops
 * the whole job. */
void migration_let_go(struct migration *m);
/* Orders the targets to drop the pieces. With `only_gone` they drop only pieces that were
 * undeclared during the move. `job` is NULL if the job has ended. */
void migration_drop_targets(struct migration *m, struct job *job, bool only_gone);
void migration_thaw_sources(struct migration *m, struct job *job);

/* --- copies.c --- */

/* Starts the copies of new replica holders, after the targets have allocated memory. */
void migration_begin_copies(struct migration *m, migration_fn then);
/* Waits until the targets are connected to the new holders; a second call waits until the holders
 * have the whole copies. Then calls `then`. */
void migration_await_copies(struct migration *m, migration_fn then);
/* Orders replica holders to drop the copies of undeclared pieces, or of all pieces if `are_all`. */
void migration_end_copies(struct migration *m, const struct job *job, bool are_all);

/* --- state.c --- */

/* Transfers the state of all pieces from source to target (K38), then calls `then`. */
void migration_send_state(struct migration *m, migration_fn then);

void migration_forget_state(struct migration *m);

#endif
