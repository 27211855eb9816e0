/* Owns a worker's part of a timeline: the ring of recorded rounds, and the present answer. Only
 * recorder_note() is on the data path. A recording ends at its time limit, or with the connection
 * to the coordinator that requested it. README: L34. */
#include "client/lib/report/recorder.h"

#include "client/lib/job/tensor.h"

#include <stdlib.h>
#include <string.h>

/* number of rounds that the ring can store between two requests */
#define RING_ROUNDS (16u << 10)
#define RECORDING_NS_MAX (24 * 3600 * NS_PER_S)

void recorder_note(const gp_tensor *t)
{
    const struct push *open = &t->open;
    if (!t->job->trace)
        return;
    struct trace_round round = {.round = t->round,
                                .bytes = open->gradient ? open->gradient_bytes : open->result_bytes,
                                .thing = t->id,
                                .operation = open->operation};
    memcpy(round.at_ns, open->traced_ns, sizeof round.at_ns);
    trace_ring_put(t->job->trace, &round);
}

/* ---- life ---- */

/* Returns whether this recording is in progress. `timeline` 0 means any recording: the control
 * thread passes 0 when the connection to the coordinator has ended. */
static bool recorder_is_known(const struct recorder *r, uint64_t timeline)
{
    return r->ring && (timeline == r->timeline || timeline == 0);
}

static void record_to(struct gp_job *job, struct trace_ring *ring)
{
    pthread_mutex_lock(&job->lock);
    job->trace = ring;
    pthread_mutex_unlock(&job->lock);
}

static void recorder_forget(struct gp_job *job)
{
    if (!job->recorder.ring)
        return;
    record_to(job, NULL);
    trace_ring_destroy(job->recorder.ring);
    job->recorder.ring = NULL;
}

static int recorder_begin(struct gp_job *job, const Gradpool__Wire__TimelineTake *take,
                          uint64_t now_ns)
{
    uint64_t left_ns = take->left_ns < RECORDING_NS_MAX ? take->left_ns : RECORDING_NS_MAX;
    recorder_forget(job);
    int error = trace_ring_create(RING_ROUNDS, now_ns, now_ns + left_ns, &job->recorder.ring);
    if (error == 0)
        record_to(job, job->recorder.ring);
    job->recorder.timeline = take->timeline;
    return error;
}

/* ---- answers ---- */

static void recorder_told(struct control_call *call, const envelope *reply, const struct err *err)
{
    struct recorder *r = container_of(call, struct recorder, call);
    free(r->rounds);
    r->rounds = NULL;
    r->is_telling = false;
}

/* Moves rounds from the ring to the answer, at most as many as the request allows. */
static void recorder_fill(struct recorder *r, uint32_t rounds_max)
{
    size_t waiting = trace_ring_waiting(r->ring);
    size_t max = waiting < rounds_max ? waiting : rounds_max;
    r->rounds = max ? malloc(max * sizeof *r->rounds) : NULL;
    size_t count = r->rounds ? trace_ring_take(r->ring, r->rounds, max) : 0;
    r->part = MESSAGE_PART(TimelineRounds, timeline_rounds,
                           .rounds = {count * sizeof *r->rounds, (uint8_t *)r->rounds},
                           .dropped = trace_ring_dropped(r->ring),
                           .has_more = trace_ring_waiting(r->ring) > 0);
    r->parts = &r->part;
    r->taken.rounds = &r->parts;
    r->taken.n_rounds = 1;
}

static void recorder_tell(struct gp_job *job, const Gradpool__Wire__TimelineTake *take,
                          uint64_t now_ns, int error)
{
    struct recorder *r = &job->recorder;
    r->taken = MESSAGE_PART(TimelineTaken, timeline_taken, .timeline = take->timeline,
                            .now_ns = now_ns, .failure = error ? (char *)err_text(error) : NULL);
    if (recorder_is_known(r, take->timeline))
        recorder_fill(r, take->rounds_max);
    r->call = (struct control_call){.request = ENVELOPE(0, TIMELINE_TOLD, timeline_told, &r->taken),
                                    .done = recorder_told};
    r->is_telling = true;
    control_post(job->control, &r->call);
}

void recorder_take(struct gp_job *job, const Gradpool__Wire__TimelineTake *take)
{
    struct recorder *r = &job->recorder;
    uint64_t now_ns = clock_now_ns();
    bool is_over = take->left_ns == 0, is_wanted = take->rounds_max > 0;
    int error = 0;
    if (!is_over && !recorder_is_known(r, take->timeline))
        error = recorder_begin(job, take, now_ns);
    if (is_over && recorder_is_known(r, take->timeline))
        record_to(job, NULL);
    /* skipped while an answer is under way; the coordinator repeats the request */
    if (is_wanted && !r->is_telling)
        recorder_tell(job, take, now_ns, error);
    bool is_rest = is_wanted && r->ring && trace_ring_waiting(r->ring) > 0;
    if (is_over && recorder_is_known(r, take->timeline) && !is_rest)
        recorder_forget(job);
}

void recorder_fini(struct gp_job *job)
{
    trace_ring_destroy(job->recorder.ring);
    free(job->recorder.rounds);
}
