/* Calls the packer with a description of jobs and lanes. The packer chooses the lanes; this file
 * decides only whether a refusal is final (K17). */
#include "svc/coordinator/placement/ask_packer.h"

#include "svc/base/cleanup.h"
#include "svc/base/hash.h"
#include "svc/base/log.h"
#include "svc/base/text.h"
#include "svc/coordinator/aggregator/lane.h"
#include "svc/coordinator/fleet/open_lanes.h"
#include "svc/coordinator/job/share.h"
#include "svc/coordinator/placement/budget.h"
#include "svc/coordinator/placement/neighbour.h"
#include "svc/coordinator/placement/shrinking.h"
#include "svc/coordinator/placement/waiting.h"
#include "svc/coordinator/service.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LANES_OF_ITS_OWN_PPM 10000 /* constant of rule L1 of the packer */

/* --- tensors --- */

/* Tensors whose lane time is unknown. lane_ns: lane time of all tensors of the job, minus the known
 * times of single tensors. bytes: sum of the sizes of the tensors without a known time. */
struct rest {
    uint64_t lane_ns, bytes;
};

static struct rest rest_of(const struct job *job)
{
    struct rest rest = {.lane_ns = job_tensors_ns(job)};
    job_each_tensor (tensor, job) {
        if (tensor->lane_ns == 0)
            rest.bytes += tensor_bytes(tensor, tensor->elements);
        rest.lane_ns -= tensor->lane_ns < rest.lane_ns ? tensor->lane_ns : rest.lane_ns;
    }
    return rest;
}

static uint64_t part_of(uint64_t whole, uint64_t part, uint64_t parts)
{
    return parts ? (uint64_t)((double)whole * ((double)part / (double)parts)) : 0;
}

static uint64_t tensor_lane_ns(const struct tensor *tensor, const struct rest *rest)
{
    return tensor->lane_ns
               ? tensor->lane_ns
               : part_of(rest->lane_ns, tensor_bytes(tensor, tensor->elements), rest->bytes);
}

void describe_tensors(const struct job *job, struct tensor *const *tensors, size_t count,
                      struct packer_tensor *ret_items)
{
    struct rest rest = rest_of(job);
    uint64_t piece_bytes = budgets_piece_bytes(job), wire_bytes = budgets_wire_bytes(job, 1);
    for (size_t i = 0; i < count; i++)
        ret_items[i] = (struct packer_tensor){
            .id = tensors[i]->id,
            .name_hash = hash_text(tensors[i]->name),
            .name = tensors[i]->name,
            .elements = tensors[i]->elements,
            .element_bytes = (uint32_t)tensor_bytes(tensors[i], 1),
            .state_bytes = budgets_tensor_bytes(tensors[i], piece_bytes),
            .wire_bytes = wire_bytes * tensor_bytes(tensors[i], tensors[i]->elements),
            .lane_ns = tensor_lane_ns(tensors[i], &rest)};
}

void describe_tasks(const struct job *job, const struct task *tasks, size_t count,
                    struct packer_tensor *ret_items)
{
    uint64_t lanes_ns = job_tensors_ns(job);
    for (size_t i = 0; i < count; i++) {
        char name[16];
        snprintf(name, sizeof name, "%u", tasks[i].id);
        ret_items[i] =
            (struct packer_tensor){.id = (uint32_t)i,
                                   .name_hash = hash_text(name),
                                   .elements = tasks[i].bytes,
                                   .element_bytes = 1,
                                   .lane_ns = part_of(lanes_ns, tasks[i].bytes, job->index->bytes)};
    }
}

void predict_shares(struct job *job)
{
    struct rest rest = rest_of(job);
    for (size_t i = 0; i < job->shares_count; i++)
        job->shares[i].lane_ns = 0;
    job_each_tensor (tensor, job) {
        uint64_t lane_ns = tensor_lane_ns(tensor, &rest);
        tensor_each_piece (piece, tensor) {
            struct share *share = piece->lane ? jobs_share(job, piece->lane) : NULL;
            if (share)
                share->lane_ns += part_of(lane_ns, piece->elements, tensor->elements);
        }
    }
}

/* --- lanes --- */

struct offer {
    struct packer_lane *lanes;
    size_t count;
    struct residents residents;
    struct budgets budgets;
};

static void offer_free(struct offer *offer)
{
    free(offer->lanes);
    residents_free(&offer->residents);
    budgets_free(&offer->budgets);
}

static int compare_lanes(const void *a, const void *b)
{
    uint32_t left = ((const struct packer_lane *)a)->id,
             right = ((const struct packer_lane *)b)->id;
    return left < right ? -1 : left > right;
}

static void describe_lane(const struct job *job, const struct lane *lane, struct budgets *budgets,
                          struct packer_lane *ret_lane)
{
    *ret_lane = (struct packer_lane){.id = lane->id,
                                     .state = lane->use == LANE_PARKED ? PACKER_LANE_PARKED
                                                                       : PACKER_LANE_OPEN,
                                     .jobs = lane->jobs,
                                     .load_bytes = lane->load_bytes,
                                     .numa = lane->numa};
    budgets_of_lane(budgets, lane, ret_lane);
    for (size_t i = 0; i < job->shares_count; i++) {
        if (job->shares[i].lane != lane || job->shares[i].pieces == 0)
            continue;
        ret_lane->job_bytes = job->shares[i].bytes;
        ret_lane->job_lane_ns = job->shares[i].lane_ns;
        ret_lane->jobs--;
    }
}

static void add_residents(struct offer *offer)
{
    for (size_t i = 0; i < offer->count; i++) {
        struct packer_lane *lane = &offer->lanes[i];
        size_t first;
        lane->residents_count = residents_of_lane(&offer->residents, lane->id, &first);
        lane->residents = offer->residents.jobs + first;
    }
}

static bool is_there(const struct lane *lane)
{
    return lane->aggregator->state == AGGREGATOR_UP && !lane->aggregator->is_stopping;
}

static bool is_for_new(enum ask_for why) { return why == ASK_FOR_NEW || why == ASK_FOR_SHARDS; }

static bool has_no_choice(enum ask_for why) { return why == ASK_FOR_LOST || why == ASK_FOR_ENDING; }

/* Returns whether the packer may use the lane. A closing lane is offered only for tasks that must
 * leave their lane; if such a task moves there, the lane stays open. */
static bool is_offered(const struct lane *lane, enum ask_for why)
{
    return is_there(lane) && (lane->use == LANE_OPEN || lane->use == LANE_PARKED ||
                              (lane->use == LANE_CLOSING && has_no_choice(why)));
}

/* Returns whether a drained lane of a connected aggregator may be used. A drained lane is used only
 * if the service has no other lane and the job would otherwise fail (K21). */
static bool is_last_resort(const struct lane *lane, enum ask_for why)
{
    return has_no_choice(why) && is_there(lane) && lane->use == LANE_WITHHELD;
}

static bool has_loss_limit(const char *policy)
{
    struct packer_resident nobody = {0};
    double none;
    return packer_losses(policy, &nobody, 0, &none) == 0;
}

/* Returns the number of lanes that the job could use, including lanes of aggregators that may
 * start. */
static size_t lanes_in_reach(const struct job *job)
{
    const struct service *s = job->service;
    size_t lanes = lanes_on_offer(s);
    for (size_t i = 0; i < s->fleet->slots_count; i++)
        lanes += fleet_may_start(&s->fleet->slots[i]) ? s->fleet->slots[i].lanes_count : 0;
    if (s->options->lanes_max > 0 && lanes > s->options->lanes_max)
        lanes = s->options->lanes_max;
    return lanes < job->workers ? lanes : job->workers;
}

void choose_piece_bytes(struct job *job)
{
    job->index->piece_bytes = piece_bytes_max(job->service);
    if (has_loss_limit(job->service->options->policy))
        job->index->piece_bytes =
            packer_piece_bytes(job->index->piece_bytes, job->index->bytes, lanes_in_reach(job));
}

size_t lanes_on_offer(const struct service *s)
{
    size_t count = 0;
    list_for_each_entry (const struct aggregator, a, &s->aggregators, link) {
        for (size_t i = 0; i < a->lanes_count; i++)
            count += is_offered(&a->lanes[i], ASK_FOR_NEW);
    }
    return count;
}

/* A measurement uses as many lanes as this function returns: one for each worker, or all lanes on
 * offer if there are fewer. The request to the packer has the period of such a measurement. On
 * fewer lanes the rounds of the job would delay each other (L3 of packer). */
size_t job_own_lanes(const struct job *job)
{
    size_t lanes = lanes_on_offer(job->service);
    return lanes == 0 || lanes > job->workers ? job->workers : lanes;
}

static size_t count_lanes(const struct service *s)
{
    size_t count = 1;
    list_for_each_entry (struct aggregator, a, &s->aggregators, link)
        count += a->lanes_count;
    for (size_t i = 0; i < s->fleet->slots_count; i++)
        count += s->fleet->slots[i].lanes_count;
    return count;
}

/* Adds the lanes of an aggregator that does not run yet. Returns how many of these lanes count as
 * open. */
static size_t add_slot(struct offer *offer, const struct slot *slot)
{
    bool is_coming = fleet_is_coming(slot);
    for (uint32_t i = 0; i < slot->lanes_count && (is_coming || fleet_may_start(slot)); i++)
        offer->lanes[offer->count++] = (struct packer_lane){
            .id = slot_lane(slot, i), .state = PACKER_LANE_UNSTARTED, .memory_bytes = UINT64_MAX};
    return is_coming ? slot->open_count : 0;
}

/* Removes lanes that are not open from the offer, so that at most `room` of them remain. */
static void leave_out_closed(struct offer *offer, size_t room)
{
    size_t kept = 0;
    for (size_t i = 0; i < offer->count; i++) {
        bool is_closed = offer->lanes[i].state != PACKER_LANE_OPEN;
        if (!is_closed || room > 0)
            offer->lanes[kept++] = offer->lanes[i];
        room -= is_closed && room > 0;
    }
    offer->count = kept;
}

/* Returns whether every worker of the job can share memory with the lane. */
static bool is_near(const struct job *job, const struct lane *lane)
{
    for (uint32_t rank = 0; rank < job->workers; rank++) {
        const struct session *session = job->sessions[rank];
        if (session && strcmp(session->node, lane->aggregator->node) != 0)
            return false;
    }
    return *lane->shm != '\0';
}

typedef bool (*lane_wanted_fn)(const struct lane *lane, enum ask_for why);

/* Returns whether the job prefers lanes that share memory with every worker. Only shards prefer
 * these lanes, and only if the service has such a lane. */
static bool prefers_near(const struct job *job, lane_wanted_fn wanted, enum ask_for why)
{
    list_for_each_entry (const struct aggregator, a, &job->service->aggregators, link) {
        for (size_t i = 0; why == ASK_FOR_SHARDS && i < a->lanes_count; i++)
            if (wanted(&a->lanes[i], why) && is_near(job, &a->lanes[i]))
                return true;
    }
    return false;
}

static void add_lanes(struct offer *offer, const struct job *job, lane_wanted_fn wanted,
                      enum ask_for why)
{
    bool must_be_near = prefers_near(job, wanted, why);
    list_for_each_entry (const struct aggregator, a, &job->service->aggregators, link) {
        for (size_t i = 0; i < a->lanes_count; i++)
            if (wanted(&a->lanes[i], why) && (!must_be_near || is_near(job, &a->lanes[i])))
                describe_lane(job, &a->lanes[i], &offer->budgets, &offer->lanes[offer->count++]);
    }
}

/* Offers connected lanes in ascending order. With `starts`, lanes of aggregators that could start
 * are also offered. */
static int offer_lanes(const struct job *job, enum ask_for why, bool starts,
                       struct offer *ret_offer)
{
    struct service *s = job->service;
    struct offer offer = {.lanes = calloc(count_lanes(s), sizeof *offer.lanes)};
    if (!offer.lanes || residents_gather(s, job, &offer.residents) < 0 ||
        budgets_init(&offer.budgets, count_lanes(s)) < 0) {
        offer_free(&offer);
        return -ENOMEM;
    }
    add_lanes(&offer, job, is_offered, why);
    if (offer.count == 0)
        add_lanes(&offer, job, is_last_resort, why);
    size_t room = has_no_choice(why) ? lanes_room_now(s) : lanes_room(s), coming = 0;
    for (size_t i = 0; i < s->fleet->slots_count && starts; i++)
        coming += add_slot(&offer, &s->fleet->slots[i]);
    qsort(offer.lanes, offer.count, sizeof *offer.lanes, compare_lanes);
    leave_out_closed(&offer, room < SIZE_MAX - coming ? room + coming : SIZE_MAX);
    add_residents(&offer);
    *ret_offer = offer;
    return 0;
}

/* --- the request to the packer --- */

static bool somebody_is_there(const struct packer_request *request)
{
    for (size_t i = 0; i < request->lanes_count; i++)
        if (request->lanes[i].jobs > 0)
            return true;
    return false;
}

/* Returns whether a refusal by the packer is final. A refusal is ignored if the job is not
 * measured, trains already, or has lost its lane. A refusal is also ignored if no lane has another
 * job, or if no loss limit is set. Tasks that leave a drained lane may stay on that lane. */
static bool refusal_stands(const struct job *job, const struct packer_request *request,
                           enum ask_for why)
{
    bool must_go_on = has_no_choice(why) || (is_for_new(why) && job->profile->now.period_ns > 0);
    return !must_go_on && request->timing.period_ns > 0 && job_limit_ppm(job) > 0 &&
           somebody_is_there(request);
}

static enum share_how how_placed(const struct packer_request *request)
{
    if (!has_loss_limit(request->policy))
        return SHARE_BY_POLICY;
    return request->timing.period_ns ? SHARE_FITS : SHARE_ALONE;
}

/* Returns whether an aggregator that could start has lanes for the job. If so, the aggregator is
 * started. For a dry run, the plan is returned instead, and nothing is started. */
static bool starts_more(struct job *job, const struct packer_request *request,
                        struct packer_plan *ret_plan)
{
    struct packer_request more = *request;
    struct packer_plan plan;
    struct offer offer;
    bool starts = false;
    if (!waiting_may_start(job) || offer_lanes(job, ASK_FOR_NEW, true, &offer) < 0)
        return false;
    more.lanes = offer.lanes;
    more.lanes_count = offer.count;
    more.nodes = offer.budgets.nodes;
    more.nodes_count = offer.budgets.count;
    if (offer.count > 0 && packer_place(&more, &plan, NULL, 0) == 0) {
        starts = job->terms->is_trial || waiting_start_for(job, &plan);
        if (job->terms->is_trial)
            *ret_plan = plan;
        else
            packer_plan_fini(&plan);
    }
    offer_free(&offer);
    return starts;
}

/* Adds to `err` the job's loss limit, and the place where the limit can be changed. */
static void name_limit(const struct job *job, struct err *err)
{
    uint32_t ppm = job_limit_ppm(job);
    const char *whose = ppm == job->terms->loss_limit_ppm    ? "the job"
                        : ppm == job->tenant->loss_limit_ppm ? "its tenant"
                                                             : "--loss-limit";
    text_append(err->text, sizeof err->text, "; its own limit is %g %%, by %s%s", ppm / 1e4, whose,
                ppm <= LANES_OF_ITS_OWN_PPM ? ", and with up to 1 % a job shares no lane" : "");
}

static int refuse(const struct job *job, const struct packer_request *request, const char *reason,
                  int error, struct err *err)
{
    char prefix[TENANT_PREFIX_BYTES];
    err_set(err, error, "%s%.64s cannot be placed: %s", *job->name ? "job " : "this job", job->name,
            reason);
    if (error == -ENOSPC && request->timing.period_ns > 0 && job_limit_ppm(job) > 0)
        name_limit(job, err);
    if (error == -ENOSPC && request->lanes_count > 0)
        budgets_name(job->service, request, err);
    if (error == -ENOSPC)
        text_append(err->text, sizeof err->text,
                    "; to make room, add an aggregator, end a job or raise the limit");
    if (!job->terms->is_trial)
        log_info("job %s%s: %s: %s", tenant_prefix(job->tenant, prefix), job->name,
                 job->index->pieces_count ? "no other place was found" : "refused", err->text);
    return error;
}

/* Writes the reason for which no lane is offered. */
static void say_why_none(const struct service *s, char *reason, size_t reason_bytes)
{
    const struct lane *drained = NULL;
    list_for_each_entry (const struct aggregator, a, &s->aggregators, link) {
        for (size_t i = 0; i < a->lanes_count; i++)
            if (is_there(&a->lanes[i]) && a->lanes[i].use == LANE_WITHHELD)
                drained = &a->lanes[i];
    }
    if (drained)
        snprintf(
            reason, reason_bytes,
            "all lanes that are up are drained; `gradpool drain lane %u --undo` opens this lane",
            drained->id);
    else
        snprintf(reason, reason_bytes,
                 "no aggregator is up, so there is no lane; `gradpool status' "
                 "shows them");
}

/* Returns whether a job without any lane may wait until some aggregator joins, although no
 * aggregator is started for this job. Soon after a start of the service, or after the loss of the
 * last aggregator, an aggregator may join even if growth is off. */
static bool waits_for_any(struct job *job, const struct packer_request *request, enum ask_for why)
{
    return is_for_new(why) && request->lanes_count == 0 && !job->terms->is_trial &&
           waiting_for_any(job);
}

/* Returns whether the job should wait until another job is measured, which takes a few rounds. The
 * packer may then accept this job. */
static bool waits_for_measure(struct job *job, const struct packer_request *request,
                              enum ask_for why, struct err *err)
{
    char prefix[TENANT_PREFIX_BYTES];
    const struct job *other =
        is_for_new(why) && !job->terms->is_trial && refusal_stands(job, request, why)
            ? waiting_for_measure(job, request)
            : NULL;
    if (!other)
        return false;
    bool is_own = other->tenant == job->tenant;
    err_set(err, -EINPROGRESS,
            "the job's loss limit does not permit lanes of a job that is not measured yet, such as "
            "%s%.64s; the service is measuring that job",
            is_own ? tenant_prefix(other->tenant, prefix) : "another tenant's",
            is_own ? other->name : "");
    return true;
}

static int place(struct job *job, struct packer_request *request, enum ask_for why,
                 struct answer *ret_answer, struct err *err)
{
    char reason[ERR_TEXT_BYTES - 64], prefix[TENANT_PREFIX_BYTES];
    say_why_none(job->service, reason, sizeof reason);
    ret_answer->how = how_placed(request);
    int error = request->lanes_count
                    ? packer_place(request, &ret_answer->plan, reason, sizeof reason)
                    : -ENOSPC;
    if (error == -ENOSPC && is_for_new(why) && starts_more(job, request, &ret_answer->plan))
        return job->terms->is_trial
                   ? 0
                   : err_set(err, -EINPROGRESS,
                             "the service starts an aggregator for the job, within %g s",
                             (double)waiting_lane_ns(job) / NS_PER_S);
    if (error == -ENOSPC && waits_for_any(job, request, why))
        return err_set(err, -EINPROGRESS,
                       "%s; the job waits for a lane for up to %g s (GRADPOOL_CONNECT_TIMEOUT_MS)",
                       reason, (double)waiting_lane_ns(job) / NS_PER_S);
    if (error == -ENOSPC && is_for_new(why) && request->lanes_count > 0)
        shrinking_say(job);
    if (error == -ENOSPC && request->lanes_count > 0 && has_loss_limit(request->policy) &&
        !refusal_stands(job, request, why)) {
        bool is_first = job->tensors_count == 0 && !job->terms->is_trial;
        enum log_level level = is_first ? LOG_LEVEL_INFO : LOG_LEVEL_DEBUG;
        log_write(level, "job %s%s is placed on the least loaded lanes: %s",
                  tenant_prefix(job->tenant, prefix), job->name, reason);
        ret_answer->how = why == ASK_FOR_LOST         ? SHARE_MOVED
                          : !is_for_new(why)          ? SHARE_DRAINED
                          : request->timing.period_ns ? SHARE_OVER
                                                      : SHARE_BESIDE;
        request->policy = "least-loaded";
        request->timing = (struct packer_timing){0}; /* limits of loss and bandwidth do not apply */
        error = packer_place(request, &ret_answer->plan, reason, sizeof reason);
    }
    if (error == -ENOSPC && waits_for_measure(job, request, why, err))
        return err->code;
    return error < 0 ? refuse(job, request, reason, error, err) : 0;
}

int ask_packer(struct job *job, const struct packer_tensor *items, size_t items_count,
               enum ask_for why, struct answer *ret_answer, struct err *err)
{
    struct offer offer;
    if (offer_lanes(job, why, false, &offer) < 0)
        return err_set(
            err, -ENOMEM,
            "gradpool serve has no memory for a placement of job %.64s; raise its memory limit",
            job->name);
    struct packer_request request = {
        .policy = job->service->options->policy,
        .piece_bytes_max =
            is_for_new(why) ? job->index->piece_bytes : piece_bytes_max(job->service),
        .workers = job->workers,
        .job_key = job->id,
        .lanes = offer.lanes,
        .lanes_count = offer.count,
        .tensors = items,
        .tensors_count = items_count,
        .timing = why == ASK_FOR_SHARDS ? (struct packer_timing){0} : job_timing(job)};
    /* Memory is treated as unlimited for tasks that have to leave their lane: a refusal would make
     * their job fail. */
    for (size_t i = 0; i < offer.count && !is_for_new(why); i++)
        offer.lanes[i].memory_bytes = UINT64_MAX;
    if (is_for_new(why)) {
        request.nodes = offer.budgets.nodes;
        request.nodes_count = offer.budgets.count;
    }
    int error = place(job, &request, why, ret_answer, err);
    offer_free(&offer);
    return error;
}
