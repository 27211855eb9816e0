/* A job's window: the slots of its transfers, and the inbox of short payloads (A23). */
#ifndef GRADPOOL_LANE_WORKER_WINDOW_H
#define GRADPOOL_LANE_WORKER_WINDOW_H

#include "svc/lane/types.h"

void window_init(struct lane_job *job);
/* Counts the window before it is needed, as soon as somebody connects who will need it: what was
 * let in has room. The error is arena_lack()'s; the job has failed with it. */
int window_reserve(struct lane_job *job, const struct fabric *fabric);
/* Made when the first worker turns up whose memory is not mapped, or when sums need passes.
 * -EAGAIN: its pages are on the way, and the job is woken when they are there. */
int window_open(struct lane_job *job);
void window_close(struct lane_job *job);
size_t window_bytes(const struct lane_job *job);
/* What a slot of a long chunk holds. */
size_t window_slot_bytes(const struct lane_job *job);
size_t inbox_bytes(const struct lane_job *job);

#endif
