/* Commands of Slurm that run now: the choice of the next command, and the ends of commands. Besides
 * the srun of each worker, one command runs at a time. The pool does not wait for a command, so a
 * Slurm without an answer delays no other work of the pool. */
#include "svc/pool/slurm/internal.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#define LIST_SOON_NS (250 * NS_PER_MS) /* time until the list after a start or a failure */

/* --- commands --- */

static void turn_list_soon(struct slurm *s)
{
    uint64_t soon_ns = clock_now_ns() + LIST_SOON_NS;
    if (s->list_ns > soon_ns)
        s->list_ns = soon_ns;
}

static void turn_submitted(struct slurm *s, struct slurm_worker *w, bool is_good, const char *text)
{
    if (w->state != SLURM_SENT)
        return;
    turn_list_soon(s);
    if (is_good && command_number(&s->command, w->id, sizeof w->id))
        return slurm_worker_enter(w, SLURM_QUEUED);
    snprintf(w->told, sizeof w->told, "%s", text);
    slurm_worker_enter(w, SLURM_DOUBTED);
}

static void turn_take_command(struct slurm *s, bool is_good, const char *text)
{
    if (s->purpose == PURPOSE_LIST)
        slurm_take_list(s, is_good, text);
    else if (s->purpose == PURPOSE_SUBMIT)
        turn_submitted(s, &s->workers[s->submits], is_good, text);
    else
        turn_list_soon(s);
}

/* Handles the end of the command. A command that has run for too long is killed first. */
void slurm_check_command(struct slurm *s)
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
                 (unsigned long long)(SLURM_COMMAND_NS / NS_PER_S));
    }
    turn_take_command(s, has_ended && end == END_EXIT && number == 0, text);
    command_close(&s->command);
}

static void turn_watch(struct slurm *s, const struct slurm_command *command)
{
    struct epoll_event event = {.events = EPOLLIN};
    (void)epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, command->process.pidfd, &event);
}

static void turn_command_begun(struct slurm *s, enum slurm_purpose purpose)
{
    s->purpose = purpose;
    s->deadline_ns = clock_now_ns() + SLURM_COMMAND_NS;
    turn_watch(s, &s->command);
}

static void turn_run_command(struct slurm *s, const struct slurm_words *words,
                             enum slurm_purpose purpose)
{
    static char *const none[] = {NULL};
    const struct cookie cookie = {.pool = s->setup->folder->pool, .rank = POOL_RANKS_MAX};
    bool is_final;
    struct err err;
    int error =
        command_start(words, &cookie, s->setup->folder->job, none, &s->command, &is_final, &err);
    if (error == 0)
        return turn_command_begun(s, purpose);
    s->purpose = purpose;
    turn_take_command(s, false, err.text);
}

/* --- starts --- */

static void turn_start_worker(struct slurm *s, struct slurm_worker *w)
{
    struct slurm_command *command = s->has_steps ? &w->client : &s->command;
    bool is_final;
    struct err err;
    w->log_bytes = words_log_bytes(s, w->cookie.rank);
    if (words_start(s, w, command, &is_final, &err) < 0)
        return slurm_worker_refused(w, err.text);
    slurm_worker_enter(w, SLURM_SENT);
    turn_list_soon(s);
    if (s->has_steps)
        return turn_watch(s, command);
    s->submits = w->cookie.rank;
    turn_command_begun(s, PURPOSE_SUBMIT);
}

/* Starts the next worker. Returns false if no worker has to be started. */
static bool turn_start_next(struct slurm *s)
{
    for (uint32_t rank = 0; rank < POOL_RANKS_MAX; rank++)
        if (s->workers[rank].state == SLURM_NEW) {
            turn_start_worker(s, &s->workers[rank]);
            return true;
        }
    return false;
}

bool slurm_has_workers(const struct slurm *s)
{
    for (uint32_t rank = 0; rank < POOL_RANKS_MAX; rank++)
        if (s->workers[rank].state != SLURM_NONE)
            return true;
    return false;
}

/* Starts the next command if no command runs. Signals are sent first, because users wait for their
 * effect. */
void slurm_next_command(struct slurm *s)
{
    while (s->command.process.pidfd < 0) {
        struct slurm_words words = {0};
        if (words_signal(s, &words) != 0 || words_strays(s, &words)) {
            turn_run_command(s, &words, PURPOSE_SIGNAL);
        } else if (!slurm_has_workers(s)) {
            s->has_list = false; /* the list will be too old for the next start */
            return;
        } else if (clock_now_ns() >= s->list_ns) {
            words_list(&words, s->has_steps);
            turn_run_command(s, &words, PURPOSE_LIST);
        } else if (!s->has_list || clock_now_ns() < s->settled_ns || !turn_start_next(s)) {
            return;
        }
    }
}

/* --- ends of srun --- */

/* Reads the node of a failed task from the message of srun: "srun: error: NODE: task 0: ...". */
static void turn_read_node(struct slurm_worker *w, const char *text)
{
    static const char start[] = "srun: error: ";
    const char *at = strstr(text, start), *end = strstr(text, ": task ");
    if (!*w->node && at && end > at + sizeof start - 1)
        snprintf(w->node, sizeof w->node, "%.*s", (int)(end - at - (sizeof start - 1)),
                 at + sizeof start - 1);
}

/* Handles the end of a worker's srun. A killed srun leaves its step running, and the next list
 * shows this step. If there was no step and no output of the script, nothing was started. */
static void turn_client_ended(struct slurm *s, struct slurm_worker *w, enum rank_end end,
                              int number)
{
    char text[ENGINE_TEXT_BYTES];
    bool has_run = w->has_run || words_log_bytes(s, w->cookie.rank) > w->log_bytes;
    command_text(&w->client, text, sizeof text);
    turn_read_node(w, text);
    command_close(&w->client);
    if (end == END_EXIT && (has_run || number == 0))
        return slurm_worker_ended(s, w, end, number);
    if (end == END_EXIT && w->last_signal == 0)
        return slurm_worker_refused(w, text);
    w->has_run = true; /* a list that still shows the step lets the pool kill it */
    snprintf(w->told, sizeof w->told, "%s", text);
    slurm_worker_enter(w, SLURM_DOUBTED);
    turn_list_soon(s);
}

void slurm_check_clients(struct slurm *s)
{
    for (uint32_t rank = 0; rank < POOL_RANKS_MAX; rank++) {
        struct slurm_worker *w = &s->workers[rank];
        enum rank_end end;
        int number = 0;
        if (w->client.process.pidfd >= 0 && command_has_ended(&w->client, &end, &number))
            turn_client_ended(s, w, end, number);
    }
}
