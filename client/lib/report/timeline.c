/* Writes a timeline of a job, in a separate thread and over a separate connection to the
 * coordinator, as `gradpool timeline` does. Owns thread, connection and file. Never delays the end
 * of a job. README: L37. */
#include "client/lib/report/timeline.h"

#include "client/lib/session/process.h"
#include "svc/base/log.h"
#include "svc/base/system/shortage.h"
#include "svc/base/system/thread.h"
#include "svc/timeline/timeline_fetch.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct job_timeline {
    int fd, stop_fd; /* fd: socket of the channel, protected by the job's lock */
    struct channel *channel;
    struct timeline_file *file;
    uint64_t timeline;
    pthread_t thread;
    bool is_running; /* the thread is running, or waits to be joined; protected by the job's lock */
    struct err err;  /* owned by the thread; code 0: none */
};

/* ---- the thread ---- */

static void *timeline_main(void *context)
{
    struct job_timeline *tl = context;
    (void)timeline_follow(tl->channel, tl->timeline, tl->stop_fd, tl->file, &tl->err);
    return NULL;
}

static int timeline_start_thread(struct job_timeline *tl, struct err *err)
{
    char lack[SHORTAGE_BYTES];
    int error = thread_start(&tl->thread, timeline_main, tl);
    return error < 0 ? err_set(err, error, "no thread for the timeline: %s",
                               shortage_text(error, SHORTAGE_THREADS, lack, sizeof lack))
                     : 0;
}

/* ---- from start to stop ---- */

static int timeline_open(struct gp_job *job, struct job_timeline *tl, const char *path,
                         struct err *err)
{
    const struct timeline_wish wish = {
        .job = job->name, .tenant = client_tenant(job->client), .for_ns = TIMELINE_NS_MAX};
    char lack[SHORTAGE_BYTES];
    tl->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (tl->stop_fd < 0)
        return err_set(err, -errno, "no eventfd for the timeline: %s",
                       shortage_text(-errno, SHORTAGE_OTHER, lack, sizeof lack));
    int error = timeline_file_open(path, &tl->file, err);
    if (error == 0)
        error = client_connect_operator(job->client, &job->lock, &tl->fd, &tl->channel, err);
    if (error == 0)
        error = timeline_begin(tl->channel, &wish, tl->file, &tl->timeline, err);
    return error < 0 ? error : timeline_start_thread(tl, err);
}

static int timeline_close(struct gp_job *job, struct job_timeline *tl, struct err *err)
{
    if (tl->is_running) {
        eventfd_write(tl->stop_fd, 1);
        pthread_join(tl->thread, NULL);
    }
    pthread_mutex_lock(&job->lock);
    client_disconnect_operator(&tl->fd, tl->channel);
    pthread_mutex_unlock(&job->lock);
    int error = timeline_file_close(tl->file, NULL, err);
    if (tl->err.code < 0)
        *err = tl->err;
    error = tl->err.code < 0 ? tl->err.code : error;
    if (tl->stop_fd >= 0)
        close(tl->stop_fd);
    free(tl);
    return error;
}

/* Removes the timeline from the job and returns it. A timeline that another thread is starting is
 * not removed. */
static struct job_timeline *timeline_take(struct gp_job *job, bool is_running)
{
    pthread_mutex_lock(&job->lock);
    struct job_timeline *tl = job->timeline;
    if (tl && tl->is_running != is_running)
        tl = NULL;
    if (tl)
        job->timeline = NULL;
    pthread_mutex_unlock(&job->lock);
    return tl;
}

/* Adds the timeline to the job. Returns false if the job has one already. */
static bool timeline_put(struct gp_job *job, struct job_timeline *tl)
{
    pthread_mutex_lock(&job->lock);
    bool is_first = !job->timeline;
    if (is_first)
        job->timeline = tl;
    pthread_mutex_unlock(&job->lock);
    return is_first;
}

int gp_job_timeline_start(gp_job *job, const char *path)
{
    struct err err = {0}, ignored;
    int error = job_check(job);
    if (error < 0)
        return error;
    if (!path || !*path)
        return client_error(-EINVAL,
                            "gp_job_timeline_start: the path is NULL or empty; name a file");
    struct job_timeline *tl = calloc(1, sizeof *tl);
    if (!tl)
        return client_error(-ENOMEM, "gp_job_timeline_start: this process has no memory for the "
                                     "timeline; raise its memory limit");
    tl->fd = tl->stop_fd = -1;
    if (!timeline_put(job, tl)) {
        free(tl);
        return client_error(
            -EBUSY,
            "rank %u writes a timeline of job '%s' already; call gp_job_timeline_stop() first",
            job->rank, job->name);
    }
    error = timeline_open(job, tl, path, &err);
    if (error == 0) {
        pthread_mutex_lock(&job->lock);
        tl->is_running = true;
        pthread_mutex_unlock(&job->lock);
        return 0;
    }
    (void)timeline_close(job, timeline_take(job, false), &ignored);
    return client_error(error, "%s", err.text[0] ? err.text : err_text(error));
}

int gp_job_timeline_stop(gp_job *job)
{
    struct err err = {0};
    int error = job_check(job);
    if (error < 0)
        return error;
    struct job_timeline *tl = timeline_take(job, true);
    if (!tl) { /* no error: a timeline must not stop the training */
        log_warn("gp_job_timeline_stop: rank %u writes no timeline of job '%s', so the call has no "
                 "effect",
                 job->rank, job->name);
        return 0;
    }
    error = timeline_close(job, tl, &err);
    return error < 0 ? client_error(error, "%s", err.text[0] ? err.text : err_text(error)) : 0;
}

/* ---- without a call of the API ---- */

void job_timeline_from_environment(struct gp_job *job)
{
    static _Atomic bool is_done;
    const char *path = getenv("GRADPOOL_TIMELINE");
    if (!path || !*path || job->rank != 0 || is_done)
        return;
    is_done = true; /* later jobs of the process would overwrite the file */
    if (gp_job_timeline_start(job, path) < 0)
        log_warn("GRADPOOL_TIMELINE: job '%s' is not recorded: %s", job->name, gp_last_error());
}

void job_timeline_end(struct gp_job *job)
{
    struct job_timeline *tl = timeline_take(job, true);
    struct err err = {0};
    if (tl && timeline_close(job, tl, &err) < 0)
        log_warn("the timeline of job '%s' ended early: %s", job->name, err.text);
}

void job_timeline_abandon_in_child(struct gp_job *job)
{
    const struct job_timeline *tl = job->timeline;
    if (!tl)
        return;
    if (tl->fd >= 0)
        close(tl->fd);
    if (tl->stop_fd >= 0)
        close(tl->stop_fd);
    if (tl->file)
        close(timeline_file_fd(tl->file));
}
