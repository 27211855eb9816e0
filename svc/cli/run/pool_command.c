/* gradpool run --workers-max: a pool with one job. Connects the pool to the service. The pool
 * requests the state of its job from time to time, with requests like those of `gradpool jobs`. If
 * the service has slots for the pool's site, the pool receives orders instead (pool_site.c). */
#include "svc/base/clock.h"
#include "svc/base/system/unique.h"
#include "svc/base/text.h"
#include "svc/cli/cli.h"
#include "svc/cli/operator.h"
#include "svc/cli/run/pool_site.h"
#include "svc/cli/run/run.h"
#include "svc/pool/pool.h"
#include "svc/pool/preload/preload.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define FOLDER_PREFIX "gradpool-"
#define JOB_BYTES_MAX 127
#define SITE_BYTES_MAX 64

/* Connection of the thread that requests the state of the job; NULL: none. */
struct pool_sight {
    const char *endpoint, *node;
    struct channel *channel;
};

/* --- looks --- */

static enum rank_session sight_session_of(const char *state)
{
    static const struct {
        const char *name;
        enum rank_session session;
    } names[] = {{"joined", SEEN_JOINED},
                 {"entering", SEEN_ENTERING},
                 {"away", SEEN_AWAY},
                 {"left", SEEN_LEFT},
                 {"lost", SEEN_LOST}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(state, names[i].name) == 0)
            return names[i].session;
    return SEEN_NOT;
}

static void sight_fill_sessions(const Gradpool__Wire__JobView *job, struct pool_look *ret_look)
{
    for (size_t i = 0; i < job->n_ranks; i++) {
        const Gradpool__Wire__WorkerView *worker = job->ranks[i];
        if (worker->rank >= POOL_RANKS_MAX)
            continue;
        ret_look->sessions[worker->rank] = sight_session_of(worker->state);
        ret_look->pids[worker->rank] = worker->pid;
        ret_look->was_removed[worker->rank] = worker->was_removed;
    }
}

static void sight_fill(const Gradpool__Wire__JobView *job, struct pool_look *ret_look)
{
    ret_look->has_job = true;
    ret_look->is_elastic = job->wanted > 0;
    ret_look->wanted = job->wanted;
    ret_look->rounds = job->use ? job->use->rounds : 0;
    sight_fill_sessions(job, ret_look);
}

/* Returns whether the service has slots for the site. */
static bool sight_has_slots(const Gradpool__Wire__JobsReply *jobs, const char *site)
{
    for (size_t i = 0; i < jobs->n_sites; i++)
        if (strcmp(jobs->sites[i]->site, site) == 0 && jobs->sites[i]->slots > 0)
            return true;
    return false;
}

static int sight_read(const envelope *reply, const char *job, struct pool_look *ret_look,
                      struct err *err)
{
    if (reply->body_case != GRADPOOL__WIRE__ENVELOPE__BODY_JOBS_REPLY)
        return err_set(err, -EPROTO, "the service has sent another answer than a list of jobs");
    const Gradpool__Wire__JobsReply *jobs = reply->jobs_reply;
    if (jobs->n_jobs > 1)
        return err_set(err, -EINVAL,
                       "more than one tenant has a job %s; give this one another name with --job",
                       job);
    if (jobs->n_jobs == 1)
        sight_fill(jobs->jobs[0], ret_look);
    else if (jobs->n_ended == 1)
        sight_fill_sessions(jobs->ended[0], ret_look);
    ret_look->has_ended = jobs->n_jobs == 0 && jobs->n_ended == 1;
    return 0;
}

/* Requests the state of the job. `pool`: number of the pool that watches the job; 0: none. After an
 * error the connection is closed, and the next call opens a new one. */
static int sight_ask(struct pool_sight *sight, const char *job, uint64_t pool, envelope **ret_reply,
                     struct err *err)
{
    Gradpool__Wire__PoolWatch watch =
        MESSAGE_PART(PoolWatch, pool_watch, .pool = pool, .node = (char *)sight->node,
                     .pid = (uint32_t)getpid());
    int error = sight->channel ? 0 : operator_open(sight->endpoint, &sight->channel, err);
    if (error == 0)
        error = operator_call(sight->channel,
                              &MESSAGE(0, JOBS_REQUEST, jobs_request, .job = (char *)job,
                                       .watch = pool ? &watch : NULL),
                              ret_reply, err);
    if (error < 0) {
        channel_destroy(sight->channel);
        sight->channel = NULL;
    }
    return error;
}

/* Returns 1 if the service has slots for this host, 0 if it has none, or the error of the request.
 * `job`: a name that no job has, so that the reply lists no job. */
static int sight_find_site(struct pool_sight *sight, const char *job, struct err *err)
{
    envelope *reply;
    fprintf(stderr, "gradpool run: the service at %s is asked for slots, for 10 s at most\n",
            sight->endpoint);
    int error = sight_ask(sight, job, 0, &reply, err);
    if (error < 0)
        return error;
    bool has_slots = reply->body_case == GRADPOOL__WIRE__ENVELOPE__BODY_JOBS_REPLY &&
                     sight_has_slots(reply->jobs_reply, sight->node);
    gradpool__wire__envelope__free_unpacked(reply, NULL);
    /* the exchange of orders uses another connection (pool_site.c) */
    channel_destroy(sight->channel);
    sight->channel = NULL;
    return has_slots;
}

/* Implements look() of struct pool_options: requests the state of the job. */
static int sight_look(void *context, const char *job, uint64_t pool, struct pool_look *ret_look,
                      struct err *err)
{
    envelope *reply;
    int error = sight_ask(context, job, pool, &reply, err);
    if (error < 0)
        return error;
    error = sight_read(reply, job, ret_look, err);
    gradpool__wire__envelope__free_unpacked(reply, NULL);
    return error;
}

/* --- command --- */

/* Prevents other processes of this user from reading the memory of the pool, which may contain the
 * key of a tenant. A worker is dumpable again after it has executed its program. */
static void protect_key(void) { (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0); }

static bool is_name(const char *text)
{
    return *text && !strchr(text, '"') && text_is_harmless(text);
}

const char *run_check_job(const char *job)
{
    if (!job || (is_name(job) && strlen(job) <= JOB_BYTES_MAX))
        return NULL;
    return "--job: expected a name of 1 to 127 bytes that can be printed, without double quotes";
}

static const char *pool_find_mistake(const struct run_pool *o)
{
    if (o->site && (!is_name(o->site) || strlen(o->site) > SITE_BYTES_MAX))
        return "--site: expected a name of 1 to 64 bytes, without double quotes";
    if (o->study && (!is_name(o->study) || strlen(o->study) > JOB_BYTES_MAX))
        return "--study: expected a name of 1 to 127 bytes, without double quotes";
    if (!o->folder && o->job && strchr(o->job, '/'))
        return "--job has a slash, so it names no folder: give --folder, too";
    if (o->preload)
        return preload_find_mistake(o->preload, o->program);
    return NULL;
}

/* Returns an error if the variables of this process name no valid key. */
static int pool_check_own_key(const char *url, struct err *err)
{
    struct endpoint endpoint;
    struct key key;
    int error = endpoint_parse(url, &endpoint, err);
    if (error < 0 || endpoint.is_unix)
        return error;
    int has_key = key_from_environment(&key, err);
    key_forget(&key);
    return has_key < 0 ? has_key : 0;
}

/* Returns 1 if the pool uses the site of this host, 0 if not, or an error. `ret_is_final`: the
 * service has refused the key, or the key is invalid, so another attempt is useless. */
static int pool_find_host_site(const struct run_pool *o, struct pool_sight *sight, const char *job,
                               bool *ret_is_final, struct err *err)
{
    int error = pool_check_own_key(sight->endpoint, err);
    *ret_is_final = error < 0;
    if (error < 0 || o->site || strlen(sight->node) > SITE_BYTES_MAX)
        return error;
    error = sight_find_site(sight, job, err);
    *ret_is_final = site_is_key_error(error);
    return error;
}

int run_pool(const struct run_pool *o)
{
    /* static, because threads use `sight` and `site` until the process ends */
    static struct pool_sight sight;
    static struct pool_site site;
    char name[UNIQUE_BYTES], folder[PATH_MAX];
    bool is_refused;
    struct err err;
    const char *mistake = pool_find_mistake(o);
    if (mistake)
        return knobs_mistake("gradpool run", "%s", mistake);
    sight.endpoint = site.endpoint = o->endpoint ? o->endpoint : OPERATOR_ENDPOINT_DEFAULT;
    gethostname(site.node, sizeof site.node - 1);
    unsetenv("GRADPOOL_INCARNATION"); /* set if another pool has started this process as a worker */
    unique_name("run", name, sizeof name);
    snprintf(folder, sizeof folder, FOLDER_PREFIX "%s", o->job ? o->job : name);
    protect_key();
    sight.node = site.node;
    int has_site = pool_find_host_site(o, &sight, name, &is_refused, &err);
    if (is_refused) {
        fprintf(stderr, "gradpool run: %s\n", err.text);
        return CLI_FAILED;
    }
    const struct pool_options options = {.folder = o->folder ? o->folder : folder,
                                         .job = o->job,
                                         .new_job = name,
                                         .endpoint = sight.endpoint,
                                         .workers = o->workers,
                                         .workers_max = o->workers_max,
                                         .leave_ns = o->leave_ms * NS_PER_MS,
                                         .program = o->program,
                                         .engine = o->engine.name,
                                         .slurm = o->engine.slurm,
                                         .preload = o->preload,
                                         .site = o->site,
                                         .study = o->study,
                                         .followers = o->followers,
                                         .may_rest = o->may_rest,
                                         .host_site = has_site > 0 ? site.node : NULL,
                                         .is_unanswered = has_site < 0,
                                         .look = sight_look,
                                         .context = &sight,
                                         .calls = &pool_site_calls,
                                         .calls_context = &site};
    int code = pool_run(&options);
    fflush(NULL);
    /* ends without the exit handlers of libraries, because the thread that requests the state still
     * runs */
    _exit(code);
}
