/* Handles fabric events: new connections, records, and closed connections. This file copies and
 * checks the bytes of peers before another file uses these bytes (W9). RULES.md: A4, A5. */
#include "svc/lane/events.h"

#include "svc/base/clock.h"
#include "svc/base/err.h"
#include "svc/base/log.h"
#include "svc/lane/chunk/serve.h"
#include "svc/lane/chunk/transfer.h"
#include "svc/lane/hear/announce.h"
#include "svc/lane/hear/leave.h"
#include "svc/lane/hear/replace.h"
#include "svc/lane/job.h"
#include "svc/lane/job/failure.h"
#include "svc/lane/job/table.h"
#include "svc/lane/piece/closing.h"
#include "svc/lane/piece/replay.h"
#include "svc/lane/round/holder.h"
#include "svc/lane/round/round.h"
#include "svc/lane/rows/hear.h"
#include "svc/lane/rows/log/row_log.h"
#include "svc/lane/rows/network.h"
#include "svc/lane/rows/rows.h"
#include "svc/lane/turn/account.h"
#include "svc/lane/turn/policy.h"
#include "svc/lane/worker/window.h"
#include "svc/lane/worker/worker.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

static int check_ticket(struct lane *lane, const struct fabric_event *event,
                        struct record_connect *ret_ticket)
{
    if (event->bytes != sizeof *ret_ticket)
        return -EPROTO;
    memcpy(ret_ticket, event->data, sizeof *ret_ticket);
    if (ret_ticket->magic != RECORD_MAGIC)
        return -EPROTO;
    if (ret_ticket->lane != lane->options.id ||
        ret_ticket->incarnation != lane->options.incarnation)
        return -ESTALE;
    return 0;
}

static const char *refusal_text(int reason)
{
    switch (reason) {
    case -EPROTO: return "not a gradpool ticket, or another version of it";
    case -ESTALE: return "the ticket is for another lane or an earlier process";
    case -EACCES: return "the ticket was never issued here or was used before";
    case -EBUSY: return "this rank is connected already";
    case -EDQUOT:
        return "its tenant has its share of this aggregator's descriptors; end workers of that "
               "tenant, raise ulimit -n, or add aggregators";
    default: return err_text(reason);
    }
}

static int admit(struct lane *lane, struct fabric *fabric, const struct fabric_event *event,
                 struct worker **ret_worker)
{
    struct record_connect ticket;
    int error = check_ticket(lane, event, &ticket);
    if (error < 0)
        return error;
    struct lane_job *job = job_find(lane, ticket.job);
    error = job ? job_redeem(job, &ticket) : -EACCES;
    if (error < 0)
        return error;
    if (job->failure)
        return -ECONNABORTED;
    struct worker *w = job_peer(job, ticket.rank);
    if (w && w->conn && worker_is_holder(w))
        /* the holder detects the end of its connection and connects again */
        fabric_disconnect(w->conn);
    else if (w && w->conn)
        replace_connection(w);
    if (!w || w->conn)
        return -EBUSY;
    error = window_reserve(job, fabric) ?: serving_open(w, fabric) ?: network_open(w, fabric);
    if (error == 0)
        error = lending_connect(w, fabric);
    if (error < 0)
        return error;
    w->entered = (uint32_t)ticket.entered;
    *ret_worker = w;
    return 0;
}

static void on_request(struct lane *lane, struct fabric *fabric, const struct fabric_event *event)
{
    struct worker *w = NULL;
    uint64_t began_ns = clock_now_ns();
    int error = admit(lane, fabric, event, &w);
    if (error == 0) {
        if (w->state == WORKER_AWAY)
            log_info("job '%s' rank %u has connected again from %s", w->job->name, w->number,
                     fabric_peer(event->conn));
        worker_open(w, fabric, event->conn);
        error = fabric_accept(event->conn, w);
        if (error < 0)
            worker_close(w, WORKER_ABSENT);
        else
            fabric_join_group(event->conn, &w->job->group);
        account_apart(w->job, clock_now_ns() - began_ns);
        return;
    }
    log_warn_rarely("lane %u refuses a connection from %s: %s", lane->options.id,
                    fabric_peer(event->conn), refusal_text(error));
    fabric_refuse(event->conn, -error);
}

/* Sends a ticket for the next connection, so that a reconnect does not need the coordinator
 * (W7). */
static void hand_out_ticket(struct worker *w)
{
    struct lane *lane = w->job->lane;
    struct record_ticket ticket = {.kind = RECORD_TICKET,
                                   .connect = {.magic = RECORD_MAGIC,
                                               .job = w->job->id,
                                               .rank = w->number,
                                               .lane = lane->options.id,
                                               .incarnation = lane->options.incarnation,
                                               .entered = w->entered}};
    if (getrandom(ticket.connect.token, sizeof ticket.connect.token, GRND_NONBLOCK) !=
        sizeof ticket.connect.token)
        return;
    if (job_grant(w->job, &ticket.connect) == 0)
        (void)fabric_send(w->conn, &ticket, sizeof ticket, NULL, 0);
}

static void evict(struct worker *w, const char *why)
{
    if (worker_is_holder(w)) {
        log_warn("job '%s': the lane closed the connection to a replica holder (%s): %s",
                 w->job->name, w->peer, why);
        fabric_disconnect(w->conn);
        return;
    }
    job_evict(w, why);
}

/* Evicts the worker for the reason `fault`, unless `fault` is NULL. */
static void evict_for(struct worker *w, const char *fault)
{
    if (fault)
        evict(w, fault);
}

static void take_query(struct worker *w, const struct record_query *query)
{
    if (query->is_of_table)
        rows_answer_query(w, query);
    else
        answer_query(w, query);
}

/* Stores a set of ranks that the job's leader lane has decided. The workers forward sets, because
 * only they are connected to all lanes (W13). */
static void take_choice(struct worker *w, const struct record_chosen *chosen)
{
    /* rank 0 sends replayed sets ahead, but expects each set again when its round closes, so a
     * replayed set does not count as known to rank 0 */
    if (chosen->reason != RECORD_REASON_REPLAY)
        w->known_sets[chosen->round % CHOICES_PER_JOB] = chosen->round;
    if (!w->job->failure && round_choose(w->job, chosen) < 0)
        evict(w, "a set of ranks that differs from the one that other ranks sent");
}

static void take_backup(struct worker *w, const struct record_backup *told)
{
    int error = w->job->failure ? 0 : replica_hear(w, told);
    if (error == -EFAULT)
        evict(w, "a replica outside the memory that the sender has lent");
    else if (error < 0)
        job_fail(w->job, error, "lane %u cannot write replicas: %s", w->job->lane->options.id,
                 err_text(error));
}

/* Ignores a report about a piece that has moved away, because the ranks repeat the report to the
 * new owner. */
static void take_landed(struct worker *w, const struct record_landed *landed)
{
    struct piece *p = piece_find(w->job, landed->piece);
    struct rank *rank = p ? piece_rank(p, w->number) : NULL;
    if (!p || w->job->failure)
        return;
    if (!rank || !p->takers || (p->round > 0 && landed->round >= p->round))
        return evict(w, "a report about results of a round that is still open");
    round_landed(rank, landed->round);
}

/* Stores the takers of a recorded round (W32). */
static void take_recorded(struct worker *w, const struct record_chosen *takers)
{
    if (w->number != 0 || takers->form != RECORD_FORM_TAKERS)
        return evict(w, "a record that only lanes send");
    struct piece *p = w->job->failure ? NULL : replay_learn(w->job, takers);
    if (p)
        round_go_on(p);
}

static void take_from_holder(struct worker *holder, const union record *record)
{
    switch (record->kind) {
    case RECORD_BACKUP: take_backup(holder, &record->backup); break;
    case RECORD_RING: evict_for(holder, row_log_hear_ring(holder, &record->ring)); break;
    case RECORD_TAKEN: evict_for(holder, row_log_hear_taken(holder, &record->taken)); break;
    default: evict(holder, "a record that only workers send"); break;
    }
}

/* Handles a record. Returns true if the lane keeps the receive buffer for later use. */
static bool dispatch(struct worker *w, const union record *record, const void *data,
                     const void *payload)
{
    if (worker_is_holder(w)) {
        take_from_holder(w, record);
        return false;
    }
    switch (record->kind) {
    case RECORD_READY: return announce(w, &record->ready, data, payload);
    case RECORD_QUERY: take_query(w, &record->query); return false;
    case RECORD_LEAVE: worker_leave(w, record->leave.after_failure); return false;
    case RECORD_CHOSEN: take_choice(w, &record->chosen); return false;
    case RECORD_SETTINGS: parameters_tell(w, &record->settings); return false;
    case RECORD_BACKUP: take_backup(w, &record->backup); return false;
    case RECORD_PASSED: take_recorded(w, &record->chosen); return false;
    case RECORD_LANDED: take_landed(w, &record->landed); return false;
    case RECORD_MEASURE: closing_measured(w->job, &record->measure); return false;
    case RECORD_ROWS: evict_for(w, rows_hear_request(w, &record->rows)); return false;
    case RECORD_CLOCK: evict_for(w, rows_hear_clock(w, &record->clock)); return false;
    default: evict(w, "a record that only lanes send"); return false;
    }
}

static void on_message(const struct fabric_event *event)
{
    struct worker *w = event->owner;
    union record record;
    size_t record_size;
    bool keeps = false;
    /* the connection has no worker, or the worker has a newer connection */
    if (event->conn != w->conn) {
        fabric_message_done(event->conn, event->data);
        return;
    }
    if (record_check(event->data, event->bytes, &record, &record_size) < 0) {
        evict(w, "a record that cannot be read");
    } else {
        const char *payload = (const char *)event->data + record_size;
        keeps = dispatch(w, &record, event->data, event->bytes > record_size ? payload : NULL);
    }
    if (!keeps)
        fabric_message_done(event->conn, event->data);
}

/* Reports a lost rank. The coordinator, which knows all lanes, decides whether the job continues
 * without the rank (A40). */
static void lose(struct worker *w)
{
    struct lane *lane = w->job->lane;
    worker_close(w, w->is_gone ? WORKER_ABSENT : WORKER_LOST);
    if (w->state == WORKER_LOST && lane->options.job_failed)
        lane->options.job_failed(lane->options.context);
}

static void lose_holder(struct worker *w)
{
    if (!w->job->failure)
        replica_cut_off(w);
    worker_close(w, WORKER_ABSENT);
}

static void fail_for_end(struct worker *w, int error)
{
    struct lane_job *job = w->job;
    if (error == -EFAULT)
        return job_fail(job, error,
                        "rank %u of job '%s' (%s) lent memory whose pages are gone; lend memory of "
                        "gp_alloc(), and keep its pages",
                        w->number, job->name, w->peer);
    if (error == -EDQUOT)
        lending_refused(w);
    replace_fail(w, error ? error : -ECONNRESET);
}

/* Handles the end of a connection. After a goodbye, only chunks that need the worker's memory end.
 * Without a goodbye, the worker may connect again (A70). If the worker cannot connect again, its
 * job fails, because the worker's input is missing. */
static void on_closed(const struct fabric_event *event)
{
    struct worker *w = event->owner;
    if (!w)
        return;
    struct lane_job *job = w->job;
    if (event->conn != w->conn) {
        replace_ended(job);
        job_release(job);
        return;
    }
    if (job->is_dropped) {
        worker_close(w, w->state);
    } else if (worker_is_holder(w)) {
        lose_holder(w);
    } else if (w->state == WORKER_LEFT) {
        worker_close(w, WORKER_LEFT);
        if (!job->is_elastic && transfer_needs(job, w->number))
            job_fail(job, -EPIPE, "rank %u has left job '%s' during a round", w->number, job->name);
    } else if (replace_await(w, event->error)) {
        /* the rank may connect again */
    } else if (w->is_gone || (job->is_elastic && !job->failure)) {
        lose(w);
    } else {
        worker_close(w, WORKER_LOST);
        log_warn("job '%s' lost rank %u (%s)", job->name, w->number, w->peer);
        fail_for_end(w, event->error);
    }
    if (w->state != WORKER_AWAY)
        rows_forget(w);
    job_wake(job);
    job_release(job);
}

static void on_posted(const struct fabric_event *event)
{
    struct worker *w = event->owner;
    struct lane_job *job = w->job;
    struct transfer *t = job_transfer(job, event->context);
    if (t)
        transfer_progress(t, w, event->error);
    else if (!network_progress(job, event->context, event->error) &&
             !row_log_progress(job, event->context, event->error))
        serve_progress(w, event->error);
    job_release(job);
}

void lane_handle(struct lane *lane, struct fabric *fabric, const struct fabric_event *event)
{
    struct worker *w = event->owner;
    switch (event->kind) {
    case FABRIC_EVENT_REQUEST: on_request(lane, fabric, event); break;
    case FABRIC_EVENT_OPEN:
        if (event->conn == w->conn && !worker_is_holder(w))
            hand_out_ticket(w);
        break;
    case FABRIC_EVENT_MESSAGE: on_message(event); break;
    case FABRIC_EVENT_READ:
    case FABRIC_EVENT_WRITTEN: on_posted(event); break;
    case FABRIC_EVENT_ROOM: job_wake(w->job); break;
    case FABRIC_EVENT_REGION:
        if (!worker_is_holder(w)) /* memory that is lent for copies has no limit */
            lending_check(w);
        break;
    case FABRIC_EVENT_CLOSED: on_closed(event); break;
    default: /* a lane waits for no completion words */ break;
    }
}
