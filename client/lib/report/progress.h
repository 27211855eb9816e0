/* Counters for the periodic log line of a worker. Updated under the job's lock, when rounds begin
 * and when waits begin and end. README: L36. */
#ifndef GRADPOOL_CLIENT_LIB_REPORT_PROGRESS_H
#define GRADPOOL_CLIENT_LIB_REPORT_PROGRESS_H

#include <stdint.h>

struct progress_counts {
    uint64_t at_ns, rounds, bytes;
    uint64_t waited_ns; /* time during which at least one thread waited */
};

struct progress {
    /* told: values at the last log line, except at_ns, which is the time of that line; now.at_ns is
     * unused */
    struct progress_counts now, told;
    uint32_t waiting;          /* number of threads that wait */
    uint64_t waiting_since_ns; /* start of the oldest of these waits */
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

/* Logs a line, unless no round and no wait has occurred since the previous line. Called by one
 * thread, without the job's lock. */
void progress_tell(void *job);

#endif
