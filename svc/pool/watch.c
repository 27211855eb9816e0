/* Owns the thread that requests the state of the job, and its newest answer. */
#include "svc/pool/watch.h"

#include "svc/base/clock.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

/* Pause between two looks. A person does not notice that a start is a second late, and a request
 * costs the coordinator much less than a millisecond. */
#define LOOK_PAUSE_NS NS_PER_S

struct watch {
    watch_look_fn look;
    void *context;
    int fd;
    pthread_mutex_t mutex;
    pthread_cond_t hurry;
    bool is_hurried;
    int error; /* of the newest look */
    struct pool_look newest;
    struct err err;
};

static void watch_keep(struct watch *w, int error, const struct pool_look *look,
                       const struct err *err)
{
    const uint64_t one = 1;
    pthread_mutex_lock(&w->mutex);
    w->error = error;
    w->newest = *look;
    w->err = *err;
    pthread_mutex_unlock(&w->mutex);
    ssize_t written = write(w->fd, &one, sizeof one);
    (void)written; /* EAGAIN: the descriptor is readable already */
}

static void wait_for_next(struct watch *w)
{
    uint64_t due_ns = clock_now_ns() + LOOK_PAUSE_NS;
    const struct timespec due = {(time_t)(due_ns / NS_PER_S), (long)(due_ns % NS_PER_S)};
    int error = 0;
    pthread_mutex_lock(&w->mutex);
    while (!w->is_hurried && error == 0)
        error = pthread_cond_timedwait(&w->hurry, &w->mutex, &due);
    w->is_hurried = false;
    pthread_mutex_unlock(&w->mutex);
}

static void *watch_run(void *context)
{
    struct watch *w = context;
    for (;;) {
        struct pool_look look = {.asked_ns = clock_now_ns()};
        struct err err = {0};
        int error = w->look(w->context, &look, &err);
        watch_keep(w, error, &look, &err);
        wait_for_next(w);
    }
    return NULL;
}

static int start_thread(struct watch *w)
{
    pthread_condattr_t attributes;
    pthread_t thread;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&w->mutex, NULL);
    pthread_cond_init(&w->hurry, &attributes);
    pthread_condattr_destroy(&attributes);
    int error = pthread_create(&thread, NULL, watch_run, w);
    if (error == 0)
        pthread_detach(thread);
    return -error;
}

int watch_create(watch_look_fn look, void *context, struct watch **ret_watch, struct err *err)
{
    struct watch *w = calloc(1, sizeof *w);
    if (!w)
        return err_set(err, -ENOMEM, "no memory for a pool; raise the limits of this process");
    w->look = look;
    w->context = context;
    w->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int error = w->fd < 0 ? -errno : start_thread(w);
    if (error < 0) {
        if (w->fd >= 0)
            close(w->fd);
        free(w);
        return err_set(err, error, "no thread or descriptor for a pool: %s", strerror(-error));
    }
    *ret_watch = w;
    return 0;
}

int watch_fd(const struct watch *watch) { return watch->fd; }

int watch_take(struct watch *watch, struct pool_look *ret_look, struct err *err)
{
    uint64_t looks;
    ssize_t got = read(watch->fd, &looks, sizeof looks);
    (void)got;
    pthread_mutex_lock(&watch->mutex);
    int error = watch->error;
    *ret_look = watch->newest;
    *err = watch->err;
    pthread_mutex_unlock(&watch->mutex);
    return error;
}

void watch_hurry(struct watch *watch)
{
    pthread_mutex_lock(&watch->mutex);
    watch->is_hurried = true;
    pthread_cond_signal(&watch->hurry);
    pthread_mutex_unlock(&watch->mutex);
}
