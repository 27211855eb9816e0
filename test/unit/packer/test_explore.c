/* Tests the rules for slow lanes: RULES.md of packer, X1 to X10. The test sets the speed of the
 * lanes. A round takes its compute time plus the time of its slowest lane. A seed determines the
 * noise. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "packer/explore/explore.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS 1e6
#define LANES 5
#define PIECES 64
#define WORKERS 8
#define LOOK_ROUNDS 13

struct world {
    struct explore explore;
    struct explore_options options;
    struct explore_piece pieces[PIECES];
    uint32_t undo[PIECES];
    size_t lanes;
    uint64_t room[LANES];
    double speed[LANES];   /* bytes per ns */
    double late_ns[LANES]; /* delay of the lane, which does not depend on its number of pieces */
    double piece_late_ns;  /* delay that the first piece has on any lane */
    double compute_ns, noise;
    uint64_t seed, now_ns, membership;
    size_t kept, rolled, tried;
    struct explore_decision last; /* last decision other than EXPLORE_NOTHING */
};

static double normal(void)
{
    double sum = 0;
    for (int i = 0; i < 12; i++)
        sum += drand48();
    return sum - 6;
}

static void set_up(struct world *w, size_t lanes)
{
    *w = (struct world){.lanes = lanes, .compute_ns = 30 * MS, .noise = 0.01, .seed = 7};
    for (size_t i = 0; i < PIECES; i++)
        w->pieces[i] = (struct explore_piece){.lane = (uint32_t)(i % 4), .bytes = 1000};
    for (size_t i = 0; i < LANES; i++) {
        w->speed[i] = 16000 / (10 * MS); /* at this speed a quarter of the bytes takes 10 ms */
        w->room[i] = UINT64_MAX;
    }
    srand48(7);
}

static double lane_ns(const struct world *w, size_t lane)
{
    double bytes = 0;
    for (size_t i = 0; i < PIECES; i++)
        bytes += w->pieces[i].lane == lane ? (double)w->pieces[i].bytes : 0;
    double late_ns = w->late_ns[lane] + (w->pieces[0].lane == lane ? w->piece_late_ns : 0);
    return bytes > 0 ? bytes / w->speed[lane] + late_ns : 0;
}

static double round_ns(const struct world *w, size_t *ret_slowest)
{
    double most = 0;
    *ret_slowest = 0;
    for (size_t i = 0; i < w->lanes; i++) {
        double ns = lane_ns(w, i);
        *ret_slowest = ns > most ? i : *ret_slowest;
        most = ns > most ? ns : most;
    }
    return w->compute_ns + most;
}

static double speed_of_all(const struct world *w)
{
    size_t slowest;
    return round_ns(w, &slowest);
}

static struct explore_decision look(struct world *w, struct explore_move *moves)
{
    struct explore_lane lanes[LANES] = {0};
    struct explore_decision d;
    size_t slowest;
    double ns = round_ns(w, &slowest);
    double longest = ns - w->compute_ns;
    ns *= 1 + w->noise * normal();
    for (size_t i = 0; i < w->lanes; i++) {
        lanes[i] = (struct explore_lane){.id = (uint32_t)i + 1, .room_bytes = w->room[i]};
        lanes[i].handled_ns =
            (uint64_t)(lane_ns(w, i) * LOOK_ROUNDS * fabs(1 + w->noise * normal()));
    }
    lanes[slowest].stalled_ns = (uint64_t)(longest * LOOK_ROUNDS * WORKERS);
    w->now_ns += (uint64_t)(ns * LOOK_ROUNDS);
    const struct explore_seen seen = {.membership = w->membership,
                                      .workers = WORKERS,
                                      .rounds = LOOK_ROUNDS,
                                      .elapsed_ns = (uint64_t)(ns * LOOK_ROUNDS),
                                      .lanes = lanes,
                                      .lanes_count = w->lanes,
                                      .pieces = w->pieces,
                                      .pieces_count = PIECES};
    assert_int_equal(explore_tick(&w->explore, &w->options, &seen, w->seed, w->now_ns, moves, &d),
                     0);
    return d;
}

static void carry_out(struct world *w, const struct explore_decision *d,
                      const struct explore_move *moves)
{
    if (d->verb == EXPLORE_MOVE)
        for (size_t i = 0; i < PIECES; i++)
            w->undo[i] = w->pieces[i].lane;
    for (size_t i = 0; d->verb == EXPLORE_MOVE && i < d->moves_count; i++)
        w->pieces[moves[i].piece].lane = moves[i].lane;
    for (size_t i = 0; d->verb == EXPLORE_BACK && i < PIECES; i++)
        w->pieces[i].lane = w->undo[i];
    w->tried += d->verb == EXPLORE_MOVE;
    w->kept += d->verb == EXPLORE_KEEP;
    w->rolled += d->verb == EXPLORE_BACK;
    explore_moved(&w->explore, true);
}

/* Runs the world. A window ends after four calls. */
static void run(struct world *w, size_t looks)
{
    struct explore_move moves[PIECES];
    for (size_t i = 0; i < looks; i++) {
        struct explore_decision d = look(w, moves);
        if (d.verb == EXPLORE_NOTHING)
            continue;
        carry_out(w, &d, moves);
        w->last = d;
    }
}

static void no_change_is_tried_without_a_slow_lane(void **state)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct world w;
        set_up(&w, 4);
        w.seed = seed;
        srand48((long)seed);
        w.noise = 0.05;
        run(&w, 800);
        assert_int_equal(w.tried, 0);
    }
}

static void a_slow_lane_is_relieved_within_five_windows(void **state)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct world w;
        set_up(&w, 4);
        srand48((long)seed);
        double before = speed_of_all(&w);
        run(&w, 40);
        w.speed[2] /= 4;
        run(&w, 20);
        assert_true(before / speed_of_all(&w) >= 0.85);
        assert_true(w.kept >= 1);
    }
}

/* The piece itself is slow, so a move of the other pieces of its lane would not make this piece
 * faster. */
static void a_slow_piece_is_left_alone_where_it_is(void **state)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct world w;
        set_up(&w, 4);
        srand48((long)seed);
        run(&w, 40);
        w.piece_late_ns = 20 * MS;
        double slow = speed_of_all(&w);
        run(&w, 60);
        assert_true(speed_of_all(&w) < slow - 5 * MS);
        assert_true(w.kept >= 1);
    }
}

static void pieces_return_to_a_lane_that_recovers(void **state)
{
    struct world w;
    set_up(&w, 4);
    double before = speed_of_all(&w);
    w.speed[1] /= 4;
    run(&w, 60);
    w.speed[1] *= 4;
    run(&w, 80);
    assert_true(before / speed_of_all(&w) >= 0.95);
}

static void a_skewed_start_is_evened_out(void **state)
{
    struct world w;
    set_up(&w, 4);
    double even = speed_of_all(&w);
    for (size_t i = 0; i < PIECES; i++)
        w.pieces[i].lane = i < 52 ? 0 : 1 + i % 3;
    run(&w, 60);
    assert_true(even / speed_of_all(&w) >= 0.95);
}

static void moves_of_large_pieces_make_the_job_faster(void **state)
{
    for (uint64_t seed = 1; seed <= 50; seed++) {
        struct world w;
        set_up(&w, 4);
        srand48((long)seed);
        for (size_t i = 0; i < PIECES; i++)
            w.pieces[i].bytes = 100 + (uint64_t)(drand48() * drand48() * 4000);
        w.speed[3] /= 4;
        double before = speed_of_all(&w);
        run(&w, 80);
        assert_true(speed_of_all(&w) < before);
    }
}

/* The test puts all pieces back after each experiment, so rounds always have the same length. */
static void a_change_without_a_gain_is_undone(void **state)
{
    struct explore_move moves[PIECES];
    struct world w;
    set_up(&w, 4);
    w.speed[0] /= 4;
    uint32_t start[PIECES];
    for (size_t i = 0; i < PIECES; i++)
        start[i] = w.pieces[i].lane;
    for (size_t i = 0; i < 200; i++) {
        struct explore_decision d = look(&w, moves);
        if (d.verb == EXPLORE_MOVE) {
            carry_out(&w, &d, moves);
            /* puts the piece back, so the experiment has no effect */
            for (size_t k = 0; k < PIECES; k++)
                w.pieces[k].lane = start[k];
            memcpy(w.undo, start, sizeof start);
        } else if (d.verb != EXPLORE_NOTHING) {
            carry_out(&w, &d, moves);
        }
    }
    assert_int_equal(w.kept, 0);
    assert_true(w.rolled >= 1);
    assert_true(w.tried <= 10); /* experiments become rare */
}

static void overlapping_memory_is_never_kept(void **state)
{
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct explore_move moves[PIECES];
        struct world w;
        set_up(&w, LANES);
        w.seed = seed;
        srand48((long)seed);
        w.noise = 0.02 + 0.2 * drand48();
        for (size_t i = 0; i < LANES; i++)
            w.speed[i] *= 0.2 + drand48();
        struct explore_meter before = {0};
        for (size_t i = 0; i < 200; i++) {
            struct explore_meter round = w.explore.round;
            struct explore_decision d = look(&w, moves);
            if (d.verb == EXPLORE_MOVE)
                before = w.explore.before;
            if (d.verb == EXPLORE_KEEP)
                assert_true(d.after_ns < d.before_ns - explore_meter_half(&before));
            assert_true(d.verb != EXPLORE_KEEP || round.samples == EXPLORE_SAMPLES - 1);
            if (d.verb != EXPLORE_NOTHING)
                carry_out(&w, &d, moves);
        }
    }
}

/* Simulates lanes whose cores other processes use. The wait for a core is the same for one piece
 * and for many pieces. */
static void lanes_that_are_late_with_any_load_are_emptied(void **state)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct world w;
        set_up(&w, 4);
        srand48((long)seed);
        w.noise = 0.05;
        w.late_ns[1] = w.late_ns[3] = 30 * MS;
        run(&w, 80);
        assert_true(w.kept >= 1);
        /* a round took 70 ms before; without pieces on these lanes it takes 50 ms */
        assert_true(speed_of_all(&w) < 55 * MS);
    }
}

static void no_lane_gets_more_than_its_room(void **state)
{
    struct world w;
    set_up(&w, 4);
    w.speed[0] /= 8;
    w.room[1] = 0;
    w.room[2] = 1500;
    run(&w, 5);
    assert_int_equal(w.tried, 1);
    size_t on[LANES] = {0};
    for (size_t i = 0; i < PIECES; i++)
        on[w.pieces[i].lane]++;
    assert_int_equal(on[1], 16);
    assert_true(on[2] <= 17);
    assert_true(on[3] > 16);
}

static void a_change_of_membership_discards_the_experiment(void **state)
{
    struct world w;
    set_up(&w, 4);
    w.speed[0] /= 4;
    run(&w, 5);
    assert_int_equal(w.tried, 1);
    w.membership++;
    run(&w, 3);
    assert_int_equal(w.kept + w.rolled, 0);
    assert_int_equal(w.explore.phase, EXPLORE_WATCHING);
}

static void no_decision_is_made_while_tasks_move(void **state)
{
    struct explore_move moves[PIECES];
    struct world w;
    set_up(&w, 4);
    w.speed[0] /= 4;
    while (look(&w, moves).verb != EXPLORE_MOVE) {
    }
    for (int i = 0; i < 20; i++)
        assert_int_equal(look(&w, moves).verb, EXPLORE_NOTHING);
    explore_moved(&w.explore, false);
    assert_int_equal(w.explore.phase, EXPLORE_WATCHING);
}

static void a_pause_is_no_long_round(void **state)
{
    struct explore_move moves[PIECES];
    struct world w;
    set_up(&w, 4);
    run(&w, 3);
    w.now_ns += 2 * EXPLORE_GAP_NS;
    look(&w, moves);
    assert_int_equal(w.explore.round.samples, 0);
}

static void an_additional_lane_is_tried_when_lanes_are_even_and_workers_wait(void **state)
{
    for (uint64_t seed = 1; seed <= 10; seed++) {
        struct world w;
        set_up(&w, LANES);
        w.seed = seed;
        w.compute_ns = 5 * MS;
        for (int i = 0; i < LANES; i++)
            w.speed[i] /= 8;
        run(&w, 600);
        assert_int_equal(w.kept, 1);
        assert_int_equal(w.last.method, EXPLORE_OUT);
        assert_true(speed_of_all(&w) < 76 * MS); /* a round took 85 ms before */
    }
}

static void a_blind_job_keeps_every_change_without_a_comparison(void **state)
{
    struct world w;
    set_up(&w, 4);
    w.options.is_blind = true;
    w.speed[0] /= 4;
    run(&w, 60);
    assert_true(w.kept >= 1);
    assert_int_equal(w.rolled, 0);
}

static void the_same_calls_give_the_same_decisions(void **state)
{
    struct world a, b;
    set_up(&a, LANES);
    a.speed[1] /= 3;
    run(&a, 100);
    set_up(&b, LANES);
    b.speed[1] /= 3;
    run(&b, 100);
    assert_memory_equal(a.pieces, b.pieces, sizeof a.pieces);
    assert_string_equal(a.last.reason, b.last.reason);
}

static void reasons_have_lane_times_and_the_decision(void **state)
{
    struct explore_move moves[PIECES];
    struct explore_decision d;
    struct world w;
    set_up(&w, 4);
    w.noise = 0;
    w.speed[2] /= 4;
    while ((d = look(&w, moves)).verb != EXPLORE_MOVE)
        assert_string_equal(d.reason, "the window continues");
    assert_string_equal(
        d.reason, "lane 3 needs 40.00 ms a round; with equal times on all lanes, it would need "
                  "12.31 ms; a worker waits 40.00 of 70.00 ms: experiment even; pieces that "
                  "move: 11");
    carry_out(&w, &d, moves);
    while ((d = look(&w, moves)).verb == EXPLORE_NOTHING) {
    }
    assert_string_equal(
        d.reason,
        "experiment even: a round takes 42.50 ms (+- 0.00), before 70.00 (+- 0.00): kept");
}

static void nonsense_is_refused(void **state)
{
    struct explore e = {0};
    struct explore_decision d;
    const struct explore_lane lanes[] = {{.id = 2}, {.id = 2}};
    const struct explore_piece piece = {.lane = 9};
    struct explore_seen seen = {.workers = 1, .rounds = 1, .lanes = lanes, .lanes_count = 2};
    const struct explore_options o = {0};
    assert_true(explore_tick(&e, &o, &seen, 0, 0, NULL, &d) < 0);
    seen.lanes_count = 1;
    seen.pieces = &piece;
    seen.pieces_count = 1;
    assert_true(explore_tick(&e, &o, &seen, 0, 0, NULL, &d) < 0);
    seen.pieces_count = 0;
    seen.workers = 0;
    assert_true(explore_tick(&e, &o, &seen, 0, 0, NULL, &d) < 0);
}

static void means_are_weighted_and_halves_shrink(void **state)
{
    struct explore_meter m = {0};
    explore_meter_add(&m, 1, 10);
    assert_true(explore_meter_half(&m) > 1e300);
    explore_meter_add(&m, 3, 20);
    assert_true(fabs(m.mean - 17.5) < 1e-9);
    double two = explore_meter_half(&m);
    for (int i = 0; i < 100; i++) {
        explore_meter_add(&m, 1, 10);
        explore_meter_add(&m, 3, 20);
    }
    assert_true(explore_meter_half(&m) < two / 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_change_is_tried_without_a_slow_lane),
        cmocka_unit_test(a_slow_lane_is_relieved_within_five_windows),
        cmocka_unit_test(a_slow_piece_is_left_alone_where_it_is),
        cmocka_unit_test(pieces_return_to_a_lane_that_recovers),
        cmocka_unit_test(a_skewed_start_is_evened_out),
        cmocka_unit_test(moves_of_large_pieces_make_the_job_faster),
        cmocka_unit_test(a_change_without_a_gain_is_undone),
        cmocka_unit_test(overlapping_memory_is_never_kept),
        cmocka_unit_test(lanes_that_are_late_with_any_load_are_emptied),
        cmocka_unit_test(no_lane_gets_more_than_its_room),
        cmocka_unit_test(a_change_of_membership_discards_the_experiment),
        cmocka_unit_test(no_decision_is_made_while_tasks_move),
        cmocka_unit_test(a_pause_is_no_long_round),
        cmocka_unit_test(an_additional_lane_is_tried_when_lanes_are_even_and_workers_wait),
        cmocka_unit_test(a_blind_job_keeps_every_change_without_a_comparison),
        cmocka_unit_test(the_same_calls_give_the_same_decisions),
        cmocka_unit_test(reasons_have_lane_times_and_the_decision),
        cmocka_unit_test(nonsense_is_refused),
        cmocka_unit_test(means_are_weighted_and_halves_shrink),
    };
    return cmocka_run_group_tests_name("explore", tests, NULL, NULL);
}
