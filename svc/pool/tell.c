/* Texts for the user of a pool. */
#include "svc/pool/internal.h"

#include <stdarg.h>
#include <stdio.h>

void pool_say(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("gradpool run: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    fflush(stderr);
}

static void tell_pause(uint32_t rank, const char *how, uint32_t pause_s, const char *log)
{
    if (pause_s > 0)
        pool_say("rank %u: %s; a new process starts in %u s; its output: %s", rank, how, pause_s,
                 log);
}

void pool_tell_verdict(const struct worker_pool *pool, uint32_t rank, const char *how,
                       enum rank_verdict verdict, uint32_t pause_s)
{
    char log[PATH_MAX];
    uint32_t failures = pool->ranks.ranks[rank].failures;
    folder_log_path(pool->folder, rank, log);
    switch (verdict) {
    case VERDICT_AGAIN: tell_pause(rank, how, pause_s, log); break;
    case VERDICT_ALONE:
        pool_say("rank %u: %s; the rank has failed %u times without a step, and the others train "
                 "on; see %s, then resize the job to start the rank again",
                 rank, how, failures, log);
        break;
    case VERDICT_ALL:
        pool_say("rank %u: %s; the rank has failed %u times without a step, and all workers are "
                 "ended; see %s",
                 rank, how, failures, log);
        break;
    case VERDICT_AFTER:
        pool_say("rank %u: %s after the end of the training; see %s", rank, how, log);
        break;
    case VERDICT_DROPPED:
        pool_say("rank %u had not trained at the end of the training, and was ended; start fewer "
                 "workers, or train for longer",
                 rank);
        break;
    case VERDICT_UNKNOWN:
        pool_say("rank %u was started by an earlier gradpool run and has ended; the service does "
                 "not know whether it has trained; see %s",
                 rank, log);
        break;
    case VERDICT_ORDERS: pool_say("rank %u: %s; its output: %s", rank, how, log); break;
    case VERDICT_AS_ASKED:
    case VERDICT_TRAINED:
    case VERDICT_LATER: break;
    }
}
