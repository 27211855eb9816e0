/* `gradpool explain` shows why each task of a job is on its lane. Only stored state is used: no
 * request is sent, and nothing changes. */
#include "svc/coordinator/view/explain.h"

#include "svc/base/cleanup.h"
#include "svc/coordinator/job/counts.h"
#include "svc/coordinator/job/hold.h"
#include "svc/coordinator/job/members.h"
#include "svc/coordinator/job/share.h"
#include "svc/coordinator/membership/membership.h"
#include "svc/coordinator/placement/ask_packer.h"
#include "svc/coordinator/placement/neighbour.h"
#include "svc/coordinator/placement/reason.h"
#include "svc/coordinator/service.h"
#include "svc/coordinator/slots/slots.h"
#include "svc/coordinator/stage/stage.h"
#include "svc/coordinator/table/views.h"
#include "svc/coordinator/view/status.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define QUEUED_BYTES 2048
#define TASKS_SHOWN_MAX 4096 /* maximum number of a job's tasks in a reply */

/* --- tasks --- */

struct explained_part {
    uint32_t task;
    size_t share; /* index in job->shares */
    uint64_t bytes;
    double lane_ns;
    const struct tensor *tensor;
};

static int compare_parts(const void *a, const void *b)
{
    const struct explained_part *left = a, *right = b;
    if (left->task != right->task)
        return left->task < right->task ? -1 : 1;
    return left->tensor->id < right->tensor->id ? -1 : left->tensor->id > right->tensor->id;
}

/* Returns the index of the lane's share. The search begins at `from`, because adjacent pieces are
 * often on the same lane. */
static size_t share_at(const struct job *job, const struct lane *lane, size_t from)
{
    size_t i = from;
    while (job->shares[i].lane != lane)
        i = (i + 1) % job->shares_count;
    return i;
}

static struct explained_part part_of(const struct tensor *tensor, const struct piece *piece,
                                     size_t share)
{
    double part = tensor->elements ? (double)piece->elements / (double)tensor->elements : 1;
    return (struct explained_part){.task = piece->task,
                                   .share = share,
                                   .bytes = tensor_bytes(tensor, piece->elements),
                                   .lane_ns = (double)tensor->lane_ns * part,
                                   .tensor = tensor};
}

/* Scales the times of tensors, which were measured once, to the present lane time. If no times of
 * tensors are known, lane time is divided in proportion to bytes. */
static int scale_parts(const struct job *job, struct explained_part *parts, size_t count)
{
    _cleanup_free_ double *lane_ns = calloc(2 * job->shares_count + 1, sizeof *lane_ns);
    if (!lane_ns)
        return -ENOMEM;
    double *tensors_ns = lane_ns + job->shares_count;
    for (size_t i = 0; i < job->shares_count; i++)
        tensors_ns[i] = (double)(job->shares[i].lane_ns - share_rows_ns(job, &job->shares[i]));
    for (size_t i = 0; i < count; i++)
        lane_ns[parts[i].share] += parts[i].lane_ns;
    for (size_t i = 0; i < count; i++) {
        const struct share *share = &job->shares[parts[i].share];
        double was_ns = lane_ns[parts[i].share], is_ns = tensors_ns[parts[i].share];
        if (was_ns > 0 && is_ns > 0)
            parts[i].lane_ns *= is_ns / was_ns;
        else if (share->bytes > 0)
            parts[i].lane_ns = is_ns * (double)parts[i].bytes / (double)share->bytes;
    }
    return 0;
}

/* Lists one part for each piece that has a lane, sorted by task. The caller frees the list. */
static int parts_of(const struct job *job, struct explained_part **ret_parts, size_t *ret_count)
{
    _cleanup_free_ struct explained_part *parts =
        calloc(job->index->pieces_count + 1, sizeof *parts);
    size_t count = 0, share = 0;
    job_each_piece (piece, tensor, job) {
        if (!parts || !piece->lane)
            continue;
        share = share_at(job, piece->lane, share);
        parts[count++] = part_of(tensor, piece, share);
    }
    if (!parts || scale_parts(job, parts, count) < 0)
        return -ENOMEM;
    if (count > 0)
        qsort(parts, count, sizeof *parts, compare_parts);
    *ret_parts = take_ptr(parts);
    *ret_count = count;
    return 0;
}

/* All messages are allocated with malloc(), so that free_unpacked() can free the whole reply. */
static WIRE(TaskChoice) *
    task_choice(const struct job *job, const struct explained_part *first, size_t count)
{
    WIRE(TaskChoice) *choice = malloc(sizeof *choice);
    double lane_ns = 0;
    if (!choice)
        return NULL;
    *choice = MESSAGE_PART(TaskChoice, task_choice, .task = first->task,
                           .lane = job->shares[first->share].lane->id,
                           .tensor = strdup(first->tensor->name));
    for (size_t i = 0; i < count; i++) {
        choice->bytes += first[i].bytes;
        lane_ns += first[i].lane_ns;
        choice->tensors += i == 0 || first[i].tensor != first[i - 1].tensor;
    }
    choice->lane_ns = (uint64_t)(lane_ns + 0.5);
    if (choice->tensor)
        return choice;
    free(choice);
    return NULL;
}

static WIRE(LaneChoice) * find_lane(const WIRE(ExplainedJob) * to, uint32_t lane)
{
    for (size_t i = 0; i < to->n_lanes; i++)
        if (to->lanes[i]->lane == lane)
            return to->lanes[i];
    return NULL;
}

static int add_tasks(const struct job *job, WIRE(ExplainedJob) * to)
{
    _cleanup_free_ struct explained_part *parts = NULL;
    size_t count = 0, end;
    int error = parts_of(job, &parts, &count);
    to->tasks = calloc(TASKS_SHOWN_MAX, sizeof *to->tasks);
    error = to->tasks ? error : -ENOMEM;
    for (size_t first = 0; error == 0 && first < count; first = end) {
        WIRE(LaneChoice) *lane = find_lane(to, job->shares[parts[first].share].lane->id);
        for (end = first; end < count && parts[end].task == parts[first].task;)
            end++;
        to->job->tasks++;
        if (lane)
            lane->tasks++;
        if (to->n_tasks == TASKS_SHOWN_MAX)
            continue;
        to->tasks[to->n_tasks] = task_choice(job, &parts[first], end - first);
        error = to->tasks[to->n_tasks] ? 0 : -ENOMEM;
        to->n_tasks += error == 0;
    }
    return error;
}

/* --- lanes --- */

/* Returns the reason for the placement, and why growth does not move the job. */
static char *why(const struct job *job, const struct share *share)
{
    char stay[SCALING_STAY_BYTES], hold[ORDER_HOLD_TEXT_BYTES], *text = NULL;
    const char *staying = scaling_stay_text(job, stay, sizeof stay);
    const char *holding = order_hold_text(job, hold, sizeof hold);
    int length = asprintf(&text, "%s%s%s%s%s", share_why(share->how), *staying ? "; " : "", staying,
                          *holding ? "; " : "", holding);
    return length < 0 ? NULL : text;
}

static WIRE(LaneChoice) *
    lane_choice(const struct job *job, const struct share *share, const struct residents *residents)
{
    WIRE(LaneChoice) *choice = malloc(sizeof *choice);
    if (!choice)
        return NULL;
    *choice = MESSAGE_PART(
        LaneChoice, lane_choice, .lane = share->lane->id, .other_jobs = share->lane->jobs - 1,
        .bytes = share->bytes, .lane_ns = share->lane_ns, .queue_ns = share->queue_ns,
        .handled_ns = share->handled_ns, .stalled_ns = share->stalled_ns,
        .predicted_loss_ppm = residents_loss_ppm(residents, job->id, share->lane->id),
        .why = why(job, share));
    if (choice->why)
        return choice;
    free(choice);
    return NULL;
}

static int add_lanes(const struct job *job, const struct residents *residents,
                     WIRE(ExplainedJob) * to)
{
    to->lanes = calloc(job->shares_count + 1, sizeof *to->lanes);
    if (!to->lanes)
        return -ENOMEM;
    for (size_t i = 0; i < job->shares_count; i++) {
        if (job->shares[i].pieces == 0)
            continue;
        to->lanes[to->n_lanes] = lane_choice(job, &job->shares[i], residents);
        if (!to->lanes[to->n_lanes])
            return -ENOMEM;
        to->n_lanes++;
    }
    return 0;
}

/* --- jobs --- */

/* Sums the newest counters of replicas over the lanes of the job. All other fields of the result
 * stay 0. */
static WIRE(JobUse) * count_copies(const struct job *job)
{
    WIRE(JobUse) *sum = malloc(sizeof *sum);
    if (!sum)
        return NULL;
    *sum = MESSAGE_PART(JobUse, job_use);
    for (size_t i = 0; i < job->shares_count; i++) {
        const WIRE(JobUse) *use = jobs_use_of(job, &job->shares[i]);
        sum->states += use ? use->states : 0;
        sum->copied += use ? use->copied : 0;
        sum->empty += use ? use->empty : 0;
    }
    return sum;
}

static void *take_zeroed(void *context, size_t bytes)
{
    (void)context;
    return calloc(1, bytes);
}

/* Adds the counts of a job with backup workers. */
static int add_counts(const struct job *job, WIRE(JobUse) * use)
{
    use->counts = malloc(sizeof *use->counts);
    if (!use->counts)
        return -ENOMEM;
    *use->counts = MESSAGE_PART(RoundCounts, round_counts);
    if (counts_sum(job, take_zeroed, NULL, use->counts))
        return 0;
    gradpool__wire__round_counts__free_unpacked(use->counts, NULL);
    use->counts = NULL;
    return 0;
}

static int add_figures(const struct job *job, const struct residents *residents, size_t *bytes_left,
                       WIRE(ExplainedJob) * to)
{
    WIRE(JobView) *view = to->job = malloc(sizeof *view);
    if (!view)
        return -ENOMEM;
    *view = MESSAGE_PART(JobView, job_view, .job = strdup(job->name),
                         .tenant = strdup(job->tenant->key.tenant), .job_id = job->id,
                         .workers = members_training(job), .tensors = (uint32_t)job->tensors_count,
                         .tensor_bytes = job->index->bytes, .use = count_copies(job));
    view_add_profile(view, job, residents);
    if (!view->job || !view->tenant || !view->use)
        return -ENOMEM;
    if (!table_views_add(job, take_zeroed, NULL, bytes_left, view) ||
        !stage_view_add(job, take_zeroed, NULL, view) ||
        !slots_view_job(job, take_zeroed, NULL, view))
        return -ENOMEM;
    return add_counts(job, view->use);
}

static int add_job(const struct job *job, const struct residents *residents, size_t *bytes_left,
                   WIRE(ExplainReply) * reply)
{
    WIRE(ExplainedJob) *to = malloc(sizeof *to);
    if (!to)
        return -ENOMEM;
    *to = MESSAGE_PART(ExplainedJob, explained_job);
    /* an incomplete job is added as well, so that it is freed with the reply */
    reply->jobs[reply->n_jobs++] = to;
    int error = add_figures(job, residents, bytes_left, to) ?: add_lanes(job, residents, to);
    return error < 0 ? error : add_tasks(job, to);
}

/* Fills the reply. A tenant sees its own jobs, an operator all jobs. */
static int fill(const struct peer *p, const char *name, WIRE(ExplainReply) * reply)
{
    const struct service *s = p->service;
    struct residents residents;
    size_t count = 1, bytes_left = TABLE_VIEWS_BYTES_MAX;
    list_for_each (node, &s->jobs)
        count++;
    reply->jobs = calloc(count, sizeof *reply->jobs);
    int error = reply->jobs ? residents_gather(s, NULL, &residents) : -ENOMEM;
    if (error < 0)
        return error;
    error = residents_predict(s, &residents);
    list_for_each_entry (const struct job, job, &s->jobs, link) {
        bool is_visible = p->is_operator || job->tenant == p->tenant;
        if (error == 0 && is_visible && strcmp(name, job->name) == 0)
            error = add_job(job, &residents, &bytes_left, reply);
    }
    residents_free(&residents);
    return error;
}

void explain_handle(struct peer *p, const envelope *request)
{
    WIRE(ExplainReply) *reply = malloc(sizeof *reply);
    char queued[QUEUED_BYTES];
    if (!reply)
        return peer_fail_memory(p, request->id);
    *reply = MESSAGE_PART(ExplainReply, explain_reply);
    slots_explain_queued(p->service, p->is_operator ? NULL : p->tenant,
                         request->explain_request->job, queued, sizeof queued);
    reply->queued = strdup(queued);
    if (!reply->queued || fill(p, request->explain_request->job, reply) < 0)
        peer_fail_memory(p, request->id);
    else
        peer_send(p, &ENVELOPE(request->id, EXPLAIN_REPLY, explain_reply, reply));
    gradpool__wire__explain_reply__free_unpacked(reply, NULL);
}
