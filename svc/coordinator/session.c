/* Workers: joining, resuming, leaving, being away, being lost. Owns struct session. A worker that
 * is lost fails its job: a sum without it is not the sum that was asked for (K6). */
#include "svc/base/log.h"
#include "svc/coordinator/service.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>

const char *session_state_name(enum session_state state)
{
    static const char *const names[] = {"joined", "away", "left", "lost"};
    return names[state];
}

const char *session_name(const struct session *session, char *buffer, size_t buffer_bytes)
{
    snprintf(buffer, buffer_bytes, "rank %u of job %s (%.64s, pid %u)", session->rank,
             session->job->name, session->node, session->pid);
    return buffer;
}

static void unwatch_process(struct session *session)
{
    if (session->process.fd < 0)
        return;
    loop_unwatch(&session->job->service->loop, &session->process);
    close(session->process.fd);
    session->process.fd = -1;
}

void session_destroy(struct session *session)
{
    if (session->peer)
        session->peer->session = NULL;
    timer_stop(&session->away);
    unwatch_process(session);
    free(session->node);
    free(session);
}

static void row_of(const struct session *session, struct store_row *ret_row)
{
    *ret_row = (struct store_row){.table = STORE_SESSION};
    ret_row->session = (struct store_session){.job = session->job->id, .rank = session->rank,
        .session = session->number, .identity = session->identity, .pid = session->pid,
        .state = session->state, .node = session->node};
}

static int keep(const struct session *session, struct err *err)
{
    struct store *store = session->job->service->store;
    struct store_row row;
    row_of(session, &row);
    store_begin(store);
    store_put(store, &row);
    return store_commit(store, err);
}

static void end(struct session *session, enum session_state state)
{
    struct err err;
    session->state = state;
    timer_stop(&session->away);
    unwatch_process(session);
    if (session->peer)
        session->peer->session = NULL;
    session->peer = NULL;
    if (keep(session, &err) < 0)
        log_error("%s", err.text);
}

static void lost(struct session *session)
{
    struct job *job = session->job;
    char name[ERR_TEXT_BYTES];
    struct peer *peer = session->peer;
    end(session, SESSION_LOST);
    if (peer)
        peer_break(peer);
    jobs_fail(job, session, -ECONNRESET, "%s is gone", session_name(session, name, sizeof name));
    jobs_end_if_empty(job);
}

/* A goodbye may still lie in the socket of a process that has ended: it is read first, and the
 * end of the connection behind it takes care of the session. */
static void process_ended(struct source *source, uint32_t events)
{
    struct session *session = container_of(source, struct session, process);
    struct peer *peer = session->peer;
    if (!peer)
        return lost(session);
    unwatch_process(session);
    peer->source.ready(&peer->source, EPOLLIN);
    if (peer->session == session)
        lost(session);
}

static void away_too_long(struct timer *timer)
{
    lost(container_of(timer, struct session, away));
}

/* The process is dead, or is watched and alive: either is better known than guessed. */
static void watch_process(struct session *session)
{
    struct loop *loop = &session->job->service->loop;
    int fd;
    if (session->process.fd >= 0 || process_open(session->pid, session->identity, &fd) < 0)
        return;
    session->process.fd = fd;
    if (loop_watch(loop, &session->process, EPOLLIN) < 0)
        unwatch_process(session);
}

void session_away(struct session *session, uint64_t grace_ns)
{
    char name[ERR_TEXT_BYTES];
    session->state = SESSION_AWAY;
    log_debug("%s is away", session_name(session, name, sizeof name));
    bool dead = session->identity && session->process.fd < 0;
    timer_start(&session->job->service->loop, &session->away,
                dead ? 0 : clock_now_ns() + grace_ns);
}

static void attach(struct session *session, struct peer *p)
{
    session->peer = p;
    session->state = SESSION_JOINED;
    p->session = session;
    timer_stop(&session->away);
    watch_process(session);
}

static void reply_joined(const struct session *session, uint64_t request)
{
    WIRE(JoinReply) reply = GRADPOOL__WIRE__JOIN_REPLY__INIT;
    reply.job_id = session->job->id;
    reply.session = session->number;
    reply.policy = (char *)session->job->service->options.policy;
    envelope e = ENVELOPE_INIT;
    e.id = request;
    e.body_case = BODY(JOIN_REPLY);
    e.join_reply = &reply;
    peer_send(session->peer, &e);
}

/* --- joining --- */

static bool is_plain(const char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f || *text == '"')
            return false;
    return true;
}

static bool join_is_valid(struct peer *p, uint64_t request, const WIRE(JoinRequest) *join)
{
    size_t bytes = strlen(join->job);
    if (p->service->phase != SERVICE_UP)
        peer_fail(p, request, -ESHUTDOWN, "gradpool serve is stopping");
    else if (p->session)
        peer_fail(p, request, -EINVAL, "this connection has joined job %s already; a connection "
                  "is for one job", p->session->job->name);
    else if (bytes < 1 || bytes > JOB_NAME_BYTES_MAX || !is_plain(join->job))
        peer_fail(p, request, -EINVAL, "a job's name has 1 to %d bytes, without quotes and control "
                  "characters; this one has %zu bytes", JOB_NAME_BYTES_MAX, bytes);
    else if (join->workers < 1 || join->workers > WORKERS_MAX)
        peer_fail(p, request, -EINVAL, "job %s: %u workers; expected 1 to %d", join->job,
                  join->workers, WORKERS_MAX);
    else if (join->rank >= join->workers)
        peer_fail(p, request, -EINVAL, "job %s: rank %u of %u workers; expected 0 to %u", join->job,
                  join->rank, join->workers, join->workers - 1);
    else if (strlen(join->node) > HOST_NAME_MAX || !is_plain(join->node))
        peer_fail(p, request, -EINVAL, "job %s: the node name is not one", join->job);
    else
        return true;
    return false;
}

static bool rank_is_free(struct peer *p, uint64_t request, const WIRE(JoinRequest) *join,
                         const struct job *job)
{
    const struct session *taken = join->rank < job->workers ? job->sessions[join->rank] : NULL;
    if (job->failure)
        peer_fail(p, request, -ESTALE, "job %s has failed (%s) and its last workers have not left "
                  "yet; join again when they have, or under another name", job->name,
                  job->failure);
    else if (job->workers != join->workers)
        peer_fail(p, request, -EPROTO, "job %s runs with %u workers, rank %u came with %u",
                  job->name, job->workers, join->rank, join->workers);
    else if (taken && (taken->state == SESSION_JOINED || taken->state == SESSION_AWAY))
        peer_fail(p, request, -EEXIST, "rank %u of job %s is taken by %s, pid %u%s", join->rank,
                  job->name, taken->node, taken->pid,
                  taken->state == SESSION_AWAY ? " (away)" : "");
    else if (taken)
        peer_fail(p, request, -ESTALE, "rank %u of job %s has left, and the others have not yet; "
                  "join again when they have, or under another name", join->rank, job->name);
    else
        return true;
    return false;
}

/* Only a process of this host can be watched; that it is one is the peer address and the name. */
static uint64_t local_identity(const struct peer *p, const WIRE(JoinRequest) *join)
{
    int pid;
    uint32_t uid;
    if (channel_credentials(p->channel, &pid, &uid) == 0)
        return pid == (int)join->pid ? process_identity(join->pid) : 0;
    bool loopback = strncmp(channel_peer(p->channel), "127.", 4) == 0 ||
                    strncmp(channel_peer(p->channel), "[::1]", 5) == 0;
    return loopback && strcmp(join->node, p->service->node) == 0 ? process_identity(join->pid) : 0;
}

static struct session *session_create(struct job *job, uint32_t rank, const char *node)
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

static int keep_joined(const struct session *session, bool job_is_new, struct err *err)
{
    struct service *s = session->job->service;
    struct store_row row;
    store_begin(s->store);
    if (job_is_new) {
        service_put_numbers(s);
        jobs_row(session->job, &row);
        store_put(s->store, &row);
    }
    row_of(session, &row);
    store_put(s->store, &row);
    return store_commit(s->store, err);
}

/* K1: stored first; what did not reach the store did not happen. */
static int join(struct peer *p, const WIRE(JoinRequest) *request, struct job *job, bool job_is_new,
                struct err *err)
{
    struct service *s = p->service;
    struct session *session = session_create(job, request->rank, request->node);
    if (!session)
        return err_set(err, -ENOMEM, "gradpool serve is out of memory");
    session->pid = request->pid;
    session->identity = local_identity(p, request);
    while (session->number == 0)
        if (getrandom(&session->number, sizeof session->number, 0) < 0)
            break;
    s->numbers.next_job += job_is_new;
    int error = keep_joined(session, job_is_new, err);
    if (error < 0) {
        s->numbers.next_job -= job_is_new;
        session_destroy(session);
        return error;
    }
    job->sessions[session->rank] = session;
    attach(session, p);
    return 0;
}

static void join_new(struct peer *p, uint64_t request, const WIRE(JoinRequest) *wanted)
{
    struct service *s = p->service;
    struct job *job = jobs_find(s, wanted->job);
    bool job_is_new = !job;
    struct err err;
    if (job && !rank_is_free(p, request, wanted, job))
        return;
    if (job_is_new)
        job = jobs_create(s, s->numbers.next_job, wanted->job, wanted->workers);
    if (!job)
        return peer_fail(p, request, -ENOMEM, "gradpool serve is out of memory");
    int error = join(p, wanted, job, job_is_new, &err);
    if (error < 0) {
        if (job_is_new)
            jobs_destroy(job);
        return peer_fail(p, request, error, "%s", err.text);
    }
    char name[ERR_TEXT_BYTES];
    log_info("%s has joined", session_name(p->session, name, sizeof name));
    if (job_is_new)
        list_append(&s->jobs, &job->link);
    reply_joined(p->session, request);
}

/* The routes it may have missed come with the reply; it knows by their epochs which are news. */
static void resume(struct peer *p, uint64_t request, struct session *session)
{
    struct job *job = session->job;
    if (session->peer) {
        session->peer->session = NULL;
        waits_cancel(session->peer);
        peer_break(session->peer);
    }
    attach(session, p);
    reply_joined(session, request);
    if (job->epoch > 1)
        recovery_send_routes(job, session, NULL, NULL);
    if (!job->failure)
        return;
    WIRE(JobFailure) failure = GRADPOOL__WIRE__JOB_FAILURE__INIT;
    failure.code = -ECONNRESET;
    failure.text = job->failure;
    envelope e = ENVELOPE_INIT;
    e.body_case = BODY(JOB_FAILURE);
    e.job_failure = &failure;
    peer_send(p, &e);
}

static struct session *find_session(struct service *s, const WIRE(JoinRequest) *join)
{
    struct job *job = jobs_find_id(s, join->job_id);
    if (!job || join->rank >= job->workers)
        return NULL;
    struct session *session = job->sessions[join->rank];
    bool open = session && (session->state == SESSION_JOINED || session->state == SESSION_AWAY);
    return open && session->number == join->session ? session : NULL;
}

void session_handle_join(struct peer *p, const envelope *request)
{
    const WIRE(JoinRequest) *join = request->join_request;
    if (!join_is_valid(p, request->id, join))
        return;
    if (join->session == 0)
        return join_new(p, request->id, join);
    struct session *session = find_session(p->service, join);
    if (!session)
        return peer_fail(p, request->id, -ESTALE, "rank %u was away from job %s too long and "
                         "counts as lost", join->rank, join->job);
    resume(p, request->id, session);
}

void session_handle_leave(struct peer *p, const envelope *request)
{
    struct session *session = p->session;
    char name[ERR_TEXT_BYTES];
    if (!session)
        return peer_fail(p, request->id, -ENOTCONN, "no job has been joined");
    log_info("%s has left", session_name(session, name, sizeof name));
    waits_cancel(p);
    end(session, SESSION_LEFT);
    peer_reply_done(p, request->id);
    jobs_end_if_empty(session->job);
}

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
    job->sessions[row->rank] = session;
    if (session->state == SESSION_JOINED || session->state == SESSION_AWAY) {
        watch_process(session);
        session_away(session, SESSION_RESTORE_NS);
    }
    return 0;
}
