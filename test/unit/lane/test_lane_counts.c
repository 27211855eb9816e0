/* Tests the counts of a job with backup workers on its leader lane (A100): the gradients of each
 * rank, the reasons of all closes, and the rows of these counts in a measurement. */
#include "svc/base/clock.h"
#include "svc/lane/job/table.h"
#include "svc/lane/piece/counts.h"
#include "test/unit/lane/lane_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define RANKS 4
#define HIDDEN 1

static const char *kind;
static struct rig rig;

static int stop(void **state)
{
    rig_stop(&rig);
    return 0;
}

static void place(struct backup_terms terms, uint32_t k)
{
    struct lane_piece hidden = {.id = HIDDEN,
                                .terms = {.quorum = QUORUM_FIRST, .bound = k, .role = LEADS_ROUNDS},
                                .backup = &terms};
    rig_place_piece(&rig, RANKS, hidden, false);
}

static void start(struct backup_terms terms, uint32_t k)
{
    rig_start(&rig, kind);
    rig.clock_ns = 100 * NS_PER_S;
    place(terms, k);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        rig_connect(&rig, rank, RIG_JOB, rank);
    rig.count = RANKS;
}

static void end(uint32_t rank, uint64_t round)
{
    struct piece *hidden = piece_find(job_find(rig.lane, RIG_JOB), HIDDEN);
    rig_say(&rig, rank,
            (struct say){.piece = HIDDEN,
                         .word = (uint32_t)round,
                         .round = round,
                         .operation = RECORD_BARRIER,
                         .has_no_input = true,
                         .has_no_output = true});
    rig_until(&rig, rank_said(&hidden->ranks[rank], round)->round == round);
}

/* Closes a round with ranks 0 to `ranks` - 1. */
static void close_round(uint64_t round, uint32_t ranks)
{
    const struct rig_worker *w = &rig.workers[0];
    for (uint32_t rank = 0; rank < ranks; rank++)
        end(rank, round);
    rig_until(&rig, w->commits_count > 0 && w->commits[w->commits_count - 1] == round);
}

/* Returns the row of the only job, valid until the next call. */
static const struct counts_row *measured(void)
{
    static uint64_t words[64];
    memset(words, 0, sizeof words);
    assert_true(counts_measure(rig.lane, words, sizeof words) <= sizeof words);
    return (const struct counts_row *)words;
}

static void expect_rank(uint32_t rank, uint64_t counted, uint64_t dropped)
{
    const struct counts_row *row = measured();
    assert_true(rank < row->ranks);
    assert_int_equal(row->of[rank].counted, counted);
    assert_int_equal(row->of[rank].dropped, dropped);
}

static void each_rank_has_its_rounds_counted(void **state)
{
    start((struct backup_terms){.rule = BACKUP_TERMS_STATIC, .k = 3}, 3);
    for (uint64_t round = 1; round <= 5; round++)
        close_round(round, 3);
    const struct counts_row *row = measured();
    assert_int_equal(row->job, RIG_JOB);
    assert_int_equal(row->ranks, RANKS);
    assert_int_equal(row->rounds, 5);
    assert_int_equal(row->gradients, 15);
    assert_int_equal(row->reasons[RECORD_REASON_GAIN], 5);
    assert_int_equal(row->reasons[RECORD_REASON_ALL], 0);
    for (uint32_t rank = 0; rank < 3; rank++)
        expect_rank(rank, 5, 0);
    expect_rank(3, 0, 5);
}

static void a_round_of_all_ranks_drops_none(void **state)
{
    start((struct backup_terms){.rule = BACKUP_TERMS_STATIC, .k = RANKS}, RANKS);
    close_round(1, RANKS);
    assert_int_equal(measured()->reasons[RECORD_REASON_ALL], 1);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        expect_rank(rank, 1, 0);
}

static void a_rank_that_has_left_is_not_dropped(void **state)
{
    const struct record_leave leave = {.kind = RECORD_LEAVE};
    start((struct backup_terms){.rule = BACKUP_TERMS_STATIC, .k = 3}, 3);
    close_round(1, 3);
    assert_int_equal(fabric_send(rig.workers[3].conn, &leave, sizeof leave, NULL, 0), 0);
    rig_until(&rig, job_find(rig.lane, RIG_JOB)->workers[3].state == WORKER_LEFT);
    close_round(2, 3);
    expect_rank(3, 0, 1);
    expect_rank(2, 2, 0);
}

static void a_rule_that_chooses_measures_the_times_of_ranks(void **state)
{
    start((struct backup_terms){.rule = BACKUP_TERMS_AUTO}, 2);
    for (uint64_t round = 1; round <= 3; round++) {
        rig.clock_ns += 10 * NS_PER_MS;
        close_round(round, RANKS);
    }
    assert_in_range(measured()->of[0].scale_ns, NS_PER_MS, 11 * NS_PER_MS);
}

static void a_job_without_rounds_has_no_row(void **state)
{
    uint64_t word = 0;
    start((struct backup_terms){.rule = BACKUP_TERMS_AUTO}, 2);
    assert_int_equal(counts_measure(rig.lane, &word, sizeof word), 0);
    assert_int_equal(word, 0);
}

static void a_row_that_does_not_fit_is_left_out(void **state)
{
    uint64_t words[64] = {0};
    start((struct backup_terms){.rule = BACKUP_TERMS_STATIC, .k = 3}, 3);
    close_round(1, 3);
    size_t bytes = counts_measure(rig.lane, words, 8);
    assert_int_equal(words[0], 0);
    assert_int_equal(bytes, counts_row_bytes(RANKS));
    assert_int_equal(counts_measure(rig.lane, words, bytes - 1), bytes);
    assert_int_equal(words[0], 0);
    assert_int_equal(counts_measure(rig.lane, words, bytes), bytes);
    assert_int_equal(words[0], RIG_JOB);
}

static void counts_remain_when_the_piece_is_dropped(void **state)
{
    const uint32_t piece = HIDDEN;
    start((struct backup_terms){.rule = BACKUP_TERMS_STATIC, .k = 3}, 3);
    close_round(1, 3);
    lane_drop(rig.lane, RIG_JOB, &piece, 1);
    assert_int_equal(measured()->rounds, 1);
    assert_int_equal(measured()->of[0].scale_ns, 0);
}

#define test(name) cmocka_unit_test_teardown(name, stop)

int main(int argc, char **argv)
{
    kind = argc > 1 ? argv[1] : "shm";
    const struct CMUnitTest tests[] = {
        test(each_rank_has_its_rounds_counted),
        test(a_round_of_all_ranks_drops_none),
        test(a_rank_that_has_left_is_not_dropped),
        test(a_rule_that_chooses_measures_the_times_of_ranks),
        test(a_job_without_rounds_has_no_row),
        test(a_row_that_does_not_fit_is_left_out),
        test(counts_remain_when_the_piece_is_dropped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
