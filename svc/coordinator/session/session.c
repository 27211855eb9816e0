/* Sessions of workers. Owns struct session. A lost worker fails its job, because sums without its
 * gradient would be wrong. Only a job that was declared to continue after losses continues (K6). */
#include "svc/coordinator/session/session.h"

#include "svc/base/log.h"
#include "svc/coordinator/aggregator/process.h"
#include "svc/coordinator/membership/membership.h"
#include "svc/coordinator/migration/migration.h"
#include "svc/coordinator/peer/visitors.h"
#include "svc/coordinator/service.h"
#include "svc/coordinator/session/goodbye.h"
#include "svc/coordinator/session/iteration_hold.h"
#include "svc/coordinator/session/wait.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

/* Time within which the lanes' reports about the connections of a dead process arrive. The kernel
 * closes all connections of a process at once. */
#define ENDS_TOGETHER_NS NS_PER_S
/* INFORMED_NS: a worker that is alive connects again within this time, because its kernel reports
 * the end of a connection at once. BROKEN_NS: time for which a lane waits for the next
 * connection. */
#define INFORMED_NS (3 * NS_PER_S)
#define BROKEN_NS (20 * NS_PER_S)

const char *session_state_name(enum session_state state)
{
    static const char *const names[] = {"joined", "away", "left", "lost"};
    return names[state];
}

const char *session_name(const struct session *session, char *buffer, size_t buffer_bytes)
{
    char prefix[TENANT_PREFIX_BYTES];
    snprintf(buffer, buffer_bytes, "rank %u of job %s%s (%.64s, pid %u)", session->rank,
             tenant_prefix(session->job->tenant, prefix), session->job->name, session->node,
             session->pid);
    return buffer;
}

uint64_t session_control_ns(const struct job *job)
{
    uint64_t spent_ns = job->figures->control_ns;
    for (uint32_t rank = 0; rank < job->workers; rank++) {
        const struct session *session = job->sessions[rank];
        if (session && session->peer)
            spent_ns += session->peer->turn.cpu_ns - session->billed_ns;
    }
    return spent_ns;
}

static void unwatch_process(struct session *session)
{
    if (session->process.fd < 0)
        return;
    loop_unwatch(session->job->service->loop, &session->process);
    close(session->process.fd);
    session->job->service->door->outer_descriptors--;
    session->process.fd = -1;
}

/* Separates session and connection. The connection may continue without a job. Open requests of the
 * session are ended. */
static void detach(struct session *session)
{
    struct peer *p = session->peer;
    session->peer = NULL;
    if (!p)
        return;
    p->session = NULL;
    p->process_ended = false;
    session->job->figures->control_ns += p->turn.cpu_ns - session->billed_ns;
    waits_cancel(p);
    visitors_return(p);
}

void session_destroy(struct session *session)
{
    detach(session);
    timer_stop(&session->away);
    unwatch_process(session);
    free(session->node);
    free(session);
}

void sessions_destroy(struct job *job)
{
    for (uint32_t rank = 0; job->sessions && rank < job->workers; rank++)
        if (job->sessions[rank])
            session_destroy(job->sessions[rank]);
}

static int keep(const struct session *session, struct err *err)
{
    struct store_row row;
    session_row(session, &row);
    return store_put_one(session->job->service->store, &row, err);
}

/* Returns the session whose process was the first of the job to end; NULL: no process has ended.
 * Sessions that have left or are lost are skipped. */
static struct session *first_to_end(const struct job *job)
{
    struct session *first = NULL;
    for (uint32_t rank = 0; rank < job->workers; rank++) {
        struct session *session = job->sessions[rank];
        if (session && session->ended_ns > 0 && session->state <= SESSION_AWAY &&
            (!first || session->ended_ns < first->ended_ns))
            first = session;
    }
    return first;
}

/* Ends the next session whose process has ended. Sessions end in the order in which their processes
 * ended, so this session had to wait. */
static void end_next(const struct job *job)
{
    struct session *next = first_to_end(job);
    if (next && next->peer)
        peer_read_out(next->peer);
    else if (next)
        timer_start(job->service->loop, &next->away, 0);
}

static void end(struct session *session, enum session_state state)
{
    struct err err;
    session->state = state;
    holding_rank_gone(session);
    timer_stop(&session->away);
    unwatch_process(session);
    detach(session);
    if (keep(session, &err) < 0)
        log_error("%s", err.text);
    end_next(session->job);
}

static void lost_because(struct session *session, const char *why)
{
    struct job *job = session->job;
    struct peer *peer = session->peer;
    end(session, SESSION_LOST);
    if (peer)
        peer_break(peer);
    if (job->terms->continues && !job->failure) {
        log_warn("%s is gone%s; its job continues without this rank", SESSION_NAME(session), why);
        job->service->on->job->session_is_lost(session);
    } else {
        jobs_fail(job, session, -ECONNRESET,
                  "%s is gone%s; see the log of that process, then start the job again",
                  SESSION_NAME(session), why);
    }
    jobs_end_if_empty(job);
}

static void lost(struct session *session) { lost_because(session, ""); }

/* Ends sessions in the order in which their processes ended. When a process dies, other ranks of
 * its job get an error and may end, too, and the coordinator may serve the connection of such a
 * rank first. The error of the job must name the process that ended first. */
static void lost_in_order(struct session *session)
{
    if (first_to_end(session->job) == session)
        lost(session);
}

void session_silent(struct session *session, uint64_t silent_ns)
{
    char why[128];
    snprintf(why, sizeof why, ": its host has sent no answer for %.1f s (--worker-timeout)",
             (double)silent_ns / (double)NS_PER_S);
    lost_because(session, why);
}

void session_replaced(struct session *session)
{
    lost_because(session, ": its pool has started a newer process of this rank");
}

/* Ends the session although the process may be alive. JobFailure is the last message to the
 * process. */
void session_cut_off(struct session *session, uint32_t lane)
{
    struct job *job = session->job;
    char text[2 * ERR_TEXT_BYTES];
    snprintf(text, sizeof text, "%s has lost its connection to lane %u", SESSION_NAME(session),
             lane);
    if (!job->terms->continues)
        return jobs_fail(job, NULL, -ECONNRESET, "%s", text);
    struct peer *peer = session->peer;
    if (peer) {
        peer_reply(peer, 0, JOB_FAILURE, job_failure, .code = -ECONNRESET, .text = text);
        session->peer = NULL; /* the peer may still read its last messages */
        peer->session = NULL;
        waits_cancel(peer);
        peer_finish(peer);
    }
    lost(session);
}

void session_process_ended(struct session *session) { lost_in_order(session); }

/* Called when the process has ended. Its Goodbye may still be unread in the socket, so the session
 * ends only after all messages were handled in turns. */
static void process_ended(struct source *source, uint32_t events)
{
    struct session *session = container_of(source, struct session, process);
    session->ended_ns = clock_now_ns();
    unwatch_process(session);
    if (!session->peer)
        return lost_in_order(session);
    peer_read_out(session->peer);
}

/* Returns whether a lane has lost its connection to the worker within the last `within_ns`. */
static bool is_broken(const struct session *session, uint64_t within_ns)
{
    return session->broken_ns > 0 && clock_now_ns() - session->broken_ns < within_ns;
}

/* Returns whether a worker without a pidfd is probably dead: its kernel has ended the connection to
 * the coordinator, and a lane has lost its connection to the worker. A reset by a kernel looks like
 * a reset by a firewall. The kernel resets the connection of a dead process if some messages were
 * unread, for example because the process was stopped before. */
static bool is_probably_dead(const struct session *session)
{
    return session->process.fd < 0 && session->end != CHANNEL_ENDED_OTHERWISE &&
           is_broken(session, BROKEN_NS);
}

static void away_too_long(struct timer *timer)
{
    struct session *session = container_of(timer, struct session, away);
    if (session->ended_ns > 0)
        lost_in_order(session);
    else if (is_probably_dead(session))
        lost_because(session, ": its connections to the coordinator and to a lane have ended, and "
                              "no new one was made");
    else
        lost(session);
}

/* Opens a pidfd for the process. If no descriptor is free, only the end of the connection will
 * show that the process has ended. */
static void watch_process(struct session *session)
{
    struct loop *loop = session->job->service->loop;
    int fd;
    if (session->process.fd >= 0 || visitors_are_many(session->job->service) ||
        process_open(session->pid, session->identity, &fd) < 0)
        return;
    session->process.fd = fd;
    session->job->service->door->outer_descriptors++;
    if (loop_watch(loop, &session->process, EPOLLIN) < 0)
        unwatch_process(session);
}

/* Returns whether a process without a pidfd must be dead: its connections to the coordinator and to
 * a lane were closed within ENDS_TOGETHER_NS. */
static bool is_dead_by_ends(const struct session *session)
{
    return session->process.fd < 0 && session->end == CHANNEL_CLOSED &&
           is_broken(session, ENDS_TOGETHER_NS);
}

void session_away(struct session *session, uint64_t grace_ns, enum channel_end end)
{
    session->state = SESSION_AWAY;
    session->end = end;
    holding_rank_gone(session);
    log_debug("%s has lost its control connection", SESSION_NAME(session));
    bool dead = session->identity && session->process.fd < 0 &&
                process_has_ended(session->pid, session->identity);
    dead = dead || is_dead_by_ends(session);
    dead = dead || session->ended_ns > 0;
    if (dead && session->ended_ns == 0)
        session->ended_ns = clock_now_ns();
    timer_start(session->job->service->loop, &session->away, dead ? 0 : clock_now_ns() + grace_ns);
    if (!dead && is_probably_dead(session))
        session_claimed(session, INFORMED_NS);
}

/* Shortens the deadline of a disconnected worker. After a restart of the coordinator all workers
 * are disconnected and have a longer deadline. This longer deadline is not shortened. */
void session_claimed(struct session *session, uint64_t within_ns)
{
    uint64_t now_ns = clock_now_ns(), until_ns = session->away.deadline_ns;
    if (until_ns > now_ns + within_ns && until_ns <= now_ns + SESSION_AWAY_NS)
        timer_start(session->job->service->loop, &session->away, now_ns + within_ns);
}

void session_broken(struct session *session, uint32_t lane)
{
    char why[128];
    session->broken_ns = clock_now_ns();
    if (session->state == SESSION_LEFT)
        return leavers_changed(session->job); /* no lane knows yet that the rank has left */
    if (session->state != SESSION_AWAY)
        return;
    if (is_probably_dead(session))
        session_claimed(session, INFORMED_NS);
    if (!is_dead_by_ends(session))
        return;
    snprintf(why, sizeof why, ": its connections to the coordinator and to lane %u have ended",
             lane);
    lost_because(session, why);
}

void session_attach(struct session *session, struct peer *p)
{
    holding_rank_gone(session); /* the rank has connected again, so its hold has ended */
    session->peer = p;
    session->state = SESSION_JOINED;
    session->ended_ns = 0;
    session->billed_ns = p->turn.cpu_ns;
    p->session = session;
    timer_stop(&session->away);
    watch_process(session);
}

struct session *session_create(struct job *job, uint32_t rank, const char *node)
{
    struct session *session = calloc(1, sizeof *session);
    if (!session)
        return NULL;
    session->job = job;
    session->rank = rank;
    session->process = (struct source){.fd = -1, .ready = process_ended};
    timer_init(&session->away, away_too_long);
    session->node = strdup(node);
    if (!session->node) {
        free(session);
        return NULL;
    }
    return session;
}

void session_leave(struct session *session) { end(session, SESSION_LEFT); }

int session_restore(struct service *s, const struct store_session *row)
{
    struct job *job = jobs_find_id(s, row->job);
    if (!job || row->rank >= job->workers || row->state > SESSION_LOST)
        return -EBADMSG;
    struct session *session = session_create(job, row->rank, row->node);
    if (!session)
        return -ENOMEM;
    session->number = row->session;
    session->identity = row->identity;
    session->pid = row->pid;
    session->state = (enum session_state)row->state;
    session->entered = row->entered;
    session->was_removed = row->was_removed;
    job->sessions[row->rank] = session;
    if (session->state == SESSION_JOINED || session->state == SESSION_AWAY) {
        watch_process(session);
        session_away(session, SESSION_RESTORE_NS, CHANNEL_ENDED_OTHERWISE);
    }
    return 0;
}
