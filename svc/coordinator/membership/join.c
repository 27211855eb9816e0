/* Requests of workers to join a job, to resume a session after a lost connection, and to leave.
 * Every change is stored before it takes effect (K1). */
#include "svc/coordinator/membership/join.h"

#include "svc/base/log.h"
#include "svc/base/system/process.h"
#include "svc/base/text.h"
#include "svc/coordinator/copies/copies.h"
#include "svc/coordinator/job/members.h"
#include "svc/coordinator/job/quota.h"
#include "svc/coordinator/membership/membership.h"
#include "svc/coordinator/migration/migration.h"
#include "svc/coordinator/replica/replica.h"
#include "svc/coordinator/service.h"
#include "svc/coordinator/session/goodbye.h"
#include "svc/coordinator/session/kept.h"
#include "svc/coordinator/session/session.h"
#include "svc/coordinator/session/wait.h"
#include "svc/coordinator/store/numbers.h"
#include "svc/coordinator/table/place.h"
#include "svc/coordinator/view/display.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#define JOIN_WAIT_NS (5 * NS_PER_S) /* longest wait for a former worker of the rank to leave */
#define JOB_END_NS (8 * NS_PER_S)   /* longest wait for a former job of the same name to end */

static void reply_joined(const struct session *session, uint64_t request)
{
    const struct job *job = session->job;
    uint64_t ranks[TERMS_RANK_WORDS];
    WIRE(Membership) membership = members_describe(job, ranks);
    peer_reply(session->peer, request, JOIN_REPLY, join_reply, .job_id = job->id,
               .session = session->number, .policy = (char *)job->service->options->policy,
               .is_late = session->entered > 0, .durability = job->terms->durability,
               .membership = job->terms->is_elastic ? &membership : NULL);
    members_tell(job, session);
}

/* Returns the maximum number of ranks of the job. */
static uint32_t room_of(const WIRE(JoinRequest) * join)
{
    return join->workers_max > join->workers ? join->workers_max : join->workers;
}

static enum durability durability_of(const struct service *s, const WIRE(JoinRequest) * join)
{
    if (join->durability)
        return (enum durability)join->durability;
    return s->options->durability ? s->options->durability : DURABILITY_NONE;
}

static struct backup_terms backup_of(const WIRE(JoinRequest) * join)
{
    const WIRE(BackupSpec) *spec = join->backup;
    struct backup_terms terms = {0};
    if (spec)
        terms = (struct backup_terms){.rule = spec->rule,
                                      .k = spec->k,
                                      .least = spec->least,
                                      .absence = spec->absence,
                                      .lag = spec->lag,
                                      .gradients = spec->gradients,
                                      .rate = spec->rate,
                                      .sets = spec->sets};
    return terms;
}

static bool backup_is_valid(struct peer *p, uint64_t request, const WIRE(JoinRequest) * join)
{
    struct err err;
    struct backup_terms terms = backup_of(join);
    if (backup_terms_check(&terms, join->workers, join->job, &err) == 0)
        return true;
    peer_fail(p, request, err.code, "%s", err.text);
    return false;
}

/* Returns whether job and join have the same backup terms; otherwise a failure was sent. All ranks
 * need the same terms, because the terms decide which ranks close a round. */
static bool backup_is_that_of(const struct job *job, struct peer *p, uint64_t request,
                              const WIRE(JoinRequest) * join)
{
    struct backup_terms terms = backup_of(join);
    char here[BACKUP_TERMS_TEXT_BYTES], there[BACKUP_TERMS_TEXT_BYTES];
    uint32_t workers = job->ranks->founding;
    if (backup_terms_are_same(&job->terms->backup, &terms, workers))
        return true;
    backup_terms_write(&job->terms->backup, workers, here, sizeof here);
    backup_terms_write(&terms, workers, there, sizeof there);
    peer_fail(p, request, -EINVAL,
              "job %s closes its rounds by backup rule %s; rank %u requested %s; give all ranks "
              "the same gp_job_spec.backup",
              job->name, here, join->rank, there);
    return false;
}

/* Returns the name of the first backup term that some lane does not support; NULL: all lanes
 * support all terms. */
static const char *backup_lack(const struct peer *p, const WIRE(JoinRequest) * join,
                               const struct backup_terms *terms)
{
    if (join->continues || room_of(join) > join->workers)
        return "in a job whose workers come and go (set on_worker_loss to GP_FAIL and workers_max "
               "to 0)";
    if (durability_of(p->service, join) != DURABILITY_NONE)
        return "with copies of parameters (set durability to GP_DURABILITY_NONE)";
    return NULL;
}

static bool backup_is_served(struct peer *p, uint64_t request, const WIRE(JoinRequest) * join)
{
    struct backup_terms terms = backup_of(join);
    const char *missing = terms.rule == BACKUP_TERMS_ALL ? NULL : backup_lack(p, join, &terms);
    if (!missing)
        return true;
    peer_fail(p, request, -EOPNOTSUPP,
              "job %s: this version does not serve backup rule '%s' %s; set gp_job_spec.backup to "
              "0, so that each round has all ranks",
              join->job, backup_terms_rule_name(terms.rule), missing);
    return false;
}

static bool join_is_valid(struct peer *p, uint64_t request, const WIRE(JoinRequest) * join)
{
    size_t bytes = strlen(join->job);
    if (p->service->phase != SERVICE_UP)
        peer_fail(p, request, -ESHUTDOWN, "gradpool serve is stopping");
    else if (p->session)
        peer_fail(
            p, request, -EINVAL,
            "this connection has joined job %s already; open another connection for another job",
            p->session->job->name);
    else if (bytes < 1 || bytes > JOB_NAME_BYTES_MAX || !text_is_plain(join->job))
        peer_fail(p, request, -EINVAL,
                  "a job's name has 1 to %d bytes of UTF-8, without quotes and control "
                  "characters; this one has %zu bytes%s",
                  JOB_NAME_BYTES_MAX, bytes, text_is_utf8(join->job) ? "" : " and is not UTF-8");
    else if (join->workers < 1 || join->workers > WORKERS_MAX)
        peer_fail(p, request, -EINVAL, "job %s: %u workers; expected 1 to %d", join->job,
                  join->workers, WORKERS_MAX);
    else if (join->workers_max > WORKERS_MAX)
        peer_fail(p, request, -EINVAL, "job %s: workers_max %u; expected 0 to %d", join->job,
                  join->workers_max, WORKERS_MAX);
    else if (join->rank >= room_of(join))
        peer_fail(p, request, -EINVAL, "job %s: rank %u of %u workers; expected 0 to %u", join->job,
                  join->rank, room_of(join), room_of(join) - 1);
    else if (join->loss_limit_ppm > LOSS_LIMIT_PPM_MAX)
        peer_fail(p, request, -EINVAL, "job %s: a loss limit of %u ppm; expected 1 to %u",
                  join->job, join->loss_limit_ppm, LOSS_LIMIT_PPM_MAX);
    else if (join->durability > DURABILITY_MOST)
        peer_fail(
            p, request, -EINVAL,
            "job %s: durability %u is unknown; install the same version of gradpool on both hosts",
            join->job, join->durability);
    else if (!text_is_node(join->node))
        peer_fail(p, request, -EINVAL,
                  "job %s: the worker's host name has characters that a host name may not have; "
                  "rename the host",
                  join->job);
    else
        return backup_is_valid(p, request, join);
    return false;
}

static struct session *session_of(const struct job *job, uint32_t rank)
{
    return rank < job->workers ? job->sessions[rank] : NULL;
}

static const struct session *find_in(const struct job *job, bool is_in)
{
    for (uint32_t rank = 0; rank < job->workers; rank++)
        if (job->sessions[rank] && session_is_in(job->sessions[rank]) == is_in)
            return job->sessions[rank];
    return NULL;
}

/* Returns whether the existing job of this name is ending. If so, the join waits until the job has
 * ended, and then starts a new job. */
static bool job_is_ending(const struct job *job, const WIRE(JoinRequest) * join)
{
    const struct session *taken = session_of(job, join->rank);
    if (job->failure || job->terms->is_elastic)
        return job->failure != NULL;
    return taken ? taken->state != SESSION_JOINED : find_in(job, false) != NULL;
}

/* Returns whether the job that has this name now cannot accept the join: the job has failed, the
 * rank is taken, or the numbers of ranks differ. A late worker may be accepted even if other ranks
 * have left. */
static bool has_no_place(const struct job *job, const WIRE(JoinRequest) * join)
{
    return job->failure || session_of(job, join->rank) || job->workers != room_of(join);
}

static void refuse_while_ending(struct peer *p, uint64_t request, const WIRE(JoinRequest) * join,
                                const struct job *job)
{
    static const char advice[] = "end that process, or give this training another name "
                                 "(GRADPOOL_JOB)";
    const struct session *left = find_in(job, true), *taken = session_of(job, join->rank);
    char holder[SESSION_NAME_BYTES] = "a rank";
    if (left)
        session_name(left, holder, sizeof holder);
    if (job->failure)
        peer_fail(p, request, -ESTALE, "job %s has failed (%s), and %s has not left it; %s",
                  job->name, job->failure, holder, advice);
    else if (taken && taken->state == SESSION_AWAY)
        peer_fail(p, request, -ESTALE,
                  "rank %u of job %s is taken by %s, pid %u (its connection has ended, but perhaps "
                  "not the process); %s",
                  join->rank, job->name, taken->node, taken->pid, advice);
    else
        peer_fail(p, request, -ESTALE,
                  "rank %u has left, so job %s is ending, but %s has not left; %s",
                  taken ? taken->rank : find_in(job, false)->rank, job->name, holder, advice);
}

static bool rank_is_free(struct peer *p, uint64_t request, const WIRE(JoinRequest) * join,
                         const struct job *job)
{
    const struct session *taken = session_of(job, join->rank);
    if (job_is_ending(job, join) && has_no_place(job, join))
        refuse_while_ending(p, request, join, job);
    else if (!job->terms->is_elastic && job->workers != room_of(join))
        peer_fail(
            p, request, -EPROTO,
            "job %s runs with %u workers, rank %u requested %u; start all ranks with the same "
            "number",
            job->name, job->workers, join->rank, join->workers);
    else if (job->workers != room_of(join) || job->terms->continues != join->continues)
        peer_fail(p, request, -EPROTO,
                  "job %s may have %u workers and %s when a worker is lost; rank %u requested "
                  "another workers_max (%u) or on_worker_loss; give all ranks the same values",
                  job->name, job->workers, job->terms->continues ? "goes on" : "fails", join->rank,
                  room_of(join));
    else if (job->terms->is_elastic && join->rank >= job->ranks->wanted)
        peer_fail(p, request, -EPROTO,
                  "job %s was resized to %u workers, without rank %u; resize the job, or start "
                  "fewer ranks",
                  job->name, job->ranks->wanted, join->rank);
    else if (job->terms->loss_limit_ppm != join->loss_limit_ppm)
        peer_fail(p, request, -EPROTO,
                  "job %s runs with a loss limit of %u ppm, rank %u requested %u (0: none); give "
                  "all ranks the same",
                  job->name, job->terms->loss_limit_ppm, join->rank, join->loss_limit_ppm);
    else if (job->terms->durability && job->terms->durability != durability_of(p->service, join))
        peer_fail(p, request, -EPROTO,
                  "job %s runs with durability %s, rank %u requested %s; give all ranks the same",
                  job->name, durability_name(job->terms->durability), join->rank,
                  durability_name(durability_of(p->service, join)));
    else if (taken && session_is_in(taken))
        peer_fail(p, request, -EEXIST,
                  "rank %u of job %s is taken by %s, pid %u%s; end that process, or give this "
                  "training another name (GRADPOOL_JOB)",
                  join->rank, job->name, taken->node, taken->pid,
                  taken->state == SESSION_AWAY ? " (away)" : "");
    else
        return backup_is_that_of(job, p, request, join);
    return false;
}

/* Finds the worker's process by the credentials of the Unix socket. Returns the identity of the
 * process; 0: the process is not known, for example because a proxy is connected instead of the
 * worker. */
static uint64_t identify_by_socket(const WIRE(JoinRequest) * join, int pid, uint32_t *ret_pid)
{
    if (pid <= 0 || process_own_number((uint32_t)pid) != join->pid)
        return 0;
    *ret_pid = (uint32_t)pid;
    return process_identity(*ret_pid);
}

/* Returns the identity of the worker's process if the process is on this host and in the same PID
 * namespace. Otherwise returns 0, because another process may have this number (K59); the
 * coordinator then detects the end of the worker only by the end of the connection. */
static uint64_t identify(const struct peer *p, const WIRE(JoinRequest) * join, uint32_t *ret_pid)
{
    int pid;
    uint32_t uid;
    *ret_pid = join->pid;
    if (channel_credentials(p->channel, &pid, &uid) == 0)
        return identify_by_socket(join, pid, ret_pid);
    bool is_here =
        channel_is_loopback(p->channel) && strcmp(join->node, p->service->identity->node) == 0;
    if (!is_here || join->pid_namespace == 0 || join->pid_namespace != process_namespace())
        return 0;
    uint64_t identity = process_identity(join->pid);
    return identity == join->identity ? identity : 0;
}

static int keep_joined(const struct session *session, bool job_is_new, struct err *err)
{
    struct service *s = session->job->service;
    struct store_row row;
    store_begin(s->store);
    if (job_is_new)
        service_put_numbers(s);
    if (job_is_new || session->entered > 0) {
        jobs_row(session->job, &row);
        store_put(s->store, &row);
    }
    session_row(session, &row);
    store_put(s->store, &row);
    return store_commit(s->store, err);
}

/* Marks the worker as late if its rank was used before or is not an initial rank. */
static void take_place(struct job *job, struct session *session)
{
    if (job->terms->is_elastic &&
        (job->sessions[session->rank] || session->rank >= job->ranks->founding))
        session->entered = ++job->ranks->version;
    if (session->entered > 0)
        job->ranks->changed_ns = clock_now_ns();
}

/* Stores the join, then adds the session (K1). An error leaves job and session unchanged. */
static int join(struct peer *p, const WIRE(JoinRequest) * request, struct job *job, bool job_is_new,
                struct err *err)
{
    struct service *s = p->service;
    struct session *session = session_create(job, request->rank, request->node);
    if (!session)
        return err_set(
            err, -ENOMEM,
            "gradpool serve has no memory for another rank of job %.64s; raise its memory limit",
            job->name);
    session->identity = identify(p, request, &session->pid);
    session->asks_entry = request->asks_entry;
    while (session->number == 0)
        if (getrandom(&session->number, sizeof session->number, 0) < 0)
            break;
    take_place(job, session);
    s->numbers->next_job += job_is_new;
    int error = keep_joined(session, job_is_new, err);
    if (error < 0) {
        s->numbers->next_job -= job_is_new;
        session_destroy(session);
        return error;
    }
    if (job->sessions[session->rank])
        session_destroy(job->sessions[session->rank]);
    job->sessions[session->rank] = session;
    session_attach(session, p);
    return 0;
}

static struct job *make_job(struct peer *p, const WIRE(JoinRequest) * wanted)
{
    struct service *s = p->service;
    struct job *job = jobs_create(s, p->tenant, s->numbers->next_job, wanted->job, room_of(wanted));
    if (!job)
        return NULL;
    job->ranks->founding = job->ranks->wanted = wanted->workers;
    job->terms->continues = wanted->continues;
    job->terms->is_elastic = wanted->continues || wanted->workers_max > wanted->workers;
    return job;
}

/* Returns whether the join may start a job. Ranks from `workers` on may join only after a resize
 * (K45). */
static bool may_found(struct peer *p, uint64_t request, const WIRE(JoinRequest) * join)
{
    struct err err;
    bool is_keyless = !p->is_local && !channel_tenant(p->channel);
    if (is_keyless && !p->service->options->insecure && tenants_have_keys(p->service))
        peer_fail(p, request, -ENOKEY,
                  "job %s cannot begin without a key, because the service has tenants; set "
                  "GRADPOOL_KEY_FILE to a file with a key from `gradpool tenant add`",
                  join->job);
    else if (join->rank >= join->workers)
        peer_fail(p, request, -EPROTO,
                  "job %s has not begun, and begins with %u workers; start rank %u after the job "
                  "was resized",
                  join->job, join->workers, join->rank);
    else if (quota_check_new_job(p->service, p->tenant, join->job, room_of(join), &err) < 0)
        peer_fail(p, request, err.code, "%s", err.text);
    else
        return backup_is_served(p, request, join);
    return false;
}

/* Delays the join until the former job has ended. Returns false if the join has waited too long. A
 * disconnected rank of the former job counts as lost after 3/4 of the longest wait, so that enough
 * time is left for messages to lanes and ranks. */
static bool wait_for_end(struct peer *p, const envelope *message, struct session *taken)
{
    uint64_t now_ns = clock_now_ns(), named = p->service->options->job_end_ns;
    uint64_t limit_ns = named ? named : JOB_END_NS;
    if (p->join_by_ns == 0 && taken && taken->state == SESSION_AWAY)
        session_claimed(taken, limit_ns / 4 * 3);
    if (p->join_by_ns == 0)
        p->join_by_ns = now_ns + limit_ns;
    if (now_ns >= p->join_by_ns) {
        p->join_by_ns = 0;
        return false;
    }
    kept_add(p, message, p->join_by_ns - now_ns, join_handle, "a former job of that name to end");
    return true;
}

static void join_new(struct peer *p, const envelope *message)
{
    struct service *s = p->service;
    const WIRE(JoinRequest) *wanted = message->join_request;
    uint64_t request = message->id;
    struct err err;
    /* Checks the pool of the worker. This may end the job, if the new worker replaces one of its
     * workers. */
    if (!s->on->job->may_join(p, request, wanted))
        return;
    struct job *job = jobs_find(s, p->tenant, wanted->job);
    bool job_is_new = !job;
    struct session *taken = job ? session_of(job, wanted->rank) : NULL;
    if (job && job_is_ending(job, wanted) && wait_for_end(p, message, taken))
        return;
    p->join_by_ns = 0;
    if (job && !rank_is_free(p, request, wanted, job))
        return;
    if (job && members_is_leaving(job, wanted->rank))
        return kept_add(p, message, JOIN_WAIT_NS, join_handle, "a rank to leave");
    if (!job && !may_found(p, request, wanted))
        return;
    if (job_is_new)
        job = make_job(p, wanted);
    if (!job)
        return peer_fail_memory(p, request);
    job->terms->loss_limit_ppm = wanted->loss_limit_ppm;
    job->terms->lane_wait_ms = wanted->lane_wait_ms;
    job->terms->answer_ms = wanted->answer_ms;
    job->terms->durability = durability_of(s, wanted);
    job->terms->backup = backup_of(wanted);
    int error = join(p, wanted, job, job_is_new, &err);
    if (error < 0) {
        if (job_is_new)
            jobs_destroy(job);
        return peer_fail(p, request, error, "%s", err.text);
    }
    log_info("%s has joined", SESSION_NAME(p->session));
    p->service->on->service->view_has_changed(p->service);
    if (job_is_new)
        list_append(&s->jobs, &job->link);
    reply_joined(p->session, request);
    members_tell(job, NULL);
}

/* Accepts only pieces that their lane has confirmed. The routes of all others are sent after the
 * confirmation (K3). */
static bool is_confirmed(const struct piece *piece, const void *context)
{
    return piece->state == PIECE_READY;
}

/* Resumes a session. After the reply, the worker receives the routes and failures that it may have
 * missed. The worker ignores a route whose epoch it already has. */
static void resume(struct peer *p, uint64_t request, struct session *session)
{
    struct job *job = session->job;
    if (session->peer) {
        session->peer->session = NULL;
        waits_cancel(session->peer);
        peer_break(session->peer);
    }
    session_attach(session, p);
    reply_joined(session, request);
    if (job->epoch > 1)
        tensors_send_routes(job, session, is_confirmed, NULL);
    tables_send_routes(job, session);
    for (size_t i = 0; i < job->tensors_count; i++)
        if (job->tensors[i]->failure)
            tensor_send_failure(job->tensors[i], session);
    tables_send_failures(session);
    if (job->failure)
        jobs_send_failure(job, -ECONNRESET, p);
}

static void fail_unknown(struct peer *p, uint64_t request, const WIRE(JoinRequest) * join)
{
    const struct job *job = jobs_find_id(p->service, join->job_id);
    if (job && job->tenant == p->tenant)
        peer_fail(p, request, -ESTALE,
                  "rank %u of job %s counts as lost: the rank was disconnected for too long, or a "
                  "lane has lost its connection; start the job again",
                  join->rank, join->job);
    else
        peer_fail(p, request, -ESTALE,
                  "job %s of rank %u is unknown: the job ended while the rank was disconnected, or "
                  "the service was started with another state directory; start the job again",
                  join->job, join->rank);
}

static struct session *find_session(const struct peer *p, const WIRE(JoinRequest) * join)
{
    struct job *job = jobs_find_id(p->service, join->job_id);
    if (!job || job->tenant != p->tenant || join->rank >= job->workers)
        return NULL;
    struct session *session = job->sessions[join->rank];
    bool open = session && (session->state == SESSION_JOINED || session->state == SESSION_AWAY);
    return open && session->number == join->session ? session : NULL;
}

void join_handle(struct peer *p, const envelope *request)
{
    const WIRE(JoinRequest) *join = request->join_request;
    if (!join_is_valid(p, request->id, join))
        return;
    if (join->session == 0)
        return join_new(p, request);
    struct session *session = find_session(p, join);
    if (!session)
        return fail_unknown(p, request->id, join);
    session->job->terms->durability = durability_of(p->service, join);
    session->asks_entry = join->asks_entry;
    resume(p, request->id, session);
    /* The durability of the job is known only now, so replica holders are chosen now (K57). */
    keeping_check(session->job);
}

/* Records the last rounds that a leaving rank reports as committed. These rounds count as committed
 * even if other ranks have not received the COMMIT. Unknown tensors are ignored. The next
 * regrouping stores the rounds (K41). */
static void note_last_rounds(struct job *job, const WIRE(LeaveRequest) * leave)
{
    for (size_t i = 0; i < leave->n_tensors && i < leave->n_committed; i++) {
        struct tensor *tensor = jobs_tensor(job, leave->tensors[i]);
        if (tensor && leave->committed[i] > tensor->committed)
            tensor->committed = leave->committed[i];
    }
}

void leave_handle(struct peer *p, const envelope *request)
{
    struct session *session = p->session;
    if (!session)
        return peer_fail(p, request->id, -ENOTCONN, "no job has been joined");
    log_info("%s has left", SESSION_NAME(session));
    waits_cancel(p);
    struct job *job = session->job;
    note_last_rounds(job, request->leave_request);
    moving_worker_leaves(session->job);
    session->has_failed = request->leave_request->failed;
    session_leave(session);
    peer_reply_done(p, request->id);
    if (job->terms->is_elastic && !job->failure)
        members_leave(session);
    leavers_changed(job);
    job->service->on->job->rank_has_left(session);
    jobs_end_if_empty(job);
}
