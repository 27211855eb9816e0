/* Messages of a lane to its workers, apart from results. Each function stores its message as a flag
 * of the announcement that the message answers. tell_flush() sends the stored messages. Functions
 * whose name ends in _now send at once. RULES.md: A6. */
#ifndef GRADPOOL_LANE_JOB_TELL_H
#define GRADPOOL_LANE_JOB_TELL_H

#include <stdint.h>

struct announcement;
struct lane;
struct record_measure;
struct worker;

void tell_commit(struct worker *w, struct announcement *a);
/* Sends CLOSED: the rank's memory contains the result of `round`. */
void tell_closed(struct worker *w, struct announcement *a, uint64_t round);
/* Sends GO_ON, which requests the rank's next gradient of the round. Any later message that answers
 * the announcement replaces an unsent GO_ON. */
void tell_go_on(struct worker *w, struct announcement *a);
/* Sends CHOSEN with the set of the round, then COMMIT. */
void tell_chosen(struct worker *w, struct announcement *a);
/* Sends PASSED: the rank is not in the set of `round`. A later round replaces an earlier one that
 * was not sent yet. */
void tell_passed(struct worker *w, uint64_t round);
/* Sends MEASURE. If an earlier MEASURE of the job was not sent yet, the new one replaces it. */
void tell_measure(struct worker *w, const struct record_measure *told);
/* Sends BACKED: the replica named by announcement `a` has the state after `round`. */
void tell_backed(struct worker *w, struct announcement *a, uint64_t round);
void tell_error(struct worker *w, struct announcement *a);
/* Sends an ERROR that names no request, so that the worker fails every request of the job. */
void tell_job_failure(struct worker *w);
/* Sends an ERROR that answers no announcement. Returns 0, or -EAGAIN if the send queue is full; the
 * error is not stored. */
int tell_error_now(struct worker *w, uint32_t word, int code, const char *text);
/* Sends at once the set of a round of the leading tensor. Nothing is sent if the set is unknown on
 * this lane, or if the lane or the worker has already sent the set over this connection. Returns 0,
 * -EAGAIN if the send queue is full, or -ECONNRESET. The worker must be connected. */
int tell_set_now(struct worker *w, uint64_t round);
/* Sends the waiting messages of all workers while the send queues have room. Unsent messages stay
 * pending. */
void tell_flush(struct lane *lane);

#endif
