/* See pool_case.h. */
#include "test/unit/coordinator/slots/pool_case.h"

#include "svc/base/clock.h"
#include "svc/coordinator/service.h"
#include "svc/coordinator/slots/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLIENT GRADPOOL__WIRE__ROLE__ROLE_CLIENT
#define WORKERS_LISTED_MAX 8

int pools_setup(void **state)
{
    int error = rig_setup(state);
    struct rig *rig = *state;
    rig->options.worker_slots = "here=4,small=1";
    rig_start_afresh(rig);
    return error;
}

/* --- pools --- */

/* A PoolJoin message with the memory of its list. */
struct pool_join_message {
    envelope request;
    WIRE(PoolJoin) join;
    WIRE(PoolWorker) workers[WORKERS_LISTED_MAX];
    WIRE(PoolWorker) * list[WORKERS_LISTED_MAX];
};

static WIRE(PoolWorker) worker_of(const struct pool_order *order)
{
    return MESSAGE_PART(PoolWorker, pool_worker, .job = (char *)order->job, .rank = order->rank,
                        .incarnation = order->incarnation, .pid = 100 + order->rank);
}

static void fill_join(struct pool_join_message *m, struct pool_joining how)
{
    m->join = MESSAGE_PART(PoolJoin, pool_join, .site = (char *)(how.site ? how.site : "here"),
                           .pool = how.number ? how.number : 7,
                           .node = (char *)(how.node ? how.node : "node7"),
                           .pid = how.pid ? how.pid : POOL_PID);
    assert_true(how.count <= WORKERS_LISTED_MAX);
    for (size_t i = 0; i < how.count; i++) {
        m->workers[i] = worker_of(&how.has[i]);
        m->list[i] = &m->workers[i];
    }
    m->join.workers = m->list;
    m->join.n_workers = how.count;
    m->request = ENVELOPE(0, POOL_JOIN, pool_join, &m->join);
}

struct end *pool_rejoin(struct rig *rig, struct pool_joining how, size_t *ret_stale,
                        size_t *ret_jobs)
{
    struct pool_join_message m;
    struct end *pool = rig_connect_with_key(rig, CLIENT, how.key);
    fill_join(&m, how);
    envelope *reply = end_ask(pool, &m.request);
    if (reply->body_case != BODY(POOL_WELCOME))
        fail_msg("the pool did not join: %s", reply->failure ? reply->failure->text : "?");
    if (ret_stale)
        *ret_stale = reply->pool_welcome->n_stale;
    if (ret_jobs)
        *ret_jobs = reply->pool_welcome->n_jobs;
    message_free(reply);
    return pool;
}

struct end *pool_join(struct rig *rig, struct pool_joining how)
{
    return pool_rejoin(rig, how, NULL, NULL);
}

void pool_join_refused(struct rig *rig, struct pool_joining how, int code, const char *text)
{
    struct pool_join_message m;
    struct end *pool = rig_connect_with_key(rig, CLIENT, how.key);
    fill_join(&m, how);
    end_ask_refused(pool, &m.request, code, text);
    end_close(pool);
}

static void expect_done(struct end *e, envelope *request)
{
    envelope *reply = end_ask(e, request);
    if (reply->body_case != BODY(DONE))
        fail_msg("refused: %s", reply->failure ? reply->failure->text : "?");
    message_free(reply);
}

void pool_submit(struct end *pool, const char *job, uint32_t workers, uint32_t workers_max)
{
    expect_done(pool, &MESSAGE(0, POOL_SUBMIT, pool_submit, .job = (char *)job, .workers = workers,
                               .workers_max = workers_max));
}

void pool_submit_refused(struct end *pool, const char *job, uint32_t workers, uint32_t workers_max,
                         int code, const char *text)
{
    end_ask_refused(pool,
                    &MESSAGE(0, POOL_SUBMIT, pool_submit, .job = (char *)job, .workers = workers,
                             .workers_max = workers_max),
                    code, text);
}

void pool_withdraw(struct end *pool, const char *job)
{
    expect_done(pool, &MESSAGE(0, POOL_WITHDRAW, pool_withdraw, .job = (char *)job));
}

/* --- orders --- */

static struct pool_order copy_order(const WIRE(PoolOrder) * order)
{
    struct pool_order copy = {.verb = (int)order->verb,
                              .rank = order->rank,
                              .slot = order->slot,
                              .workers = order->workers,
                              .workers_max = order->workers_max,
                              .incarnation = order->incarnation,
                              .code = order->code};
    snprintf(copy.job, sizeof copy.job, "%s", order->job);
    snprintf(copy.text, sizeof copy.text, "%s", order->text);
    return copy;
}

struct pool_order pool_expect(struct end *pool, int verb)
{
    envelope *message = end_expect(pool, BODY(POOL_ORDERS));
    assert_int_equal(message->id, 0);
    assert_int_equal(message->pool_orders->n_orders, 1);
    struct pool_order order = copy_order(message->pool_orders->orders[0]);
    message_free(message);
    if (order.verb != verb)
        fail_msg("verb %d for rank %u of %s instead of %d", order.verb, order.rank, order.job,
                 verb);
    return order;
}

struct pool_order pool_expect_for(struct end *pool, int verb, const char *job, uint32_t rank)
{
    struct pool_order order = pool_expect(pool, verb);
    assert_string_equal(order.job, job);
    assert_int_equal(order.rank, rank);
    return order;
}

/* --- reports --- */

void pool_report(struct end *pool, const struct pool_order *worker, WIRE(PoolReport) report)
{
    WIRE(PoolWorker) of = worker_of(worker);
    WIRE(PoolReport) * list[] = {&report};
    report.worker = &of;
    expect_done(pool, &MESSAGE(0, POOL_REPORTS, pool_reports, .n_reports = 1, .reports = list));
}

void pool_started(struct end *pool, const struct pool_order *worker)
{
    pool_report(
        pool, worker,
        MESSAGE_PART(PoolReport, pool_report, .event = GRADPOOL__WIRE__POOL_EVENT__POOL_STARTED));
}

struct pool_order pool_expect_and_start(struct end *pool)
{
    struct pool_order order = pool_expect(pool, POOL_START);
    pool_started(pool, &order);
    return order;
}

void pool_ended(struct end *pool, const struct pool_order *worker, uint32_t exit_code)
{
    pool_report(pool, worker,
                MESSAGE_PART(PoolReport, pool_report,
                             .event = GRADPOOL__WIRE__POOL_EVENT__POOL_ENDED,
                             .exit_code = exit_code));
}

/* --- workers --- */

static void fill_worker(envelope *request, WIRE(JoinRequest) * join,
                        const struct pool_order *worker, uint32_t workers_max)
{
    join_request(request, join, worker->job, worker->rank, worker->workers);
    join->workers_max = workers_max ? workers_max : worker->workers_max;
    join->continues = workers_max == 0 && worker->workers_max > 1;
    join->incarnation = worker->incarnation;
}

struct end *pool_worker_join(struct rig *rig, const struct pool_order *worker, uint32_t workers_max)
{
    envelope request;
    WIRE(JoinRequest) join;
    struct end *e = rig_connect(rig, CLIENT);
    fill_worker(&request, &join, worker, workers_max);
    envelope *reply = end_ask(e, &request);
    if (reply->body_case != BODY(JOIN_REPLY))
        fail_msg("rank %u did not join: %s", worker->rank,
                 reply->failure ? reply->failure->text : "?");
    message_free(reply);
    return e;
}

void pool_worker_refused(struct rig *rig, const struct pool_order *worker, int code,
                         const char *text)
{
    envelope request;
    WIRE(JoinRequest) join;
    struct end *e = rig_connect(rig, CLIENT);
    fill_worker(&request, &join, worker, 0);
    end_ask_refused(e, &request, code, text);
    end_close(e);
}

/* --- the service --- */

void pools_let_miss(struct rig *rig)
{
    struct service *s = rig->coordinator->service;
    rig_settle(rig); /* the end of the pool's connection is handled */
    list_for_each_entry (struct slots_pool, pool, &s->works->slots->pools, link)
        if (!pool->peer)
            timer_start(s->loop, &pool->away, clock_now_ns());
    rig_settle(rig);
}

void pools_look(struct rig *rig)
{
    slots_look_soon(rig->coordinator->service);
    rig_settle(rig);
}

void pools_restart(struct rig *rig)
{
    rig_crash(rig);
    rig_start(rig);
}

struct key pools_add_tenant(struct rig *rig, const char *name)
{
    struct key key;
    struct err err;
    struct end *e = rig_connect_locally(rig, GRADPOOL__WIRE__ROLE__ROLE_OPERATOR);
    envelope *reply =
        end_ask(e, &MESSAGE(0, TENANT_ADD_REQUEST, tenant_add_request, .tenant = (char *)name));
    assert_int_equal(reply->body_case, BODY(TENANT_ADD_REPLY));
    assert_int_equal(key_parse(reply->tenant_add_reply->key, &key, &err), 0);
    message_free(reply);
    end_close(e);
    return key;
}

envelope *pools_ask_jobs(struct rig *rig, const char *name)
{
    struct end *asking = rig_connect_locally(rig, GRADPOOL__WIRE__ROLE__ROLE_OPERATOR);
    envelope *reply = end_ask(asking, &MESSAGE(0, JOBS_REQUEST, jobs_request, .job = (char *)name));
    assert_int_equal(reply->body_case, BODY(JOBS_REPLY));
    end_close(asking);
    return reply;
}
