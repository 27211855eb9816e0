/* Tests every state that the migration protocol can reach. Sides: coordinator, source, target and
 * the store. Events: messages in order on each channel, timeouts, refusals, at most one loss of the
 * source and one of the target, one restart of the coordinator, and announcements at any time. In
 * each state the task has one owner. If no message and no write is pending, a lane serves the
 * task. */
#include "migrator/migrator.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define QUEUE_MAX 7
#define TIMEOUTS 2
#define WORLDS_MAX (1u << 22)
#define BUCKETS (1u << 23)

enum channel { C_TO_S, C_TO_T, S_TO_C, T_TO_C, S_TO_T, STORE_TO_C, CHANNELS };

/* The struct contains only bytes, because worlds are compared and hashed as memory. */
struct world {
    uint8_t coordinator, source, target;
    uint8_t source_lost, target_lost;
    uint8_t route_written, write_pending;
    uint8_t round_open;
    uint8_t held_at_source, held_at_target;
    uint8_t all_seen_sent;
    uint8_t recovered;
    uint8_t timeouts_left, restarts_left;
    uint8_t queue[CHANNELS][QUEUE_MAX];
    uint8_t queued[CHANNELS];
};

struct search {
    struct world *worlds;
    uint32_t *parents;
    uint32_t *buckets; /* position in worlds + 1; 0: free */
    uint32_t count;
    uint32_t at; /* index of the world whose following worlds are searched */
    bool used[MIGRATOR_STATE_COUNT][MIGRATOR_EVENT_COUNT];
};

static struct search search;

/* -- the set of worlds ------------------------------------------------------------------------- */

static uint32_t hash_world(const struct world *w)
{
    const uint8_t *bytes = (const uint8_t *)w;
    uint64_t hash = UINT64_C(14695981039346656037);

    for (size_t i = 0; i < sizeof(*w); i++)
        hash = (hash ^ bytes[i]) * UINT64_C(1099511628211);
    return (uint32_t)(hash ^ (hash >> 29));
}

static void add_world(const struct world *w)
{
    uint32_t i = hash_world(w) % BUCKETS;

    for (; search.buckets[i]; i = (i + 1) % BUCKETS)
        if (memcmp(&search.worlds[search.buckets[i] - 1], w, sizeof(*w)) == 0)
            return;
    assert_true(search.count < WORLDS_MAX);
    search.worlds[search.count] = *w;
    search.parents[search.count] = search.at;
    search.buckets[i] = ++search.count;
}

static void print_history(uint32_t at)
{
    const struct world *w = &search.worlds[at];

    if (at != 0)
        print_history(search.parents[at]);
    print_message("# %s, %s%s, %s%s%s\n", migrator_state_name((enum migrator_state)w->coordinator),
                  migrator_state_name((enum migrator_state)w->source),
                  w->source_lost ? " (lost)" : "",
                  migrator_state_name((enum migrator_state)w->target),
                  w->target_lost ? " (lost)" : "", w->route_written ? ", route written" : "");
}

static void require(bool holds, const char *what)
{
    if (holds)
        return;
    print_history(search.at);
    fail_msg("%s", what);
}

/* -- messages ---------------------------------------------------------------------------------- */

static bool has_queued(const struct world *w, enum channel channel, enum migrator_event event)
{
    return memchr(w->queue[channel], event, w->queued[channel]) != NULL;
}

static void push(struct world *w, enum channel channel, enum migrator_event event)
{
    require(w->queued[channel] < QUEUE_MAX, "a queue grows without end");
    w->queue[channel][w->queued[channel]++] = (uint8_t)event;
}

static enum migrator_event pop(struct world *w, enum channel channel)
{
    enum migrator_event event = (enum migrator_event)w->queue[channel][0];

    w->queued[channel]--;
    memmove(w->queue[channel], w->queue[channel] + 1, w->queued[channel]);
    w->queue[channel][w->queued[channel]] = 0;
    return event;
}

static void clear(struct world *w, enum channel channel)
{
    memset(w->queue[channel], 0, QUEUE_MAX);
    w->queued[channel] = 0;
}

/* Sends a message from the coordinator. If the receiver is lost, the message becomes a report of
 * the loss (M6). */
static void send(struct world *w, enum channel channel, enum migrator_event event)
{
    bool to_source = channel == C_TO_S;
    enum migrator_event loss = to_source ? MIGRATOR_E_SOURCE_LOST : MIGRATOR_E_TARGET_LOST;
    enum channel back = to_source ? S_TO_C : T_TO_C;

    if (!(to_source ? w->source_lost : w->target_lost))
        push(w, channel, event);
    else if (!has_queued(w, back, loss))
        push(w, back, loss);
}

static void send_both(struct world *w, enum migrator_event target, enum migrator_event source)
{
    send(w, C_TO_T, target);
    send(w, C_TO_S, source);
}

/* -- the three sides --------------------------------------------------------------------------- */

static enum migrator_action step(uint8_t *state, enum migrator_event event, bool round_is_open)
{
    struct migrator_transition to =
        migrator_step((enum migrator_state) * state, event, round_is_open);

    if (to.action == MIGRATOR_A_REFUSE && event != MIGRATOR_E_ANNOUNCEMENT)
        print_message("# %s in %s\n", migrator_event_name(event),
                      migrator_state_name((enum migrator_state) * state));
    require(to.action != MIGRATOR_A_REFUSE ||
                (event == MIGRATOR_E_ANNOUNCEMENT && *state == MIGRATOR_S_GONE),
            "honest sides meet a refusal");
    search.used[*state][event] = true;
    *state = (uint8_t)to.state;
    return to.action;
}

static void step_coordinator(struct world *w, enum migrator_event event)
{
    switch (step(&w->coordinator, event, false)) {
    case MIGRATOR_A_SEND_PREPARE: send(w, C_TO_T, MIGRATOR_E_PREPARE); break;
    case MIGRATOR_A_SEND_MOVE: send(w, C_TO_S, MIGRATOR_E_MOVE); break;
    case MIGRATOR_A_WRITE_ROUTE: w->write_pending = 1; break;
    case MIGRATOR_A_SEND_ACTIVATE: send_both(w, MIGRATOR_E_ACTIVATE, MIGRATOR_E_RELEASE); break;
    case MIGRATOR_A_SEND_ABORT: send_both(w, MIGRATOR_E_ABORT, MIGRATOR_E_ABORT); break;
    case MIGRATOR_A_RECOVER:
        w->recovered = 1;
        if (migrator_owner((enum migrator_state)w->coordinator) == MIGRATOR_SOURCE)
            send(w, C_TO_T, MIGRATOR_E_ABORT);
        break;
    default: break;
    }
}

static void send_state(struct world *w, bool fails)
{
    if (fails)
        push(w, S_TO_C, MIGRATOR_E_REFUSED);
    else if (!w->target_lost)
        push(w, S_TO_T, MIGRATOR_E_STATE_ARRIVED);
}

static void step_source(struct world *w, enum migrator_event event, bool fails)
{
    switch (step(&w->source, event, w->round_open)) {
    case MIGRATOR_A_SEND_STATE: send_state(w, fails); break;
    case MIGRATOR_A_HOLD: w->held_at_source = 1; break;
    case MIGRATOR_A_THAW: w->held_at_source = 0; break;
    case MIGRATOR_A_FREE:
        w->held_at_source = 0;
        if (event == MIGRATOR_E_RELEASE)
            push(w, S_TO_C, MIGRATOR_E_RELEASED);
        break;
    default: break;
    }
}

static void step_target(struct world *w, enum migrator_event event, bool fails)
{
    switch (step(&w->target, event, false)) {
    case MIGRATOR_A_ALLOCATE:
        push(w, T_TO_C, fails ? MIGRATOR_E_REFUSED : MIGRATOR_E_PREPARED);
        break;
    case MIGRATOR_A_INSTALL:
        push(w, T_TO_C, fails ? MIGRATOR_E_REFUSED : MIGRATOR_E_INSTALLED);
        break;
    case MIGRATOR_A_HOLD: w->held_at_target = 1; break;
    case MIGRATOR_A_FREE: w->held_at_target = 0; break;
    case MIGRATOR_A_SERVE:
        if (event != MIGRATOR_E_ACTIVATE)
            break;
        w->held_at_target = 0;
        push(w, T_TO_C, MIGRATOR_E_ACTIVATED);
        break;
    default: break;
    }
}

/* -- next events --------------------------------------------------------------------------- */

static void deliver(const struct world *from, enum channel channel, bool fails)
{
    struct world w = *from;
    enum migrator_event event = pop(&w, channel);

    if (channel == C_TO_S)
        step_source(&w, event, fails);
    else if (channel == C_TO_T || channel == S_TO_T)
        step_target(&w, event, fails);
    else
        step_coordinator(&w, event);
    add_world(&w);
}

static void end_write(const struct world *from, bool written)
{
    struct world w = *from;

    w.write_pending = 0;
    w.route_written = written;
    push(&w, STORE_TO_C, written ? MIGRATOR_E_ROUTE_WRITTEN : MIGRATOR_E_REFUSED);
    add_world(&w);
}

static void end_round(const struct world *from, bool fails)
{
    struct world w = *from;

    w.round_open = 0;
    step_source(&w, MIGRATOR_E_ROUND_COMMITTED, fails);
    add_world(&w);
}

/* Runs a pending event that must happen. Returns false if no such event is pending. */
static bool go_on(const struct world *w)
{
    bool busy = w->write_pending || (w->round_open && !w->source_lost);

    for (int fails = 0; fails < 2; fails++) {
        for (int c = 0; c < CHANNELS; c++) {
            busy = busy || w->queued[c];
            if (w->queued[c])
                deliver(w, (enum channel)c, fails);
        }
        if (w->write_pending)
            end_write(w, !fails);
        if (w->round_open && !w->source_lost)
            end_round(w, fails);
    }
    return busy;
}

static void announce(const struct world *from)
{
    struct world w = *from;

    if (!w.source_lost) {
        step_source(&w, MIGRATOR_E_ANNOUNCEMENT, false);
        add_world(&w);
    }
    w = *from;
    if (!w.target_lost && w.route_written) { /* workers may already know the route */
        step_target(&w, MIGRATOR_E_ANNOUNCEMENT, false);
        add_world(&w);
    }
}

static void run_rounds(const struct world *from)
{
    struct world w = *from;

    if (!w.source_lost && w.source == MIGRATOR_S_SERVING && w.coordinator == MIGRATOR_C_IDLE) {
        w.round_open = 1;
        add_world(&w);
    }
    w = *from;
    if (!w.target_lost && w.target == MIGRATOR_T_SERVING) {
        step_target(&w, MIGRATOR_E_ROUND_COMMITTED, false);
        add_world(&w);
    }
}

static void time_out(const struct world *from)
{
    struct world w = *from;

    if (w.source == MIGRATOR_S_TOMBSTONE && !w.source_lost) {
        step_source(&w, MIGRATOR_E_TIMEOUT, false);
        add_world(&w);
    }
    w = *from;
    if (w.timeouts_left == 0 || w.coordinator == MIGRATOR_C_IDLE ||
        w.coordinator == MIGRATOR_C_DONE || w.coordinator == MIGRATOR_C_ABORTED)
        return;
    w.timeouts_left--;
    step_coordinator(&w, MIGRATOR_E_TIMEOUT);
    add_world(&w);
}

static void lose_source(const struct world *from, bool state_gets_through)
{
    struct world w = *from;

    if (w.source_lost || w.coordinator == MIGRATOR_C_IDLE)
        return;
    w.source_lost = 1;
    w.held_at_source = 0;
    clear(&w, C_TO_S);
    if (!state_gets_through)
        clear(&w, S_TO_T);
    push(&w, S_TO_C, MIGRATOR_E_SOURCE_LOST);
    add_world(&w);
}

static void lose_target(const struct world *from)
{
    struct world w = *from;

    if (w.target_lost || w.coordinator == MIGRATOR_C_IDLE)
        return;
    w.target_lost = 1;
    w.held_at_target = 0;
    clear(&w, C_TO_T);
    clear(&w, S_TO_T);
    push(&w, T_TO_C, MIGRATOR_E_TARGET_LOST);
    add_world(&w);
}

/* After a restart the coordinator knows only the stored route (M7). */
static void restart_coordinator(const struct world *from, bool write_succeeds)
{
    struct world w = *from;

    if (w.restarts_left == 0 || w.coordinator == MIGRATOR_C_IDLE)
        return;
    w.restarts_left--;
    if (w.write_pending)
        w.route_written = write_succeeds;
    w.write_pending = 0;
    clear(&w, S_TO_C);
    clear(&w, T_TO_C);
    clear(&w, STORE_TO_C);
    w.coordinator = w.route_written ? MIGRATOR_C_COMMITTED : MIGRATOR_C_ABORTED;
    if (w.route_written)
        send_both(&w, MIGRATOR_E_ACTIVATE, MIGRATOR_E_RELEASE);
    else
        send_both(&w, MIGRATOR_E_ABORT, MIGRATOR_E_ABORT);
    add_world(&w);
}

static void see_all_at_target(const struct world *from)
{
    struct world w = *from;

    if (w.all_seen_sent || w.source_lost || w.target_lost || w.target != MIGRATOR_T_SERVING)
        return;
    w.all_seen_sent = 1;
    send(&w, C_TO_S, MIGRATOR_E_ALL_SEEN_AT_TARGET);
    add_world(&w);
}

static void start(const struct world *from)
{
    struct world w = *from;

    if (w.coordinator != MIGRATOR_C_IDLE)
        return;
    step_coordinator(&w, MIGRATOR_E_START);
    add_world(&w);
}

/* -- invariants ---------------------------------------------------------------------------- */

static bool source_serves(const struct world *w)
{
    return !w->source_lost &&
           (w->source == MIGRATOR_S_SERVING || w->source == MIGRATOR_S_FINISHING);
}

static bool target_serves(const struct world *w)
{
    return !w->target_lost && w->target == MIGRATOR_T_SERVING;
}

/* Checks M1, which must be true in every world. */
static void check_owner(const struct world *w)
{
    bool target_owns = migrator_owner((enum migrator_state)w->coordinator) == MIGRATOR_TARGET;

    require(!(source_serves(w) && target_serves(w)), "two sides serve the task");
    require(!source_serves(w) || !w->route_written, "the source serves after the switch");
    require(!target_serves(w) || w->route_written, "the target serves before the switch");
    require(!target_owns || w->route_written, "the target owns before the route is written");
    require(target_owns || !w->route_written || w->coordinator == MIGRATOR_C_COMMITTING,
            "the source owns after the route was written");
    if (!w->route_written && !w->source_lost)
        require(source_serves(w) || w->source == MIGRATOR_S_FROZEN,
                "the source owns the task and has thrown its state away");
    if (w->route_written && !w->target_lost)
        require(target_serves(w) || w->target == MIGRATOR_T_INSTALLED,
                "the target owns the task and does not have its state");
}

/* Checks a state without pending events. */
static void check_rest(const struct world *w)
{
    bool owner_lost = w->route_written ? w->target_lost : w->source_lost;

    require(w->coordinator == MIGRATOR_C_IDLE || w->coordinator == MIGRATOR_C_DONE ||
                w->coordinator == MIGRATOR_C_ABORTED,
            "the coordinator is stuck");
    require(owner_lost || (w->route_written ? target_serves(w) : source_serves(w)),
            "nobody serves the task");
    require(!owner_lost || w->recovered, "the owner is lost and nobody recovers the task");
    require(!w->held_at_source && !w->held_at_target, "an announcement is never answered");
    if (w->route_written && !w->source_lost)
        require(w->source == MIGRATOR_S_TOMBSTONE || w->source == MIGRATOR_S_GONE,
                "the source holds on to memory");
    if (!w->route_written && !w->target_lost)
        require(w->target == MIGRATOR_T_ABSENT, "the target holds on to memory");
}

static void expand(const struct world *w)
{
    check_owner(w);
    if (!go_on(w))
        check_rest(w);
    start(w);
    announce(w);
    run_rounds(w);
    time_out(w);
    see_all_at_target(w);
    lose_target(w);
    for (int yes = 0; yes < 2; yes++) {
        lose_source(w, yes);
        restart_coordinator(w, yes);
    }
}

static int explore(void **state)
{
    struct world w = {.coordinator = MIGRATOR_C_IDLE,
                      .source = MIGRATOR_S_SERVING,
                      .target = MIGRATOR_T_ABSENT,
                      .timeouts_left = TIMEOUTS,
                      .restarts_left = 1};

    search.worlds = calloc(WORLDS_MAX, sizeof(*search.worlds));
    search.parents = calloc(WORLDS_MAX, sizeof(*search.parents));
    search.buckets = calloc(BUCKETS, sizeof(*search.buckets));
    add_world(&w);
    return search.worlds && search.parents && search.buckets ? 0 : -1;
}

static int forget(void **state)
{
    free(search.worlds);
    free(search.parents);
    free(search.buckets);
    return 0;
}

static void in_every_world_a_task_has_one_owner_and_at_rest_a_lane_serves_it(void **state)
{
    for (search.at = 0; search.at < search.count; search.at++) {
        struct world w = search.worlds[search.at];

        expand(&w);
    }
    print_message("# %u worlds\n", search.count);
    /* This number changes when the table changes. In that case compare the states that were reached
     * before and after the change. */
    assert_int_equal(search.count, 17631);
}

/* Runs after the search. A row that no world uses is superfluous. */
static void every_row_of_the_table_is_needed(void **state)
{
    int unused = 0;

    for (int s = 0; s < MIGRATOR_STATE_COUNT; s++)
        for (int e = 0; e < MIGRATOR_EVENT_COUNT; e++) {
            if (search.used[s][e] ||
                migrator_step((enum migrator_state)s, (enum migrator_event)e, true).action ==
                    MIGRATOR_A_REFUSE)
                continue;
            print_message("# never used: %s, %s\n", migrator_state_name((enum migrator_state)s),
                          migrator_event_name((enum migrator_event)e));
            unused++;
        }
    assert_int_equal(unused, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_every_world_a_task_has_one_owner_and_at_rest_a_lane_serves_it),
        cmocka_unit_test(every_row_of_the_table_is_needed),
    };

    return cmocka_run_group_tests_name("migrator world", tests, explore, forget);
}
