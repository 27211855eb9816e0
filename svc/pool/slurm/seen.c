/* Changes of workers that a list of squeue shows. Only such a list shows the true state of jobs and
 * steps. */
#include "svc/pool/slurm/internal.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIST_NS (2 * NS_PER_S)    /* between two lists */
#define STRAYS_NS (10 * NS_PER_S) /* pause between two orders to end unknown jobs */
#define SETTLE_NS (10 * NS_PER_S) /* time until a restarted Slurm knows its nodes again */
#define SENT_NS (5 * NS_PER_S)    /* time from srun to its step, if the allocation has room */

static void seen_pending(struct slurm *s, struct slurm_worker *w, const struct slurm_entry *entry)
{
    char text[ENGINE_TEXT_BYTES];
    if (w->state != SLURM_QUEUED)
        slurm_worker_enter(w, SLURM_QUEUED);
    if (strcmp(entry->reason, "None") == 0) /* Slurm has not examined the job yet */
        return;
    snprintf(text, sizeof text, "job %s of Slurm waits in the queue: %s", w->id,
             *entry->reason ? entry->reason : entry->state);
    slurm_worker_waits(w, text);
}

static void seen_running(struct slurm_worker *w)
{
    if (w->state == SLURM_RUNS || (w->state == SLURM_DOUBTED && w->has_run))
        return;
    w->has_run = true;
    slurm_worker_enter(w, SLURM_RUNS);
    slurm_worker_tell(w, ENGINE_RUNS, "");
}

/* Handles a worker that a list shows. SIGKILL is repeated, because a signal may be lost while Slurm
 * does not answer. */
static void seen_worker(struct slurm *s, struct slurm_worker *w, const struct slurm_entry *entry)
{
    snprintf(w->id, sizeof w->id, "%s", entry->id);
    snprintf(w->node, sizeof w->node, "%s", entry->node);
    if (entry->phase == SLURM_OVER)
        return slurm_worker_ended(s, w, entry->end, entry->number);
    if (entry->phase == SLURM_ENDING && w->killed_ns == 0)
        w->killed_ns = clock_now_ns();
    if (entry->phase == SLURM_PENDING)
        seen_pending(s, w, entry);
    else
        seen_running(w);
    if (slurm_worker_is_stuck(s, w))
        return;
    bool is_left = w->state == SLURM_DOUBTED && w->has_run; /* its srun has ended */
    if (w->last_signal == SIGKILL || is_left)
        w->signal = w->last_signal = SIGKILL;
    if (is_left && w->killed_ns == 0)
        w->killed_ns = clock_now_ns();
}

/* Handles a worker that a list does not show. The list was requested after the worker's last
 * change. */
static void seen_no_worker(struct slurm *s, struct slurm_worker *w)
{
    bool has_client = w->client.process.pidfd >= 0;
    if (w->state == SLURM_DOUBTED && !w->has_run && w->last_signal == 0)
        return slurm_worker_refused(w, w->told);
    if (w->state == SLURM_DOUBTED || (w->state >= SLURM_QUEUED && !has_client))
        return slurm_worker_ended(s, w, END_UNKNOWN, 0);
    /* srun ends soon, or has lost its connection to Slurm */
    if (w->state == SLURM_RUNS && w->killed_ns == 0)
        w->killed_ns = clock_now_ns();
    if (w->state == SLURM_RUNS)
        (void)slurm_worker_is_stuck(s, w);
}

static struct slurm_worker *seen_find_worker(struct slurm *s, const struct slurm_entry *entry)
{
    struct slurm_worker *w = &s->workers[entry->cookie.rank];
    bool is_same = w->state >= SLURM_SENT && w->cookie.incarnation == entry->cookie.incarnation &&
                   (!*w->id || strcmp(w->id, entry->id) == 0);
    return is_same ? w : NULL;
}

static void seen_add_stray(struct slurm *s, const struct slurm_entry *entry)
{
    struct slurm_entry *more = realloc(s->strays, (s->strays_count + 1) * sizeof *more);
    if (!more)
        return; /* the next list shows the job again */
    s->strays = more;
    s->strays[s->strays_count++] = *entry;
}

/* Handles a line of the list. A job that belongs to no worker is ended, because a rank has one
 * process. */
static void seen_take_entry(struct slurm *s, const struct slurm_entry *entry)
{
    struct slurm_worker *w = seen_find_worker(s, entry);
    bool is_alive = entry->phase == SLURM_PENDING || entry->phase == SLURM_RUNNING;
    if (!w && is_alive && clock_now_ns() >= s->strays_ns + STRAYS_NS)
        return seen_add_stray(s, entry);
    if (!w)
        return;
    w->was_seen = true;
    seen_worker(s, w, entry);
}

/* Reports why srun has no step yet. Slurm itself gives a reason only after a minute. */
static void seen_no_step(struct slurm_worker *w)
{
    char text[ENGINE_TEXT_BYTES] = "";
    if (w->client.process.pidfd < 0)
        return;
    command_text(&w->client, text, sizeof text);
    if (!*text && clock_now_ns() > w->since_ns + SENT_NS)
        snprintf(text, sizeof text, "srun waits for free CPUs or devices of the allocation");
    slurm_worker_waits(w, text);
}

static void seen_take_workers(struct slurm *s)
{
    for (uint32_t rank = 0; rank < POOL_RANKS_MAX; rank++)
        s->workers[rank].was_seen = false;
    s->strays_count = 0;
    slurm_each_entry(s, s->has_steps, seen_take_entry);
    if (s->strays_count > 0)
        s->strays_ns = clock_now_ns();
    for (uint32_t rank = 0; rank < POOL_RANKS_MAX; rank++) {
        struct slurm_worker *w = &s->workers[rank];
        if (w->state < SLURM_SENT || w->was_seen || s->deadline_ns - SLURM_COMMAND_NS < w->since_ns)
            continue;
        if (w->state == SLURM_SENT)
            seen_no_step(w);
        else
            seen_no_worker(s, w);
    }
}

static void seen_nothing(struct slurm *s, const char *text)
{
    bool is_new = !*s->trouble;
    snprintf(s->trouble, sizeof s->trouble, "Slurm does not answer: %.*s", ENGINE_TEXT_BYTES - 64,
             text);
    for (uint32_t rank = 0; rank < POOL_RANKS_MAX; rank++) {
        struct slurm_worker *w = &s->workers[rank];
        if (w->state == SLURM_NEW)
            slurm_worker_waits(w, s->trouble);
        else if (w->state != SLURM_NONE)
            (void)slurm_worker_is_stuck(s, w);
    }
    if (is_new)
        slurm_say(s, "%s; workers train on, and none is started or ended until it answers",
                  s->trouble);
    s->has_list = false;
}

void slurm_take_list(struct slurm *s, bool is_good, const char *text)
{
    s->list_ns = clock_now_ns() + LIST_NS;
    if (!is_good)
        return seen_nothing(s, text);
    if (*s->trouble) {
        slurm_say(s, "Slurm answers again");
        s->settled_ns = clock_now_ns() + (s->has_steps ? SETTLE_NS : 0);
    }
    *s->trouble = '\0';
    s->has_list = true;
    seen_take_workers(s);
}
