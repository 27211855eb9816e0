/* Tests the rules of the data plane one by one (svc/wire/README.md), as messages between a lane and
 * workers over shared memory and over libfabric. */
#include "test/unit/lane/lane_rig.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const char *kind;
static struct rig rig;

static float value(uint32_t rank, uint64_t round, uint64_t element)
{
    uint32_t x = (uint32_t)(element * 2654435761u ^ round * 40503u ^ (rank + 1) * 97u);
    x ^= x >> 15;
    x *= 0x2c1b3c6du;
    return (float)(x >> 8) * 0x1p-23f - 1.0f;
}

static void fill(uint32_t rank, uint64_t round, uint64_t offset, uint64_t elements)
{
    for (uint64_t e = 0; e < elements; e++)
        rig_input(&rig, rank, offset)[e] = value(rank, round, e);
}

static float expected(uint32_t workers, uint64_t round, uint64_t e, bool is_mean)
{
    float sum = value(0, round, e);
    for (uint32_t rank = 1; rank < workers; rank++)
        sum += value(rank, round, e);
    return is_mean ? sum / (float)workers : sum;
}

static void check_result(uint32_t rank, uint32_t workers, uint64_t round, uint64_t offset,
                         uint64_t elements, bool is_mean)
{
    for (uint64_t e = 0; e < elements; e++) {
        float want = expected(workers, round, e, is_mean);
        if (memcmp(&want, &rig_landing(&rig, rank, offset)[e], sizeof want) != 0)
            fail_msg("rank %u round %llu element %llu: %.9g, not %.9g", rank,
                     (unsigned long long)round, (unsigned long long)e,
                     rig_landing(&rig, rank, offset)[e], want);
    }
}

static int stop(void **state)
{
    rig_stop(&rig);
    return 0;
}

/* --- rule 1: a round is counted per tensor --- */

static void a_round_is_summed_when_all_ranks_have_announced_it(void **state)
{
    rig_start_job(&rig, kind, 3, 1, 1000);
    for (uint32_t rank = 0; rank < 3; rank++) {
        assert_int_equal(rig.workers[0].words_count, 0);
        fill(rank, 1, 0, 1000);
        rig_say(&rig, rank,
                (struct say){.piece = 1, .word = 100 + rank, .round = 1, .elements = 1000});
        rig_turn(&rig);
    }
    for (uint32_t rank = 0; rank < 3; rank++) {
        rig_until(&rig, rig.workers[rank].words_count == 1);
        assert_int_equal(rig.workers[rank].words[0], 100 + rank);
        check_result(rank, 3, 1, 0, 1000, false);
    }
}

static void tensors_count_their_rounds_apart(void **state)
{
    rig_start_job(&rig, kind, 2, 2, 16);
    for (uint64_t round = 1; round <= 5; round++) {
        for (uint32_t rank = 0; rank < 2; rank++) {
            fill(rank, round, 0, 16);
            rig_say(
                &rig, rank,
                (struct say){.piece = 1, .word = (uint32_t)round, .round = round, .elements = 16});
        }
        rig_until(&rig, rig.workers[0].commits_count == (int)round &&
                            rig.workers[1].commits_count == (int)round);
        check_result(1, 2, round, 0, 16, false);
    }
    rig_say(&rig, 0,
            (struct say){.piece = 2, .word = 50, .round = 1, .elements = 16, .offset = 4096});
    rig_say(&rig, 1,
            (struct say){.piece = 2, .word = 51, .round = 1, .elements = 16, .offset = 4096});
    rig_until(&rig, rig.workers[0].words_count == 6);
    assert_int_equal(rig.workers[0].words[5], 50);
}

static void an_unused_tensor_blocks_nothing_but_itself(void **state)
{
    rig_start_job(&rig, kind, 2, 2, 16);
    rig_say(&rig, 0, (struct say){.piece = 1, .word = 1, .round = 1, .elements = 16});
    rig_say(&rig, 0,
            (struct say){.piece = 2, .word = 2, .round = 1, .elements = 16, .offset = 4096});
    rig_say(&rig, 1,
            (struct say){.piece = 2, .word = 3, .round = 1, .elements = 16, .offset = 4096});
    rig_until(&rig, rig.workers[0].commits_count == 1);
    assert_int_equal(rig.workers[0].words_count, 1);
    assert_int_equal(rig.workers[0].words[0], 2);
}

/* --- rule 2: the commit rule --- */

static void the_commit_is_sent_only_when_every_worker_has_the_result(void **state)
{
    rig_start_job(&rig, kind, 2, 1, 1u << 18);
    fill(0, 1, 0, 1u << 18);
    fill(1, 1, 0, 1u << 18);
    rig_say(&rig, 0, (struct say){.piece = 1, .word = 1, .round = 1, .elements = 1u << 18});
    rig_say(&rig, 1, (struct say){.piece = 1, .word = 2, .round = 1, .elements = 1u << 18});
    rig_until(&rig, rig.workers[0].commits_count == 1);
    check_result(0, 2, 1, 0, 1u << 18, false);
    check_result(1, 2, 1, 0, 1u << 18, false);
    rig_until(&rig, rig.workers[1].commits_count == 1);
    assert_int_equal(rig.workers[0].commits[0], 1);
    assert_int_equal(rig.workers[1].commits[0], 2);
}

static void a_stopped_worker_delays_the_commit_for_the_others(void **state)
{
    rig_start_job(&rig, kind, 2, 1, 1u << 18);
    rig_say(&rig, 0, (struct say){.piece = 1, .word = 1, .round = 1, .elements = 1u << 18});
    rig_say(&rig, 1, (struct say){.piece = 1, .word = 2, .round = 1, .elements = 1u << 18});
    if (strcmp(kind, "shm") == 0) {
        rig_until(&rig, rig.workers[0].commits_count == 1);
        return;
    }
    fabric_flush(rig.workers[1].fabric);
    rig.workers[1].is_stopped = true;
    rig_settle(&rig);
    assert_int_equal(rig.workers[0].commits_count, 0);
    rig.workers[1].is_stopped = false;
    rig_until(&rig, rig.workers[0].commits_count == 1 && rig.workers[1].commits_count == 1);
}

/* --- rule 4: a worker may be one round ahead --- */

static void a_fast_worker_may_be_one_round_ahead_and_nothing_is_overwritten(void **state)
{
    enum { ELEMENTS = 5000, ROUNDS = 40 };
    rig_start_job(&rig, kind, 2, 1, ELEMENTS);
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        /* the fast worker fills its input as soon as its own round is committed */
        fill(0, round, 0, ELEMENTS);
        rig_say(&rig, 0,
                (struct say){
                    .piece = 1, .word = (uint32_t)round, .round = round, .elements = ELEMENTS});
        rig_settle(&rig);
        if (round > 1) /* only now the slow worker reads its last result */
            check_result(1, 2, round - 1, 0, ELEMENTS, false);
        fill(1, round, 0, ELEMENTS);
        rig_say(&rig, 1,
                (struct say){
                    .piece = 1, .word = (uint32_t)round, .round = round, .elements = ELEMENTS});
        rig_until(&rig, rig.workers[0].commits_count == (int)round);
        check_result(0, 2, round, 0, ELEMENTS, false);
    }
}

static void an_announcement_of_the_next_round_waits(void **state)
{
    rig_start_job(&rig, kind, 2, 1, 100);
    fill(0, 1, 0, 100);
    rig_say(&rig, 0, (struct say){.piece = 1, .word = 1, .round = 1, .elements = 100});
    for (uint64_t e = 0; e < 100; e++)
        rig_input(&rig, 0, 8192)[e] = value(0, 2, e);
    rig_say(&rig, 0,
            (struct say){.piece = 1, .word = 2, .round = 2, .elements = 100, .offset = 8192});
    rig_settle(&rig);
    assert_int_equal(rig.workers[0].words_count, 0);
    fill(1, 1, 0, 100);
    rig_say(&rig, 1, (struct say){.piece = 1, .word = 1, .round = 1, .elements = 100});
    rig_until(&rig, rig.workers[1].commits_count == 1 && rig.workers[0].words_count == 1);
    check_result(0, 2, 1, 0, 100, false);
    fill(1, 2, 0, 100);
    rig_say(&rig, 1, (struct say){.piece = 1, .word = 2, .round = 2, .elements = 100});
    rig_until(&rig, rig.workers[0].commits_count == 1);
    /* the commit of round 2 implies the commit of round 1 */
    assert_int_equal(rig.workers[0].commits[0], 2);
    check_result(0, 2, 2, 8192, 100, false);
    check_result(1, 2, 2, 0, 100, false);
}

static void a_round_two_ahead_is_refused(void **state)
{
    rig_start_job(&rig, kind, 2, 1, 100);
    rig_say(&rig, 0, (struct say){.piece = 1, .word = 9, .round = 3, .elements = 100});
    rig_until(&rig, rig.workers[0].errors_count == 1);
    assert_int_equal(rig.workers[0].error.code, -EPROTO);
    assert_int_equal(rig.workers[0].error.word, 9);
}

/* --- W3: a repeated announcement counts once --- */

static void an_announcement_may_be_repeated_and_counts_once(void **state)
{
    rig_start_job(&rig, kind, 2, 1, 100);
    fill(0, 1, 0, 100);
    fill(1, 1, 0, 100);
    for (int i = 0; i < 5; i++)
        rig_say(&rig, 0, (struct say){.piece = 1, .word = 1, .round = 1, .elements = 100});
    rig_settle(&rig);
    assert_int_equal(rig.workers[0].words_count, 0);
    rig_say(&rig, 1, (struct say){.piece = 1, .word = 1, .round = 1, .elements = 100});
    rig_until(&rig, rig.workers[0].commits_count == 1);
    check_result(0, 2, 1, 0, 100, false);
    assert_int_equal(rig.workers[0].words_count, 1);
}

static void a_repeated_announcement_of_a_committed_round_is_no_error(void **state)
{
    rig_start_job(&rig, kind, 2, 1, 100);
    for (uint32_t rank = 0; rank < 2; rank++)
        rig_say(&rig, rank, (struct say){.piece = 1, .word = 1, .round = 1, .elements = 100});
    rig_until(&rig, rig.workers[0].commits_count == 1);
    rig_say(&rig, 0, (struct say){.piece = 1, .word = 1, .round = 1, .elements = 100});
    rig_say(
        &rig, 0,
        (struct say){.piece = 1, .word = 1, .round = 1, .elements = 100, .standing = RECORD_HOLDS});
    rig_settle(&rig);
    assert_int_equal(rig.workers[0].errors_count, 0);
    assert_int_equal(rig.workers[0].commits_count, 1);
    rig_say(&rig, 0, (struct say){.piece = 1, .word = 2, .round = 1, .elements = 100});
    /* with another word the repeated announcement is an error */
    rig_until(&rig, rig.workers[0].errors_count == 1);
    assert_int_equal(rig.workers[0].error.code, -EPROTO);
}

/* --- rule 5: inline payloads --- */

static void opposite_orders_of_many_inline_tensors_do_not_block(void **state)
{
    enum { TENSORS = 300, ELEMENTS = 64 };
    rig_start_job(&rig, kind, 2, TENSORS, ELEMENTS);
    bool is_inline = strcmp(kind, "ofi") == 0;
    for (uint32_t rank = 0; rank < 2; rank++) {
        for (uint32_t t = 0; t < TENSORS; t++)
            fill(rank, t, t * 1024u, ELEMENTS);
    }
    for (uint32_t i = 0; i < TENSORS; i++) {
        uint32_t back = TENSORS - 1 - i;
        rig_say(&rig, 0,
                (struct say){.piece = 1 + i,
                             .word = i,
                             .round = 1,
                             .elements = ELEMENTS,
                             .offset = i * 1024u,
                             .is_inline = is_inline});
        rig_say(&rig, 1,
                (struct say){.piece = 1 + back,
                             .word = back,
                             .round = 1,
                             .elements = ELEMENTS,
                             .offset = back * 1024u,
                             .is_inline = is_inline});
    }
    rig_until(&rig,
              rig.workers[0].commits_count == TENSORS && rig.workers[1].commits_count == TENSORS);
    for (uint32_t t = 0; t < TENSORS; t++) {
        check_result(0, 2, t, t * 1024u, ELEMENTS, false);
        check_result(1, 2, t, t * 1024u, ELEMENTS, false);
    }
}

static void an_inline_payload_is_summed_out_of_the_receive_buffer(void **state)
{
    rig_start_job(&rig, kind, 2, 1, 1024);
    bool is_inline = strcmp(kind, "ofi") == 0;
    for (uint64_t round = 1; round <= 20; round++) {
        for (uint32_t rank = 0; rank < 2; rank++) {
            fill(rank, round, 0, 1024);
            rig_say(&rig, rank,
                    (struct say){.piece = 1,
                                 .word = (uint32_t)round,
                                 .round = round,
                                 .elements = 1024,
                                 .is_inline = is_inline});
        }
        rig_until(&rig, rig.workers[0].commits_count == (int)round &&
                            rig.workers[1].commits_count == (int)round);
        check_result(0, 2, round, 0, 1024, false);
        check_result(1, 2, round, 0, 1024, false);
    }
}

/* The announcement of the next round replaces the commit message of the former round. */
static void a_rank_that_has_announced_the_next_round_gets_no_commit(void **state)
{
    enum { ROUNDS = 50 };
    bool is_inline = strcmp(kind, "ofi") == 0;
    rig_start_job(&rig, kind, 2, 1, 100);
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        uint64_t offset = (round & 1) * 8192;
        for (uint32_t rank = 0; rank < 2; rank++) {
            for (uint64_t e = 0; e < 100; e++)
                rig_input(&rig, rank, offset)[e] = value(rank, round, e);
            rig_say(&rig, rank,
                    (struct say){.piece = 1,
                                 .word = (uint32_t)round,
                                 .round = round,
                                 .elements = 100,
                                 .offset = offset,
                                 .is_inline = is_inline});
        }
        rig_until(&rig, rig.workers[0].words_count == (int)round &&
                            rig.workers[1].words_count == (int)round);
        for (uint32_t rank = 0; rank < 2; rank++)
            check_result(rank, 2, round, offset, 100, false);
    }
    rig_until(&rig, rig.workers[0].commits_count > 0 && rig.workers[1].commits_count > 0);
    for (uint32_t rank = 0; rank < 2; rank++) {
        const struct rig_worker *w = &rig.workers[rank];
        assert_int_equal(w->commits[w->commits_count - 1], ROUNDS);
        assert_int_equal(w->errors_count, 0);
    }
}

/* --- rule 6: chunks and passes --- */

static void a_tensor_of_many_chunks_is_summed_whole(void **state)
{
    enum { ELEMENTS = 1000003 };
    rig_start_job(&rig, kind, 2, 1, ELEMENTS);
    for (uint32_t rank = 0; rank < 2; rank++) {
        fill(rank, 1, 0, ELEMENTS);
        rig_say(&rig, rank, (struct say){.piece = 1, .word = 1, .round = 1, .elements = ELEMENTS});
    }
    rig_until(&rig, rig.workers[0].commits_count == 1);
    check_result(0, 2, 1, 0, ELEMENTS, false);
    check_result(1, 2, 1, 0, ELEMENTS, false);
    assert_int_equal(rig.workers[0].words_count, 1);
}

static void more_workers_than_a_pass_takes_sum_to_the_same_bits(void **state)
{
    enum { WORKERS = 12, ELEMENTS = 70000 };
    rig_start_job(&rig, kind, WORKERS, 1, ELEMENTS);
    for (uint32_t rank = WORKERS; rank-- > 0;) {
        fill(rank, 1, 0, ELEMENTS);
        rig_say(
            &rig, rank,
            (struct say){
                .piece = 1, .word = 1, .round = 1, .elements = ELEMENTS, .operation = RECORD_MEAN});
    }
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        rig_until(&rig, rig.workers[rank].commits_count == 1);
        check_result(rank, WORKERS, 1, 0, ELEMENTS, true);
    }
}

/* --- rule 7: operations --- */

static void broadcast_gives_every_rank_the_root_s_values(void **state)
{
    rig_start_job(&rig, kind, 3, 1, 500);
    fill(1, 1, 0, 500);
    for (uint32_t rank = 0; rank < 3; rank++)
        rig_say(&rig, rank,
                (struct say){.piece = 1,
                             .word = rank,
                             .round = 1,
                             .elements = 500,
                             .operation = RECORD_BROADCAST,
                             .root = 1,
                             .has_no_input = rank != 1,
                             .has_no_output = rank == 1});
    for (uint32_t rank = 0; rank < 3; rank++)
        rig_until(&rig, rig.workers[rank].commits_count == 1);
    for (uint64_t e = 0; e < 500; e++) {
        assert_true(rig_landing(&rig, 0, 0)[e] == value(1, 1, e));
        assert_true(rig_landing(&rig, 2, 0)[e] == value(1, 1, e));
    }
}

static void a_barrier_moves_no_bytes_and_waits_for_all(void **state)
{
    rig_start_job(&rig, kind, 2, 1, 0);
    rig_say(
        &rig, 0,
        (struct say){
            .piece = 1, .word = 1, .round = 1, .operation = RECORD_BARRIER, .has_no_output = true});
    rig_settle(&rig);
    assert_int_equal(rig.workers[0].words_count, 0);
    rig_say(
        &rig, 1,
        (struct say){
            .piece = 1, .word = 2, .round = 1, .operation = RECORD_BARRIER, .has_no_output = true});
    rig_until(&rig, rig.workers[0].words_count == 1 && rig.workers[1].words_count == 1);
}

static void a_tensor_without_elements_only_synchronises(void **state)
{
    rig_start_job(&rig, kind, 2, 1, 0);
    for (uint32_t rank = 0; rank < 2; rank++)
        rig_say(&rig, rank, (struct say){.piece = 1, .word = 1, .round = 1, .has_no_output = true});
    rig_until(&rig, rig.workers[0].commits_count == 1 && rig.workers[1].commits_count == 1);
}

static void ranks_that_disagree_on_the_operation_all_get_an_error(void **state)
{
    rig_start_job(&rig, kind, 3, 1, 10);
    rig_say(&rig, 0, (struct say){.piece = 1, .word = 1, .round = 1, .elements = 10});
    rig_until(&rig, lane_connections(rig.lane) == 3);
    rig_settle(&rig);
    rig_say(
        &rig, 2,
        (struct say){.piece = 1, .word = 2, .round = 1, .elements = 10, .operation = RECORD_MEAN});
    rig_until(&rig, rig.workers[0].errors_count == 1 && rig.workers[2].errors_count == 1);
    rig_say(&rig, 1, (struct say){.piece = 1, .word = 3, .round = 1, .elements = 10});
    rig_until(&rig, rig.workers[1].errors_count == 1);
    assert_int_equal(rig.workers[1].error.code, -EINVAL);
    char text[RECORD_TEXT_BYTES + 1] = {0};
    memcpy(text, rig.workers[1].error.text, rig.workers[1].error.text_bytes);
    assert_non_null(strstr(text, "rank 2 pushes mean"));
    assert_int_equal(rig.workers[0].words_count, 0);
}

static void a_wrong_dtype_or_size_or_extent_is_refused(void **state)
{
    rig_start_job(&rig, kind, 2, 1, 10);
    rig_say(&rig, 0, (struct say){.piece = 1, .word = 1, .round = 1, .elements = 10, .dtype = 9});
    rig_until(&rig, rig.workers[0].errors_count == 1);
    assert_int_equal(rig.workers[0].error.code, -EINVAL);
    rig_say(&rig, 0, (struct say){.piece = 1, .word = 2, .round = 1, .elements = 11});
    rig_until(&rig, rig.workers[0].errors_count == 2);
    assert_int_equal(rig.workers[0].error.code, -EMSGSIZE);
    rig_say(&rig, 0,
            (struct say){
                .piece = 1, .word = 3, .round = 1, .elements = 10, .offset = RIG_REGION_BYTES});
    rig_until(&rig, rig.workers[0].errors_count == 3);
    assert_int_equal(rig.workers[0].error.code, -EFAULT);
    rig_say(&rig, 0, (struct say){.piece = 77, .word = 4, .round = 1, .elements = 10});
    rig_until(&rig, rig.workers[0].errors_count == 4);
    assert_int_equal(rig.workers[0].error.code, -ESTALE);
    rig_say(&rig, 0, (struct say){.piece = 1, .word = 5, .round = 1, .elements = 10, .epoch = 6});
    rig_until(&rig, rig.workers[0].errors_count == 5);
    assert_int_equal(rig.workers[0].error.code, -ESTALE);
}

/* --- rule 8: the quorum; missing ranks --- */

static void a_query_names_the_ranks_that_have_not_announced(void **state)
{
    rig_start_job(&rig, kind, 3, 1, 10);
    rig_say(&rig, 1, (struct say){.piece = 1, .word = 5, .round = 1, .elements = 10});
    struct record_query query = {.kind = RECORD_QUERY, .word = 5, .piece = 1, .round = 1};
    assert_int_equal(fabric_send(rig.workers[1].conn, &query, sizeof query, NULL, 0), 0);
    rig_until(&rig, rig.workers[1].missing_count == 1);
    assert_int_equal(rig.workers[1].missing.word, 5);
    assert_int_equal(rig.workers[1].missing.ranks[0], 1 << 0 | 1 << 2);
    query.round = 0; /* a late worker sends such a query, because it knows no round */
    assert_int_equal(fabric_send(rig.workers[1].conn, &query, sizeof query, NULL, 0), 0);
    rig_until(&rig, rig.workers[1].missing_count == 2);
    assert_int_equal(rig.workers[1].missing.ranks[0], 1 << 0 | 1 << 2);
}

/* --- rule 9: fairness --- */

static void a_small_job_does_not_wait_for_a_big_one_to_end(void **state)
{
    enum { BIG = 1000000, SMALL = 256 };
    rig_start_job(&rig, kind, 2, 1, BIG);
    rig_place(&rig, 8, 1, 1, 1, SMALL, false);
    rig_connect(&rig, 2, 8, 0);
    rig_say(&rig, 0, (struct say){.piece = 1, .word = 1, .round = 1, .elements = BIG});
    rig_say(&rig, 1, (struct say){.piece = 1, .word = 1, .round = 1, .elements = BIG});
    rig_say(&rig, 2, (struct say){.piece = 1, .word = 1, .round = 1, .elements = SMALL});
    rig_until(&rig, rig.workers[2].words_count == 1);
    assert_int_equal(rig.workers[0].words_count, 0);
    rig_until(&rig, rig.workers[0].words_count == 1);
}

/* --- rule 11: the order of sums --- */

static void the_sum_is_in_rank_order_for_any_order_of_arrival(void **state)
{
    static const float parts[3] = {1e8f, -1e8f, 1.0f}; /* (a + b) + c is 1, but a + (b + c) is 0 */
    rig_start_job(&rig, kind, 3, 1, 4);
    static const uint32_t orders[3][3] = {{2, 1, 0}, {1, 2, 0}, {0, 2, 1}};
    for (uint64_t round = 1; round <= 3; round++) {
        for (int i = 0; i < 3; i++) {
            uint32_t rank = orders[round - 1][i];
            for (int e = 0; e < 4; e++)
                rig_input(&rig, rank, 0)[e] = parts[rank];
            rig_say(&rig, rank, (struct say){.piece = 1, .word = 1, .round = round, .elements = 4});
            rig_settle(&rig);
        }
        for (uint32_t rank = 0; rank < 3; rank++) {
            rig_until(&rig, rig.workers[rank].commits_count == (int)round);
            assert_true(rig_landing(&rig, rank, 0)[3] == 1.0f);
        }
    }
}

/* Both ranks announce pieces 1, 2, ..., each with several chunks. `ret_words` receives the order of
 * rank 0's results. */
static void order_of_results(const uint32_t *priorities, uint32_t count, uint32_t *ret_words)
{
    const uint64_t elements = 1u << 18;
    rig_start_job(&rig, kind, 2, count, elements);
    for (uint32_t rank = 0; rank < 2; rank++) {
        for (uint32_t i = 0; i < count; i++)
            rig_say(&rig, rank,
                    (struct say){.piece = 1 + i,
                                 .word = 1 + i,
                                 .round = 1,
                                 .elements = elements,
                                 .priority = priorities[i],
                                 .offset = i * elements * sizeof(float)});
        fabric_flush(rig.workers[rank].fabric);
        if (rank == 0)
            rig_settle(&rig);
    }
    rig_until(&rig, rig.workers[0].words_count == (int)count);
    memcpy(ret_words, rig.workers[0].words, count * sizeof *ret_words);
}

/* The next forward pass starts with the first layers, so their tensors are sent first. */
static void the_larger_priority_is_ready_first_for_any_order_of_arrival(void **state)
{
    static const uint32_t priorities[] = {1, UINT32_MAX, 5}, expected[] = {2, 3, 1};
    uint32_t words[3];
    order_of_results(priorities, 3, words);
    assert_memory_equal(words, expected, sizeof expected);
}

static void of_equal_priority_first_come_is_first_ready(void **state)
{
    static const uint32_t priorities[] = {5, 5, 5}, expected[] = {1, 2, 3};
    uint32_t words[3];
    order_of_results(priorities, 3, words);
    assert_memory_equal(words, expected, sizeof expected);
}

/* A fabric skipped in one turn is read in the next turn. */
static void a_fabric_is_skipped_for_at_most_one_turn(void **state)
{
    rig_start_job(&rig, kind, 1, 1, 1000);
    for (uint64_t round = 1; round <= 20; round++) {
        fill(0, round, 0, 1000);
        rig_say(
            &rig, 0,
            (struct say){.piece = 1, .round = round, .word = (uint32_t)round, .elements = 1000});
        lane_pass_over(rig.lane, 0);
        assert_false(lane_poll(rig.lane, rig_now()));
        assert_int_equal(rig.workers[0].words_count, (int)round - 1);
        rig_until(&rig, rig.workers[0].commits_count == (int)round);
        check_result(0, 1, round, 0, 1000, false);
    }
}

#define CASE(name) cmocka_unit_test_teardown(name, stop)
static const struct CMUnitTest cases[] = {
    CASE(a_round_is_summed_when_all_ranks_have_announced_it),
    CASE(tensors_count_their_rounds_apart),
    CASE(an_unused_tensor_blocks_nothing_but_itself),
    CASE(the_commit_is_sent_only_when_every_worker_has_the_result),
    CASE(a_stopped_worker_delays_the_commit_for_the_others),
    CASE(a_fast_worker_may_be_one_round_ahead_and_nothing_is_overwritten),
    CASE(an_announcement_of_the_next_round_waits),
    CASE(a_round_two_ahead_is_refused),
    CASE(an_announcement_may_be_repeated_and_counts_once),
    CASE(a_repeated_announcement_of_a_committed_round_is_no_error),
    CASE(opposite_orders_of_many_inline_tensors_do_not_block),
    CASE(an_inline_payload_is_summed_out_of_the_receive_buffer),
    CASE(a_rank_that_has_announced_the_next_round_gets_no_commit),
    CASE(a_tensor_of_many_chunks_is_summed_whole),
    CASE(more_workers_than_a_pass_takes_sum_to_the_same_bits),
    CASE(broadcast_gives_every_rank_the_root_s_values),
    CASE(a_barrier_moves_no_bytes_and_waits_for_all),
    CASE(a_tensor_without_elements_only_synchronises),
    CASE(ranks_that_disagree_on_the_operation_all_get_an_error),
    CASE(a_wrong_dtype_or_size_or_extent_is_refused),
    CASE(a_query_names_the_ranks_that_have_not_announced),
    CASE(a_small_job_does_not_wait_for_a_big_one_to_end),
    CASE(the_larger_priority_is_ready_first_for_any_order_of_arrival),
    CASE(of_equal_priority_first_come_is_first_ready),
    CASE(a_fabric_is_skipped_for_at_most_one_turn),
    CASE(the_sum_is_in_rank_order_for_any_order_of_arrival),
};

int main(int argc, char **argv)
{
    kind = argc > 1 ? argv[1] : "shm";
    if (argc > 2)
        cmocka_set_test_filter(argv[2]);
    return cmocka_run_group_tests_name(kind, cases, NULL, NULL);
}
