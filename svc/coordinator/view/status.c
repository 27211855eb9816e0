/* Replies to `gradpool status` and `gradpool jobs`. The coordinator first requests counters from
 * the aggregators. If an aggregator does not answer in time, its last counters are shown. Each
 * answer is built in a turn of the requesting peer, which is charged for the time (K99). */
#include "svc/coordinator/view/status.h"

#include "svc/base/cleanup.h"
#include "svc/coordinator/aggregator/ping.h"
#include "svc/coordinator/job/counts.h"
#include "svc/coordinator/job/members.h"
#include "svc/coordinator/job/quota.h"
#include "svc/coordinator/job/share.h"
#include "svc/coordinator/measure/measure.h"
#include "svc/coordinator/membership/membership.h"
#include "svc/coordinator/placement/neighbour.h"
#include "svc/coordinator/service.h"
#include "svc/coordinator/session/session.h"
#include "svc/coordinator/session/wait.h"
#include "svc/coordinator/slots/slots.h"
#include "svc/coordinator/stage/stage.h"
#include "svc/coordinator/table/views.h"
#include "svc/coordinator/view/lanes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define VIEW_DEADLINE_NS NS_PER_S

struct view {
    bool is_jobs;
    bool is_ready;                    /* the answer is sent in the peer's next turn */
    uint64_t look;                    /* number of the measurement for which the request waits */
    char job[JOB_NAME_BYTES_MAX + 1]; /* "": all jobs */
};

/* --- figures --- */

/* Adds the counters of a lane if they are from the newest round of any lane. Older counters are
 * skipped, and a newer round replaces the sum. */
static void add_measured(WIRE(JobUse) * total, const WIRE(JobUse) * use)
{
    if (use->squares_round < total->squares_round)
        return;
    bool is_newer = use->squares_round > total->squares_round;
    total->squares_round = use->squares_round;
    total->squares_inputs = use->squares_inputs;
    total->input_squares = use->input_squares + (is_newer ? 0 : total->input_squares);
    total->result_squares = use->result_squares + (is_newer ? 0 : total->result_squares);
    total->losses = use->losses + (is_newer ? 0 : total->losses);
    total->loss_sum = use->loss_sum + (is_newer ? 0 : total->loss_sum);
}

/* Adds the counters of a lane. The memory of the workers is counted once, because every lane
 * reports the same memory. */
static void add_use(WIRE(JobUse) * total, const WIRE(JobUse) * use)
{
    if (!use)
        return;
    total->heap_bytes += use->heap_bytes;
    if (use->registered_bytes > total->registered_bytes)
        total->registered_bytes = use->registered_bytes;
    if (use->registered_regions > total->registered_regions)
        total->registered_regions = use->registered_regions;
    total->busy_ns += use->busy_ns;
    total->queue_ns += use->queue_ns;
    total->handled_ns += use->handled_ns;
    total->stalled_ns += use->stalled_ns;
    total->states += use->states;
    total->copied += use->copied;
    total->empty += use->empty;
    total->pushed_bytes += use->pushed_bytes;
    total->rounds += use->rounds;
    total->connections += use->connections;
    add_measured(total, use);
}

static int compare_numbers(const void *a, const void *b)
{
    uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
    return left < right ? -1 : left > right;
}

struct place {
    uint32_t lane, task;
};

static int compare_places(const void *a, const void *b)
{
    const struct place *left = a, *right = b;
    int by_lane = compare_numbers(&left->lane, &right->lane);
    return by_lane ? by_lane : compare_numbers(&left->task, &right->task);
}

/* Lists the tasks of the job without repetitions, sorted by lane. Returns their number. The caller
 * frees the list. */
static size_t places_of(const struct job *job, struct place **ret_places)
{
    size_t count = 0, different = 0;
    struct place *places = *ret_places = calloc(job->index->pieces_count + 1, sizeof *places);
    job_each_piece (piece, tensor, job)
        if (places && piece->lane)
            places[count++] = (struct place){piece->lane->id, piece->task};
    if (count > 0)
        qsort(places, count, sizeof *places, compare_places);
    for (size_t i = 0; i < count; i++)
        if (i == 0 || compare_places(&places[i], &places[i - 1]) != 0)
            places[different++] = places[i];
    return different;
}

static uint32_t count_tasks(const struct job *job)
{
    struct place *places;
    size_t count = places_of(job, &places);
    free(places);
    return (uint32_t)count;
}

/* --- status --- */

/* Returns the tenant whose jobs the reader may see; NULL: all jobs, because the reader is an
 * operator or the display. */
static const struct tenant *limit_of(const struct peer *reader)
{
    return !reader || reader->is_operator ? NULL : reader->tenant;
}

/* Builds a row. A tenant sees only the lanes with its own pieces. */
static WIRE(AggregatorView) * aggregator_view(struct pool *pool, struct service *s,
                                              const struct aggregator *a, const struct tenant *only)
{
    WIRE(AggregatorView) *view = pool_take(pool, sizeof *view);
    WIRE(LaneView) **lanes = pool_take(pool, a->lanes_count * sizeof *lanes);
    if (!view || !lanes)
        return NULL;
    *view = MESSAGE_PART(AggregatorView, aggregator_view, .aggregator = a->id, .node = a->node,
                         .pid = only ? 0 : a->pid, .state = (char *)aggregator_state_name(a),
                         .silent_ns = liveness_silent_ns(a),
                         .cpu_ns = a->stats && !only ? a->stats->stats_reply->cpu_ns : 0,
                         .measured_ns = a->stats ? a->measured_ns - s->identity->started_ns : 0,
                         .lanes = lanes);
    for (size_t i = 0; i < a->lanes_count; i++)
        if (view_lane_is_shown(&a->lanes[i], only) &&
            (lanes[view->n_lanes] = view_lane(pool, &a->lanes[i], only)))
            view->n_lanes++;
    return view;
}

static size_t list_length(const struct list *head)
{
    size_t length = 0;
    list_for_each (node, head)
        length++;
    return length;
}

static WIRE(LaneView) * find_lane(const WIRE(StatusReply) * reply, uint32_t lane)
{
    for (size_t a = 0; a < reply->n_aggregators; a++)
        for (size_t i = 0; i < reply->aggregators[a]->n_lanes; i++)
            if (reply->aggregators[a]->lanes[i]->lane == lane)
                return reply->aggregators[a]->lanes[i];
    return NULL;
}

/* Counts tasks in one pass over each job's pieces, for any number of lanes (K2). */
static void fill_tasks(const struct service *s, const struct tenant *only,
                       WIRE(StatusReply) * reply)
{
    list_for_each_entry (const struct job, job, &s->jobs, link) {
        struct place *places;
        WIRE(LaneView) *view = NULL;
        if (only && job->tenant != only)
            continue;
        size_t count = places_of(job, &places);
        for (size_t i = 0; i < count; i++) {
            bool is_next = i == 0 || places[i].lane != places[i - 1].lane;
            if (is_next && (view = find_lane(reply, places[i].lane)))
                view->jobs++;
            if (view)
                view->tasks++;
        }
        reply->tasks += (uint32_t)count;
        reply->jobs++;
        free(places);
    }
}

/* Adds the recorded events. Only operators may see events, because events name jobs of all
 * tenants. */
static void fill_events(struct pool *pool, const struct service *s, WIRE(StatusReply) * reply)
{
    uint64_t ever = s->events->count, first = ever > EVENTS_KEPT ? ever - EVENTS_KEPT : 0;
    reply->events = pool_take(pool, (ever - first) * sizeof *reply->events);
    for (uint64_t i = first; i < ever && reply->events; i++) {
        const struct event *note = events_at(s->events, i);
        WIRE(EventView) *event = pool_take(pool, sizeof *event);
        if (!event)
            return;
        *event = MESSAGE_PART(EventView, event_view, .at_ns = note->at_ns - s->identity->started_ns,
                              .kind = (char *)note->kind, .text = (char *)note->text);
        reply->events[reply->n_events++] = event;
    }
}

static void fill_payers(struct pool *pool, const struct service *s, WIRE(StatusReply) * reply)
{
    reply->tenants = pool_take(pool, list_length(&s->door->tenants) * sizeof *reply->tenants);
    list_for_each_entry (const struct tenant, tenant, &s->door->tenants, link) {
        WIRE(TenantUse) *use = reply->tenants ? pool_take(pool, sizeof *use) : NULL;
        if (!use)
            return;
        *use = MESSAGE_PART(TenantUse, tenant_use, .tenant = (char *)tenant->key.tenant,
                            .cpu_ns = tenant->party.cpu_ns);
        reply->tenants[reply->n_tenants++] = use;
    }
}

static void fill_for_operators(struct pool *pool, struct service *s, WIRE(StatusReply) * reply)
{
    reply->state_dir = (char *)s->options->state_dir;
    reply->policy = (char *)s->options->policy;
    reply->pid = (uint32_t)getpid();
    reply->cpu_ns = clock_process_cpu_ns();
    fill_events(pool, s, reply);
    fill_payers(pool, s, reply);
    reply->settings = s->identity->settings->list;
    reply->n_settings = s->identity->settings->count;
}

static void fill_status(struct pool *pool, struct service *s, const struct tenant *only,
                        WIRE(StatusReply) * reply)
{
    reply->endpoint = s->identity->endpoint_url;
    reply->uptime_ns = clock_now_ns() - s->identity->started_ns;
    reply->incarnation = s->numbers->incarnation;
    reply->own_only = only != NULL;
    if (!only)
        fill_for_operators(pool, s, reply);
    reply->aggregators = pool_take(pool, list_length(&s->aggregators) * sizeof *reply->aggregators);
    if (!reply->aggregators)
        return;
    list_for_each_entry (const struct aggregator, a, &s->aggregators, link) {
        WIRE(AggregatorView) *view = aggregator_view(pool, s, a, only);
        if (view && (!only || view->n_lanes > 0))
            reply->aggregators[reply->n_aggregators++] = view;
    }
    fill_tasks(s, only, reply);
}

/* --- jobs --- */

static void fill_workers(struct pool *pool, const struct job *job, WIRE(JobView) * view)
{
    view->ranks = pool_take(pool, job->workers * sizeof *view->ranks);
    for (uint32_t rank = 0; view->ranks && rank < job->workers; rank++) {
        const struct session *session = job->sessions[rank];
        WIRE(WorkerView) *worker = session ? pool_take(pool, sizeof *worker) : NULL;
        if (!worker)
            continue;
        bool enters = session->state == SESSION_JOINED && members_is_new(job, rank);
        enum session_state state = session->has_failed ? SESSION_LOST : session->state;
        *worker = MESSAGE_PART(
            WorkerView, worker_view, .rank = rank, .node = session->node, .pid = session->pid,
            .state = enters ? (char *)"entering" : (char *)session_state_name(state),
            .was_removed = session->was_removed);
        view->ranks[view->n_ranks++] = worker;
    }
}

static void *take_from_pool(void *pool, size_t bytes) { return pool_take(pool, bytes); }

static void fill_counts(struct pool *pool, const struct job *job, WIRE(JobUse) * use)
{
    WIRE(RoundCounts) sum = GRADPOOL__WIRE__ROUND_COUNTS__INIT;
    if (!counts_sum(job, take_from_pool, pool, &sum) || pool->failed)
        return;
    use->counts = pool_take(pool, sizeof *use->counts);
    if (use->counts)
        *use->counts = sum;
}

static void fill_lanes(struct pool *pool, const struct job *job, WIRE(JobView) * view)
{
    view->lanes = pool_take(pool, job->shares_count * sizeof *view->lanes);
    view->use = pool_take(pool, sizeof *view->use);
    if (!view->lanes || !view->use)
        return;
    const struct left_behind *left = job->left;
    *view->use = MESSAGE_PART(JobUse, job_use, .job_id = job->id, .rounds = left->rounds,
                              .pushed_bytes = left->pushed_bytes, .busy_ns = left->busy_ns,
                              .queue_ns = left->queue_ns, .handled_ns = left->handled_ns,
                              .stalled_ns = left->stalled_ns);
    for (size_t i = 0; i < job->shares_count; i++) {
        add_use(view->use, jobs_use_of(job, &job->shares[i]));
        if (job->shares[i].pieces > 0)
            view->lanes[view->n_lanes++] = job->shares[i].lane->id;
    }
    qsort(view->lanes, view->n_lanes, sizeof *view->lanes, compare_numbers);
    fill_counts(pool, job, view->use);
}

/* Sets the uses of limits that only lanes know: for each limit, the largest value of any lane. */
static void add_lent(const struct job *job, struct quota *quota)
{
    WIRE(JobUse) use = MESSAGE_PART(JobUse, job_use, .job_id = job->id);
    for (size_t i = 0; i < job->shares_count; i++) {
        uint64_t before = use.heap_bytes;
        add_use(&use, jobs_use_of(job, &job->shares[i]));
        if (use.heap_bytes - before > quota->used[LIMIT_JOB_MEMORY])
            quota->used[LIMIT_JOB_MEMORY] = use.heap_bytes - before;
    }
    quota->used[LIMIT_JOB_LENT] = use.registered_bytes;
    quota->used[LIMIT_JOB_REGIONS] = use.registered_regions;
}

static void fill_limits(struct pool *pool, const struct job *job, WIRE(JobView) * view)
{
    const struct limits *limits = &job->tenant->limits;
    struct quota own, of_tenant;
    WIRE(LimitUse) *rows = pool_take(pool, LIMITS * sizeof *rows);
    view->limits = pool_take(pool, LIMITS * sizeof *view->limits);
    if (!rows || !view->limits)
        return;
    quota_of_job(job, &own);
    quota_of_tenant(job->service, job->tenant, &of_tenant);
    add_lent(job, &own);
    of_tenant.used[LIMIT_TENANT_REGIONS] = job->tenant->regions_most;
    of_tenant.used[LIMIT_TENANT_LENT] = job->tenant->lent_most;
    for (enum limit limit = 0; limit < LIMITS_OF_TENANT; limit++) {
        rows[limit] = quota_row(limits, limit, own.used[limit] + of_tenant.used[limit]);
        view->limits[view->n_limits++] = &rows[limit];
    }
}

void view_add_profile(WIRE(JobView) * view, const struct job *job,
                      const struct residents *residents)
{
    view->period_ns = job->profile->now.period_ns;
    view->alone_period_ns = job->profile->alone.period_ns;
    view->lane_ns = job_lane_ns(job);
    view->loss_ppm = profile_loss_ppm(job->profile);
    view->loss_limit_ppm = job_limit_ppm(job);
    view->durability = job->terms->durability;
    view->feedback_ns = job->figures->feedback_ns;
    view->predicted_loss_ppm = residents_loss_ppm(residents, job->id, 0);
    view->is_predicted = residents_predicted(residents, job);
}

static WIRE(JobView) * job_view(struct pool *pool, const struct job *job,
                                const struct residents *residents, bool is_whole,
                                size_t *tables_bytes)
{
    WIRE(JobView) *view = pool_take(pool, sizeof *view);
    if (!view)
        return NULL;
    *view = MESSAGE_PART(
        JobView, job_view, .job = job->name, .tenant = job->tenant->key.tenant, .job_id = job->id,
        .workers = job->terms->is_elastic ? members_count(job) : job->workers,
        .state = (char *)jobs_state(job), .failure = job->failure,
        .waits_for = job->waiting->waits_for, .tensors = (uint32_t)job->tensors_count,
        .tasks = count_tasks(job), .epoch = job->epoch, .shared_loss_ppm = job_shared_loss_ppm(job),
        .control_ns = session_control_ns(job),
        .wanted = job->terms->is_elastic ? job->ranks->wanted : 0);
    for (size_t i = 0; i < job->tensors_count; i++)
        view->tensor_bytes += tensor_bytes(job->tensors[i], job->tensors[i]->elements);
    view_add_profile(view, job, residents);
    fill_lanes(pool, job, view);
    /* pool->failed is set after an error */
    (void)table_views_add(job, take_from_pool, pool, tables_bytes, view);
    (void)stage_view_add(job, take_from_pool, pool, view);
    (void)slots_view_job(job, take_from_pool, pool, view);
    if (is_whole) {
        fill_workers(pool, job, view);
        fill_limits(pool, job, view);
    }
    return view;
}

/* Adds the rows. A tenant sees its own jobs, an operator all jobs. `reader` is NULL for the
 * display. The display sees all jobs, but no ranks and limits, which are the largest parts of a
 * row. */
static void fill_jobs(struct pool *pool, struct service *s, const struct peer *reader,
                      const char *name, WIRE(JobsReply) * reply)
{
    const struct tenant *only = limit_of(reader);
    struct residents residents = {0};
    size_t tables_bytes = TABLE_VIEWS_BYTES_MAX;
    reply->jobs = pool_take(pool, list_length(&s->jobs) * sizeof *reply->jobs);
    pool->failed = pool->failed || residents_gather(s, NULL, &residents) < 0 ||
                   residents_predict(s, &residents) < 0;
    if (pool->failed)
        return residents_free(&residents);
    quota_count_lent(s);
    list_for_each_entry (const struct job, job, &s->jobs, link) {
        bool is_visible = !only || job->tenant == only;
        if (!is_visible || (*name && strcmp(name, job->name) != 0))
            continue;
        reply->jobs[reply->n_jobs] = job_view(pool, job, &residents, reader != NULL, &tables_bytes);
        reply->n_jobs += reply->jobs[reply->n_jobs] != NULL;
    }
    residents_free(&residents);
    (void)slots_view_queued(s, only, name, take_from_pool, pool, reply);
    (void)slots_view_sites(s, take_from_pool, pool, reply);
    if (reader)
        (void)slots_view_ended(s, only, name, take_from_pool, pool, reply);
}

/* --- requests and answers --- */

static void answer(struct wait *wait)
{
    struct service *s = wait->peer->service;
    const struct view *view = wait->data;
    struct pool pool = {0};
    WIRE(StatusReply) status = MESSAGE_PART(StatusReply, status_reply);
    WIRE(JobsReply) jobs = MESSAGE_PART(JobsReply, jobs_reply);
    if (view->is_jobs)
        fill_jobs(&pool, s, wait->peer, view->job, &jobs);
    else
        fill_status(&pool, s, limit_of(wait->peer), &status);
    if (pool.failed)
        peer_fail_memory(wait->peer, wait->request);
    else if (view->is_jobs)
        peer_send(wait->peer, &ENVELOPE(wait->request, JOBS_REPLY, jobs_reply, &jobs));
    else
        peer_send(wait->peer, &ENVELOPE(wait->request, STATUS_REPLY, status_reply, &status));
    pool_free(&pool);
    wait_destroy(wait);
}

static void make_ready(struct wait *wait)
{
    ((struct view *)wait->data)->is_ready = true;
    peer_wait_for_turn(wait->peer);
}

void view_look_over(struct service *s, uint64_t look)
{
    list_for_each_entry (struct wait, wait, &s->door->waits, link)
        if (wait->expired == make_ready && ((struct view *)wait->data)->look <= look)
            make_ready(wait);
}

bool view_answer(struct peer *p)
{
    list_for_each_entry (struct wait, wait, &p->own_waits, own_link) {
        if (wait->expired != make_ready || !((struct view *)wait->data)->is_ready)
            continue;
        answer(wait);
        return true;
    }
    return false;
}

static void ask_all(struct peer *p, uint64_t request, bool is_jobs, const char *job)
{
    struct view *view = calloc(1, sizeof *view);
    if (!view)
        return peer_fail_memory(p, request);
    view->is_jobs = is_jobs;
    view->look = UINT64_MAX;
    memcpy(view->job, job, strlen(job));
    struct wait *wait = wait_create(p, request, VIEW_DEADLINE_NS, make_ready, view);
    if (!wait)
        return;
    view->look = looks_next(p->service);
    looks_ask(p->service);
}

void view_handle_status(struct peer *p, const envelope *request)
{
    ask_all(p, request->id, false, "");
}

void view_handle_jobs(struct peer *p, const envelope *request)
{
    const char *job = request->jobs_request->job;
    if (strlen(job) > JOB_NAME_BYTES_MAX)
        return peer_fail(p, request->id, -EINVAL, "a job's name has at most %d bytes",
                         JOB_NAME_BYTES_MAX);
    if (slots_may_look(p, request->id, request->jobs_request))
        ask_all(p, request->id, true, job);
}

/* --- for the display --- */

static envelope *received(const envelope *e)
{
    size_t bytes = gradpool__wire__envelope__get_packed_size(e);
    _cleanup_free_ uint8_t *packed = malloc(bytes);
    if (!packed)
        return NULL;
    gradpool__wire__envelope__pack(e, packed);
    return gradpool__wire__envelope__unpack(NULL, bytes, packed);
}

/* Packs and unpacks the messages to copy them, because the objects to which the originals point may
 * change. */
int view_build(struct service *s, envelope **ret_status, envelope **ret_jobs)
{
    struct pool pool = {0};
    WIRE(StatusReply) status = MESSAGE_PART(StatusReply, status_reply);
    WIRE(JobsReply) jobs = MESSAGE_PART(JobsReply, jobs_reply);
    envelope *first = NULL, *second = NULL;
    fill_status(&pool, s, NULL, &status);
    fill_jobs(&pool, s, NULL, "", &jobs);
    if (!pool.failed) {
        first = received(&ENVELOPE(0, STATUS_REPLY, status_reply, &status));
        second = first ? received(&ENVELOPE(0, JOBS_REPLY, jobs_reply, &jobs)) : NULL;
    }
    pool_free(&pool);
    if (!second) {
        gradpool__wire__envelope__free_unpacked(first, NULL);
        return -ENOMEM;
    }
    *ret_status = first;
    *ret_jobs = second;
    return 0;
}
