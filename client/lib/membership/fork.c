/* Owns the list of jobs whose state a fork would copy. The handlers hold every lock during the
 * fork, so that the child sees no incomplete change. The child then closes descriptors and frees
 * nothing: its memory is a copy, and shared memory belongs to the parent (L8). */
#include "client/lib/membership/internal.h"
#include "client/lib/report/timeline.h"
#include "client/lib/session/process.h"
#include "client/lib/state/state.h"
#include "svc/fabric/fabric.h"

#include <pthread.h>

static pthread_mutex_t watch_lock = PTHREAD_MUTEX_INITIALIZER;
static struct list watched = {&watched, &watched};
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int once_result;

static void fork_begins(void)
{
    pthread_mutex_lock(&watch_lock);
    list_for_each_entry (struct gp_job, job, &watched, fork_node) {
        pthread_mutex_lock(&job->lock);
        control_hold(job->control);
    }
}

static void fork_is_over(void)
{
    list_for_each_entry (struct gp_job, job, &watched, fork_node) {
        control_let_go(job->control);
        pthread_mutex_unlock(&job->lock);
    }
    pthread_mutex_unlock(&watch_lock);
}

static void fork_in_child(void)
{
    generation_begin_next();
    list_for_each_entry (struct gp_job, job, &watched, fork_node) {
        control_abandon_in_child(job->control);
        engine_abandon_in_child(&job->engine);
        slabs_abandon_in_child(&job->slabs);
        job_timeline_abandon_in_child(job);
        state_abandon_read_in_child(job);
    }
    fork_is_over();
    list_init(&watched);
}

static void fork_install(void)
{
    fabric_watch_forks();
    once_result = -pthread_atfork(fork_begins, fork_is_over, fork_in_child);
}

int fork_watch(struct gp_job *job)
{
    pthread_once(&once, fork_install);
    if (once_result < 0)
        return once_result;
    pthread_mutex_lock(&watch_lock);
    list_append(&watched, &job->fork_node);
    pthread_mutex_unlock(&watch_lock);
    return 0;
}

void fork_forget(struct gp_job *job)
{
    pthread_mutex_lock(&watch_lock);
    list_remove(&job->fork_node);
    pthread_mutex_unlock(&watch_lock);
}
