/* Tests the thread that connects a pool to the coordinator (svc/pool/site), with calls of the test
 * in place of messages. The thread of each case runs until the process ends. */
#include "svc/base/clock.h"
#include "svc/pool/site/site.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define PATIENCE_NS (60 * NS_PER_S)
#define JOINS_MAX 8

/* The service of one case. The results of joins are used in their order; the last one stays. */
struct service_script {
    int joins[JOINS_MAX];
    bool is_refused, has_job;
    int news[2], stood_fds[2];
    pthread_mutex_t mutex;
    unsigned joined, submitted, stood;
    struct site_standing standing; /* the last one */
    bool is_lost;                  /* the connection ends at the next request */
};

static int script_join(void *context, const struct site_terms *terms,
                       const struct site_report *workers, uint32_t count, bool *ret_has_job,
                       bool *ret_is_refused, struct err *err)
{
    struct service_script *s = context;
    pthread_mutex_lock(&s->mutex);
    int error = s->joins[s->joined];
    s->joined += s->joined + 1 < JOINS_MAX;
    *ret_has_job = s->has_job;
    *ret_is_refused = error < 0 && s->is_refused;
    pthread_mutex_unlock(&s->mutex);
    return error < 0 ? err_set(err, error, "join: %s", strerror(-error)) : 0;
}

static int script_submit(void *context, const struct site_terms *terms, bool *ret_is_refused,
                         struct err *err)
{
    struct service_script *s = context;
    pthread_mutex_lock(&s->mutex);
    s->submitted++;
    pthread_mutex_unlock(&s->mutex);
    *ret_is_refused = false;
    return 0;
}

static int script_withdraw(void *context, const struct site_terms *terms, struct err *err)
{
    return 0;
}

static int script_report(void *context, const struct site_terms *terms,
                         const struct site_report *reports, uint32_t count, struct err *err)
{
    return 0;
}

static int script_stand(void *context, const struct site_terms *terms,
                        const struct site_standing *standing, struct err *err)
{
    struct service_script *s = context;
    pthread_mutex_lock(&s->mutex);
    s->standing = *standing;
    s->stood++;
    pthread_mutex_unlock(&s->mutex);
    assert_int_equal(write(s->stood_fds[1], "", 1), 1);
    return 0;
}

static int script_next(void *context, const struct site_terms *terms, struct site_order *ret_order,
                       struct err *err)
{
    struct service_script *s = context;
    char byte;
    pthread_mutex_lock(&s->mutex);
    bool is_lost = s->is_lost && read(s->news[0], &byte, 1) == 1;
    s->is_lost = s->is_lost && !is_lost;
    pthread_mutex_unlock(&s->mutex);
    return is_lost ? err_set(err, -ECONNRESET, "the connection has ended") : -EAGAIN;
}

static int script_fd(void *context) { return ((struct service_script *)context)->news[0]; }

static void script_close(void *context) {}

static const struct site_calls calls = {.join = script_join,
                                        .submit = script_submit,
                                        .withdraw = script_withdraw,
                                        .stand = script_stand,
                                        .report = script_report,
                                        .next = script_next,
                                        .fd = script_fd,
                                        .close = script_close};

static struct site *begin(struct service_script *script)
{
    static const struct site_terms terms = {
        .site = "here", .job = "resnet", .workers = 1, .workers_max = 1, .is_new = true};
    struct site *site;
    struct err err;
    pthread_mutex_init(&script->mutex, NULL);
    assert_int_equal(pipe(script->news), 0);
    assert_int_equal(pipe(script->stood_fds), 0);
    assert_int_equal(site_create(&calls, script, &terms, &site, &err), 0);
    assert_int_equal(site_begin(site, &err), 0);
    return site;
}

/* Waits for news of the site. */
static void await_news(struct site *site, uint64_t deadline_ns)
{
    struct pollfd news = {.fd = site_fd(site), .events = POLLIN};
    assert_true(clock_now_ns() < deadline_ns);
    (void)poll(&news, 1, clock_poll_ms(deadline_ns, clock_now_ns()));
}

static void await_state(struct site *site, int state)
{
    uint64_t deadline_ns = clock_now_ns() + PATIENCE_NS;
    struct err err;
    while (site_state(site, &err) != state)
        await_news(site, deadline_ns);
}

static struct site_order await_order(struct site *site)
{
    uint64_t deadline_ns = clock_now_ns() + PATIENCE_NS;
    struct site_order order;
    struct err err;
    while (!site_take(site, &order)) {
        await_news(site, deadline_ns);
        (void)site_state(site, &err);
    }
    return order;
}

/* A pool that starts again at once is ahead of the end of its former connection. */
static void a_pool_awaits_the_end_of_its_former_connection(void **state)
{
    static struct service_script script = {.joins = {-EEXIST, -EEXIST, -EEXIST, 0},
                                           .is_refused = true};
    struct site *site = begin(&script);
    struct site_order order;
    await_state(site, 0);
    assert_false(site_take(site, &order));
    assert_int_equal(script.submitted, 1);
}

static void another_refusal_ends_the_job(void **state)
{
    static struct service_script script = {.joins = {-ENOENT}, .is_refused = true};
    struct site_order order = await_order(begin(&script));
    assert_int_equal(order.verb, SITE_OVER);
    assert_int_equal(order.code, -ENOENT);
    assert_string_equal(order.text, "join: No such file or directory");
}

static void a_service_that_does_not_answer_is_tried_again(void **state)
{
    static struct service_script script = {.joins = {-ECONNREFUSED, 0}};
    struct site *site = begin(&script);
    struct site_order order;
    await_state(site, -ECONNREFUSED);
    await_state(site, 0);
    assert_false(site_take(site, &order));
}

static void a_job_that_the_service_has_forgotten_is_reported_as_such(void **state)
{
    static struct service_script script;
    struct site *site = begin(&script);
    await_state(site, 0);
    pthread_mutex_lock(&script.mutex);
    script.is_lost = true;
    pthread_mutex_unlock(&script.mutex);
    assert_int_equal(write(script.news[1], "", 1), 1);
    struct site_order order = await_order(site);
    assert_int_equal(order.verb, SITE_FORGOTTEN);
    assert_int_equal(script.submitted, 1);
}

static void await_standing(struct service_script *script)
{
    struct pollfd stood = {.fd = script->stood_fds[0], .events = POLLIN};
    char byte;
    assert_int_equal(poll(&stood, 1, (int)(PATIENCE_NS / NS_PER_MS)), 1);
    assert_int_equal(read(script->stood_fds[0], &byte, 1), 1);
}

/* The coordinator may have restarted between two connections, and does not store a standing. */
static void a_standing_is_sent_again_with_each_connection(void **state)
{
    static struct service_script script = {.has_job = true};
    struct site *site = begin(&script);
    await_state(site, 0);
    site_stand(site, &(struct site_standing){.rung = 2, .value = 0.5});
    await_standing(&script);
    pthread_mutex_lock(&script.mutex);
    script.is_lost = true;
    pthread_mutex_unlock(&script.mutex);
    assert_int_equal(write(script.news[1], "", 1), 1);
    await_standing(&script);
    pthread_mutex_lock(&script.mutex);
    assert_int_equal(script.stood, 2);
    assert_int_equal(script.standing.rung, 2);
    pthread_mutex_unlock(&script.mutex);
}

static void a_refused_key_is_no_other_error(void **state)
{
    assert_true(site_is_key_error(-EKEYREJECTED) && site_is_key_error(-EKEYREVOKED));
    assert_true(site_is_key_error(-ENOKEY));
    assert_false(site_is_key_error(0) || site_is_key_error(-ECONNRESET) || site_is_key_error(1));
}

int main(void)
{
    static const struct CMUnitTest cases[] = {
        cmocka_unit_test(a_pool_awaits_the_end_of_its_former_connection),
        cmocka_unit_test(another_refusal_ends_the_job),
        cmocka_unit_test(a_service_that_does_not_answer_is_tried_again),
        cmocka_unit_test(a_job_that_the_service_has_forgotten_is_reported_as_such),
        cmocka_unit_test(a_standing_is_sent_again_with_each_connection),
        cmocka_unit_test(a_refused_key_is_no_other_error),
    };
    return cmocka_run_group_tests_name("site", cases, NULL, NULL);
}
