/* The engine of Slurm: its interface for the pool. README.md has the states of a worker. */
#include "svc/pool/slurm/slurm.h"

#include "svc/pool/slurm/internal.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

static struct slurm *slurm_of(struct pool_engine *engine) { return (struct slurm *)engine; }

static bool slurm_find(struct pool_engine *engine, uint32_t rank, struct cookie *ret_cookie)
{
    const struct slurm_worker *w = &slurm_of(engine)->workers[rank];
    *ret_cookie = w->cookie;
    return w->state != SLURM_NONE;
}

/* Makes fd() readable, because there is work that no other descriptor shows. */
static void slurm_wake(struct slurm *s)
{
    const struct itimerspec now = {.it_value.tv_nsec = 1};
    timerfd_settime(s->timer_fd, TFD_TIMER_ABSTIME, &now, NULL);
}

static int slurm_start_worker(struct pool_engine *engine, const struct engine_start *start,
                              bool *ret_is_final, struct err *err)
{
    struct slurm *s = slurm_of(engine);
    struct slurm_worker *w = &s->workers[start->rank];
    *ret_is_final = false;
    char **variables = words_copy(start->variables);
    if (!variables)
        return err_set(err, -ENOMEM, "no memory for a worker; raise the limits of this process");
    *w = (struct slurm_worker){.cookie = {.pool = s->setup->folder->pool,
                                          .incarnation = start->incarnation,
                                          .rank = start->rank},
                               .program = start->program,
                               .variables = variables,
                               .event = w->event,
                               .client.process.pidfd = -1};
    slurm_worker_enter(w, SLURM_NEW);
    slurm_worker_waits(w, s->trouble);
    slurm_wake(s);
    return 0;
}

/* Sends a signal. If no list has shown the worker yet, its srun gets a signal, so that srun cancels
 * the request for a step. */
static void slurm_signal(struct pool_engine *engine, uint32_t rank, int signal)
{
    struct slurm *s = slurm_of(engine);
    struct slurm_worker *w = &s->workers[rank];
    if (w->state == SLURM_NONE)
        return;
    w->signal = w->last_signal = signal;
    if (signal == SIGKILL && w->killed_ns == 0)
        w->killed_ns = clock_now_ns();
    if (w->state == SLURM_NEW)
        slurm_worker_ended(s, w, END_SIGNAL, signal);
    else if (w->state == SLURM_SENT && w->client.process.pidfd >= 0)
        process_signal(&w->client.process, signal == SIGKILL ? SIGKILL : SIGTERM);
    slurm_wake(s);
}

static int slurm_fd(struct pool_engine *engine) { return slurm_of(engine)->epoll_fd; }

static void slurm_set_timer(struct slurm *s)
{
    uint64_t next_ns = s->command.process.pidfd >= 0 ? s->deadline_ns
                       : slurm_has_workers(s)        ? s->list_ns
                                                     : 0; /* 0: never */
    const struct itimerspec at = {
        .it_value = {(time_t)(next_ns / NS_PER_S), (long)(next_ns % NS_PER_S)}};
    timerfd_settime(s->timer_fd, TFD_TIMER_ABSTIME, &at, NULL);
}

static bool slurm_take_event(struct slurm *s, struct engine_event *ret_event)
{
    if (*s->saying) {
        *ret_event = (struct engine_event){.kind = ENGINE_SAYS};
        snprintf(ret_event->text, sizeof ret_event->text, "%s", s->saying);
        *s->saying = '\0';
        return true;
    }
    for (uint32_t rank = 0; rank < POOL_RANKS_MAX; rank++) {
        struct slurm_worker *w = &s->workers[rank];
        if (w->event->kind == ENGINE_NOTHING)
            continue;
        *ret_event = *w->event;
        w->event->kind = ENGINE_NOTHING;
        return true;
    }
    return false;
}

static bool slurm_next(struct pool_engine *engine, struct engine_event *ret_event)
{
    struct slurm *s = slurm_of(engine);
    uint64_t ticks;
    ssize_t got = read(s->timer_fd, &ticks, sizeof ticks);
    (void)got; /* EAGAIN: the time of the timer has not come */
    slurm_check_clients(s);
    slurm_check_command(s);
    slurm_next_command(s);
    slurm_set_timer(s);
    return slurm_take_event(s, ret_event);
}

/* Always 0, because `pid` may be the number of a process on another host. */
static uint64_t slurm_pool_of(struct pool_engine *engine, uint32_t pid) { return 0; }

static void slurm_end(struct pool_engine *engine)
{
    struct slurm *s = slurm_of(engine);
    if (s->command.process.pidfd >= 0)
        command_kill(&s->command);
    command_close(&s->command);
    for (uint32_t rank = 0; rank < POOL_RANKS_MAX; rank++)
        slurm_worker_free(&s->workers[rank]);
    close(s->epoll_fd);
    close(s->timer_fd);
    free(s->workers[0].event); /* the events of all workers */
    free(s->strays);
    free(s);
}

static int slurm_open(struct slurm *s, struct err *err)
{
    struct epoll_event event = {.events = EPOLLIN};
    s->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    s->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (s->epoll_fd < 0 || s->timer_fd < 0 ||
        epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, s->timer_fd, &event) < 0)
        return err_set(err, -errno,
                       "no descriptor for a pool: %s; raise the limit of open files "
                       "(ulimit -n)",
                       strerror(errno));
    slurm_wake(s); /* for adopted workers */
    return s->has_steps ? 0 : words_write_script(s->setup->folder, err);
}

int engine_slurm_create(const struct slurm_setup *setup, struct pool_engine **ret_engine,
                        struct err *err)
{
    static const struct engine_calls calls = {.name = "slurm",
                                              .is_spread = true,
                                              .adopt = slurm_adopt,
                                              .end_strays = slurm_end_strays,
                                              .find = slurm_find,
                                              .start = slurm_start_worker,
                                              .signal = slurm_signal,
                                              .fd = slurm_fd,
                                              .next = slurm_next,
                                              .pool_of = slurm_pool_of,
                                              .end = slurm_end};
    struct slurm *s = calloc(1, sizeof *s);
    struct engine_event *events = calloc(POOL_RANKS_MAX, sizeof *events);
    if (!s || !events)
        return err_set(err, -ENOMEM, "no memory for a pool; raise the limits of this process");
    s->engine.calls = &calls;
    s->setup = setup;
    s->has_steps = getenv("SLURM_JOB_ID") != NULL;
    s->command.process.pidfd = -1;
    for (uint32_t rank = 0; rank < POOL_RANKS_MAX; rank++) {
        s->workers[rank].client.process.pidfd = -1;
        s->workers[rank].event = &events[rank];
    }
    int error = slurm_open(s, err);
    *ret_engine = &s->engine;
    return error;
}
