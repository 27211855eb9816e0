/* Waits of jobs. The deadline of a wait is a timeout of the worker: the connect timeout for a lane,
 * the request timeout for a measurement. A job that has lanes never waits here. */
#include "svc/coordinator/placement/waiting.h"

#include "svc/base/log.h"
#include "svc/coordinator/aggregator/lane.h"
#include "svc/coordinator/fleet/open_lanes.h"
#include "svc/coordinator/placement/neighbour.h"
#include "svc/coordinator/service.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LANE_NS (10 * NS_PER_S)   /* longest wait for a lane if the worker sends no timeout */
#define ANSWER_NS (60 * NS_PER_S) /* timeout of a request if the worker sends no timeout */
/* time between a refusal and the timeout of the worker's request */
#define ANSWER_PART_NS (2 * NS_PER_S)

static uint64_t named_ns(uint32_t ms, uint64_t otherwise_ns)
{
    return ms ? ms * NS_PER_MS : otherwise_ns;
}

uint64_t waiting_lane_ns(const struct job *job)
{
    uint64_t for_all_ns = job->service->options->start_wait_ns;
    return for_all_ns ? for_all_ns : named_ns(job->terms->lane_wait_ms, LANE_NS);
}

static uint64_t measure_ns(const struct job *job)
{
    uint64_t answer_ns = named_ns(job->terms->answer_ms, ANSWER_NS);
    return answer_ns > 2 * ANSWER_PART_NS ? answer_ns - ANSWER_PART_NS : answer_ns / 2;
}

/* --- messages to workers --- */

static void send_text(const struct session *session, const char *text)
{
    peer_reply(session->peer, 0, NOTICE, notice, .text = (char *)text,
               .code = session->job->waiting->is_for_rows ? -EDQUOT : 0);
}

static void send_all(struct job *job, const char *text, bool is_over)
{
    for (uint32_t rank = 0; rank < job->workers; rank++) {
        struct session *session = job->sessions[rank];
        if (!session || !session->peer || session->knows_wait != is_over)
            continue;
        session->knows_wait = !is_over;
        send_text(session, text);
    }
}

static void forget(struct job *job)
{
    free(job->waiting->waits_for);
    job->waiting->waits_for = NULL;
    for (uint32_t rank = 0; rank < job->workers; rank++)
        if (job->sessions[rank])
            job->sessions[rank]->knows_wait = false;
}

static void reason_begin(struct job *job, const char *text)
{
    char prefix[TENANT_PREFIX_BYTES];
    if (!job->waiting->waits_for || strcmp(job->waiting->waits_for, text) != 0) {
        forget(job);
        job->waiting->waits_for = strdup(text);
        log_warn("job %s%s waits: %s", tenant_prefix(job->tenant, prefix), job->name, text);
    }
    send_all(job, text, false);
}

void waiting_begin(struct job *job, const char *text)
{
    job->waiting->is_for_rows = false;
    reason_begin(job, text);
}

void waiting_for_rows(struct job *job, const char *text)
{
    job->waiting->is_for_rows = true;
    reason_begin(job, text);
}

void waiting_for_rows_end(struct job *job)
{
    bool is_for_rows = job->waiting->is_for_rows;
    job->waiting->is_for_rows = false;
    if (is_for_rows)
        waiting_end(job, true);
}

void waiting_end(struct job *job, bool goes_on)
{
    char prefix[TENANT_PREFIX_BYTES];
    if (!job->waiting->waits_for || job->waiting->is_for_rows)
        return;
    if (goes_on) {
        log_info("job %s%s no longer waits", tenant_prefix(job->tenant, prefix), job->name);
        send_all(job, "", true);
    }
    forget(job);
}

/* --- measurements --- */

static bool is_on(const struct job *job, uint32_t lane)
{
    for (size_t i = 0; i < job->shares_count; i++)
        if (job->shares[i].pieces > 0 && job->shares[i].lane->id == lane)
            return true;
    return false;
}

static bool is_on_any(const struct job *job, const struct packer_request *request)
{
    for (size_t i = 0; i < request->lanes_count; i++)
        if (is_on(job, request->lanes[i].id))
            return true;
    return false;
}

const struct job *waiting_for_measure(struct job *job, const struct packer_request *request)
{
    uint64_t now_ns = clock_now_ns();
    if (job->waiting->measure_by_ns > 0 && job->waiting->measure_by_ns <= now_ns)
        return NULL;
    list_for_each_entry (const struct job, other, &job->service->jobs, link) {
        if (other == job || job_timing(other).period_ns > 0 || job_is_idle(other) ||
            other->tensors_count == 0 || !is_on_any(other, request))
            continue;
        if (job->waiting->measure_by_ns == 0)
            job->waiting->measure_by_ns = now_ns + measure_ns(job);
        return other;
    }
    return NULL;
}

uint64_t waiting_left_ns(const struct job *job)
{
    uint64_t now_ns = clock_now_ns();
    uint64_t until_ns = job->waiting->start_by_ns > job->waiting->measure_by_ns
                            ? job->waiting->start_by_ns
                            : job->waiting->measure_by_ns;
    return until_ns > now_ns ? until_ns - now_ns : 1;
}

/* --- aggregators that start --- */

static bool may_wait(const struct job *job)
{
    return job->service->phase == SERVICE_UP &&
           (job->waiting->start_by_ns == 0 || job->waiting->start_by_ns > clock_now_ns());
}

static void begin_wait(struct job *job)
{
    if (job->waiting->start_by_ns == 0)
        job->waiting->start_by_ns = clock_now_ns() + waiting_lane_ns(job);
}

bool waiting_may_start(const struct job *job)
{
    return job->service->scaling->is_on && may_wait(job);
}

bool waiting_for_any(struct job *job)
{
    if (!may_wait(job))
        return false;
    begin_wait(job);
    return true;
}

static void start_for(struct job *job, struct slot *slot)
{
    char text[640], prefix[TENANT_PREFIX_BYTES];
    if (fleet_is_coming(slot))
        return;
    snprintf(text, sizeof text, "a local aggregator starts on cores %.64s for job %s%.127s",
             slot->cores, tenant_prefix(job->tenant, prefix), job->name);
    events_note(job->service->events, "start", "%s", text);
    log_info("growth: start: %s", text);
    fleet_want(slot, 0);
}

bool waiting_start_for(struct job *job, const struct packer_plan *plan)
{
    bool waits = false;
    for (size_t i = 0; i < plan->shares_count; i++) {
        if (plan->shares[i].state != PACKER_LANE_UNSTARTED)
            continue;
        struct slot *slot = slot_of_lane(job->service, plan->shares[i].lane);
        start_for(job, slot);
        slot->open_count += slot->open_count == 0;
        waits = true;
    }
    if (waits)
        begin_wait(job);
    return waits;
}

void waiting_placed(struct job *job)
{
    job->waiting->start_by_ns = job->waiting->measure_by_ns = 0;
}
