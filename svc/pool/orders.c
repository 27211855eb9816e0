/* Orders of the coordinator, for a pool whose site has slots. Owns nothing. */
#include "svc/base/clock.h"
#include "svc/pool/internal.h"

#include <errno.h>
#include <stdio.h>

static void obey_start(struct worker_pool *pool, const struct site_order *order)
{
    struct site_report report = {.event = SITE_WITHHELD};
    uint32_t pause_s, rank = order->rank;
    enum rank_effect effect =
        ranks_order_start(&pool->ranks, rank, order->incarnation, clock_now_ns(), &pause_s);
    if (effect == EFFECT_ENDED)
        return site_report_again(pool->site, rank, order->incarnation);
    if (order->workers >= 1 && order->workers <= POOL_RANKS_MAX)
        pool->ranks.founders = order->workers;
    if (order->workers_max >= 1 && order->workers_max <= POOL_RANKS_MAX)
        pool->workers_max = order->workers_max;
    if (effect == EFFECT_KNOWN || pause_s == 0)
        return;
    pool_say("rank %u: a new process starts in %u s", rank, pause_s);
    report.rank = rank;
    report.incarnation = order->incarnation;
    snprintf(report.text, sizeof report.text,
             "rank %u starts again %u s after the end of its last process", rank, pause_s);
    site_report(pool->site, &report);
}

static void obey_leave(struct worker_pool *pool, const struct site_order *order)
{
    bool is_end = order->verb == SITE_END;
    enum rank_effect effect =
        ranks_order_leave(&pool->ranks, order->rank, order->incarnation, is_end, clock_now_ns());
    if (effect == EFFECT_ENDED)
        return site_report_again(pool->site, order->rank, order->incarnation);
    if (effect == EFFECT_NEW)
        pool_say("rank %u: %s%s", order->rank,
                 is_end ? "ended by the coordinator: " : "leaves, because its slot is needed",
                 is_end ? order->text : "");
}

static void obey_over(struct worker_pool *pool, const struct site_order *order)
{
    if (order->code < 0 && !pool->ranks.is_ending)
        pool_say("job %s is over: %s", pool->folder->job, order->text);
    ranks_order_over(&pool->ranks, order->code);
}

/* Refuses an order for a rank that this pool may not start. A pool that adopts workers may have a
 * smaller --workers-max than the earlier pool that submitted the job. */
static void obey_not(struct worker_pool *pool, const struct site_order *order)
{
    struct site_report report = {
        .event = SITE_WITHHELD, .rank = order->rank, .incarnation = order->incarnation};
    if (order->rank >= POOL_RANKS_MAX)
        return;
    if (order->verb != SITE_START)
        return site_report_again(pool->site, order->rank, order->incarnation);
    snprintf(report.text, sizeof report.text,
             "the pool starts no rank %u, because its --workers-max is %u", order->rank,
             pool->ranks.most);
    pool_say("job %s: %s", pool->folder->job, report.text);
    site_report(pool->site, &report);
}

/* Ends a job that the coordinator no longer knows. The coordinator may have restarted after an
 * order to end the job was lost, so the exit codes of the workers decide. */
static void obey_forgotten(struct worker_pool *pool, const struct site_order *order)
{
    bool was_ending = pool->ranks.is_ending;
    if (!ranks_order_forgotten(&pool->ranks) && !was_ending)
        pool_say("job %s is over: %s", pool->folder->job, order->text);
}

/* Prints news about rests. A study reads the two texts below (gradpool/explore/pool.py). */
static void tell_rest(struct worker_pool *pool, const struct site_order *order)
{
    bool rests = order->verb == SITE_RESTS, is_known = rests == pool->folder->rests;
    if (order->verb != SITE_RESTS && order->verb != SITE_GOES_ON)
        return pool_say("%s", order->text);
    pool->folder->rests = rests;
    if (is_known)
        return; /* the state was printed before; the coordinator sends it on each connection */
    if (rests)
        pool_say("job %s rests: its workers sleep, without slots", pool->folder->job);
    else
        pool_say("job %s goes on after its rest", pool->folder->job);
}

static void pool_obey(struct worker_pool *pool, const struct site_order *order)
{
    if (order->verb == SITE_OVER)
        obey_over(pool, order);
    else if (order->verb == SITE_FORGOTTEN)
        obey_forgotten(pool, order);
    else if (order->verb >= SITE_RESTS)
        tell_rest(pool, order);
    else if (order->rank >= pool->ranks.most)
        obey_not(pool, order);
    else if (order->verb == SITE_START)
        obey_start(pool, order);
    else
        obey_leave(pool, order);
}

static void tell_connection(struct worker_pool *pool, int error, const struct err *err)
{
    bool is_lost = error < 0 && error != -EINPROGRESS && !pool->ranks.is_over;
    if (is_lost && !pool->is_unseen && ranks_have_workers(&pool->ranks))
        pool_say("job %s: no orders: %s; its workers train on", pool->folder->job, err->text);
    else if (is_lost && !pool->is_unseen)
        pool_say("job %s: no orders: %s; the pool tries again", pool->folder->job, err->text);
    else if (error == 0 && !pool->has_joined)
        pool_say("job %s: site %s starts its workers when slots are free", pool->folder->job,
                 pool->folder->site);
    else if (error == 0 && pool->is_unseen)
        pool_say("job %s: orders arrive again", pool->folder->job);
    pool->has_joined = pool->has_joined || error == 0;
    pool->is_unseen = is_lost;
}

/* Ends a pool whose key is refused, once its last worker has ended, because the pool receives no
 * further orders. */
static void pool_check_key(struct worker_pool *pool, int error, const struct err *err)
{
    if (!site_is_key_error(error) || pool->ranks.is_over || pool->ranks.is_ending ||
        ranks_have_workers(&pool->ranks))
        return;
    pool_say("job %s is over: %s", pool->folder->job, err->text);
    ranks_order_over(&pool->ranks, error);
}

int pool_take_orders(struct worker_pool *pool)
{
    struct site_order order;
    struct err err;
    int error = site_state(pool->site, &err);
    while (site_take(pool->site, &order))
        pool_obey(pool, &order);
    pool_check_key(pool, error, &err);
    tell_connection(pool, error, &err);
    return error;
}
