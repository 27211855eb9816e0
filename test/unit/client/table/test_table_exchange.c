/* Tests a worker's open requests to tables. A request ends when all its lanes have answered, in any
 * order. A word ends only its own request. The number of open requests is limited. Also compares
 * the results of a random run with a plain list of requests. */
#include "client/lib/table/exchange.h"
#include "test/lib/extent.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LANES 5
#define TABLE 3
#define EXCHANGES 40

static size_t left = SIZE_MAX; /* number of allocations that succeed before one fails */
void *__real_realloc(void *memory, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);

void *__wrap_realloc(void *memory, size_t bytes)
{
    if (left == 0)
        return NULL;
    left -= left != SIZE_MAX;
    return __real_realloc(memory, bytes);
}

static struct table_exchanges all;
static struct worker_clock worker;
static struct table_exchange exchanges[EXCHANGES];

static int start(void **state)
{
    exchanges_init(&all, 2);
    worker = (struct worker_clock){.session = 1};
    memset(exchanges, 0, sizeof exchanges);
    for (int i = 0; i < EXCHANGES; i++)
        assert_int_equal(exchange_prepare(&all, &exchanges[i], LANES), 0);
    return 0;
}

static int stop(void **state)
{
    for (int i = 0; i < EXCHANGES; i++)
        exchange_fini(&all, &exchanges[i]);
    assert_int_equal(all.reserved, 0);
    exchanges_fini(&all);
    return 0;
}

/* Begins a request to the lanes of the bit set. */
static int begin_to(struct table_exchange *e, uint32_t lanes)
{
    struct request_part parts[LANES];
    struct table_request request = {.dtype = REDUCE_F32, .dim = 4, .keys = 8, .parts = parts};
    for (uint32_t lane = 0; lane < LANES; lane++)
        if (lanes & 1u << lane)
            parts[request.parts_count++] =
                (struct request_part){.lane = lane, .number = TABLE, .spans = 1};
    return exchange_begin(&all, e, &request, RECORD_PUSH, &worker);
}

static struct record_error error_of(uint32_t word, int code, const char *text)
{
    struct record_error error;
    record_error_init(&error, word, code, text);
    return error;
}

static void a_request_is_over_when_every_lane_has_answered(void **state)
{
    struct table_exchange *e = &exchanges[0];
    assert_int_equal(begin_to(e, 7), 0);
    assert_int_equal(e->parts_count, 3);
    assert_int_equal(e->parts[0].record.sequence, 1);
    assert_null(exchange_word(&all, 1, e->parts[1].record.word));
    assert_null(exchange_word(&all, 0, e->parts[0].record.word));
    assert_int_equal(e->open, 1);
    assert_ptr_equal(exchange_word(&all, 2, e->parts[2].record.word), e);
    assert_int_equal(e->open, 0);
    assert_true(list_is_empty(&all.open));
    assert_int_equal(all.stale, 0);
}

static void words_of_other_lanes_and_former_requests_are_stale(void **state)
{
    struct table_exchange *e = &exchanges[0];
    assert_int_equal(begin_to(e, 1), 0);
    uint32_t word = e->parts[0].record.word;
    assert_null(exchange_word(&all, 1, word));
    assert_null(exchange_word(&all, 0, word ^ EXCHANGE_WORD));
    assert_null(exchange_word(&all, 0, word + 1));
    assert_null(exchange_word(&all, 0, RECORD_WORD_NONE));
    assert_ptr_equal(exchange_word(&all, 0, word), e);
    assert_null(exchange_word(&all, 0, word));
    assert_int_equal(begin_to(e, 1), 0);
    assert_null(exchange_word(&all, 0, word));
    assert_int_equal(all.stale, 6);
    assert_int_equal(e->open, 1);
    assert_ptr_equal(exchange_word(&all, 0, e->parts[0].record.word), e);
}

static void the_first_error_stays(void **state)
{
    struct table_exchange *e = &exchanges[0];
    assert_int_equal(begin_to(e, 3), 0);
    struct record_error first = error_of(e->parts[1].record.word, -EDOM, "table 'users': NaN");
    struct record_error second = error_of(e->parts[0].record.word, -ESTALE, "table 'users': away");
    assert_null(exchange_error(&all, 1, &first));
    assert_ptr_equal(exchange_error(&all, 0, &second), e);
    assert_int_equal(e->code, -EDOM);
    assert_string_equal(e->text, "table 'users': NaN");
    assert_null(exchange_error(&all, 0, &second));
    assert_int_equal(all.stale, 1);
    assert_int_equal(begin_to(e, 1), 0); /* the next request begins without the error */
    assert_int_equal(e->code, 0);
    assert_ptr_equal(exchange_word(&all, 0, e->parts[0].record.word), e);
}

static void a_lost_lane_ends_its_parts_only(void **state)
{
    assert_int_equal(begin_to(&exchanges[0], 3), 0);
    assert_int_equal(begin_to(&exchanges[1], 2), 0);
    assert_int_equal(begin_to(&exchanges[2], 1), 0);
    const char *text = "lane 1 is lost";
    assert_int_equal(exchanges_room(&all, TABLE, 1), record_row_requests_open(all.workers) - 2);
    assert_false(exchange_lose(&all, &exchanges[0], 1, -EOWNERDEAD, text));
    assert_true(exchange_lose(&all, &exchanges[1], 1, -EOWNERDEAD, text));
    assert_false(exchange_lose(&all, &exchanges[2], 1, -EOWNERDEAD, text)); /* request 2 has no part
                                                                             * on lane 1 */
    assert_int_equal(exchanges[0].open, 1);
    assert_int_equal(exchanges[1].open, 0);
    assert_string_equal(exchanges[1].text, "lane 1 is lost");
    assert_int_equal(exchanges[2].open, 1);
    assert_int_equal(exchanges[2].code, 0);
    assert_true(exchange_lose(&all, &exchanges[0], 0, -EOWNERDEAD, "lane 0 is lost"));
    assert_true(exchange_lose(&all, &exchanges[2], 0, -EOWNERDEAD, "lane 0 is lost"));
    assert_string_equal(exchanges[0].text, "lane 1 is lost");
    assert_true(list_is_empty(&all.open));
}

static void open_requests_of_a_table_on_a_lane_are_limited(void **state)
{
    uint32_t most = record_row_requests_open(800); /* more workers than any job has */
    /* one place is left for a pull in transit */
    assert_int_equal(most, record_row_requests(800) - 1);
    for (int i = 0; i < EXCHANGES; i++)
        exchange_fini(&all, &exchanges[i]);
    all.workers = 800;
    assert_in_range(most, 1, EXCHANGES - 1);
    for (uint32_t i = 0; i <= most; i++)
        assert_int_equal(exchange_prepare(&all, &exchanges[i], LANES), 0);
    for (uint32_t i = 0; i < most; i++)
        assert_int_equal(begin_to(&exchanges[i], 1), 0);
    assert_int_equal(begin_to(&exchanges[most], 3), -EAGAIN);
    assert_int_equal(worker.sequence, most);
    assert_int_equal(exchanges[most].open, 0);
    assert_int_equal(begin_to(&exchanges[most], 2), 0); /* another lane has room */
    assert_ptr_equal(exchange_word(&all, 1, exchanges[most].parts[0].record.word),
                     &exchanges[most]);
    assert_ptr_equal(exchange_word(&all, 0, exchanges[0].parts[0].record.word), &exchanges[0]);
    assert_int_equal(begin_to(&exchanges[most], 3), 0);
}

static void open_parts_are_repeated_in_order(void **state)
{
    const struct exchange_part *part = NULL;
    uint64_t seen[4], count = 0;
    for (int i = 0; i < 5; i++)
        assert_int_equal(begin_to(&exchanges[i], i == 1 ? 1 : 3), 0);
    exchange_word(&all, 1, exchanges[3].parts[1].record.word);
    while ((part = exchanges_next(&all, 1, 0, part ? part->record.sequence : 0)))
        seen[count++] = part->record.sequence;
    assert_int_equal(count, 3);
    assert_int_equal(seen[0], 1);
    assert_int_equal(seen[1], 3);
    assert_int_equal(seen[2], 5);
    for (int i = 0; i < 5; i++)
        for (uint32_t lane = 0; lane < LANES; lane++)
            exchange_lose(&all, &exchanges[i], lane, -EPIPE, "");
}

static void without_a_free_number_no_request_begins(void **state)
{
    worker.sequence = RECORD_CLOCK_MOST;
    assert_int_equal(begin_to(&exchanges[0], 1), -EOVERFLOW);
    assert_true(list_is_empty(&all.open));
}

static void the_nth_allocation_fails(void **state)
{
    struct table_exchange fresh = {0};
    uint32_t before = all.reserved;
    for (size_t n = 0;; n++) {
        left = n;
        int error = exchange_prepare(&all, &fresh, 1000);
        left = SIZE_MAX;
        if (error == 0)
            break;
        assert_int_equal(error, -ENOMEM);
        assert_int_equal(all.reserved, before);
        assert_null(fresh.parts);
    }
    exchange_fini(&all, &fresh);
    assert_int_equal(exchange_prepare(&all, &fresh, 1u << 23), -ENOSPC);
    assert_int_equal(all.reserved, before);
}

/* ---- a random run ---- */

static void answer_one(struct table_exchange *e)
{
    uint32_t i = (uint32_t)random() % e->parts_count;
    while (!e->parts[i].is_open)
        i = (i + 1) % e->parts_count;
    uint32_t expected = e->open - 1;
    struct table_exchange *over = exchange_word(&all, e->parts[i].lane, e->parts[i].record.word);
    assert_int_equal(e->open, expected);
    assert_ptr_equal(over, expected == 0 ? e : NULL);
}

/* Checks that no two open parts have the same word. */
static void words_differ(void)
{
    for (int i = 0; i < EXCHANGES; i++)
        for (uint32_t a = 0; exchanges[i].open && a < exchanges[i].parts_count; a++)
            for (int j = 0; j < i; j++)
                for (uint32_t b = 0; exchanges[j].open && b < exchanges[j].parts_count; b++)
                    if (exchanges[i].parts[a].is_open && exchanges[j].parts[b].is_open)
                        assert_int_not_equal(exchanges[i].parts[a].record.word,
                                             exchanges[j].parts[b].record.word);
}

static void words_stay_apart_over_many_generations(void **state)
{
    srandom(1);
    for (uint32_t step = 0; step < extent(20000, 5000, 500000); step++) {
        struct table_exchange *e = &exchanges[random() % EXCHANGES];
        if (e->open)
            answer_one(e);
        else
            assert_int_equal(begin_to(e, 1 + (uint32_t)random() % ((1u << LANES) - 1)), 0);
        if (step % 100 == 0)
            words_differ();
    }
    for (int i = 0; i < EXCHANGES; i++)
        while (exchanges[i].open)
            answer_one(&exchanges[i]);
    assert_int_equal(all.stale, 0);
    assert_true(list_is_empty(&all.open));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, start, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_request_is_over_when_every_lane_has_answered),
        CASE(words_of_other_lanes_and_former_requests_are_stale),
        CASE(the_first_error_stays),
        CASE(a_lost_lane_ends_its_parts_only),
        CASE(open_requests_of_a_table_on_a_lane_are_limited),
        CASE(open_parts_are_repeated_in_order),
        CASE(without_a_free_number_no_request_begins),
        CASE(the_nth_allocation_fails),
        CASE(words_stay_apart_over_many_generations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
