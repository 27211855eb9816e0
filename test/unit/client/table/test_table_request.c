/* Tests requests for rows of tables as a lane receives them. Every record and directory passes the
 * checks of a lane, and each key goes to the lane of its shard. Also tests clocks, and the checks
 * of routes from a coordinator. */
#include "client/lib/table/clock.h"
#include "client/lib/table/request.h"
#include "svc/wire/mixed_key.h"
#include "svc/wire/table/row_directory.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define DIM 5
#define SEEDS 200
#define REGION 6
#define OFFSET 4096
#define KEYS_MOST 3000

static size_t left = SIZE_MAX; /* number of allocations that succeed before one fails */
void *__real_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);

void *__wrap_calloc(size_t count, size_t bytes)
{
    if (left == 0)
        return NULL;
    left -= left != SIZE_MAX;
    return __real_calloc(count, bytes);
}

/* A route message for 2^bits shards. */
struct route_message {
    Gradpool__Wire__TableRoute route;
    Gradpool__Wire__ShardRoute shards[RECORD_SHARDS_MAX], *places[RECORD_SHARDS_MAX];
};

static void message_init(struct route_message *m, uint32_t shards, uint32_t lanes, uint64_t seed)
{
    gradpool__wire__table_route__init(&m->route);
    m->route.table = 3;
    m->route.salt = seed * 77;
    m->route.shards = m->places;
    m->route.n_shards = shards;
    for (uint32_t i = 0; i < shards; i++) {
        gradpool__wire__shard_route__init(&m->shards[i]);
        m->shards[i].lane = 10 + (uint32_t)(mixed_key(i, seed) % lanes);
        m->shards[i].epoch = 1 + i % 3;
        m->shards[i].lost_epoch = 1;
        m->places[i] = &m->shards[i];
    }
}

struct sample {
    struct route_message message;
    struct table_route route;
    struct table_keys keys;
    uint64_t caller[KEYS_MOST];
    struct table_span spans[RECORD_SHARDS_MAX];
    struct request_part parts[RECORD_SHARDS_MAX];
    struct table_request request;
    char *memory;
    bool seen[KEYS_MOST]; /* for each distinct key, whether a lane has received the key */
};

static struct sample *sample_make(uint64_t seed)
{
    struct sample *s = calloc(1, sizeof *s);
    struct err err;
    uint32_t shards = 1u << mixed_key(seed, 1) % 13, lanes = 1 + (uint32_t)(mixed_key(seed, 2) % 9);
    uint32_t count = 1 + (uint32_t)(mixed_key(seed, 3) % (KEYS_MOST - 1));
    message_init(&s->message, shards, lanes, seed);
    assert_int_equal(table_route_read(&s->message.route, "users", shards, &s->route, &err), 0);
    for (uint32_t i = 0; i < count; i++)
        s->caller[i] = mixed_key(i, seed) % (count + 1);
    assert_int_equal(table_keys_set(&s->keys, s->caller, count, 0, s->route.salt, NULL), 0);
    size_t bytes = table_request_bytes(s->keys.count, shards, REDUCE_F32, DIM);
    s->memory = malloc(bytes);
    struct request_memory memory = {s->memory, OFFSET, REGION, bytes};
    assert_int_equal(table_request_lay(&s->keys, &s->route, REDUCE_F32, DIM, &memory, s->spans,
                                       s->parts, &s->request),
                     0);
    return s;
}

static void sample_free(struct sample *s)
{
    table_route_fini(&s->route);
    table_keys_fini(&s->keys);
    free(s->memory);
    free(s);
}

/* Returns the bytes at an offset of a lent region, as a lane maps them. */
static const char *mapped(const struct sample *s, uint32_t region, uint64_t offset, uint64_t bytes)
{
    assert_int_equal(region, REGION);
    assert_true(offset >= OFFSET && offset - OFFSET + bytes <= s->request.memory.bytes);
    return s->memory + (offset - OFFSET);
}

/* Checks that all keys of the span belong to its shard, and that the route has the shard on this
 * lane with the epoch of the span. */
static void see_span(struct sample *s, const struct row_span *span, const uint64_t *keys,
                     uint32_t lane)
{
    assert_int_equal(s->route.shards[span->shard].lane, lane);
    assert_int_equal(s->route.shards[span->shard].epoch, span->epoch);
    for (uint32_t i = span->first; i < span->first + span->count; i++) {
        assert_int_equal(mixed_key_shard(keys[i], s->route.shard_bits), span->shard);
        assert_false(s->seen[i]);
        s->seen[i] = true;
    }
}

static void see_part(struct sample *s, const struct request_part *part)
{
    struct record_rows made =
        table_request_record(&s->request, part, RECORD_PUSH, s->route.table, 9, 4, 7);
    union record r;
    size_t bytes;
    uint32_t wrong, keys_count = 0;
    assert_int_equal(record_check(&made, sizeof made, &r, &bytes), 0);
    const char *entries = mapped(s, r.rows.directory_region, r.rows.directory_offset,
                                 r.rows.spans * sizeof(struct row_span));
    const void *keys =
        mapped(s, r.rows.keys_region, r.rows.keys_offset, r.rows.keys * sizeof(uint64_t));
    const void *rows =
        mapped(s, r.rows.rows_region, r.rows.rows_offset, r.rows.keys * DIM * sizeof(float));
    struct row_directory directory = {entries, r.rows.spans, r.rows.keys,
                                      table_route_shards(&s->route)};
    assert_ptr_equal(rows, table_request_rows(&s->request));
    assert_int_equal(row_directory_check(&directory, &wrong), 0);
    for (uint32_t i = 0; i < r.rows.spans; i++) {
        struct row_span span;
        assert_int_equal(row_directory_read(&directory, i, &span), 0);
        see_span(s, &span, keys, part->lane);
        keys_count += span.count;
    }
    assert_int_equal(keys_count, part->keys);
    assert_memory_equal(keys, s->keys.mixed, s->keys.count * sizeof(uint64_t));
}

static void every_key_goes_to_the_lane_of_its_shard(void **state)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct sample *s = sample_make(seed);
        assert_in_range(s->request.parts_count, 1, s->route.lanes_count);
        for (uint32_t i = 0; i < s->request.parts_count; i++)
            see_part(s, &s->parts[i]);
        for (uint32_t i = 0; i < s->keys.count; i++)
            assert_true(s->seen[i]);
        sample_free(s);
    }
}

static void memory_that_is_too_short_is_not_written(void **state)
{
    struct sample *s = sample_make(5);
    struct request_memory memory = s->request.memory;
    memory.bytes--;
    memset(s->memory, 0x5a, memory.bytes);
    assert_int_equal(table_request_lay(&s->keys, &s->route, REDUCE_F32, DIM, &memory, s->spans,
                                       s->parts, &s->request),
                     -ENOSPC);
    for (size_t i = 0; i < memory.bytes; i++)
        assert_int_equal(s->memory[i], 0x5a);
    sample_free(s);
}

static void route_gives(struct route_message *m, uint32_t shards, int code, const char *text)
{
    struct table_route route = {.table = 99};
    struct err err = {0};
    assert_int_equal(table_route_read(&m->route, "users", shards, &route, &err), code);
    assert_string_equal(err.text, text);
    assert_int_equal(route.table, 99);
    assert_null(route.shards);
}

static void a_route_of_a_coordinator_is_checked(void **state)
{
    struct route_message *m = calloc(1, sizeof *m);
    message_init(m, 4, 2, 1);
    route_gives(m, 8, -EBADMSG,
                "table 'users': the coordinator's route has 4 shards, the table has 8; install the "
                "same version of gradpool on both hosts");
    m->shards[2].epoch = 0;
    route_gives(m, 4, -EBADMSG,
                "table 'users': the coordinator's route of shard 2 has no epoch; install the same "
                "version of gradpool on both hosts");
    message_init(m, 3, 2, 1);
    route_gives(m, 3, -EBADMSG,
                "table 'users': the coordinator's route has 3 shards, the table has 3; install the "
                "same version of gradpool on both hosts");
    message_init(m, 0, 1, 1);
    route_gives(m, 0, -EBADMSG,
                "table 'users': the coordinator's route has 0 shards, the table has 0; install the "
                "same version of gradpool on both hosts");
    free(m);
}

static void a_later_route_replaces_the_former(void **state)
{
    struct route_message *m = calloc(1, sizeof *m);
    struct table_route route = {0};
    struct err err = {0};
    for (uint64_t seed = 1; seed < 4; seed++) {
        message_init(m, 64, 5, seed);
        assert_int_equal(table_route_read(&m->route, "users", 64, &route, &err), 0);
        assert_int_equal(route.salt, seed * 77);
        for (uint32_t i = 0; i < 64; i++)
            assert_int_equal(route.lanes[route.shards[i].place], m->shards[i].lane);
        for (uint32_t i = 1; i < route.lanes_count; i++)
            assert_true(route.lanes[i] > route.lanes[i - 1]);
    }
    table_route_fini(&route);
    assert_int_equal(table_route_shards(&route), 0);
    free(m);
}

static void the_nth_allocation_fails(void **state)
{
    struct route_message *m = calloc(1, sizeof *m);
    message_init(m, 16, 3, 1);
    for (size_t n = 0; n < 2; n++) {
        left = n;
        route_gives(m, 16, -ENOMEM,
                    "table 'users': this process has no memory for the route of 16 shards; raise "
                    "its memory limit");
        left = SIZE_MAX;
    }
    free(m);
}

static void a_clock_names_every_table_once(void **state)
{
    uint32_t tables[50], named = 0;
    struct worker_clock clock = {.session = 5};
    union record r = {.kind = 0};
    for (uint32_t i = 0; i < 50; i++)
        tables[i] = 3 * i + 1;
    assert_int_equal(worker_clock_now(&clock), 1);
    assert_int_equal(worker_clock_next_request(&clock), 1);
    assert_int_equal(worker_clock_end(&clock), 0);
    for (uint32_t taken;
         (taken = worker_clock_record(&clock, RECORD_CLOCK_ENDED, tables, 50, named, &r.clock)) > 0;
         named += taken) {
        union record copy;
        size_t bytes;
        assert_int_equal(record_check(&r, sizeof r.clock, &copy, &bytes), 0);
        assert_int_equal(r.clock.clock, 1);
        assert_int_equal(r.clock.sequence, 1);
        assert_int_equal(r.clock.session, 5);
        for (uint32_t i = 0; i < taken; i++)
            assert_int_equal(r.clock.tables[i], tables[named + i]);
    }
    assert_int_equal(named, 50);
    assert_int_equal(worker_clock_now(&clock), 2);
}

static void numbers_end_before_they_wrap(void **state)
{
    struct worker_clock clock = {.ended = RECORD_CLOCK_MOST - 1, .sequence = RECORD_CLOCK_MOST};
    assert_int_equal(worker_clock_end(&clock), -EOVERFLOW);
    assert_int_equal(worker_clock_now(&clock), RECORD_CLOCK_MOST);
    assert_int_equal(worker_clock_next_request(&clock), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_key_goes_to_the_lane_of_its_shard),
        cmocka_unit_test(memory_that_is_too_short_is_not_written),
        cmocka_unit_test(a_route_of_a_coordinator_is_checked),
        cmocka_unit_test(a_later_route_replaces_the_former),
        cmocka_unit_test(the_nth_allocation_fails),
        cmocka_unit_test(a_clock_names_every_table_once),
        cmocka_unit_test(numbers_end_before_they_wrap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
