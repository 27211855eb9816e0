/* Sources of a timeline. A source sends a batch of records for each request. The times of request
 * and answer are also used to estimate the offset of its clock. Each source has at most one open
 * request and one batch, so memory is bounded (RULES.md: K54). */
#include "svc/coordinator/aggregator/call.h"
#include "svc/coordinator/timeline/internal.h"
#include "svc/wire/trace_ring.h"

#include <stdio.h>
#include <stdlib.h>

#define BATCH_BYTES (2u << 20) /* maximum bytes of records from all sources together */
#define ROUNDS_LEAST 16
#define ASK_AGAIN_NS (2 * NS_PER_S)
/* longest wait for late records after the end of the recording */
#define PATIENCE_NS (2 * NS_PER_S)
#define DRIFT_PPM 100 /* largest assumed drift between two clocks, in millionths */

static struct timeline_source *find(const struct timeline *tl, bool is_aggregator, uint32_t number)
{
    list_for_each_entry (struct timeline_source, s, &tl->sources, link)
        if (s->is_aggregator == is_aggregator && s->number == number)
            return s;
    return NULL;
}

/* Finds or adds the source, and marks the source as present. Returns NULL if memory is missing; the
 * next request tries again. */
static struct timeline_source *know(struct timeline *tl, bool is_aggregator, uint32_t number,
                                    uint32_t pid, const char *name)
{
    struct timeline_source *s = find(tl, is_aggregator, number);
    if (!s) {
        s = calloc(1, sizeof *s);
        if (!s)
            return NULL;
        *s = (struct timeline_source){.is_aggregator = is_aggregator, .number = number};
        list_append(&tl->sources, &s->link);
    }
    s->pid = pid;
    snprintf(s->node, sizeof s->node, "%s", name);
    s->is_here = true;
    return s;
}

static void hold(struct timeline_source *s, WIRE(TimelineTaken) * taken)
{
    gradpool__wire__timeline_taken__free_unpacked(s->held, NULL);
    s->held = taken;
}

void timeline_forget_sources(struct timeline *tl, bool tells)
{
    if (tells) {
        tl->ended_ns = tl->ended_ns ? tl->ended_ns : clock_now_ns();
        tl->end_ns = 0; /* 0: what_to_take() makes the sources stop and drop their records */
        timeline_ask(tl, jobs_find_id(tl->service, tl->job));
    }
    list_for_each_safe_entry (struct timeline_source, s, &tl->sources, link) {
        hold(s, NULL);
        list_remove(&s->link);
        free(s);
    }
}

/* --- answers --- */

/* Estimates the offset of a source's clock, which showed `its_ns` at some time between request and
 * answer. The estimate with the smallest error is kept. The error grows with time, because the two
 * clocks drift. An offset smaller than its error is treated as 0, because processes on one host
 * have the same clock. */
static void judge_clock(struct timeline_source *s, uint64_t its_ns)
{
    uint64_t now_ns = clock_now_ns(), error_ns = (now_ns - s->asked_ns) / 2 + 1;
    uint64_t aged_ns = s->error_ns + (now_ns - s->judged_ns) / 1000000 * DRIFT_PPM;
    if (s->judged_ns && error_ns > aged_ns)
        return;
    s->offset_ns = (int64_t)(s->asked_ns + error_ns - its_ns);
    s->error_ns = error_ns;
    s->judged_ns = now_ns;
    if (s->offset_ns <= (int64_t)error_ns && s->offset_ns >= -(int64_t)error_ns)
        s->offset_ns = 0;
}

static WIRE(TimelineTaken) * copy(const WIRE(TimelineTaken) * taken)
{
    size_t bytes = gradpool__wire__timeline_taken__get_packed_size(taken);
    uint8_t *packed = malloc(bytes + 1);
    if (!packed)
        return NULL;
    gradpool__wire__timeline_taken__pack(taken, packed);
    WIRE(TimelineTaken) *copied = gradpool__wire__timeline_taken__unpack(NULL, bytes, packed);
    free(packed);
    return copied;
}

static bool is_sound(const WIRE(TimelineTaken) * taken)
{
    size_t bytes = 0;
    for (size_t i = 0; i < taken->n_rounds; i++) {
        if (taken->rounds[i]->rounds.len % sizeof(struct trace_round) != 0)
            return false;
        bytes += taken->rounds[i]->rounds.len;
    }
    return bytes <= BATCH_BYTES;
}

static bool has_more(const WIRE(TimelineTaken) * taken)
{
    for (size_t i = 0; i < taken->n_rounds; i++)
        if (taken->rounds[i]->has_more)
            return true;
    return false;
}

static void take(struct timeline *tl, struct timeline_source *s, const WIRE(TimelineTaken) * taken)
{
    bool is_last = tl->ended_ns && s->asked_ns >= tl->ended_ns;
    if (!is_sound(taken)) {
        snprintf(s->failure, sizeof s->failure, "a record that is no round");
        s->is_dry = is_last;
        s->asked_ns = 0;
        return;
    }
    judge_clock(s, taken->now_ns);
    snprintf(s->failure, sizeof s->failure, "%s",
             text_is_plain(taken->failure) ? taken->failure : "");
    s->is_dry = is_last && !has_more(taken);
    s->has_answered = true;
    s->asked_ns = 0;
    hold(s, copy(taken));
}

void timeline_take_told(struct timeline *tl, uint32_t rank, const WIRE(TimelineTaken) * taken)
{
    struct timeline_source *s = find(tl, false, rank);
    if (s && s->asked_ns) /* otherwise the request was already answered */
        take(tl, s, taken);
}

struct source_asked {
    uint64_t timeline;
    uint32_t aggregator;
};

static void got(struct service *s, void *data, const envelope *reply, int code, const char *text)
{
    const struct source_asked *asked = data;
    struct timeline *tl = timeline_find(s, asked->timeline);
    struct timeline_source *source = tl ? find(tl, true, asked->aggregator) : NULL;
    if (!source)
        return;
    if (reply && reply->body_case == BODY(TIMELINE_TAKEN))
        return take(tl, source, reply->timeline_taken);
    snprintf(source->failure, sizeof source->failure, "%s", text);
    source->asked_ns = 0;
    source->is_dry = tl->ended_ns > 0;
}

/* --- requests --- */

/* Lists the lanes of an aggregator that have pieces of the job. Returns their number. */
static size_t lanes_of(const struct job *job, const struct aggregator *a, uint32_t *ret_lanes)
{
    size_t count = 0;
    for (size_t i = 0; i < job->shares_count; i++) {
        const struct share *share = &job->shares[i];
        if (share->pieces > 0 && share->lane->aggregator == a)
            ret_lanes[count++] = share->lane->id;
    }
    return count;
}

static size_t count_recorders(const struct job *job)
{
    size_t count = job->shares_count;
    for (uint32_t rank = 0; rank < job->workers; rank++)
        count += job->sessions[rank] && job->sessions[rank]->peer;
    return count ? count : 1;
}

static WIRE(TimelineTake) what_to_take(const struct timeline *tl, const struct job *job)
{
    uint64_t now_ns = clock_now_ns();
    uint64_t rounds = BATCH_BYTES / sizeof(struct trace_round) / count_recorders(job);
    uint32_t most = rounds > ROUNDS_LEAST ? (uint32_t)rounds : ROUNDS_LEAST;
    bool goes_on = !tl->ended_ns && tl->end_ns > now_ns;
    return MESSAGE_PART(TimelineTake, timeline_take, .timeline = tl->id, .job_id = tl->job,
                        .left_ns = goes_on ? tl->end_ns - now_ns : 0,
                        .rounds_max = tl->end_ns ? most : 0);
}

/* Returns whether a request may be sent to the source. No request is sent before the caller has
 * fetched the earlier records, nor soon after an unanswered request. */
static bool is_due(const struct timeline *tl, const struct timeline_source *s)
{
    if (tl->end_ns == 0)
        return true;
    bool is_waited_for = s->asked_ns && clock_now_ns() < s->asked_ns + ASK_AGAIN_NS;
    return !s->held && !s->is_dry && !is_waited_for;
}

static void ask_worker(struct timeline *tl, const struct session *session, WIRE(TimelineTake) * ask)
{
    struct timeline_source *s = know(tl, false, session->rank, session->pid, session->node);
    if (!s || !is_due(tl, s))
        return;
    s->asked_ns = clock_now_ns();
    peer_send(session->peer, &ENVELOPE(0, TIMELINE_TAKE, timeline_take, ask));
}

/* Sends a request to the aggregator if no earlier request is open. An open request ends by its
 * answer or at the deadline of its call. */
static void ask_aggregator(struct timeline *tl, struct aggregator *a, WIRE(TimelineTake) * ask)
{
    struct timeline_source *s = know(tl, true, a->id, a->pid, a->node);
    const struct source_asked asked = {.timeline = tl->id, .aggregator = a->id};
    if (!s || (s->asked_ns && tl->end_ns > 0) || !is_due(tl, s))
        return;
    s->asked_ns = clock_now_ns();
    if (call_send(a, &ENVELOPE(0, TIMELINE_TAKE, timeline_take, ask), CALL_DEADLINE_NS, got, &asked,
                  sizeof asked) < 0)
        s->asked_ns = 0;
}

static void ask_lanes(struct timeline *tl, const struct job *job, WIRE(TimelineTake) * ask)
{
    uint32_t *lanes = calloc(job->shares_count + 1, sizeof *lanes);
    list_for_each_entry (struct aggregator, a, &tl->service->aggregators, link) {
        size_t count = lanes && a->state == AGGREGATOR_UP ? lanes_of(job, a, lanes) : 0;
        /* a source without lanes of the job may have records about tasks that have moved away */
        bool was_here = find(tl, true, a->id) != NULL;
        ask->lanes = lanes;
        ask->n_lanes = count;
        if (a->state == AGGREGATOR_UP && (count > 0 || was_here))
            ask_aggregator(tl, a, ask);
    }
    free(lanes);
}

void timeline_ask(struct timeline *tl, struct job *job)
{
    list_for_each_entry (struct timeline_source, source, &tl->sources, link)
        source->is_here = false;
    if (!job)
        return;
    WIRE(TimelineTake) ask = what_to_take(tl, job);
    for (uint32_t rank = 0; rank < job->workers; rank++) {
        const struct session *session = job->sessions[rank];
        if (session && session->state == SESSION_JOINED && session->peer)
            ask_worker(tl, session, &ask);
    }
    ask_lanes(tl, job, &ask);
}

bool timeline_is_dry(const struct timeline *tl)
{
    bool is_late = clock_now_ns() > tl->ended_ns + PATIENCE_NS;
    list_for_each_entry (const struct timeline_source, s, &tl->sources, link)
        if (s->held || (s->is_here && !s->is_dry && !is_late))
            return false;
    return true;
}
