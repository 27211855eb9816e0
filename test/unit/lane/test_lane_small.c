/* Tests many small pieces at once. Over libfabric, many pieces must be in transfer at the same
 * time, although memory is limited. Short payloads must wait in the job's inbox. Shared memory
 * needs neither transfers nor an inbox. */
#include "svc/lane/types.h"
#include "svc/reduce/reduce.h"
#include "test/unit/lane/lane_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define SMALL 100 /* number of elements of a small piece */
#define STRIDE 4096u
#define MIB (1u << 20)
/* bytes of the slots for long chunks in the window of a job */
#define LONG_WINDOW (5 * MIB / TRANSFER_SHORTER)

static const char *kind;
static struct rig rig;

static int stop(void **state)
{
    rig_stop(&rig);
    return 0;
}

static bool is_remote(void) { return strcmp(kind, "ofi") == 0; }

static float value(uint32_t rank, uint32_t piece, uint64_t round)
{
    return (float)(rank + 1) * 1000.0f + (float)piece + (float)round * 0.5f;
}

static void fill(uint32_t rank, uint32_t piece, uint64_t round, uint64_t elements)
{
    for (uint64_t e = 0; e < elements; e++)
        rig_input(&rig, rank, piece * STRIDE)[e] = value(rank, piece, round);
}

/* Announces pieces, and does not change their inputs. The caller has filled the inputs, or has
 * overwritten them to check that the lane uses the payload that it has stored. */
static void say(uint32_t i, uint32_t first, uint32_t count, uint64_t round, uint64_t elements)
{
    for (uint32_t piece = first; piece < first + count; piece++)
        rig_say(&rig, i,
                (struct say){.piece = piece,
                             .word = piece,
                             .round = round,
                             .elements = elements,
                             .offset = piece * STRIDE,
                             .is_inline = is_remote()});
}

static void say_filled(uint32_t i, uint32_t first, uint32_t count, uint64_t round,
                       uint64_t elements)
{
    for (uint32_t piece = first; piece < first + count; piece++)
        fill(i, piece, round, elements);
    say(i, first, count, round, elements);
}

static void check(uint32_t i, uint32_t first, uint32_t count, uint64_t round, uint64_t elements)
{
    for (uint32_t piece = first; piece < first + count; piece++) {
        const float *at = rig_landing(&rig, i, piece * STRIDE);
        float want = value(0, piece, round) + value(1, piece, round);
        if (at[0] != want || at[elements - 1] != want)
            fail_msg("piece %u: %g and %g, not %g", piece, at[0], at[elements - 1], want);
    }
}

/* Performs a round of all pieces. Rank 0 announces all pieces before rank 1 announces its first
 * piece. */
static void one_round(uint32_t first, uint32_t count, uint64_t round, uint64_t elements)
{
    int before[2] = {rig.workers[0].commits_count, rig.workers[1].commits_count};
    say_filled(0, first, count, round, elements);
    rig_settle(&rig);
    say_filled(1, first, count, round, elements);
    for (uint32_t i = 0; i < 2; i++) {
        rig_until(&rig, rig.workers[i].commits_count == before[i] + (int)count);
        check(i, first, count, round, elements);
    }
}

/* ---- transfers ---- */

static void many_small_pieces_are_under_way_at_once(void **state)
{
    enum { COUNT = 40 };
    rig_start_job(&rig, kind, 2, COUNT, SMALL);
    say_filled(0, 1, COUNT, 1, SMALL);
    say_filled(1, 1, COUNT, 1, SMALL);
    rig_until(&rig, rig.workers[0].commits_count == COUNT && rig.workers[1].commits_count == COUNT);
    say_filled(0, 1, COUNT, 2, SMALL);
    say_filled(1, 1, COUNT, 2, SMALL);
    fabric_flush(rig.workers[1].fabric);
    /* no piece of round 2 may end before all pieces have started */
    rig.workers[1].is_stopped = true;
    rig_until(&rig, rig.workers[0].words_count == 2 * COUNT);
    if (is_remote())
        assert_int_equal(rig.workers[0].commits_count, COUNT);
    rig.workers[1].is_stopped = false;
    rig_until(&rig, rig.workers[0].commits_count == 2 * COUNT);
    check(1, 1, COUNT, 2, SMALL);
}

static void a_stopped_worker_pins_small_transfers_of_its_own_job_alone(void **state)
{
    enum { COUNT = 200 };
    rig_start_job(&rig, kind, 2, COUNT, SMALL);
    rig_place(&rig, 8, 1, 1, 1, SMALL, false);
    rig_connect(&rig, 2, 8, 0);
    say_filled(0, 1, COUNT, 1, SMALL);
    say_filled(1, 1, COUNT, 1, SMALL);
    fabric_flush(rig.workers[1].fabric);
    rig.workers[1].is_stopped = true;
    rig_settle(&rig);
    if (is_remote())
        assert_in_range(rig.workers[0].words_count, 1, TRANSFERS_PER_JOB);
    for (uint64_t round = 1; round <= 20; round++) {
        say_filled(2, 1, 1, round, SMALL);
        rig_until(&rig, rig.workers[2].commits_count == (int)round);
        assert_true(rig_landing(&rig, 2, STRIDE)[SMALL - 1] == value(2, 1, round));
    }
    rig.workers[1].is_stopped = false;
    rig_until(&rig, rig.workers[1].commits_count == COUNT);
    check(0, 1, COUNT, 1, SMALL);
    check(1, 1, COUNT, 1, SMALL);
}

/* The last chunk of a long piece fits into a small slot. The chunk and its word must be written
 * after the other chunks. */
static void a_short_last_chunk_is_written_behind_the_long_ones(void **state)
{
    enum { LONG = 3 * MIB / (int)sizeof(float) + SMALL };
    rig_start_job(&rig, kind, 2, 1, LONG);
    for (uint64_t round = 1; round <= 5; round++) {
        for (uint32_t i = 0; i < 2; i++)
            for (uint64_t e = 0; e < LONG; e++)
                rig_input(&rig, i, 0)[e] = value(i, 1, round);
        for (uint32_t i = 0; i < 2; i++)
            rig_say(&rig, i, (struct say){.piece = 1, .word = 1, .round = round, .elements = LONG});
        for (uint32_t i = 0; i < 2; i++) {
            rig_until(&rig, rig.workers[i].words_count == (int)round);
            for (uint64_t e = 0; e < LONG; e++)
                assert_true(rig_landing(&rig, i, 0)[e] == value(0, 1, round) + value(1, 1, round));
        }
        rig_until(&rig, rig.workers[0].commits_count == (int)round &&
                            rig.workers[1].commits_count == (int)round);
    }
}

/* ---- memory ---- */

static void window_and_inbox_are_counted_to_the_job_and_bounded(void **state)
{
    uint64_t before, after, limit;
    rig_start(&rig, kind);
    lane_memory(rig.lane, &before, &limit);
    rig_place(&rig, RIG_JOB, 2, 1, 50, SMALL, false);
    uint64_t idle = rig_use(&rig).heap_bytes;
    rig_connect(&rig, 0, RIG_JOB, 0);
    rig_connect(&rig, 1, RIG_JOB, 1);
    one_round(1, 50, 1, SMALL);
    uint64_t busy = rig_use(&rig).heap_bytes;
    if (is_remote())
        assert_in_range(busy - idle, LONG_WINDOW, LONG_WINDOW + 4 * MIB + MIB / 4);
    else
        assert_int_equal(busy, idle); /* mapped memory needs no buffers */
    one_round(1, 50, 2, SMALL);
    assert_int_equal(rig_use(&rig).heap_bytes, busy);
    lane_drop(rig.lane, RIG_JOB, NULL, 0);
    rig_until(&rig, rig.workers[0].is_closed && rig.workers[1].is_closed);
    rig_settle(&rig);
    lane_memory(rig.lane, &after, &limit);
    assert_int_equal(after, before);
}

/* Checks that the lane has stored the inputs. The function overwrites the inputs before the other
 * rank announces. Real workers must not do this. */
static void check_kept(uint32_t first, uint32_t count, uint64_t round, uint64_t elements)
{
    int before = rig.workers[0].commits_count;
    say_filled(0, first, count, round, elements);
    rig_settle(&rig);
    for (uint32_t piece = first; is_remote() && piece < first + count; piece++)
        memset(rig_input(&rig, 0, piece * STRIDE), 0xee, elements * sizeof(float));
    say_filled(1, first, count, round, elements);
    rig_until(&rig, rig.workers[0].commits_count == before + (int)count);
    check(0, first, count, round, elements);
    check(1, first, count, round, elements);
}

static void early_short_payloads_are_stored_and_not_read_again(void **state)
{
    rig_start_job(&rig, kind, 2, 300, SMALL);
    for (uint64_t round = 1; round <= 4; round++)
        check_kept(1, 300, round, SMALL);
}

/* The inbox of 512 KiB for each of two ranks has room for 128 payloads of 4 KiB. */
static void a_payload_without_a_cell_in_the_inbox_is_read(void **state)
{
    enum { COUNT = 250, ELEMENTS = STRIDE / sizeof(float) };
    rig_start_job(&rig, kind, 2, COUNT, ELEMENTS);
    for (uint64_t round = 1; round <= 3; round++)
        one_round(1, COUNT, round, ELEMENTS);
    check_kept(1, 100, 4, ELEMENTS);
}

static void pieces_that_are_dropped_give_their_room_in_the_inbox_back(void **state)
{
    enum { COUNT = 120, ELEMENTS = STRIDE / sizeof(float) };
    uint32_t ids[COUNT];
    rig_start_job(&rig, kind, 2, COUNT, ELEMENTS);
    for (uint32_t i = 0; i < COUNT; i++)
        ids[i] = 1 + i;
    for (uint32_t again = 0; again < 4; again++) {
        say_filled(0, 1, COUNT, 1, ELEMENTS);
        rig_settle(&rig);
        lane_drop(rig.lane, RIG_JOB, ids, COUNT);
        rig_place(&rig, RIG_JOB, 2, 1, COUNT, ELEMENTS, false);
    }
    check_kept(1, COUNT, 1, ELEMENTS);
}

/* The input that is announced for the next round stays in the worker's memory until that round
 * begins. */
static void a_payload_of_the_next_round_is_no_part_of_the_open_one(void **state)
{
    rig_start_job(&rig, kind, 2, 1, SMALL);
    say_filled(0, 1, 1, 1, SMALL);
    rig_settle(&rig);
    fill(0, 1, 2, SMALL);
    rig_say(&rig, 0,
            (struct say){.piece = 1,
                         .word = 2,
                         .round = 2,
                         .elements = SMALL,
                         .offset = STRIDE,
                         .is_inline = is_remote()});
    rig_settle(&rig);
    if (!is_remote())
        fill(0, 1, 1, SMALL); /* mapped input: the open round must still read its own values */
    say_filled(1, 1, 1, 1, SMALL);
    rig_until(&rig, rig.workers[1].words_count == 1);
    check(1, 1, 1, 1, SMALL);
    fill(0, 1, 2, SMALL);
    say_filled(1, 1, 1, 2, SMALL);
    rig_until(&rig, rig.workers[1].words_count == 2);
    check(1, 1, 1, 2, SMALL);
}

#define CASE(name) cmocka_unit_test_teardown(name, stop)
static const struct CMUnitTest cases[] = {
    CASE(many_small_pieces_are_under_way_at_once),
    CASE(a_stopped_worker_pins_small_transfers_of_its_own_job_alone),
    CASE(a_short_last_chunk_is_written_behind_the_long_ones),
    CASE(window_and_inbox_are_counted_to_the_job_and_bounded),
    CASE(early_short_payloads_are_stored_and_not_read_again),
    CASE(a_payload_without_a_cell_in_the_inbox_is_read),
    CASE(pieces_that_are_dropped_give_their_room_in_the_inbox_back),
    CASE(a_payload_of_the_next_round_is_no_part_of_the_open_one),
};

int main(int argc, char **argv)
{
    kind = argc > 1 ? argv[1] : "shm";
    if (argc > 2)
        cmocka_set_test_filter(argv[2]);
    return cmocka_run_group_tests_name(kind, cases, NULL, NULL);
}
