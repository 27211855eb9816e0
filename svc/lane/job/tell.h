/* Messages of a lane to its workers besides results. Each function marks the announcement, and
 * tell_flush() sends the messages; those that end in _now send at once. RULES.md: A6. */
#ifndef GRADPOOL_LANE_JOB_TELL_H
#define GRADPOOL_LANE_JOB_TELL_H

#include <stdint.h>

struct announcement;
struct lane;
struct worker;

void tell_commit(struct worker *w, struct announcement *a);
/* Sends CLOSED: the result that the rank has received is that of `round`. */
void tell_closed(struct worker *w, struct announcement *a, uint64_t round);
/* Sends COMMIT, and before it the set that the round has decided. */
void tell_chosen(struct worker *w, struct announcement *a);
/* Sends PASSED: the rank is not in the set of `round`. A later round replaces an earlier one that
 * was not sent yet. */
void tell_passed(struct worker *w, uint64_t round);
/* Sends BACKED: the replica named by announcement `a` has the state after `round`. */
void tell_backed(struct worker *w, struct announcement *a, uint64_t round);
void tell_error(struct worker *w, struct announcement *a);
/* Sends ERROR without a word: every request of the job has failed. */
void tell_job_failure(struct worker *w);
/* Sends at once an ERROR that belongs to no announcement. -EAGAIN: the send queue is full, and the
 * error is not stored. */
int tell_error_now(struct worker *w, uint32_t word, int code, const char *text);
/* Sends at once the set of a round of the leading tensor, unless it is unknown here, or went over
 * this connection before, in either direction. -EAGAIN: the send queue is full; -ECONNRESET. The
 * worker is connected. */
int tell_set_now(struct worker *w, uint64_t round);
/* Sends the messages of all workers, as many as the send queues take. The others stay marked. */
void tell_flush(struct lane *lane);

#endif
