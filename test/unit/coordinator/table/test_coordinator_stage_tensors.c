/* Tests dense tensors at borders between stages (K174, K175): the lanes regroup the tensors before
 * any rank receives the stage. The coordinator, or the lane's process, crashes at each step. */
#include "svc/wire/ranks.h"
#include "test/unit/coordinator/members_case.h"

#include <errno.h>
#include <string.h>

#define WORKERS 3
#define PIECE 1 /* first piece of "w" */
#define ALL 7u
#define PAIR 3u
#define LONG_MS 60000
#define ROUND 9 /* committed round of "w" before the first border */

static struct joining how(uint32_t rank)
{
    return (struct joining){.rank = rank, .workers = WORKERS};
}

struct scene {
    struct rig *rig;
    struct end *lane;
    struct shadow shadow;
    struct member workers[WORKERS];
    uint32_t tensor, own; /* "w", and "own", a tensor with its own set of ranks */
    envelope *kept;       /* message that the lane has not answered, stored by the test */
};

/* Starts a fixed job, which trains "w", and "own" on ranks 1 and 2, on one lane. */
static struct scene begin(struct rig *rig)
{
    static const struct terms own = {.ranks = {6}};
    struct scene s = {.rig = rig, .lane = rig_aggregator(rig, 1)};
    uint64_t ranks;
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        s.workers[rank] = members_join(rig, how(rank));
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        struct end *e = s.workers[rank].end;
        s.tensor = members_declared(e, members_declare(e, "w", NULL), &ranks);
        if (rank > 0)
            s.own = members_declared(e, members_declare(e, "own", &own), &ranks);
    }
    shadow_take(&s.shadow, s.lane);
    return s;
}

static void ask_for(struct scene *s, uint32_t rank, uint64_t number, uint32_t workers,
                    uint64_t round)
{
    uint32_t tensors[] = {s->own, s->tensor, 77};
    uint64_t rounds[] = {round, round, round};
    WIRE(StageSpec)
    spec = MESSAGE_PART(StageSpec, stage_spec, .name = "part", .workers = workers);
    end_send(s->workers[rank].end,
             &MESSAGE(0, STAGE_REQUEST, stage_request, .number = number, .spec = &spec,
                      .timeout_ms = LONG_MS, .tensors = tensors, .rounds = rounds, .n_tensors = 3,
                      .n_rounds = 3));
}

/* All ranks ask. Rank 1 alone knows the newest round. */
static void ask_all(struct scene *s, uint64_t number, uint32_t workers)
{
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        ask_for(s, rank, number, workers, rank == 1 ? ROUND + number : 1);
}

static void end_all(struct scene *s, uint64_t number)
{
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        end_send(s->workers[rank].end, &MESSAGE(0, STAGE_REQUEST, stage_request, .number = number,
                                                .ends = true, .timeout_ms = LONG_MS));
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        message_free(end_expect(s->workers[rank].end, BODY(STAGE_REPLY)));
}

/* Reads the routes of "w" that stand before the first StageReply. Returns their ranks. */
static uint64_t routed_before_reply(struct scene *s, uint32_t rank, uint64_t *ret_committed)
{
    struct end *e = s->workers[rank].end;
    uint64_t ranks = 0;
    uint32_t epoch = 0;
    message_free(end_expect(e, BODY(STAGE_REPLY))); /* all messages before it are in the inbox */
    for (size_t i = 0; i < e->inbox_count; i++) {
        const WIRE(RouteChange) *change = e->inbox[i]->route_change;
        for (size_t k = 0;
             (int)e->inbox[i]->body_case == BODY(ROUTE_CHANGE) && k < change->n_tensors; k++) {
            const WIRE(TensorRoute) *route = change->tensors[k];
            assert_true(route->tensor == s->tensor || route->ranks.len == 0);
            if (route->tensor != s->tensor || route->ranks.len == 0)
                continue;
            memcpy(&ranks, route->ranks.data, sizeof ranks);
            *ret_committed = route->committed;
            epoch = route->pieces[0]->epoch;
        }
    }
    assert_int_equal(epoch, shadow_piece(&s->shadow, PIECE)->epoch);
    (void)members_routed(e, s->tensor, &(uint64_t){0}); /* removes the routes */
    return ranks;
}

static void all_have(struct scene *s, uint64_t ranks, uint64_t round)
{
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        uint64_t committed = 0;
        assert_int_equal(routed_before_reply(s, rank, &committed), ranks);
        assert_int_equal(committed, round);
    }
}

static void none_gets_any(struct scene *s)
{
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        end_expect_none(s->workers[rank].end, BODY(STAGE_REPLY));
}

static void the_rounds_of_a_stage_have_its_members(void **state)
{
    struct scene s = begin(*state);
    ask_all(&s, 0, 2);
    shadow_until(&s.shadow, s.lane, PIECE, PAIR);
    all_have(&s, PAIR, ROUND);
    assert_int_equal(s.shadow.regroupings, 1); /* "own" is not regrouped */
    assert_int_equal(s.shadow.gone, 0);        /* idle ranks stay connected */
    end_all(&s, 1);
    ask_all(&s, 1, 3);
    shadow_until(&s.shadow, s.lane, PIECE, ALL);
    all_have(&s, ALL, ROUND + 1);
}

/* After a time-out a rank asks again. Its rounds may have ended since. */
/* Waits until the coordinator has handled all earlier messages of the rank. */
static void await_handled(struct scene *s, uint32_t rank)
{
    uint8_t ranks[8] = {1};
    end_send(s->workers[rank].end,
             &MESSAGE(9, LATE_REQUEST, late_request, .ranks = {sizeof ranks, ranks}));
    message_free(end_expect(s->workers[rank].end, BODY(LATE_REPLY)));
}

static void a_repeated_request_reports_its_rounds(void **state)
{
    struct scene s = begin(*state);
    ask_for(&s, 1, 0, 2, ROUND);
    ask_for(&s, 1, 0, 2, ROUND + 1);
    await_handled(&s, 1);
    ask_for(&s, 0, 0, 2, 1);
    ask_for(&s, 2, 0, 2, 1);
    shadow_until(&s.shadow, s.lane, PIECE, PAIR);
    all_have(&s, PAIR, ROUND + 1);
}

static void a_stage_of_the_same_ranks_changes_no_lane(void **state)
{
    struct scene s = begin(*state);
    ask_all(&s, 0, 3);
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        message_free(end_expect(s.workers[rank].end, BODY(STAGE_REPLY)));
    shadow_take(&s.shadow, s.lane);
    assert_int_equal(s.shadow.regroupings, 0);
    assert_int_equal(shadow_piece(&s.shadow, PIECE)->epoch, 1);
}

static void a_lane_that_does_not_release_delays_the_border(void **state)
{
    struct scene s = begin(*state);
    s.lane->refuses = BODY(RELEASE_REQUEST);
    ask_all(&s, 0, 2);
    message_free(end_expect(s.lane, BODY(RELEASE_REQUEST)));
    none_gets_any(&s);
    kept_log_expect("could not apply a change of workers");
    kept_log_expect("did not release its pieces");
    s.lane->refuses = 0;
    shadow_until(&s.shadow, s.lane, PIECE, PAIR); /* a second later */
    all_have(&s, PAIR, ROUND);
}

/* --- crashes --- */

enum step { RELEASING, RELEASED_UNHEARD, SWITCHED, REGROUPED_UNHEARD, STEPS };

/* All ranks ask. The lane has not answered, or the coordinator has not read the answer. */
static void stop_at(struct scene *s, enum step step)
{
    int body = step >= SWITCHED ? BODY(PLACE_REQUEST) : BODY(RELEASE_REQUEST);
    s->lane->ignores = body;
    ask_all(s, 0, 2);
    s->kept = end_expect(s->lane, body);
    shadow_take(&s->shadow, s->lane);
    s->lane->ignores = 0;
    if (step == RELEASED_UNHEARD || step == REGROUPED_UNHEARD)
        shadow_do(&s->shadow, s->kept);
    message_free(s->kept);
    none_gets_any(s);
}

typedef void (*scene_fn)(struct scene *s);

static void at_each_step(struct rig *rig, scene_fn happens)
{
    for (enum step step = 0; step < STEPS; step++) {
        struct scene s = begin(rig);
        stop_at(&s, step);
        happens(&s);
        shadow_until(&s.shadow, s.lane, PIECE, PAIR);
        all_have(&s, PAIR, ROUND);
        rig_start_afresh(rig);
    }
}

/* After its restart the coordinator has the rounds from the store: the ranks report no rounds. */
static void crash(struct scene *s)
{
    struct end before = *s->lane;
    rig_crash(s->rig);
    rig_start(s->rig);
    s->lane = shadow_rejoin(&s->shadow, s->rig, &before, s->workers[0].job);
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        members_resume(s->rig, &s->workers[rank], how(rank));
        ask_for(s, rank, 0, 2, 0);
    }
}

static void a_border_continues_after_a_crash_of_the_coordinator(void **state)
{
    at_each_step(*state, crash);
}

static void reconnect(struct scene *s)
{
    struct end before = *s->lane;
    end_close(s->lane);
    s->lane = shadow_rejoin(&s->shadow, s->rig, &before, s->workers[0].job);
}

static void a_border_continues_after_a_broken_connection_of_an_aggregator(void **state)
{
    at_each_step(*state, reconnect);
}

/* A new process of the aggregator has no pieces. */
static void replace(struct scene *s)
{
    struct end before = *s->lane;
    end_close(s->lane);
    s->shadow.count = 0;
    s->lane = shadow_rejoin(&s->shadow, s->rig, &before, s->workers[0].job);
}

static void a_border_continues_after_the_loss_of_the_pieces(void **state)
{
    at_each_step(*state, replace);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(the_rounds_of_a_stage_have_its_members),
        CASE(a_repeated_request_reports_its_rounds),
        CASE(a_stage_of_the_same_ranks_changes_no_lane),
        CASE(a_lane_that_does_not_release_delays_the_border),
        CASE(a_border_continues_after_a_crash_of_the_coordinator),
        CASE(a_border_continues_after_a_broken_connection_of_an_aggregator),
        CASE(a_border_continues_after_the_loss_of_the_pieces),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
