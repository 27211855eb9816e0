/* The engine of Slurm. Slurm's commands run as children, one at a time besides the srun of each
 * worker, so a Slurm that does not answer delays no other work of the pool. A list of squeue every
 * 2 s is the truth about jobs and steps. README.md has the states of a worker. */
#include "svc/pool/slurm/slurm.h"

#include "svc/base/cleanup.h"
#include "svc/base/text.h"
#include "svc/pool/slurm/internal.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define LIST_NS (2 * NS_PER_S)         /* between two lists */
#define LIST_SOON_NS (250 * NS_PER_MS) /* until the list after a start or a failure */
#define COMMAND_NS (30 * NS_PER_S)     /* longest time of a command; Slurm gives up after 20 s */
#define KILL_NS (30 * NS_PER_S)        /* from SIGKILL to the end of the processes */
#define STRAYS_NS (10 * NS_PER_S)      /* between two ends of unknown jobs */
#define STEADY_NS (120 * NS_PER_S)     /* such a life speaks for the node of a worker */
#define EXIT_STALE 75                  /* of a worker whose join was refused */

static struct slurm *slurm_of(struct pool_engine *engine) { return (struct slurm *)engine; }

/* --- events --- */

static void slurm_say(struct slurm *s, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(s->saying, sizeof s->saying, format, arguments);
    va_end(arguments);
}

/* Replaces an event that the pool has not read. */
static void worker_tell(struct slurm_worker *w, enum engine_event_kind kind, const char *text)
{
    *w->event = (struct engine_event){.kind = kind, .rank = w->cookie.rank};
    snprintf(w->event->text, sizeof w->event->text, "%.*s", ENGINE_TEXT_BYTES - 1, text);
}

static void worker_waits(struct slurm_worker *w, const char *text)
{
    if (!*text || strcmp(w->told, text) == 0)
        return;
    snprintf(w->told, sizeof w->told, "%s", text);
    worker_tell(w, ENGINE_WAITS, text);
}

static void worker_enter(struct slurm_worker *w, enum slurm_state state)
{
    w->state = state;
    w->since_ns = clock_now_ns();
}

static void worker_free(struct slurm_worker *w)
{
    for (char **variable = w->variables; variable && *variable; variable++)
        free(*variable);
    free(w->variables);
    w->variables = NULL;
    command_close(&w->client);
    w->state = SLURM_NONE;
}

static void worker_refused(struct slurm_worker *w, const char *text)
{
    worker_tell(w, ENGINE_REFUSED, *text ? text : "a command of Slurm has failed without a text");
    worker_free(w);
}

static void worker_ended(struct slurm *s, struct slurm_worker *w, enum rank_end end, int number)
{
    uint64_t now_ns = clock_now_ns();
    bool is_well = end == END_EXIT && (number == 0 || number == EXIT_STALE);
    bool is_steady = w->has_run && now_ns > w->since_ns + STEADY_NS;
    if (is_well || is_steady || w->last_signal == 0)
        nodes_ended(s, w->node, !is_well && !is_steady, now_ns);
    worker_tell(w, ENGINE_ENDED, "");
    w->event->end = end;
    w->event->number = number;
    worker_free(w);
}

/* --- lists --- */

static void worker_seen_pending(struct slurm *s, struct slurm_worker *w,
                                const struct slurm_entry *entry)
{
    char text[ENGINE_TEXT_BYTES];
    if (w->state != SLURM_QUEUED)
        worker_enter(w, SLURM_QUEUED);
    if (strcmp(entry->reason, "None") == 0) /* Slurm has not looked at the job yet */
        return;
    snprintf(text, sizeof text, "job %s of Slurm waits in the queue: %s", w->id,
             *entry->reason ? entry->reason : entry->state);
    worker_waits(w, text);
}

static void worker_seen_running(struct slurm_worker *w)
{
    if (w->state == SLURM_RUNS || (w->state == SLURM_DOUBTED && w->has_run))
        return;
    w->has_run = true;
    worker_enter(w, SLURM_RUNS);
    worker_tell(w, ENGINE_RUNS, "");
}

/* Gives up a worker that Slurm does not end, for example on a node that does not answer. */
static bool worker_is_stuck(struct slurm *s, struct slurm_worker *w)
{
    if (w->killed_ns == 0 || clock_now_ns() < w->killed_ns + KILL_NS)
        return false;
    slurm_say(s,
              "rank %u: Slurm has not ended %s on node %s within %llu s; its process may live, and "
              "cannot join the job again; look at the node",
              w->cookie.rank, w->id, *w->node ? w->node : "?",
              (unsigned long long)(KILL_NS / NS_PER_S));
    if (w->client.process.pidfd >= 0)
        command_kill(&w->client);
    worker_ended(s, w, END_UNKNOWN, 0);
    return true;
}

/* A signal may be lost while Slurm does not answer, so SIGKILL is repeated. */
static void worker_seen(struct slurm *s, struct slurm_worker *w, const struct slurm_entry *entry)
{
    snprintf(w->id, sizeof w->id, "%s", entry->id);
    snprintf(w->node, sizeof w->node, "%s", entry->node);
    if (entry->phase == SLURM_OVER)
        return worker_ended(s, w, entry->end, entry->number);
    if (entry->phase == SLURM_ENDING && w->killed_ns == 0)
        w->killed_ns = clock_now_ns();
    if (entry->phase == SLURM_PENDING)
        worker_seen_pending(s, w, entry);
    else
        worker_seen_running(w);
    if (worker_is_stuck(s, w))
        return;
    bool is_left = w->state == SLURM_DOUBTED && w->has_run; /* its srun has ended */
    if (w->last_signal == SIGKILL || is_left)
        w->signal = w->last_signal = SIGKILL;
    if (is_left && w->killed_ns == 0)
        w->killed_ns = clock_now_ns();
}

/* Handles a worker that a list does not show. The list began after the worker's last change. */
static void worker_unseen(struct slurm *s, struct slurm_worker *w)
{
    bool has_client = w->client.process.pidfd >= 0;
    if (w->state == SLURM_DOUBTED && !w->has_run && w->last_signal == 0)
        return worker_refused(w, w->told);
    if (w->state == SLURM_DOUBTED || (w->state >= SLURM_QUEUED && !has_client))
        return worker_ended(s, w, END_UNKNOWN, 0);
    if (w->state == SLURM_RUNS && w->killed_ns == 0) /* srun ends soon, or has lost Slurm */
        w->killed_ns = clock_now_ns();
    if (w->state == SLURM_RUNS)
        (void)worker_is_stuck(s, w);
}

static struct slurm_worker *slurm_find_worker(struct slurm *s, const struct slurm_entry *entry)
{
    struct slurm_worker *w = &s->workers[entry->cookie.rank];
    bool is_same = w->state >= SLURM_SENT && w->cookie.incarnation == entry->cookie.incarnation &&
                   (!*w->id || strcmp(w->id, entry->id) == 0);
    return is_same ? w : NULL;
}

static void slurm_add_stray(struct slurm *s, const struct slurm_entry *entry)
{
    struct slurm_entry *more = realloc(s->strays, (s->strays_count + 1) * sizeof *more);
    if (!more)
        return; /* the next list shows the job again */
    s->strays = more;
    s->strays[s->strays_count++] = *entry;
}

/* A job that belongs to no worker is ended: a rank has one process. */
static void slurm_take_entry(struct slurm *s, const struct slurm_entry *entry)
{
    struct slurm_worker *w = slurm_find_worker(s, entry);
    bool is_alive = entry->phase == SLURM_PENDING || entry->phase == SLURM_RUNNING;
    if (!w && is_alive && clock_now_ns() >= s->strays_ns + STRAYS_NS)
        return slurm_add_stray(s, entry);
    if (!w)
        return;
    w->was_seen = true;
    worker_seen(s, w, entry);
}

static void slurm_take_list(struct slurm *s)
{
    for (uint32_t rank = 0; rank < POOL_RANKS_MAX; rank++)
        s->workers[rank].was_seen = false;
    s->strays_count = 0;
    slurm_each_entry(s, s->has_steps, slurm_take_entry);
    if (s->strays_count > 0)
        s->strays_ns = clock_now_ns();
    for (uint32_t rank = 0; rank < POOL_RANKS_MAX; rank++) {
        struct slurm_worker *w = &s->workers[rank];
        char text[ENGINE_TEXT_BYTES] = "";
        if (w->state < SLURM_SENT || w->was_seen || s->deadline_ns - COMMAND_NS < w->since_ns)
            continue;
        if (w->client.process.pidfd >= 0)
            command_text(&w->client, text, sizeof text);
        if (w->state == SLURM_SENT)
            worker_waits(w, text);
        else
            worker_unseen(s, w);
    }
}

static void slurm_is_silent(struct slurm *s, const char *text)
{
    snprintf(s->trouble, sizeof s->trouble, "Slurm does not answer: %.*s", ENGINE_TEXT_BYTES - 64,
             text);
    for (uint32_t rank = 0; rank < POOL_RANKS_MAX; rank++) {
        struct slurm_worker *w = &s->workers[rank];
        if (w->state == SLURM_NEW)
            worker_waits(w, s->trouble);
        else if (w->state != SLURM_NONE)
            (void)worker_is_stuck(s, w);
    }
    if (!s->was_unanswered)
        slurm_say(s, "%s; workers train on, and none is started or ended until it answers",
                  s->trouble);
    s->was_unanswered = true;
    s->has_list = false;
}

static void slurm_has_listed(struct slurm *s, bool is_good, const char *text)
{
    s->list_ns = clock_now_ns() + LIST_NS;
    if (!is_good)
        return slurm_is_silent(s, text);
    if (s->was_unanswered)
        slurm_say(s, "Slurm answers again");
    s->was_unanswered = false;
    s->has_list = true;
    slurm_take_list(s);
}

/* --- commands --- */

static void slurm_list_soon(struct slurm *s)
{
    uint64_t soon_ns = clock_now_ns() + LIST_SOON_NS;
    if (s->list_ns > soon_ns)
        s->list_ns = soon_ns;
}

static void worker_submitted(struct slurm *s, struct slurm_worker *w, bool is_good,
                             const char *text)
{
    if (w->state != SLURM_SENT)
        return;
    slurm_list_soon(s);
    if (is_good && command_number(&s->command, w->id, sizeof w->id))
        return worker_enter(w, SLURM_QUEUED);
    snprintf(w->told, sizeof w->told, "%s", text);
    worker_enter(w, SLURM_DOUBTED);
}

static void slurm_take_command(struct slurm *s, bool is_good, const char *text)
{
    if (s->purpose == PURPOSE_LIST)
        slurm_has_listed(s, is_good, text);
    else if (s->purpose == PURPOSE_SUBMIT)
        worker_submitted(s, &s->workers[s->submits], is_good, text);
    else
        slurm_list_soon(s);
}

/* Reads the end of the command, or ends a command that has run for too long. */
static void slurm_check_command(struct slurm *s)
{
    char text[ENGINE_TEXT_BYTES];
    enum rank_end end;
    int number = 0;
    if (s->command.process.pidfd < 0)
        return;
    bool has_ended = command_has_ended(&s->command, &end, &number);
    if (!has_ended && clock_now_ns() < s->deadline_ns)
        return;
    command_text(&s->command, text, sizeof text);
    if (!has_ended) {
        command_kill(&s->command);
        snprintf(text, sizeof text, "a command has not ended after %llu s",
                 (unsigned long long)(COMMAND_NS / NS_PER_S));
    }
    slurm_take_command(s, has_ended && end == END_EXIT && number == 0, text);
    command_close(&s->command);
}

static void slurm_watch(struct slurm *s, const struct slurm_command *command)
{
    struct epoll_event event = {.events = EPOLLIN};
    (void)epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, command->process.pidfd, &event);
}

static void slurm_command_begun(struct slurm *s, enum slurm_purpose purpose)
{
    s->purpose = purpose;
    s->deadline_ns = clock_now_ns() + COMMAND_NS;
    slurm_watch(s, &s->command);
}

static void slurm_run(struct slurm *s, const struct slurm_words *words, enum slurm_purpose purpose)
{
    static char *const none[] = {NULL};
    const struct cookie cookie = {.pool = s->setup->folder->pool, .rank = POOL_RANKS_MAX};
    bool is_final;
    struct err err;
    int error =
        command_start(words, &cookie, s->setup->folder->job, none, &s->command, &is_final, &err);
    if (error == 0)
        return slurm_command_begun(s, purpose);
    s->purpose = purpose;
    slurm_take_command(s, false, err.text);
}

/* --- starts --- */

static void worker_start(struct slurm *s, struct slurm_worker *w)
{
    struct slurm_command *command = s->has_steps ? &w->client : &s->command;
    bool is_final;
    struct err err;
    w->log_bytes = words_log_bytes(s, w->cookie.rank);
    if (words_start(s, w, command, &is_final, &err) < 0)
        return worker_refused(w, err.text);
    worker_enter(w, SLURM_SENT);
    slurm_list_soon(s);
    if (s->has_steps)
        return slurm_watch(s, command);
    s->submits = w->cookie.rank;
    slurm_command_begun(s, PURPOSE_SUBMIT);
}

/* Starts the next worker. Returns whether there was one. */
static bool slurm_start_next(struct slurm *s)
{
    for (uint32_t rank = 0; rank < POOL_RANKS_MAX; rank++)
        if (s->workers[rank].state == SLURM_NEW) {
            worker_start(s, &s->workers[rank]);
            return true;
        }
    return false;
}

static bool slurm_has_workers(const struct slurm *s)
{
    for (uint32_t rank = 0; rank < POOL_RANKS_MAX; rank++)
        if (s->workers[rank].state != SLURM_NONE)
            return true;
    return false;
}

/* Starts the next command, if none runs. Signals go first: users wait for them. */
static void slurm_next_command(struct slurm *s)
{
    while (s->command.process.pidfd < 0) {
        struct slurm_words words = {0};
        if (words_signal(s, &words) != 0 || words_strays(s, &words)) {
            slurm_run(s, &words, PURPOSE_SIGNAL);
        } else if (!slurm_has_workers(s)) {
            s->has_list = false; /* too old for the next start */
            return;
        } else if (clock_now_ns() >= s->list_ns) {
            words_list(&words, s->has_steps);
            slurm_run(s, &words, PURPOSE_LIST);
        } else if (!s->has_list || !slurm_start_next(s)) {
            return;
        }
    }
}

/* --- ends of srun --- */

/* srun names the node of a task that has failed: "srun: error: NODE: task 0: ...". */
static void worker_read_node(struct slurm_worker *w, const char *text)
{
    static const char start[] = "srun: error: ";
    const char *at = strstr(text, start), *end = strstr(text, ": task ");
    if (!*w->node && at && end > at + sizeof start - 1)
        snprintf(w->node, sizeof w->node, "%.*s", (int)(end - at - (sizeof start - 1)),
                 at + sizeof start - 1);
}

/* An srun that was killed leaves its step, which the next list shows. Without a step and without
 * output of the script nothing was started. */
static void worker_client_ended(struct slurm *s, struct slurm_worker *w, enum rank_end end,
                                int number)
{
    char text[ENGINE_TEXT_BYTES];
    bool has_run = w->has_run || words_log_bytes(s, w->cookie.rank) > w->log_bytes;
    command_text(&w->client, text, sizeof text);
    worker_read_node(w, text);
    command_close(&w->client);
    if (end == END_EXIT && (has_run || number == 0))
        return worker_ended(s, w, end, number);
    if (end == END_EXIT && w->last_signal == 0)
        return worker_refused(w, text);
    w->has_run = true; /* a step that a list shows has lost its srun */
    snprintf(w->told, sizeof w->told, "%s", text);
    worker_enter(w, SLURM_DOUBTED);
    slurm_list_soon(s);
}

static void slurm_check_clients(struct slurm *s)
{
    for (uint32_t rank = 0; rank < POOL_RANKS_MAX; rank++) {
        struct slurm_worker *w = &s->workers[rank];
        enum rank_end end;
        int number = 0;
        if (w->client.process.pidfd >= 0 && command_has_ended(&w->client, &end, &number))
            worker_client_ended(s, w, end, number);
    }
}

/* --- the interface --- */

static bool slurm_find(struct pool_engine *engine, uint32_t rank, struct cookie *ret_cookie)
{
    const struct slurm_worker *w = &slurm_of(engine)->workers[rank];
    *ret_cookie = w->cookie;
    return w->state != SLURM_NONE;
}

/* Makes fd() readable, for work that no descriptor shows. */
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
    worker_enter(w, SLURM_NEW);
    if (s->was_unanswered)
        worker_waits(w, s->trouble);
    slurm_wake(s);
    return 0;
}

/* Before a list has shown the worker, srun is asked to give up its request for a step. */
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
        worker_ended(s, w, END_SIGNAL, signal);
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
    (void)got; /* EAGAIN: the time has not come */
    slurm_check_clients(s);
    slurm_check_command(s);
    slurm_next_command(s);
    slurm_set_timer(s);
    return slurm_take_event(s, ret_event);
}

/* The number of a process on another host may be that of a process here. */
static uint64_t slurm_pool_of(struct pool_engine *engine, uint32_t pid) { return 0; }

static void slurm_end(struct pool_engine *engine)
{
    struct slurm *s = slurm_of(engine);
    if (s->command.process.pidfd >= 0)
        command_kill(&s->command);
    command_close(&s->command);
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
