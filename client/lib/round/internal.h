/* Steps of the end of a round (round_end.c), for rounds that end without a gradient of this rank
 * (round_missed.c). All functions are called with the job's lock held. */
#ifndef GRADPOOL_CLIENT_LIB_ROUND_INTERNAL_H
#define GRADPOOL_CLIENT_LIB_ROUND_INTERNAL_H

#include "client/lib/job/job.h"

#define ROUND_GOES_ON 2 /* result of gp_round_end(), gp_round_skip(): the round is open */

/* Returns -EINVAL, with a text, if the job has no backup workers, or the error of job_check(). */
int round_end_check_job(struct gp_job *job);
/* Returns -EINVAL, with a text, if this rank lacks the results of a closed round. */
int round_end_check_missed(const struct gp_job *job);
/* Returns -EBUSY, with a text, if a request of a round of the job is open. */
int round_end_check_requests(struct gp_job *job);
/* Refuses a second thread (-EBUSY), until the caller sets `backup.is_used` to false. */
int round_end_begin_use(struct gp_job *job);

/* Announces the open round without a gradient of this rank. */
int round_end_announce_none(struct gp_job *job, uint64_t deadline_ns);
/* Reports that this rank is in the set of the round, and has given up another gradient of this
 * round. */
void round_end_leave(struct gp_job *job);
/* Ends the announced round. Returns as gp_round_end(). */
int round_end_go_on(struct gp_job *job, uint64_t deadline_ns, uint64_t timeout_ns,
                    gp_round *ret_round);

/* Requests the results of `round` for all tensors, which are in round `from`. `newest`: the last
 * round that this rank fetches. */
void round_end_take_all(struct gp_job *job, uint64_t from, uint64_t round, uint64_t newest);
/* Waits for the results of one round. After the last round a report to the leader lane says that no
 * sums are missing; the answer may name a newer round. */
int round_end_await_sums(struct gp_job *job, uint64_t deadline_ns);
/* Copies the fetched results to the result arrays of the last push. */
void round_end_copy_taken(struct gp_job *job);
/* Ends the round whose results have landed, and fills in `ret_round`, which may be NULL. */
void round_end_finish(struct gp_job *job, gp_round *ret_round);

#endif
