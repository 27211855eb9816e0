/* Chunks on their way through a lane, for the files of this folder only: transfer.c moves them,
 * pass.c knows where their bytes lie, window.c owns the slots. */
#ifndef GRADPOOL_AGGREGATOR_TRANSFER_H
#define GRADPOOL_AGGREGATOR_TRANSFER_H

#include "svc/aggregator/parameters.h"

/* transfer.c */
/* What a long chunk takes of a lane's turn; a short one takes its part of that, a small one 1. */
#define TRANSFER_SHARE 16
/* Does one chunk's worth of work for the job, and returns its share; 0: nothing can be done now. */
uint32_t transfer_turn(struct lane_job *job);
/* A read or a write of it, by this worker, is over. */
void transfer_progress(struct transfer *t, const struct worker *w, int error);
bool transfer_is_active(const struct lane_job *job);
/* A chunk not yet summed needs this rank's memory, or one cannot be finished any more. */
bool transfer_needs(const struct lane_job *job, uint32_t rank);
/* A chunk of the piece waits for somebody who is lost. */
bool transfer_is_stuck(const struct piece *p);
/* Its job fails unless the post may be tried again (-EAGAIN), or somebody will say what becomes of
 * a job that has lost the rank (A40). Returns `code`. */
int transfer_fail(struct transfer *t, uint32_t place, int code);
/* The piece's round is given up: it comes to rest when nothing of it is posted any more. */
void transfer_give_up(struct piece *p);
/* Whose inputs there may be: the members, and behind them a keeper. */
static inline uint32_t transfer_places(const struct piece *p)
{
    return p->members + (p->parameters && p->parameters->fetched > 0);
}
static inline bool transfer_gives(const struct transfer *t, uint32_t place)
{
    return t->piece->ranks[place].is_source &&
           (t->source == OPERATION_EVERYBODY || t->source == place);
}
static inline bool transfer_takes(const struct transfer *t, uint32_t place)
{
    return t->piece->ranks[place].is_target &&
           (t->target == OPERATION_EVERYBODY || t->target == place) &&
           (t->array == 0 || t->piece->operation->saves);
}

/* pass.c */
/* Posts the reads of a pass, of the first so many places only. Where all inputs are at hand it is
 * over at once. */
int pass_read(struct transfer *t, uint32_t places);
bool pass_is_last(const struct transfer *t);
/* More inputs than one pass takes: keeps the partial result. */
int pass_sum_partial(struct transfer *t);
/* One store to each target that is mapped, and to the result slot for the rest. */
int pass_sum(struct transfer *t);
const void *pass_result(const struct transfer *t);
uint64_t pass_output_offset(const struct transfer *t, uint32_t place);
/* NULL: not mapped. */
void *pass_map_output(const struct transfer *t, uint32_t place);

/* window.c */
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

#endif
