/* One migration under way, shared by the files of this room only. */
#ifndef GRADPOOL_COORDINATOR_MIGRATION_INTERNAL_H
#define GRADPOOL_COORDINATOR_MIGRATION_INTERNAL_H

#include "migrator/migrator.h"
#include "svc/coordinator/migration/migration.h"
#include "svc/coordinator/service.h"

/* A piece that moves, by number: the piece or the job may be gone at any time. */
struct traveller {
    uint32_t piece, source, target; /* source, target: lane numbers */
    enum share_how how;
    uint64_t round, state_bytes; /* from the source's ReleaseReply */
    uint32_t keeper;             /* replica holder after the switch (K57); 0: none */
    bool is_copied;              /* a new holder, which copies before the switch */
};

struct migration;
/* Next step, called when all lanes have answered. */
typedef void (*migration_fn)(struct migration *m);

struct migration {
    struct list link; /* node of works.migrations */
    struct service *service;
    uint64_t id;
    uint32_t job, epoch;
    enum migrator_state state;
    struct traveller *travellers; /* ascending by piece */
    size_t count;
    uint32_t *by_source, *by_target; /* indexes of travellers, sorted */
    uint32_t turn;                   /* group of calls; answers to older groups are dropped */
    uint32_t pending;                /* unanswered calls of this turn */
    migration_fn then;               /* next step */
    void (*feed)(struct migration *m, enum migrator_event event); /* feeds the state machine */
    bool asks_release;                                            /* a release has been sent */
    struct state_way *way; /* transfer of state (state.c); NULL: none */
    uint64_t rested_ns;    /* when the first source had released */
    struct moved moved;
    char text[ERR_TEXT_BYTES];
    moving_done_fn done;
    uint64_t context;
    struct timer over; /* calls done() from the loop */
};

/* --- migration.c --- */

/* Starts the state machine; the migration takes the job's next epoch. */
void migration_begin(struct migration *m, struct job *job);

/* --- ask.c --- */

static inline bool migration_is_over(const struct migration *m)
{
    return m->state == MIGRATOR_C_DONE || m->state == MIGRATOR_C_ABORTED;
}
/* NULL: there is none of this number, or it is over. */
struct migration *migration_find(struct service *s, uint64_t id);
struct job *migration_job(const struct migration *m);
/* Passes a failure to the state machine, which aborts the migration before its switch: a lane
 * refused, did not answer (-ETIMEDOUT), or has gone. */
void migration_refused(struct migration *m, int code, const char *text);

/* Context of a call: the pieces of one message, and the migration and turn that wait for the
 * answer. */
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
/* Sends one message about the pieces of one lane. Positive: there is nothing to send. */
typedef int (*ask_fn)(struct migration *m, struct lane *lane, struct migration_asked *asked);
/* Sends messages about all pieces of one side (`order`: by_source or by_target), before the switch;
 * calls `then` when all are answered. */
void migration_ask(struct migration *m, const uint32_t *order, ask_fn ask, migration_fn then);
/* Handles the answer of such a message: a Done counts, a failure aborts. */
void migration_answered(struct service *s, void *data, const envelope *reply, int code,
                        const char *text);
/* Numbers of the pieces; the caller frees them. -ENOMEM. */
int migration_list(const struct migration *m, const struct migration_asked *asked,
                   uint32_t **ret_pieces);

/* Lane of piece order[i] on the side of `order`. */
uint32_t migration_lane_of(const struct migration *m, const uint32_t *order, size_t i);
/* Sends messages about all pieces of one side, in a new turn. -ENOMEM, -ECONNRESET. */
int migration_ask_all(struct migration *m, const uint32_t *order, ask_fn ask);
/* The migration that waits for this answer; NULL: there is none any more. */
struct migration *migration_awaiting(struct service *s, const struct migration_asked *asked);

/* --- calls.c --- */

/* Each sends to all lanes of its side, then calls `then`. */
void migration_prepare(struct migration *m, migration_fn then);
void migration_release(struct migration *m, migration_fn then);
void migration_install(struct migration *m, migration_fn then);
/* Sources drop the moved pieces, or the whole job if they have no other piece of it. */
void migration_let_go(struct migration *m);
/* Targets drop the pieces; if `only_gone`, those that were undeclared meanwhile. `job` NULL: the
 * job has ended. */
void migration_drop_targets(struct migration *m, struct job *job, bool only_gone);
void migration_thaw_sources(struct migration *m, struct job *job);

/* --- copies.c --- */

/* After the targets have made room: new replica holders begin to copy. */
void migration_begin_copies(struct migration *m, migration_fn then);
/* Waits until targets are connected to the new holders; called again, until the holders have
 * copies. */
void migration_await_copies(struct migration *m, migration_fn then);
/* Tells replica holders to drop copies: of undeclared pieces only, or of all pieces if
 * `are_all`. */
void migration_end_copies(struct migration *m, const struct job *job, bool are_all);

/* --- state.c --- */

/* Moves the state of all pieces from source to target (K38), then calls `then`. */
void migration_send_state(struct migration *m, migration_fn then);

void migration_forget_state(struct migration *m);

#endif
