/* Tests copies of tables at the coordinator: their begin, their loss, and their promotion after the
 * loss of the owner. The test plays both aggregators and the worker. */
#include "svc/base/clock.h"
#include "svc/coordinator/copies/internal.h"
#include "svc/coordinator/service.h"
#include "svc/wire/durability.h"
#include "svc/wire/table/record_rows.h"
#include "svc/wire/table/table_terms.h"
#include "test/unit/coordinator/coordinator_rig.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CASE(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)
#define SHARDS 8
#define OWNER 1   /* lane of the first aggregator */
#define REPLICA 2 /* lane of the second aggregator */

/* A worker with a table, its owner, and the aggregator with the copy. */
struct scene {
    struct end *owner, *replica, *worker;
    uint32_t job, table, copy;
};

static void send_table(struct end *e, const char *name, uint32_t durability)
{
    WIRE(TableSpec)
    spec = MESSAGE_PART(TableSpec, table_spec, .name = (char *)name, .dim = 4, .dtype = 1,
                        .shards = SHARDS, .rule = 1, .durability = durability);
    WIRE(TableSpec) * specs[] = {&spec};
    end_send(e, &MESSAGE(0, DECLARE_REQUEST, declare_request, .tables = specs, .n_tables = 1));
}

static void declare_refused(struct end *e, const char *name, uint32_t durability, const char *text)
{
    send_table(e, name, durability);
    envelope *reply = end_expect(e, BODY(FAILURE));
    assert_failed_so(reply->failure->code, reply->failure->text, -EOPNOTSUPP, text);
    message_free(reply);
}

static void report(struct end *e, const struct scene *scene, uint32_t lane, bool is_whole)
{
    end_send(e, &MESSAGE(0, TABLE_LOG_REPORT, table_log_report, .lane = lane, .job_id = scene->job,
                         .copy = scene->copy, .is_whole = is_whole));
    rig_settle(e->rig);
}

/* Checks the begin of a copy: the owner receives its number first, then the replica lane receives
 * the table. */
static void expect_copy(struct scene *scene, struct end *replica, uint32_t owner, uint32_t group)
{
    envelope *log = end_expect(scene->owner, BODY(TABLE_LOG));
    scene->copy = log->table_log->copy;
    assert_int_not_equal(scene->copy, 0);
    assert_int_equal(log->table_log->lane, owner);
    message_free(log);
    envelope *place = end_expect(replica, BODY(PLACE_REQUEST));
    assert_int_equal(place->place_request->copied_lane, owner);
    assert_int_equal(place->place_request->copy, scene->copy);
    assert_int_equal(place->place_request->table->n_shards, SHARDS);
    assert_int_equal(place->place_request->table->table, row_table_id(scene->table, group));
    assert_int_not_equal(place->place_request->table_bytes_max, 0);
    message_free(place);
}

/* Checks that the owner is ordered to end a log, if it has one, so that no word of a push waits. */
static void expect_log_end(const struct scene *scene)
{
    envelope *log = end_expect(scene->owner, BODY(TABLE_LOG));
    assert_int_equal(log->table_log->copy, 0);
    message_free(log);
}

static struct scene begin(struct rig *rig)
{
    struct scene scene = {.owner = rig_local_aggregator(rig, 1, "")};
    uint64_t session;
    scene.worker = rig_join(rig, "words", 0, 1, &session, &scene.job);
    send_table(scene.worker, "users", DURABILITY_REPLICA);
    message_free(end_expect(scene.owner, BODY(PLACE_REQUEST)));
    envelope *reply = end_expect(scene.worker, BODY(DECLARE_REPLY));
    scene.table = reply->declare_reply->tables[0]->table;
    message_free(reply);
    expect_log_end(&scene); /* no other aggregator */
    scene.replica = rig_aggregator(rig, 1);
    expect_copy(&scene, scene.replica, OWNER, 0);
    return scene;
}

static void expect_promotion(const struct scene *scene)
{
    envelope *promote = end_expect(scene->replica, BODY(TABLE_PROMOTE));
    const WIRE(TablePromote) *request = promote->table_promote;
    assert_int_equal(request->lane, REPLICA);
    assert_int_equal(request->owner, OWNER);
    assert_int_equal(request->copy, scene->copy);
    assert_int_equal(request->group, 1);
    assert_int_equal(request->epoch, 2);
    assert_null(request->stage);
    message_free(promote);
}

static void expect_route(const struct scene *scene)
{
    envelope *change = end_expect(scene->worker, BODY(ROUTE_CHANGE));
    const WIRE(TableRoute) *route = change->route_change->tables[0];
    assert_int_equal(route->table, scene->table);
    for (uint32_t i = 0; i < SHARDS; i++) {
        assert_int_equal(route->shards[i]->lane, REPLICA);
        assert_int_equal(route->shards[i]->group, 1);
        assert_int_equal(route->shards[i]->epoch, 2);
    }
    message_free(change);
}

static void expect_failure(const struct scene *scene, const char *text)
{
    envelope *failure = end_expect(scene->worker, BODY(TABLE_FAILURE));
    assert_failed_so(failure->table_failure->code, failure->table_failure->text, -EOWNERDEAD, text);
    message_free(failure);
}

/* Answers the next request to a lane about rows, and checks that the request names the table with
 * its group. */
static void answer_bulk(const struct scene *scene, struct end *lane, int step, uint32_t group,
                        WIRE(TableBulkReply) reply)
{
    envelope *request = end_expect(lane, BODY(TABLE_BULK));
    assert_int_equal(request->table_bulk->step, step);
    assert_int_equal(request->table_bulk->table, row_table_id(scene->table, group));
    channel_send(lane->channel, &ENVELOPE(request->id, TABLE_BULK_REPLY, table_bulk_reply, &reply));
    message_free(request);
}

static uint64_t ask_file(struct end *asker, int step, uint64_t file)
{
    return end_send(asker, &MESSAGE(0, TABLE_FILE_REQUEST, table_file_request, .job = "words",
                                    .table = "users", .step = step, .file = file));
}

static uint64_t begin_file(const struct scene *scene, struct end *asker, struct end *lane, int step,
                           uint32_t group)
{
    lane->ignores = BODY(TABLE_BULK);
    uint64_t id = ask_file(asker, step, 0);
    answer_bulk(scene, lane, GRADPOOL__WIRE__TABLE_BULK_STEP__TABLE_BULK_HOLD, group,
                MESSAGE_PART(TableBulkReply, table_bulk_reply, .is_held = true, .clock = 4));
    envelope *reply = end_expect_reply(asker, id);
    assert_int_equal(reply->body_case, BODY(TABLE_FILE_REPLY));
    uint64_t file = reply->table_file_reply->file;
    message_free(reply);
    return file;
}

static void expect_export(const struct scene *scene, struct end *lane, uint32_t group)
{
    struct end *asker = rig_connect_locally(lane->rig, GRADPOOL__WIRE__ROLE__ROLE_OPERATOR);
    uint64_t file =
        begin_file(scene, asker, lane, GRADPOOL__WIRE__TABLE_FILE_STEP__TABLE_FILE_EXPORT, group);
    uint64_t id = ask_file(asker, GRADPOOL__WIRE__TABLE_FILE_STEP__TABLE_FILE_NEXT, file);
    for (uint32_t shard = 0; shard < SHARDS; shard++)
        answer_bulk(scene, lane, GRADPOOL__WIRE__TABLE_BULK_STEP__TABLE_BULK_READ, group,
                    MESSAGE_PART(TableBulkReply, table_bulk_reply, .is_end = true));
    envelope *reply = end_expect_reply(asker, id);
    assert_true(reply->table_file_reply->is_end);
    message_free(reply);
}

static struct job *first_job(const struct rig *rig)
{
    struct list *first = rig->coordinator->service->jobs.next;
    return list_entry(first, struct job, link);
}

static WIRE(TableCopyState) copies_state(const struct rig *rig, const char **ret_fault)
{
    return table_copies_state(job_table_named(first_job(rig), "users"), ret_fault);
}

#define expect_state(rig, name, text)                                          \
    do {                                                                       \
        const char *fault_;                                                    \
        assert_int_equal(copies_state(rig, &fault_),                           \
                         GRADPOOL__WIRE__TABLE_COPY_STATE__TABLE_COPY_##name); \
        assert_string_equal(fault_, text);                                     \
    } while (0)

static void a_whole_copy_continues_after_the_loss_of_its_owner(void **state)
{
    struct scene scene = begin(*state);
    report(scene.owner, &scene, OWNER, true);
    rig_kill(*state, scene.owner->process);
    expect_promotion(&scene);
    expect_route(&scene);
    end_expect_none(scene.worker, BODY(TABLE_FAILURE));
    scene.owner = scene.replica;
    expect_log_end(&scene); /* no other aggregator */
    struct end *third = rig_aggregator(*state, 1);
    expect_copy(&scene, third, REPLICA, 1);
    expect_export(&scene, scene.replica, 1);
}

/* The new lane does not hold the table, so its rows may be of another clock. */
static void a_promotion_ends_an_export(void **state)
{
    struct scene scene = begin(*state);
    report(scene.owner, &scene, OWNER, true);
    struct end *asker = rig_connect_locally(*state, GRADPOOL__WIRE__ROLE__ROLE_OPERATOR);
    uint64_t file = begin_file(&scene, asker, scene.owner,
                               GRADPOOL__WIRE__TABLE_FILE_STEP__TABLE_FILE_EXPORT, 0);
    rig_kill(*state, scene.owner->process);
    expect_promotion(&scene);
    expect_route(&scene);
    uint64_t id = ask_file(asker, GRADPOOL__WIRE__TABLE_FILE_STEP__TABLE_FILE_NEXT, file);
    envelope *reply = end_expect_reply(asker, id);
    assert_int_equal(reply->body_case, BODY(FAILURE));
    assert_failed_so(
        reply->failure->code, reply->failure->text, -EAGAIN,
        "an aggregator was lost during the export, and shard 0 is on another lane now");
    message_free(reply);
    end_expect_none(scene.replica, BODY(TABLE_BULK));
    expect_export(&scene, scene.replica, 1);
}

/* Imported rows are in no log, so a copy from before the import would lack them (K180). */
static void an_import_ends_the_copy_before_its_first_rows(void **state)
{
    struct scene scene = begin(*state);
    report(scene.owner, &scene, OWNER, true);
    struct end *asker = rig_connect_locally(*state, GRADPOOL__WIRE__ROLE__ROLE_OPERATOR);
    kept_log_begin();
    (void)begin_file(&scene, asker, scene.owner, GRADPOOL__WIRE__TABLE_FILE_STEP__TABLE_FILE_IMPORT,
                     0);
    kept_log_expect("lane 2 lost its copy of the tables on lane 1: rows are imported; another copy "
                    "begins in 0.2 s");
    rig_kill(*state, scene.owner->process);
    expect_failure(&scene, "no whole copy yet");
    end_expect_none(scene.replica, BODY(TABLE_PROMOTE));
}

static void operators_see_the_state_of_the_copy(void **state)
{
    struct scene scene = begin(*state);
    expect_state(*state, COPYING, "");
    report(scene.owner, &scene, OWNER, true);
    expect_state(*state, WHOLE, "");
    report(scene.replica, &scene, REPLICA, false);
    expect_state(*state, NONE, "a block does not fit");
    expect_log_end(&scene);
    expect_copy(&scene, scene.replica, OWNER, 0);
    expect_state(*state, COPYING, "a block does not fit");
}

/* The pauses of early faults do not apply to the loss of an aggregator long after them. */
static void a_copy_that_was_whole_for_long_is_replaced_soon(void **state)
{
    struct scene scene = begin(*state);
    report(scene.owner, &scene, OWNER, true);
    struct shards_copy *copy = copy_at(first_job(*state), OWNER);
    copy->failures = 8;
    copy->whole_ns = clock_now_ns() - 10 * NS_PER_S;
    kept_log_begin();
    end_say_goodbye(scene.replica);
    expect_log_end(&scene);
    kept_log_expect("its aggregator was lost; another copy begins in 0.2 s");
    expect_state(*state, NONE, "its aggregator was lost");
    scene.replica = rig_aggregator(*state, 1);
    expect_copy(&scene, scene.replica, OWNER, 0);
}

static void a_copy_that_is_not_whole_is_not_promoted(void **state)
{
    struct scene scene = begin(*state);
    report(scene.replica, &scene, REPLICA, true); /* only the owner's report counts */
    rig_kill(*state, scene.owner->process);
    expect_failure(&scene, "was lost with the rows of shards 0, 1, 2, 3 and 4 more, and the table "
                           "has no whole copy yet");
    end_expect_none(scene.replica, BODY(TABLE_PROMOTE));
}

/* The owner's words wait until the log is ended by order, after "no copy" is stored. */
static void a_lost_copy_is_ended_and_begins_again(void **state)
{
    struct scene scene = begin(*state);
    report(scene.owner, &scene, OWNER, true);
    report(scene.replica, &scene, REPLICA, false);
    message_free(end_expect(scene.replica, BODY(TABLE_COPY_END)));
    expect_log_end(&scene);
    uint32_t first = scene.copy;
    expect_copy(&scene, scene.replica, OWNER, 0);
    assert_int_not_equal(scene.copy, first);
    rig_kill(*state, scene.owner->process);
    expect_failure(&scene, "no whole copy yet");
}

static void a_copy_that_its_lane_cannot_promote_fails_the_table(void **state)
{
    struct scene scene = begin(*state);
    report(scene.owner, &scene, OWNER, true);
    scene.replica->refuses = BODY(TABLE_PROMOTE);
    rig_kill(*state, scene.owner->process);
    expect_failure(&scene, "lane 1 was lost, which served shards 0, 1, 2, 3 and 4 more, ");
}

/* The owner ends while there is no coordinator. */
static void a_restarted_coordinator_knows_a_whole_copy(void **state)
{
    struct rig *rig = *state;
    struct scene scene = begin(rig);
    report(scene.owner, &scene, OWNER, true);
    rig_crash(rig);
    rig_kill(rig, scene.owner->process);
    rig_start(rig);
    scene.replica = rig_rejoin_with_table(rig, scene.replica, NULL);
    expect_promotion(&scene);
}

/* Before the restart, words of pushes waited for a log whose copy was not stored as whole. */
static void a_restarted_coordinator_ends_a_log_without_a_copy(void **state)
{
    struct rig *rig = *state;
    struct scene scene = begin(rig);
    const struct end before = *scene.owner;
    rig_crash(rig);
    rig_start(rig);
    uint32_t shards[SHARDS], epochs[SHARDS];
    for (uint32_t i = 0; i < SHARDS; i++) {
        shards[i] = i;
        epochs[i] = 1;
    }
    const WIRE(TableHeld) held = MESSAGE_PART(
        TableHeld, table_held, .lane = OWNER, .job_id = scene.job, .table = scene.table,
        .shards = shards, .n_shards = SHARDS, .epochs = epochs, .n_epochs = SHARDS);
    scene.owner = rig_rejoin_with_table(rig, &before, &held);
    expect_log_end(&scene);
}

/* The replica lane is lost before it has confirmed the promotion. */
static void a_promotion_without_its_lane_fails_the_table(void **state)
{
    struct scene scene = begin(*state);
    report(scene.owner, &scene, OWNER, true);
    scene.replica->ignores = BODY(TABLE_PROMOTE);
    rig_kill(*state, scene.owner->process);
    expect_promotion(&scene);
    end_say_goodbye(scene.replica);
    expect_failure(&scene, "was lost before it served the rows");
}

/* A table that the owner received after the copy was whole is not in the copy. */
static void a_table_that_the_copy_does_not_contain_is_not_promoted(void **state)
{
    struct scene scene = begin(*state);
    report(scene.owner, &scene, OWNER, true);
    send_table(scene.worker, "items", DURABILITY_REPLICA);
    message_free(end_expect(scene.owner, BODY(PLACE_REQUEST)));
    message_free(end_expect(scene.worker, BODY(DECLARE_REPLY)));
    rig_kill(*state, scene.owner->process);
    expect_failure(&scene, "table 'items'");
    expect_promotion(&scene);
    expect_route(&scene);
}

static void tables_of_a_job_agree_in_their_durability(void **state)
{
    struct scene scene = begin(*state);
    declare_refused(scene.worker, "items", DURABILITY_NONE,
                    "the job has tables with another durability");
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(a_whole_copy_continues_after_the_loss_of_its_owner),
        CASE(a_promotion_ends_an_export),
        CASE(an_import_ends_the_copy_before_its_first_rows),
        CASE(operators_see_the_state_of_the_copy),
        CASE(a_copy_that_was_whole_for_long_is_replaced_soon),
        CASE(a_copy_that_is_not_whole_is_not_promoted),
        CASE(a_lost_copy_is_ended_and_begins_again),
        CASE(a_copy_that_its_lane_cannot_promote_fails_the_table),
        CASE(a_restarted_coordinator_knows_a_whole_copy),
        CASE(a_restarted_coordinator_ends_a_log_without_a_copy),
        CASE(a_promotion_without_its_lane_fails_the_table),
        CASE(a_table_that_the_copy_does_not_contain_is_not_promoted),
        CASE(tables_of_a_job_agree_in_their_durability),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
