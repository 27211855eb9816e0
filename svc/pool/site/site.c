/* Owns the thread that exchanges messages with the coordinator, the orders that have arrived, and
 * the reports that were not sent yet. After each connect, the pool joins with all its workers, and
 * sends the other reports again. */
#include "svc/pool/site/site.h"

#include "svc/base/clock.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define RETRY_NS NS_PER_S /* pause between two attempts to connect */
/* this pause after the service has refused the key of a pool that had joined before */
#define RETRY_KEY_NS (10 * NS_PER_S)
/* RETRY_FORMER_NS: pause while the service still has the connection of the former pool of the
 * folder. FORMER_NS: longest time until the service detects the end of this connection. */
#define RETRY_FORMER_NS (200 * NS_PER_MS)
#define FORMER_NS (10 * NS_PER_S)
#define ORDERS_MAX 4096 /* maximum number of orders that the pool has not read */

struct site {
    const struct site_calls *calls;
    void *context;
    struct site_terms *terms; /* used only by the thread */
    bool has_submitted;       /* used only by the thread */
    uint64_t former_ns; /* time of the first refusal because of a former connection; 0: none */
    int news_fd, wake_fd;
    pthread_mutex_t mutex; /* protects all fields below */
    int error;             /* result of the last attempt */
    struct err err;
    bool is_withdrawn, withdraw_sent;
    bool rests; /* the last wish of the user */
    /* number of the newest wish of the user, and of the last wish that was sent */
    uint32_t rest_wishes, rest_sent;
    struct site_standing *standing; /* NULL: none */
    /* like rest_wishes and rest_sent; standing_sent 0: to be sent */
    uint32_t standing_number, standing_sent;
    struct site_order *orders;
    size_t orders_count, orders_room;
    struct site_report reports[POOL_RANKS_MAX];
    uint64_t changes[POOL_RANKS_MAX]; /* by rank: number of the newest report; 0: none */
    /* by rank: number of the last report that the coordinator has received */
    uint64_t sent[POOL_RANKS_MAX];
};

static void site_wake(int fd)
{
    const uint64_t one = 1;
    ssize_t written = write(fd, &one, sizeof one);
    (void)written; /* EAGAIN: the descriptor is readable already */
}

static void site_unwake(int fd)
{
    uint64_t wakes;
    ssize_t got = read(fd, &wakes, sizeof wakes);
    (void)got;
}

/* --- orders, in the thread --- */

static int site_add_order(struct site *site, const struct site_order *order)
{
    int error = 0;
    pthread_mutex_lock(&site->mutex);
    if (site->orders_count == site->orders_room) {
        size_t room = site->orders_room ? 2 * site->orders_room : 16;
        struct site_order *more =
            room <= ORDERS_MAX ? realloc(site->orders, room * sizeof *more) : NULL;
        site->orders = more ? more : site->orders;
        site->orders_room = more ? room : site->orders_room;
        error = more ? 0 : -ENOBUFS;
    }
    if (error == 0)
        site->orders[site->orders_count++] = *order;
    pthread_mutex_unlock(&site->mutex);
    site_wake(site->news_fd);
    return error;
}

/* Adds an order with a reason, because the coordinator has refused a request or has lost the
 * job. */
static int site_add_over(struct site *site, enum site_verb verb, int code, const char *text)
{
    struct site_order order = {.verb = verb, .code = code};
    snprintf(order.text, sizeof order.text, "%.*s", SITE_TEXT_BYTES - 1, text);
    return site_add_order(site, &order);
}

static int site_read_orders(struct site *site, struct err *err)
{
    struct site_order order;
    int error;
    while ((error = site->calls->next(site->context, site->terms, &order, err)) == 0) {
        error = site_add_order(site, &order);
        if (error < 0)
            return err_set(err, error, "the service has sent %d orders at once", ORDERS_MAX);
    }
    return error == -EAGAIN ? 0 : error;
}

/* --- reports, in the thread --- */

/* Copies the reports that the coordinator has not received. `ret_numbers`: by rank, the numbers of
 * the newest reports. */
static uint32_t site_copy_unsent(struct site *site, struct site_report *ret_reports,
                                 uint64_t *ret_numbers)
{
    uint32_t count = 0;
    pthread_mutex_lock(&site->mutex);
    for (uint32_t rank = 0; rank < POOL_RANKS_MAX; rank++) {
        ret_numbers[rank] = site->changes[rank];
        if (site->changes[rank] != site->sent[rank])
            ret_reports[count++] = site->reports[rank];
    }
    pthread_mutex_unlock(&site->mutex);
    return count;
}

/* Copies the reports about processes that exist, and about ends that the coordinator has not
 * received. */
static uint32_t site_copy_workers(struct site *site, struct site_report *ret_reports)
{
    uint32_t count = 0;
    pthread_mutex_lock(&site->mutex);
    for (uint32_t rank = 0; rank < POOL_RANKS_MAX; rank++) {
        enum site_event event = site->reports[rank].event;
        bool is_unsent = site->changes[rank] != site->sent[rank];
        if (event == SITE_STARTED || (event == SITE_ENDED && is_unsent))
            ret_reports[count++] = site->reports[rank];
    }
    pthread_mutex_unlock(&site->mutex);
    return count;
}

static void site_mark_sent(struct site *site, const struct site_report *reports, uint32_t count,
                           const uint64_t *numbers)
{
    pthread_mutex_lock(&site->mutex);
    for (uint32_t i = 0; i < count; i++)
        site->sent[reports[i].rank] = numbers[reports[i].rank];
    pthread_mutex_unlock(&site->mutex);
    site_wake(site->news_fd);
}

static int site_send_reports(struct site *site, struct err *err)
{
    static struct site_report reports[POOL_RANKS_MAX];
    uint64_t numbers[POOL_RANKS_MAX];
    uint32_t count = site_copy_unsent(site, reports, numbers);
    if (count == 0)
        return 0;
    int error = site->calls->report(site->context, site->terms, reports, count, err);
    if (error == 0)
        site_mark_sent(site, reports, count, numbers);
    return error;
}

static int site_send_withdraw(struct site *site, struct err *err)
{
    pthread_mutex_lock(&site->mutex);
    bool is_due = site->is_withdrawn && !site->withdraw_sent;
    pthread_mutex_unlock(&site->mutex);
    if (!is_due)
        return 0;
    int error = site->calls->withdraw(site->context, site->terms, err);
    if (error < 0)
        return error;
    pthread_mutex_lock(&site->mutex);
    site->withdraw_sent = true;
    pthread_mutex_unlock(&site->mutex);
    site_wake(site->news_fd);
    return 0;
}

/* --- connections, in the thread --- */

static void site_note(struct site *site, int error, const struct err *err)
{
    pthread_mutex_lock(&site->mutex);
    site->error = error;
    site->err = *err;
    pthread_mutex_unlock(&site->mutex);
    site_wake(site->news_fd);
}

static int site_send_rest(struct site *site, struct err *err)
{
    bool is_refused = false;
    pthread_mutex_lock(&site->mutex);
    uint32_t number = site->rest_wishes;
    bool is_sent = site->rest_sent == number, rests = site->rests;
    pthread_mutex_unlock(&site->mutex);
    if (is_sent)
        return 0;
    int error = site->calls->rest(site->context, site->terms, rests, &is_refused, err);
    if (error < 0 && is_refused)
        error = site_add_over(site, SITE_UNRESTED, error, err->text);
    if (error == 0)
        site->rest_sent = number; /* no other thread reads it */
    return error;
}

static int site_send_standing(struct site *site, struct err *err)
{
    struct site_standing standing = {0};
    pthread_mutex_lock(&site->mutex);
    uint32_t number = site->standing_number;
    if (site->standing)
        standing = *site->standing;
    pthread_mutex_unlock(&site->mutex);
    if (site->standing_sent == number)
        return 0;
    int error = site->calls->stand(site->context, site->terms, &standing, err);
    if (error == 0)
        site->standing_sent = number; /* no other thread reads it */
    return error;
}

/* Submits the job. If the coordinator had accepted the job before and does not know it any more,
 * the job is over. */
static int site_submit(struct site *site, bool *ret_is_refused, struct err *err)
{
    if (site->has_submitted)
        return site_add_over(site, SITE_FORGOTTEN, -ENOENT,
                             "the service does not know the job any more, because all its workers "
                             "have left, or because the state of the service was lost");
    int error = site->calls->submit(site->context, site->terms, ret_is_refused, err);
    site->has_submitted = error == 0;
    return error;
}

/* Returns whether the service may still have the connection of the former pool of the folder. */
static bool site_has_former(struct site *site)
{
    uint64_t now_ns = clock_now_ns();
    if (site->former_ns == 0)
        site->former_ns = now_ns;
    return now_ns < site->former_ns + FORMER_NS;
}

/* Connects and joins. A refusal is final if the job was never accepted. After any later error the
 * workers train on, and the pool tries again. */
static int site_connect(struct site *site, struct err *err)
{
    static struct site_report workers[POOL_RANKS_MAX];
    bool has_job = false, is_refused = false;
    uint32_t count = site_copy_workers(site, workers);
    int error =
        site->calls->join(site->context, site->terms, workers, count, &has_job, &is_refused, err);
    if (error == -EEXIST && site_has_former(site))
        return error;
    if (error == 0 && has_job)
        site->has_submitted = true;
    else if (error == 0)
        error = site_submit(site, &is_refused, err);
    site->standing_sent = 0; /* the coordinator does not store the standing */
    if (error == 0)
        site->terms->is_new = false;
    else if (is_refused && !site->has_submitted)
        (void)site_add_over(site, SITE_OVER, error, err->text);
    return error;
}

/* Waits for a message of the coordinator, or for a report of the pool. */
static void site_wait(struct site *site)
{
    struct pollfd fds[] = {{.fd = site->calls->fd(site->context), .events = POLLIN},
                           {.fd = site->wake_fd, .events = POLLIN}};
    (void)poll(fds, 2, -1);
    site_unwake(site->wake_fd);
}

static int site_serve(struct site *site, struct err *err)
{
    int error = site_send_reports(site, err) ?: site_send_withdraw(site, err);
    if (error == 0)
        error = site_send_rest(site, err);
    if (error == 0)
        error = site_send_standing(site, err);
    if (error == 0)
        error = site_read_orders(site, err);
    if (error == 0)
        site_wait(site);
    return error;
}

bool site_is_key_error(int error)
{
    return error == -EKEYREJECTED || error == -EKEYREVOKED || error == -ENOKEY;
}

static void site_pause(struct site *site, int error)
{
    bool has_former = error == -EEXIST && site_has_former(site);
    uint64_t pause_ns = has_former                 ? RETRY_FORMER_NS
                        : site_is_key_error(error) ? RETRY_KEY_NS
                                                   : RETRY_NS;
    struct pollfd wait = {.fd = site->wake_fd, .events = 0};
    (void)poll(&wait, 1, (int)(pause_ns / NS_PER_MS));
}

static void *site_run(void *context)
{
    struct site *site = context;
    for (;;) {
        struct err err = {0};
        int error = site_connect(site, &err);
        site_note(site, error, &err);
        while (error == 0)
            error = site_serve(site, &err);
        site->calls->close(site->context);
        site_note(site, error, &err);
        site_pause(site, error);
    }
    return NULL;
}

static int site_start_thread(struct site *site)
{
    pthread_t thread;
    pthread_mutex_init(&site->mutex, NULL);
    int error = pthread_create(&thread, NULL, site_run, site);
    if (error == 0)
        pthread_detach(thread);
    return -error;
}

int site_create(const struct site_calls *calls, void *context, const struct site_terms *terms,
                struct site **ret_site, struct err *err)
{
    struct site *site = calloc(1, sizeof *site);
    if (site)
        site->terms = calloc(1, sizeof *site->terms);
    if (!site || !site->terms)
        return err_set(err, -ENOMEM, "no memory for a pool; raise the limits of this process");
    site->calls = calls;
    site->context = context;
    *site->terms = *terms;
    site->has_submitted = !terms->is_new;
    site->error = -EINPROGRESS;
    site->news_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    site->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (site->news_fd < 0 || site->wake_fd < 0)
        return err_set(err, -errno, "no descriptor for a pool: %s", strerror(errno));
    *ret_site = site;
    return 0;
}

int site_begin(struct site *site, struct err *err)
{
    int error = site_start_thread(site);
    return error == 0 ? 0 : err_set(err, error, "no thread for a pool: %s", strerror(-error));
}

/* --- the pool's thread --- */

int site_fd(const struct site *site) { return site->news_fd; }

bool site_take(struct site *site, struct site_order *ret_order)
{
    pthread_mutex_lock(&site->mutex);
    bool has_order = site->orders_count > 0;
    if (has_order) {
        *ret_order = site->orders[0];
        site->orders_count--;
        memmove(site->orders, site->orders + 1, site->orders_count * sizeof *site->orders);
    }
    pthread_mutex_unlock(&site->mutex);
    return has_order;
}

int site_state(struct site *site, struct err *err)
{
    site_unwake(site->news_fd);
    pthread_mutex_lock(&site->mutex);
    int error = site->error;
    *err = site->err;
    pthread_mutex_unlock(&site->mutex);
    return error;
}

void site_report(struct site *site, const struct site_report *report)
{
    pthread_mutex_lock(&site->mutex);
    site->reports[report->rank] = *report;
    site->changes[report->rank]++;
    pthread_mutex_unlock(&site->mutex);
    site_wake(site->wake_fd);
}

void site_report_again(struct site *site, uint32_t rank, uint64_t incarnation)
{
    struct site_report report = {
        .event = SITE_ENDED, .rank = rank, .incarnation = incarnation, .end = END_UNKNOWN};
    pthread_mutex_lock(&site->mutex);
    const struct site_report *last = &site->reports[rank];
    bool is_newer = last->incarnation > incarnation;
    if (last->incarnation == incarnation &&
        (last->event == SITE_ENDED || last->event == SITE_FAILED))
        report = *last;
    pthread_mutex_unlock(&site->mutex);
    if (!is_newer)
        site_report(site, &report);
}

void site_rest(struct site *site, bool rests)
{
    pthread_mutex_lock(&site->mutex);
    site->rests = rests;
    site->rest_wishes++;
    pthread_mutex_unlock(&site->mutex);
    site_wake(site->wake_fd);
}

void site_stand(struct site *site, const struct site_standing *standing)
{
    pthread_mutex_lock(&site->mutex);
    if (!site->standing)
        site->standing = malloc(sizeof *site->standing);
    /* without memory, the former standing is used: it only influences rests */
    if (site->standing) {
        *site->standing = *standing;
        site->standing_number++;
    }
    pthread_mutex_unlock(&site->mutex);
    site_wake(site->wake_fd);
}

void site_withdraw(struct site *site)
{
    pthread_mutex_lock(&site->mutex);
    site->is_withdrawn = true;
    pthread_mutex_unlock(&site->mutex);
    site_wake(site->wake_fd);
}

bool site_is_settled(struct site *site)
{
    pthread_mutex_lock(&site->mutex);
    bool is_settled = !site->is_withdrawn || site->withdraw_sent;
    for (uint32_t rank = 0; rank < POOL_RANKS_MAX; rank++)
        is_settled = is_settled && site->changes[rank] == site->sent[rank];
    is_settled = is_settled || site->error < 0;
    pthread_mutex_unlock(&site->mutex);
    return is_settled;
}
