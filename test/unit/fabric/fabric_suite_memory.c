/* Tests shared memory as defined in svc/fabric/fabric.h: lending and withdrawing, reads and writes,
 * and mapping. */
#include "test/unit/fabric/fabric_suite.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void a_region_surfaces_before_any_later_message(void **state)
{
    struct rig *rig = *state;
    struct region regions[8];

    rig_connect(rig, 0);
    for (uint32_t i = 0; i < 8; i++) {
        assert_int_equal(region_create(4096 * (i + 1), &regions[i]), 0);
        assert_int_equal(fabric_lend(rig->at_worker[0], &regions[i], i), 0);
        rig_send(rig->at_worker[0], "lent");
    }
    for (uint32_t i = 0; i < 16; i++) {
        while (rig->lane.seen_count == 0)
            rig_pump(rig);
        enum fabric_event_kind kind = i % 2 ? FABRIC_EVENT_MESSAGE : FABRIC_EVENT_REGION;
        assert_int_equal(rig->lane.seen[0].event.kind, kind);
        struct seen seen = rig_expect(rig, &rig->lane, kind);
        if (kind == FABRIC_EVENT_REGION) {
            assert_int_equal(seen.event.word, i / 2);
            assert_int_equal(fabric_region_bytes(rig->at_lane[0], i / 2), 4096 * (i / 2 + 1));
        }
    }
    for (uint32_t i = 0; i < 8; i++)
        region_destroy(&regions[i]);
}

static void foreign_memory_is_lent_or_reported_as_unsupported(void **state)
{
    struct rig *rig = *state;
    static char memory[8192];
    struct region region;

    rig_connect(rig, 0);
    region_wrap(memory, sizeof memory, &region);
    int r = fabric_lend(rig->at_worker[0], &region, 3);
    assert_true(r == 0 || r == -ENOTSUP);
    if (r == 0)
        assert_int_equal(rig_expect(rig, &rig->lane, FABRIC_EVENT_REGION).event.word, 3);
    assert_int_equal(fabric_lend(rig->at_worker[0], &region, FABRIC_REGIONS_MAX), -EINVAL);
}

static void a_read_returns_the_bytes_of_the_region(void **state)
{
    struct rig *rig = *state;
    char local[64] = {0};

    rig_connect(rig, 0);
    struct region region = rig_lend(rig, 0, 5, 8192);
    assert_int_equal(fabric_pool_register(rig->lane.fabric, local, sizeof local), 0);
    memcpy((char *)region.base + 5000, "gradient", 9);
    assert_int_equal(fabric_read(rig->at_lane[0], 5, 5000, local, 9, rig), 0);
    struct seen seen = rig_expect(rig, &rig->lane, FABRIC_EVENT_READ);
    assert_int_equal(seen.event.error, 0);
    assert_ptr_equal(seen.event.context, rig);
    assert_string_equal(local, "gradient");
    region_destroy(&region);
}

static void a_mapping_shows_the_workers_memory_or_is_refused(void **state)
{
    struct rig *rig = *state;

    rig_connect(rig, 0);
    struct region region = rig_lend(rig, 0, 0, 8192);
    memcpy((char *)region.base + 4000, "gradient", 9);
    char *mapped = fabric_map(rig->at_lane[0], 0, 4000, 100);
    if (mapped) {
        assert_string_equal(mapped, "gradient");
        mapped[0] = 'G';
        assert_string_equal((char *)region.base + 4000, "Gradient");
    }
    assert_null(fabric_map(rig->at_lane[0], 0, 8000, 193));
    assert_null(fabric_map(rig->at_lane[0], 0, UINT64_MAX, 2));
    assert_null(fabric_map(rig->at_lane[0], 1, 0, 1));
    region_destroy(&region);
}

static void a_written_event_proves_that_the_bytes_lie_there(void **state)
{
    struct rig *rig = *state;
    char local[] = "result";

    rig_connect(rig, 0);
    struct region region = rig_lend(rig, 0, 1, 4096);
    assert_int_equal(fabric_pool_register(rig->lane.fabric, local, sizeof local), 0);
    assert_int_equal(fabric_write(rig->at_lane[0], 1, 100, local, sizeof local, local), 0);
    struct seen seen = rig_expect(rig, &rig->lane, FABRIC_EVENT_WRITTEN);
    assert_int_equal(seen.event.error, 0);
    assert_ptr_equal(seen.event.context, local);
    assert_string_equal((char *)region.base + 100, "result");
    rig_expect_nothing(rig, &rig->workers[0]);
    region_destroy(&region);
}

static void a_word_comes_after_all_bytes_before_it(void **state)
{
    struct rig *rig = *state;
    static char parts[4][1000];

    rig_connect(rig, 0);
    struct region region = rig_lend(rig, 0, 2, 4096);
    assert_int_equal(fabric_pool_register(rig->lane.fabric, parts, sizeof parts), 0);
    for (int i = 0; i < 4; i++) {
        memset(parts[i], 'a' + i, sizeof parts[i]);
        uint64_t offset = (uint64_t)i * 1000;
        int r = i < 3 ? fabric_write(rig->at_lane[0], 2, offset, parts[i], 1000, parts[i])
                      : fabric_write_word(rig->at_lane[0], 2, offset, parts[i], 1000, 77, parts[i]);
        assert_int_equal(r, 0);
    }
    assert_int_equal(rig_expect(rig, &rig->workers[0], FABRIC_EVENT_WORD).event.word, 77);
    assert_memory_equal(region.base, parts, sizeof parts);
    for (int i = 0; i < 4; i++)
        assert_ptr_equal(rig_expect(rig, &rig->lane, FABRIC_EVENT_WRITTEN).event.context, parts[i]);
    rig_expect_nothing(rig, &rig->workers[0]);
    region_destroy(&region);
}

static void a_notify_carries_a_word_without_bytes(void **state)
{
    struct rig *rig = *state;

    rig_connect(rig, 0);
    for (uint32_t word = 0xfffffff0; word != 0; word++) {
        int r = fabric_notify(rig->at_lane[0], word, &rig->lane);
        struct seen seen = rig_expect(rig, &rig->workers[0], FABRIC_EVENT_WORD);
        assert_int_equal(seen.event.word, word);
        assert_ptr_equal(seen.event.owner, &rig->workers[0]);
        assert_in_range(r, 0, 1);
        if (r == 1) /* the data has already arrived */
            rig_expect_nothing(rig, &rig->lane);
        else
            assert_ptr_equal(rig_expect(rig, &rig->lane, FABRIC_EVENT_WRITTEN).event.context,
                             &rig->lane);
    }
}

static void a_message_comes_after_the_writes_before_it(void **state)
{
    struct rig *rig = *state;
    static char local[2000];

    rig_connect(rig, 0);
    struct region region = rig_lend(rig, 0, 0, 4096);
    assert_int_equal(fabric_pool_register(rig->lane.fabric, local, sizeof local), 0);
    memset(local, 'r', sizeof local);
    assert_int_equal(fabric_write(rig->at_lane[0], 0, 0, local, sizeof local, NULL), 0);
    rig_send(rig->at_lane[0], "commit");
    rig_expect_text(rig, &rig->workers[0], "commit");
    assert_memory_equal(region.base, local, sizeof local);
    rig_expect(rig, &rig->lane, FABRIC_EVENT_WRITTEN);
    region_destroy(&region);
}

/* Tests offsets and lengths near the end, and pairs whose sum overflows. */
static void operations_out_of_bounds_are_refused(void **state)
{
    struct rig *rig = *state;
    static char local[4097];
    static const struct {
        uint64_t offset;
        size_t bytes;
        int expected;
    } cases[] = {
        {0, 4096, 0},
        {4095, 1, 0},
        {0, 4097, -EFAULT},
        {4095, 2, -EFAULT},
        {4097, 1, -EFAULT},
        {UINT64_MAX, 1, -EFAULT},
        {UINT64_MAX - 1, 4, -EFAULT},
        {UINT64_C(1) << 63, 16, -EFAULT},
    };

    rig_connect(rig, 0);
    struct region region = rig_lend(rig, 0, 9, 4096);
    struct fabric_conn *c = rig->at_lane[0];
    assert_int_equal(fabric_pool_register(rig->lane.fabric, local, sizeof local), 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint64_t offset = cases[i].offset;
        size_t bytes = cases[i].bytes;
        int expected = cases[i].expected;

        assert_int_equal(fabric_read(c, 9, offset, local, bytes, NULL), expected);
        assert_int_equal(fabric_write(c, 9, offset, local, bytes, NULL), expected);
        assert_int_equal(fabric_write_word(c, 9, offset, local, bytes, 1, NULL), expected);
        if (expected < 0)
            continue;
        rig_expect(rig, &rig->lane, FABRIC_EVENT_READ);
        rig_expect(rig, &rig->lane, FABRIC_EVENT_WRITTEN);
        rig_expect(rig, &rig->lane, FABRIC_EVENT_WRITTEN);
    }
    rig_expect_nothing(rig, &rig->lane);
    region_destroy(&region);
}

static void posted_operations_end_before_the_connection(void **state)
{
    struct rig *rig = *state;
    static char local[3][100];

    rig_connect(rig, 0);
    struct region region = rig_lend(rig, 0, 0, 4096);
    assert_int_equal(fabric_pool_register(rig->lane.fabric, local, sizeof local), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(fabric_read(rig->at_lane[0], 0, 0, local[i], 100, local[i]), 0);
    fabric_disconnect(rig->at_lane[0]);
    for (int i = 0; i < 3; i++) {
        rig_expect(rig, &rig->lane, FABRIC_EVENT_READ);
        /* the rig keeps the order of events, so the stored events are those after this READ */
        for (int k = 0; k < rig->lane.seen_count; k++)
            assert_true(rig->lane.seen[k].event.kind == FABRIC_EVENT_READ ||
                        k == rig->lane.seen_count - 1);
    }
    rig_expect_closed(rig, &rig->lane, &rig->at_lane[0], 0);
    fabric_pool_unregister(rig->lane.fabric, local);
    region_destroy(&region);
}

static void an_unknown_region_is_refused(void **state)
{
    struct rig *rig = *state;
    char local[8] = {0};
    static const uint32_t ids[] = {0, 7, FABRIC_REGIONS_MAX, UINT32_MAX};

    rig_connect(rig, 0);
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
        assert_int_equal(fabric_region_bytes(rig->at_lane[0], ids[i]), 0);
        assert_null(fabric_map(rig->at_lane[0], ids[i], 0, 1));
        assert_int_equal(fabric_read(rig->at_lane[0], ids[i], 0, local, 8, NULL), -EFAULT);
        assert_int_equal(fabric_write(rig->at_lane[0], ids[i], 0, local, 8, NULL), -EFAULT);
    }
}

static void a_withdrawn_region_is_gone_and_its_id_free(void **state)
{
    struct rig *rig = *state;

    rig_connect(rig, 0);
    struct region first = rig_lend(rig, 0, 4, 4096);
    fabric_withdraw(rig->at_worker[0], 4);
    rig_send(rig->at_worker[0], "withdrawn");
    rig_expect_text(rig, &rig->lane, "withdrawn");
    assert_int_equal(fabric_region_bytes(rig->at_lane[0], 4), 0);
    assert_null(fabric_map(rig->at_lane[0], 4, 0, 1));
    struct region second = rig_lend(rig, 0, 4, 8192);
    assert_int_equal(fabric_region_bytes(rig->at_lane[0], 4), 8192);
    region_destroy(&first);
    region_destroy(&second);
}

static void one_region_is_lent_on_two_connections(void **state)
{
    struct rig *rig = *state;
    struct side *worker = &rig->workers[0];
    struct fabric_conn *second;
    char a[8] = {0}, b[8] = {0};

    rig_connect(rig, 0);
    struct region region = rig_lend(rig, 0, 0, 4096);
    assert_int_equal(fabric_connect(worker->fabric, rig->address, "t", 1, NULL, &second), 0);
    struct fabric_conn *at_lane = rig_expect(rig, &rig->lane, FABRIC_EVENT_REQUEST).event.conn;
    assert_int_equal(fabric_accept(at_lane, NULL), 0);
    rig_expect(rig, worker, FABRIC_EVENT_OPEN);
    assert_int_equal(fabric_lend(second, &region, 1), 0);
    rig_expect(rig, &rig->lane, FABRIC_EVENT_REGION);
    memcpy(region.base, "shared", 7);
    assert_int_equal(fabric_pool_register(rig->lane.fabric, a, sizeof a), 0);
    assert_int_equal(fabric_pool_register(rig->lane.fabric, b, sizeof b), 0);
    assert_int_equal(fabric_read(rig->at_lane[0], 0, 0, a, 7, NULL), 0);
    assert_int_equal(fabric_read(at_lane, 1, 0, b, 7, NULL), 0);
    rig_expect(rig, &rig->lane, FABRIC_EVENT_READ);
    rig_expect(rig, &rig->lane, FABRIC_EVENT_READ);
    assert_string_equal(a, "shared");
    assert_string_equal(b, "shared");
    region_destroy(&region);
}

#define BIG_BYTES ((size_t)8 << 20)
#define BIG_CHUNK ((size_t)256 << 10)

static unsigned char pattern(size_t i, unsigned seed)
{
    return (unsigned char)((i * 31 >> 3) + seed);
}

/* Posts transfers chunk by chunk, each time as many chunks as the fabric accepts. */
static void move_big(struct rig *rig, unsigned char *local, bool writes)
{
    enum fabric_event_kind kind = writes ? FABRIC_EVENT_WRITTEN : FABRIC_EVENT_READ;
    struct fabric_conn *c = rig->at_lane[0];
    size_t posted = 0, done = 0;

    while (done < BIG_BYTES) {
        int r = 0;
        for (; posted < BIG_BYTES && r == 0; posted += r == 0 ? BIG_CHUNK : 0) {
            unsigned char *part = local + posted;
            r = writes ? fabric_write(c, 0, posted, part, BIG_CHUNK, part)
                       : fabric_read(c, 0, posted, part, BIG_CHUNK, part);
            assert_true(r == 0 || r == -EAGAIN);
        }
        struct seen seen = rig_expect(rig, &rig->lane, kind);
        assert_int_equal(seen.event.error, 0);
        assert_ptr_equal(seen.event.context, local + done); /* events come in the order of posts */
        done += BIG_CHUNK;
    }
}

static size_t differing(const unsigned char *bytes, unsigned seed)
{
    size_t wrong = 0;

    for (size_t i = 0; i < BIG_BYTES; i++)
        wrong += bytes[i] != pattern(i, seed);
    return wrong;
}

static void every_byte_of_a_big_transfer_is_right(void **state)
{
    struct rig *rig = *state;
    unsigned char *local = malloc(BIG_BYTES);

    assert_non_null(local);
    rig_connect(rig, 0);
    struct region region = rig_lend(rig, 0, 0, BIG_BYTES);
    assert_int_equal(fabric_pool_register(rig->lane.fabric, local, BIG_BYTES), 0);
    for (size_t i = 0; i < BIG_BYTES; i++)
        ((unsigned char *)region.base)[i] = pattern(i, 3);
    move_big(rig, local, false);
    assert_int_equal(differing(local, 3), 0);
    for (size_t i = 0; i < BIG_BYTES; i++)
        local[i] = pattern(i, 200);
    move_big(rig, local, true);
    assert_int_equal(differing(region.base, 200), 0);
    rig_close(rig); /* the fabric is closed before the registered memory is freed */
    rig_open(rig, rig->factory, NULL);
    region_destroy(&region);
    free(local);
}

const struct CMUnitTest fabric_memory_cases[] = {
    FABRIC_CASE(a_region_surfaces_before_any_later_message),
    FABRIC_CASE(foreign_memory_is_lent_or_reported_as_unsupported),
    FABRIC_CASE(a_read_returns_the_bytes_of_the_region),
    FABRIC_CASE(a_mapping_shows_the_workers_memory_or_is_refused),
    FABRIC_CASE(a_written_event_proves_that_the_bytes_lie_there),
    FABRIC_CASE(a_word_comes_after_all_bytes_before_it),
    FABRIC_CASE(a_notify_carries_a_word_without_bytes),
    FABRIC_CASE(a_message_comes_after_the_writes_before_it),
    FABRIC_CASE(operations_out_of_bounds_are_refused),
    FABRIC_CASE(an_unknown_region_is_refused),
    FABRIC_CASE(posted_operations_end_before_the_connection),
    FABRIC_CASE(a_withdrawn_region_is_gone_and_its_id_free),
    FABRIC_CASE(one_region_is_lent_on_two_connections),
    FABRIC_CASE(every_byte_of_a_big_transfer_is_right),
};
const size_t fabric_memory_cases_count = sizeof fabric_memory_cases / sizeof fabric_memory_cases[0];
