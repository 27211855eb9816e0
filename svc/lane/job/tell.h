/* What a lane owes its workers besides results. README: A6. */
#ifndef GRADPOOL_LANE_JOB_TELL_H
#define GRADPOOL_LANE_JOB_TELL_H

#include <stdint.h>

struct announcement;
struct lane;
struct worker;

void tell_commit(struct worker *w, struct announcement *a);
/* It got the result of `round`. */
void tell_closed(struct worker *w, struct announcement *a, uint64_t round);
/* COMMIT, and before it the set that the round has decided. */
void tell_chosen(struct worker *w, struct announcement *a);
void tell_backed(struct worker *w, struct announcement *a, uint64_t round);
void tell_error(struct worker *w, struct announcement *a);
/* Every request of the job has failed. */
void tell_job_failure(struct worker *w);
/* Where no announcement stands behind it. -EAGAIN: no room, nothing is owed. */
int tell_error_now(struct worker *w, uint32_t word, int code, const char *text);
/* Sends what is owed to everybody, as far as connections take it. */
void tell_flush(struct lane *lane);

#endif
