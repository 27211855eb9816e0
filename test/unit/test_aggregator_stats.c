/* What an aggregator answers when asked for figures, however much there is to tell. Its lanes are
 * made up: every call into one is carried out here, and each counts as high as can be. */
#include "svc/aggregator/aggregator_types.h"
#include "test/unit/channel_pair.h"

#define JOB 7

static size_t jobs_here, pieces_here; /* of each lane */

int __wrap_lane_thread_call(struct lane_thread *thread,
                            int (*call)(struct lane *lane, void *context), void *context);
int __wrap_lane_thread_call(struct lane_thread *thread,
                            int (*call)(struct lane *lane, void *context), void *context)
{
    return call((struct lane *)thread, context);
}

void __wrap_lane_measure(const struct lane *lane, struct lane_use *ret_use,
                         struct lane_job_use *ret_jobs, size_t jobs_max);
void __wrap_lane_measure(const struct lane *lane, struct lane_use *ret_use,
                         struct lane_job_use *ret_jobs, size_t jobs_max)
{
    memset(ret_use, 0xff, sizeof *ret_use);
    ret_use->jobs_count = jobs_here;
    for (size_t i = 0; i < jobs_max && i < jobs_here; i++) {
        memset(&ret_jobs[i], 0xff, sizeof ret_jobs[i]);
        ret_jobs[i].job = i == 0 ? JOB : UINT32_MAX;
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

static size_t packed_bytes(Gradpool__Wire__StatsReply *stats)
{
    envelope answer = GRADPOOL__WIRE__ENVELOPE__INIT;
    answer.id = UINT64_MAX;
    answer.body_case = GRADPOOL__WIRE__ENVELOPE__BODY_STATS_REPLY;
    answer.stats_reply = stats;
    return gradpool__wire__envelope__get_packed_size(&answer);
}

static Gradpool__Wire__StatsReply *ask(size_t lanes, size_t jobs, size_t pieces)
{
    static struct aggregator a;
    a.lanes_count = lanes;
    memset(a.lane_ids, 0xff, sizeof a.lane_ids);
    jobs_here = jobs;
    pieces_here = pieces;
    Gradpool__Wire__StatsReply *stats = stats_build(&a, JOB);
    assert_non_null(stats);
    assert_int_equal(stats->n_lanes, lanes);
    return stats;
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

static void what_fits_is_told_whole(void **state)
{
    Gradpool__Wire__StatsReply *stats = ask(64, 500, 5000);
    for (size_t i = 0; i < 64; i++) {
        assert_int_equal(stats->lanes[i]->n_jobs, 500);
        assert_int_equal(stats->lanes[i]->jobs[0]->n_pieces, 5000);
        assert_int_equal(stats->lanes[i]->jobs[1]->n_pieces, 0);
    }
    gradpool__wire__stats_reply__free_unpacked(stats, NULL);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(an_answer_of_many_lanes_jobs_and_pieces_fits_a_frame),
        cmocka_unit_test(what_fits_is_told_whole),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
