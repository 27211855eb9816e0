/* The window of a job: the slots of its transfers, and the inbox for short payloads (A23). */
#ifndef GRADPOOL_LANE_WORKER_WINDOW_H
#define GRADPOOL_LANE_WORKER_WINDOW_H

#include "svc/lane/types.h"

void window_init(struct lane_job *job);
/* Counts the bytes of the window when a worker connects that will need one, so that an admitted
 * worker has room. Returns the error of arena_lack(), with which the job has failed. */
int window_reserve(struct lane_job *job, const struct fabric *fabric);
/* Allocates window and inbox, for the first worker without mapped memory or for sums in several
 * passes. -EAGAIN: the control thread is preparing the pages, and wakes the job when they are
 * ready. Other errors: the job has failed, or registration with a fabric has. */
int window_open(struct lane_job *job);
void window_close(struct lane_job *job);
size_t window_bytes(const struct lane_job *job);
/* Returns the bytes of a slot for a long chunk. */
size_t window_slot_bytes(const struct lane_job *job);
size_t inbox_bytes(const struct lane_job *job);

#endif
