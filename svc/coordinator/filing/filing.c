/* Requests of operators to export and import tables. Owns struct filing. A hold of a table ends
 * when its operator disconnects, when the table's lanes are lost, or at a deadline. RULES.md:
 * K115. */
#include "svc/base/log.h"
#include "svc/coordinator/aggregator/call.h"
#include "svc/coordinator/aggregator/lane.h"
#include "svc/coordinator/filing/internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define SILENCE_NS (5 * NS_PER_S)   /* longest time between two requests of the operator */
#define PATIENCE_NS (10 * NS_PER_S) /* longest wait until all lanes have stopped the table */

/* ---- lookup ---- */

static struct filing *filing_find(struct service *s, uint64_t id)
{
    list_for_each_entry (struct filing, f, &s->works->filings, link)
        if (f->id == id)
            return f;
    return NULL;
}

struct filing *filing_of(struct service *s, const struct filing_asked *asked)
{
    struct filing *f = filing_find(s, asked->filing);
    return f && f->turn == asked->turn ? f : NULL;
}

struct job_table *filing_table(const struct filing *f)
{
    struct job *job = jobs_find_id(f->service, f->job);
    return job && !job->failure ? job_table_find(job, f->table) : NULL;
}

/* ---- calls, answers ---- */

int filing_call(struct filing *f, size_t at, WIRE(TableBulk) message, call_done_fn done)
{
    struct lane *lane = lane_find(f->service, f->lanes[at].lane);
    const struct filing_asked asked = {.filing = f->id, .turn = f->turn, .at = at};
    if (!lane)
        return -ENOENT;
    message.lane = lane->id;
    message.job_id = f->job;
    message.table = f->table;
    int error = call_send(lane->aggregator, &ENVELOPE(0, TABLE_BULK, table_bulk, &message),
                          CALL_DEADLINE_NS, done, &asked, sizeof asked);
    f->pending += error == 0;
    return error;
}

void filing_answer(struct filing *f, WIRE(TableFileReply) reply)
{
    reply.file = f->id;
    peer_send(f->peer, &ENVELOPE(f->request, TABLE_FILE_REPLY, table_file_reply, &reply));
    f->request = 0;
}

void filing_free(struct filing *f)
{
    timer_stop(&f->timer);
    list_remove(&f->link);
    free(f->part);
    free(f);
}

static void filing_continued(struct service *s, void *data, const envelope *reply, int code,
                             const char *text)
{
    (void)s;
    (void)data;
    (void)reply;
    if (code < 0)
        log_debug("an order about a held table has failed: %s", text);
}

/* Ends the hold on all lanes, without a wait for their answers. A lane that does not receive the
 * request has lost its connection to the coordinator, and ends the hold itself. */
static void filing_let_go_on(struct filing *f)
{
    f->turn++;
    for (size_t at = 0; at < f->lanes_count; at++) {
        WIRE(TableBulk) m = MESSAGE_PART(TableBulk, table_bulk);
        m.step = GRADPOOL__WIRE__TABLE_BULK_STEP__TABLE_BULK_CONTINUE;
        struct lane *lane = lane_find(f->service, f->lanes[at].lane);
        if (filing_call(f, at, m, filing_continued) < 0 && lane && lane->aggregator->peer)
            peer_break(lane->aggregator->peer);
    }
}

void filing_break(struct filing *f, int code, const char *format, ...)
{
    char text[ERR_TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    filing_let_go_on(f);
    if (f->request)
        peer_fail(f->peer, f->request, code, "%s", text);
    else
        log_warn("%s of a table ended early: %s", f->is_import ? "the import" : "the export", text);
    filing_free(f);
}

static void filing_was_silent(struct timer *timer)
{
    struct filing *f = container_of(timer, struct filing, timer);
    filing_break(f, -ETIMEDOUT, "the operator's command sent no request for %u s",
                 (unsigned)(SILENCE_NS / NS_PER_S));
}

void filing_await(struct filing *f)
{
    timer_stop(&f->timer);
    timer_init(&f->timer, filing_was_silent);
    timer_start(f->service->loop, &f->timer, clock_now_ns() + SILENCE_NS);
}

/* ---- begin ---- */

static int filing_check(const struct job_table *table, struct err *err)
{
    const char *job = table->job->name;
    if (table->failure)
        return err_set(err, -EOWNERDEAD, "table '%s' of job %.64s has failed: %s", table->name, job,
                       table->failure);
    table_each_shard(
        shard, table) if (shard->state != PIECE_READY ||
                          shard->lane->aggregator->state !=
                              AGGREGATOR_UP) return err_set(err, -EAGAIN,
                                                            "table '%s' of job %.64s: a shard is "
                                                            "being placed, or its aggregator is "
                                                            "away; try again",
                                                            table->name, job);
    list_for_each_entry (const struct filing, f, &table->job->service->works->filings, link)
        if (f->job == table->job->id && f->table == table->id)
            return err_set(err, -EBUSY,
                           "table '%s' of job %.64s is being exported or imported; try again when "
                           "this has ended",
                           table->name, job);
    return 0;
}

static bool filing_has_lane(const struct filing *f, uint32_t lane)
{
    for (size_t at = f->lanes_count; at-- > 0;)
        if (f->lanes[at].lane == lane)
            return true;
    return false;
}

static struct filing *filing_create(struct peer *p, const envelope *request,
                                    const struct job_table *table)
{
    struct service *s = p->service;
    struct filing *f = calloc(1, sizeof *f + table->terms->shards * sizeof *f->lanes);
    if (!f)
        return NULL;
    *f = (struct filing){
        .service = s,
        .peer = p,
        .id = ++s->door->next_id,
        .request = request->id,
        .job = table->job->id,
        .table = table->id,
        .is_import =
            request->table_file_request->step == GRADPOOL__WIRE__TABLE_FILE_STEP__TABLE_FILE_IMPORT,
        .patience_ns = clock_now_ns() + PATIENCE_NS,
    };
    table_each_shard(shard, table) if (!filing_has_lane(f, shard->lane->id))
        f->lanes[f->lanes_count++]
            .lane = shard->lane->id;
    timer_init(&f->timer, filing_was_silent);
    list_append(&s->works->filings, &f->link);
    return f;
}

static void filing_begin(struct peer *p, const envelope *request)
{
    const WIRE(TableFileRequest) *wanted = request->table_file_request;
    struct err err;
    if (p->service->phase != SERVICE_UP)
        return peer_fail(p, request->id, -ESHUTDOWN, "gradpool serve is stopping");
    const struct job *job = jobs_find_meant(p, request->id, wanted->job, wanted->tenant);
    if (!job)
        return;
    const struct job_table *table = job_table_named(job, wanted->table);
    if (!table)
        return peer_fail(p, request->id, -ENOENT,
                         "job %.64s has no table '%.255s'; see `gradpool table list %.64s`",
                         job->name, wanted->table, job->name);
    if (filing_check(table, &err) < 0)
        return peer_fail(p, request->id, err.code, "%s", err.text);
    struct filing *f = filing_create(p, request, table);
    if (!f)
        return peer_fail_memory(p, request->id);
    filing_hold(f);
}

/* ---- requests ---- */

/* Returns the peer's export or import if it is ready; otherwise sends a failure and returns
 * NULL. */
static struct filing *filing_own(struct peer *p, uint64_t request, uint64_t id)
{
    struct filing *f = filing_find(p->service, id);
    if (f && f->peer == p && f->is_ready && !f->request)
        return f;
    peer_fail(p, request, -ECANCELED,
              "the export or import has ended: its job or a lane has ended, or a request came more "
              "than %u s after the last one; begin again",
              (unsigned)(SILENCE_NS / NS_PER_S));
    return NULL;
}

void filing_handle(struct peer *p, const envelope *message)
{
    const WIRE(TableFileRequest) *request = message->table_file_request;
    bool begins = request->step == GRADPOOL__WIRE__TABLE_FILE_STEP__TABLE_FILE_EXPORT ||
                  request->step == GRADPOOL__WIRE__TABLE_FILE_STEP__TABLE_FILE_IMPORT;
    if (begins)
        return filing_begin(p, message);
    struct filing *f = filing_own(p, message->id, request->file);
    if (!f)
        return;
    timer_stop(&f->timer); /* while calls are open, only the deadlines of the calls apply */
    f->request = message->id;
    f->turn++;
    f->pending = 0;
    if (request->step == GRADPOOL__WIRE__TABLE_FILE_STEP__TABLE_FILE_END)
        filing_end(f, request->steps);
    else if (f->is_import)
        filing_write(f, &request->rows);
    else
        filing_read(f);
}

void filings_peer_gone(const struct peer *p)
{
    list_for_each_safe_entry (struct filing, f, &p->service->works->filings, link) {
        if (f->peer != p)
            continue;
        f->request = 0;
        filing_break(f, -ECONNRESET, "the operator's command has disconnected");
    }
}

void filings_destroy(struct service *s)
{
    list_for_each_safe_entry (struct filing, f, &s->works->filings, link)
        filing_free(f);
}
