/* Tests a change of workers (K41) when one lane has released its pieces and a second lane has not.
 * The first lane then waits, or disconnects and returns. */
#include "test/unit/coordinator/members_case.h"

#define WORKERS 3
#define ALL 7u
#define LEFT 3u /* bit set of ranks 0 and 1 */

struct side {
    struct end *lane;
    struct shadow shadow;
    uint32_t piece;
};

struct scene {
    struct rig *rig;
    struct side slow, quick;
    struct member workers[WORKERS];
    envelope *kept; /* release that the slow lane has not answered */
};

static void declare(struct scene *s, const char *name)
{
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        struct end *e = s->workers[rank].end;
        members_declared(e, members_declare(e, name, NULL), NULL);
    }
}

/* Rank 2 leaves, and the first of two lanes releases its pieces. */
static struct scene begin(struct rig *rig)
{
    rig->options.policy = "round-robin";
    rig_start_afresh(rig);
    struct scene s = {.rig = rig, .slow.piece = 1, .quick.piece = 2};
    s.slow.lane = rig_aggregator(rig, 1);
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        s.workers[rank] = members_join(
            rig, (struct joining){.rank = rank, .workers = WORKERS, .continues = true});
    declare(&s, "w");
    s.quick.lane = rig_aggregator(rig, 1);
    declare(&s, "v");
    shadow_until(&s.slow.shadow, s.slow.lane, s.slow.piece, ALL);
    shadow_until(&s.quick.shadow, s.quick.lane, s.quick.piece, ALL);
    s.slow.lane->ignores = BODY(RELEASE_REQUEST);
    end_leave(s.workers[2].end);
    s.kept = end_expect(s.slow.lane, BODY(RELEASE_REQUEST));
    s.slow.lane->ignores = 0;
    rig_settle(rig);
    shadow_take(&s.quick.shadow, s.quick.lane);
    return s;
}

/* Makes the slow lane release its pieces. */
static void go_on(struct scene *s)
{
    shadow_do(&s->slow.shadow, s->kept);
    end_answer(s->slow.lane, s->kept);
    message_free(s->kept);
}

static void expect_changed(struct scene *s)
{
    shadow_until(&s->quick.shadow, s->quick.lane, s->quick.piece, LEFT);
    shadow_until(&s->slow.shadow, s->slow.lane, s->slow.piece, LEFT);
    end_expect_none(s->workers[0].end, BODY(JOB_FAILURE));
}

static void both_lanes_get_the_new_ranks(void **state)
{
    struct scene s = begin(*state);
    go_on(&s);
    expect_changed(&s);
}

/* The pieces of the lane were thawed before the lane returned. The lane must release these pieces
 * again before the switch. */
static void a_lane_that_returns_releases_its_pieces_again(void **state)
{
    struct scene s = begin(*state);
    const struct end before = *s.quick.lane;
    end_close(s.quick.lane);
    rig_settle(s.rig);
    s.quick.lane = shadow_rejoin(&s.quick.shadow, s.rig, &before, s.workers[0].job);
    rig_settle(s.rig);
    shadow_take(&s.quick.shadow, s.quick.lane);
    go_on(&s);
    expect_changed(&s);
    kept_log_expect(": its lanes could not apply a change of workers");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(both_lanes_get_the_new_ranks),
        CASE(a_lane_that_returns_releases_its_pieces_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
