/* Workers of an earlier pool of the folder. Their jobs or steps have names that only this folder
 * gives. The adoption waits for Slurm, because a pool that does not know its workers would start
 * their ranks again. */
#include "svc/base/cleanup.h"
#include "svc/base/system/signals.h"
#include "svc/pool/slurm/internal.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>

#define LIST_NS (30 * NS_PER_S) /* longest wait for a list */
#define PAUSE_MS 2000           /* pause between two lists if Slurm does not answer */

void slurm_each_entry(struct slurm *s, bool is_step,
                      void (*found)(struct slurm *s, const struct slurm_entry *entry))
{
    _cleanup_free_ char *output = command_output(&s->command);
    char *rest = output, *line;
    struct slurm_entry entry;
    while ((line = strsep(&rest, "\n")))
        if (slurm_line_parse(line, is_step, &entry) && entry.cookie.pool == s->setup->folder->pool)
            found(s, &entry);
}

/* Keeps the newest incarnation of each rank. Other incarnations are ended after the first list that
 * next() reads. */
static void adopt_entry(struct slurm *s, const struct slurm_entry *entry)
{
    struct slurm_worker *w = &s->workers[entry->cookie.rank];
    bool is_older = w->state != SLURM_NONE && w->cookie.incarnation >= entry->cookie.incarnation;
    if (entry->phase == SLURM_OVER || is_older)
        return;
    *w = (struct slurm_worker){.state = entry->phase == SLURM_PENDING ? SLURM_QUEUED : SLURM_RUNS,
                               .has_run = entry->phase != SLURM_PENDING,
                               .cookie = entry->cookie,
                               .since_ns = clock_now_ns(),
                               .event = w->event,
                               .client.process.pidfd = -1};
    snprintf(w->id, sizeof w->id, "%s", entry->id);
    snprintf(w->node, sizeof w->node, "%s", entry->node);
}

/* Stores the number of a job that this pool could neither see in its lists nor replace, so that the
 * adoption fails. */
static void refuse_entry(struct slurm *s, const struct slurm_entry *entry)
{
    if (entry->phase != SLURM_OVER)
        snprintf(s->trouble, sizeof s->trouble, "%s", entry->id);
}

/* Returns whether a signal ends the adoption. SIGUSR1 and SIGUSR2 of a study do not end it, because
 * the pool reads the files of the study after the adoption. */
static bool adopt_is_interrupted(const struct slurm *s)
{
    int number = signals_take_end(s->setup->signal_fd);
    if (number != 0)
        *s->setup->ret_signal = number;
    return number != 0;
}

/* Waits for the end of squeue. Returns 0, -EINTR, or -EAGAIN if Slurm does not answer. */
static int adopt_await(struct slurm *s, struct err *err)
{
    uint64_t deadline_ns = clock_now_ns() + LIST_NS;
    struct pollfd fds[] = {{.fd = s->command.process.pidfd, .events = POLLIN},
                           {.fd = s->setup->signal_fd, .events = POLLIN}};
    char text[ERR_TEXT_BYTES / 2];
    enum rank_end end;
    int number = 0;
    while (!command_has_ended(&s->command, &end, &number)) {
        bool is_late = clock_now_ns() >= deadline_ns;
        (void)poll(fds, 2, clock_poll_ms(deadline_ns, clock_now_ns()));
        bool is_interrupted = adopt_is_interrupted(s);
        if (!is_interrupted && !is_late)
            continue;
        command_kill(&s->command);
        return is_interrupted ? err_set(err, -EINTR, "ended by a signal")
                              : err_set(err, -EAGAIN, "squeue has not ended after 30 s");
    }
    command_text(&s->command, text, sizeof text);
    return end == END_EXIT && number == 0 ? 0 : err_set(err, -EAGAIN, "%s", text);
}

static int adopt_list(struct slurm *s, bool is_step, struct err *err)
{
    static char *const none[] = {NULL};
    const struct cookie cookie = {.pool = s->setup->folder->pool, .rank = POOL_RANKS_MAX};
    struct slurm_words words = {0};
    bool is_final;
    words_list(&words, is_step);
    int error =
        command_start(&words, &cookie, s->setup->folder->job, none, &s->command, &is_final, err);
    if (error < 0)
        return error;
    error = adopt_await(s, err);
    if (error == 0)
        slurm_each_entry(s, is_step, is_step == s->has_steps ? adopt_entry : refuse_entry);
    command_close(&s->command);
    return error;
}

static bool folder_is_new(const struct pool_folder *folder)
{
    for (uint32_t rank = 0; rank < POOL_RANKS_MAX; rank++)
        if (folder->incarnations[rank] != 0)
            return false;
    return true;
}

static int adopt_pause(struct slurm *s, struct err *err)
{
    struct pollfd signal = {.fd = s->setup->signal_fd, .events = POLLIN};
    (void)poll(&signal, 1, PAUSE_MS);
    return adopt_is_interrupted(s) ? err_set(err, -EINTR, "ended by a signal") : 0;
}

static int adopt_check_way(const struct slurm *s, struct err *err)
{
    if (!*s->trouble)
        return 0;
    return err_set(err, -EEXIST,
                   "folder %s: job %s of Slurm is a worker of an earlier pool that ran %s an "
                   "allocation; start this command there, or end the worker with scancel",
                   s->setup->folder->path, s->trouble, s->has_steps ? "outside of" : "inside");
}

int slurm_adopt(struct pool_engine *engine, struct err *err)
{
    struct slurm *s = (struct slurm *)engine;
    bool is_new = folder_is_new(s->setup->folder), is_told = false;
    int error;
    while ((error = adopt_list(s, true, err) ?: adopt_list(s, false, err)) == -EAGAIN && !is_new) {
        if (!is_told)
            s->setup->say(
                "folder %s: its workers are not known, because Slurm does not answer: %s; "
                "the pool tries again",
                s->setup->folder->path, err->text);
        is_told = true;
        error = adopt_pause(s, err);
        if (error < 0)
            return error;
    }
    if (error < 0 && error != -EAGAIN)
        return error;
    return adopt_check_way(s, err);
}

/* Ends an srun of an earlier pool that waits for a step, because the step would be a second worker
 * of its rank. */
static void end_waiting(void *context, const struct cookie *cookie, pid_t pid, int pidfd)
{
    const struct slurm *s = context;
    const struct slurm_worker *w = cookie->rank < POOL_RANKS_MAX ? &s->workers[cookie->rank] : NULL;
    bool is_known = w && w->state != SLURM_NONE && w->cookie.incarnation == cookie->incarnation;
    if (cookie->pid == pid && !is_known)
        pidfd_send_signal(pidfd, SIGKILL, NULL, 0);
}

void slurm_end_strays(struct pool_engine *engine)
{
    struct slurm *s = (struct slurm *)engine;
    processes_each(s->setup->folder->pool, end_waiting, s);
}
