/* Timelines: each lane writes to a ring that this thread reads without a call to the lane. The lane
 * is called only when a recording begins and ends. A recording ends when the connection to its
 * coordinator ends. svc/lane/RULES.md: A48. */
#include "svc/aggregator/internal.h"
#include "svc/base/clock.h"
#include "svc/lane/round/tracing.h"

#include <errno.h>
#include <stdlib.h>

#define RING_ROUNDS (16u << 10) /* number of rounds that a ring can store between two requests */
#define RECORDINGS_MAX 128      /* maximum number of recordings; each has a ring of 1 MiB */
#define RECORDING_NS_MAX (24 * 3600 * NS_PER_S)

struct recording {
    struct recording *next;
    uint64_t timeline;
    uint32_t lane;
    bool is_on; /* the lane writes to the ring */
    struct tracing tracing;
};

/* ---- life ---- */

static struct recording *find(struct aggregator *a, uint64_t timeline, uint32_t lane)
{
    struct recording *r = a->recordings;
    while (r && (r->timeline != timeline || r->lane != lane))
        r = r->next;
    return r;
}

static int switch_on(struct lane *lane, void *context)
{
    tracing_begin(lane, &((struct recording *)context)->tracing);
    return 0;
}

static int switch_off(struct lane *lane, void *context)
{
    tracing_end(lane, &((struct recording *)context)->tracing);
    return 0;
}

static void recording_free(struct recording *r)
{
    trace_ring_destroy(r->tracing.ring);
    free(r);
}

static void end(struct aggregator *a, struct recording *r)
{
    if (r->is_on)
        (void)serve_call(a, r->lane, switch_off, r);
    r->is_on = false;
}

static size_t count_all(const struct aggregator *a)
{
    size_t count = 0;
    for (const struct recording *r = a->recordings; r; r = r->next)
        count++;
    return count;
}

/* Begins a recording on a lane. A missing lane is no error: the pieces on it have moved. */
static int begin(struct aggregator *a, const Gradpool__Wire__TimelineTake *take, uint32_t lane,
                 uint64_t now_ns)
{
    uint64_t left_ns = take->left_ns < RECORDING_NS_MAX ? take->left_ns : RECORDING_NS_MAX;
    struct recording *r = NULL;
    if (count_all(a) < RECORDINGS_MAX)
        r = calloc(1, sizeof *r);
    if (!r)
        return -ENOMEM;
    *r = (struct recording){.timeline = take->timeline, .lane = lane};
    r->tracing.job = take->job_id;
    int error = trace_ring_create(RING_ROUNDS, now_ns, now_ns + left_ns, &r->tracing.ring)
                    ?: serve_call(a, lane, switch_on, r);
    if (error < 0) {
        recording_free(r);
        return error == -ENOENT ? 0 : error;
    }
    r->is_on = true;
    r->next = a->recordings;
    a->recordings = r;
    return 0;
}

/* Frees the recordings of one timeline, or of all timelines (0). Without `all`, a recording with
 * rounds that the coordinator has not fetched is kept. */
static void forget(struct aggregator *a, uint64_t timeline, bool all)
{
    for (struct recording **at = &a->recordings; *at;) {
        struct recording *r = *at;
        bool is_meant = timeline == 0 || r->timeline == timeline;
        if (!is_meant || (!all && trace_ring_waiting(r->tracing.ring) > 0)) {
            at = &r->next;
            continue;
        }
        end(a, r);
        *at = r->next;
        recording_free(r);
    }
}

void timeline_abandon(struct aggregator *a) { forget(a, 0, true); }

void timeline_free(struct aggregator *a)
{
    for (struct recording *r = a->recordings; r; r = r->next)
        r->is_on = false; /* the lanes have ended and must not be called */
    forget(a, 0, true);
}

/* ---- replies ---- */

static Gradpool__Wire__TimelineRounds *hand_out(const struct recording *r, uint32_t rounds_max)
{
    struct trace_ring *ring = r->tracing.ring;
    Gradpool__Wire__TimelineRounds *part = malloc(sizeof *part);
    size_t waiting = trace_ring_waiting(ring), max = waiting < rounds_max ? waiting : rounds_max;
    struct trace_round *rounds = max ? malloc(max * sizeof *rounds) : NULL;
    if (!part) {
        free(rounds);
        return NULL;
    }
    size_t count = rounds ? trace_ring_take(ring, rounds, max) : 0;
    *part =
        MESSAGE_PART(TimelineRounds, timeline_rounds, .lane = r->lane,
                     .rounds = {count * sizeof *rounds, (uint8_t *)rounds},
                     .dropped = trace_ring_dropped(ring), .has_more = trace_ring_waiting(ring) > 0);
    return part;
}

static void add_parts(struct aggregator *a, const Gradpool__Wire__TimelineTake *take,
                      Gradpool__Wire__TimelineTaken *taken)
{
    taken->rounds = calloc(RECORDINGS_MAX, sizeof *taken->rounds);
    for (struct recording *r = a->recordings; taken->rounds && r; r = r->next) {
        if (r->timeline != take->timeline)
            continue;
        taken->rounds[taken->n_rounds] = hand_out(r, take->rounds_max);
        taken->n_rounds += taken->rounds[taken->n_rounds] != NULL;
    }
}

static int answer(struct aggregator *a, uint64_t id, const Gradpool__Wire__TimelineTake *take,
                  uint64_t now_ns, const char *failure)
{
    Gradpool__Wire__TimelineTaken *taken = malloc(sizeof *taken);
    if (!taken)
        return serve_reply(a, id, -ENOMEM);
    *taken = MESSAGE_PART(TimelineTaken, timeline_taken, .timeline = take->timeline,
                          .now_ns = now_ns, .failure = (char *)failure);
    add_parts(a, take, taken);
    int error = channel_send(a->channel, &ENVELOPE(id, TIMELINE_TAKEN, timeline_taken, taken));
    taken->failure = NULL; /* the message does not own the text */
    gradpool__wire__timeline_taken__free_unpacked(taken, NULL);
    return error;
}

static void end_all(struct aggregator *a, uint64_t timeline)
{
    for (struct recording *r = a->recordings; r; r = r->next) {
        if (r->timeline == timeline)
            end(a, r);
    }
}

int timeline_serve(struct aggregator *a, uint64_t id, const Gradpool__Wire__TimelineTake *take)
{
    uint64_t now_ns = clock_now_ns();
    bool is_over = take->left_ns == 0;
    int error = 0;
    for (size_t i = 0; i < take->n_lanes && !is_over && error == 0; i++) {
        if (!find(a, take->timeline, take->lanes[i]))
            error = begin(a, take, take->lanes[i], now_ns);
    }
    if (is_over)
        end_all(a, take->timeline);
    int r = answer(a, id, take, now_ns, error ? err_text(error) : "");
    if (is_over && take->timeline)
        forget(a, take->timeline, take->rounds_max == 0);
    return r;
}
