/* Handles the coordinator's requests for moving tasks: release, state, install, thaw. Owns the
 * releases that wait for the end of rounds, and checks them after each event of a lane and at their
 * deadlines. The coordinator makes all decisions about a move. svc/lane/RULES.md: A9, A26, A27,
 * A38. */
#include "svc/aggregator/internal.h"
#include "svc/base/clock.h"
#include "svc/base/system/populate.h"
#include "svc/lane/chunk/stuck.h"
#include "svc/lane/move/moved_state.h"
#include "svc/lane/move/regroup.h"
#include "svc/lane/move/release.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STATE_BYTES_MAX (1u << 20) /* maximum bytes of a state in one reply */
#define RELEASES_MAX 1024          /* maximum number of pending releases */
/* Longest wait for a rank that does not respond. It is shorter than the coordinator's timeout (10
 * s), whose error would not name the rank. */
#define LATE_NS (8 * NS_PER_S)

struct release {
    struct release *next;
    uint64_t id; /* number of the request */
    uint32_t lane, job;
    /* arrays for the reply, with one entry for each piece; filled in when all pieces are frozen */
    uint64_t *rounds, *state_bytes, *steps;
    bool is_recovering; /* a piece is recovering; this flag is sent in the reply */
    /* request to the lane for a release at a good time; used if is_behind is set */
    struct lane_wish wish;
    bool is_behind;     /* the pieces are released after a round, not at once (A38) */
    bool is_regrouping; /* the pieces stay on this lane and continue with other ranks (A41) */
    bool is_begun;      /* lane_release() was called */
    /* time of the check for ranks that do not respond; 0: the check was made already */
    uint64_t late_ns;
    char text[ERR_TEXT_BYTES];
    /* number of pieces; number of frozen pieces, which are at the beginning of the list */
    size_t count, rested;
    uint64_t gone[RECORD_MISSING_WORDS]; /* ranks that have left the job */
    uint32_t pieces[];
};

static const char *why(int code)
{
    switch (code) {
    case -ENOENT: return "this aggregator lacks some of these pieces";
    case -EBUSY: return "a piece is not frozen, or does not wait for its workers";
    case -EBADMSG: return "the state is incomplete, or belongs to another piece";
    case -EINVAL: return "an offset, a round or a count does not fit";
    case -ECANCELED: return "the release of a piece was cancelled before its last round ended";
    case -ECONNABORTED: return "the job has failed";
    case -EAGAIN: return "not all of its workers have reported their rounds yet; try again";
    default: return err_text(code);
    }
}

static int answer(struct aggregator *a, uint64_t id, uint32_t lane, uint32_t job, int result)
{
    char text[ERR_TEXT_BYTES];
    if (result >= 0)
        return serve_reply(a, id, 0);
    snprintf(text, sizeof text, "lane %u, job %u: %s", lane, job, why(result));
    return serve_reply_failure(a, id, result, text);
}

/* ---- release ---- */

static struct release *release_create(uint64_t id, const Gradpool__Wire__ReleaseRequest *request)
{
    size_t count = request->n_pieces;
    struct release *r = calloc(1, sizeof *r + count * sizeof *r->pieces);
    if (!r)
        return NULL;
    r->id = id;
    r->lane = request->lane;
    r->job = request->job_id;
    r->count = count;
    r->late_ns = clock_now_ns() + LATE_NS;
    r->is_behind = request->behind;
    r->is_regrouping = request->gone.len > 0;
    if (count > 0)
        memcpy(r->pieces, request->pieces, count * sizeof *r->pieces);
    if (request->gone.len > 0)
        memcpy(r->gone, request->gone.data, sizeof r->gone);
    r->rounds = calloc(count + 1, sizeof *r->rounds);
    r->state_bytes = calloc(count + 1, sizeof *r->state_bytes);
    r->steps = calloc(count + 1, sizeof *r->steps);
    return r;
}

static void release_free(struct release *r)
{
    free(r->rounds);
    free(r->state_bytes);
    free(r->steps);
    free(r);
}

size_t moving_waits(const struct aggregator *a)
{
    size_t count = 0;
    for (const struct release *r = a->releases; r; r = r->next)
        count++;
    return count;
}

static int let_go(struct lane *lane, struct release *r)
{
    r->is_begun = true;
    int code = r->count > 0 ? lane_release(lane, r->job, r->pieces, r->count) : 0;
    if (code == 0)
        lane_let_go(lane, r->job, r->gone);
    return code;
}

static int begin(struct lane *lane, void *context)
{
    struct release *r = context;
    if (!r->is_regrouping && lane_may_leave(lane, r->job, r->pieces, r->count) < 0)
        return -EAGAIN;
    if (!r->is_behind)
        return let_go(lane, r);
    if (lane_may_move(lane, r->job, r->pieces, r->count) < 0)
        return -EAGAIN;
    return lane_wish(lane, r->job, r->pieces, r->count, clock_now_ns(), &r->wish);
}

/* Calls lane_release() when the time for the release has come. Returns -EAGAIN before this time. */
static int begin_in_time(struct lane *lane, struct release *r)
{
    int code = lane_may_release(lane, r->job, r->pieces, r->count, &r->wish, clock_now_ns());
    if (code <= 0)
        return code < 0 ? code : -EAGAIN;
    return let_go(lane, r);
}

static int note_standings(struct lane *lane, struct release *r)
{
    for (size_t i = 0; i < r->count; i++) {
        struct lane_standing standing;
        int code = lane_standing(lane, r->job, r->pieces[i], &standing);
        if (code < 0)
            return code;
        r->rounds[i] = standing.round;
        r->state_bytes[i] = standing.state_bytes;
        r->steps[i] = standing.steps;
        r->is_recovering |= standing.is_recovering;
    }
    return 0;
}

/* Checks once whether a rank does not respond. Returns -EHOSTDOWN with a `text` that names this
 * rank, or -EAGAIN if all ranks respond. */
static int find_stuck(struct lane *lane, struct release *r)
{
    if (r->late_ns == 0 || clock_now_ns() < r->late_ns)
        return -EAGAIN;
    r->late_ns = 0;
    return lane_stuck(lane, r->job, r->pieces, r->count, r->text, sizeof r->text) ? -EHOSTDOWN
                                                                                  : -EAGAIN;
}

/* Begins the release when its time has come, and counts the frozen pieces. Returns -EAGAIN until
 * all pieces are frozen. Then returns 0, and `r` has the values for the reply. */
static int look(struct lane *lane, void *context)
{
    struct release *r = context;
    int code = r->is_begun ? 0 : begin_in_time(lane, r);
    if (code < 0)
        return code;
    r->rested += lane_rested(lane, r->job, r->pieces + r->rested, r->count - r->rested);
    return r->rested < r->count ? find_stuck(lane, r) : note_standings(lane, r);
}

/* Checks whether all pieces are still released, because some may have been dropped. Returns -EAGAIN
 * if all pieces are still released. */
static int look_again(struct lane *lane, void *context)
{
    struct release *r = context;
    int code = lane_is_releasing(lane, r->job, r->pieces, r->count);
    return code < 0 ? code : -EAGAIN;
}

static int send_standings(struct aggregator *a, const struct release *r)
{
    return serve_answer(a, r->id, RELEASE_REPLY, release_reply, .n_rounds = r->count,
                        .n_state_bytes = r->count, .n_steps = r->count, .rounds = r->rounds,
                        .state_bytes = r->state_bytes, .steps = r->steps,
                        .recovering = r->is_recovering);
}

/* Calls `ask` on the lane of each release, and answers each release whose result is not -EAGAIN. */
static int settle(struct aggregator *a, int (*ask)(struct lane *lane, void *context))
{
    int sent = 0;
    for (struct release **at = &a->releases, *r; (r = *at) && sent >= 0;) {
        int code = serve_call(a, r->lane, ask, r);
        if (code == -EAGAIN) {
            at = &r->next;
            continue;
        }
        if (r->text[0])
            sent = serve_reply_failure(a, r->id, code, r->text);
        else
            sent = code < 0 ? answer(a, r->id, r->lane, r->job, code) : send_standings(a, r);
        *at = r->next;
        release_free(r);
    }
    return sent;
}

int moving_rested(struct aggregator *a) { return settle(a, look); }

int moving_recheck(struct aggregator *a) { return settle(a, look_again); }

int moving_timeout_ms(const struct aggregator *a)
{
    uint64_t next_ns = UINT64_MAX;
    for (const struct release *r = a->releases; r; r = r->next) {
        uint64_t due_ns = r->is_begun ? r->late_ns : r->wish.until_ns;
        if (due_ns > 0 && due_ns < next_ns)
            next_ns = due_ns;
    }
    return clock_poll_ms(next_ns, clock_now_ns());
}

/* Cancels a pending request to release pieces. */
static int take_back(struct lane *lane, void *context)
{
    const struct release *r = context;
    lane_thaw(lane, r->job, r->pieces, r->count);
    return 0;
}

void moving_abandon(struct aggregator *a)
{
    free(a->state_buffer);
    a->state_buffer = NULL;
    for (struct release *r; (r = a->releases);) {
        a->releases = r->next;
        if (!r->is_begun)
            (void)serve_call(a, r->lane, take_back, r);
        release_free(r);
    }
}

static int serve_release(struct aggregator *a, uint64_t id,
                         const Gradpool__Wire__ReleaseRequest *request)
{
    bool is_sound = request->gone.len == 0 ? request->n_pieces > 0
                                           : request->gone.len == sizeof((struct release *)0)->gone;
    int code = is_sound ? -ENOBUFS : -EINVAL;
    struct release *r = NULL;
    if (is_sound && moving_waits(a) < RELEASES_MAX) {
        r = release_create(id, request);
        code = r && r->rounds && r->state_bytes && r->steps ? serve_call(a, r->lane, begin, r)
                                                            : -ENOMEM;
    }
    if (code < 0) {
        if (r)
            release_free(r);
        return answer(a, id, request->lane, request->job_id, code);
    }
    r->next = a->releases;
    a->releases = r;
    return settle(a, look);
}

static int thaw(struct lane *lane, void *context)
{
    const Gradpool__Wire__ThawRequest *request = context;
    lane_thaw(lane, request->job_id, request->pieces, request->n_pieces);
    return 0;
}

static int serve_thaw(struct aggregator *a, uint64_t id, Gradpool__Wire__ThawRequest *request)
{
    int code = serve_call(a, request->lane, thaw, request);
    int sent = answer(a, id, request->lane, request->job_id, code);
    return sent < 0 ? sent : moving_recheck(a);
}

/* ---- state ---- */

struct reading {
    const Gradpool__Wire__StateRequest *request;
    char *data;
    size_t bytes;
};

static int read_state(struct lane *lane, void *context)
{
    struct reading *reading = context;
    const Gradpool__Wire__StateRequest *request = reading->request;
    int64_t bytes = lane_state_read(lane, request->job_id, request->piece, request->offset,
                                    reading->data, STATE_BYTES_MAX);
    reading->bytes = bytes < 0 ? 0 : (size_t)bytes;
    return bytes < 0 ? (int)bytes : 0;
}

static int send_state(struct aggregator *a, uint64_t id, const struct reading *reading)
{
    return serve_answer(a, id, STATE_REPLY, state_reply,
                        .data = {reading->bytes, (uint8_t *)reading->data});
}

/* Creates the buffer on first use, with all its pages, so that a lane writes to it without page
 * faults (A73). */
char *moving_state_buffer(struct aggregator *a)
{
    if (a->state_buffer)
        return a->state_buffer;
    char *buffer = malloc(STATE_BYTES_MAX);
    int error = buffer ? populate_warm(buffer, STATE_BYTES_MAX) : -ENOMEM;
    if (error == 0)
        a->state_buffer = buffer;
    else
        free(buffer);
    return a->state_buffer;
}

static int serve_state(struct aggregator *a, uint64_t id,
                       const Gradpool__Wire__StateRequest *request)
{
    struct reading reading = {.request = request, .data = moving_state_buffer(a)};
    int code = reading.data ? serve_call(a, request->lane, read_state, &reading) : -ENOMEM;
    return code < 0 ? answer(a, id, request->lane, request->job_id, code)
                    : send_state(a, id, &reading);
}

static int put_state(struct lane *lane, void *context)
{
    const Gradpool__Wire__StatePut *put = context;
    return lane_state_put(lane, put->job_id, put->piece, put->offset, put->data.data,
                          put->data.len);
}

static int install(struct lane *lane, void *context)
{
    const Gradpool__Wire__InstallRequest *request = context;
    if (request->n_pieces != request->n_rounds)
        return -EINVAL;
    return lane_install(lane, request->job_id, request->pieces, request->rounds, request->n_pieces);
}

/* ---- requests ---- */

bool moving_knows(const envelope *request)
{
    switch (request->body_case) {
    case GRADPOOL__WIRE__ENVELOPE__BODY_RELEASE_REQUEST:
    case GRADPOOL__WIRE__ENVELOPE__BODY_THAW_REQUEST:
    case GRADPOOL__WIRE__ENVELOPE__BODY_STATE_REQUEST:
    case GRADPOOL__WIRE__ENVELOPE__BODY_STATE_PUT:
    case GRADPOOL__WIRE__ENVELOPE__BODY_INSTALL_REQUEST: return true;
    default: return false;
    }
}

int moving_serve(struct aggregator *a, const envelope *request)
{
    Gradpool__Wire__StatePut *put = request->state_put;
    Gradpool__Wire__InstallRequest *installed = request->install_request;
    switch (request->body_case) {
    case GRADPOOL__WIRE__ENVELOPE__BODY_RELEASE_REQUEST:
        return serve_release(a, request->id, request->release_request);
    case GRADPOOL__WIRE__ENVELOPE__BODY_THAW_REQUEST:
        return serve_thaw(a, request->id, request->thaw_request);
    case GRADPOOL__WIRE__ENVELOPE__BODY_STATE_REQUEST:
        return serve_state(a, request->id, request->state_request);
    case GRADPOOL__WIRE__ENVELOPE__BODY_STATE_PUT:
        return answer(a, request->id, put->lane, put->job_id,
                      serve_call(a, put->lane, put_state, put));
    default:
        return answer(a, request->id, installed->lane, installed->job_id,
                      serve_call(a, installed->lane, install, installed));
    }
}
