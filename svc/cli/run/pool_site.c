/* Sends and receives the messages of a pool. No message has a command, a path or a variable. Owns
 * the channel and the orders that the pool has not read. */
#include "svc/cli/run/pool_site.h"

#include "svc/base/clock.h"
#include "svc/base/text.h"
#include "svc/cli/operator.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ORDERS_MAX 4096
#define ANSWER_NS (10 * NS_PER_S) /* longest wait for an answer */

static uint64_t answer_deadline_ns(void) { return clock_now_ns() + ANSWER_NS; }

/* --- orders --- */

static struct pool_order *orders_add(struct pool_site *site)
{
    if (site->count == site->room) {
        size_t room = site->room ? 2 * site->room : 16;
        struct pool_order *more =
            room <= ORDERS_MAX ? realloc(site->orders, room * sizeof *more) : NULL;
        if (!more)
            return NULL;
        site->orders = more;
        site->room = room;
    }
    struct pool_order *order = &site->orders[site->count++];
    *order = (struct pool_order){0};
    return order;
}

static void orders_enter(struct pool_site *site, const char *job, struct site_order order,
                         const char *text)
{
    struct pool_order *added = orders_add(site);
    if (!added) {
        site->is_flooded = true;
        return;
    }
    added->order = order;
    snprintf(added->job, sizeof added->job, "%s", job);
    snprintf(added->order.text, sizeof added->order.text, "%s", text);
    text_disarm(added->order.text);
}

static bool orders_verb(const Gradpool__Wire__PoolOrder *order, enum site_verb *ret_verb)
{
    switch (order->verb) {
    case GRADPOOL__WIRE__POOL_VERB__POOL_START: *ret_verb = SITE_START; return true;
    case GRADPOOL__WIRE__POOL_VERB__POOL_LEAVE: *ret_verb = SITE_LEAVE; return true;
    case GRADPOOL__WIRE__POOL_VERB__POOL_END: *ret_verb = SITE_END; return true;
    case GRADPOOL__WIRE__POOL_VERB__POOL_OVER: *ret_verb = SITE_OVER; return true;
    case GRADPOOL__WIRE__POOL_VERB__POOL_RESTS: *ret_verb = SITE_RESTS; return true;
    case GRADPOOL__WIRE__POOL_VERB__POOL_GOES_ON: *ret_verb = SITE_GOES_ON; return true;
    default: return false;
    }
}

/* Appends the orders in the message to the list of unread orders, and frees the message. */
static void orders_receive(void *context, envelope *message)
{
    struct pool_site *site = context;
    bool has_orders = message->body_case == GRADPOOL__WIRE__ENVELOPE__BODY_POOL_ORDERS;
    for (size_t i = 0; has_orders && i < message->pool_orders->n_orders; i++) {
        const Gradpool__Wire__PoolOrder *from = message->pool_orders->orders[i];
        struct site_order order = {.rank = from->rank,
                                   .slot = from->slot,
                                   .workers = from->workers,
                                   .workers_max = from->workers_max,
                                   .incarnation = from->incarnation,
                                   .code = from->code};
        if (orders_verb(from, &order.verb))
            orders_enter(site, from->job, order, from->text);
    }
    gradpool__wire__envelope__free_unpacked(message, NULL);
}

static bool orders_pop(struct pool_site *site, struct pool_order *ret_order)
{
    if (site->count == 0)
        return false;
    *ret_order = site->orders[0];
    site->count--;
    memmove(site->orders, site->orders + 1, site->count * sizeof *site->orders);
    return true;
}

/* --- requests --- */

static int wire_call(struct pool_site *site, envelope *request, envelope **ret_reply,
                     struct err *err)
{
    return channel_call(site->channel, request, answer_deadline_ns(), orders_receive, site,
                        ret_reply, err);
}

/* Sends a request whose answer is Done. */
static int wire_tell(struct pool_site *site, envelope *request, struct err *err)
{
    envelope *reply;
    int error = wire_call(site, request, &reply, err);
    if (error == 0)
        gradpool__wire__envelope__free_unpacked(reply, NULL);
    return error;
}

/* Returns whether the service has refused the request or the key. False: the connection has failed,
 * or the time has passed. */
static bool wire_is_refused(const struct pool_site *site, int error)
{
    bool is_answered = site->channel && *channel_failure(site->channel) == '\0';
    return site_is_key_error(error) ||
           (error < 0 && is_answered && error != -ETIMEDOUT && error != -ESHUTDOWN);
}

static Gradpool__Wire__PoolWorker wire_worker(const char *job, const struct site_report *report)
{
    return MESSAGE_PART(PoolWorker, pool_worker, .job = (char *)job, .rank = report->rank,
                        .incarnation = report->incarnation, .pid = (uint32_t)report->pid,
                        .identity = report->identity);
}

/* --- reports --- */

static Gradpool__Wire__PoolEvent wire_event(const struct site_report *report)
{
    switch (report->event) {
    case SITE_STARTED: return GRADPOOL__WIRE__POOL_EVENT__POOL_STARTED;
    case SITE_WITHHELD: return GRADPOOL__WIRE__POOL_EVENT__POOL_WITHHELD;
    case SITE_FAILED: return GRADPOOL__WIRE__POOL_EVENT__POOL_FAILED;
    default: return GRADPOOL__WIRE__POOL_EVENT__POOL_ENDED;
    }
}

static int wire_send_report(struct pool_site *site, const char *job,
                            const struct site_report *report, struct err *err)
{
    Gradpool__Wire__PoolWorker worker = wire_worker(job, report);
    uint32_t number = (uint32_t)report->number;
    Gradpool__Wire__PoolReport message =
        MESSAGE_PART(PoolReport, pool_report, .event = wire_event(report), .worker = &worker,
                     .exit_code = report->end == END_EXIT ? number : 0,
                     .signal = report->end == END_SIGNAL ? number : 0,
                     .is_adopted = report->event == SITE_ENDED && report->end == END_UNKNOWN,
                     .text = (char *)report->text);
    Gradpool__Wire__PoolReport *list[] = {&message};
    return wire_tell(site, &MESSAGE(0, POOL_REPORTS, pool_reports, .n_reports = 1, .reports = list),
                     err);
}

static int wire_send_reports(void *context, const struct site_terms *terms,
                             const struct site_report *reports, uint32_t count, struct err *err)
{
    int error = 0;
    for (uint32_t i = 0; i < count && error == 0; i++)
        error = wire_send_report(context, terms->job, &reports[i], err);
    return error;
}

/* --- next order --- */

static int wire_withdraw_job(struct pool_site *site, const char *job, struct err *err)
{
    int error = wire_tell(site, &MESSAGE(0, POOL_WITHDRAW, pool_withdraw, .job = (char *)job), err);
    return error == -ENOENT && wire_is_refused(site, error) ? 0 : error; /* the job is over */
}

/* Answers an order about an earlier job of the folder. No process of this job exists, so the rank
 * in the order is reported as ended. */
static int wire_answer_absent(struct pool_site *site, const struct site_terms *terms,
                              const struct pool_order *order, struct err *err)
{
    const struct site_report gone = {.event = SITE_ENDED,
                                     .rank = order->order.rank,
                                     .incarnation = order->order.incarnation,
                                     .end = END_UNKNOWN};
    if (order->order.verb == SITE_RESTS || order->order.verb == SITE_GOES_ON)
        return 0;
    if (order->order.verb != SITE_OVER)
        return wire_send_report(site, order->job, &gone, err);
    if (strcmp(order->job, terms->job) == 0)
        site->is_clearing = false;
    return 0;
}

static int wire_receive(struct pool_site *site, struct err *err)
{
    envelope *message;
    int error = channel_receive(site->channel, &message);
    if (error == 0)
        orders_receive(site, message);
    if (error < 0 && error != -EAGAIN)
        return err_set(err, error, "%s", channel_failure(site->channel));
    return site->is_flooded ? err_set(err, -ENOBUFS, "the service sends too many orders at once")
                            : error;
}

static int wire_next(void *context, const struct site_terms *terms, struct site_order *ret_order,
                     struct err *err)
{
    struct pool_site *site = context;
    struct pool_order order;
    int error = 0;
    while (error == 0) {
        if (!orders_pop(site, &order)) {
            error = wire_receive(site, err);
        } else if (site->is_clearing || strcmp(order.job, terms->job) != 0) {
            error = wire_answer_absent(site, terms, &order, err);
        } else {
            *ret_order = order.order;
            return 0;
        }
    }
    return error;
}

/* --- join --- */

static int wire_open(struct pool_site *site, struct err *err)
{
    uint64_t deadline_ns = answer_deadline_ns(), incarnation;
    struct endpoint endpoint;
    int fd;
    int error = endpoint_parse(site->endpoint, &endpoint, err)
                    ?: endpoint_connect(&endpoint, deadline_ns, &fd, err);
    if (error < 0)
        return error;
    error = operator_channel(&endpoint, fd, &site->channel, err);
    if (error < 0) {
        close(fd);
        return error;
    }
    return channel_greet(site->channel, GRADPOOL__WIRE__ROLE__ROLE_CLIENT, "gradpool run",
                         deadline_ns, &incarnation, err);
}

static int wire_send_join(struct pool_site *site, const struct site_terms *terms,
                          const struct site_report *workers, uint32_t count, envelope **ret_reply,
                          struct err *err)
{
    static Gradpool__Wire__PoolWorker listed[POOL_RANKS_MAX]; /* one thread */
    static Gradpool__Wire__PoolWorker *list[POOL_RANKS_MAX];
    for (uint32_t i = 0; i < count; i++) {
        listed[i] = wire_worker(terms->job, &workers[i]);
        list[i] = &listed[i];
    }
    int error = wire_call(site,
                          &MESSAGE(0, POOL_JOIN, pool_join, .site = (char *)terms->site,
                                   .pool = terms->pool, .node = site->node,
                                   .pid = (uint32_t)getpid(), .n_workers = count, .workers = list),
                          ret_reply, err);
    if (error < 0 || (*ret_reply)->body_case == GRADPOOL__WIRE__ENVELOPE__BODY_POOL_WELCOME)
        return error;
    gradpool__wire__envelope__free_unpacked(*ret_reply, NULL);
    return err_set(err, -EPROTO,
                   "the service does not answer a pool; install one version of gradpool on all "
                   "hosts");
}

/* Adds an order to end each worker that the coordinator does not know. */
static void wire_end_stale(struct pool_site *site, const Gradpool__Wire__PoolWelcome *welcome)
{
    for (size_t i = 0; i < welcome->n_stale; i++)
        orders_enter(site, welcome->stale[i]->job,
                     (struct site_order){.verb = SITE_END,
                                         .rank = welcome->stale[i]->rank,
                                         .incarnation = welcome->stale[i]->incarnation},
                     "the service does not know this start of the rank");
}

/* Ends earlier jobs of the folder. `ret_has_job`: whether the coordinator knows the present job. */
static int wire_end_earlier(struct pool_site *site, const struct site_terms *terms,
                            const Gradpool__Wire__PoolWelcome *welcome, bool *ret_has_job,
                            struct err *err)
{
    int error = 0;
    *ret_has_job = false;
    for (size_t i = 0; i < welcome->n_jobs && error == 0; i++) {
        bool is_same = strcmp(welcome->jobs[i], terms->job) == 0;
        if (is_same && !terms->is_new) {
            *ret_has_job = true;
            continue;
        }
        site->is_clearing = site->is_clearing || is_same;
        error = wire_withdraw_job(site, welcome->jobs[i], err);
    }
    return error;
}

/* Waits until an earlier job with the name of the present job has ended. */
static int wire_clear(struct pool_site *site, const struct site_terms *terms, struct err *err)
{
    uint64_t deadline_ns = answer_deadline_ns();
    struct site_order none;
    while (site->is_clearing) {
        struct pollfd wait = {.fd = channel_fd(site->channel), .events = POLLIN};
        int error = wire_next(site, terms, &none, err);
        if (error < 0 && error != -EAGAIN)
            return error;
        if (clock_now_ns() >= deadline_ns)
            return err_set(err, -ETIMEDOUT, "an earlier job %s has not ended yet", terms->job);
        if (site->is_clearing)
            (void)poll(&wait, 1, clock_poll_ms(deadline_ns, clock_now_ns()));
    }
    return 0;
}

static int wire_join(void *context, const struct site_terms *terms,
                     const struct site_report *workers, uint32_t count, bool *ret_has_job,
                     bool *ret_is_refused, struct err *err)
{
    struct pool_site *site = context;
    envelope *reply;
    int error = wire_open(site, err) ?: wire_send_join(site, terms, workers, count, &reply, err);
    *ret_is_refused = wire_is_refused(site, error);
    if (error < 0)
        return error;
    wire_end_stale(site, reply->pool_welcome);
    error = wire_end_earlier(site, terms, reply->pool_welcome, ret_has_job, err);
    gradpool__wire__envelope__free_unpacked(reply, NULL);
    return error < 0 ? error : wire_clear(site, terms, err);
}

static int wire_submit(void *context, const struct site_terms *terms, bool *ret_is_refused,
                       struct err *err)
{
    struct pool_site *site = context;
    int error = wire_tell(site,
                          &MESSAGE(0, POOL_SUBMIT, pool_submit, .job = (char *)terms->job,
                                   .workers = terms->workers, .workers_max = terms->workers_max,
                                   .study = (char *)terms->study, .followers = terms->followers,
                                   .rests = terms->may_rest),
                          err);
    *ret_is_refused = wire_is_refused(site, error);
    return error;
}

static int wire_withdraw(void *context, const struct site_terms *terms, struct err *err)
{
    return wire_withdraw_job(context, terms->job, err);
}

static int wire_rest(void *context, const struct site_terms *terms, bool rests,
                     bool *ret_is_refused, struct err *err)
{
    struct pool_site *site = context;
    int error = wire_tell(
        site, &MESSAGE(0, POOL_REST, pool_rest, .job = (char *)terms->job, .rests = rests), err);
    *ret_is_refused = wire_is_refused(site, error);
    return error;
}

static int wire_stand(void *context, const struct site_terms *terms,
                      const struct site_standing *standing, struct err *err)
{
    return wire_tell(context,
                     &MESSAGE(0, POOL_STANDING, pool_standing, .job = (char *)terms->job,
                              .rung = standing->rung, .value = standing->value),
                     err);
}

static int wire_fd(void *context) { return channel_fd(((struct pool_site *)context)->channel); }

static void wire_close(void *context)
{
    struct pool_site *site = context;
    channel_destroy(site->channel);
    site->channel = NULL;
    site->count = 0;
    site->is_clearing = site->is_flooded = false;
}

const struct site_calls pool_site_calls = {.join = wire_join,
                                           .submit = wire_submit,
                                           .withdraw = wire_withdraw,
                                           .rest = wire_rest,
                                           .stand = wire_stand,
                                           .report = wire_send_reports,
                                           .next = wire_next,
                                           .fd = wire_fd,
                                           .close = wire_close};
