/* Tests messages to lanes and an operator during an export or import of a table (K115): all lanes
 * hold the table at one clock, rows are sent in parts, and the lanes continue after success and
 * failure. */
#include "svc/reduce/reduce.h"
#include "svc/wire/mixed_key.h"
#include "svc/wire/table/table_terms.h"
#include "test/unit/coordinator/coordinator_rig.h"

#include <errno.h>
#include <string.h>

#define SHARDS 8u
#define DIM 2u
#define ROW_BYTES (sizeof(uint64_t) + 2 * DIM * sizeof(float)) /* with the moments of Adagrad */
#define FILE_STEP(name) GRADPOOL__WIRE__TABLE_FILE_STEP__TABLE_FILE_##name
#define BULK_STEP(name) GRADPOOL__WIRE__TABLE_BULK_STEP__TABLE_BULK_##name

/* A job with one rank and a table on two lanes, and an operator. */
struct filing_case {
    struct end *lanes, *asker, *rank;
    char *job, *table; /* of requests; table "": all tables */
    uint32_t lane_of[SHARDS];
    uint64_t salt, file;
};

static struct filing_case begin(struct rig *rig)
{
    struct filing_case c = {.lanes = rig_aggregator(rig, 2), .job = "words", .table = "users"};
    struct end *rank = rig_connect(rig, GRADPOOL__WIRE__ROLE__ROLE_CLIENT);
    WIRE(JoinRequest) join;
    envelope request;
    join_request(&request, &join, "words", 0, 2);
    join.node = "node7"; /* the host of the lanes */
    message_free(end_ask(rank, &request));
    end_declare_table(rank, "users", DIM, SHARDS);
    envelope *reply = end_expect(rank, BODY(DECLARE_REPLY));
    c.salt = reply->declare_reply->tables[0]->salt;
    for (uint32_t i = 0; i < SHARDS; i++)
        c.lane_of[i] = reply->declare_reply->tables[0]->shards[i]->lane;
    message_free(reply);
    assert_int_not_equal(c.lane_of[0], c.lane_of[1]);
    c.rank = rank;
    c.lanes->ignores = BODY(TABLE_BULK);
    c.asker = rig_connect_locally(rig, GRADPOOL__WIRE__ROLE__ROLE_OPERATOR);
    return c;
}

/* Sends a request of the operator. Returns its id. */
static uint64_t ask(struct filing_case *c, WIRE(TableFileRequest) request)
{
    request.job = c->job;
    request.table = c->table;
    request.file = c->file;
    return end_send(c->asker, &ENVELOPE(0, TABLE_FILE_REQUEST, table_file_request, &request));
}

#define ASK(c, STEP, ...) \
    ask(c, MESSAGE_PART(TableFileRequest, table_file_request, .step = FILE_STEP(STEP), __VA_ARGS__))

/* Waits for the next request to a lane, and checks that the request has this step. */
static envelope *bulk_request(struct filing_case *c, int step)
{
    envelope *request = end_expect(c->lanes, BODY(TABLE_BULK));
    assert_int_equal(request->table_bulk->step, step);
    return request;
}

/* Answers the request and frees it. */
static void bulk_reply(struct filing_case *c, envelope *request, WIRE(TableBulkReply) reply)
{
    channel_send(c->lanes->channel,
                 &ENVELOPE(request->id, TABLE_BULK_REPLY, table_bulk_reply, &reply));
    message_free(request);
}

#define REPLY(c, request, ...) \
    bulk_reply(c, request, MESSAGE_PART(TableBulkReply, table_bulk_reply, __VA_ARGS__))

/* Makes both lanes hold the table at clock 4, with `count` rows on each lane. Returns the reply. */
static envelope *hold(struct filing_case *c, uint64_t id, uint64_t count)
{
    for (int i = 0; i < 2; i++)
        REPLY(c, bulk_request(c, BULK_STEP(HOLD)), .is_held = true, .clock = 4, .steps = 3,
              .count = count);
    envelope *reply = end_expect_reply(c->asker, id);
    if (reply->body_case == BODY(TABLE_FILE_REPLY))
        c->file = reply->table_file_reply->file;
    return reply;
}

static void begin_export(struct filing_case *c)
{
    envelope *reply = hold(c, ASK(c, EXPORT, .file = 0), 2);
    assert_int_equal(reply->body_case, BODY(TABLE_FILE_REPLY));
    assert_int_equal(reply->table_file_reply->clock, 4);
    assert_int_equal(reply->table_file_reply->steps, 3);
    assert_int_equal(reply->table_file_reply->count, 4);
    assert_string_equal(reply->table_file_reply->spec->name, "users");
    message_free(reply);
}

static void begin_import(struct filing_case *c)
{
    envelope *reply = hold(c, ASK(c, IMPORT, .file = 0), 0);
    assert_int_equal(reply->body_case, BODY(TABLE_FILE_REPLY));
    message_free(reply);
}

static void lanes_continue(struct filing_case *c, bool has_steps)
{
    for (int i = 0; i < 2; i++) {
        envelope *request = bulk_request(c, BULK_STEP(CONTINUE));
        assert_int_equal(request->table_bulk->has_steps, has_steps);
        assert_int_equal(request->table_bulk->steps, has_steps ? 9 : 0);
        assert_int_equal(request->table_bulk->clock, has_steps ? 4 : 0);
        REPLY(c, request, .clock = 0);
    }
}

static void is_answered(struct filing_case *c, uint64_t id)
{
    envelope *reply = end_expect_reply(c->asker, id);
    assert_int_equal(reply->body_case, BODY(TABLE_FILE_REPLY));
    message_free(reply);
}

static void is_refused(struct filing_case *c, uint64_t id, int code, const char *text)
{
    envelope *reply = end_expect_reply(c->asker, id);
    assert_int_equal(reply->body_case, BODY(FAILURE));
    assert_failed_so(reply->failure->code, reply->failure->text, code, text);
    message_free(reply);
}

/* ---- the hold ---- */

static void all_lanes_reach_the_largest_clock(void **state)
{
    struct filing_case c = begin(*state);
    uint64_t id = ASK(&c, EXPORT, .file = 0);
    for (uint64_t i = 0; i < 2; i++) {
        envelope *request = bulk_request(&c, BULK_STEP(HOLD));
        assert_int_equal(request->table_bulk->clock, 0);
        assert_false(request->table_bulk->loads);
        REPLY(&c, request, .is_held = true, .clock = 4 + i, .count = 1);
    }
    for (uint64_t i = 0; i < 2; i++) {
        envelope *request = bulk_request(&c, BULK_STEP(HOLD));
        assert_int_equal(request->table_bulk->clock, 5);
        REPLY(&c, request, .is_held = i == 1, .clock = 4 + i, .count = 1);
    }
    for (uint64_t i = 0; i < 2; i++)
        REPLY(&c, bulk_request(&c, BULK_STEP(HOLD)), .is_held = true, .clock = 5, .count = 1);
    envelope *reply = end_expect_reply(c.asker, id);
    assert_int_equal(reply->table_file_reply->clock, 5);
    message_free(reply);
}

static void a_lane_that_refuses_ends_the_request(void **state)
{
    struct filing_case c = begin(*state);
    uint64_t id = ASK(&c, EXPORT, .file = 0);
    envelope *requests[] = {bulk_request(&c, BULK_STEP(HOLD)), bulk_request(&c, BULK_STEP(HOLD))};
    channel_send(c.lanes->channel, &MESSAGE(requests[0]->id, FAILURE, failure, .code = -ENOENT,
                                            .text = "this lane has no such shard"));
    REPLY(&c, requests[1], .is_held = true, .clock = 4);
    message_free(requests[0]);
    is_refused(&c, id, -ENOENT, "this lane has no such shard");
    lanes_continue(&c, false);
}

static void one_export_of_a_table_is_made_at_a_time(void **state)
{
    struct filing_case c = begin(*state), other = c;
    begin_export(&c);
    other.asker = rig_connect_locally(*state, GRADPOOL__WIRE__ROLE__ROLE_OPERATOR);
    is_refused(&other, ASK(&other, EXPORT, .file = 0), -EBUSY, "is being exported or imported");
    is_refused(&other, ASK(&other, NEXT, .file = 0), -ECANCELED,
               "the export or import has ended: its job");
}

static void an_import_needs_a_table_without_rows(void **state)
{
    struct filing_case c = begin(*state);
    uint64_t id = ASK(&c, IMPORT, .file = 0);
    envelope *reply = hold(&c, id, 1);
    assert_int_equal(reply->body_case, BODY(FAILURE));
    assert_failed_so(reply->failure->code, reply->failure->text, -EEXIST,
                     "table 'users' of job words has 2 rows already");
    message_free(reply);
    lanes_continue(&c, false);
}

/* ---- all tables ---- */

/* Declares a second table on the same lanes. */
static void declare_items(struct filing_case *c)
{
    end_declare_table(c->rank, "items", DIM, SHARDS);
    message_free(end_expect(c->rank, BODY(DECLARE_REPLY)));
    c->table = "";
}

/* Answers the holds of both tables on both lanes. Lane 0 of the second table is behind. */
static void all_tables_reach_one_clock(void **state)
{
    struct filing_case c = begin(*state);
    declare_items(&c);
    uint64_t id = ASK(&c, EXPORT, .clock = 3);
    for (int i = 0; i < 4; i++) {
        envelope *request = bulk_request(&c, BULK_STEP(HOLD));
        assert_int_equal(request->table_bulk->clock, 3);
        REPLY(&c, request, .is_held = true, .clock = i == 2 ? 4 : 5, .count = 1);
    }
    for (int i = 0; i < 4; i++) {
        envelope *request = bulk_request(&c, BULK_STEP(HOLD));
        assert_int_equal(request->table_bulk->clock, 5);
        REPLY(&c, request, .is_held = true, .clock = 5, .count = 1, .steps = 4);
    }
    envelope *reply = end_expect_reply(c.asker, id);
    const WIRE(TableFileReply) *said = reply->table_file_reply;
    assert_int_equal(reply->body_case, BODY(TABLE_FILE_REPLY));
    assert_int_equal(said->clock, 5);
    assert_int_equal(said->n_tables, 2);
    assert_string_equal(said->tables[0]->spec->name, "users");
    assert_string_equal(said->tables[1]->spec->name, "items");
    assert_int_equal(said->tables[1]->count, 2);
    assert_int_equal(said->tables[1]->steps, 4);
    message_free(reply);
}

/* A table without BSP is held at any clock, and its clock raises no other one. */
static void a_table_without_bsp_holds_at_its_own_clock(void **state)
{
    struct filing_case c = begin(*state);
    declare_items(&c);
    uint64_t id = ASK(&c, EXPORT, .file = 0);
    for (int i = 0; i < 4; i++) {
        envelope *request = bulk_request(&c, BULK_STEP(HOLD));
        REPLY(&c, request, .is_held = true, .any_clock = i >= 2, .clock = i >= 2 ? 9 : 5);
    }
    envelope *reply = end_expect_reply(c.asker, id);
    assert_int_equal(reply->body_case, BODY(TABLE_FILE_REPLY));
    assert_int_equal(reply->table_file_reply->tables[0]->clock, 5);
    assert_int_equal(reply->table_file_reply->tables[1]->clock, 9);
    message_free(reply);
}

static void import_all(struct filing_case *c)
{
    declare_items(c);
    uint64_t id = ASK(c, IMPORT, .file = 0);
    for (int i = 0; i < 4; i++)
        REPLY(c, bulk_request(c, BULK_STEP(HOLD)), .is_held = true, .clock = 4 + (i >= 2),
              .any_clock = true);
    envelope *reply = end_expect_reply(c->asker, id);
    assert_int_equal(reply->body_case, BODY(TABLE_FILE_REPLY));
    c->file = reply->table_file_reply->file;
    message_free(reply);
}

static void each_table_gets_its_rows_and_its_steps(void **state)
{
    struct filing_case c = begin(*state);
    uint8_t row[ROW_BYTES] = {1};
    uint64_t steps[] = {7, 8};
    uint32_t tables[2] = {0};
    import_all(&c);
    for (uint32_t place = 0; place < 2; place++) {
        uint64_t id = ASK(&c, PUT, .place = place, .rows = {sizeof row, row});
        envelope *request = bulk_request(&c, BULK_STEP(WRITE));
        tables[place] = request->table_bulk->table;
        REPLY(&c, request, .clock = 0);
        is_answered(&c, id);
    }
    assert_int_not_equal(tables[0], tables[1]);
    uint64_t id = ASK(&c, END, .all_steps = steps, .n_all_steps = 2);
    for (int i = 0; i < 4; i++) {
        envelope *request = bulk_request(&c, BULK_STEP(CONTINUE));
        uint32_t place = request->table_bulk->table == tables[1];
        assert_int_equal(request->table_bulk->steps, steps[place]);
        assert_int_equal(request->table_bulk->clock, 4 + place);
        REPLY(&c, request, .clock = 0);
    }
    is_answered(&c, id);
}

static void rows_of_an_unknown_table_end_the_import(void **state)
{
    struct filing_case c = begin(*state);
    uint8_t row[ROW_BYTES] = {1};
    import_all(&c);
    is_refused(&c, ASK(&c, PUT, .place = 2, .rows = {sizeof row, row}), -EBADMSG,
               "an import has rows of table 2, but has 2 tables");
}

static void an_import_ends_with_the_updates_of_all_tables(void **state)
{
    struct filing_case c = begin(*state);
    import_all(&c);
    is_refused(&c, ASK(&c, END, .steps = 1), -EBADMSG,
               "an import of 2 tables ended with the updates of 0 tables");
}

static void an_import_beyond_a_limit_begins_nowhere(void **state)
{
    struct filing_case c = begin(*state);
    c.table = "";
    is_refused(&c, ASK(&c, IMPORT, .bytes = UINT64_C(1) << 50), -EDQUOT, "--job-table-bytes-max");
}

static void a_job_without_tables_has_nothing_to_export(void **state)
{
    struct filing_case c = begin(*state);
    struct end *rank = rig_connect(*state, GRADPOOL__WIRE__ROLE__ROLE_CLIENT);
    WIRE(JoinRequest) join;
    envelope request;
    join_request(&request, &join, "empty", 0, 1);
    message_free(end_ask(rank, &request));
    c.job = "empty";
    c.table = "";
    is_refused(&c, ASK(&c, EXPORT, .file = 0), -ENODATA,
               "job empty has no table; declare one with gp_table_declare()");
}

/* ---- rows ---- */

static void rows_are_read_shard_by_shard(void **state)
{
    struct filing_case c = begin(*state);
    char rows[2 * ROW_BYTES] = {1, 2, 3};
    begin_export(&c);
    for (uint32_t shard = 0; shard < SHARDS; shard++) {
        for (uint64_t part = 0; part < 2; part++) {
            uint64_t id = ASK(&c, NEXT, .steps = 0);
            envelope *request = bulk_request(&c, BULK_STEP(READ));
            assert_int_equal(request->table_bulk->shard, shard);
            assert_int_equal(request->table_bulk->lane, c.lane_of[shard]);
            assert_int_equal(request->table_bulk->from, part * 77);
            REPLY(&c, request, .rows = {sizeof rows, (uint8_t *)rows}, .next = 77,
                  .is_end = part == 1);
            envelope *reply = end_expect_reply(c.asker, id);
            assert_int_equal(reply->table_file_reply->rows.len, sizeof rows);
            assert_memory_equal(reply->table_file_reply->rows.data, rows, sizeof rows);
            assert_false(reply->table_file_reply->is_end);
            message_free(reply);
        }
    }
    envelope *reply = end_expect_reply(c.asker, ASK(&c, NEXT, .steps = 0));
    assert_true(reply->table_file_reply->is_end);
    message_free(reply);
    uint64_t id = ASK(&c, END, .steps = 0);
    lanes_continue(&c, false);
    is_answered(&c, id);
}

/* Each row is sent once, to the lane of its shard. */
static void rows_of_an_import_go_to_their_lanes(void **state)
{
    enum { ROWS = 50 };
    struct filing_case c = begin(*state);
    uint8_t rows[ROWS * ROW_BYTES] = {0};
    size_t bytes = 0;
    begin_import(&c);
    for (uint64_t key = 0; key < ROWS; key++)
        memcpy(rows + key * ROW_BYTES, &key, sizeof key);
    uint64_t id = ASK(&c, PUT, .rows = {sizeof rows, rows});
    for (int i = 0; i < 2; i++) {
        envelope *request = bulk_request(&c, BULK_STEP(WRITE));
        const WIRE(TableBulk) *write = request->table_bulk;
        bytes += write->rows.len;
        for (size_t at = 0; at < write->rows.len; at += ROW_BYTES) {
            uint64_t key;
            memcpy(&key, write->rows.data + at, sizeof key);
            uint32_t shard = mixed_key_shard(mixed_key(key, c.salt), 3);
            assert_int_equal(write->lane, c.lane_of[shard]);
        }
        REPLY(&c, request, .clock = 0);
    }
    assert_int_equal(bytes, sizeof rows);
    is_answered(&c, id);
    id = ASK(&c, END, .steps = 9);
    lanes_continue(&c, true);
    is_answered(&c, id);
}

static void a_part_of_a_row_ends_the_import(void **state)
{
    struct filing_case c = begin(*state);
    uint8_t rows[ROW_BYTES + 1] = {0};
    begin_import(&c);
    is_refused(&c, ASK(&c, PUT, .rows = {sizeof rows, rows}), -EBADMSG, "cannot take rows of");
    lanes_continue(&c, false);
    is_refused(&c, ASK(&c, END, .steps = 9), -ECANCELED, "the export or import has ended: its job");
}

static void lane_is_full(struct filing_case *c, envelope *request)
{
    channel_send(c->lanes->channel,
                 &MESSAGE(request->id, FAILURE, failure, .code = -EAGAIN, .text = "no room"));
    message_free(request);
}

/* The lane has asked for memory, and has received it. */
static void a_part_is_sent_again_to_a_lane_that_had_no_room(void **state)
{
    struct filing_case c = begin(*state);
    uint8_t row[ROW_BYTES] = {1, 2, 3};
    begin_import(&c);
    uint64_t id = ASK(&c, PUT, .rows = {sizeof row, row});
    lane_is_full(&c, bulk_request(&c, BULK_STEP(WRITE)));
    envelope *again = bulk_request(&c, BULK_STEP(WRITE));
    assert_int_equal(again->table_bulk->rows.len, sizeof row);
    assert_memory_equal(again->table_bulk->rows.data, row, sizeof row);
    REPLY(&c, again, .clock = 0);
    is_answered(&c, id);
}

static void rows_beyond_a_limit_end_the_import(void **state)
{
    struct filing_case c = begin(*state);
    uint8_t row[ROW_BYTES] = {1, 2, 3};
    begin_import(&c);
    uint64_t id = ASK(&c, PUT, .rows = {sizeof row, row});
    envelope *request = bulk_request(&c, BULK_STEP(WRITE));
    end_send(c.lanes, &MESSAGE(0, ROWS_WANTED, rows_wanted, .lane = request->table_bulk->lane,
                               .job_id = request->table_bulk->job_id, .allowed_bytes = 1,
                               .needed_bytes = UINT64_C(1) << 40));
    lane_is_full(&c, request);
    is_refused(&c, id, -EDQUOT, "--job-table-bytes-max");
    lanes_continue(&c, false);
}

/* ---- ends ---- */

static void the_lanes_continue_when_the_operator_disconnects(void **state)
{
    struct filing_case c = begin(*state);
    begin_export(&c);
    end_close(c.asker);
    lanes_continue(&c, false);
    kept_log_expect("the export of a table ended early: the operator's command has disconnected");
}

static void the_lanes_continue_when_the_operator_is_silent(void **state)
{
    struct filing_case c = begin(*state);
    begin_export(&c);
    lanes_continue(&c, false);
    kept_log_expect("the operator's command sent no request");
    is_refused(&c, ASK(&c, NEXT, .steps = 0), -ECANCELED,
               "the export or import has ended: its job");
}

/* The next request of a rank waits for all other ranks. The silence of an operator, which begins
 * later, ends in the meantime. */
static void a_request_between_iterations_may_come_later_than_that_of_an_operator(void **state)
{
    struct filing_case c = begin(*state);
    declare_items(&c);
    c.table = "items";
    message_free(hold(&c, ASK(&c, EXPORT, .between = true), 2));
    struct filing_case rank = c;
    c.table = "users";
    c.file = 0;
    begin_export(&c);
    lanes_continue(&c, false);
    kept_log_expect("the operator's command sent no request for 5 s");
    is_refused(&c, ASK(&c, NEXT, .steps = 0), -ECANCELED,
               "more than 5 s (60 s from a rank) after the last one");
    ASK(&rank, NEXT, .steps = 0);
    message_free(bulk_request(&rank, BULK_STEP(READ)));
    end_close(rank.asker);
    lanes_continue(&rank, false);
    kept_log_expect("the rank that copies the tables has disconnected");
}

#define test(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(all_lanes_reach_the_largest_clock),
        test(a_lane_that_refuses_ends_the_request),
        test(one_export_of_a_table_is_made_at_a_time),
        test(an_import_needs_a_table_without_rows),
        test(all_tables_reach_one_clock),
        test(a_table_without_bsp_holds_at_its_own_clock),
        test(each_table_gets_its_rows_and_its_steps),
        test(rows_of_an_unknown_table_end_the_import),
        test(an_import_ends_with_the_updates_of_all_tables),
        test(an_import_beyond_a_limit_begins_nowhere),
        test(a_job_without_tables_has_nothing_to_export),
        test(rows_are_read_shard_by_shard),
        test(rows_of_an_import_go_to_their_lanes),
        test(a_part_of_a_row_ends_the_import),
        test(a_part_is_sent_again_to_a_lane_that_had_no_room),
        test(rows_beyond_a_limit_end_the_import),
        test(the_lanes_continue_when_the_operator_disconnects),
        test(the_lanes_continue_when_the_operator_is_silent),
        test(a_request_between_iterations_may_come_later_than_that_of_an_operator),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
