/* Tests faults between a lane and its workers: tickets, deaths, goodbyes, invalid bytes. Uses
 * shared memory and libfabric. */
#include "svc/lane/hear/leave.h"
#include "svc/lane/move/regroup.h"
#include "svc/lane/move/release.h"
#include "svc/reduce/reduce.h"
#include "test/unit/lane/lane_rig.h"
#include "test/unit/skip.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const char *kind;
static struct rig rig;

static int stop(void **state)
{
    rig_stop(&rig);
    return 0;
}

static bool says(const struct rig_worker *w, const char *words)
{
    char text[RECORD_TEXT_BYTES + 1] = {0};
    memcpy(text, w->error.text, w->error.text_bytes);
    if (strstr(text, words))
        return true;
    print_message("said: %s\n", text);
    return false;
}

/* --- W7: tickets --- */

static int try_ticket(uint32_t i, const void *ticket, size_t bytes)
{
    struct rig_worker *w = &rig.workers[i];
    struct fabric_options options = {.payload_bytes_max = 64u << 10};
    if (!w->fabric)
        assert_int_equal(fabric_open(kind, &options, &w->fabric), 0);
    w->is_closed = w->is_open = false;
    assert_int_equal(fabric_connect(w->fabric, rig.address, ticket, bytes, w, &w->conn), 0);
    rig_until(&rig, w->is_open || w->is_closed);
    return w->is_open ? 0 : -(int)w->refused;
}

static void a_connection_without_a_granted_ticket_is_refused(void **state)
{
    rig_start(&rig, kind);
    rig_place(&rig, RIG_JOB, 2, 1, 1, 10, false);
    struct record_connect forged = {
        .magic = RECORD_MAGIC, .job = RIG_JOB, .lane = RIG_LANE, .incarnation = RIG_INCARNATION};
    assert_int_equal(try_ticket(0, &forged, sizeof forged), -EACCES);
    assert_int_equal(lane_connections(rig.lane), 0);
}

static void a_ticket_works_once(void **state)
{
    rig_start(&rig, kind);
    rig_place(&rig, RIG_JOB, 2, 1, 1, 10, false);
    struct record_connect ticket = rig_ticket(&rig, RIG_JOB, 0);
    assert_int_equal(try_ticket(0, &ticket, sizeof ticket), 0);
    assert_int_equal(try_ticket(1, &ticket, sizeof ticket), -EACCES);
}

static void a_ticket_for_another_lane_process_job_or_rank_is_refused(void **state)
{
    rig_start(&rig, kind);
    rig_place(&rig, RIG_JOB, 2, 1, 1, 10, false);
    rig_place(&rig, RIG_JOB + 1, 2, 1, 1, 10, false);
    struct record_connect ticket = rig_ticket(&rig, RIG_JOB, 0), changed = ticket;
    changed.lane++;
    assert_int_equal(try_ticket(0, &changed, sizeof changed), -ESTALE);
    changed = ticket;
    changed.incarnation++;
    assert_int_equal(try_ticket(0, &changed, sizeof changed), -ESTALE);
    changed = ticket;
    changed.job++;
    assert_int_equal(try_ticket(0, &changed, sizeof changed), -EACCES);
    changed = ticket;
    changed.rank = 1;
    assert_int_equal(try_ticket(0, &changed, sizeof changed), -EACCES);
    changed = ticket;
    changed.magic ^= 1;
    assert_int_equal(try_ticket(0, &changed, sizeof changed), -EPROTO);
    assert_int_equal(try_ticket(0, &ticket, 40), -EPROTO);
    assert_int_equal(try_ticket(0, &ticket, sizeof ticket), 0);
}

static void a_live_connection_hands_out_the_next_ticket(void **state)
{
    rig_start_job(&rig, kind, 2, 1, 10);
    struct record_connect next = rig.workers[0].next_ticket;
    assert_int_equal(next.rank, 0);
    /* over libfabric the first connection may be dead (A69) */
    bool is_shm = strcmp(kind, "shm") == 0;
    assert_int_equal(try_ticket(2, &rig.workers[1].next_ticket, sizeof next), is_shm ? -EBUSY : 0);
}

/* --- deaths and goodbyes --- */

static void the_others_get_the_name_of_a_dead_worker(void **state)
{
    rig_start_job(&rig, kind, 3, 1, 1u << 18);
    rig_say(&rig, 0, (struct say){.piece = 1, .word = 1, .round = 1, .elements = 1u << 18});
    rig_turn(&rig);
    fabric_close(rig.workers[2].fabric);
    rig.workers[2].fabric = NULL;
    rig_until(&rig, rig.workers[0].errors_count == 1 && rig.workers[1].errors_count == 1);
    assert_int_equal(rig.workers[1].error.word, RECORD_WORD_NONE);
    assert_true(says(&rig.workers[1], "rank 2"));
    rig_say(&rig, 1, (struct say){.piece = 1, .word = 5, .round = 1, .elements = 1u << 18});
    rig_until(&rig, rig.workers[1].errors_count == 2);
    assert_int_equal(rig.workers[1].error.word, 5);
}

/* --- A7: pages that fail --- */

static void all_say(uint32_t epoch, uint64_t ranks)
{
    for (uint32_t rank = 0; rank < 3; rank++) {
        if (ranks >> rank & 1)
            rig_say(&rig, rank,
                    (struct say){
                        .piece = 1, .word = epoch, .round = 1, .epoch = epoch, .elements = 1000});
    }
}

/* Makes a page of rank 1's input unreadable during a sum. The rank is lost, and no rank may receive
 * zeros. */
static void break_a_page_in_a_sum(void)
{
    rig_break_page(&rig, 1, rig_input(&rig, 1, 0));
    all_say(1, 7);
    rig_until(&rig, rig.workers[1].is_closed);
    rig_settle(&rig);
    for (uint32_t rank = 0; rank < 3; rank++)
        assert_int_equal(rig.workers[rank].words_count + rig.workers[rank].commits_count, 0);
}

static void a_page_that_fails_in_a_sum_fails_the_job_by_name(void **state)
{
    rig_start_job(&rig, kind, 3, 1, 1000);
    if (strcmp(kind, "shm") != 0)
        skip_because("over this transport no memory is mapped");
    break_a_page_in_a_sum();
    assert_true(rig.workers[0].errors_count > 0 && rig.workers[2].errors_count > 0);
    assert_true(says(&rig.workers[2], "rank 1"));
}

static void in_an_elastic_job_a_page_that_fails_in_a_sum_fails_its_rank_alone(void **state)
{
    uint64_t ranks[RECORD_MISSING_WORDS] = {7}, gone[RECORD_MISSING_WORDS] = {2};
    struct lane_piece piece = {
        .id = 1, .dtype = REDUCE_F32, .elements = 1000, .tensor = "w", .ranks = ranks};
    rig_start(&rig, kind);
    rig_place_piece(&rig, 3, piece, false);
    lane_set_elastic(rig.lane, RIG_JOB);
    for (rig.count = 0; rig.count < 3; rig.count++)
        rig_connect(&rig, rig.count, RIG_JOB, rig.count);
    if (strcmp(kind, "shm") != 0)
        skip_because("over this transport no memory is mapped");
    break_a_page_in_a_sum();
    assert_int_equal(lane_release(rig.lane, RIG_JOB, &piece.id, 1), 0);
    lane_let_go(rig.lane, RIG_JOB, gone);
    rig_until(&rig, lane_rested(rig.lane, RIG_JOB, &piece.id, 1) == 1);
    ranks[0] = 5;
    assert_int_equal(lane_regroup(rig.lane, RIG_JOB, 2, &piece, 1), 0);
    rig_input(&rig, 0, 0)[7] = rig_input(&rig, 2, 0)[7] = 2;
    all_say(2, 5);
    rig_until(&rig, rig.workers[0].commits_count == 1 && rig.workers[2].commits_count == 1);
    assert_true(rig_landing(&rig, 2, 0)[7] == 4);
}

/* --- deaths in mid-round --- */

static void a_death_in_mid_round_leaves_lane_and_other_job_unhurt(void **state)
{
    enum { BIG = 1000000 };
    for (int turns = 0; turns < 12; turns += 3) {
        rig_start_job(&rig, kind, 2, 1, BIG);
        rig_place(&rig, 8, 1, 1, 1, 1000, false);
        rig_connect(&rig, 2, 8, 0);
        rig_say(&rig, 0, (struct say){.piece = 1, .word = 1, .round = 1, .elements = BIG});
        rig_say(&rig, 1, (struct say){.piece = 1, .word = 1, .round = 1, .elements = BIG});
        for (int i = 0; i < turns; i++)
            rig_turn(&rig);
        fabric_close(rig.workers[1].fabric);
        rig.workers[1].fabric = NULL;
        for (uint64_t round = 1; round <= 20; round++) {
            for (int e = 0; e < 1000; e++)
                rig_input(&rig, 2, 0)[e] = (float)(e + round);
            rig_say(&rig, 2, (struct say){.piece = 1, .word = 1, .round = round, .elements = 1000});
            rig_until(&rig, rig.workers[2].commits_count == (int)round);
            assert_true(rig_landing(&rig, 2, 0)[999] == (float)(999 + round));
        }
        rig_until(&rig, lane_connections(rig.lane) == 2);
        if (turns < 9)
            rig_stop(&rig);
    }
}

static void a_dropped_job_gives_all_its_memory_back(void **state)
{
    struct lane_use use;
    struct lane_job_use jobs[4];
    rig_start(&rig, kind);
    lane_measure(rig.lane, &use, jobs, 4);
    size_t before = use.arena_bytes;
    rig_place(&rig, RIG_JOB, 2, 1, 500, 1000, false);
    rig_connect(&rig, 0, RIG_JOB, 0);
    rig_connect(&rig, 1, RIG_JOB, 1);
    for (uint32_t rank = 0; rank < 2; rank++)
        rig_say(&rig, rank, (struct say){.piece = 1, .word = 1, .round = 1, .elements = 1000});
    rig_until(&rig, rig.workers[0].commits_count == 1);
    lane_measure(rig.lane, &use, jobs, 4);
    assert_int_equal(use.jobs_count, 1);
    assert_int_equal(jobs[0].registered_bytes, 2 * RIG_REGION_BYTES);
    lane_drop(rig.lane, RIG_JOB, NULL, 0);
    rig_until(&rig, rig.workers[0].is_closed && rig.workers[1].is_closed);
    rig_settle(&rig);
    lane_measure(rig.lane, &use, jobs, 4);
    assert_int_equal(use.jobs_count, 0);
    assert_int_equal(use.arena_bytes, before);
}

static void the_memory_of_jobs_equals_the_arenas_count_within_five_percent(void **state)
{
    struct lane_use use;
    struct lane_job_use jobs[4];
    rig_start_job(&rig, kind, 3, 200, 1000);
    rig_place(&rig, 8, 2, 1, 300, 50, false);
    for (uint32_t rank = 0; rank < 3; rank++)
        rig_say(&rig, rank, (struct say){.piece = 1, .word = 1, .round = 1, .elements = 1000});
    rig_until(&rig, rig.workers[0].commits_count == 1);
    lane_measure(rig.lane, &use, jobs, 4);
    assert_int_equal(use.jobs_count, 2);
    uint64_t held = jobs[0].heap_bytes + jobs[1].heap_bytes;
    assert_in_range(held, use.arena_bytes * 95 / 100, use.arena_bytes * 105 / 100);
}

static void a_rank_that_left_ends_rounds_that_wait_for_it(void **state)
{
    struct record_leave leave = {.kind = RECORD_LEAVE};
    rig_start_job(&rig, kind, 2, 2, 100);
    rig_say(&rig, 0, (struct say){.piece = 1, .word = 1, .round = 1, .elements = 100});
    rig_turn(&rig);
    assert_int_equal(fabric_send(rig.workers[1].conn, &leave, sizeof leave, NULL, 0), 0);
    rig_until(&rig, rig.workers[0].errors_count == 1);
    assert_int_equal(rig.workers[0].error.code, -EPIPE);
    assert_true(says(&rig.workers[0], "rank 1 has left"));
    rig_say(&rig, 0, (struct say){.piece = 2, .word = 2, .round = 1, .elements = 100});
    rig_until(&rig, rig.workers[0].errors_count == 2);
    assert_int_equal(rig.workers[0].error.code, -EPIPE);
}

/* The coordinator reports ranks that left without a connection to this lane. Connected ranks report
 * their leave themselves. */
static void a_rank_that_left_without_a_round_ends_rounds_that_wait_for_it(void **state)
{
    uint64_t left[RECORD_MISSING_WORDS] = {6};
    rig_start(&rig, kind);
    rig_place(&rig, RIG_JOB, 3, 1, 1, 100, false);
    rig.count = 2;
    for (uint32_t rank = 0; rank < 2; rank++)
        rig_connect(&rig, rank, RIG_JOB, rank);
    rig_say(&rig, 0, (struct say){.piece = 1, .word = 1, .round = 1, .elements = 100});
    rig_turn(&rig);
    lane_leave(rig.lane, RIG_JOB + 1, left);
    lane_leave(rig.lane, RIG_JOB, left);
    rig_until(&rig, rig.workers[0].errors_count == 1);
    assert_int_equal(rig.workers[0].error.code, -EPIPE);
    assert_true(says(&rig.workers[0], "rank 2 has left"));
}

static void say_goodbye(uint32_t i)
{
    struct record_leave leave = {.kind = RECORD_LEAVE};
    assert_int_equal(fabric_send(rig.workers[i].conn, &leave, sizeof leave, NULL, 0), 0);
}

/* A rank leaves after other ranks have announced the next round, in which this rank will never take
 * part. */
static void a_next_round_without_a_rank_that_left_is_an_error(void **state)
{
    rig_start_job(&rig, kind, 2, 1, 300000);
    rig_say(&rig, 0, (struct say){.piece = 1, .word = 1, .round = 1, .elements = 300000});
    rig_say(&rig, 0,
            (struct say){.piece = 1, .word = 2, .round = 2, .elements = 300000, .offset = 1200000});
    rig_settle(&rig);
    rig_say(&rig, 1, (struct say){.piece = 1, .word = 1, .round = 1, .elements = 300000});
    rig_until(&rig, rig.workers[1].words_count == 1);
    say_goodbye(1);
    rig_until(&rig, rig.workers[0].words_count == 1 && rig.workers[0].errors_count == 1);
    assert_int_equal(rig.workers[0].error.word, 2);
    assert_int_equal(rig.workers[0].error.code, -EPIPE);
}

static void announcements_before_a_goodbye_may_be_repeated_after_it(void **state)
{
    rig_start_job(&rig, kind, 2, 1, 300000);
    for (uint32_t rank = 0; rank < 2; rank++)
        rig_say(&rig, rank, (struct say){.piece = 1, .word = 1, .round = 1, .elements = 300000});
    rig_until(&rig, rig.workers[1].words_count == 1);
    say_goodbye(1);
    rig_say(&rig, 0, (struct say){.piece = 1, .word = 1, .round = 1, .elements = 300000});
    rig_until(&rig, rig.workers[0].commits_count == 1);
    rig_settle(&rig);
    assert_int_equal(rig.workers[0].errors_count, 0);
}

static void a_rank_that_leaves_after_a_failure_is_not_named_as_its_cause(void **state)
{
    struct record_leave leave = {.kind = RECORD_LEAVE, .after_failure = 1};
    rig_start_job(&rig, kind, 3, 1, 100);
    rig_say(&rig, 0, (struct say){.piece = 1, .word = 1, .round = 1, .elements = 100});
    rig_turn(&rig);
    assert_int_equal(fabric_send(rig.workers[1].conn, &leave, sizeof leave, NULL, 0), 0);
    fabric_disconnect(rig.workers[1].conn);
    rig_until(&rig, rig.workers[1].is_closed);
    rig_settle(&rig);
    assert_int_equal(rig.workers[0].errors_count, 0);
    fabric_close(rig.workers[2].fabric);
    rig.workers[2].fabric = NULL;
    rig_until(&rig, rig.workers[0].errors_count == 1);
    assert_true(says(&rig.workers[0], "rank 2"));
}

static void a_round_number_without_a_successor_is_refused(void **state)
{
    rig_start(&rig, kind);
    rig_place(&rig, RIG_JOB, 1, 1, 1, 100, true);
    rig_connect(&rig, 0, RIG_JOB, 0);
    rig_say(&rig, 0,
            (struct say){.piece = 1,
                         .round = UINT64_MAX,
                         .standing = RECORD_IDLE,
                         .has_no_input = true,
                         .has_no_output = true});
    rig_until(&rig, rig.workers[0].is_closed);
}

static void a_wrong_dtype_is_an_error_on_every_rank(void **state)
{
    rig_start_job(&rig, kind, 2, 1, 100);
    rig_say(&rig, 0, (struct say){.piece = 1, .word = 1, .round = 1, .elements = 100});
    rig_settle(&rig);
    rig_say(&rig, 1, (struct say){.piece = 1, .word = 1, .round = 1, .elements = 100, .dtype = 9});
    rig_until(&rig, rig.workers[0].errors_count == 1 && rig.workers[1].errors_count == 1);
    assert_int_equal(rig.workers[0].error.code, -EINVAL);
    assert_true(says(&rig.workers[0], "rank 1 pushes ?, but declared f32"));
}

static void a_rank_may_leave_once_it_has_its_result(void **state)
{
    struct record_leave leave = {.kind = RECORD_LEAVE};
    rig_start_job(&rig, kind, 2, 1, 300000);
    for (int e = 0; e < 300000; e++)
        rig_input(&rig, 0, 0)[e] = rig_input(&rig, 1, 0)[e] = (float)e;
    rig_say(&rig, 0, (struct say){.piece = 1, .word = 1, .round = 1, .elements = 300000});
    rig_say(&rig, 1, (struct say){.piece = 1, .word = 2, .round = 1, .elements = 300000});
    rig_until(&rig, rig.workers[1].words_count == 1);
    assert_int_equal(fabric_send(rig.workers[1].conn, &leave, sizeof leave, NULL, 0), 0);
    fabric_disconnect(rig.workers[1].conn);
    rig_until(&rig, rig.workers[0].words_count == 1);
    assert_true(rig_landing(&rig, 0, 0)[299999] == 2.0f * 299999);
    rig_until(&rig, rig.workers[1].is_closed);
    assert_int_equal(rig.workers[0].errors_count, 0);
}

static void a_stopped_worker_is_late_and_the_other_job_goes_on(void **state)
{
    enum { BIG = 900000 };
    rig_start_job(&rig, kind, 2, 1, BIG);
    rig_place(&rig, 8, 1, 1, 1, 100, false);
    rig_connect(&rig, 2, 8, 0);
    for (int e = 0; e < BIG; e++)
        rig_input(&rig, 0, 0)[e] = rig_input(&rig, 1, 0)[e] = 1.5f;
    rig_say(&rig, 0, (struct say){.piece = 1, .word = 1, .round = 1, .elements = BIG});
    rig_say(&rig, 1, (struct say){.piece = 1, .word = 1, .round = 1, .elements = BIG});
    fabric_flush(rig.workers[1].fabric);
    rig.workers[1].is_stopped = true;
    for (uint64_t round = 1; round <= 200; round++) {
        rig_say(&rig, 2, (struct say){.piece = 1, .word = 1, .round = round, .elements = 100});
        rig_until(&rig, rig.workers[2].commits_count == (int)round);
    }
    assert_int_equal(rig.workers[0].errors_count, 0);
    rig.workers[1].is_stopped = false;
    rig_until(&rig, rig.workers[0].commits_count == 1 && rig.workers[1].commits_count == 1);
    assert_true(rig_landing(&rig, 0, 0)[BIG - 1] == 3.0f);
    assert_true(rig_landing(&rig, 1, 0)[BIG - 1] == 3.0f);
}

/* --- W9: invalid records --- */

static void garbage_on_a_connection_ends_its_job_only(void **state)
{
    char garbage[100];
    memset(garbage, 0xa5, sizeof garbage);
    rig_start_job(&rig, kind, 2, 1, 100);
    rig_place(&rig, 8, 1, 1, 1, 100, false);
    rig_connect(&rig, 2, 8, 0);
    assert_int_equal(fabric_send(rig.workers[1].conn, garbage, sizeof garbage, NULL, 0), 0);
    rig_until(&rig, rig.workers[1].is_closed && rig.workers[0].errors_count >= 1);
    assert_true(says(&rig.workers[0], "rank 1"));
    rig_say(&rig, 2, (struct say){.piece = 1, .word = 1, .round = 1, .elements = 100});
    rig_until(&rig, rig.workers[2].commits_count == 1);
}

static void a_record_that_only_lanes_send_is_refused(void **state)
{
    struct record_commit commit = {.kind = RECORD_COMMIT, .count = 1};
    rig_start_job(&rig, kind, 2, 1, 100);
    assert_int_equal(fabric_send(rig.workers[1].conn, &commit, 12, NULL, 0), 0);
    rig_until(&rig, rig.workers[1].is_closed && rig.workers[0].errors_count >= 1);
}

struct failed {
    uint32_t job, count;
    int code;
    char text[256];
};

static void note_failed(void *context, uint32_t job, int code, const char *text)
{
    struct failed *failed = context;
    failed->job = job;
    failed->code = code;
    failed->count++;
    snprintf(failed->text, sizeof failed->text, "%s", text);
}

/* Over a connection that has ended, the lane cannot send an error to the worker. The lane therefore
 * reports the failure to the coordinator. */
static void an_ended_connection_is_a_failure_that_the_lane_reports(void **state)
{
    struct failed failed = {0};
    rig_start_job(&rig, kind, 2, 1, 10);
    lane_each_failure(rig.lane, note_failed, &failed);
    assert_int_equal(failed.count + rig.failures, 0);
    fabric_disconnect(rig.workers[1].conn);
    rig_until(&rig, rig.failures == 1);
    lane_each_failure(rig.lane, note_failed, &failed);
    assert_int_equal(failed.count, 1);
    assert_int_equal(failed.job, RIG_JOB);
    assert_int_equal(failed.code, -ECONNRESET);
    assert_non_null(strstr(failed.text, "rank 1 of job 'job'"));
    lane_drop(rig.lane, RIG_JOB, NULL, 0);
    lane_each_failure(rig.lane, note_failed, &failed);
    assert_int_equal(failed.count, 1);
}

/* The piece cannot be placed again before its open round has ended, under any epoch. */
static void a_piece_that_is_being_dropped_cannot_be_placed_again(void **state)
{
    enum { BIG = 1000000 };
    const uint32_t id = 1;
    struct lane_piece piece = {
        .id = id, .task = 1, .dtype = REDUCE_F32, .elements = BIG, .tensor = "w"};
    rig_start_job(&rig, kind, 2, 1, BIG);
    assert_int_equal(lane_place(rig.lane, RIG_JOB, "job", 2, 2, true, &piece, 1), -EBUSY);
    for (uint32_t rank = 0; rank < 2; rank++)
        rig_say(&rig, rank, (struct say){.piece = 1, .word = 1, .round = 1, .elements = BIG});
    rig_until(&rig, !lane_is_quiet(rig.lane));
    lane_drop(rig.lane, RIG_JOB, &id, 1);
    assert_int_equal(lane_place(rig.lane, RIG_JOB, "job", 2, 1, true, &piece, 1), -EAGAIN);
    rig_until(&rig, rig.workers[0].words_count == 1 && rig.workers[1].words_count == 1);
    rig_settle(&rig);
    assert_int_equal(lane_place(rig.lane, RIG_JOB, "job", 2, 2, true, &piece, 1), 0);
}

/* The piece fails while results are being written. The piece must become idle before the drop. */
static void a_piece_that_failed_in_mid_round_can_be_dropped(void **state)
{
    enum { BIG = 1000000 };
    const uint32_t id = 1;
    struct lane_piece piece = {
        .id = id, .task = 1, .dtype = REDUCE_F32, .elements = BIG, .tensor = "w"};
    rig_start_job(&rig, kind, 2, 1, BIG);
    for (uint32_t rank = 0; rank < 2; rank++)
        rig_say(&rig, rank, (struct say){.piece = 1, .word = 1, .round = 1, .elements = BIG});
    rig_until(&rig, !lane_is_quiet(rig.lane));
    rig_say(&rig, 0,
            (struct say){.piece = 1, .word = 2, .round = 2, .elements = BIG, .dtype = REDUCE_F64});
    rig_until(&rig, rig.workers[1].errors_count == 1);
    assert_int_equal(rig.workers[1].error.code, -EINVAL);
    rig_settle(&rig);
    assert_true(lane_is_quiet(rig.lane));
    assert_int_equal(rig.workers[1].commits_count, 0);
    lane_drop(rig.lane, RIG_JOB, &id, 1);
    assert_int_equal(lane_place(rig.lane, RIG_JOB, "job", 2, 2, false, &piece, 1), 0);
    for (uint32_t rank = 0; rank < 2; rank++)
        rig_say(&rig, rank,
                (struct say){.piece = 1, .word = 3, .round = 1, .elements = BIG, .epoch = 2});
    rig_until(&rig, rig.workers[0].commits_count == 1 && rig.workers[1].commits_count == 1);
}

/* All ranks have announced. One rank makes its memory unreadable before the round starts. */
static void a_piece_that_failed_before_its_round_began_can_be_dropped(void **state)
{
    const uint32_t id = 1;
    struct lane_piece piece = {
        .id = id, .task = 1, .dtype = REDUCE_F32, .elements = 100, .tensor = "w"};
    rig_start_job(&rig, kind, 2, 1, 100);
    rig_say(&rig, 1, (struct say){.piece = 1, .word = 1, .round = 1, .elements = 100});
    rig_settle(&rig);
    rig_say(&rig, 0, (struct say){.piece = 1, .word = 1, .round = 1, .elements = 100});
    rig_say(&rig, 0,
            (struct say){.piece = 1, .word = 2, .round = 2, .elements = 100, .dtype = REDUCE_I32});
    rig_until(&rig, rig.workers[0].errors_count > 0 && rig.workers[1].errors_count > 0);
    rig_settle(&rig);
    lane_drop(rig.lane, RIG_JOB, &id, 1);
    rig_settle(&rig);
    assert_int_equal(lane_place(rig.lane, RIG_JOB, "job", 2, 2, false, &piece, 1), 0);
}

/* The piece waits behind another piece and has no transfer, so the end of a transfer cannot
 * complete its drop. */
static void a_dropped_piece_that_fails_before_its_round_began_is_gone(void **state)
{
    enum { BIG = 1000000 };
    const uint32_t id = 2;
    struct lane_piece piece = {
        .id = id, .task = 1, .dtype = REDUCE_F32, .elements = BIG, .tensor = "w"};
    rig_start_job(&rig, kind, 2, 2, BIG);
    for (uint32_t number = 1; number <= 2; number++)
        for (uint32_t rank = 0; rank < 2; rank++)
            rig_say(&rig, rank,
                    (struct say){.piece = number, .word = number, .round = 1, .elements = BIG});
    rig_until(&rig, !lane_is_quiet(rig.lane));
    rig.workers[0].is_stopped = rig.workers[1].is_stopped = true;
    if (strcmp(kind, "ofi") == 0)
        /* at this point all announcements have arrived, but no input has been read */
        rig_settle(&rig);
    lane_drop(rig.lane, RIG_JOB, &id, 1);
    assert_int_equal(lane_place(rig.lane, RIG_JOB, "job", 2, 2, false, &piece, 1), -EAGAIN);
    rig_say(&rig, 0,
            (struct say){.piece = id, .word = 3, .round = 2, .elements = BIG, .dtype = REDUCE_I32});
    rig.workers[0].is_stopped = rig.workers[1].is_stopped = false;
    rig_until(&rig, rig.workers[1].errors_count == 1 && rig.workers[1].commits_count == 1);
    assert_int_equal(rig.workers[1].error.word, id);
    assert_int_equal(rig.workers[1].error.code, -EINVAL);
    assert_int_equal(lane_place(rig.lane, RIG_JOB, "job", 2, 2, false, &piece, 1), 0);
}

#define CASE(name) cmocka_unit_test_teardown(name, stop)
static const struct CMUnitTest cases[] = {
    CASE(a_connection_without_a_granted_ticket_is_refused),
    CASE(a_ticket_works_once),
    CASE(a_ticket_for_another_lane_process_job_or_rank_is_refused),
    CASE(a_live_connection_hands_out_the_next_ticket),
    CASE(the_others_get_the_name_of_a_dead_worker),
    CASE(a_page_that_fails_in_a_sum_fails_the_job_by_name),
    CASE(in_an_elastic_job_a_page_that_fails_in_a_sum_fails_its_rank_alone),
    CASE(a_death_in_mid_round_leaves_lane_and_other_job_unhurt),
    CASE(a_dropped_job_gives_all_its_memory_back),
    CASE(the_memory_of_jobs_equals_the_arenas_count_within_five_percent),
    CASE(a_rank_that_left_ends_rounds_that_wait_for_it),
    CASE(a_rank_that_left_without_a_round_ends_rounds_that_wait_for_it),
    CASE(a_next_round_without_a_rank_that_left_is_an_error),
    CASE(announcements_before_a_goodbye_may_be_repeated_after_it),
    CASE(a_rank_that_leaves_after_a_failure_is_not_named_as_its_cause),
    CASE(a_round_number_without_a_successor_is_refused),
    CASE(a_wrong_dtype_is_an_error_on_every_rank),
    CASE(a_rank_may_leave_once_it_has_its_result),
    CASE(a_stopped_worker_is_late_and_the_other_job_goes_on),
    CASE(garbage_on_a_connection_ends_its_job_only),
    CASE(a_record_that_only_lanes_send_is_refused),
    CASE(an_ended_connection_is_a_failure_that_the_lane_reports),
    CASE(a_piece_that_is_being_dropped_cannot_be_placed_again),
    CASE(a_piece_that_failed_in_mid_round_can_be_dropped),
    CASE(a_piece_that_failed_before_its_round_began_can_be_dropped),
    CASE(a_dropped_piece_that_fails_before_its_round_began_is_gone),
};

int main(int argc, char **argv)
{
    kind = argc > 1 ? argv[1] : "shm";
    if (argc > 2)
        cmocka_set_test_filter(argv[2]);
    return cmocka_run_group_tests_name(kind, cases, NULL, NULL);
}
