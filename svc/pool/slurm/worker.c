/* States of a worker, and the events by which the engine informs the pool about them. */
#include "svc/pool/slurm/internal.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KILL_NS (30 * NS_PER_S)    /* longest time from SIGKILL to the end of the processes */
#define STEADY_NS (120 * NS_PER_S) /* a failure after this time does not count against the node */
#define EXIT_STALE 75              /* exit code of a worker whose join was refused */

void slurm_say(struct slurm *s, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(s->saying, sizeof s->saying, format, arguments);
    va_end(arguments);
}

/* Stores an event. An event that the pool has not read is replaced. */
void slurm_worker_tell(struct slurm_worker *w, enum engine_event_kind kind, const char *text)
{
    *w->event = (struct engine_event){.kind = kind, .rank = w->cookie.rank};
    snprintf(w->event->text, sizeof w->event->text, "%.*s", ENGINE_TEXT_BYTES - 1, text);
}

void slurm_worker_waits(struct slurm_worker *w, const char *text)
{
    if (!*text || strcmp(w->told, text) == 0)
        return;
    snprintf(w->told, sizeof w->told, "%s", text);
    slurm_worker_tell(w, ENGINE_WAITS, text);
}

void slurm_worker_enter(struct slurm_worker *w, enum slurm_state state)
{
    w->state = state;
    w->since_ns = clock_now_ns();
}

void slurm_worker_free(struct slurm_worker *w)
{
    for (char **variable = w->variables; variable && *variable; variable++)
        free(*variable);
    free(w->variables);
    w->variables = NULL;
    command_close(&w->client);
    w->state = SLURM_NONE;
}

void slurm_worker_refused(struct slurm_worker *w, const char *text)
{
    slurm_worker_tell(w, ENGINE_REFUSED,
                      *text ? text : "a command of Slurm has failed without a text");
    slurm_worker_free(w);
}

void slurm_worker_ended(struct slurm *s, struct slurm_worker *w, enum rank_end end, int number)
{
    uint64_t now_ns = clock_now_ns();
    bool is_well = end == END_EXIT && (number == 0 || number == EXIT_STALE);
    bool is_steady = w->has_run && now_ns > w->since_ns + STEADY_NS;
    if (is_well || is_steady || w->last_signal == 0)
        nodes_ended(s, w->node, !is_well && !is_steady, now_ns);
    slurm_worker_tell(w, ENGINE_ENDED, "");
    w->event->end = end;
    w->event->number = number;
    slurm_worker_free(w);
}

/* Gives up a worker that Slurm does not end, for example on a node that does not answer. */
bool slurm_worker_is_stuck(struct slurm *s, struct slurm_worker *w)
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
    slurm_worker_ended(s, w, END_UNKNOWN, 0);
    return true;
}
