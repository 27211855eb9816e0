/* Owns the table of the migration protocol for all three sides, and the owner of a task in each
 * state. No I/O, no state, no messages: the caller does what an action requires. README.md has the
 * guarantees M1, M2, ... of each side; a row that implements a guarantee cites its number. */
#include "migrator/migrator.h"

#include <stdbool.h>

struct row {
    bool known; /* false: the table has no row for this state and event */
    struct migrator_transition transition;
};

#define ROW(from, event, to, action) \
    [MIGRATOR_##from][MIGRATOR_E_##event] = {true, {MIGRATOR_##to, MIGRATOR_A_##action}}

/* clang-format off: each row of the table stays on one line */
static const struct row table[MIGRATOR_STATE_COUNT][MIGRATOR_EVENT_COUNT] = {
    /* -- coordinator ------------------------------------------------------------------------- */
    ROW(C_IDLE, START, C_PREPARING, SEND_PREPARE),

    ROW(C_PREPARING, PREPARED, C_MOVING, SEND_MOVE),
    ROW(C_PREPARING, REFUSED, C_ABORTED, SEND_ABORT),
    ROW(C_PREPARING, TIMEOUT, C_ABORTED, SEND_ABORT),
    ROW(C_PREPARING, TARGET_LOST, C_ABORTED, SEND_ABORT),
    ROW(C_PREPARING, SOURCE_LOST, C_ABORTED, RECOVER),

    ROW(C_MOVING, INSTALLED, C_COMMITTING, WRITE_ROUTE),
    ROW(C_MOVING, REFUSED, C_ABORTED, SEND_ABORT),
    ROW(C_MOVING, TIMEOUT, C_ABORTED, SEND_ABORT),
    ROW(C_MOVING, TARGET_LOST, C_ABORTED, SEND_ABORT),
    ROW(C_MOVING, SOURCE_LOST, C_ABORTED, RECOVER),

    /* In state COMMITTING only the answer of the store matters (M4). A loss has no effect here,
     * because the next message to the lost side reports the loss again (M6). */
    ROW(C_COMMITTING, ROUTE_WRITTEN, C_COMMITTED, SEND_ACTIVATE),
    ROW(C_COMMITTING, REFUSED, C_ABORTED, SEND_ABORT),
    ROW(C_COMMITTING, TIMEOUT, C_COMMITTING, NONE),
    ROW(C_COMMITTING, SOURCE_LOST, C_COMMITTING, NONE),
    ROW(C_COMMITTING, TARGET_LOST, C_COMMITTING, NONE),

    /* After the switch no migration is aborted: after a time-out the coordinator repeats its
     * message (M2). */
    ROW(C_COMMITTED, ACTIVATED, C_ACTIVATED, NONE),
    ROW(C_COMMITTED, RELEASED, C_RELEASED, NONE),
    ROW(C_COMMITTED, SOURCE_LOST, C_RELEASED, NONE),
    ROW(C_COMMITTED, TARGET_LOST, C_DONE, RECOVER),
    ROW(C_COMMITTED, TIMEOUT, C_COMMITTED, SEND_ACTIVATE),

    ROW(C_ACTIVATED, RELEASED, C_DONE, FINISH),
    ROW(C_ACTIVATED, SOURCE_LOST, C_DONE, FINISH),
    ROW(C_ACTIVATED, TARGET_LOST, C_DONE, RECOVER),
    ROW(C_ACTIVATED, TIMEOUT, C_ACTIVATED, SEND_ACTIVATE),
    ROW(C_ACTIVATED, ACTIVATED, C_ACTIVATED, NONE),

    ROW(C_RELEASED, ACTIVATED, C_DONE, FINISH),
    ROW(C_RELEASED, TARGET_LOST, C_DONE, RECOVER),
    ROW(C_RELEASED, SOURCE_LOST, C_RELEASED, NONE),
    ROW(C_RELEASED, TIMEOUT, C_RELEASED, SEND_ACTIVATE),
    ROW(C_RELEASED, RELEASED, C_RELEASED, NONE),

    /* After the end of a migration late messages have no effect. Only the loss of the owner causes
     * an action. */
    ROW(C_DONE, ACTIVATED, C_DONE, NONE),
    ROW(C_DONE, RELEASED, C_DONE, NONE),
    ROW(C_DONE, SOURCE_LOST, C_DONE, NONE),
    ROW(C_DONE, TARGET_LOST, C_DONE, RECOVER),

    ROW(C_ABORTED, PREPARED, C_ABORTED, NONE),
    ROW(C_ABORTED, INSTALLED, C_ABORTED, NONE),
    ROW(C_ABORTED, REFUSED, C_ABORTED, NONE),
    ROW(C_ABORTED, TARGET_LOST, C_ABORTED, NONE),
    ROW(C_ABORTED, SOURCE_LOST, C_ABORTED, RECOVER),

    /* -- source ------------------------------------------------------------------------------ */
    ROW(S_SERVING, ANNOUNCEMENT, S_SERVING, SERVE),
    ROW(S_SERVING, ROUND_COMMITTED, S_SERVING, NONE),
    ROW(S_SERVING, MOVE, S_FINISHING, NONE),
    ROW(S_SERVING, ABORT, S_SERVING, NONE),

    ROW(S_FINISHING, ANNOUNCEMENT, S_FINISHING, HOLD),
    ROW(S_FINISHING, ROUND_COMMITTED, S_FROZEN, SEND_STATE),
    ROW(S_FINISHING, ABORT, S_SERVING, THAW),

    /* Only the message ABORT thaws the source (M3). */
    ROW(S_FROZEN, ANNOUNCEMENT, S_FROZEN, HOLD),
    ROW(S_FROZEN, ABORT, S_SERVING, THAW),
    ROW(S_FROZEN, RELEASE, S_TOMBSTONE, FREE),

    ROW(S_TOMBSTONE, ANNOUNCEMENT, S_TOMBSTONE, REDIRECT),
    ROW(S_TOMBSTONE, RELEASE, S_TOMBSTONE, FREE),
    ROW(S_TOMBSTONE, ALL_SEEN_AT_TARGET, S_GONE, FREE),
    ROW(S_TOMBSTONE, TIMEOUT, S_GONE, FREE),

    ROW(S_GONE, RELEASE, S_GONE, FREE),
    ROW(S_GONE, ALL_SEEN_AT_TARGET, S_GONE, NONE),

    /* -- target ------------------------------------------------------------------------------ */
    ROW(T_ABSENT, PREPARE, T_PREPARED, ALLOCATE),
    ROW(T_ABSENT, STATE_ARRIVED, T_ABSENT, NONE), /* ABORT arrived before the state */
    ROW(T_ABSENT, ABORT, T_ABSENT, NONE),

    ROW(T_PREPARED, STATE_ARRIVED, T_INSTALLED, INSTALL),
    ROW(T_PREPARED, ABORT, T_ABSENT, FREE),

    /* A worker's announcement may arrive before ACTIVATE. */
    ROW(T_INSTALLED, ANNOUNCEMENT, T_INSTALLED, HOLD),
    ROW(T_INSTALLED, ACTIVATE, T_SERVING, SERVE),
    ROW(T_INSTALLED, ABORT, T_ABSENT, FREE),

    ROW(T_SERVING, ANNOUNCEMENT, T_SERVING, SERVE),
    ROW(T_SERVING, ROUND_COMMITTED, T_SERVING, NONE),
    ROW(T_SERVING, ACTIVATE, T_SERVING, SERVE),
};
/* clang-format on */

struct migrator_transition migrator_step(enum migrator_state state, enum migrator_event event,
                                         _Bool round_is_open)
{
    const struct row *row;

    /* Both values may come from a peer, so they are checked before they index the table. */
    if ((unsigned)state >= MIGRATOR_STATE_COUNT || (unsigned)event >= MIGRATOR_EVENT_COUNT)
        return (struct migrator_transition){state, MIGRATOR_A_REFUSE};
    row = &table[state][event];
    if (!row->known)
        return (struct migrator_transition){state, MIGRATOR_A_REFUSE};
    /* Without an open round the source freezes at once. */
    if (state == MIGRATOR_S_SERVING && event == MIGRATOR_E_MOVE && !round_is_open)
        return table[MIGRATOR_S_FINISHING][MIGRATOR_E_ROUND_COMMITTED].transition;
    return row->transition;
}

enum migrator_side migrator_owner(enum migrator_state coordinator)
{
    switch (coordinator) {
    case MIGRATOR_C_COMMITTED:
    case MIGRATOR_C_ACTIVATED:
    case MIGRATOR_C_RELEASED:
    case MIGRATOR_C_DONE: return MIGRATOR_TARGET;
    default: return MIGRATOR_SOURCE;
    }
}
