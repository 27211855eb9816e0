/* Tests tables of keyed rows: their declaration, their lanes, the loss and the return of these
 * lanes, and refused requests. */
#include "test/unit/coordinator/coordinator_rig.h"

#include "svc/wire/backup_terms.h"
#include "svc/wire/durability.h"
#include "svc/wire/limit.h"
#include "svc/wire/table/table_terms.h"

#include <errno.h>
#include <string.h>

#define SHARDS 8u
#define NODE "node7" /* the host of the rig's aggregators */

struct member {
    struct end *end;
    uint64_t session;
    uint32_t job;
};

static struct member join_with(struct rig *rig, WIRE(JoinRequest) * join, envelope *request)
{
    struct member m = {.end = rig_connect(rig, GRADPOOL__WIRE__ROLE__ROLE_CLIENT)};
    envelope *reply = end_ask(m.end, request);
    assert_int_equal(reply->body_case, BODY(JOIN_REPLY));
    m.session = reply->join_reply->session;
    m.job = reply->join_reply->job_id;
    message_free(reply);
    return m;
}

static struct member join_from(struct rig *rig, const char *node, uint32_t rank, uint32_t workers)
{
    WIRE(JoinRequest) join;
    envelope request;
    join_request(&request, &join, "words", rank, workers);
    join.node = (char *)node;
    return join_with(rig, &join, &request);
}

static void resume(struct rig *rig, struct member *m, uint32_t rank, uint32_t workers)
{
    WIRE(JoinRequest) join;
    envelope request;
    join_request(&request, &join, "words", rank, workers);
    join.node = NODE;
    join.session = m->session;
    join.job_id = m->job;
    *m = join_with(rig, &join, &request);
}

static void refused(struct end *e, int code, const char *text)
{
    envelope *reply = end_expect(e, BODY(FAILURE));
    assert_failed_so(reply->failure->code, reply->failure->text, code, text);
    message_free(reply);
}

static void told_of_failure(struct end *e, uint32_t table, int code, const char *text)
{
    envelope *message = end_expect(e, BODY(TABLE_FAILURE));
    assert_int_equal(message->table_failure->table, table);
    assert_failed_so(message->table_failure->code, message->table_failure->text, code, text);
    message_free(message);
}

/* The route of one table, copied from a DeclareReply. */
struct routed {
    uint32_t table;
    uint64_t salt;
    uint32_t lanes[SHARDS], epochs[SHARDS], tasks[SHARDS];
};

static struct routed routed(struct end *e)
{
    struct routed r;
    envelope *reply = end_expect(e, BODY(DECLARE_REPLY));
    assert_int_equal(reply->declare_reply->n_tensors, 0);
    assert_int_equal(reply->declare_reply->n_tables, 1);
    const WIRE(TableRoute) *route = reply->declare_reply->tables[0];
    assert_int_equal(route->n_shards, SHARDS);
    memset(&r, 0, sizeof r);
    r.table = route->table;
    r.salt = route->salt;
    for (uint32_t i = 0; i < SHARDS; i++) {
        r.lanes[i] = route->shards[i]->lane;
        r.epochs[i] = route->shards[i]->epoch;
        r.tasks[i] = route->shards[i]->task;
    }
    message_free(reply);
    return r;
}

static struct routed declare(struct end *e)
{
    end_declare_table(e, "users", 32, SHARDS);
    return routed(e);
}

static void drop_placed(struct end *lane) { message_free(end_expect(lane, BODY(PLACE_REQUEST))); }

/* Sends a declare of table "users" with these terms. */
static void declare_terms(struct end *e, uint32_t consistency, uint32_t durability, uint32_t flags)
{
    WIRE(TableSpec)
    spec = MESSAGE_PART(TableSpec, table_spec, .name = "users", .dim = 4, .dtype = 1, .rule = 1,
                        .consistency = consistency, .durability = durability, .flags = flags);
    WIRE(TableSpec) * specs[] = {&spec};
    end_send(e, &MESSAGE(0, DECLARE_REQUEST, declare_request, .tables = specs, .n_tables = 1));
}

/* --- placing --- */

static void a_declare_is_answered_when_all_lanes_have_their_shards(void **state)
{
    struct rig *rig = *state;
    struct end *lanes = rig_aggregator(rig, 2);
    struct member zero = join_from(rig, NODE, 0, 2);
    envelope *places[2];
    bool has[SHARDS] = {false};
    lanes->answers = false;
    end_declare_table(zero.end, "users", 32, SHARDS);
    for (int i = 0; i < 2; i++) {
        places[i] = end_expect(lanes, BODY(PLACE_REQUEST));
        const WIRE(PlaceRequest) *place = places[i]->place_request;
        assert_non_null(place->table);
        assert_int_equal(place->n_pieces, 0);
        assert_int_equal(place->workers, 2);
        assert_int_equal(place->epoch, 1);
        assert_string_equal(place->table->spec->name, "users");
        assert_int_equal(place->table->spec->dim, 32);
        assert_int_equal(place->table->spec->shards, SHARDS);
        for (size_t k = 0; k < place->table->n_shards; k++) {
            assert_false(has[place->table->shards[k]]);
            has[place->table->shards[k]] = true;
        }
    }
    assert_int_not_equal(places[0]->place_request->lane, places[1]->place_request->lane);
    for (uint32_t i = 0; i < SHARDS; i++)
        assert_true(has[i]);
    end_answer(lanes, places[0]);
    end_expect_none(zero.end, BODY(DECLARE_REPLY));
    end_answer(lanes, places[1]);
    struct routed route = routed(zero.end);
    for (int i = 0; i < 2; i++) {
        const WIRE(PlaceRequest) *place = places[i]->place_request;
        assert_int_equal(route.table, place->table->table);
        assert_int_equal(route.salt, place->table->salt);
        for (size_t k = 0; k < place->table->n_shards; k++) {
            assert_int_equal(route.lanes[place->table->shards[k]], place->lane);
            assert_int_equal(route.epochs[place->table->shards[k]], 1);
        }
        message_free(places[i]);
    }
}

static void every_rank_gets_the_same_route(void **state)
{
    struct rig *rig = *state;
    struct end *lanes = rig_aggregator(rig, 2);
    struct member zero = join_from(rig, NODE, 0, 2), one = join_from(rig, NODE, 1, 2);
    struct routed first = declare(zero.end);
    drop_placed(lanes);
    drop_placed(lanes);
    struct routed second = declare(one.end), again = declare(zero.end);
    assert_memory_equal(&first, &second, sizeof first);
    assert_memory_equal(&first, &again, sizeof first);
    end_expect_none(lanes, BODY(PLACE_REQUEST));
}

static void two_tables_have_two_numbers_and_two_salts(void **state)
{
    struct rig *rig = *state;
    rig_aggregator(rig, 1);
    struct member zero = join_from(rig, NODE, 0, 1);
    struct routed users = declare(zero.end);
    end_declare_table(zero.end, "items", 16, SHARDS);
    struct routed items = routed(zero.end);
    assert_int_not_equal(users.table, items.table);
    assert_int_not_equal(users.salt, items.salt);
    for (uint32_t i = 0; i < SHARDS; i++)
        assert_int_not_equal(users.tasks[i], items.tasks[i]);
}

static void a_table_and_a_tensor_may_have_one_name(void **state)
{
    struct rig *rig = *state;
    rig_aggregator(rig, 1);
    struct member zero = join_from(rig, NODE, 0, 1);
    struct routed route = declare(zero.end);
    end_declare_one(zero.end, "users", 100);
    envelope *reply = end_expect(zero.end, BODY(DECLARE_REPLY));
    assert_int_equal(reply->declare_reply->n_tables, 0);
    assert_int_not_equal(reply->declare_reply->tensors[0]->tensor, route.table);
    message_free(reply);
}

static void a_lane_that_does_not_answer_gets_the_request_again(void **state)
{
    struct rig *rig = *state;
    struct end *lane = rig_aggregator(rig, 1);
    struct member zero = join_from(rig, NODE, 0, 1);
    lane->refuses = BODY(PLACE_REQUEST);
    lane->refusal = -EAGAIN;
    end_declare_table(zero.end, "users", 32, SHARDS);
    drop_placed(lane);
    end_expect_none(zero.end, BODY(FAILURE));
    lane->refuses = 0;
    drop_placed(lane);
    routed(zero.end);
}

static void the_end_of_a_job_frees_its_rows(void **state)
{
    struct rig *rig = *state;
    struct end *lanes = rig_aggregator(rig, 2);
    struct member zero = join_from(rig, NODE, 0, 2), one = join_from(rig, NODE, 1, 2);
    declare(zero.end);
    end_leave(zero.end);
    end_expect_none(lanes, BODY(DROP_REQUEST));
    end_leave(one.end);
    for (int i = 0; i < 2; i++) {
        envelope *drop = end_expect(lanes, BODY(DROP_REQUEST));
        assert_int_equal(drop->drop_request->job_id, zero.job);
        assert_int_equal(drop->drop_request->n_pieces, 0);
        message_free(drop);
    }
}

static void a_table_counts_as_a_tensor_and_its_shards_as_pieces(void **state)
{
    struct rig *rig = *state;
    rig_crash(rig);
    limits_init(&rig->options.limits);
    rig->options.limits.most[LIMIT_JOB_PIECES] = 2 * SHARDS;
    rig->options.limits.most[LIMIT_JOB_TENSORS] = 2;
    rig_start(rig);
    rig_aggregator(rig, 1);
    struct member zero = join_from(rig, NODE, 0, 1);
    declare(zero.end);
    end_declare_table(zero.end, "items", 32, 2 * SHARDS);
    refused(zero.end, -EDQUOT, "job-pieces");
    end_declare_one(zero.end, "w", 10);
    message_free(end_expect(zero.end, BODY(DECLARE_REPLY)));
    end_declare_table(zero.end, "items", 32, 1);
    refused(zero.end, -EDQUOT, "job-tensors");
}

/* --- bad input --- */

static void invalid_terms_are_refused_with_a_reason(void **state)
{
    struct rig *rig = *state;
    struct end *lane = rig_aggregator(rig, 1);
    struct member zero = join_from(rig, NODE, 0, 1);
    end_declare_table(zero.end, "users", 0, SHARDS);
    refused(zero.end, -EINVAL, "table 'users': dim is 0; set dim to 1 to 4096");
    end_declare_table(zero.end, "users", 32, 3);
    refused(zero.end, -EINVAL, "shards is 3");
    end_declare_table(zero.end, "a/b", 32, SHARDS);
    refused(zero.end, -EINVAL, "table 'a/b': the name has a '/'");
    end_expect_none(lane, BODY(PLACE_REQUEST));
    declare(zero.end);
}

static void properties_that_lanes_do_not_serve_are_refused(void **state)
{
    struct rig *rig = *state;
    struct end *lane = rig_aggregator(rig, 1);
    struct member zero = join_from(rig, NODE, 0, 1);
    declare_terms(zero.end, TABLE_TERMS_BSP, DURABILITY_WORKER, 0);
    refused(zero.end, -EOPNOTSUPP, "workers store no copies of rows");
    declare_terms(zero.end, TABLE_TERMS_BSP, 0, TABLE_TERMS_KEEP);
    refused(zero.end, -EOPNOTSUPP, "clear GP_KEEP");
    end_expect_none(lane, BODY(PLACE_REQUEST));
}

static void a_declare_of_tensors_and_tables_is_refused(void **state)
{
    struct rig *rig = *state;
    rig_aggregator(rig, 1);
    struct member zero = join_from(rig, NODE, 0, 1);
    WIRE(TableSpec) table = GRADPOOL__WIRE__TABLE_SPEC__INIT, *tables[] = {&table};
    WIRE(TensorSpec) tensor = GRADPOOL__WIRE__TENSOR_SPEC__INIT, *tensors[] = {&tensor};
    table.name = tensor.name = "w";
    end_ask_refused(zero.end,
                    &MESSAGE(0, DECLARE_REQUEST, declare_request, .tables = tables,
                             .tensors = tensors, .n_tables = 1, .n_tensors = 1),
                    -EINVAL, "declare the tables in a request of their own");
}

static struct member join_to_continue(struct rig *rig, uint32_t rank, uint32_t workers_max)
{
    WIRE(JoinRequest) join;
    envelope request;
    join_request(&request, &join, "words", rank, 2);
    join.node = NODE;
    join.continues = true;
    join.workers_max = workers_max;
    return join_with(rig, &join, &request);
}

static void a_job_that_workers_enter_has_no_tables(void **state)
{
    struct rig *rig = *state;
    rig_aggregator(rig, 1);
    struct member zero = join_to_continue(rig, 0, 3);
    declare_terms(zero.end, TABLE_TERMS_ASP, 0, 0);
    refused(zero.end, -EOPNOTSUPP, "; join without workers_max");
}

/* A worker that joins in place of a worker that has left also counts as late. */
static void a_job_that_continues_without_workers_has_no_tables_with_bsp(void **state)
{
    struct rig *rig = *state;
    rig_aggregator(rig, 1);
    struct member zero = join_to_continue(rig, 0, 0), one = join_to_continue(rig, 1, 0);
    end_declare_table(zero.end, "users", 32, SHARDS);
    refused(zero.end, -EOPNOTSUPP, "; set consistency to GP_SSP or GP_ASP, or on_worker_loss");
    declare_terms(zero.end, TABLE_TERMS_ASP, DURABILITY_REPLICA, 0);
    refused(zero.end, -EOPNOTSUPP, "GP_CONTINUE cannot have copies of rows");
    declare_terms(zero.end, TABLE_TERMS_ASP, 0, 0);
    message_free(end_expect(zero.end, BODY(DECLARE_REPLY)));
    end_leave(one.end);
    one = join_to_continue(rig, 1, 0);
    declare_terms(one.end, TABLE_TERMS_ASP, 0, 0);
    refused(one.end, -EOPNOTSUPP,
            "late workers take no part in tables in this version; start the job");
}

static void a_job_with_backup_workers_has_no_tables(void **state)
{
    struct rig *rig = *state;
    WIRE(BackupSpec)
    backup = MESSAGE_PART(BackupSpec, backup_spec, .rule = 1, .k = 2, .absence = UINT32_MAX,
                          .gradients = 1);
    WIRE(JoinRequest) join;
    envelope request;
    rig_aggregator(rig, 1);
    join_request(&request, &join, "words", 0, 3);
    join.node = NODE;
    join.backup = &backup;
    struct member zero = join_with(rig, &join, &request);
    end_declare_table(zero.end, "users", 32, SHARDS);
    refused(zero.end, -EOPNOTSUPP, "; join without backup workers");
}

static void a_rank_that_declares_other_terms_fails_the_job(void **state)
{
    struct rig *rig = *state;
    rig_aggregator(rig, 1);
    struct member zero = join_from(rig, NODE, 0, 2), one = join_from(rig, NODE, 1, 2);
    declare(zero.end);
    end_declare_table(zero.end, "users", 16, SHARDS);
    refused(zero.end, -EEXIST, "rank 0 declared dim 32, shards 8");
    end_declare_table(zero.end, "users", 16, SHARDS);
    refused(zero.end, -EEXIST, "; declare the same terms, or choose another name");
    end_expect_none(zero.end, BODY(TABLE_FAILURE));
    end_declare_table(one.end, "users", 16, SHARDS);
    refused(one.end, -EINVAL, "; declare the same terms on all ranks");
    end_expect_job_failure(zero.end, -EINVAL, "rank 1 declared dim 16, shards 8");
    end_declare_table(zero.end, "items", 32, SHARDS);
    refused(zero.end, -ECONNRESET, "rank 1 declared dim 16");
}

/* --- hosts --- */

/* Lanes on several hosts exchange rows with the workers over the network. */
static void ranks_on_other_hosts_get_the_route_of_the_others(void **state)
{
    struct rig *rig = *state;
    rig_aggregator(rig, 1);
    struct member zero = join_from(rig, NODE, 0, 2), one = join_from(rig, "node9", 1, 2);
    struct routed first = declare(zero.end), second = declare(one.end);
    assert_memory_equal(&first, &second, sizeof first);
}

/* --- loss and return of lanes --- */

static void a_dead_aggregator_fails_the_table_on_every_rank(void **state)
{
    static const char text[] = "was lost with the rows of shards 0, 1, 2, 3 and 4 more";
    struct rig *rig = *state;
    struct end *first = rig_local_aggregator(rig, 1, "");
    struct member zero = join_from(rig, NODE, 0, 2), one = join_from(rig, NODE, 1, 2);
    struct routed route = declare(zero.end);
    declare(one.end);
    end_declare_one(zero.end, "w", 100);
    message_free(end_expect(zero.end, BODY(DECLARE_REPLY)));
    struct end *second = rig_aggregator(rig, 1);
    rig_kill(rig, first->process);
    told_of_failure(zero.end, route.table, -EOWNERDEAD, text);
    told_of_failure(one.end, route.table, -EOWNERDEAD, "has no copy (durability none)");
    end_declare_table(zero.end, "users", 32, SHARDS);
    refused(zero.end, -EOWNERDEAD, text);
    /* the lost tensor gets another lane, but the shards of the table get none */
    envelope *place = end_expect(second, BODY(PLACE_REQUEST));
    assert_null(place->place_request->table);
    message_free(place);
    message_free(end_expect(zero.end, BODY(ROUTE_CHANGE)));
    end_expect_none(second, BODY(PLACE_REQUEST));
}

static void a_declare_that_waits_for_a_dead_aggregator_is_refused(void **state)
{
    struct rig *rig = *state;
    struct end *first = rig_local_aggregator(rig, 1, "");
    struct member zero = join_from(rig, NODE, 0, 1);
    first->answers = false;
    end_declare_table(zero.end, "users", 32, SHARDS);
    drop_placed(first);
    rig_kill(rig, first->process);
    refused(zero.end, -EOWNERDEAD, "table 'users' of job words: aggregator 1");
}

static WIRE(TableHeld) held(const struct member *m, const struct routed *route, uint32_t *numbers)
{
    WIRE(TableHeld) h = GRADPOOL__WIRE__TABLE_HELD__INIT;
    for (uint32_t i = 0; i < SHARDS; i++)
        numbers[i] = i;
    h.job_id = m->job;
    h.table = route->table;
    h.lane = route->lanes[0];
    h.shards = numbers;
    h.epochs = (uint32_t *)route->epochs;
    h.n_shards = h.n_epochs = SHARDS;
    return h;
}

static void a_restart_keeps_tables_and_their_routes(void **state)
{
    struct rig *rig = *state;
    struct end *lane = rig_aggregator(rig, 1), before = *lane;
    struct member zero = join_from(rig, NODE, 0, 1);
    struct routed route = declare(zero.end);
    uint32_t numbers[SHARDS];
    WIRE(TableHeld) rows = held(&zero, &route, numbers);
    rig_crash(rig);
    rig_start(rig);
    lane = rig_rejoin_with_table(rig, &before, &rows);
    resume(rig, &zero, 0, 1);
    struct routed again = declare(zero.end);
    assert_memory_equal(&route, &again, sizeof route);
    end_expect_none(lane, BODY(PLACE_REQUEST));
    end_declare_table(zero.end, "items", 32, SHARDS);
    assert_true(routed(zero.end).table >
                route.table); /* the number of a table is never used again */
}

static void a_returned_lane_without_the_shards_gets_them_again(void **state)
{
    struct rig *rig = *state;
    struct end *lane = rig_aggregator(rig, 1), before = *lane;
    struct member zero = join_from(rig, NODE, 0, 1);
    lane->answers = false;
    end_declare_table(zero.end, "users", 32, SHARDS);
    drop_placed(lane);
    end_close(lane);
    lane = rig_rejoin_with_table(rig, &before, NULL);
    envelope *place = end_expect(lane, BODY(PLACE_REQUEST));
    assert_int_equal(place->place_request->table->n_shards, SHARDS);
    message_free(place);
    routed(zero.end);
}

static void shards_of_an_unknown_job_are_dropped_with_it(void **state)
{
    struct rig *rig = *state;
    struct end *lane = rig_aggregator(rig, 1), before = *lane;
    struct member zero = join_from(rig, NODE, 0, 1);
    struct routed route = declare(zero.end);
    uint32_t numbers[SHARDS];
    WIRE(TableHeld) rows = held(&zero, &route, numbers);
    rows.job_id = zero.job + 100;
    end_close(lane);
    lane = rig_rejoin_with_table(rig, &before, &rows);
    envelope *drop = end_expect(lane, BODY(DROP_REQUEST));
    assert_int_equal(drop->drop_request->job_id, rows.job_id);
    assert_int_equal(drop->drop_request->n_pieces, 0);
    message_free(drop);
}

static void a_rank_that_resumes_gets_the_failure_of_its_table(void **state)
{
    struct rig *rig = *state;
    struct end *lane = rig_local_aggregator(rig, 1, "");
    struct member zero = join_from(rig, NODE, 0, 1);
    struct routed route = declare(zero.end);
    end_close(zero.end);
    rig_kill(rig, lane->process);
    rig_settle(rig);
    resume(rig, &zero, 0, 1);
    told_of_failure(zero.end, route.table, -EOWNERDEAD, "table 'users' of job words");
}

/* --- requests of operators --- */

static void shards_neither_move_nor_leave_a_drained_lane(void **state)
{
    struct rig *rig = *state;
    rig_aggregator(rig, 1);
    struct end *other = rig_aggregator(rig, 1);
    struct member zero = join_from(rig, NODE, 0, 1);
    struct routed route = declare(zero.end);
    struct end *operator= rig_connect_locally(rig, GRADPOOL__WIRE__ROLE__ROLE_OPERATOR);
    end_ask_refused(operator, & MESSAGE(0, MOVE_REQUEST, move_request, .job = "words", .tenant = "",
                                        .lane = other->lanes[0]),
                    -EOPNOTSUPP, "job words has table 'users', whose shards do not move yet");
    end_ask_refused(operator, & MESSAGE(0, MOVE_REQUEST, move_request, .job = "", .tenant = "",
                                        .lane = other->lanes[0], .task = route.tasks[0]),
                    -EOPNOTSUPP, "is a shard of table 'users' of job words");
    envelope drain = MESSAGE(0, DRAIN_LANES_REQUEST, drain_lanes_request, .lane = route.lanes[0]);
    end_ask_refused(operator, & drain, -EOPNOTSUPP, "has shards of table 'users' of job words");
    end_leave(zero.end);
    rig_settle(rig);
    envelope *reply = end_ask(operator, & drain);
    assert_int_equal(reply->body_case, BODY(MOVE_REPLY));
    message_free(reply);
}

/* The aggregator keeps its rows until its deadline, because rows do not move to another lane. */
static void an_aggregator_that_ends_names_the_rows_that_are_lost(void **state)
{
    struct rig *rig = *state;
    struct end *lane = rig_aggregator(rig, 1);
    struct member zero = join_from(rig, NODE, 0, 1);
    declare(zero.end);
    channel_send(lane->channel, &MESSAGE(0, AGGREGATOR_ENDING, aggregator_ending, .left_ms = 300));
    envelope *drain = end_expect(lane, BODY(DRAIN_REQUEST));
    assert_non_null(strstr(drain->drain_request->loses, " loses rows of table "));
    assert_non_null(strstr(drain->drain_request->loses, "job words loses rows of table 'users'"));
    message_free(drain);
}

/* The caller then exports the tables. */
static void a_snapshot_of_a_job_with_tables_has_their_number(void **state)
{
    struct rig *rig = *state;
    rig_aggregator(rig, 1);
    struct member zero = join_from(rig, NODE, 0, 1);
    declare(zero.end);
    struct end *operator= rig_connect_locally(rig, GRADPOOL__WIRE__ROLE__ROLE_OPERATOR);
    envelope *reply = end_ask(operator, & MESSAGE(0, SNAPSHOT_REQUEST, snapshot_request,
                                                  .job = "words", .tenant = ""));
    assert_int_equal(reply->body_case, BODY(SNAPSHOT_REPLY));
    assert_int_equal(reply->snapshot_reply->tables, 1);
    assert_int_equal(reply->snapshot_reply->n_tensors, 0);
    message_free(reply);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(a_declare_is_answered_when_all_lanes_have_their_shards),
        CASE(every_rank_gets_the_same_route),
        CASE(two_tables_have_two_numbers_and_two_salts),
        CASE(a_table_and_a_tensor_may_have_one_name),
        CASE(a_lane_that_does_not_answer_gets_the_request_again),
        CASE(the_end_of_a_job_frees_its_rows),
        CASE(a_table_counts_as_a_tensor_and_its_shards_as_pieces),
        CASE(invalid_terms_are_refused_with_a_reason),
        CASE(properties_that_lanes_do_not_serve_are_refused),
        CASE(a_declare_of_tensors_and_tables_is_refused),
        CASE(a_job_that_workers_enter_has_no_tables),
        CASE(a_job_that_continues_without_workers_has_no_tables_with_bsp),
        CASE(a_job_with_backup_workers_has_no_tables),
        CASE(a_rank_that_declares_other_terms_fails_the_job),
        CASE(ranks_on_other_hosts_get_the_route_of_the_others),
        CASE(a_dead_aggregator_fails_the_table_on_every_rank),
        CASE(a_declare_that_waits_for_a_dead_aggregator_is_refused),
        CASE(a_restart_keeps_tables_and_their_routes),
        CASE(a_returned_lane_without_the_shards_gets_them_again),
        CASE(shards_of_an_unknown_job_are_dropped_with_it),
        CASE(a_rank_that_resumes_gets_the_failure_of_its_table),
        CASE(shards_neither_move_nor_leave_a_drained_lane),
        CASE(an_aggregator_that_ends_names_the_rows_that_are_lost),
        CASE(a_snapshot_of_a_job_with_tables_has_their_number),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
