/* Tests limits of jobs in a lane: memory of the lane, and memory that workers share. A job beyond a
 * limit gets an error. Other jobs are not affected. Uses shared memory and libfabric. */
#include "svc/lane/job/table.h"
#include "svc/lane/move/regroup.h"
#include "svc/lane/wanted.h"
#include "svc/reduce/reduce.h"
#include "test/unit/lane/lane_rig.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define MIB (1u << 20)

static const char *kind;
static struct rig rig;

static int stop(void **state)
{
    rig_stop(&rig);
    return 0;
}

static uint64_t held(void)
{
    uint64_t bytes, limit_bytes;
    lane_memory(rig.lane, &bytes, &limit_bytes);
    return bytes;
}

static int place(uint32_t job, uint32_t workers, uint32_t first, size_t count)
{
    static struct lane_piece pieces[20000];
    assert_true(count <= sizeof pieces / sizeof *pieces);
    for (uint32_t i = 0; i < count; i++)
        pieces[i] = (struct lane_piece){
            .id = first + i, .task = 1, .dtype = REDUCE_F32, .elements = 4, .tensor = "w"};
    return lane_place(rig.lane, job, "job", workers, 1, false, pieces, count);
}

static void one_round(uint32_t round)
{
    for (uint32_t i = 0; i < 2; i++) {
        rig_input(&rig, i, 0)[0] = 1;
        rig_say(&rig, i, (struct say){.piece = 1, .round = round, .word = round, .elements = 4});
    }
    for (uint32_t i = 0; i < 2; i++)
        rig_until(&rig, rig.workers[i].commits_count == (int)round);
    assert_true(rig_landing(&rig, 0, 0)[0] == 2);
}

/* The requested pieces, 20,000 for 768 ranks, would need gigabytes. */
static void a_lane_holds_no_more_than_it_may_and_other_jobs_train_on(void **state)
{
    rig_start_job(&rig, kind, 2, 1, 4);
    one_round(1);
    lane_set_memory_limit(rig.lane, 32 * MIB);
    uint64_t before = held();
    assert_int_equal(place(8, 768, 1, 20000), -ENOSPC);
    assert_int_equal(held(), before); /* either all memory is allocated or none */
    uint32_t taken = 0;
    while (place(8, 768, taken + 1, 1) == 0)
        taken++;
    assert_true(taken > 10);
    assert_true(held() <= 32 * MIB);
    assert_true(held() > 24 * MIB);
    one_round(2);
    lane_drop(rig.lane, 8, NULL, 0);
    rig_settle(&rig);
    assert_int_equal(held(), before);
}

static void pieces_use_the_memory_that_the_lane_reports(void **state)
{
    rig_start(&rig, kind);
    assert_int_equal(place(9, 64, 1, 1), 0);
    uint64_t before = held();
    assert_int_equal(place(9, 64, 2, 50), 0);
    uint64_t said = 50 * (lane_piece_bytes() + 64 * lane_rank_bytes());
    assert_true(held() - before >= said);
    assert_true(held() - before <= said + said / 3); /* the allocator rounds up */
}

/* The control thread prepares memory for the arrays that the lane allocates, and for no other
 * arrays. */
static void arrays_are_wanted_for_results_that_a_piece_stores(void **state)
{
    static const struct lane_terms terms[] = {
        {0},
        {.rule = UPDATE_ADAM},
        {.quorum = QUORUM_FIRST, .bound = 2},
        {.quorum = QUORUM_CHOSEN},
        {.quorum = QUORUM_ANY},
        {.quorum = QUORUM_CHOSEN, .role = FOLLOWS_ROUNDS, .rule = UPDATE_ADAM},
        {.quorum = QUORUM_CHOSEN, .role = FOLLOWS_ROUNDS, .lag = 3},
    };
    rig_start(&rig, kind);
    for (uint32_t id = 0; id < sizeof terms / sizeof *terms; id++) {
        struct lane_piece spec = {.id = id, .elements = 1000, .terms = terms[id]};
        struct wanted_arrays wanted;
        size_t rest_bytes;
        spec.dtype = REDUCE_F32;
        assert_int_equal(wanted_by_pieces(rig.lane, RIG_JOB, 3, &spec, 1, &wanted, &rest_bytes), 0);
        rig_place_piece(&rig, 3, spec, false);
        const struct piece *p = piece_find(job_find(rig.lane, RIG_JOB), id);
        assert_int_equal(wanted.kept_bytes > 0, p->kept != NULL);
        assert_int_equal(wanted.state_bytes > 0, p->parameters != NULL);
    }
}

/* Some pieces were placed before. They must still exist after the refusal. */
static void earlier_pieces_stay_after_a_refusal(void **state)
{
    rig_start_job(&rig, kind, 2, 3, 4);
    one_round(1);
    lane_set_memory_limit(rig.lane, held() + MIB);
    /* the first three pieces are already placed */
    assert_int_equal(place(RIG_JOB, 2, 1, 20000), -ENOSPC);
    one_round(2);
    assert_int_equal(place(RIG_JOB, 2, 4, 5), 0);
}

static bool is_mapped(void) { return strcmp(kind, "shm") == 0; }

/* An admitted job keeps its reserved memory, even if other jobs allocate all other memory. */
static void room_for_a_window_is_reserved_from_the_first_connection_on(void **state)
{
    rig_start_job(&rig, kind, 2, 1, 4);
    lane_set_memory_limit(rig.lane, held() + MIB / 2);
    for (uint32_t first = 1; place(8, 768, first, 1) == 0; first++)
        ;
    uint64_t before = held();
    one_round(1);
    assert_int_equal(held(), before);
}

static void ask_in(uint32_t i, uint32_t job, uint32_t rank)
{
    struct rig_worker *w = &rig.workers[i];
    struct fabric_options options = {.payload_bytes_max = 64u << 10};
    struct record_connect ticket = rig_ticket(&rig, job, rank);
    assert_int_equal(fabric_open(kind, &options, &w->fabric), 0);
    assert_int_equal(fabric_connect(w->fabric, rig.address, &ticket, sizeof ticket, w, &w->conn),
                     0);
    rig_until(&rig, w->is_open || w->is_closed);
}

struct expected {
    uint32_t job;
    int code;
    const char *words;
    bool is_told;
};

static void look_at_failure(void *context, uint32_t job, int code, const char *text)
{
    struct expected *e = context;
    if (job == e->job && code == e->code && strstr(text, "for the window of") &&
        strstr(text, e->words))
        e->is_told = true;
    else
        print_message("said: job %u, %d, %s\n", job, code, text);
}

/* A refusal of a connection has no field for a text, so the failure of the job carries the text. */
static void refused_for_want_of_room(const struct rig_worker *w, struct expected e)
{
    assert_int_equal(w->refused, -e.code);
    lane_each_failure(rig.lane, look_at_failure, &e);
    assert_true(e.is_told);
    lane_drop(rig.lane, e.job, NULL, 0);
}

static void a_worker_without_memory_for_a_window_is_refused(void **state)
{
    rig_start_job(&rig, kind, 2, 1, 4);
    rig_place(&rig, 8, 1, 1, 1, 4, false);
    /* a sum over so many ranks needs several passes, with mapped memory and over a network */
    rig_place(&rig, 9, 9, 1, 1, 4, false);
    rig_place(&rig, 10, 9, 1, 1, 4, false);
    rig_place(&rig, 11, 9, 1, 1, 4, false);
    lane_set_memory_limit(rig.lane, held() + MIB);
    uint64_t before = held();
    ask_in(2, 8, 0);
    assert_int_equal(rig.workers[2].is_open, is_mapped());
    if (!is_mapped())
        refused_for_want_of_room(&rig.workers[2],
                                 (struct expected){8, -ENOSPC, "--lane-memory-max"});
    ask_in(3, 9, 0);
    assert_true(held() <= before);
    refused_for_want_of_room(&rig.workers[3], (struct expected){9, -ENOSPC, "--lane-memory-max"});
    one_round(1);
    lane_set_memory_limit(rig.lane, 0);
    lane_set_job_memory_limit(rig.lane, MIB);
    ask_in(4, 10, 0);
    refused_for_want_of_room(&rig.workers[4], (struct expected){10, -EDQUOT, "--job-memory-max"});
    lane_set_job_memory_limit(rig.lane, 0);
    ask_in(5, 11, 0);
    assert_true(rig.workers[5].is_open);
}

static void note_any_failure(void *context, uint32_t job, int code, const char *text)
{
    *(int *)context = code;
    print_message("said: job %u, %d, %s\n", job, code, text);
}

/* The lane does not read the memory of a lost rank, and needs no buffer for its input. Mapped
 * memory needs no buffers at all. */
static void a_rank_that_dies_takes_no_memory_of_a_job_that_goes_on_without_it(void **state)
{
    int failure = 0;
    rig_start_job(&rig, kind, 2, 1, 4);
    lane_set_elastic(rig.lane, RIG_JOB);
    one_round(1);
    uint64_t before = lane_job_memory(rig.lane, RIG_JOB);
    lane_set_job_memory_limit(rig.lane, before);
    rig_say(&rig, 1, (struct say){.piece = 1, .round = 2, .word = 2, .elements = 4});
    rig_settle(&rig);
    fabric_close(rig.workers[1].fabric);
    rig.workers[1].fabric = NULL;
    rig_until(&rig, rig_use(&rig).connections == 1);
    rig_say(&rig, 0, (struct say){.piece = 1, .round = 2, .word = 2, .elements = 4});
    rig_settle(&rig);
    lane_each_failure(rig.lane, note_any_failure, &failure);
    assert_int_equal(failure, 0);
    assert_int_equal(rig.workers[0].errors_count, 0);
    assert_int_equal(lane_job_memory(rig.lane, RIG_JOB), before);
}

/* The lane cannot read withdrawn memory. The error must not blame the memory limit of the lane. */
static void a_worker_that_withdraws_memory_gets_an_error_with_that_reason(void **state)
{
    rig_start_job(&rig, kind, 2, 1, 4);
    one_round(1);
    uint64_t before = lane_job_memory(rig.lane, RIG_JOB);
    lane_set_job_memory_limit(rig.lane, before);
    rig_say(&rig, 1, (struct say){.piece = 1, .round = 2, .word = 2, .elements = 4});
    rig_settle(&rig);
    fabric_withdraw(rig.workers[1].conn, 0);
    rig_settle(&rig);
    rig_say(&rig, 0, (struct say){.piece = 1, .round = 2, .word = 2, .elements = 4});
    rig_until(&rig, rig.workers[1].errors_count > 0);
    assert_true(rig_says(&rig.workers[1], -EFAULT, "no access to the memory of rank 1"));
    assert_int_equal(lane_job_memory(rig.lane, RIG_JOB), before);
}

static void a_job_holds_no_more_than_its_part(void **state)
{
    rig_start_job(&rig, kind, 2, 1, 4);
    uint64_t before = held();
    lane_set_memory_limit(rig.lane, before + 64 * MIB);
    lane_set_job_memory_limit(rig.lane, 16 * MIB);
    assert_int_equal(place(8, 768, 1, 20000), -EDQUOT);
    assert_int_equal(held(), before);
    uint32_t taken = 0;
    while (place(8, 768, taken + 1, 1) == 0)
        taken++;
    assert_true(lane_job_memory(rig.lane, 8) <= 16 * MIB);
    assert_true(lane_job_memory(rig.lane, 8) > 12 * MIB);
    assert_int_equal(place(9, 768, 1, 10), 0);
    one_round(1);
}

static void lending_more_bytes_than_the_job_may_fails_only_this_job(void **state)
{
    rig_start_job(&rig, kind, 2, 1, 4);
    rig_place(&rig, 8, 2, 1, 1, 4, false);
    lane_set_lent_limits(rig.lane, 8,
                         &(struct lane_lent){.bytes_max = RIG_REGION_BYTES + 4096, .tenant = ""});
    rig_connect(&rig, 2, 8, 0);
    rig_settle(&rig);
    assert_int_equal(rig.workers[2].errors_count, 0);
    rig_connect(&rig, 3, 8, 1); /* together the ranks share too much memory */
    rig_until(&rig, rig.workers[3].is_closed);
    rig_until(&rig, rig.workers[2].errors_count > 0);
    assert_true(rig_says(&rig.workers[2], -EDQUOT, "--job-lent-max"));
    assert_true(rig_says(&rig.workers[2], -EDQUOT, "lane 3, with rank 1: "));
    one_round(1);
}

/* Shares one more region. Does not wait until the lane knows the region. */
static void lend(struct rig_worker *w, uint32_t id)
{
    assert_int_equal(fabric_lend(w->conn, &w->region, id), 0);
}

/* Over a network the lane cannot check the length of a region that a worker reports. */
static void the_sum_of_lent_bytes_does_not_wrap(void **state)
{
    rig_start_job(&rig, kind, 2, 1, 4);
    if (is_mapped())
        return; /* the lane maps shared memory, so the length is checked */
    lane_set_lent_limits(rig.lane, RIG_JOB,
                         &(struct lane_lent){.bytes_max = UINT64_C(1) << 50, .tenant = ""});
    /* the sum of this length and the length of the first region wraps around to 0 */
    struct region rest = rig.workers[0].region;
    rest.bytes = -(size_t)RIG_REGION_BYTES;
    assert_int_equal(fabric_lend(rig.workers[0].conn, &rest, 1), 0);
    rig_until(&rig, rig.workers[0].is_closed);
    assert_int_equal(rig.failures, 1);
}

static void lending_more_regions_than_the_job_may_fails_only_this_job(void **state)
{
    rig_start_job(&rig, kind, 2, 1, 4);
    rig_place(&rig, 8, 2, 1, 1, 4, false);
    lane_set_lent_limits(rig.lane, 8, &(struct lane_lent){.regions_max = 4, .tenant = ""});
    rig_connect(&rig, 2, 8, 0);
    rig_connect(&rig, 3, 8, 1);
    lend(&rig.workers[2], 1);
    lend(&rig.workers[3], 1);
    rig_settle(&rig);
    fabric_withdraw(rig.workers[2].conn, 1); /* a withdrawn region no longer counts */
    lend(&rig.workers[3], 2);
    rig_settle(&rig);
    assert_int_equal(rig.workers[2].errors_count + rig.workers[3].errors_count, 0);
    lend(&rig.workers[3], 3);
    rig_until(&rig, rig.workers[3].is_closed);
    rig_until(&rig, rig.workers[2].errors_count > 0);
    assert_true(rig_says(&rig.workers[2], -EDQUOT, "lends 5 regions, may 4 (--job-regions-max)"));
    one_round(1);
}

static void figures_count_every_region_that_is_lent_whatever_its_number(void **state)
{
    rig_start_job(&rig, kind, 2, 1, 4);
    rig_settle(&rig);
    assert_int_equal(rig_use(&rig).registered_regions, 2);
    lend(&rig.workers[0], FABRIC_REGIONS_MAX - 1);
    lend(&rig.workers[0], 40);
    rig_until(&rig, rig_use(&rig).registered_regions == 4);
    assert_int_equal(rig_use(&rig).registered_bytes, 4 * RIG_REGION_BYTES);
    fabric_withdraw(rig.workers[0].conn, FABRIC_REGIONS_MAX - 1);
    rig_settle(&rig);
    assert_int_equal(rig_use(&rig).registered_regions, 3);
    one_round(1);
}

static void regions_of_all_jobs_of_a_tenant_count_together(void **state)
{
    rig_start_job(&rig, kind, 2, 1, 4);
    lane_set_lent_limits(rig.lane, RIG_JOB,
                         &(struct lane_lent){.tenant_regions_max = 3, .tenant = "other"});
    for (uint32_t job = 8; job < 10; job++) {
        rig_place(&rig, job, 2, 1, 1, 4, false);
        lane_set_lent_limits(rig.lane, job,
                             &(struct lane_lent){.tenant_regions_max = 3, .tenant = "acme"});
    }
    rig_connect(&rig, 2, 8, 0);
    rig_connect(&rig, 3, 9, 0);
    rig_connect(&rig, 4, 9, 1);
    rig_settle(&rig);
    assert_int_equal(rig.workers[4].errors_count, 0);
    lend(&rig.workers[3], 1);
    rig_until(&rig, rig.workers[3].is_closed);
    rig_until(&rig, rig.workers[4].errors_count > 0);
    assert_true(rig_says(&rig.workers[4], -EDQUOT, "(--tenant-regions-max)"));
    assert_int_equal(rig.workers[2].errors_count, 0);
    one_round(1);
}

#define CASE(name) cmocka_unit_test_teardown(name, stop)

static const struct CMUnitTest cases[] = {
    CASE(a_lane_holds_no_more_than_it_may_and_other_jobs_train_on),
    CASE(pieces_use_the_memory_that_the_lane_reports),
    CASE(arrays_are_wanted_for_results_that_a_piece_stores),
    CASE(earlier_pieces_stay_after_a_refusal),
    CASE(room_for_a_window_is_reserved_from_the_first_connection_on),
    CASE(a_worker_without_memory_for_a_window_is_refused),
    CASE(a_rank_that_dies_takes_no_memory_of_a_job_that_goes_on_without_it),
    CASE(a_worker_that_withdraws_memory_gets_an_error_with_that_reason),
    CASE(a_job_holds_no_more_than_its_part),
    CASE(lending_more_bytes_than_the_job_may_fails_only_this_job),
    CASE(the_sum_of_lent_bytes_does_not_wrap),
    CASE(lending_more_regions_than_the_job_may_fails_only_this_job),
    CASE(figures_count_every_region_that_is_lent_whatever_its_number),
    CASE(regions_of_all_jobs_of_a_tenant_count_together),
};

int main(int argc, char **argv)
{
    kind = argc > 1 ? argv[1] : "shm";
    return cmocka_run_group_tests_name(kind, cases, NULL, NULL);
}
