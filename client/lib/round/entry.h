/* Entry of a late worker into a job with step records. The worker declares and connects first, and
 * other ranks wait for the worker only after its request to enter. README: L99. */
#ifndef GRADPOOL_CLIENT_LIB_ROUND_ENTRY_H
#define GRADPOOL_CLIENT_LIB_ROUND_ENTRY_H

struct gp_job;

/* Requests the entry into the rounds of all declared tensors, if this rank is outside of some. Does
 * not wait. If memory is missing, the next call makes the request. Called with the job's lock
 * held. */
void entry_ask(struct gp_job *job);
/* Frees the request of a job whose control thread has ended. */
void entry_free(struct gp_job *job);

#endif
