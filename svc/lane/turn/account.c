/* Accounts of the lane's time by job and piece: charged time, beginnings and ends of rounds,
 * waiting times. The functions change no other state, allocate no memory, and lock no mutex.
 * RULES.md: A9, A11, A22. */
#include "svc/lane/turn/account.h"

#include "svc/base/clock.h"
#include "svc/lane/turn/policy.h"

/* Cost of handling one event, in addition to its bytes. The unit is a byte: the cost of
 * transferring one byte. */
#define EVENT_BYTES 4096
/* Cost of checking a connection in a poll, in the unit of EVENT_BYTES. */
#define LOOK_BYTES 256

static struct lane_job *payer(const struct fabric_event *event)
{
    const struct worker *w = event->owner;
    return w ? w->job : NULL;
}

/* Returns the transfer whose read or write has completed, or NULL for other events. */
static const struct transfer *moved(const struct fabric_event *event)
{
    bool is_moved = event->kind == FABRIC_EVENT_READ || event->kind == FABRIC_EVENT_WRITTEN;
    struct lane_job *job = payer(event);
    return is_moved && job ? job_transfer(job, event->context) : NULL;
}

static uint64_t weight(const struct fabric_event *event)
{
    const struct transfer *t = moved(event);
    if (!payer(event))
        return 0;
    return EVENT_BYTES + (t ? piece_bytes(t->piece, t->elements) : event->bytes);
}

void account_bill(struct lane_job *job, uint64_t ns)
{
    job->busy_ns += ns;
    job->lane->busy_ns += ns;
    policy_pay(job, ns);
}

void account_apart(struct lane_job *job, uint64_t ns)
{
    account_bill(job, ns);
    job->lane->apart_ns += ns;
}

/* ---- checks of connections ---- */

static uint32_t looked_at(const struct lane_job *job)
{
    uint32_t most = FABRIC_GROUP_LOOKS_MAX;
    return job->looks.connections < most ? job->looks.connections : most;
}

void account_looks(struct lane_job *job)
{
    if (job->looks.paid_ns == job->lane->looks.each_ns)
        return;
    double owed_ns = (job->lane->looks.each_ns - job->looks.paid_ns) * looked_at(job);
    job->looks.paid_ns = job->lane->looks.each_ns;
    if (owed_ns >= 1)
        account_bill(job, (uint64_t)owed_ns);
}

void account_connection(struct lane_job *job, const struct fabric *fabric, int more)
{
    if (job->lane->options.fabrics_count == 0 || !fabric_maps(fabric))
        /* the fabrics are closed, or do not use shared memory, so polls check no connection */
        return;
    account_looks(job);
    job->lane->looks.connections -= looked_at(job);
    job->looks.connections += (uint32_t)more;
    job->lane->looks.connections += looked_at(job);
}

static void charge(const struct fabric_event *event, uint64_t ns)
{
    struct lane_job *job = payer(event);
    const struct transfer *t = moved(event);
    account_looks(job);
    account_bill(job, ns + event->spent_ns);
    job->lane->helped_ns += event->spent_ns;
    if (t)
        t->piece->busy_ns += ns;
}

void account_events(struct lane *lane, size_t fabric, const struct fabric_event *events, int count,
                    uint64_t spent_ns)
{
    bool has_looks = fabric_maps(lane->options.fabrics[fabric]);
    uint64_t total = 0, looks = has_looks ? (uint64_t)lane->looks.connections * LOOK_BYTES : 0;
    lane->unshared_ns[fabric] += spent_ns;
    if (count == 0)
        return;
    for (int i = 0; i < count; i++)
        total += weight(&events[i]);
    total += looks;
    double ns_per_weight = total ? (double)lane->unshared_ns[fabric] / (double)total : 0;
    for (int i = 0; i < count; i++) {
        uint64_t paid = weight(&events[i]);
        if (paid > 0)
            charge(&events[i], (uint64_t)((double)paid * ns_per_weight));
    }
    if (looks > 0)
        lane->looks.each_ns += LOOK_BYTES * ns_per_weight;
    /* the time of events without a job, such as requests to connect, is charged to no job */
    lane->unshared_ns[fabric] = 0;
    lane->heard = fabric;
}

/* Charges a poll to the piece of the job's newest chunk, because the bytes that the poll has
 * transferred belong to the newest chunks. */
void account_polled(struct fabric_group *group, uint64_t polled_ns, uint64_t helped_ns)
{
    struct lane_job *job = container_of(group, struct lane_job, group);
    account_bill(job, polled_ns + helped_ns);
    job->lane->billed_ns += polled_ns;
    job->lane->helped_ns += helped_ns;
    if (job->worked)
        job->worked->busy_ns += polled_ns;
}

/* Chooses the piece whose rounds count as the job's rounds: the piece with the most lane time.
 * Another piece replaces this piece only if it has much more lane time, because pieces with equal
 * times would otherwise alternate. */
static void choose_reference(struct piece *p)
{
    struct lane_job *job = p->job;
    const struct piece *now = job->reference;
    if (!now || p->busy_ns > now->busy_ns + now->busy_ns / 4)
        job->reference = p;
}

void account_turn(struct lane_job *job, uint64_t spent_ns)
{
    struct piece *p = job->worked;
    job->lane->now_ns += spent_ns; /* pieces that wait have also waited during this turn */
    if (!p)
        return;
    p->busy_ns += spent_ns;
    choose_reference(p);
}

/* Begins a round. If some piece is still in the previous round, the previous round is not counted,
 * because the two rounds overlap and the end of the previous round is unknown. */
static void begin_round(struct job_ending *ending, uint64_t round, uint64_t now_ns)
{
    bool is_over = ending->at_work == 0;
    if (is_over && ending->begun_ns > 0 && ending->done_ns >= ending->begun_ns) {
        ending->sums.rounds++;
        ending->sums.span_ns += ending->done_ns - ending->begun_ns;
        ending->sums.burst_ns += ending->burst_ns;
    }
    ending->round = round;
    ending->begun_ns = is_over ? now_ns : 0;
}

/* Returns the time of the turn in progress. This time is needed, because a round may end and the
 * next one begin within one turn. */
static uint64_t turn_ns(const struct lane_job *job)
{
    return job->turn_since_ns > 0 ? clock_now_ns() - job->turn_since_ns : 0;
}

void account_started(struct piece *p)
{
    uint64_t now_ns = p->job->lane->now_ns + turn_ns(p->job);
    if (p->ready_ns > 0 && now_ns > p->ready_ns)
        p->job->queue_ns += now_ns - p->ready_ns;
    p->ready_ns = 0;
}

void account_ready(struct piece *p, bool begins)
{
    struct job_ending *ending = &p->job->ending;
    uint64_t taken_ns = turn_ns(p->job);
    p->ready_ns = p->job->lane->now_ns + taken_ns;
    if (!begins)
        return;
    p->gap_ns = p->begun_rounds > 0 ? p->ready_ns - p->begun_ns : 0;
    p->begun_rounds++;
    p->begun_ns = p->ready_ns;
    /* lane.now_ns was read before the events were handled, so it does not include the time of this
     * work. */
    uint64_t from_ns = p->ready_ns > ending->done_ns ? p->ready_ns : ending->done_ns;
    if (p->round > ending->round)
        begin_round(ending, p->round, from_ns);
    if (ending->at_work == 0) {
        ending->burst_from_ns = p->job->busy_ns + taken_ns;
        ending->handled_from_ns = from_ns;
    }
    ending->at_work++;
    p->is_at_work = true;
}

void account_done(struct piece *p)
{
    struct job_ending *ending = &p->job->ending;
    if (!p->is_at_work)
        return;
    p->is_at_work = false;
    ending->at_work--;
    if (ending->at_work > 0)
        return;
    ending->done_ns = clock_now_ns(); /* lane.now_ns is too old here, because a turn may be long */
    ending->burst_ns = p->job->busy_ns + turn_ns(p->job) - ending->burst_from_ns;
    if (ending->done_ns > ending->handled_from_ns)
        ending->handled_ns += ending->done_ns - ending->handled_from_ns;
}

void account_forget(struct piece *p)
{
    account_done(p);
    if (p->job->worked == p)
        p->job->worked = NULL;
    if (p->job->reference == p)
        p->job->reference = NULL; /* the next piece with lane time becomes the reference */
}
