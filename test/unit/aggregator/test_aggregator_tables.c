/* Tests an aggregator's answers to requests that place shards of tables. Also tests the list of
 * shards with which the aggregator joins. The test sends requests like a coordinator. The lane runs
 * on a thread of its own. */
#include "svc/aggregator/internal.h"
#include "svc/channel/table_spec.h"
#include "svc/lane/rows/table.h"
#include "test/unit/channel/channel_pair.h"

#include <string.h>

#define JOB 7u
#define LANE 11u
#define TABLE 3u
#define SALT UINT64_C(0x1234567890abcdef)
#define EPOCH 5u

static struct aggregator a;
static struct pair pair;
static struct channel *coordinator;
static uint64_t last_id;

static const struct table_terms users = {.dim = 8, .shards = 16, .dtype = 1, .rule = 1};

static int name_lane(struct lane *lane, void *context)
{
    lane_set_id(lane, LANE);
    return 0;
}

static int start(void **state)
{
    struct fabric_options fabric = {.payload_bytes_max = 4096};
    struct lane_thread_options options = {.ofi_address = "127.0.0.1:0", .fabric_options = &fabric};
    struct err err = {0};
    a = (struct aggregator){.lanes_count = 1, .lane_ids = {LANE}};
    pair = pair_open();
    a.channel = pair.channel;
    assert_int_equal(channel_create(dup(pair.peer), &coordinator), 0);
    assert_int_equal(lane_thread_start(&options, &a.lanes[0], &err), 0);
    lane_thread_call(a.lanes[0], name_lane, NULL);
    return 0;
}

static int stop(void **state)
{
    lane_thread_stop(a.lanes[0]);
    channel_destroy(coordinator);
    pair_close(&pair);
    return 0;
}

static void ask(envelope *request)
{
    request->id = ++last_id;
    assert_int_equal(serve_request(&a, request), 0);
}

/* Waits for the answer, and returns its code. The text of a failure must contain `words`. */
static int answered(const char *words)
{
    envelope *reply;
    assert_int_equal(channel_receive(coordinator, &reply), 0);
    assert_int_equal(reply->id, last_id);
    bool is_done = reply->body_case == GRADPOOL__WIRE__ENVELOPE__BODY_DONE;
    int code = is_done ? 0 : reply->failure->code;
    if (!is_done && !strstr(reply->failure->text, words))
        fail_msg("'%s' does not say '%s'", reply->failure->text, words);
    message_free(reply);
    return code;
}

struct wanted {
    uint32_t job, epoch;
    const struct table_terms *terms;
    uint32_t shards[2];
    uint64_t memory_bytes_max;
};

static int place(const struct wanted *wanted, const char *words)
{
    Gradpool__Wire__TableSpec spec = table_spec_of(wanted->terms, "users");
    uint32_t shards[] = {wanted->shards[0], wanted->shards[1]};
    Gradpool__Wire__TablePlace table =
        MESSAGE_PART(TablePlace, table_place, .table = TABLE, .spec = &spec, .salt = SALT,
                     .shards = shards, .n_shards = 2);
    ask(&MESSAGE(0, PLACE_REQUEST, place_request, .lane = LANE, .job_id = wanted->job,
                 .job = "words", .workers = 2, .epoch = wanted->epoch, .tenant = "",
                 .job_memory_bytes_max = wanted->memory_bytes_max, .table = &table));
    return answered(words);
}

static void expect_held(size_t count, uint32_t job)
{
    Gradpool__Wire__TableHeld **held;
    size_t held_count;
    assert_int_equal(serve_held_tables(&a, &held, &held_count), 0);
    assert_int_equal(held_count, count);
    if (count > 0) {
        assert_int_equal(held[0]->job_id, job);
        assert_int_equal(held[0]->table, TABLE);
        assert_int_equal(held[0]->lane, LANE);
        assert_int_equal(held[0]->n_shards, 2);
        assert_int_equal(held[0]->n_epochs, 2);
        assert_int_equal(held[0]->shards[0], 2);
        assert_int_equal(held[0]->shards[1], 9);
        assert_int_equal(held[0]->epochs[0], EPOCH);
        assert_int_equal(held[0]->epochs[1], EPOCH);
    }
    serve_held_tables_free(held, held_count);
}

struct sight {
    uint32_t job, workers;
    uint64_t salt;
    struct table_terms terms;
    bool has[16], is_there;
};

static int look(struct lane *lane, void *context)
{
    struct sight *sight = context;
    list_for_each_entry (const struct lane_job, job, &lane->jobs, link) {
        const struct lane_table *table = job->id == sight->job ? table_find(job, TABLE) : NULL;
        if (!table)
            continue;
        sight->is_there = true;
        sight->workers = job->workers_count;
        sight->salt = table->salt;
        sight->terms = *table->terms;
        for (uint32_t i = 0; i < 16; i++)
            sight->has[i] = table_shard_at(table, i);
    }
    return 0;
}

static struct sight see(uint32_t job)
{
    struct sight sight = {.job = job};
    lane_thread_call(a.lanes[0], look, &sight);
    return sight;
}

static void shards_are_placed_in_a_job_without_pieces(void **state)
{
    const struct wanted wanted = {JOB, EPOCH, &users, {2, 9}, 0};
    assert_int_equal(place(&wanted, ""), 0);
    struct sight sight = see(JOB);
    assert_true(sight.is_there);
    assert_int_equal(sight.workers, 2);
    assert_int_equal(sight.salt, SALT);
    struct table_terms served = users;
    served.consistency = TABLE_TERMS_BSP; /* these are the terms before the first stage */
    assert_true(table_terms_are_same(&sight.terms, &served));
    for (uint32_t i = 0; i < 16; i++)
        assert_int_equal(sight.has[i], i == 2 || i == 9);
    expect_held(1, JOB);
}

static void a_repeated_request_is_answered_and_another_one_is_refused(void **state)
{
    struct table_terms wider = users;
    struct wanted wanted = {JOB, EPOCH, &users, {2, 9}, 0};
    wider.dim++;
    assert_int_equal(place(&wanted, ""), 0);
    assert_int_equal(place(&wanted, ""), 0);
    wanted.epoch++;
    assert_int_equal(place(&wanted, ""), -EEXIST);
    wanted = (struct wanted){JOB, EPOCH, &wider, {2, 9}, 0};
    assert_int_equal(place(&wanted, ""), -EEXIST);
    expect_held(1, JOB);
}

static void an_invalid_request_is_refused(void **state)
{
    struct table_terms wide = users;
    wide.dim = 5000;
    assert_int_equal(place(&(struct wanted){JOB, EPOCH, &wide, {2, 9}, 0}, ""), -EINVAL);
    assert_int_equal(place(&(struct wanted){JOB, EPOCH, &users, {2, 16}, 0}, ""), -EINVAL);
    assert_int_equal(place(&(struct wanted){JOB, EPOCH, &users, {9, 2}, 0}, ""), -EINVAL);
    Gradpool__Wire__TablePlace empty = MESSAGE_PART(TablePlace, table_place, .table = TABLE);
    ask(&MESSAGE(0, PLACE_REQUEST, place_request, .lane = LANE, .job_id = JOB, .job = "words",
                 .workers = 2, .epoch = EPOCH, .tenant = "", .table = &empty));
    assert_int_equal(answered(""), -EINVAL);
    expect_held(0, 0);
}

static void shards_without_memory_are_refused_in_words(void **state)
{
    const struct wanted wanted = {JOB, EPOCH, &users, {2, 9}, 100000};
    assert_int_equal(place(&wanted, "lane 11 has no memory for 2 more shards"), -EDQUOT);
    expect_held(0, 0);
}

static void a_dropped_job_has_no_shards(void **state)
{
    const struct wanted first = {JOB, EPOCH, &users, {2, 9}, 0};
    const struct wanted second = {JOB + 1, EPOCH, &users, {2, 9}, 0};
    assert_int_equal(place(&first, ""), 0);
    assert_int_equal(place(&second, ""), 0);
    expect_held(2, JOB);
    ask(&MESSAGE(0, DROP_REQUEST, drop_request, .lane = LANE, .job_id = JOB));
    assert_int_equal(answered(""), 0);
    expect_held(1, JOB + 1);
    assert_int_equal(place(&first, ""), 0);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, start, stop)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(shards_are_placed_in_a_job_without_pieces),
        CASE(a_repeated_request_is_answered_and_another_one_is_refused),
        CASE(an_invalid_request_is_refused),
        CASE(shards_without_memory_are_refused_in_words),
        CASE(a_dropped_job_has_no_shards),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
