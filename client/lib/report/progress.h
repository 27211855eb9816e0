/* Counts for a worker's line in the log from time to time. Counted under the job's lock, when
 * rounds begin and when waits begin and end. README: L36. */
#ifndef GRADPOOL_CLIENT_LIB_REPORT_PROGRESS_H
#define GRADPOOL_CLIENT_LIB_REPORT_PROGRESS_H

#include <stdint.h>

struct progress_counts {
    uint64_t at_ns, rounds, bytes;
    uint64_t waited_ns; /* time in which a thread waited for a request */
};

struct progress {
    struct progress_counts now, told; /* told: in the last line; now.at_ns is not kept */
    uint32_t waiting;                 /* threads that wait */
    uint64_t waiting_since_ns;        /* when the first of them began */
};

static inline void progress_note_round(struct progress *p, uint64_t bytes)
{
    p->now.rounds++;
    p->now.bytes += bytes;
}

static inline void progress_begin_wait(struct progress *p, uint64_t now_ns)
{
    if (p->waiting++ == 0)
        p->waiting_since_ns = now_ns;
}

static inline void progress_end_wait(struct progress *p, uint64_t now_ns)
{
    if (--p->waiting == 0)
        p->now.waited_ns += now_ns - p->waiting_since_ns;
}

/* Logs a line, unless no round and no wait came since the one before. Without the job's lock; for
 * one thread. */
void progress_tell(void *job);

#endif
