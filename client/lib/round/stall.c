/* Finds the reason why a request is not over, at its deadline or when a warning is due: late ranks,
 * or a lane that does not answer or is lost. Queries go to at most QUERIES_MAX lanes, then to the
 * coordinator; each wait for answers ends after ANSWER_WAIT_NS. README: L11, L35, L59. */
#include "client/lib/round/stall.h"

#include "client/lib/job/piece.h"
#include "client/lib/job/request.h"
#include "client/lib/link/link.h"
#include "client/lib/round/row_stall.h"
#include "client/lib/session/process.h"
#include "svc/base/clock.h"
#include "svc/base/log.h"
#include "svc/base/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define ANSWER_WAIT_NS (3 * NS_PER_S) /* time for answers: enough for a lane on a busy host */
#define QUERIES_MAX 8
#define RANKS_NAMED_MAX 16
#define TENSORS_NAMED_MAX 3

/* Returns a piece for which the request waits, if possible an announced one, because ranks may be
 * missing in its round. NULL: no piece is open, or the tensor has failed. */
static struct piece *stalled_piece(struct gp_tensor *t)
{
    struct piece *open = NULL;
    if (t->failure.code)
        return NULL; /* the tensor is over, and the request waits for its other tensors */
    for_each_piece (p, t) {
        if (p->standing == PIECE_ANNOUNCED)
            return p;
        if (!open && (p->standing != PIECE_IDLE || p->is_entering))
            open = p;
    }
    return open;
}

static void stall_query_tensor(struct gp_request *q, struct gp_tensor *t)
{
    for_each_piece (p, t) {
        bool is_open = (p->standing != PIECE_IDLE || p->is_entering) && !t->failure.code;
        if (q->queries == QUERIES_MAX || !is_open || p->is_orphan || p->link->was_queried)
            continue;
        p->link->was_queried = link_query(p->link, p);
        q->queries += p->link->was_queried;
    }
}

/* Sends queries about the request, at most one to each lane: one answer is enough to find the
 * missing ranks. */
static void stall_query(struct gp_request *q)
{
    q->queries = 0;
    q->missing_tensor = NULL;
    for_each_link (l, q->job)
        l->was_queried = false;
    list_for_each_entry (struct gp_tensor, t, &q->waiting, in_request)
        stall_query_tensor(q, t);
    if (q->rows)
        row_stall_query(q);
    engine_flush(&q->job->engine);
}

/* Returns whether an answer has named ranks for which the request waits. */
static bool has_missing(const struct gp_request *q)
{
    return q->missing_tensor || (q->rows && row_stall_names_ranks(q));
}

static bool is_answered(void *context)
{
    const struct gp_request *q = context;
    return request_has_news(context) || q->queries == 0;
}

/* ---- the coordinator's answer (L59) ---- */

/* Stores the coordinator's answer. Thread: the control thread. */
static void late_told(struct control_call *call, const envelope *reply, const struct err *err)
{
    struct late *late = container_of(call, struct late, call);
    struct gp_job *job = container_of(late, struct gp_job, late);
    pthread_mutex_lock(&job->lock);
    late->is_asked = false;
    if (reply && reply->body_case == GRADPOOL__WIRE__ENVELOPE__BODY_LATE_REPLY)
        snprintf(late->text, sizeof late->text, "%s", reply->late_reply->text);
    engine_kick(&job->engine);
    pthread_mutex_unlock(&job->lock);
}

static void late_post(struct gp_job *job, const uint64_t *ranks)
{
    struct late *late = &job->late;
    memcpy(late->ranks, ranks, sizeof late->ranks);
    late->request = MESSAGE_PART(LateRequest, late_request,
                                 .ranks = {sizeof late->ranks, (uint8_t *)late->ranks});
    late->call.request = ENVELOPE(0, LATE_REQUEST, late_request, &late->request);
    late->call.done = late_told;
    late->is_asked = true;
    control_post(job->control, &late->call);
}

static bool late_is_over(void *context)
{
    const struct gp_request *q = context;
    return request_has_news(context) || !q->job->late.is_asked;
}

static void late_ask(struct gp_request *q)
{
    struct gp_job *job = q->job;
    job->late.text[0] = 0;
    if (job->late.is_asked || !control_is_up(job->control))
        return;
    late_post(job, q->missing);
    engine_run(&job->engine, clock_now_ns() + ANSWER_WAIT_NS, late_is_over, q);
}

/* ---- the text of the reason ---- */

static void append_ranks(const struct gp_request *q, char *text)
{
    uint32_t named = 0, more = 0;
    for (uint32_t rank = 0; rank < q->job->workers; rank++) {
        if (!ranks_have(q->missing, rank))
            continue;
        if (named == RANKS_NAMED_MAX)
            more++;
        else
            text_append(text, ERR_TEXT_BYTES, "%s%u", named++ ? ", " : "", rank);
    }
    if (more)
        text_append(text, ERR_TEXT_BYTES, " and %u more", more);
}

static void say_missing(const struct gp_request *q, char *text)
{
    const char *lacks = q->missing_have_pushed
                            ? "all ranks have pushed, no answer from the memory of"
                            : "no push from";
    text_append(text, ERR_TEXT_BYTES, "%s rank%s ", lacks, ranks_count(q->missing) == 1 ? "" : "s");
    append_ranks(q, text);
}

static void say_unreachable(const struct gp_job *job, char *text)
{
    if (!control_is_up(job->control))
        text_append(text, ERR_TEXT_BYTES, "; the coordinator at %s cannot be reached either",
                    job->client->endpoint_text);
}

static void say_lane(const struct gp_request *q, const struct piece *p, char *text)
{
    const struct link *l = p->fence ? p->fence : p->link;
    char name[128], way[LINK_WAY_BYTES];
    link_name(l, name, sizeof name);
    if (p->fence)
        text_append(text, ERR_TEXT_BYTES, "%s is lost, but may write until its process ends", name);
    else if (p->is_orphan || l->state == LINK_CLOSED) {
        text_append(text, ERR_TEXT_BYTES, "%s is lost and no other has taken over", name);
        say_unreachable(q->job, text);
    } else if (l->state != LINK_OPEN) {
        text_append(text, ERR_TEXT_BYTES, "not connected to %s yet%s%s", name,
                    l->failure.code ? ": " : "",
                    l->failure.code ? l->failure.text : link_way(l, way, sizeof way));
        say_unreachable(q->job, text);
    } else if (q->queries > 0) {
        text_append(text, ERR_TEXT_BYTES, "%s does not answer", name);
    } else if (p->is_outside) {
        text_append(text, ERR_TEXT_BYTES,
                    "this rank joined late, and the other ranks have not ended a step since");
    } else if (p->is_entering) {
        text_append(text, ERR_TEXT_BYTES,
                    "this rank joined late, and %s has not sent its first round yet", name);
    } else {
        text_append(text, ERR_TEXT_BYTES, "all ranks have pushed, %s has not finished", name);
    }
}

static struct gp_tensor *first_stalled(struct gp_request *q)
{
    list_for_each_entry (struct gp_tensor, t, &q->waiting, in_request)
        if (stalled_piece(t))
            return t;
    return list_entry(list_first(&q->waiting), struct gp_tensor, in_request);
}

/* Writes the reason to `text` (ERR_TEXT_BYTES). Returns the tensor that the text names; NULL: the
 * text is about a table. */
static const struct gp_tensor *stall_describe(struct gp_request *q, char *text)
{
    if (q->rows) {
        row_stall_describe(q, text);
        return NULL;
    }
    struct gp_tensor *t = first_stalled(q);
    const struct piece *p = stalled_piece(t);
    if (q->missing_tensor) {
        text_append(text, ERR_TEXT_BYTES, "tensor '%.100s' round %" PRIu64 ": ",
                    q->missing_tensor->name, q->missing_round);
        say_missing(q, text);
        return q->missing_tensor;
    }
    text_append(text, ERR_TEXT_BYTES, "tensor '%.100s' round %" PRIu64 ": ", t->name, t->round);
    if (p)
        say_lane(q, p, text);
    else
        text_append(text, ERR_TEXT_BYTES, "another thread copies the result");
    return t;
}

/* Writes the reason to `text`, and the tensor that the text names to `ret_told`. Returns false if
 * the request has got news during the queries. */
static bool stall_find_reason(struct gp_request *q, char *text, const struct gp_tensor **ret_told)
{
    stall_query(q);
    engine_run(&q->job->engine, clock_now_ns() + ANSWER_WAIT_NS, is_answered, q);
    q->job->late.text[0] = 0;
    if (has_missing(q) && !request_has_news(q))
        late_ask(q);
    if (request_has_news(q))
        return false;
    *ret_told = stall_describe(q, text);
    return true;
}

/* Appends the coordinator's text about the late ranks, if one has arrived. */
static void append_late(const struct gp_request *q, char *text)
{
    if (has_missing(q) && q->job->late.text[0])
        text_append(text, ERR_TEXT_BYTES, "; %s", q->job->late.text);
}

/* Appends the error of a request that has failed, and waits for the end of the other rounds because
 * lanes use lent memory. Another rank may have got the same error from its push, and then has not
 * begun the other rounds. */
static void append_failure(const struct gp_request *q, char *text)
{
    if (request_still_lends(q))
        text_append(text, ERR_TEXT_BYTES,
                    "; the request has failed, and lanes still use its memory: %s. Push its other "
                    "tensors on every rank, or leave the job",
                    q->err.text);
}

int stall_explain(struct gp_request *q, uint64_t timeout_ns)
{
    char text[ERR_TEXT_BYTES] = "";
    const struct gp_tensor *told;
    if (!stall_find_reason(q, text, &told))
        return 0;
    int error = row_stall_lacks(q, timeout_ns);
    if (error < 0)
        return error;
    text_append(text, sizeof text, " after %" PRIu64 " ms", timeout_ns / NS_PER_MS);
    append_late(q, text);
    append_failure(q, text);
    return client_error(-ETIMEDOUT, "%s. To wait longer, raise timeout_ms or GRADPOOL_TIMEOUT_MS",
                        text);
}

/* ---- warnings during a wait ---- */

uint64_t stall_due(struct gp_request *q, uint64_t now_ns)
{
    uint64_t limit_ns = q->client->stall_ns;
    if (limit_ns == 0)
        return UINT64_MAX;
    if (q->stall.since_ns == 0)
        q->stall = (struct stall){.since_ns = now_ns, .due_ns = now_ns + limit_ns};
    return q->stall.due_ns;
}

static void append_others(const struct gp_request *q, const struct gp_tensor *told, char *text)
{
    uint32_t named = 0, more = 0;
    list_for_each_entry (const struct gp_tensor, t, &q->waiting, in_request) {
        if (t == told)
            continue;
        if (named == TENSORS_NAMED_MAX)
            more++;
        else
            text_append(text, ERR_TEXT_BYTES, "%s'%.60s'",
                        named++ ? ", " : "; late as well: ", t->name);
    }
    if (more)
        text_append(text, ERR_TEXT_BYTES, " and %u more", more);
}

/* Logs with the job's lock released, because the log may be a function of the user, or a pipe that
 * no process reads. */
__attribute__((format(printf, 2, 3))) static void stall_log(const struct gp_request *q,
                                                            const char *format, ...)
{
    struct gp_job *job = q->job;
    char text[ERR_TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    pthread_mutex_unlock(&job->lock);
    log_warn("job '%s' rank %u %s", job->name, job->rank, text);
    pthread_mutex_lock(&job->lock);
}

static const char *put_seconds(char *text, size_t text_bytes, uint64_t ns)
{
    double seconds = (double)ns / NS_PER_S;
    snprintf(text, text_bytes, "%.*f s", seconds < 10 ? 3 : 0, seconds);
    return text;
}

/* Logs a warning about a stalled request. If several threads of the job wait, only one thread logs:
 * after a warning, the job logs no further one until the stall limit has passed again. */
void stall_warn(struct gp_request *q)
{
    struct gp_job *job = q->job;
    struct stall *s = &q->stall;
    uint64_t now_ns = clock_now_ns();
    char text[ERR_TEXT_BYTES] = "", time[32];
    s->due_ns = now_ns + (now_ns - s->since_ns);
    if (job->stall_told_ns && now_ns - job->stall_told_ns < q->client->stall_ns)
        return;
    const struct gp_tensor *told;
    bool is_found = stall_find_reason(q, text, &told);
    q->queries = 0; /* answers that arrive later are ignored */
    if (!is_found)
        return;
    append_late(q, text);
    append_others(q, told, text);
    job->stall_told_ns = now_ns;
    s->is_told = true;
    stall_log(q, "has waited for %s: %s", put_seconds(time, sizeof time, now_ns - s->since_ns),
              text);
}

void stall_end(struct gp_request *q)
{
    char time[32];
    struct stall was = q->stall;
    q->stall = (struct stall){0};
    if (!was.is_told || q->err.code)
        return;
    q->job->stall_told_ns = 0;
    stall_log(q, "goes on after %s", put_seconds(time, sizeof time, clock_now_ns() - was.since_ns));
}
