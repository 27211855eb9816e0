/* Window of a job: the slots of its transfers, and the inbox for short payloads (A23). */
#ifndef GRADPOOL_LANE_WORKER_WINDOW_H
#define GRADPOOL_LANE_WORKER_WINDOW_H

#include "svc/lane/types.h"

void window_init(struct lane_job *job);
/* Counts the bytes of the window when a worker that needs a window connects, so that the job cannot
 * run out of memory later. Returns 0, or the error of arena_lack(); after an error the job has
 * failed. */
int window_reserve(struct lane_job *job, const struct fabric *fabric);
/* Allocates window and inbox, for the first worker without mapped memory or for sums in several
 * passes. Returns 0 or a negative errno. -EAGAIN: the control thread is preparing the pages, and
 * wakes the job when they are ready. After any other error the job has failed, or the memory could
 * not be registered with a fabric. */
int window_open(struct lane_job *job);
void window_close(struct lane_job *job);
size_t window_bytes(const struct lane_job *job);
/* Returns the bytes of a slot for a long chunk. */
size_t window_slot_bytes(const struct lane_job *job);
size_t inbox_bytes(const struct lane_job *job);

#endif
