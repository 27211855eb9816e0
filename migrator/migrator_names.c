/* Owns the names of states, events and actions, for logs, status and tests. Messages contain
 * numbers, so no program parses the names. */
#include "migrator/migrator.h"

#define COUNT(names) (sizeof(names) / sizeof((names)[0]))

static const char *const state_names[MIGRATOR_STATE_COUNT] = {
    [MIGRATOR_C_IDLE] = "coordinator-idle",
    [MIGRATOR_C_PREPARING] = "coordinator-preparing",
    [MIGRATOR_C_MOVING] = "coordinator-moving",
    [MIGRATOR_C_COMMITTING] = "coordinator-committing",
    [MIGRATOR_C_COMMITTED] = "coordinator-committed",
    [MIGRATOR_C_ACTIVATED] = "coordinator-activated",
    [MIGRATOR_C_RELEASED] = "coordinator-released",
    [MIGRATOR_C_DONE] = "coordinator-done",
    [MIGRATOR_C_ABORTED] = "coordinator-aborted",
    [MIGRATOR_S_SERVING] = "source-serving",
    [MIGRATOR_S_FINISHING] = "source-finishing",
    [MIGRATOR_S_FROZEN] = "source-frozen",
    [MIGRATOR_S_TOMBSTONE] = "source-tombstone",
    [MIGRATOR_S_GONE] = "source-gone",
    [MIGRATOR_T_ABSENT] = "target-absent",
    [MIGRATOR_T_PREPARED] = "target-prepared",
    [MIGRATOR_T_INSTALLED] = "target-installed",
    [MIGRATOR_T_SERVING] = "target-serving",
};

static const char *const event_names[MIGRATOR_EVENT_COUNT] = {
    [MIGRATOR_E_START] = "start",
    [MIGRATOR_E_PREPARED] = "prepared",
    [MIGRATOR_E_INSTALLED] = "installed",
    [MIGRATOR_E_ROUTE_WRITTEN] = "route-written",
    [MIGRATOR_E_ACTIVATED] = "activated",
    [MIGRATOR_E_RELEASED] = "released",
    [MIGRATOR_E_REFUSED] = "refused",
    [MIGRATOR_E_TIMEOUT] = "timeout",
    [MIGRATOR_E_SOURCE_LOST] = "source-lost",
    [MIGRATOR_E_TARGET_LOST] = "target-lost",
    [MIGRATOR_E_PREPARE] = "prepare",
    [MIGRATOR_E_MOVE] = "move",
    [MIGRATOR_E_ROUND_COMMITTED] = "round-committed",
    [MIGRATOR_E_ANNOUNCEMENT] = "announcement",
    [MIGRATOR_E_STATE_ARRIVED] = "state-arrived",
    [MIGRATOR_E_ACTIVATE] = "activate",
    [MIGRATOR_E_RELEASE] = "release",
    [MIGRATOR_E_ABORT] = "abort",
    [MIGRATOR_E_ALL_SEEN_AT_TARGET] = "all-seen-at-target",
};

static const char *const action_names[MIGRATOR_ACTION_COUNT] = {
    [MIGRATOR_A_NONE] = "none",
    [MIGRATOR_A_SEND_PREPARE] = "send-prepare",
    [MIGRATOR_A_SEND_MOVE] = "send-move",
    [MIGRATOR_A_WRITE_ROUTE] = "write-route",
    [MIGRATOR_A_SEND_ACTIVATE] = "send-activate",
    [MIGRATOR_A_SEND_ABORT] = "send-abort",
    [MIGRATOR_A_RECOVER] = "recover",
    [MIGRATOR_A_FINISH] = "finish",
    [MIGRATOR_A_ALLOCATE] = "allocate",
    [MIGRATOR_A_SEND_STATE] = "send-state",
    [MIGRATOR_A_INSTALL] = "install",
    [MIGRATOR_A_SERVE] = "serve",
    [MIGRATOR_A_HOLD] = "hold",
    [MIGRATOR_A_REDIRECT] = "redirect",
    [MIGRATOR_A_FREE] = "free",
    [MIGRATOR_A_THAW] = "thaw",
    [MIGRATOR_A_REFUSE] = "refuse",
};

static const char *name_at(const char *const *names, unsigned count, unsigned index)
{
    return index < count && names[index] ? names[index] : "unknown";
}

const char *migrator_state_name(enum migrator_state state)
{
    return name_at(state_names, COUNT(state_names), (unsigned)state);
}

const char *migrator_event_name(enum migrator_event event)
{
    return name_at(event_names, COUNT(event_names), (unsigned)event);
}

const char *migrator_action_name(enum migrator_action action)
{
    return name_at(action_names, COUNT(action_names), (unsigned)action);
}
