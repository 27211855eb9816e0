/* Planned ends of aggregators. An aggregator announces its end. Its tasks move to other lanes, one
 * job after another, in as many orders as needed (order.c). Other holders copy the replicas that it
 * stores (replica/replica.c). Then the aggregator is drained. At the deadline it is drained even if
 * tasks remain, and the log names the jobs that lose state. Owns struct leaving (RULES.md: K94). */
#include "svc/coordinator/order/leaving.h"

#include "svc/base/log.h"
#include "svc/base/text.h"
#include "svc/coordinator/aggregator/lane.h"
#include "svc/coordinator/fleet/farewell.h"
#include "svc/coordinator/job/share.h"
#include "svc/coordinator/job/table.h"
#include "svc/coordinator/order/order.h"
#include "svc/coordinator/order/outliving.h"
#include "svc/coordinator/replica/replica.h"
#include "svc/coordinator/stopping.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* pause before the second order; doubles before each further order */
#define PAUSE_NS (100 * NS_PER_MS)
#define PAUSE_MOST_NS NS_PER_S /* longest pause between two orders */
#define LOSES_BYTES 768
/* default time to wait for the next local aggregator */
#define NEXT_NS (5 * NS_PER_S)
/* The phase of reports is the last quarter of the time before the deadline, at most
 * REPORT_MOST_NS. */
#define REPORT_PART 4
#define REPORT_MOST_NS (5 * NS_PER_S)
/* A longer time before the deadline is cut to this one, so that no sum of times overflows. */
#define LEFT_MOST_MS ((uint64_t)INT64_MAX / NS_PER_MS)

struct leaving {
    struct aggregator *aggregator;
    uint64_t by_ns;       /* deadline at which the aggregator ends in any case */
    uint64_t start_by_ns; /* until then, tasks wait for the next local aggregator to start */
    uint64_t report_ns; /* beginning of the phase in which one report after another is requested */
    uint64_t pause_ns;  /* pause before the next order */
    bool is_moving;     /* an order is in progress */
    bool is_asked;      /* a request for a report is open */
    bool is_reported;   /* the stored report was requested in the phase of reports */
    bool is_over;       /* the aggregator was requested to drain */
    char why[256];      /* why tasks did not move in the last order */
    struct timer timer;
};

/* --- tasks and replicas that are left --- */

static bool is_there(const struct aggregator *a, const struct tensor *tensor,
                     const struct piece *piece)
{
    return piece->lane && piece->lane->aggregator == a && !tensor->failure;
}

/* Returns how many of the job's tensors have pieces on the aggregator, or only on `lane` if it is
 * not NULL. */
static size_t count_tensors(const struct aggregator *a, const struct job *job,
                            const struct lane *lane, bool (*counts)(const struct tensor *tensor))
{
    size_t count = 0;
    for (size_t t = 0; t < job->tensors_count && !job->failure; t++) {
        const struct tensor *tensor = job->tensors[t];
        bool is_its = false;
        for (size_t i = 0; i < tensor->pieces_count && !is_its; i++)
            is_its = is_there(a, tensor, &tensor->pieces[i]) &&
                     (!lane || tensor->pieces[i].lane == lane);
        count += is_its && counts(tensor);
    }
    return count;
}

static bool is_any(const struct tensor *tensor) { return true; }

static bool has_tasks(const struct aggregator *a)
{
    for (size_t i = 0; i < a->lanes_count; i++)
        if (a->lanes[i].arriving > 0)
            return true;
    list_for_each (node, &a->service->jobs)
        if (count_tensors(a, list_entry(node, struct job, link), NULL, is_any) > 0)
            return true;
    return false;
}

/* Returns whether the aggregator has shards of tables. Shards do not move, so the aggregator runs
 * until its deadline, or until the jobs with these tables have ended. */
static bool has_tables(const struct aggregator *a)
{
    list_for_each_entry (const struct job, job, &a->service->jobs, link)
        if (!job->failure && job_table_at(job, a))
            return true;
    return false;
}

static size_t count_others_up(const struct service *s)
{
    size_t count = 0;
    list_for_each_entry (const struct aggregator, a, &s->aggregators, link)
        count += a->state == AGGREGATOR_UP && !a->is_stopping;
    return count;
}

static bool others_are_up(const struct service *s) { return count_others_up(s) > 0; }

/* Returns whether another aggregator could hold the replicas that this aggregator holds. The owner
 * of a piece cannot hold its replica. If only one other aggregator remains, the pieces that it owns
 * therefore get no holder. */
static bool has_copies(const struct aggregator *a)
{
    list_for_each (node, &a->service->jobs)
        if (keeping_has(a, list_entry(node, struct job, link), NULL))
            return count_others_up(a->service) > (a->service->fleet->leave_done ? 1 : 0);
    return false;
}

/* --- state that would be lost --- */

static bool keeps_state(const struct tensor *tensor)
{
    return tensor->terms.rule || tensor->terms.lag > 0 || tensor->terms.quorum == QUORUM_STALE ||
           tensor->terms.quorum == QUORUM_ANY;
}

/* Returns whether each state on the lane is known to have a copy or to need none. Reports before
 * the phase of reports do not count (`is_reported`), because the job may have had its first update
 * after such a report. */
static bool is_copied(const struct aggregator *a, const struct job *job, const struct share *share)
{
    const WIRE(JobUse) *use = a->leaving->is_reported ? jobs_use_of(job, share) : NULL;
    return use && use->states > 0 && (uint64_t)use->copied + use->empty == use->states;
}

/* Returns the number of tensors whose state exists only on this aggregator. */
static size_t count_lost(const struct aggregator *a, const struct job *job)
{
    size_t count = 0;
    for (size_t i = 0; i < job->shares_count; i++) {
        const struct share *share = &job->shares[i];
        if (share->lane->aggregator == a && share->pieces > 0 && !is_copied(a, job, share))
            count += count_tensors(a, job, share->lane, keeps_state);
    }
    return count;
}

static void name_losses(const struct aggregator *a, char *text)
{
    char prefix[TENANT_PREFIX_BYTES];
    *text = '\0';
    list_for_each_entry (const struct job, job, &a->service->jobs, link) {
        size_t count = count_lost(a, job);
        if (count > 0)
            text_append(text, LOSES_BYTES, "%sjob %s%.64s loses the state of %zu tensor%s",
                        *text ? "; " : "", tenant_prefix(job->tenant, prefix), job->name, count,
                        count == 1 ? "" : "s");
        const struct job_table *table = job->failure ? NULL : job_table_at(job, a);
        if (table)
            text_append(text, LOSES_BYTES, "%sjob %s%.64s loses rows of table '%.64s'",
                        *text ? "; " : "", tenant_prefix(job->tenant, prefix), job->name,
                        table->name);
    }
    if (*text && *a->leaving->why)
        text_append(text, LOSES_BYTES, " (%s)", a->leaving->why);
}

/* Returns whether a job has state on the aggregator, with or without copies. */
static bool has_states(const struct aggregator *a)
{
    list_for_each_entry (const struct job, job, &a->service->jobs, link)
        if (count_tensors(a, job, NULL, keeps_state) > 0)
            return true;
    return false;
}

/* --- the end --- */

static void tell_done(struct timer *timer)
{
    struct service *s = container_of(timer, struct fleet, leave_timer)->service;
    leave_done_fn done = s->fleet->leave_done;
    s->fleet->leave_done = NULL;
    if (done)
        done(s);
}

void leaving_check_done(struct service *s)
{
    if (!s->fleet->leave_done)
        return;
    list_for_each_entry (const struct aggregator, a, &s->aggregators, link)
        if (ends_with_service(a) && a->state != AGGREGATOR_LOST)
            return;
    if (fleet_is_gone(s))
        timer_start(s->loop, &s->fleet->leave_timer, 0);
}

void leaving_end_jobs(const struct aggregator *a)
{
    struct service *s = a->service;
    const char *stay = a->leaving ? a->leaving->why : "";
    char why[ERR_TEXT_BYTES];
    list_for_each_safe_entry (struct job, job, &s->jobs, link) {
        size_t bound = job->failure ? 0 : outliving_count_bound(job, a);
        if (bound == 0)
            continue;
        snprintf(why, sizeof why,
                 "the operator stopped the service (SIGTERM): %s, and %zu tensor%s could not move "
                 "to other aggregators in time (--leave-timeout)",
                 s->ending->takes_along, bound, bound == 1 ? "" : "s");
        log_warn("the service ended job %s: %s%s%s", job->name, why, *stay ? ": " : "", stay);
        jobs_fail(job, NULL, -ESHUTDOWN, "%s", why);
        jobs_end(job);
    }
}

static void let_go(struct aggregator *a)
{
    char name[AGGREGATOR_NAME_BYTES], loses[LOSES_BYTES];
    aggregator_name(a, name, sizeof name);
    name_losses(a, loses);
    a->leaving->is_over = true;
    timer_stop(&a->leaving->timer);
    if (*loses)
        log_warn("%s ends with a loss: %s", name, loses);
    else
        log_info("%s ends; no state is lost", name);
    events_note(a->service->events, "leave", "%s ends%s%s", name, *loses ? ": " : "", loses);
    if (a->service->fleet->leave_done)
        leaving_end_jobs(a);
    aggregator_drain_losing(a, loses);
}

/* --- steps --- */

/* Schedules the next check. In the phase of reports the pause is short. */
static void look_again(struct aggregator *a, uint64_t pause_ns)
{
    const struct leaving *l = a->leaving;
    uint64_t now_ns = clock_now_ns(), at_ns = now_ns + pause_ns;
    uint64_t report_ns = now_ns < l->report_ns ? l->report_ns : now_ns + PAUSE_NS;
    at_ns = at_ns < report_ns ? at_ns : report_ns;
    timer_start(a->service->loop, &a->leaving->timer, at_ns < l->by_ns ? at_ns : l->by_ns);
}

static void pause_a_while(struct aggregator *a)
{
    struct leaving *l = a->leaving;
    uint64_t next_ns = l->pause_ns ? 2 * l->pause_ns : PAUSE_NS;
    l->pause_ns = next_ns < PAUSE_MOST_NS ? next_ns : PAUSE_MOST_NS;
    look_again(a, l->pause_ns);
}

/* Stores a report. After the first report the next check runs at once, because the end of the
 * aggregator may wait for this report. */
static void leaving_got_report(struct service *s, void *data, const envelope *reply, int code,
                               const char *text)
{
    struct aggregator *a = aggregator_find(s, *(const uint32_t *)data);
    struct leaving *l = a ? a->leaving : NULL;
    if (!l || l->is_over)
        return;
    bool is_first = !l->is_reported;
    l->is_asked = false;
    l->is_reported |= reply && reply->body_case == BODY(STATS_REPLY) && stats_keep(a, reply);
    if (is_first && l->is_reported)
        look_again(a, 0);
}

/* Requests the next report in the phase of reports. */
static void leaving_request_report(struct aggregator *a)
{
    struct leaving *l = a->leaving;
    if (l->is_asked || clock_now_ns() < l->report_ns || !has_states(a))
        return;
    l->is_asked =
        stats_request(a, 0, REPORT_MOST_NS, leaving_got_report, &a->id, sizeof a->id) == 0;
}

/* Drains the aggregator before its deadline. If the aggregator has states, the drain waits for a
 * report. */
static void let_go_early(struct aggregator *a)
{
    struct leaving *l = a->leaving;
    uint64_t now_ns = clock_now_ns(), end_ns = now_ns + REPORT_MOST_NS;
    if (l->is_reported || !has_states(a))
        return let_go(a);
    if (now_ns < l->report_ns)
        l->report_ns = now_ns;
    if (end_ns < l->by_ns)
        l->by_ns = end_ns;
    leaving_request_report(a);
    look_again(a, REPORT_MOST_NS);
}

/* Called at the end of an order. If no task has moved, the next check follows after a pause, and
 * otherwise at once. */
static void moved(struct service *s, const struct order *order)
{
    struct aggregator *a = aggregator_find(s, order->from_aggregator);
    struct leaving *l = a ? a->leaving : NULL;
    if (!l || l->is_over || a->state == AGGREGATOR_LOST)
        return;
    l->is_moving = false;
    snprintf(l->why, sizeof l->why, "%.255s", order->stays);
    if (order->moved == 0)
        return pause_a_while(a);
    l->pause_ns = 0;
    look_again(a, 0);
}

/* Returns whether tasks should wait for the next local aggregator. Without the wait all tasks would
 * move to the aggregators that run now. */
static bool waits_for_next(const struct aggregator *a)
{
    return clock_now_ns() < a->leaving->start_by_ns && fleet_is_any_coming(a->service);
}

static void move(struct aggregator *a)
{
    look_again(a, a->leaving->by_ns);
    a->leaving->is_moving = true;
    if (order_leave(a, moved))
        return;
    a->leaving->is_moving = false;
    pause_a_while(a);
}

static void check(struct aggregator *a)
{
    struct leaving *l = a->leaving;
    const struct service *s = a->service;
    if (l->is_over || s->phase != SERVICE_UP)
        return;
    bool is_hopeless = s->fleet->leave_done && !outliving_has_any(s);
    if (clock_now_ns() >= l->by_ns)
        return let_go(a);
    if (a->state != AGGREGATOR_UP)
        return look_again(a, l->by_ns); /* a returning aggregator announces its end again */
    leaving_request_report(a);
    if (l->is_moving)
        return look_again(a, l->by_ns);
    if (is_hopeless || (!has_tasks(a) && !has_tables(a) && !has_copies(a)))
        return let_go_early(a);
    if (has_tasks(a) && others_are_up(s) && !waits_for_next(a))
        return move(a);
    pause_a_while(a);
}

static void look(struct timer *timer)
{
    check(container_of(timer, struct leaving, timer)->aggregator);
}

/* --- beginning --- */

static void leaving_set_end(struct leaving *l, uint64_t by_ns)
{
    uint64_t now_ns = clock_now_ns(), part_ns = by_ns > now_ns ? (by_ns - now_ns) / REPORT_PART : 0;
    l->by_ns = by_ns;
    l->report_ns = by_ns - (part_ns < REPORT_MOST_NS ? part_ns : REPORT_MOST_NS);
}

static struct leaving *leaving_create(struct aggregator *a, uint64_t by_ns)
{
    struct leaving *l = calloc(1, sizeof *l);
    uint64_t now_ns = clock_now_ns(), named_ns = a->service->options->start_wait_ns;
    uint64_t wait_ns = named_ns ? named_ns : NEXT_NS;
    uint64_t half_ns = by_ns > now_ns ? (by_ns - now_ns) / 2 : 0;
    if (!l)
        return NULL;
    l->aggregator = a;
    leaving_set_end(l, by_ns);
    l->start_by_ns = now_ns + (wait_ns < half_ns ? wait_ns : half_ns);
    timer_init(&l->timer, look);
    return l;
}

static void begin(struct aggregator *a, uint64_t by_ns)
{
    uint64_t now_ns = clock_now_ns(), left_ns = by_ns > now_ns ? by_ns - now_ns : 0;
    bool is_first = !a->leaving;
    if (is_first)
        a->leaving = leaving_create(a, by_ns);
    if (!a->leaving && a->peer)
        peer_break(a->peer); /* the aggregator announces its end again over the next connection */
    if (!a->leaving)
        return;
    if (by_ns < a->leaving->by_ns)
        leaving_set_end(a->leaving, by_ns);
    if (is_first) {
        log_info("%s begins to end: its tasks and copies move to others, within %.1f s",
                 AGGREGATOR_NAME(a), (double)left_ns / NS_PER_S);
        a->is_stopping = true;
        fleet_leaves(a);
        keeping_check_all(a->service);
    }
    look_again(a, 0);
}

void leaving_handle(struct peer *p, const envelope *message)
{
    struct aggregator *a = p->aggregator;
    uint64_t left_ms = message->aggregator_ending->left_ms;
    if (!a || a->state == AGGREGATOR_LOST)
        return;
    if (p->service->phase != SERVICE_UP)
        return aggregator_drain(a);
    left_ms = left_ms < LEFT_MOST_MS ? left_ms : LEFT_MOST_MS;
    begin(a, clock_deadline_ns(clock_now_ns(), (int64_t)left_ms));
}

void leaving_stop(struct aggregator *a)
{
    if (a->leaving)
        timer_stop(&a->leaving->timer);
    free(a->leaving);
    a->leaving = NULL;
}

void leaving_check_all(struct service *s)
{
    list_for_each_entry (struct aggregator, a, &s->aggregators, link)
        if (a->leaving && !a->leaving->is_over && !a->leaving->is_moving)
            look_again(a, 0);
}

void state_leaves(struct service *s, uint64_t by_ns, void (*done)(struct service *s))
{
    timer_init(&s->fleet->leave_timer, tell_done);
    s->fleet->leave_done = done;
    for (size_t i = 0; i < s->fleet->slots_count; i++)
        s->fleet->slots[i].is_wanted = false;
    fleet_end_starting(s);
    list_for_each_entry (struct aggregator, a, &s->aggregators, link) {
        if (ends_with_service(a) && a->state != AGGREGATOR_LOST)
            begin(a, by_ns);
        if (ends_with_service(a) && a->state != AGGREGATOR_LOST && !a->leaving)
            /* without memory for a planned end the aggregator is drained at once */
            aggregator_drain(a);
    }
    leaving_check_done(s);
}
