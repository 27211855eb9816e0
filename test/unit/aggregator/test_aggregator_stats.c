/* Tests an aggregator's answers to requests for figures, with many jobs and pieces. The
 * aggregator's lanes are simulated: this file implements every call to a lane. Each counter has the
 * maximum value of its type. */
#include "svc/aggregator/internal.h"
#include "svc/lane/piece/counts.h"
#include "svc/lane/rows/counts/table_counts.h"
#include "test/unit/channel/channel_pair.h"

#define JOB 7

static size_t jobs_here, pieces_here; /* number of jobs and pieces of each simulated lane */
static uint64_t rounds_here = UINT64_MAX;
static size_t calls; /* number of calls to lanes so far */

int __wrap_lane_thread_call(struct lane_thread *thread,
                            int (*call)(struct lane *lane, void *context), void *context);
int __wrap_lane_thread_call(struct lane_thread *thread,
                            int (*call)(struct lane *lane, void *context), void *context)
{
    calls++;
    return call((struct lane *)thread, context);
}

void __wrap_lane_measure(struct lane *lane, struct lane_use *ret_use, struct lane_job_use *ret_jobs,
                         size_t jobs_max);
void __wrap_lane_measure(struct lane *lane, struct lane_use *ret_use, struct lane_job_use *ret_jobs,
                         size_t jobs_max)
{
    memset(ret_use, 0xff, sizeof *ret_use);
    ret_use->jobs_count = jobs_here;
    for (size_t i = 0; i < jobs_max && i < jobs_here; i++) {
        memset(&ret_jobs[i], 0xff, sizeof ret_jobs[i]);
        ret_jobs[i].job = i == 0 ? JOB : UINT32_MAX;
        ret_jobs[i].rounds = rounds_here;
    }
}

size_t __wrap_lane_measure_pieces(const struct lane *lane, uint32_t job,
                                  struct lane_piece_use *ret_rows, size_t rows_max);
size_t __wrap_lane_measure_pieces(const struct lane *lane, uint32_t job,
                                  struct lane_piece_use *ret_rows, size_t rows_max)
{
    size_t count = pieces_here < rows_max ? pieces_here : rows_max;
    for (size_t i = 0; i < count; i++)
        ret_rows[i] = (struct lane_piece_use){.piece = UINT32_MAX, .busy_ns = UINT64_MAX};
    return count;
}

/* number of jobs, on each lane, that have counts of `counted_ranks` ranks */
static size_t counted_jobs;
static uint64_t counted_ranks, counted_rounds = UINT64_MAX;

size_t __wrap_counts_measure(const struct lane *lane, void *ret_rows, size_t bytes);
size_t __wrap_counts_measure(const struct lane *lane, void *ret_rows, size_t bytes)
{
    size_t row_bytes = counts_row_bytes(counted_ranks);
    for (size_t i = 0; i < counted_jobs && (i + 1) * row_bytes <= bytes; i++) {
        struct counts_row *row = (struct counts_row *)((char *)ret_rows + i * row_bytes);
        memset(row, 0xff, row_bytes);
        row->job = i == 0 ? JOB : UINT32_MAX;
        row->ranks = counted_ranks;
        row->rounds = counted_rounds;
    }
    return counted_jobs * row_bytes;
}

static size_t
    tables_here; /* number of tables of each lane; all tables but the last are of job JOB */
static uint64_t table_rows_here = UINT64_MAX;

size_t __wrap_table_counts_measure(const struct lane *lane, struct table_counts_row *ret_rows,
                                   size_t rows_max);
size_t __wrap_table_counts_measure(const struct lane *lane, struct table_counts_row *ret_rows,
                                   size_t rows_max)
{
    for (size_t i = 0; i < tables_here && i < rows_max; i++) {
        memset(&ret_rows[i], 0xff, sizeof ret_rows[i]);
        ret_rows[i].job = i + 1 < tables_here ? JOB : UINT32_MAX;
        ret_rows[i].rows = table_rows_here;
    }
    return tables_here;
}

static size_t packed_bytes(Gradpool__Wire__StatsReply *stats)
{
    envelope answer = GRADPOOL__WIRE__ENVELOPE__INIT;
    answer.id = UINT64_MAX;
    answer.body_case = GRADPOOL__WIRE__ENVELOPE__BODY_STATS_REPLY;
    answer.stats_reply = stats;
    return gradpool__wire__envelope__get_packed_size(&answer);
}

static Gradpool__Wire__StatsReply *ask_of(size_t lanes, uint32_t job, size_t known_count,
                                          uint64_t *known)
{
    static struct aggregator a;
    Gradpool__Wire__StatsRequest request = GRADPOOL__WIRE__STATS_REQUEST__INIT;
    request.job_id = job;
    request.known = known;
    request.n_known = known_count;
    a.lanes_count = lanes;
    memset(a.lane_ids, 0xff, sizeof a.lane_ids);
    Gradpool__Wire__StatsReply *stats = stats_build(&a, &request);
    assert_non_null(stats);
    assert_int_equal(stats->n_lanes, lanes);
    return stats;
}

static Gradpool__Wire__StatsReply *ask(size_t lanes, size_t jobs, size_t pieces)
{
    jobs_here = jobs;
    pieces_here = pieces;
    return ask_of(lanes, JOB, 0, NULL);
}

/* Checks the figures of one lane, with or without rows. Returns the digest of the rows. */
static uint64_t expect_rows(uint32_t job, uint64_t known, bool are_sent)
{
    Gradpool__Wire__StatsReply *stats = ask_of(1, job, 1, &known);
    uint64_t digest = stats->lanes[0]->digest;
    assert_int_equal(stats->lanes[0]->is_known, !are_sent);
    assert_int_equal(stats->lanes[0]->n_jobs, are_sent ? jobs_here : 0);
    assert_int_equal(stats->lanes[0]->busy_ns, UINT64_MAX);
    assert_int_not_equal(digest, 0);
    gradpool__wire__stats_reply__free_unpacked(stats, NULL);
    return digest;
}

static void an_answer_of_many_lanes_jobs_and_pieces_fits_a_frame(void **state)
{
    Gradpool__Wire__StatsReply *stats = ask(AGGREGATOR_LANES_MAX, 1000, 300000);
    size_t bytes = packed_bytes(stats);
    assert_true(bytes <= CHANNEL_FRAME_BYTES_MAX);
    assert_true(bytes > CHANNEL_FRAME_BYTES_MAX / 2);
    assert_int_equal(stats->lanes[0]->n_jobs, 1000);
    assert_int_equal(stats->lanes[0]->jobs[0]->n_pieces, 65536);
    assert_int_equal(stats->lanes[AGGREGATOR_LANES_MAX - 1]->n_jobs, 0);
    gradpool__wire__stats_reply__free_unpacked(stats, NULL);
}

static void counts_of_many_jobs_fit_a_frame(void **state)
{
    counted_jobs = 300;
    counted_ranks = 768;
    tables_here = 9000;
    Gradpool__Wire__StatsReply *stats = ask(AGGREGATOR_LANES_MAX, 1000, 300000);
    assert_true(packed_bytes(stats) <= CHANNEL_FRAME_BYTES_MAX);
    assert_int_equal(stats->lanes[0]->jobs[0]->counts->n_counted, 768);
    assert_true(stats->lanes[0]->jobs[0]->counts->dropped[767] == UINT64_MAX);
    assert_null(stats->lanes[0]->jobs[999]->counts);
    assert_int_equal(stats->lanes[0]->jobs[0]->n_tables, 8192);
    assert_int_equal(stats->lanes[1]->jobs[0]->n_tables, 0);
    gradpool__wire__stats_reply__free_unpacked(stats, NULL);
    counted_jobs = tables_here = 0;
}

static void a_job_has_its_own_counts(void **state)
{
    counted_jobs = 1;
    counted_ranks = 2;
    Gradpool__Wire__StatsReply *stats = ask(2, 3, 0);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(stats->lanes[i]->jobs[0]->counts->n_scale_ns, 2);
        assert_int_equal(stats->lanes[i]->jobs[0]->counts->n_reasons, RECORD_REASONS);
        assert_null(stats->lanes[i]->jobs[1]->counts);
    }
    gradpool__wire__stats_reply__free_unpacked(stats, NULL);
    counted_jobs = 0;
}

static void a_job_has_its_own_tables(void **state)
{
    tables_here = 3;
    Gradpool__Wire__StatsReply *stats = ask(2, 3, 0);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(stats->lanes[i]->jobs[0]->n_tables, 2);
        assert_int_equal(stats->lanes[i]->jobs[1]->n_tables, 1);
        assert_int_equal(stats->lanes[i]->jobs[2]->n_tables, 0);
        assert_true(stats->lanes[i]->jobs[0]->tables[1]->pushed_keys == UINT64_MAX);
        assert_int_equal(stats->lanes[i]->jobs[0]->tables[1]->behind_rank, UINT32_MAX);
    }
    gradpool__wire__stats_reply__free_unpacked(stats, NULL);
    tables_here = 0;
}

static void figures_that_fit_one_message_are_sent_whole(void **state)
{
    Gradpool__Wire__StatsReply *stats = ask(64, 500, 5000);
    for (size_t i = 0; i < 64; i++) {
        assert_int_equal(stats->lanes[i]->n_jobs, 500);
        assert_int_equal(stats->lanes[i]->jobs[0]->n_pieces, 5000);
        assert_int_equal(stats->lanes[i]->jobs[1]->n_pieces, 0);
    }
    gradpool__wire__stats_reply__free_unpacked(stats, NULL);
}

static void rows_that_are_known_are_left_out_until_one_changes(void **state)
{
    jobs_here = 100;
    rounds_here = 5;
    uint64_t first = expect_rows(0, 0, true), second;
    expect_rows(0, first, false);
    expect_rows(0, first, false);
    rounds_here++;
    second = expect_rows(0, first, true);
    assert_int_not_equal(second, first);
    expect_rows(0, second, false);
    counted_jobs = 1;
    counted_ranks = 4;
    second = expect_rows(0, second, true);
    expect_rows(0, second, false);
    counted_rounds = 5;
    second = expect_rows(0, second, true);
    tables_here = 2;
    second = expect_rows(0, second, true);
    expect_rows(0, second, false);
    table_rows_here = 5;
    second = expect_rows(0, second, true);
    counted_jobs = tables_here = 0;
    jobs_here--;
    assert_int_not_equal(expect_rows(0, second, true), second);
}

static void requested_pieces_have_all_rows(void **state)
{
    jobs_here = 10;
    pieces_here = 3;
    uint64_t digest = expect_rows(0, 0, true);
    assert_int_equal(expect_rows(JOB, digest, true), digest);
    pieces_here = 0; /* the job has moved to another lane */
    expect_rows(JOB, digest, false);
}

static void each_lane_has_its_own_digest_in_the_request(void **state)
{
    jobs_here = 10;
    uint64_t digest = expect_rows(0, 0, true);
    Gradpool__Wire__StatsReply *stats = ask_of(3, 0, 2, (uint64_t[]){0, digest});
    assert_false(stats->lanes[0]->is_known);
    assert_true(stats->lanes[1]->is_known);
    assert_false(stats->lanes[2]->is_known);
    gradpool__wire__stats_reply__free_unpacked(stats, NULL);
}

static void a_lane_is_woken_once_an_answer(void **state)
{
    jobs_here = 100;
    gradpool__wire__stats_reply__free_unpacked(ask_of(4, 0, 0, NULL), NULL);
    calls = 0;
    gradpool__wire__stats_reply__free_unpacked(ask_of(4, 0, 0, NULL), NULL);
    assert_int_equal(calls, 4);
    jobs_here++; /* the first answer after a new job needs one more call */
    gradpool__wire__stats_reply__free_unpacked(ask_of(1, 0, 0, NULL), NULL);
    assert_int_equal(calls, 6);
    gradpool__wire__stats_reply__free_unpacked(ask_of(1, 0, 0, NULL), NULL);
    assert_int_equal(calls, 7);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(an_answer_of_many_lanes_jobs_and_pieces_fits_a_frame),
        cmocka_unit_test(counts_of_many_jobs_fit_a_frame),
        cmocka_unit_test(a_job_has_its_own_counts),
        cmocka_unit_test(a_job_has_its_own_tables),
        cmocka_unit_test(figures_that_fit_one_message_are_sent_whole),
        cmocka_unit_test(rows_that_are_known_are_left_out_until_one_changes),
        cmocka_unit_test(requested_pieces_have_all_rows),
        cmocka_unit_test(each_lane_has_its_own_digest_in_the_request),
        cmocka_unit_test(a_lane_is_woken_once_an_answer),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
