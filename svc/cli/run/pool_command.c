/* gradpool run --workers-max: a pool with one job. Connects the pool to the service, and requests
 * the state of the job as `gradpool jobs` does. */
#include "svc/base/clock.h"
#include "svc/base/system/unique.h"
#include "svc/base/text.h"
#include "svc/cli/operator.h"
#include "svc/cli/run/run.h"
#include "svc/pool/pool.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define FOLDER_PREFIX "gradpool-"
#define JOB_BYTES_MAX 127

/* Connection of the thread that requests the state of the job; NULL: none. */
struct pool_sight {
    const char *endpoint;
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

static void sight_fill(const Gradpool__Wire__JobView *job, struct pool_look *ret_look)
{
    ret_look->has_job = true;
    ret_look->is_elastic = job->wanted > 0;
    ret_look->wanted = job->wanted;
    ret_look->rounds = job->use ? job->use->rounds : 0;
    for (size_t i = 0; i < job->n_ranks; i++)
        if (job->ranks[i]->rank < POOL_RANKS_MAX)
            ret_look->sessions[job->ranks[i]->rank] = sight_session_of(job->ranks[i]->state);
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
    return 0;
}

/* Requests the state of the job. A connection that has failed is replaced by the next call. */
static int sight_look(void *context, const char *job, struct pool_look *ret_look, struct err *err)
{
    struct pool_sight *sight = context;
    envelope *reply;
    int error = sight->channel ? 0 : operator_open(sight->endpoint, &sight->channel, err);
    if (error < 0)
        return error;
    error = operator_call(sight->channel,
                          &MESSAGE(0, JOBS_REQUEST, jobs_request, .job = (char *)job), &reply, err);
    if (error == 0) {
        error = sight_read(reply, job, ret_look, err);
        gradpool__wire__envelope__free_unpacked(reply, NULL);
    } else {
        channel_destroy(sight->channel);
        sight->channel = NULL;
    }
    return error;
}

/* --- command --- */

/* Prevents other processes of this user from reading the memory of the pool, which may contain the
 * key of a tenant. A worker is dumpable again after it has executed its program. */
static void protect_key(void) { (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0); }

static const char *pool_find_mistake(const struct run_pool *o)
{
    if (o->job && (!*o->job || strlen(o->job) > JOB_BYTES_MAX || !text_is_harmless(o->job)))
        return "--job: expected a name of 1 to 127 bytes that can be printed";
    if (!o->folder && o->job && strchr(o->job, '/'))
        return "--job has a slash, so it names no folder: give --folder, too";
    return NULL;
}

int run_pool(const struct run_pool *o)
{
    static struct pool_sight sight; /* its thread ends with the process */
    char name[UNIQUE_BYTES], folder[PATH_MAX];
    const char *mistake = pool_find_mistake(o);
    if (mistake)
        return knobs_mistake("gradpool run", "%s", mistake);
    sight.endpoint = o->endpoint ? o->endpoint : OPERATOR_ENDPOINT_DEFAULT;
    unique_name("run", name, sizeof name);
    snprintf(folder, sizeof folder, FOLDER_PREFIX "%s", o->job ? o->job : name);
    const struct pool_options options = {.folder = o->folder ? o->folder : folder,
                                         .job = o->job,
                                         .new_job = name,
                                         .endpoint = sight.endpoint,
                                         .workers = o->workers,
                                         .workers_max = o->workers_max,
                                         .leave_ns = o->leave_ms * NS_PER_MS,
                                         .program = o->program,
                                         .look = sight_look,
                                         .context = &sight};
    protect_key();
    int code = pool_run(&options);
    fflush(NULL);
    /* no exit handler of a library may run while the thread that requests the state still runs */
    _exit(code);
}
