/* Timelines for operators and tenants: permission, duration, answers. Owns struct timeline. Records
 * are sent to the caller without interpretation. RULES.md: K54. */
#include "svc/coordinator/timeline/timeline.h"

#include "svc/base/cleanup.h"
#include "svc/base/log.h"
#include "svc/coordinator/timeline/internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define TIMELINES_MAX 8 /* maximum number of timelines; each uses 1 MiB on each worker and lane */
#define FOR_NS_MAX (3600 * NS_PER_S) /* a file of a longer timeline would be too large to open */
#define SILENCE_NS (5 * NS_PER_S)    /* longest time between two requests of the caller */
#define TENSORS_PER_REPLY 4096

/* --- lookup and end --- */

struct timeline *timeline_find(struct service *s, uint64_t id)
{
    list_for_each_entry (struct timeline, tl, &s->works->timelines, link)
        if (tl->id == id)
            return tl;
    return NULL;
}

static void timeline_free(struct timeline *tl, bool tells)
{
    timer_stop(&tl->silence);
    timeline_forget_sources(tl, tells);
    list_remove(&tl->link);
    free(tl);
}

static void was_silent(struct timer *timer)
{
    timeline_free(container_of(timer, struct timeline, silence), true);
}

static void await(struct timeline *tl)
{
    timer_start(tl->service->loop, &tl->silence, clock_now_ns() + SILENCE_NS);
}

void timelines_peer_gone(const struct peer *p)
{
    list_for_each_safe_entry (struct timeline, tl, &p->service->works->timelines, link)
        if (tl->peer == p)
            timeline_free(tl, true);
}

void timelines_destroy(struct service *s)
{
    list_for_each_safe_entry (struct timeline, tl, &s->works->timelines, link)
        timeline_free(tl, false);
}

/* --- the first request --- */

static size_t count_all(const struct service *s, uint32_t job, bool *ret_is_busy)
{
    size_t count = 0;
    *ret_is_busy = false;
    list_for_each (node, &s->works->timelines) {
        *ret_is_busy |= list_entry(node, struct timeline, link)->job == job;
        count++;
    }
    return count;
}

/* Returns whether the timeline may begin. If not, the failure was sent to the peer. */
static bool is_fit(struct peer *p, const envelope *message, const struct job *job)
{
    uint64_t for_ns = message->timeline_request->for_ns;
    bool is_busy;
    size_t count = count_all(p->service, job->id, &is_busy);
    if (for_ns == 0 || for_ns > FOR_NS_MAX)
        peer_fail(p, message->id, -EINVAL,
                  "a timeline of %.1f s: expected at most %u s; give a smaller --seconds",
                  (double)for_ns / NS_PER_S, (unsigned)(FOR_NS_MAX / NS_PER_S));
    else if (is_busy)
        peer_fail(p, message->id, -EBUSY,
                  "a timeline of job %.127s is being recorded already: try again when that "
                  "timeline has ended",
                  job->name);
    else if (count >= TIMELINES_MAX)
        peer_fail(p, message->id, -EAGAIN,
                  "timelines of %zu jobs are being recorded, which is the maximum; try again when "
                  "one has ended",
                  count);
    else
        return true;
    return false;
}

void timelines_handle_request(struct peer *p, const envelope *message)
{
    struct service *s = p->service;
    const WIRE(TimelineRequest) *wanted = message->timeline_request;
    if (s->phase != SERVICE_UP)
        return peer_fail(p, message->id, -ESHUTDOWN, "gradpool serve is stopping");
    struct job *job = jobs_find_meant(p, message->id, wanted->job, wanted->tenant);
    if (!job || !is_fit(p, message, job))
        return;
    struct timeline *tl = calloc(1, sizeof *tl);
    if (!tl)
        return peer_fail_memory(p, message->id);
    uint64_t now_ns = clock_now_ns();
    *tl = (struct timeline){.service = s,
                            .peer = p,
                            .id = ++s->door->next_id,
                            .begun_ns = now_ns,
                            .end_ns = now_ns + wanted->for_ns,
                            .job = job->id};
    list_init(&tl->sources);
    list_append(&s->works->timelines, &tl->link);
    timer_init(&tl->silence, was_silent);
    await(tl);
    timeline_ask(tl, job);
    peer_reply(p, message->id, TIMELINE_REPLY, timeline_reply, .timeline = tl->id,
               .begun_ns = tl->begun_ns);
    log_info("a timeline of job %s is recorded for %.1f s", job->name,
             (double)wanted->for_ns / NS_PER_S);
}

/* --- answers --- */

struct next {
    WIRE(TimelineNext) message;
    WIRE(TimelineTensor) * tensors;
    WIRE(TimelineTensor) * *tensors_list;
    WIRE(TimelineSource) * sources;
    WIRE(TimelineSource) * *sources_list;
};

static void next_free(struct next *next)
{
    free(next->tensors);
    free(next->tensors_list);
    free(next->sources);
    free(next->sources_list);
}

static int next_init(struct next *next, const struct timeline *tl)
{
    size_t count = 1;
    list_for_each (node, &tl->sources)
        count++;
    gradpool__wire__timeline_next__init(&next->message);
    next->tensors = calloc(TENSORS_PER_REPLY, sizeof *next->tensors);
    next->tensors_list = calloc(TENSORS_PER_REPLY, sizeof(void *));
    next->sources = calloc(count, sizeof *next->sources);
    next->sources_list = calloc(count, sizeof(void *));
    next->message.tensors = next->tensors_list;
    next->message.sources = next->sources_list;
    bool is_whole = next->tensors && next->tensors_list && next->sources && next->sources_list;
    return is_whole ? 0 : -ENOMEM;
}

/* Adds the tensors whose names the caller does not have. Numbers ascend, so these are the last
 * tensors of the job. Returns whether the message had room for all of them. */
static bool add_tensors(struct timeline *tl, const struct job *job, struct next *next)
{
    size_t at = job->tensors_count;
    while (at > 0 && job->tensors[at - 1]->id > tl->tensor)
        at--;
    for (; at < job->tensors_count && next->message.n_tensors < TENSORS_PER_REPLY; at++) {
        const struct tensor *tensor = job->tensors[at];
        WIRE(TimelineTensor) *row = &next->tensors[next->message.n_tensors];
        tl->tensor = tensor->id;
        *row = MESSAGE_PART(TimelineTensor, timeline_tensor, .tensor = tensor->id,
                            .name = tensor->name, .pieces = (uint32_t)tensor->pieces_count,
                            .first_piece = tensor->pieces_count ? tensor->pieces[0].id : 0);
        next->tensors_list[next->message.n_tensors++] = row;
    }
    return at == job->tensors_count;
}

static const char *why_nothing(const struct timeline_source *s)
{
    return *s->failure || s->has_answered ? s->failure : "no records: the process has not answered";
}

static void add_source(struct timeline_source *s, struct next *next)
{
    WIRE(TimelineSource) *row = &next->sources[next->message.n_sources];
    *row =
        MESSAGE_PART(TimelineSource, timeline_source, .is_aggregator = s->is_aggregator,
                     .number = s->number, .node = s->node, .pid = s->pid, .offset_ns = s->offset_ns,
                     .error_ns = s->error_ns, .failure = (char *)why_nothing(s));
    if (s->held) {
        row->rounds = s->held->rounds;
        row->n_rounds = s->held->n_rounds;
    }
    for (size_t i = 0; i < row->n_rounds; i++)
        next->message.has_more |= row->rounds[i]->has_more;
    next->sources_list[next->message.n_sources++] = row;
}

static void forget_told(struct timeline *tl)
{
    list_for_each_entry (struct timeline_source, s, &tl->sources, link) {
        gradpool__wire__timeline_taken__free_unpacked(s->held, NULL);
        s->held = NULL;
    }
}

/* Sends the names of tensors. Once the caller has all names, sends records. */
static bool answer(struct timeline *tl, uint64_t request, const struct job *job)
{
    struct next next = {0};
    if (next_init(&next, tl) < 0) {
        peer_fail_memory(tl->peer, request);
        next_free(&next);
        return false;
    }
    bool knows_names = !job || add_tensors(tl, job, &next);
    if (knows_names)
        list_for_each_entry (struct timeline_source, source, &tl->sources, link)
            add_source(source, &next);
    next.message.has_more |= !knows_names;
    envelope e = ENVELOPE(request, TIMELINE_NEXT, timeline_next, &next.message);
    if (!job)
        next.message.note = (char *)"the job has ended";
    next.message.is_over = !job;
    peer_send(tl->peer, &e);
    next_free(&next);
    if (knows_names)
        forget_told(tl);
    return true;
}

static bool is_lacking(const struct timeline_source *s) { return s->is_here && !s->is_dry; }

/* Sends the last answer, which lists the sources whose records are missing. */
static void answer_over(struct timeline *tl, uint64_t request)
{
    struct next next = {0};
    if (next_init(&next, tl) < 0) {
        peer_fail_memory(tl->peer, request);
        return next_free(&next);
    }
    list_for_each_entry (struct timeline_source, s, &tl->sources, link) {
        if (is_lacking(s) && s->has_answered && !*s->failure)
            snprintf(s->failure, sizeof s->failure,
                     "no answer at the end, so its last rounds are missing");
        if (is_lacking(s))
            add_source(s, &next);
    }
    next.message.is_over = true;
    peer_send(tl->peer, &ENVELOPE(request, TIMELINE_NEXT, timeline_next, &next.message));
    next_free(&next);
}

/* Answers a request for more records. The timeline is over when its time has ended and all records
 * were fetched. */
void timelines_handle_next(struct peer *p, const envelope *message)
{
    const WIRE(TimelineNextRequest) *wanted = message->timeline_next_request;
    struct timeline *tl = timeline_find(p->service, wanted->timeline);
    if (!tl || tl->peer != p)
        return peer_fail(p, message->id, -EINVAL,
                         "the coordinator has no such timeline: the timeline has ended, or this "
                         "request came too late; record the timeline again");
    uint64_t now_ns = clock_now_ns();
    struct job *job = jobs_find_id(p->service, tl->job);
    if (!tl->ended_ns && (wanted->ends || now_ns >= tl->end_ns))
        tl->ended_ns = now_ns;
    if (tl->ended_ns && job && timeline_is_dry(tl)) {
        answer_over(tl, message->id);
        return timeline_free(tl, true);
    }
    if (!answer(tl, message->id, job) || !job)
        return timeline_free(tl, true);
    timeline_ask(tl, job);
    await(tl);
}

void timelines_handle_told(struct peer *p, const envelope *message)
{
    const WIRE(TimelineTaken) *told = message->timeline_told;
    const struct session *session = p->session;
    struct timeline *tl = timeline_find(p->service, told->timeline);
    peer_reply_done(p, message->id);
    if (tl && session && session->job->id == tl->job)
        timeline_take_told(tl, session->rank, told);
}
