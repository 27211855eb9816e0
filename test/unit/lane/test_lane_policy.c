/* Tests which job has the lane's next chunk (A20 and A77 of svc/lane), turn by turn. Each job has
 * one worker in shared memory, so a chunk is completed in the turn that starts it. */
#include "svc/base/clock.h"
#include "svc/lane/job/table.h"
#include "test/unit/lane/lane_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define JOBS 3
#define CHUNK 65536 /* number of elements of a chunk of 256 KiB */
#define LONGEST (16 * CHUNK)

static struct rig rig;

static int stop(void **state)
{
    rig_stop(&rig);
    return 0;
}

/* Starts jobs of one piece. Job i belongs to worker i and has `chunks[i]` chunks. */
static void start(enum lane_policy policy, const uint32_t chunks[JOBS])
{
    rig_start_policy(&rig, "shm", policy);
    for (uint32_t i = 0; i < JOBS; i++) {
        rig_place(&rig, RIG_JOB + i, 1, 1, 1, (uint64_t)chunks[i] * CHUNK, false);
        rig_connect(&rig, i, RIG_JOB + i, 0);
    }
}

static void push(uint32_t i, uint64_t round, uint32_t chunks)
{
    for (uint32_t c = 0; c < chunks; c++) {
        rig_input(&rig, i, 0)[c * CHUNK] = (float)round;
        rig_landing(&rig, i, 0)[c * CHUNK] = 0;
    }
    rig_say(&rig, i,
            (struct say){.piece = 1,
                         .word = (uint32_t)round,
                         .round = round,
                         .elements = (uint64_t)chunks * CHUNK});
}

static void push_all(const uint32_t chunks[JOBS])
{
    for (uint32_t i = 0; i < JOBS; i++)
        push(i, 1, chunks[i]);
}

/* Returns the number of job i's chunks that have arrived. */
static uint32_t landed(uint32_t i)
{
    uint32_t count = 0;
    for (uint32_t c = 0; c < LONGEST / CHUNK; c++)
        count += rig_landing(&rig, i, 0)[c * CHUNK] != 0;
    return count;
}

static uint32_t landed_at_all(void)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < JOBS; i++)
        count += landed(i);
    return count;
}

/* Runs one turn of the lane. The workers are not polled. */
static void turn(void)
{
    uint32_t before = landed_at_all();
    (void)lane_poll(rig.lane, 0);
    assert_true(landed_at_all() >= before);
}

static void a_fair_lane_gives_every_job_the_same_number_of_chunks(void **state)
{
    static const uint32_t chunks[JOBS] = {16, 16, 16};
    start(LANE_FAIR, chunks);
    push_all(chunks);
    while (landed_at_all() < 3 * 16) {
        turn();
        for (uint32_t i = 1; i < JOBS; i++) {
            int apart = (int)landed(i) - (int)landed(0);
            assert_true(apart >= -1 && apart <= 1);
        }
    }
}

static void a_fair_lane_serves_a_short_job_in_its_share(void **state)
{
    static const uint32_t chunks[JOBS] = {16, 16, 4};
    start(LANE_FAIR, chunks);
    push_all(chunks);
    while (landed(2) < 4)
        turn();
    /* in the same turn the lane has also done other work */
    assert_true(landed_at_all() <= 3 * 4 + 3);
}

static void with_fifo_the_first_job_is_served_to_its_end(void **state)
{
    static const uint32_t chunks[JOBS] = {16, 16, 1};
    start(LANE_FIFO, chunks);
    push_all(chunks);
    while (landed_at_all() < 33) {
        turn();
        if (landed(1) > 0)
            assert_int_equal(landed(0), 16);
        if (landed(2) > 0)
            assert_int_equal(landed(1), 16);
    }
}

static void with_shortest_the_job_with_the_least_work_is_first(void **state)
{
    static const uint32_t chunks[JOBS] = {16, 8, 2};
    start(LANE_SHORTEST, chunks);
    push_all(chunks);
    while (landed_at_all() < 26) {
        turn();
        if (landed(1) > 0)
            assert_int_equal(landed(2), 2);
        if (landed(0) > 0)
            assert_int_equal(landed(1), 8);
    }
}

/* The short job announces its next round before its last round ends. If only the remaining bytes
 * counted, the long job would always wait. */
static void with_shortest_a_long_job_is_served_in_the_end(void **state)
{
    static const uint32_t chunks[JOBS] = {16, 8, 1};
    const struct rig_worker *busy = &rig.workers[1];
    uint64_t round = 2, turns = 0;
    start(LANE_SHORTEST, chunks);
    push(1, 1, 8);
    push(1, 2, 8);
    push(0, 1, 16);
    while (landed(0) < 16) {
        assert_true(++turns < 2000);
        rig_turn(&rig);
        while (busy->words_count + 1 > (int)round)
            push(1, ++round, 8);
    }
    assert_true(round * 8 > 16 * 4); /* the short job used nearly all of the time */
}

static void set_tenant(uint32_t i, const char *tenant)
{
    lane_set_lent_limits(rig.lane, RIG_JOB + i, &(struct lane_lent){.tenant = tenant});
}

static void a_tenant_with_two_jobs_gets_no_more_than_one_with_one(void **state)
{
    static const uint32_t chunks[JOBS] = {16, 16, 16};
    start(LANE_FAIR, chunks);
    set_tenant(0, "acme");
    set_tenant(1, "acme");
    set_tenant(2, "tiny");
    push_all(chunks);
    while (landed(2) < 16) {
        turn();
        int apart = (int)(landed(0) + landed(1)) - (int)landed(2);
        assert_in_range(apart + 1, 0, 2);
    }
}

static void a_job_that_changes_its_tenant_in_the_line_is_not_lost(void **state)
{
    static const uint32_t chunks[JOBS] = {16, 16, 16};
    start(LANE_FAIR, chunks);
    push_all(chunks);
    turn();
    set_tenant(0, "acme");
    set_tenant(1, "acme");
    lane_drop(rig.lane, RIG_JOB + 1, NULL, 0);
    while (landed(0) + landed(2) < 32)
        turn();
}

#define WIDE 12
#define WIDE_ELEMENTS (1u << 18)

/* the time limit of a turn is so short that a turn ends after each step */
static void a_chunk_of_a_wide_sum_is_bounded_over_all_ranks(void **state)
{
    uint32_t landed_elements = 0;
    rig_start(&rig, "shm");
    rig.lane->options.turn_ns = 1;
    rig_place(&rig, RIG_JOB, WIDE, 1, 1, WIDE_ELEMENTS, false);
    for (uint32_t i = 0; i < WIDE; i++)
        rig_connect(&rig, i, RIG_JOB, i);
    for (uint32_t i = 0; i < WIDE; i++) {
        for (uint32_t e = 0; e < WIDE_ELEMENTS; e++)
            rig_input(&rig, i, 0)[e] = 1;
        rig_say(&rig, i,
                (struct say){.piece = 1, .word = 1, .round = 1, .elements = WIDE_ELEMENTS});
    }
    while (landed_elements == 0) {
        (void)lane_poll(rig.lane, 0);
        while (rig_landing(&rig, WIDE - 1, 0)[landed_elements] != 0)
            landed_elements++;
    }
    assert_true(landed_elements * sizeof(float) * 2 * WIDE <= 2u << 20);
    rig_until(&rig, rig.workers[WIDE - 1].words_count == 1);
    assert_true(rig_landing(&rig, 0, 0)[WIDE_ELEMENTS - 1] == WIDE);
}

/* Workers of one job send more messages than one poll reads. Then a worker of another job announces
 * a round. */
static void a_poll_reads_a_few_messages_of_each_job(void **state)
{
    const struct record_query query = {.kind = RECORD_QUERY, .word = 1, .piece = 1, .round = 9};
    const uint32_t loud = RIG_WORKERS_MAX - 1;
    rig_start(&rig, "shm");
    rig_place(&rig, RIG_JOB, loud, 1, 1, 1, false);
    rig_place(&rig, RIG_JOB + 1, 1, 1, 1, 1, false);
    for (uint32_t i = 0; i < loud; i++)
        rig_connect(&rig, i, RIG_JOB, i);
    rig_connect(&rig, loud, RIG_JOB + 1, 0);
    for (uint32_t i = 0; i < loud; i++)
        for (int k = 0; k < 48; k++)
            assert_int_equal(fabric_send(rig.workers[i].conn, &query, sizeof query, NULL, 0), 0);
    rig_input(&rig, loud, 0)[0] = 5;
    rig_say(&rig, loud, (struct say){.piece = 1, .word = 1, .round = 1, .elements = 1});
    (void)lane_poll(rig.lane, 0);
    (void)lane_poll(rig.lane, 0);
    assert_true(rig_landing(&rig, loud, 0)[0] == 5);
}

static void say_one(uint32_t i)
{
    rig_input(&rig, i, 0)[0] = 5;
    rig_say(&rig, i, (struct say){.piece = 1, .word = 1, .round = 1, .elements = 1});
}

/* A job may use two seconds of the mapper's time in advance (S15 of svc/fabric/shm). */
static void a_job_that_has_used_up_the_mapper_waits_alone(void **state)
{
    rig_start(&rig, "shm");
    rig_place(&rig, RIG_JOB, 1, 1, 1, 1, false);
    rig_place(&rig, RIG_JOB + 1, 1, 1, 1, 1, false);
    uint64_t due_ns = rig_now() + 300 * NS_PER_MS;
    job_find(rig.lane, RIG_JOB)->group.until_ns[FABRIC_BILL_MAPPING] = due_ns + 2 * NS_PER_S;
    rig_connect(&rig, 0, RIG_JOB, 0);
    say_one(0);
    rig_connect(&rig, 1, RIG_JOB + 1, 0);
    say_one(1);
    rig_until(&rig, rig.workers[1].words_count == 1);
    rig_until(&rig, rig.workers[0].words_count == 1);
    assert_true(rig_now() >= due_ns);
}

#define CASE(name) cmocka_unit_test_teardown(name, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_fair_lane_gives_every_job_the_same_number_of_chunks),
        CASE(a_fair_lane_serves_a_short_job_in_its_share),
        CASE(with_fifo_the_first_job_is_served_to_its_end),
        CASE(with_shortest_the_job_with_the_least_work_is_first),
        CASE(with_shortest_a_long_job_is_served_in_the_end),
        CASE(a_tenant_with_two_jobs_gets_no_more_than_one_with_one),
        CASE(a_job_that_changes_its_tenant_in_the_line_is_not_lost),
        CASE(a_chunk_of_a_wide_sum_is_bounded_over_all_ranks),
        CASE(a_poll_reads_a_few_messages_of_each_job),
        CASE(a_job_that_has_used_up_the_mapper_waits_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
