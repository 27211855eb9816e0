/* Tests workers that join and leave a job on a lane (A40 to A44 of svc/lane): rounds of the
 * remaining ranks, copies of results, and the entry of late workers. */
#include "svc/lane/job/table.h"
#include "svc/lane/move/moved_state.h"
#include "svc/lane/move/regroup.h"
#include "svc/lane/move/release.h"
#include "test/unit/lane/lane_rig.h"
#include "test/unit/skip.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* number of elements that need several turns of a lane */
#define LONG (RIG_LANDING / sizeof(float))
#define SHORT 1000
#define RANKS 4 /* maximum number of ranks in the job */

static const char *kind;
static struct rig rig;
static struct lane_piece spec;
static uint64_t set[RECORD_MISSING_WORDS];
static uint32_t epoch;
static const uint32_t piece = 1;

static int stop(void **state)
{
    rig_stop(&rig);
    return 0;
}

static void choose(uint64_t ranks)
{
    memset(set, 0, sizeof set);
    set[0] = ranks;
    spec.ranks = set;
}

static void start(uint64_t ranks, uint64_t elements, struct lane_terms terms)
{
    spec = (struct lane_piece){
        .id = piece, .dtype = REDUCE_F32, .elements = elements, .tensor = "w", .terms = terms};
    choose(ranks);
    epoch = 1;
    rig_start(&rig, kind);
    rig_place_piece(&rig, RANKS, spec, false);
    lane_set_elastic(rig.lane, RIG_JOB);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        if (ranks >> rank & 1)
            rig_connect(&rig, rank, RIG_JOB, rank);
    }
    rig.count = RANKS;
}

/* A word contains round and epoch, so each epoch has other words for the same round. */
static uint32_t word_of(uint64_t round) { return epoch * 1000 + (uint32_t)round; }

static void say(uint32_t rank, uint64_t round, uint8_t operation, uint8_t standing)
{
    bool is_idle = standing == RECORD_IDLE || standing == RECORD_ENTERS;
    bool is_set = operation == RECORD_BROADCAST;
    rig_say(&rig, rank,
            (struct say){.piece = piece,
                         .word = word_of(round),
                         .round = round,
                         .elements = is_idle ? 0 : spec.elements,
                         .operation = operation,
                         .standing = standing,
                         .epoch = epoch,
                         .has_no_input = is_idle || (is_set && rank > 0),
                         .has_no_output = is_idle || (is_set && rank == 0)});
}

static void stand(uint32_t rank, uint64_t round, uint8_t standing)
{
    say(rank, round, spec.terms.rule ? RECORD_UPDATE : RECORD_SUM, standing);
}

static void fill(uint32_t rank, float value)
{
    for (uint64_t e = 0; e < spec.elements; e++)
        rig_input(&rig, rank, 0)[e] = value;
}

static void push(uint32_t rank, uint64_t round, float value)
{
    fill(rank, value);
    say(rank, round, RECORD_SUM, RECORD_ANNOUNCE);
}

static void expect(uint32_t rank, float value)
{
    for (uint64_t e = 0; e < spec.elements; e++) {
        if (rig_landing(&rig, rank, 0)[e] != value)
            fail_msg("rank %u element %llu: %.9g, not %.9g", rank, (unsigned long long)e,
                     rig_landing(&rig, rank, 0)[e], value);
    }
}

static void expect_commit(uint32_t rank, uint64_t round)
{
    const struct rig_worker *w = &rig.workers[rank];
    rig_until(&rig, w->commits_count > 0 && w->commits[w->commits_count - 1] == word_of(round));
    assert_int_equal(w->errors_count, 0);
}

static void expect_entry(uint32_t rank, uint64_t round)
{
    const struct rig_worker *w = &rig.workers[rank];
    rig_until(&rig, w->closed_count == 1);
    assert_int_equal(w->closed[0].word, word_of(0));
    assert_int_equal(w->closed[0].round, round);
}

static uint32_t lost;

static void note_lost(void *context, const struct lane_lost *said)
{
    assert_int_equal(said->job, RIG_JOB);
    lost |= 1u << said->rank;
}

static uint32_t lost_now(void)
{
    lost = 0;
    lane_each_lost(rig.lane, note_lost, NULL);
    return lost;
}

static void kill_worker(uint32_t rank)
{
    fabric_disconnect(rig.workers[rank].conn);
    rig_until(&rig, lost_now() == 1u << rank);
}

static void regroup(uint64_t ranks, uint64_t gone_ranks)
{
    const uint64_t gone[RECORD_MISSING_WORDS] = {gone_ranks};
    assert_int_equal(lane_release(rig.lane, RIG_JOB, &piece, 1), 0);
    lane_let_go(rig.lane, RIG_JOB, gone);
    rig_until(&rig, lane_rested(rig.lane, RIG_JOB, &piece, 1) == 1);
    choose(ranks);
    assert_int_equal(lane_regroup(rig.lane, RIG_JOB, ++epoch, &spec, 1), 0);
    assert_int_equal(lost_now() & gone_ranks, 0);
}

static void do_round(uint64_t round, uint64_t ranks, float sum)
{
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        if (ranks >> rank & 1)
            push(rank, round, (float)(rank + 1));
    }
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        if (!(ranks >> rank & 1))
            continue;
        expect_commit(rank, round);
        expect(rank, sum);
    }
}

/* ---- lost ranks ---- */

static void a_lost_rank_is_reported_and_fails_no_round(void **state)
{
    start(7, SHORT, (struct lane_terms){0});
    do_round(1, 7, 6);
    push(0, 2, 1);
    push(1, 2, 2);
    kill_worker(2);
    rig_settle(&rig);
    assert_true(rig.failures >= 1); /* the coordinator has received the failure */
    assert_int_equal(rig.workers[0].errors_count + rig.workers[1].errors_count, 0);
}

static void a_round_without_a_result_is_made_by_the_remaining_ranks(void **state)
{
    start(7, SHORT, (struct lane_terms){0});
    do_round(1, 7, 6);
    push(0, 2, 1);
    push(1, 2, 2);
    kill_worker(2);
    regroup(3, 4);
    do_round(2, 3, 3);
    do_round(3, 3, 3);
}

static void a_round_with_a_result_keeps_its_result(void **state)
{
    start(7, SHORT, (struct lane_terms){0});
    do_round(1, 7, 6);
    kill_worker(2);
    regroup(3, 4);
    /* changes the input, because the lane must not sum the input again */
    rig_landing(&rig, 0, 0)[7] = 42;
    stand(0, 1, RECORD_HOLDS);
    stand(1, 1, RECORD_ANNOUNCE);
    expect_commit(0, 1);
    expect_commit(1, 1);
    assert_true(rig_landing(&rig, 1, 0)[7] == 42);
    do_round(2, 3, 3);
}

static void a_round_under_way_is_given_up_with_the_rank_that_is_lost(void **state)
{
    start(7, LONG, (struct lane_terms){0});
    for (uint32_t rank = 0; rank < 3; rank++)
        push(rank, 1, 1);
    rig_until_busy(&rig);
    kill_worker(2);
    rig_settle(&rig);
    assert_int_equal(rig.workers[0].errors_count + rig.workers[1].errors_count, 0);
    regroup(3, 4);
    do_round(1, 3, 3);
}

static void a_rank_reported_as_gone_is_disconnected(void **state)
{
    start(7, SHORT, (struct lane_terms){0});
    do_round(1, 7, 6);
    regroup(3, 4);
    rig_until(&rig, rig.workers[2].is_closed);
    assert_int_equal(lost_now(), 0);
    do_round(2, 3, 3);
}

static void a_goodbye_fails_nothing_either(void **state)
{
    const struct record_leave leave = {.kind = RECORD_LEAVE};
    start(7, SHORT, (struct lane_terms){0});
    do_round(1, 7, 6);
    push(0, 2, 1);
    assert_int_equal(fabric_send(rig.workers[2].conn, &leave, sizeof leave, NULL, 0), 0);
    fabric_flush(rig.workers[2].fabric);
    rig_settle(&rig);
    push(1, 2, 2);
    rig_settle(&rig);
    assert_int_equal(rig.workers[0].errors_count + rig.workers[1].errors_count, 0);
    regroup(3, 4);
    do_round(2, 3, 3);
}

/* ---- late workers ---- */

static void expect_missing(uint32_t rank, uint64_t ranks)
{
    const struct record_query query = {.kind = RECORD_QUERY, .word = word_of(0), .piece = piece};
    assert_int_equal(fabric_send(rig.workers[rank].conn, &query, sizeof query, NULL, 0), 0);
    rig_until(&rig, rig.workers[rank].missing_count == 1);
    assert_int_equal(rig.workers[rank].missing.ranks[0], ranks);
}

static void a_new_rank_enters_after_the_completed_round(void **state)
{
    start(3, SHORT, (struct lane_terms){0});
    do_round(1, 3, 3);
    do_round(2, 3, 3);
    regroup(11, 0);
    rig_connect(&rig, 3, RIG_JOB, 3);
    stand(3, 0, RECORD_ENTERS);
    push(0, 3, 1);
    rig_settle(&rig);
    assert_int_equal(rig.workers[3].closed_count, 0);
    expect_missing(3, 1 << 1);
    push(1, 3, 2);
    expect_entry(3, 2);
    rig_settle(&rig);
    assert_int_equal(rig.workers[0].commits_count, 2); /* the round waits for the late worker */
    do_round(3, 11, 7);
}

static void a_copied_round_needs_no_new_rank(void **state)
{
    start(3, SHORT, (struct lane_terms){0});
    do_round(1, 3, 3);
    regroup(11, 0);
    rig_connect(&rig, 3, RIG_JOB, 3);
    stand(0, 1, RECORD_HOLDS);
    stand(1, 1, RECORD_ANNOUNCE);
    stand(3, 0, RECORD_ENTERS);
    expect_entry(3, 1);
    expect_commit(0, 1);
    expect_commit(1, 1);
    do_round(2, 11, 7);
}

static void come_back(uint32_t rank)
{
    struct rig_worker *w = &rig.workers[rank];
    rig_until(&rig, w->is_closed);
    fabric_close(w->fabric);
    region_destroy(&w->region);
    *w = (struct rig_worker){0};
    rig_connect(&rig, rank, RIG_JOB, rank);
}

static void a_lost_rank_may_come_back(void **state)
{
    start(7, SHORT, (struct lane_terms){0});
    do_round(1, 7, 6);
    kill_worker(1);
    regroup(5, 2);
    do_round(2, 5, 4);
    regroup(7, 0);
    come_back(1);
    stand(0, 2, RECORD_IDLE);
    stand(1, 0, RECORD_ENTERS);
    stand(2, 2, RECORD_IDLE);
    expect_entry(1, 2);
    do_round(3, 7, 6);
}

/* ---- parameters ---- */

static const struct update_settings halve = {.rate = 0.5};

static void tell_settings(uint32_t rank)
{
    const struct record_settings record = {.kind = RECORD_SETTINGS, .rate = halve.rate};
    assert_int_equal(fabric_send(rig.workers[rank].conn, &record, sizeof record, NULL, 0), 0);
}

static void start_parameters(uint64_t elements)
{
    start(7, elements, (struct lane_terms){.rule = UPDATE_SGD});
    tell_settings(0);
    fill(0, 100);
    for (uint32_t rank = 0; rank < 3; rank++)
        say(rank, 1, RECORD_BROADCAST, RECORD_ANNOUNCE);
    for (uint32_t rank = 0; rank < 3; rank++)
        expect_commit(rank, 1);
}

static void settings_stay_unset_until_a_rank_sends_them(void **state)
{
    start(7, SHORT, (struct lane_terms){.rule = UPDATE_SGD});
    for (uint32_t rank = 0; rank < 3; rank++)
        say(rank, 1, RECORD_BROADCAST, RECORD_ANNOUNCE);
    expect_commit(0, 1);
    say(0, 2, RECORD_UPDATE, RECORD_ANNOUNCE);
    rig_until(&rig, rig.workers[0].errors_count == 1);
    assert_int_equal(rig.workers[0].error.code, -EINVAL);
}

static void update(uint64_t ranks, uint64_t round, float gradient)
{
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        if (!(ranks >> rank & 1))
            continue;
        fill(rank, gradient);
        say(rank, round, RECORD_UPDATE, RECORD_ANNOUNCE);
    }
}

static void parameters_stay_and_the_next_first_rank_goes_on_with_the_settings(void **state)
{
    start_parameters(SHORT);
    update(7, 2, 20);
    expect_commit(1, 2);
    expect(1, 90);
    kill_worker(0);
    regroup(6, 1);
    update(6, 3, 40);
    expect_commit(1, 3);
    expect_commit(2, 3);
    expect(1, 70);
    expect(2, 70);
}

static void a_repeated_step_starts_from_the_parameters_before_the_step(void **state)
{
    start_parameters(SHORT);
    update(7, 2, 20);
    expect_commit(1, 2);
    kill_worker(2);
    regroup(3, 4);
    update(3, 2, 40); /* another piece of the tensor is one round behind */
    expect_commit(0, 2);
    expect_commit(1, 2);
    expect(1, 80);
    update(3, 3, 20);
    expect_commit(0, 3);
    expect(0, 70);
}

static void a_step_that_a_rank_holds_is_kept(void **state)
{
    start_parameters(SHORT);
    update(7, 2, 20);
    expect_commit(0, 2);
    kill_worker(2);
    regroup(3, 4);
    stand(0, 2, RECORD_IDLE);
    stand(1, 2, RECORD_ANNOUNCE);
    expect_commit(1, 2);
    update(3, 3, 20);
    expect_commit(0, 3);
    expect(0, 80);
}

/* offset of both states of one array, between input and landing area */
#define COPY_AT (RIG_LANDING / 2)

static void offer(uint32_t rank)
{
    const uint64_t bytes = spec.elements * sizeof(float);
    const struct record_backup told = {
        .kind = RECORD_BACKUP, .piece = piece, .offset = {COPY_AT, COPY_AT + bytes}};
    assert_int_equal(fabric_send(rig.workers[rank].conn, &told, sizeof told, NULL, 0), 0);
}

static void expect_copy(uint32_t rank, uint64_t round, float value)
{
    const float *copy = rig_input(&rig, rank, COPY_AT) + (round & 1) * SHORT;
    for (uint64_t e = 0; e < SHORT; e++)
        assert_true(copy[e] == value);
}

static void expect_backed(uint32_t rank, int count, uint64_t round, float value)
{
    const struct rig_worker *w = &rig.workers[rank];
    rig_until(&rig, w->backed_count == count);
    assert_int_equal(w->backed.round, round);
    assert_int_equal(w->backed.steps, round - 1);
    expect_copy(rank, round, value);
}

static void a_copy_stays_with_its_rank_and_moves_when_the_rank_has_left(void **state)
{
    start_parameters(SHORT);
    offer(2);
    expect_backed(2, 1, 1, 100);
    update(7, 2, 20);
    expect_commit(2, 2);
    expect_copy(2, 2, 90);
    kill_worker(0);
    regroup(6, 1);
    offer(1); /* the next rank after the lost rank */
    offer(2);
    update(6, 3, 20);
    expect_commit(2, 3);
    expect_copy(2, 3, 80);
    kill_worker(2);
    regroup(2, 4);
    offer(1);
    stand(1, 3, RECORD_IDLE);
    expect_backed(1, 1, 3, 80); /* the lane writes the copy before any round */
    update(2, 4, 20);
    expect_commit(1, 4);
    expect_copy(1, 4, 70);
}

static void a_step_that_is_done_again_is_copied_before_and_after(void **state)
{
    start_parameters(SHORT);
    update(7, 2, 20);
    expect_commit(1, 2);
    kill_worker(2);
    regroup(3, 4);
    offer(0);
    update(3, 2, 40);
    expect_backed(0, 1, 1, 100);
    expect_commit(0, 2);
    expect_copy(0, 2, 80);
}

/* Rank 2 is lost. Rank 3 enters in its place, and offers memory for the copy. */
static void replace_by_who_has_room(void)
{
    kill_worker(2);
    regroup(11, 4);
    rig_connect(&rig, 3, RIG_JOB, 3);
    offer(3);
    stand(3, 0, RECORD_ENTERS);
    stand(0, 2, RECORD_HOLDS); /* only this rank has the result, and it has no commit */
    stand(1, 2, RECORD_ANNOUNCE);
}

static void a_rank_that_enters_a_copied_round_gets_the_steps_after_it(void **state)
{
    start_parameters(SHORT);
    update(7, 2, 20);
    expect_commit(1, 2);
    replace_by_who_has_room();
    expect_commit(1, 2);
    expect(1, 90);
    rig_until(&rig, rig.workers[3].closed_count == 1);
    rig_until(&rig, rig.workers[3].backed.round == 2);
    assert_int_equal(rig.workers[3].backed.steps, 1);
    expect_copy(3, 2, 90);
}

/* The lost late worker was receiving a copy of the state, which must not delay other ranks. */
static void a_late_worker_that_is_lost_with_a_copy_delays_no_rank(void **state)
{
    start_parameters(LONG / 4);
    if (strcmp(kind, "shm") == 0)
        skip_because("over shared memory all of it is copied in one turn of the lane");
    update(7, 2, 20);
    expect_commit(1, 2);
    replace_by_who_has_room();
    const struct piece *p = piece_find(job_find(rig.lane, RIG_JOB), piece);
    rig_until(&rig, p->is_copy && p->chunks_active > 0);
    kill_worker(3);
    regroup(3, 8);
    stand(0, 2, RECORD_HOLDS);
    stand(1, 2, RECORD_ANNOUNCE);
    expect_commit(1, 2);
    expect(1, 90);
}

static int may_leave(void) { return lane_may_leave(rig.lane, RIG_JOB, &piece, 1); }

static void parameters_do_not_move_before_new_ranks_have_reported_their_standing(void **state)
{
    struct lane_standing standing;
    start_parameters(SHORT);
    update(7, 2, 20);
    expect_commit(1, 2);
    assert_int_equal(may_leave(), 0);
    kill_worker(2);
    regroup(3, 4);
    assert_int_equal(may_leave(), -EAGAIN);
    stand(0, 2, RECORD_IDLE);
    rig_settle(&rig);
    assert_int_equal(may_leave(), -EAGAIN);
    stand(1, 2, RECORD_IDLE);
    rig_settle(&rig);
    assert_int_equal(may_leave(), 0);
    assert_int_equal(lane_release(rig.lane, RIG_JOB, &piece, 1), 0);
    assert_int_equal(lane_standing(rig.lane, RIG_JOB, piece, &standing), 0);
    assert_int_equal(standing.round, 2);
    assert_true(standing.state_bytes > SHORT * sizeof(float));
}

static void a_piece_without_state_may_move_at_any_time(void **state)
{
    start(7, SHORT, (struct lane_terms){0});
    do_round(1, 7, 6);
    regroup(3, 4);
    assert_int_equal(may_leave(), 0);
}

/* ---- running sums ---- */

static void a_running_sum_continues_and_a_new_rank_starts_at_the_slowest_clock(void **state)
{
    start(3, SHORT, (struct lane_terms){.quorum = QUORUM_ANY});
    push(0, 1, 1);
    expect_commit(0, 1);
    push(0, 2, 1);
    expect_commit(0, 2);
    push(1, 1, 10);
    expect_commit(1, 1);
    expect(1, 12);
    regroup(11, 0);
    rig_connect(&rig, 3, RIG_JOB, 3);
    stand(3, 0, RECORD_ENTERS);
    expect_entry(3, 1);
    push(3, 2, 100);
    expect_commit(3, 2);
    expect(3, 112);
    push(0, 3, 1);
    expect_commit(0, 3);
    expect(0, 113);
}

#define CASE(test) cmocka_unit_test_teardown(test, stop)

int main(int argc, char **argv)
{
    kind = argc > 1 ? argv[1] : "shm";
    const struct CMUnitTest tests[] = {
        CASE(a_lost_rank_is_reported_and_fails_no_round),
        CASE(a_round_without_a_result_is_made_by_the_remaining_ranks),
        CASE(a_round_with_a_result_keeps_its_result),
        CASE(a_round_under_way_is_given_up_with_the_rank_that_is_lost),
        CASE(a_rank_reported_as_gone_is_disconnected),
        CASE(a_goodbye_fails_nothing_either),
        CASE(a_new_rank_enters_after_the_completed_round),
        CASE(a_copied_round_needs_no_new_rank),
        CASE(a_lost_rank_may_come_back),
        CASE(parameters_stay_and_the_next_first_rank_goes_on_with_the_settings),
        CASE(settings_stay_unset_until_a_rank_sends_them),
        CASE(a_repeated_step_starts_from_the_parameters_before_the_step),
        CASE(a_step_that_a_rank_holds_is_kept),
        CASE(a_copy_stays_with_its_rank_and_moves_when_the_rank_has_left),
        CASE(a_step_that_is_done_again_is_copied_before_and_after),
        CASE(a_rank_that_enters_a_copied_round_gets_the_steps_after_it),
        CASE(a_late_worker_that_is_lost_with_a_copy_delays_no_rank),
        CASE(parameters_do_not_move_before_new_ranks_have_reported_their_standing),
        CASE(a_piece_without_state_may_move_at_any_time),
        CASE(a_running_sum_continues_and_a_new_rank_starts_at_the_slowest_clock),
    };
    return cmocka_run_group_tests_name(kind, tests, NULL, NULL);
}
