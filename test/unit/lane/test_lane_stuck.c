/* Tests a rank that has announced its gradient, and then does not answer reads of its memory. The
 * lane names this rank to other ranks, and to a coordinator that moves pieces of the job (RULES.md
 * of svc/lane, A79). Uses only a network, because shared memory always answers. */
#include "svc/base/clock.h"
#include "svc/lane/chunk/stuck.h"
#include "svc/lane/job/table.h"
#include "test/unit/lane/lane_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define ELEMENTS 100000

static struct rig rig;
static const uint32_t piece = 1;

/* Stops rank 1 of three after all ranks have pushed. */
static void stop_in_mid_read(void)
{
    rig_start_job(&rig, "ofi", 3, 1, ELEMENTS);
    for (uint32_t i = 0; i < 3; i++)
        rig_say(&rig, i, (struct say){.piece = piece, .word = 1, .round = 1, .elements = ELEMENTS});
    rig.workers[1].is_stopped = true;
    rig_until(&rig, job_find(rig.lane, RIG_JOB)->workers[0].posted == 0 &&
                        job_find(rig.lane, RIG_JOB)->workers[1].posted > 0);
}

/* Sets the time of each worker's last answer to ten seconds earlier. */
static void pass_time(void)
{
    for (uint32_t i = 0; i < 3; i++)
        job_find(rig.lane, RIG_JOB)->workers[i].answered_ns = rig_now() - 10 * NS_PER_S;
}

static int stop(void **state)
{
    rig_stop(&rig);
    return 0;
}

static bool names_a_rank(char *text, size_t room)
{
    return lane_stuck(rig.lane, RIG_JOB, &piece, 1, text, room);
}

static void ask(uint32_t rank)
{
    struct record_query query = {.kind = RECORD_QUERY, .word = 1, .piece = piece, .round = 1};
    int before = rig.workers[rank].missing_count;
    assert_int_equal(fabric_send(rig.workers[rank].conn, &query, sizeof query, NULL, 0), 0);
    rig_until(&rig, rig.workers[rank].missing_count > before);
}

static void a_rank_that_is_stopped_in_mid_read_is_named(void **state)
{
    char text[256] = "";
    stop_in_mid_read();
    pass_time();
    assert_true(names_a_rank(text, sizeof text));
    assert_non_null(strstr(text, "waits for rank 1 of job job ("));
    ask(0);
    assert_int_equal(rig.workers[0].missing.ranks[0], 1u << 1);
    assert_true(rig.workers[0].missing.have_pushed);
}

static void a_rank_that_answers_again_is_not_named(void **state)
{
    char text[256] = "";
    stop_in_mid_read();
    rig.workers[1].is_stopped = false;
    rig_until(&rig, rig.workers[0].words_count == 1 && rig.workers[2].words_count == 1);
    rig_settle(&rig);
    pass_time();
    assert_false(names_a_rank(text, sizeof text));
    assert_int_equal(job_find(rig.lane, RIG_JOB)->workers[1].posted, 0);
}

static void a_short_wait_names_no_rank(void **state)
{
    char text[256] = "";
    stop_in_mid_read();
    job_find(rig.lane, RIG_JOB)->workers[1].answered_ns = rig_now();
    assert_false(names_a_rank(text, sizeof text));
}

static void a_rank_that_has_not_pushed_is_named_as_before(void **state)
{
    rig_start_job(&rig, "ofi", 3, 1, ELEMENTS);
    rig_say(&rig, 0, (struct say){.piece = piece, .word = 1, .round = 1, .elements = ELEMENTS});
    rig_settle(&rig);
    ask(0);
    assert_int_equal(rig.workers[0].missing.ranks[0], 1u << 1 | 1u << 2);
    assert_false(rig.workers[0].missing.have_pushed);
}

#define CASE(name) cmocka_unit_test_teardown(name, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_rank_that_is_stopped_in_mid_read_is_named),
        CASE(a_rank_that_answers_again_is_not_named),
        CASE(a_short_wait_names_no_rank),
        CASE(a_rank_that_has_not_pushed_is_named_as_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
