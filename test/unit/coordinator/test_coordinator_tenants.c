/* Tests tenants: the rights of each key, the jobs that a tenant may see and change, and the effect
 * of a revoke. */
#include "svc/coordinator/peer/tenant.h"
#include "svc/coordinator/service.h"
#include "test/unit/coordinator/coordinator_rig.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CLIENT GRADPOOL__WIRE__ROLE__ROLE_CLIENT
#define OPERATOR GRADPOOL__WIRE__ROLE__ROLE_OPERATOR
#define AGGREGATOR GRADPOOL__WIRE__ROLE__ROLE_AGGREGATOR

/* --- requests --- */

static void add_request(envelope *e, WIRE(TenantAddRequest) * add, const char *name, bool operator)
{
    gradpool__wire__envelope__init(e);
    gradpool__wire__tenant_add_request__init(add);
    add->tenant = (char *)name;
    add->is_operator = operator;
    e->body_case = BODY(TENANT_ADD_REQUEST);
    e->tenant_add_request = add;
}

static struct key add(struct rig *rig, const char *name, bool operator)
{
    WIRE(TenantAddRequest) wanted;
    envelope request;
    struct key key;
    struct err err;
    add_request(&request, &wanted, name, operator);
    struct end *e = rig_connect_locally(rig, OPERATOR);
    envelope *reply = end_ask(e, &request);
    assert_int_equal(reply->body_case, BODY(TENANT_ADD_REPLY));
    assert_int_equal(key_parse(reply->tenant_add_reply->key, &key, &err), 0);
    assert_string_equal(key.tenant, name);
    message_free(reply);
    end_close(e);
    return key;
}

static void revoke_request(envelope *e, WIRE(TenantRevokeRequest) * revoke, const char *name)
{
    gradpool__wire__envelope__init(e);
    gradpool__wire__tenant_revoke_request__init(revoke);
    revoke->tenant = (char *)name;
    e->body_case = BODY(TENANT_REVOKE_REQUEST);
    e->tenant_revoke_request = revoke;
}

static void revoke_tenant(struct rig *rig, const char *name)
{
    WIRE(TenantRevokeRequest) wanted;
    envelope request;
    revoke_request(&request, &wanted, name);
    struct end *e = rig_connect_locally(rig, OPERATOR);
    envelope *reply = end_ask(e, &request);
    assert_int_equal(reply->body_case, BODY(DONE));
    message_free(reply);
    end_close(e);
}

static struct end *join(struct rig *rig, const struct key *key, const char *job, uint32_t rank,
                        uint32_t workers, uint64_t *ret_session, uint32_t *ret_job)
{
    envelope request;
    WIRE(JoinRequest) wanted;
    struct end *e = rig_connect_with_key(rig, CLIENT, key);
    join_request(&request, &wanted, job, rank, workers);
    envelope *reply = end_ask(e, &request);
    assert_int_equal(reply->body_case, BODY(JOIN_REPLY));
    if (ret_session)
        *ret_session = reply->join_reply->session;
    if (ret_job)
        *ret_job = reply->join_reply->job_id;
    message_free(reply);
    return e;
}

static envelope *ask_jobs(struct end *e)
{
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT;
    WIRE(JobsRequest) jobs = GRADPOOL__WIRE__JOBS_REQUEST__INIT;
    request.body_case = BODY(JOBS_REQUEST);
    request.jobs_request = &jobs;
    envelope *reply = end_ask(e, &request);
    assert_int_equal(reply->body_case, BODY(JOBS_REPLY));
    return reply;
}

static void expect_jobs(struct end *e, size_t count)
{
    envelope *reply = ask_jobs(e);
    assert_int_equal(reply->jobs_reply->n_jobs, count);
    message_free(reply);
}

static envelope *list(struct rig *rig)
{
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT;
    WIRE(TenantsRequest) tenants = GRADPOOL__WIRE__TENANTS_REQUEST__INIT;
    request.body_case = BODY(TENANTS_REQUEST);
    request.tenants_request = &tenants;
    struct end *e = rig_connect_locally(rig, OPERATOR);
    envelope *reply = end_ask(e, &request);
    assert_int_equal(reply->body_case, BODY(TENANTS_REPLY));
    end_close(e);
    return reply;
}

/* Expects that the handshake with this key fails, and that the client receives this error and no
 * other message. */
static void expect_rejected(struct rig *rig, const struct key *key)
{
    envelope request, *message;
    WIRE(Hello) hello;
    struct end *e = rig_connect_silently(rig);
    assert_int_equal(channel_use_key(e->channel, key), 0);
    hello_request(&request, &hello, CLIENT);
    end_send(e, &request);
    end_expect_closed(e);
    assert_int_equal(channel_receive(e->channel, &message), -EKEYREJECTED);
    assert_int_equal(e->inbox_count, 0);
}

/* --- admission --- */

static void a_tenant_is_let_in_by_its_key_and_named_in_the_list_of_jobs(void **state)
{
    struct key acme = add(*state, "acme", false);
    join(*state, &acme, "resnet", 0, 1, NULL, NULL);
    envelope *reply = ask_jobs(rig_connect_with_key(*state, OPERATOR, &acme));
    assert_int_equal(reply->jobs_reply->n_jobs, 1);
    assert_string_equal(reply->jobs_reply->jobs[0]->tenant, "acme");
    message_free(reply);
}

static void unknown_keys_and_keys_of_other_tenants_are_refused(void **state)
{
    struct key acme = add(*state, "acme", false), foreign, swapped = acme;
    assert_int_equal(key_generate("acme", &foreign), 0);
    expect_rejected(*state, &foreign);
    snprintf(swapped.tenant, sizeof swapped.tenant, "stranger");
    expect_rejected(*state, &swapped);
    add(*state, "other", false);
    snprintf(swapped.tenant, sizeof swapped.tenant, "other");
    expect_rejected(*state, &swapped);
}

static void plain_is_refused_with_the_next_step_where_a_key_is_required(void **state)
{
    struct rig *rig = *state;
    envelope request;
    WIRE(Hello) hello;
    rig_crash(rig);
    rig->options.require_tls = true;
    rig_start(rig);
    struct end *e = rig_connect_silently(rig);
    hello_request(&request, &hello, CLIENT);
    end_ask_refused(e, &request, -ENOKEY, "set GRADPOOL_KEY_FILE");
    end_expect_closed(e);
    rig_connect_locally(rig, CLIENT);
    struct key acme = add(rig, "acme", false);
    rig_connect_with_key(rig, CLIENT, &acme);
    kept_log_expect("all connections over TCP need a key");
}

static void an_aggregator_needs_an_operator_s_key(void **state)
{
    envelope request;
    WIRE(Hello) hello;
    struct key acme = add(*state, "acme", false), node = add(*state, "node8", true);
    struct end *e = rig_connect_silently(*state);
    assert_int_equal(channel_use_key(e->channel, &acme), 0);
    hello_request(&request, &hello, AGGREGATOR);
    end_ask_refused(e, &request, -EPERM, "--operator");
    end_expect_closed(e);
    rig_connect_with_key(*state, AGGREGATOR, &node);
}

static void an_incomplete_handshake_delays_no_other_peer_and_is_closed(void **state)
{
    struct key acme = add(*state, "acme", false);
    struct end *silent = rig_connect_silently(*state);
    assert_int_equal(write(channel_fd(silent->channel), "\x16\x03\x01\x01", 4), 4);
    rig_connect_with_key(*state, CLIENT, &acme);
    end_expect_closed(silent);
    kept_log_expect(" sent no Hello in time; the connection was closed");
}

/* --- jobs of tenants --- */

static void two_tenants_may_both_have_a_job_of_one_name(void **state)
{
    uint32_t jobs[3];
    rig_join(*state, "a", 0, 2, NULL, &jobs[2]);
    struct key acme = add(*state, "acme", false), other = add(*state, "other", false);
    join(*state, &acme, "a", 0, 2, NULL, &jobs[0]);
    join(*state, &other, "a", 0, 2, NULL, &jobs[1]);
    assert_true(jobs[0] != jobs[1] && jobs[1] != jobs[2] && jobs[0] != jobs[2]);
    uint32_t again;
    join(*state, &acme, "a", 1, 2, NULL, &again);
    assert_int_equal(again, jobs[0]);
}

static void no_tenant_resumes_the_session_of_another(void **state)
{
    struct key acme = add(*state, "acme", false), other = add(*state, "other", false);
    envelope request;
    WIRE(JoinRequest) wanted;
    uint64_t session;
    uint32_t job;
    join(*state, &acme, "a", 0, 1, &session, &job);
    join_request(&request, &wanted, "a", 0, 1);
    wanted.session = session;
    wanted.job_id = job;
    end_ask_refused(rig_connect_with_key(*state, CLIENT, &other), &request, -ESTALE, "is unknown");
    end_ask_refused(rig_connect(*state, CLIENT), &request, -ESTALE, "is unknown");
    envelope *reply = end_ask(rig_connect_with_key(*state, CLIENT, &acme), &request);
    assert_int_equal(reply->body_case, BODY(JOIN_REPLY));
    message_free(reply);
}

static void a_tenant_sees_its_own_jobs_and_an_operator_all(void **state)
{
    rig_join(*state, "c", 0, 1, NULL, NULL);
    struct key acme = add(*state, "acme", false), other = add(*state, "other", false);
    struct key node = add(*state, "node8", true);
    join(*state, &acme, "a", 0, 1, NULL, NULL);
    join(*state, &acme, "b", 0, 1, NULL, NULL);
    expect_jobs(rig_connect_with_key(*state, OPERATOR, &acme), 2);
    expect_jobs(rig_connect_with_key(*state, OPERATOR, &other), 0);
    expect_jobs(rig_connect_with_key(*state, OPERATOR, &node), 3);
    expect_jobs(rig_connect_locally(*state, OPERATOR), 3);
    expect_jobs(rig_connect(*state, OPERATOR), 1);
}

static envelope *ask_status(struct end *e)
{
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT;
    WIRE(StatusRequest) status = GRADPOOL__WIRE__STATUS_REQUEST__INIT;
    request.body_case = BODY(STATUS_REQUEST);
    request.status_request = &status;
    envelope *reply = end_ask(e, &request);
    assert_int_equal(reply->body_case, BODY(STATUS_REPLY));
    return reply;
}

/* Checks that the status contains no figures of the service or of other tenants. */
static void expect_own_status(struct end *e, size_t lanes, uint32_t tasks)
{
    envelope *reply = ask_status(e);
    const WIRE(StatusReply) *status = reply->status_reply;
    assert_true(status->own_only);
    assert_string_equal(status->state_dir, "");
    assert_int_equal(status->pid, 0);
    assert_int_equal(status->cpu_ns, 0);
    assert_int_equal(status->n_settings + status->n_events, 0);
    assert_int_equal(status->n_aggregators, lanes > 0);
    assert_int_equal(status->jobs, lanes > 0);
    assert_int_equal(status->tasks, tasks);
    for (size_t i = 0; i < status->n_aggregators; i++) {
        const WIRE(AggregatorView) *a = status->aggregators[i];
        assert_int_equal(a->n_lanes, lanes);
        assert_int_equal(a->pid, 0);
        assert_int_equal(a->lanes[0]->tasks, tasks);
        assert_int_equal(a->lanes[0]->jobs, 1);
        assert_string_equal(a->lanes[0]->shm, "");
    }
    message_free(reply);
}

static void status_shows_a_tenant_its_own_lanes_and_nothing_of_the_service(void **state)
{
    struct rig *rig = *state;
    struct end *nobody = rig_connect(rig, OPERATOR);
    struct key acme = add(rig, "acme", false), other = add(rig, "other", false);
    rig_aggregator(rig, 2);
    struct end *zero = join(rig, &acme, "a", 0, 1, NULL, NULL);
    message_free(end_expect_reply(zero, end_declare_one(zero, "w", 100)));
    expect_own_status(rig_connect_with_key(rig, OPERATOR, &acme), 1, 1);
    expect_own_status(rig_connect_with_key(rig, OPERATOR, &other), 0, 0);
    expect_own_status(nobody, 0, 0);
    envelope *reply = ask_status(rig_connect_locally(rig, OPERATOR));
    assert_false(reply->status_reply->own_only);
    assert_string_equal(reply->status_reply->state_dir, rig->dir);
    assert_int_equal(reply->status_reply->aggregators[0]->n_lanes, 2);
    message_free(reply);
}

/* --- connections of operators --- */

static void ask_drain(struct end *e, int code, const char *text)
{
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT;
    WIRE(DrainLanesRequest) drain = GRADPOOL__WIRE__DRAIN_LANES_REQUEST__INIT;
    drain.lane = 77;
    request.body_case = BODY(DRAIN_LANES_REQUEST);
    request.drain_lanes_request = &drain;
    end_ask_refused(e, &request, code, text);
}

static void ask_report(struct end *e, int code, const char *text)
{
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT;
    WIRE(ReportRequest) report = GRADPOOL__WIRE__REPORT_REQUEST__INIT;
    request.body_case = BODY(REPORT_REQUEST);
    request.report_request = &report;
    end_ask_refused(e, &request, code, text);
}

static void orders_over_loopback_need_the_unix_socket_or_the_key_of_an_operator(void **state)
{
    struct key acme = add(*state, "acme", false), node = add(*state, "node8", true);
    struct end *strangers[] = {rig_connect(*state, OPERATOR),
                               rig_connect_with_key(*state, OPERATOR, &acme)};
    struct end *operators[] = {rig_connect_locally(*state, OPERATOR),
                               rig_connect_with_key(*state, OPERATOR, &node)};
    for (int i = 0; i < 2; i++) {
        ask_drain(strangers[i], -EPERM, "Unix socket");
        ask_report(strangers[i], -EPERM, "Unix socket");
        ask_drain(operators[i], -ENOENT, "there is no lane 77");
        ask_report(operators[i], -EOPNOTSUPP, "no report");
    }
}

static void orders_and_aggregators_need_a_key_or_the_socket_even_with_insecure(void **state)
{
    struct rig *rig = *state;
    envelope request;
    WIRE(Hello) hello;
    rig_crash(rig);
    rig->options.insecure = true;
    rig_start(rig);
    ask_drain(rig_connect(rig, OPERATOR), -EPERM, "Unix socket");
    struct end *e = rig_connect_silently(rig);
    hello_request(&request, &hello, AGGREGATOR);
    end_ask_refused(e, &request, -EPERM, "--operator");
}

/* Over TCP, the greeting sends an operator the path of the Unix socket, which needs no key. Over
 * the Unix socket, the greeting contains the TCP address, so the operator can check that the socket
 * belongs to this service. */
static void the_greeting_of_an_operator_names_the_other_way_to_the_service(void **state)
{
    struct rig *rig = *state;
    envelope request;
    WIRE(Hello) hello;
    char socket[128];
    snprintf(socket, sizeof socket, "%s/control.sock", rig->dir);
    hello_request(&request, &hello, OPERATOR);
    envelope *reply = end_ask(rig_connect_silently(rig), &request);
    assert_string_equal(reply->welcome->socket, socket);
    assert_string_equal(reply->welcome->listen, "");
    message_free(reply);
    reply = end_ask(rig_knock_locally(rig), &request);
    assert_string_equal(reply->welcome->listen, coordinator_endpoint(rig->coordinator));
    message_free(reply);
    hello_request(&request, &hello, CLIENT);
    reply = end_ask(rig_connect_silently(rig), &request);
    assert_string_equal(reply->welcome->socket, "");
    message_free(reply);
}

static void refuse_to_begin(struct end *e, int code)
{
    envelope request;
    WIRE(JoinRequest) wanted;
    join_request(&request, &wanted, "new", 0, 1);
    end_ask_refused(e, &request, code, "GRADPOOL_KEY_FILE");
}

static void a_job_begins_without_a_key_while_there_are_no_tenants_and_then_goes_on(void **state)
{
    struct rig *rig = *state;
    envelope request;
    WIRE(JoinRequest) wanted;
    uint64_t session;
    uint32_t job;
    add(rig, "node8", true); /* this tenant has no jobs */
    struct end *zero = rig_join(rig, "old", 0, 2, &session, &job);
    add(rig, "acme", false);
    refuse_to_begin(rig_connect(rig, CLIENT), -ENOKEY);
    rig_join(rig, "old", 1, 2, NULL, NULL);
    end_close(zero);
    join_request(&request, &wanted, "old", 0, 2);
    wanted.session = session;
    wanted.job_id = job;
    envelope *reply = end_ask(rig_connect(rig, CLIENT), &request);
    assert_int_equal(reply->body_case, BODY(JOIN_REPLY));
    message_free(reply);
    revoke_tenant(rig, "acme");
    rig_join(rig, "new", 0, 1, NULL, NULL);
}

static void tenants_are_managed_over_the_unix_socket_only(void **state)
{
    struct key node = add(*state, "node8", true);
    WIRE(TenantAddRequest) wanted;
    WIRE(TenantRevokeRequest) revoked;
    envelope request;
    add_request(&request, &wanted, "more", false);
    end_ask_refused(rig_connect_with_key(*state, OPERATOR, &node), &request, -EPERM,
                    "tenants are managed on the coordinator's host only");
    end_ask_refused(rig_connect(*state, OPERATOR), &request, -EPERM,
                    "tenants are managed on the coordinator's host only");
    end_ask_refused(rig_connect_locally(*state, CLIENT), &request, -EPERM, "role");
    revoke_request(&request, &revoked, "node8");
    end_ask_refused(rig_connect(*state, OPERATOR), &request, -EPERM,
                    "tenants are managed on the coordinator's host only");
}

static void invalid_names_and_names_in_use_are_refused(void **state)
{
    static const char *const names[] = {"", "a b", "a/b", "a:b", "\n"};
    WIRE(TenantAddRequest) wanted;
    WIRE(TenantRevokeRequest) revoked;
    envelope request;
    add(*state, "acme", false);
    struct end *e = rig_connect_locally(*state, OPERATOR);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        add_request(&request, &wanted, names[i], false);
        end_ask_refused(e, &request, -EINVAL, "a tenant's name has 1 to 63 letters, digits");
    }
    add_request(&request, &wanted, "acme", false);
    end_ask_refused(e, &request, -EEXIST, "for a new key run `gradpool tenant revoke acme` first");
    revoke_request(&request, &revoked, "nobody");
    end_ask_refused(e, &request, -ENOENT, "there is no tenant nobody");
    /* the request names a tenant that does not exist */
    revoke_request(&request, &revoked, "");
    end_ask_refused(e, &request, -ENOENT, "there is no tenant");
}

/* Creates all tenants but the last in memory only, because storing so many tenants takes long. */
static void a_tenant_beyond_the_most_of_a_service_is_refused(void **state)
{
    struct rig *rig = *state;
    struct service *s = rig->coordinator->service;
    WIRE(TenantAddRequest) wanted;
    envelope request;
    char name[16];
    for (size_t i = 0; tenants_count(s) + 1 < 4096; i++) {
        snprintf(name, sizeof name, "t%zu", i);
        assert_non_null(tenant_create(s, name));
    }
    add(rig, "last", false);
    add_request(&request, &wanted, "more", false);
    end_ask_refused(
        rig_connect_locally(rig, OPERATOR), &request, -ENOSPC,
        "the service has 4096 tenants, which is the maximum; use the key of another tenant");
}

/* --- revoking --- */

static void a_revoke_fails_the_tenant_s_jobs_and_ends_its_connections(void **state)
{
    struct rig *rig = *state;
    struct key acme = add(rig, "acme", false), other = add(rig, "other", false);
    struct end *lane = rig_aggregator(rig, 1);
    struct end *zero = join(rig, &acme, "a", 0, 2, NULL, NULL);
    struct end *one = join(rig, &acme, "a", 1, 2, NULL, NULL);
    struct end *bystander = join(rig, &other, "a", 0, 1, NULL, NULL);
    message_free(end_expect_reply(zero, end_declare_one(zero, "w", 100)));
    revoke_tenant(rig, "acme");
    struct end *ends[] = {zero, one};
    for (int i = 0; i < 2; i++) {
        envelope *failure = end_expect(ends[i], BODY(JOB_FAILURE));
        assert_int_equal(failure->job_failure->code, -EKEYREVOKED);
        assert_string_equal(failure->job_failure->text,
                            "the key of tenant acme was revoked; ask the operator for a new one");
        message_free(failure);
        end_expect_closed(ends[i]);
    }
    message_free(end_expect(lane, BODY(DROP_REQUEST)));
    expect_rejected(rig, &acme);
    expect_jobs(rig_connect_locally(rig, OPERATOR), 1);
    assert_false(bystander->is_gone);
    end_leave(bystander);
}

static void a_revoke_in_the_middle_of_a_declare_answers_it_with_the_reason(void **state)
{
    struct rig *rig = *state;
    struct key acme = add(rig, "acme", false);
    struct end *lane = rig_aggregator(rig, 1);
    struct end *zero = join(rig, &acme, "a", 0, 1, NULL, NULL);
    lane->answers = false;
    uint64_t id = end_declare_one(zero, "w", 100);
    message_free(end_expect(lane, BODY(PLACE_REQUEST)));
    revoke_tenant(rig, "acme");
    envelope *reply = end_expect_reply(zero, id);
    assert_int_equal(reply->body_case, BODY(FAILURE));
    message_free(reply);
    end_expect_closed(zero);
}

static void a_revoked_tenant_may_be_added_again_with_another_key(void **state)
{
    struct key before = add(*state, "acme", false);
    revoke_tenant(*state, "acme");
    struct key after = add(*state, "acme", true);
    assert_memory_not_equal(before.secret, after.secret, KEY_SECRET_BYTES);
    expect_rejected(*state, &before);
    rig_connect_with_key(*state, AGGREGATOR, &after);
    envelope *reply = list(*state);
    assert_int_equal(reply->tenants_reply->n_tenants, 1);
    assert_false(reply->tenants_reply->tenants[0]->is_revoked);
    assert_true(reply->tenants_reply->tenants[0]->is_operator);
    message_free(reply);
}

static void tenants_jobs_and_revokes_outlive_the_coordinator(void **state)
{
    struct rig *rig = *state;
    struct key acme = add(rig, "acme", false), gone = add(rig, "gone", false);
    envelope request;
    WIRE(JoinRequest) wanted;
    uint64_t session;
    uint32_t job;
    join(rig, &acme, "a", 0, 1, &session, &job);
    revoke_tenant(rig, "gone");
    rig_crash(rig);
    rig_start(rig);
    expect_rejected(rig, &gone);
    join_request(&request, &wanted, "a", 0, 1);
    wanted.session = session;
    wanted.job_id = job;
    envelope *reply = end_ask(rig_connect_with_key(rig, CLIENT, &acme), &request);
    assert_int_equal(reply->body_case, BODY(JOIN_REPLY));
    message_free(reply);
    reply = list(rig);
    assert_int_equal(reply->tenants_reply->n_tenants, 2);
    assert_int_equal(reply->tenants_reply->tenants[0]->jobs, 1);
    assert_true(reply->tenants_reply->tenants[1]->is_revoked);
    assert_true(reply->tenants_reply->tenants[1]->added_s > 1700000000);
    message_free(reply);
}

static void a_full_disk_adds_and_revokes_no_tenant(void **state)
{
    struct rig *rig = *state;
    WIRE(TenantAddRequest) wanted;
    envelope request, *reply = NULL;
    char name[32];
    rig_crash(rig);
    rig->options.store_pages_max = 44;
    rig_start(rig);
    struct end *e = rig_connect_locally(rig, OPERATOR);
    size_t added = 0;
    for (; added < 3000; added++) {
        snprintf(name, sizeof name, "tenant-%zu", added);
        add_request(&request, &wanted, name, false);
        reply = end_ask(e, &request);
        if (reply->body_case == BODY(FAILURE))
            break;
        message_free(reply);
    }
    assert_int_equal(reply->body_case, BODY(FAILURE));
    assert_int_equal(reply->failure->code, -ENOSPC);
    message_free(reply);
    reply = list(rig);
    assert_int_equal(reply->tenants_reply->n_tenants, added);
    message_free(reply);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_tenant_is_let_in_by_its_key_and_named_in_the_list_of_jobs),
        CASE(unknown_keys_and_keys_of_other_tenants_are_refused),
        CASE(plain_is_refused_with_the_next_step_where_a_key_is_required),
        CASE(an_aggregator_needs_an_operator_s_key),
        CASE(an_incomplete_handshake_delays_no_other_peer_and_is_closed),
        CASE(two_tenants_may_both_have_a_job_of_one_name),
        CASE(no_tenant_resumes_the_session_of_another),
        CASE(a_tenant_sees_its_own_jobs_and_an_operator_all),
        CASE(status_shows_a_tenant_its_own_lanes_and_nothing_of_the_service),
        CASE(orders_over_loopback_need_the_unix_socket_or_the_key_of_an_operator),
        CASE(orders_and_aggregators_need_a_key_or_the_socket_even_with_insecure),
        CASE(the_greeting_of_an_operator_names_the_other_way_to_the_service),
        CASE(a_job_begins_without_a_key_while_there_are_no_tenants_and_then_goes_on),
        CASE(tenants_are_managed_over_the_unix_socket_only),
        CASE(invalid_names_and_names_in_use_are_refused),
        CASE(a_tenant_beyond_the_most_of_a_service_is_refused),
        CASE(a_revoke_fails_the_tenant_s_jobs_and_ends_its_connections),
        CASE(a_revoke_in_the_middle_of_a_declare_answers_it_with_the_reason),
        CASE(a_revoked_tenant_may_be_added_again_with_another_key),
        CASE(tenants_jobs_and_revokes_outlive_the_coordinator),
        CASE(a_full_disk_adds_and_revokes_no_tenant),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
