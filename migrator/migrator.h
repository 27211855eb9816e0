/* migrator: the protocol that moves a task from one lane to another while the job trains. Pure: a
 * table of (state, event) -> (state, action), and migrator_step(). No I/O and no clock: a time-out
 * is an event. The rules are our reconstruction of the migration of "Parameter Service"
 * (README.md).
 *
 * Three sides take part, each with its own states: coordinator, source lane, target lane. */
#ifndef GRADPOOL_MIGRATOR_MIGRATOR_H
#define GRADPOOL_MIGRATOR_MIGRATOR_H

#include <stdint.h>

enum migrator_side { MIGRATOR_COORDINATOR, MIGRATOR_SOURCE, MIGRATOR_TARGET };

enum migrator_state {
    /* states of the coordinator */
    MIGRATOR_C_IDLE,
    MIGRATOR_C_PREPARING, /* PREPARE was sent: the target allocates memory and connects */
    /* MOVE was sent: the source finishes its round, freezes, and sends the state. */
    MIGRATOR_C_MOVING,
    /* the target has the state; the store is writing the route, and its result is not known yet */
    MIGRATOR_C_COMMITTING,
    /* the route is written with epoch + 1: from this point on the target owns the task */
    MIGRATOR_C_COMMITTED,
    MIGRATOR_C_ACTIVATED, /* the target serves; the source has not released the task yet */
    /* the source has released the task or is lost; the target has not reported ACTIVATED */
    MIGRATOR_C_RELEASED,
    MIGRATOR_C_DONE,
    MIGRATOR_C_ABORTED,
    /* states of the source */
    MIGRATOR_S_SERVING,
    MIGRATOR_S_FINISHING, /* a round is open; later announcements wait */
    MIGRATOR_S_FROZEN,    /* the state was sent; only ABORT of the coordinator thaws the source */
    MIGRATOR_S_TOMBSTONE, /* the source answers each announcement with "moved to X, epoch + 1" */
    MIGRATOR_S_GONE,
    /* states of the target */
    MIGRATOR_T_ABSENT,
    MIGRATOR_T_PREPARED,
    MIGRATOR_T_INSTALLED,
    MIGRATOR_T_SERVING,
    MIGRATOR_STATE_COUNT,
};

enum migrator_event {
    /* events of the coordinator */
    MIGRATOR_E_START,
    MIGRATOR_E_PREPARED,
    MIGRATOR_E_INSTALLED,
    MIGRATOR_E_ROUTE_WRITTEN,
    MIGRATOR_E_ACTIVATED,
    MIGRATOR_E_RELEASED,
    MIGRATOR_E_REFUSED, /* the target, the source or (in COMMITTING) the store has refused */
    MIGRATOR_E_TIMEOUT,
    MIGRATOR_E_SOURCE_LOST,
    MIGRATOR_E_TARGET_LOST,
    /* events of source and target */
    MIGRATOR_E_PREPARE,
    MIGRATOR_E_MOVE,
    MIGRATOR_E_ROUND_COMMITTED, /* the open round is committed */
    MIGRATOR_E_ANNOUNCEMENT,
    MIGRATOR_E_STATE_ARRIVED,
    MIGRATOR_E_ACTIVATE,
    MIGRATOR_E_RELEASE,
    MIGRATOR_E_ABORT,
    MIGRATOR_E_ALL_SEEN_AT_TARGET,
    MIGRATOR_EVENT_COUNT,
};

enum migrator_action {
    MIGRATOR_A_NONE,
    MIGRATOR_A_SEND_PREPARE,
    MIGRATOR_A_SEND_MOVE,
    MIGRATOR_A_WRITE_ROUTE,
    MIGRATOR_A_SEND_ACTIVATE, /* send ACTIVATE to the target and RELEASE to the source */
    MIGRATOR_A_SEND_ABORT,    /* send ABORT to both lanes */
    /* the owner is lost: recover the task; before the switch, first send ABORT to the other side */
    MIGRATOR_A_RECOVER,
    MIGRATOR_A_FINISH,     /* the migration is over: report the result, free its state */
    MIGRATOR_A_ALLOCATE,   /* allocate memory and connections; send PREPARED or REFUSED */
    MIGRATOR_A_SEND_STATE, /* send the state to the target */
    MIGRATOR_A_INSTALL,    /* install the state; send INSTALLED or REFUSED */
    /* accept the announcement; after ACTIVATE: accept all held announcements, then send
     * ACTIVATED */
    MIGRATOR_A_SERVE,
    MIGRATOR_A_HOLD,     /* store the announcement and send no answer */
    MIGRATOR_A_REDIRECT, /* answer the announcement with "moved" */
    /* free the memory of the task; after RELEASE answer held announcements with "moved", and send
     * RELEASED */
    MIGRATOR_A_FREE,
    MIGRATOR_A_THAW, /* serve again, beginning with held announcements */
    /* refuse the event: the table has no row for it, because the peer has made an error */
    MIGRATOR_A_REFUSE,
    MIGRATOR_ACTION_COUNT,
};

struct migrator_transition {
    enum migrator_state state;
    enum migrator_action action;
};

/* Returns the row for (state, event). A peer may send any event: an event without a row leaves the
 * state unchanged and returns MIGRATOR_A_REFUSE. `round_is_open` is used for MOVE only: whether a
 * round of the task has its quorum, but is not committed. */
struct migrator_transition migrator_step(enum migrator_state state, enum migrator_event event,
                                         _Bool round_is_open);

/* Returns the owner of the task in a state of the coordinator: the source until the route is
 * written, then the target. A task always has exactly one owner. */
enum migrator_side migrator_owner(enum migrator_state coordinator);

const char *migrator_state_name(enum migrator_state state);
const char *migrator_event_name(enum migrator_event event);
const char *migrator_action_name(enum migrator_action action);

#endif
