/* Tests the migration protocol line by line. Each line has a side, an event and the effect of the
 * event: "side: event -> state / action". A line that starts with "--" is a comment. */
#include "migrator/migrator.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

struct sides {
    enum migrator_state coordinator;
    enum migrator_state source;
    enum migrator_state target;
};

static const struct sides at_start = {MIGRATOR_C_IDLE, MIGRATOR_S_SERVING, MIGRATOR_T_ABSENT};

static enum migrator_event find_event(const char *name)
{
    for (int e = 0; e < MIGRATOR_EVENT_COUNT; e++)
        if (strcmp(migrator_event_name((enum migrator_event)e), name) == 0)
            return (enum migrator_event)e;
    fail_msg("the transcript names an event that there is not: %s", name);
    return MIGRATOR_EVENT_COUNT;
}

static enum migrator_state *find_side(struct sides *sides, const char *name)
{
    if (strcmp(name, "coordinator") == 0)
        return &sides->coordinator;
    if (strcmp(name, "source") == 0)
        return &sides->source;
    assert_string_equal(name, "target");
    return &sides->target;
}

/* Runs the event of the line. Writes the line with the actual effect. */
static void play_line(struct sides *sides, const char *line)
{
    char side[32], event[32], actual[128];
    enum migrator_state *state;
    struct migrator_transition to;
    bool open;

    assert_int_equal(sscanf(line, "%31[^:]: %31s", side, event), 2);
    open = strcmp(event, "move-in-round") == 0;
    state = find_side(sides, side);
    to = migrator_step(*state, find_event(open ? "move" : event), open);
    *state = to.state;
    snprintf(actual, sizeof(actual), "%s: %s -> %s / %s", side, event,
             strchr(migrator_state_name(to.state), '-') + 1, migrator_action_name(to.action));
    assert_string_equal(actual, line);
}

static void play(struct sides *sides, const char *const *lines)
{
    for (size_t i = 0; lines[i]; i++)
        if (strncmp(lines[i], "--", 2) != 0)
            play_line(sides, lines[i]);
}

static void play_from_start(const char *const *lines)
{
    struct sides sides = at_start;

    play(&sides, lines);
}

#define TRANSCRIPT(...) play_from_start((const char *const[]){__VA_ARGS__, NULL})

/* The first steps of a migration, which are the same in all cases. */
#define PREPARED \
    "coordinator: start -> preparing / send-prepare", "target: prepare -> prepared / allocate"
#define FROZEN \
    PREPARED, "coordinator: prepared -> moving / send-move", "source: move -> frozen / send-state"
#define INSTALLED FROZEN, "target: state-arrived -> installed / install"
#define COMMITTING INSTALLED, "coordinator: installed -> committing / write-route"
#define COMMITTED COMMITTING, "coordinator: route-written -> committed / send-activate"

/* -- migrations without a fault ---------------------------------------------------------- */

static void a_task_moves_between_two_rounds(void **state)
{
    TRANSCRIPT(COMMITTED, /* */
               "target: activate -> serving / serve", "source: release -> tombstone / free",
               "coordinator: activated -> activated / none",
               "coordinator: released -> done / finish",
               "source: all-seen-at-target -> gone / free");
}

static void a_task_moves_after_its_open_round(void **state)
{
    TRANSCRIPT(PREPARED, "coordinator: prepared -> moving / send-move",
               "source: move-in-round -> finishing / none",
               "-- a fast worker announces its next round",
               "source: announcement -> finishing / hold",
               "source: round-committed -> frozen / send-state",
               "target: state-arrived -> installed / install",
               "coordinator: installed -> committing / write-route");
}

static void the_source_may_release_the_task_before_the_target_serves_it(void **state)
{
    TRANSCRIPT(COMMITTED, "source: release -> tombstone / free",
               "coordinator: released -> released / none", "target: activate -> serving / serve",
               "coordinator: activated -> done / finish");
}

static void training_goes_on_until_the_freeze(void **state)
{
    TRANSCRIPT("source: announcement -> serving / serve",
               "source: round-committed -> serving / none", PREPARED,
               "source: announcement -> serving / serve",
               "source: round-committed -> serving / none");
}

static void a_tombstone_goes_at_the_latest_when_its_time_is_up(void **state)
{
    TRANSCRIPT(COMMITTED, "source: release -> tombstone / free", "source: timeout -> gone / free",
               "source: all-seen-at-target -> gone / none");
}

/* -- announcements on the way ------------------------------------------------------------------ */

static void an_announcement_at_a_frozen_source_waits_and_is_served_after_an_abort(void **state)
{
    TRANSCRIPT(FROZEN, "source: announcement -> frozen / hold", "source: abort -> serving / thaw",
               "source: announcement -> serving / serve");
}

static void an_announcement_at_a_tombstone_is_sent_on(void **state)
{
    TRANSCRIPT(
        COMMITTED, "source: announcement -> frozen / hold", "source: release -> tombstone / free",
        "source: announcement -> tombstone / redirect", "source: all-seen-at-target -> gone / free",
        "-- unknown task: ask the coordinator", "source: announcement -> gone / refuse");
}

static void an_announcement_at_the_target_waits_for_the_activation(void **state)
{
    TRANSCRIPT("target: announcement -> absent / refuse", PREPARED,
               "target: announcement -> prepared / refuse");
    TRANSCRIPT(COMMITTED, "target: announcement -> installed / hold",
               "target: activate -> serving / serve", "target: announcement -> serving / serve",
               "target: round-committed -> serving / none");
}

/* -- abort at every step ----------------------------------------------------------------------- */

static void an_abort_while_preparing_leaves_the_source_serving(void **state)
{
    TRANSCRIPT("coordinator: start -> preparing / send-prepare",
               "coordinator: timeout -> aborted / send-abort", "source: abort -> serving / none",
               "-- the abort comes behind the request", "target: prepare -> prepared / allocate",
               "target: abort -> absent / free", "coordinator: prepared -> aborted / none");
    TRANSCRIPT(PREPARED, "coordinator: refused -> aborted / send-abort",
               "target: abort -> absent / free", "source: abort -> serving / none");
}

static void an_abort_while_the_round_is_finished_thaws_the_source(void **state)
{
    TRANSCRIPT(PREPARED, "coordinator: prepared -> moving / send-move",
               "source: move-in-round -> finishing / none",
               "source: announcement -> finishing / hold",
               "coordinator: timeout -> aborted / send-abort", "source: abort -> serving / thaw",
               "source: round-committed -> serving / none", "target: abort -> absent / free");
}

static void an_abort_overtakes_the_moving_state(void **state)
{
    TRANSCRIPT(FROZEN, "coordinator: timeout -> aborted / send-abort",
               "target: abort -> absent / free", "target: state-arrived -> absent / none",
               "source: abort -> serving / thaw");
}

static void an_abort_after_the_state_is_installed_drops_the_state(void **state)
{
    TRANSCRIPT(INSTALLED, "coordinator: timeout -> aborted / send-abort",
               "coordinator: installed -> aborted / none", "target: abort -> absent / free",
               "source: abort -> serving / thaw");
    TRANSCRIPT(INSTALLED, "coordinator: refused -> aborted / send-abort",
               "target: abort -> absent / free");
}

static void a_store_that_refuses_the_route_aborts(void **state)
{
    TRANSCRIPT(COMMITTING, "coordinator: refused -> aborted / send-abort",
               "source: abort -> serving / thaw", "target: abort -> absent / free");
}

static void a_route_on_its_way_to_the_store_is_waited_for(void **state)
{
    TRANSCRIPT(COMMITTING, "coordinator: timeout -> committing / none",
               "coordinator: route-written -> committed / send-activate");
}

static void after_the_switch_nothing_aborts(void **state)
{
    TRANSCRIPT(COMMITTED, "coordinator: timeout -> committed / send-activate",
               "coordinator: refused -> committed / refuse", "target: activate -> serving / serve",
               "target: abort -> serving / refuse", "source: release -> tombstone / free",
               "source: abort -> tombstone / refuse");
}

static void repeated_events_after_the_switch_do_no_harm(void **state)
{
    TRANSCRIPT(COMMITTED, "coordinator: timeout -> committed / send-activate",
               "target: activate -> serving / serve", "target: activate -> serving / serve",
               "source: release -> tombstone / free", "source: release -> tombstone / free",
               "coordinator: activated -> activated / none",
               "coordinator: activated -> activated / none",
               "coordinator: timeout -> activated / send-activate",
               "coordinator: released -> done / finish", "coordinator: released -> done / none",
               "coordinator: activated -> done / none", "source: timeout -> gone / free",
               "source: release -> gone / free");
    TRANSCRIPT(COMMITTED, "coordinator: released -> released / none",
               "coordinator: released -> released / none",
               "coordinator: timeout -> released / send-activate",
               "coordinator: activated -> done / finish");
}

/* -- source lost at every step ----------------------------------------------------------------- */

static void a_source_lost_while_preparing_is_recovered(void **state)
{
    TRANSCRIPT(PREPARED, "coordinator: source-lost -> aborted / recover",
               "target: abort -> absent / free", "coordinator: prepared -> aborted / none");
}

static void a_source_lost_while_moving_is_recovered(void **state)
{
    TRANSCRIPT(FROZEN, "coordinator: source-lost -> aborted / recover",
               "target: state-arrived -> installed / install", "target: abort -> absent / free",
               "coordinator: installed -> aborted / none");
}

static void a_source_lost_while_the_route_is_written_is_not_missed(void **state)
{
    TRANSCRIPT(COMMITTING, "coordinator: source-lost -> committing / none",
               "coordinator: route-written -> committed / send-activate",
               "-- RELEASE cannot be sent", "coordinator: source-lost -> released / none",
               "coordinator: activated -> done / finish");
    TRANSCRIPT(COMMITTING, "coordinator: source-lost -> committing / none",
               "coordinator: refused -> aborted / send-abort", "-- ABORT cannot be sent",
               "coordinator: source-lost -> aborted / recover");
}

static void a_source_lost_after_the_switch_is_not_needed(void **state)
{
    TRANSCRIPT(COMMITTED, "coordinator: activated -> activated / none",
               "coordinator: source-lost -> done / finish",
               "coordinator: source-lost -> done / none");
    TRANSCRIPT(COMMITTED, "coordinator: source-lost -> released / none",
               "coordinator: source-lost -> released / none",
               "coordinator: activated -> done / finish");
}

/* -- target lost at every step ----------------------------------------------------------------- */

static void a_target_lost_before_the_switch_leaves_the_source_serving(void **state)
{
    TRANSCRIPT(PREPARED, "coordinator: target-lost -> aborted / send-abort",
               "source: abort -> serving / none", "coordinator: target-lost -> aborted / none");
    TRANSCRIPT(FROZEN, "coordinator: target-lost -> aborted / send-abort",
               "source: abort -> serving / thaw");
}

static void a_target_lost_while_the_route_is_written_is_not_missed(void **state)
{
    TRANSCRIPT(COMMITTING, "coordinator: target-lost -> committing / none",
               "coordinator: refused -> aborted / send-abort", "source: abort -> serving / thaw");
    TRANSCRIPT(COMMITTING, "coordinator: target-lost -> committing / none",
               "coordinator: route-written -> committed / send-activate",
               "-- ACTIVATE cannot be sent", "coordinator: target-lost -> done / recover");
}

static void a_target_lost_after_the_switch_is_recovered(void **state)
{
    TRANSCRIPT(COMMITTED, "coordinator: target-lost -> done / recover",
               "source: release -> tombstone / free", "coordinator: released -> done / none");
    TRANSCRIPT(COMMITTED, "coordinator: activated -> activated / none",
               "coordinator: target-lost -> done / recover");
    TRANSCRIPT(COMMITTED, "coordinator: released -> released / none",
               "coordinator: target-lost -> done / recover",
               "coordinator: target-lost -> done / recover");
}

/* -- the table --------------------------------------------------------------------------------- */

static enum migrator_side side_of(enum migrator_state state)
{
    if (state < MIGRATOR_S_SERVING)
        return MIGRATOR_COORDINATOR;
    return state < MIGRATOR_T_ABSENT ? MIGRATOR_SOURCE : MIGRATOR_TARGET;
}

static void an_event_without_a_row_is_refused_in_every_state(void **state)
{
    int known = 0;

    for (int s = 0; s < MIGRATOR_STATE_COUNT; s++)
        for (int e = 0; e < MIGRATOR_EVENT_COUNT; e++) {
            struct migrator_transition to =
                migrator_step((enum migrator_state)s, (enum migrator_event)e, true);

            known += to.action != MIGRATOR_A_REFUSE;
            if (to.action == MIGRATOR_A_REFUSE)
                assert_int_equal(to.state, s);
            assert_int_equal(side_of(to.state), side_of((enum migrator_state)s));
        }
    /* number of rows in the table; each new row needs a line in a test */
    assert_int_equal(known, 67);
}

static void events_of_another_side_are_refused(void **state)
{
    for (int s = 0; s < MIGRATOR_STATE_COUNT; s++) {
        bool coordinator = side_of((enum migrator_state)s) == MIGRATOR_COORDINATOR;

        for (int e = 0; e < MIGRATOR_EVENT_COUNT; e++) {
            if (e == MIGRATOR_E_TIMEOUT || (e < MIGRATOR_E_PREPARE) == coordinator)
                continue;
            assert_int_equal(
                migrator_step((enum migrator_state)s, (enum migrator_event)e, false).action,
                MIGRATOR_A_REFUSE);
        }
    }
}

static void numbers_outside_the_table_are_refused(void **state)
{
    static const int wrong[] = {-1, MIGRATOR_STATE_COUNT, MIGRATOR_EVENT_COUNT, 255, 1 << 30};

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        enum migrator_state s = (enum migrator_state)wrong[i];
        enum migrator_event e = (enum migrator_event)wrong[i];

        if (wrong[i] != MIGRATOR_EVENT_COUNT)
            assert_int_equal(migrator_step(s, MIGRATOR_E_ABORT, true).state, s);
        assert_int_equal(migrator_step(s, MIGRATOR_E_START, true).action, MIGRATOR_A_REFUSE);
        if (wrong[i] != MIGRATOR_STATE_COUNT)
            assert_int_equal(migrator_step(MIGRATOR_S_FROZEN, e, true).action, MIGRATOR_A_REFUSE);
    }
}

static void an_open_round_matters_to_move_alone(void **state)
{
    for (int s = 0; s < MIGRATOR_STATE_COUNT; s++)
        for (int e = 0; e < MIGRATOR_EVENT_COUNT; e++) {
            struct migrator_transition open =
                migrator_step((enum migrator_state)s, (enum migrator_event)e, true);
            struct migrator_transition idle =
                migrator_step((enum migrator_state)s, (enum migrator_event)e, false);
            bool same = open.state == idle.state && open.action == idle.action;

            assert_int_equal(same, !(s == MIGRATOR_S_SERVING && e == MIGRATOR_E_MOVE));
        }
}

static void the_owner_changes_when_the_route_is_written(void **state)
{
    for (int s = MIGRATOR_C_IDLE; s <= MIGRATOR_C_ABORTED; s++) {
        bool after = s == MIGRATOR_C_COMMITTED || s == MIGRATOR_C_ACTIVATED ||
                     s == MIGRATOR_C_RELEASED || s == MIGRATOR_C_DONE;

        assert_int_equal(migrator_owner((enum migrator_state)s),
                         after ? MIGRATOR_TARGET : MIGRATOR_SOURCE);
    }
}

static void check_names(const char *(*name_of)(int), int count)
{
    for (int i = 0; i < count; i++) {
        assert_string_not_equal(name_of(i), "unknown");
        for (int j = 0; j < i; j++)
            assert_string_not_equal(name_of(i), name_of(j));
    }
    assert_string_equal(name_of(count), "unknown");
    assert_string_equal(name_of(-1), "unknown");
}

static const char *state_name(int i) { return migrator_state_name((enum migrator_state)i); }
static const char *event_name(int i) { return migrator_event_name((enum migrator_event)i); }
static const char *action_name(int i) { return migrator_action_name((enum migrator_action)i); }

static void every_phase_event_and_action_has_a_name(void **state)
{
    check_names(state_name, MIGRATOR_STATE_COUNT);
    check_names(event_name, MIGRATOR_EVENT_COUNT);
    check_names(action_name, MIGRATOR_ACTION_COUNT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_task_moves_between_two_rounds),
        cmocka_unit_test(a_task_moves_after_its_open_round),
        cmocka_unit_test(the_source_may_release_the_task_before_the_target_serves_it),
        cmocka_unit_test(training_goes_on_until_the_freeze),
        cmocka_unit_test(a_tombstone_goes_at_the_latest_when_its_time_is_up),
        cmocka_unit_test(an_announcement_at_a_frozen_source_waits_and_is_served_after_an_abort),
        cmocka_unit_test(an_announcement_at_a_tombstone_is_sent_on),
        cmocka_unit_test(an_announcement_at_the_target_waits_for_the_activation),
        cmocka_unit_test(an_abort_while_preparing_leaves_the_source_serving),
        cmocka_unit_test(an_abort_while_the_round_is_finished_thaws_the_source),
        cmocka_unit_test(an_abort_overtakes_the_moving_state),
        cmocka_unit_test(an_abort_after_the_state_is_installed_drops_the_state),
        cmocka_unit_test(a_store_that_refuses_the_route_aborts),
        cmocka_unit_test(a_route_on_its_way_to_the_store_is_waited_for),
        cmocka_unit_test(after_the_switch_nothing_aborts),
        cmocka_unit_test(repeated_events_after_the_switch_do_no_harm),
        cmocka_unit_test(a_source_lost_while_preparing_is_recovered),
        cmocka_unit_test(a_source_lost_while_moving_is_recovered),
        cmocka_unit_test(a_source_lost_while_the_route_is_written_is_not_missed),
        cmocka_unit_test(a_source_lost_after_the_switch_is_not_needed),
        cmocka_unit_test(a_target_lost_before_the_switch_leaves_the_source_serving),
        cmocka_unit_test(a_target_lost_while_the_route_is_written_is_not_missed),
        cmocka_unit_test(a_target_lost_after_the_switch_is_recovered),
        cmocka_unit_test(an_event_without_a_row_is_refused_in_every_state),
        cmocka_unit_test(events_of_another_side_are_refused),
        cmocka_unit_test(numbers_outside_the_table_are_refused),
        cmocka_unit_test(an_open_round_matters_to_move_alone),
        cmocka_unit_test(the_owner_changes_when_the_route_is_written),
        cmocka_unit_test(every_phase_event_and_action_has_a_name),
    };

    return cmocka_run_group_tests_name("migrator", tests, NULL, NULL);
}
