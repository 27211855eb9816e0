/* Turns changes of workers into resizes of the job in training, stored orders, and messages to the
 * pool. A start is stored before it is sent, and sent again until the pool has reported the process
 * (SL3). A job is resized to more workers before a new worker starts, and to fewer workers before a
 * worker gets the order to leave. */
#include "svc/base/log.h"
#include "svc/coordinator/membership/membership.h"
#include "svc/coordinator/slots/internal.h"

#include <errno.h>
#include <string.h>

/* --- the size of the job in training --- */

static bool slots_stays(const struct slots_job *job, uint32_t rank)
{
    const struct slots_worker *worker = &job->workers[rank];
    bool is_startable = worker->state == SLOTS_WANTED && job->pool->peer;
    return !worker->is_leaving && (worker->state > SLOTS_WANTED || is_startable);
}

static uint32_t slots_size_of(const struct slots_job *job)
{
    uint32_t size = 0;
    for (uint32_t rank = 0; rank < job->reach; rank++)
        if (slots_stays(job, rank))
            size = rank + 1;
    return size;
}

/* Returns whether the training waits for an initial rank that has no process and has never joined.
 * A resize to the present size ends this wait (K45). */
static bool slots_lacks_founder(const struct slots_job *job, const struct job *of)
{
    for (uint32_t rank = 0; rank < of->ranks->founding && rank < job->workers_max; rank++)
        if (!of->sessions[rank] && job->workers[rank].state == SLOTS_NONE)
            return true;
    return false;
}

/* Returns whether a worker with a rank of `first` or higher was ordered to leave. Lost workers do
 * not count: the size includes their ranks, because their next processes start soon. */
static bool slots_has_leaving(const struct slots_job *job, uint32_t first)
{
    for (uint32_t rank = first; rank < job->reach; rank++)
        if (job->workers[rank].is_leaving)
            return true;
    return false;
}

/* Returns the number of workers for the next resize of the job; 0: no resize is needed. */
static uint32_t slots_next_size(const struct slots_job *job, const struct job *of)
{
    uint32_t size = slots_size_of(job), before = of->ranks->wanted;
    if (of->failure || !of->terms->is_elastic || job->is_ending || job->is_complete || size == 0 ||
        size > of->workers)
        return 0;
    if (size > before || (size < before && slots_has_leaving(job, size)))
        return size;
    return slots_lacks_founder(job, of) ? before : 0;
}

static void slots_set_size(struct slots_job *job, struct job *of)
{
    struct slots_site *site = job->pool->site;
    uint32_t size = slots_next_size(job, of), before = of->ranks->wanted;
    struct err err;
    if (size == 0)
        return;
    if (members_resize_to(of, size, NULL, &err) < 0)
        return log_error("job %s was not resized: %s", job->name, err.text);
    site->grown += size > before;
    site->shrunk += size < before;
}

/* --- orders --- */

static void slots_send(const struct slots_job *job, WIRE(PoolOrder) order)
{
    WIRE(PoolOrder) * list[] = {&order};
    WIRE(PoolOrders) orders = MESSAGE_PART(PoolOrders, pool_orders, .n_orders = 1, .orders = list);
    order.job = job->name;
    if (job->pool->peer)
        peer_send(job->pool->peer, &ENVELOPE(0, POOL_ORDERS, pool_orders, &orders));
}

static void slots_send_over(const struct slots_job *job)
{
    slots_send(job,
               MESSAGE_PART(PoolOrder, pool_order, .verb = GRADPOOL__WIRE__POOL_VERB__POOL_OVER,
                            .text = (char *)job->end_text, .code = job->end_code));
}

void slots_send_end(const struct slots_job *job, uint32_t rank, uint64_t incarnation)
{
    slots_send(job, MESSAGE_PART(PoolOrder, pool_order, .verb = GRADPOOL__WIRE__POOL_VERB__POOL_END,
                                 .rank = rank, .incarnation = incarnation,
                                 .text = "the service does not know this start of the rank"));
}

void slots_send_rest(const struct slots_job *job, bool rests)
{
    slots_send(job, MESSAGE_PART(PoolOrder, pool_order,
                                 .verb = rests ? GRADPOOL__WIRE__POOL_VERB__POOL_RESTS
                                               : GRADPOOL__WIRE__POOL_VERB__POOL_GOES_ON));
}

/* Sets the initial size of the job: the number of workers that have slots now. Later workers start
 * after the first worker has joined, because only then the job can be resized. Until then the job
 * gets no more slots (SL25). */
static void slots_set_first(struct slots_job *job, const struct job *of)
{
    uint32_t wanted = 0;
    for (uint32_t rank = 0; rank < job->reach; rank++) {
        if (job->workers[rank].state > SLOTS_WANTED)
            return;
        wanted += job->workers[rank].state == SLOTS_WANTED && !job->workers[rank].is_leaving;
    }
    if (of || wanted == 0)
        return;
    job->first = wanted;
    slots_decide(
        job->pool->site,
        (struct scheduler_event){.kind = SCHEDULER_LANES_LIMIT, .job = job->id, .workers = wanted});
}

static bool slots_may_start(const struct slots_job *job, const struct job *of, uint32_t rank)
{
    if (!job->pool->peer || job->pool->service->phase != SERVICE_UP || job->is_ending)
        return false;
    if (!of)
        return rank < job->first;
    return !of->failure && rank < (of->terms->is_elastic ? of->ranks->wanted : of->workers);
}

/* Stores the order before it is sent: from then on a worker with an older incarnation is refused
 * (SL2). If the store fails, the next check tries again. */
static void slots_order_start(struct slots_job *job, uint32_t rank)
{
    struct slots_worker *worker = &job->workers[rank];
    if (worker->state == SLOTS_WANTED) {
        worker->state = SLOTS_ORDERED;
        worker->incarnation = slots_next_incarnation(job->pool->service);
        if (slots_worker_keep(job, rank) < 0) {
            worker->state = SLOTS_WANTED;
            worker->incarnation = 0;
            return;
        }
    }
    worker->start_sent = true;
    slots_send(job,
               MESSAGE_PART(PoolOrder, pool_order, .verb = GRADPOOL__WIRE__POOL_VERB__POOL_START,
                            .rank = rank, .incarnation = worker->incarnation, .slot = worker->slot,
                            .workers = job->first, .workers_max = job->workers_max));
}

static void slots_order_leave(struct slots_job *job, uint32_t rank)
{
    struct slots_worker *worker = &job->workers[rank];
    if (!worker->leave_stored && slots_worker_keep(job, rank) < 0)
        return;
    worker->leave_stored = true;
    if (!job->pool->peer)
        return;
    worker->leave_sent = true;
    slots_send(job, MESSAGE_PART(PoolOrder, pool_order,
                                 .verb = job->is_ending ? GRADPOOL__WIRE__POOL_VERB__POOL_END
                                                        : GRADPOOL__WIRE__POOL_VERB__POOL_LEAVE,
                                 .rank = rank, .incarnation = worker->incarnation,
                                 .text = job->is_ending ? job->end_text : ""));
}

static bool slots_awaits_start(const struct slots_worker *worker)
{
    return (worker->state == SLOTS_WANTED || worker->state == SLOTS_ORDERED) &&
           !worker->start_sent && !worker->is_leaving;
}

static bool slots_awaits_leave(const struct slots_job *job, const struct slots_worker *worker)
{
    return worker->state > SLOTS_WANTED && worker->is_leaving &&
           (!worker->leave_stored || (!worker->leave_sent && job->pool->peer));
}

/* Orders starts and leaves. The lowest rank starts first; the highest rank leaves first. */
static void slots_order(struct slots_job *job, const struct job *of)
{
    for (uint32_t rank = 0; rank < job->reach; rank++)
        if (slots_awaits_start(&job->workers[rank]) && slots_may_start(job, of, rank))
            slots_order_start(job, rank);
    for (uint32_t rank = job->reach; rank-- > 0;)
        if (slots_awaits_leave(job, &job->workers[rank]))
            slots_order_leave(job, rank);
}

/* --- the end of a job --- */

void slots_job_over(struct slots_job *job)
{
    struct slots_pool *pool = job->pool;
    struct service *s = pool->service;
    struct store_row row;
    struct err err;
    log_info("job %s of the pool on %s is over: %s", job->name, pool->node,
             *job->end_text ? job->end_text : "its training is complete");
    slots_job_row(job, &row);
    if (store_erase_one(s->store, &row, &err) < 0)
        log_error("job %s was not deleted: %s", job->name, err.text);
    slots_send_over(job);
    slots_decide(pool->site, (struct scheduler_event){.kind = SCHEDULER_ENDED, .job = job->id});
    s->works->slots->jobs_count--;
    slots_job_free(job);
    slots_pool_check(pool);
    s->on->service->view_has_changed(s);
}

/* --- all jobs --- */

/* Frees the slots of workers that have to leave before their start was ordered. */
static void slots_cancel(struct slots_job *job)
{
    for (uint32_t rank = 0; rank < job->reach; rank++)
        if (job->workers[rank].state == SLOTS_WANTED && job->workers[rank].is_leaving)
            slots_worker_out(job, rank);
}

/* Returns whether the job has ended: the training is complete, or the job was ordered to end, and
 * no worker is left. */
static bool slots_is_over(const struct slots_job *job)
{
    struct scheduler_view view;
    if (slots_job_count_workers(job) > 0)
        return false;
    return job->is_complete || scheduler_view(job->pool->site->scheduler, job->id, &view) < 0;
}

static void slots_carry_out_job(struct slots_job *job)
{
    slots_cancel(job);
    if (slots_is_over(job))
        return slots_job_over(job);
    struct job *of = slots_training(job);
    if (of) {
        slots_set_size(job, of);
        slots_rest_carry_out(job, of);
    }
    slots_set_first(job, of);
    slots_order(job, of);
}

void slots_carry_out(struct slots_site *site)
{
    struct service *s = site->service;
    do {
        site->has_news = false;
        list_for_each_safe_entry (struct slots_job, job, &s->works->slots->jobs, link)
            if (job->pool->site == site)
                slots_carry_out_job(job);
    } while (site->has_news);
    if (!list_is_empty(&s->works->slots->jobs) && list_is_empty(&s->works->slots->look.link))
        timer_start(s->loop, &s->works->slots->look, clock_now_ns() + SLOTS_LOOK_NS);
}
