/* Operators and ranks request exports and imports of one table or of all tables of a job. Owns
 * struct filing. The lanes hold the tables until the operator or rank disconnects, a lane of the
 * tables is lost, or a deadline has passed. RULES.md: K115, K150. */
#include "svc/base/log.h"
#include "svc/coordinator/aggregator/call.h"
#include "svc/coordinator/aggregator/lane.h"
#include "svc/coordinator/filing/internal.h"
#include "svc/coordinator/job/quota.h"
#include "svc/wire/record.h"
#include "svc/wire/table/record_rows.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* Longest time between two requests of an operator, and of a rank. A rank's next request comes only
 * after an agreement with all other ranks. */
#define SILENCE_NS (5 * NS_PER_S)
#define SILENCE_BETWEEN_NS (60 * NS_PER_S)

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

struct job_table *filing_table_at(const struct filing *f, uint32_t place)
{
    struct job *job = jobs_find_id(f->peer->service, f->job);
    return job && !job->failure ? job_table_find(job, f->tables->each[place].table) : NULL;
}

struct job_table *filing_table(const struct filing *f) { return filing_table_at(f, f->place); }

/* ---- calls, answers ---- */

int filing_call(struct filing *f, size_t at, WIRE(TableBulk) message, call_done_fn done)
{
    struct lane *lane = lane_find(f->peer->service, f->lanes[at].lane);
    const struct filing_asked asked = {.filing = f->id, .turn = f->turn, .at = at};
    if (!lane)
        return -ENOENT;
    message.lane = lane->id;
    message.job_id = f->job;
    message.table = row_table_id(f->tables->each[f->lanes[at].place].table, f->lanes[at].group);
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
    free(f->tables);
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

/* Ends the hold on all lanes, without a wait for their answers. If a request cannot be sent, the
 * connection to the lane's aggregator is closed, because a lane without a connection to the
 * coordinator ends the hold itself. */
static void filing_let_go_on(struct filing *f)
{
    f->turn++;
    for (size_t at = 0; at < f->lanes_count; at++) {
        WIRE(TableBulk) m = MESSAGE_PART(TableBulk, table_bulk);
        m.step = GRADPOOL__WIRE__TABLE_BULK_STEP__TABLE_BULK_CONTINUE;
        struct lane *lane = lane_find(f->peer->service, f->lanes[at].lane);
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

static uint64_t filing_silence_ns(const struct filing *f)
{
    return f->is_between ? SILENCE_BETWEEN_NS : SILENCE_NS;
}

static const char *filing_asker(const struct filing *f)
{
    return f->is_between ? "the rank that copies the tables" : "the operator's command";
}

static void filing_was_silent(struct timer *timer)
{
    struct filing *f = container_of(timer, struct filing, timer);
    filing_break(f, -ETIMEDOUT, "%s sent no request for %u s", filing_asker(f),
                 (unsigned)(filing_silence_ns(f) / NS_PER_S));
}

void filing_await(struct filing *f)
{
    timer_stop(&f->timer);
    timer_init(&f->timer, filing_was_silent);
    timer_start(f->peer->service->loop, &f->timer, clock_now_ns() + filing_silence_ns(f));
}

/* ---- begin ---- */

static bool filing_has_table(const struct filing *f, uint32_t table)
{
    for (uint32_t place = 0; place < f->tables->count; place++)
        if (f->tables->each[place].table == table)
            return true;
    return false;
}

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
        if (f->job == table->job->id && filing_has_table(f, table->id))
            return err_set(err, -EBUSY,
                           "table '%s' of job %.64s is being exported or imported; try again when "
                           "this has ended",
                           table->name, job);
    return 0;
}

static bool filing_has_shard(const struct filing *f, const struct job_shard *shard, uint32_t place)
{
    for (size_t at = f->lanes_count; at-- > 0 && f->lanes[at].place == place;)
        if (f->lanes[at].lane == shard->lane->id && f->lanes[at].group == shard->group)
            return true;
    return false;
}

static void filing_add_table(struct filing *f, const struct job_table *table)
{
    uint32_t place = f->tables->count++;
    f->tables->each[place] = (struct filing_table){.table = table->id};
    table_each_shard(shard, table) if (!filing_has_shard(f, shard, place))
        f->lanes[f->lanes_count++] =
        (struct filing_lane){.lane = shard->lane->id, .group = shard->group, .place = place};
}

/* Creates an export or import of `table`; NULL: of all tables. */
static struct filing *filing_create(struct peer *p, const envelope *request, const struct job *job,
                                    const struct job_table *only)
{
    struct service *s = p->service;
    const WIRE(TableFileRequest) *wanted = request->table_file_request;
    size_t shards = 0;
    job_each_table(table, job) shards += !only || table == only ? table->terms->shards : 0;
    struct filing_tables *tables =
        calloc(1, sizeof *tables + job->index->tables.count * sizeof *tables->each);
    struct filing *f = calloc(1, sizeof *f + shards * sizeof *f->lanes);
    if (!f || !tables) {
        free(f);
        free(tables);
        return NULL;
    }
    *f = (struct filing){
        .peer = p,
        .id = ++s->door->next_id,
        .request = request->id,
        .job = job->id,
        .tables = tables,
        .is_import = wanted->step == GRADPOOL__WIRE__TABLE_FILE_STEP__TABLE_FILE_IMPORT,
        .is_between = wanted->between,
        .clock = wanted->clock < RECORD_CLOCK_MOST ? wanted->clock : 0,
        .since_ns = clock_now_ns(),
    };
    job_each_table(table, job) if (!only || table == only) filing_add_table(f, table);
    timer_init(&f->timer, filing_was_silent);
    list_append(&s->works->filings, &f->link);
    return f;
}

/* Checks the tables of a request. Returns 0, or an error with a text. `ret_only`: the only table of
 * the request; NULL: the request means all tables of the job. */
static int filing_find_tables(const struct job *job, const WIRE(TableFileRequest) * wanted,
                              const struct job_table **ret_only, struct err *err)
{
    *ret_only = *wanted->table ? job_table_named(job, wanted->table) : NULL;
    if (*wanted->table && !*ret_only)
        return err_set(err, -ENOENT,
                       "job %.64s has no table '%.255s'; see `gradpool table list %.64s`",
                       job->name, wanted->table, job->name);
    if (job->index->tables.count == 0)
        return err_set(err, -ENODATA, "job %.64s has no table; declare one with gp_table_declare()",
                       job->name);
    job_each_table(table, job) if (!*ret_only || table == *ret_only)
    {
        int error = filing_check(table, err);
        if (error < 0)
            return error;
    }
    return 0;
}

/* Refuses an import that cannot fit, before any row is stored. The rows need more memory than their
 * bytes, so an import that passes may still reach a limit. */
static int filing_check_room(const struct job *job, uint64_t bytes, struct err *err)
{
    uint64_t granted = job_allowances_bytes(job);
    return bytes > granted ? quota_check_rows(job, bytes - granted, err) : 0;
}

static void filing_begin(struct peer *p, const envelope *request)
{
    const WIRE(TableFileRequest) *wanted = request->table_file_request;
    const struct job_table *only;
    struct err err;
    if (p->service->phase != SERVICE_UP)
        return peer_fail(p, request->id, -ESHUTDOWN, "gradpool serve is stopping");
    const struct job *job = jobs_find_meant(p, request->id, wanted->job, wanted->tenant);
    if (!job)
        return;
    if (filing_find_tables(job, wanted, &only, &err) < 0 ||
        filing_check_room(job, wanted->bytes, &err) < 0)
        return peer_fail(p, request->id, err.code, "%s", err.text);
    struct filing *f = filing_create(p, request, job, only);
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
              "than %u s (%u s from a rank) after the last one; begin again",
              (unsigned)(SILENCE_NS / NS_PER_S), (unsigned)(SILENCE_BETWEEN_NS / NS_PER_S));
    return NULL;
}

static void filing_take_end(struct filing *f, const WIRE(TableFileRequest) * request)
{
    bool is_one = request->n_all_steps == 0 && f->tables->count == 1;
    if (f->is_import && !is_one && request->n_all_steps != f->tables->count)
        return filing_break(f, -EBADMSG,
                            "an import of %u tables ended with the updates of %zu tables; use one "
                            "version of gradpool",
                            f->tables->count, request->n_all_steps);
    filing_end(f, is_one || !f->is_import ? &request->steps : request->all_steps);
}

static void filing_take_rows(struct filing *f, const WIRE(TableFileRequest) * request)
{
    if (request->place >= f->tables->count)
        return filing_break(f, -EBADMSG,
                            "an import has rows of table %u, but has %u tables; use one version of "
                            "gradpool",
                            request->place, f->tables->count);
    f->place = request->place;
    filing_write(f, &request->rows);
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
    timer_stop(&f->timer); /* While calls to lanes are open, each call has a deadline of its own. */
    f->request = message->id;
    f->turn++;
    f->pending = 0;
    if (request->step == GRADPOOL__WIRE__TABLE_FILE_STEP__TABLE_FILE_END)
        filing_take_end(f, request);
    else if (f->is_import)
        filing_take_rows(f, request);
    else
        filing_read(f);
}

void filings_peer_gone(const struct peer *p)
{
    list_for_each_safe_entry (struct filing, f, &p->service->works->filings, link) {
        if (f->peer != p)
            continue;
        f->request = 0;
        filing_break(f, -ECONNRESET, "%s has disconnected", filing_asker(f));
    }
}

void filings_destroy(struct service *s)
{
    list_for_each_safe_entry (struct filing, f, &s->works->filings, link)
        filing_free(f);
}
