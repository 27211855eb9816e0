/* Slots: sites of `serve --worker-slots`, pools of workers and their jobs. The scheduler of
 * packer/elastic decides which job gets a slot; this room turns its decisions into resizes of the
 * job and orders to the pool (SL1 to SL5). */
#ifndef GRADPOOL_COORDINATOR_SLOTS_SLOTS_H
#define GRADPOOL_COORDINATOR_SLOTS_SLOTS_H

#include "svc/coordinator/job/job.h"

struct slots;

/* Checks the text of --worker-slots: "SITE=N,SITE=N". Returns 0 or -EINVAL. */
int slots_check_option(const char *text, struct err *err);

int slots_create(struct service *s);
void slots_destroy(struct service *s);
int slots_restore_job(struct service *s, const struct store_pool_job *row);
int slots_restore_worker(struct service *s, const struct store_pool_worker *row);
/* Called once all rows are restored. The workers keep their slots. A job does not change before its
 * pool has joined (SL4). */
void slots_restored(struct service *s);
/* Ends all jobs of pools, because the service stops. */
void slots_end_jobs(struct service *s, const char *why);
/* Called when the tenant's key was revoked. Ends all jobs of the tenant's pools, because these
 * pools cannot connect again. */
void slots_tenant_revoked(struct service *s, const struct tenant *tenant);
/* Returns the number of jobs of pools without a worker that has joined. */
size_t slots_count_unjoined(const struct service *s);

/* Called when the last session of the job has ended. */
void slots_job_ended(const struct job *job);

/* --- messages of pools --- */

void slots_handle_join(struct peer *p, const envelope *message);
void slots_handle_submit(struct peer *p, const envelope *message);
void slots_handle_withdraw(struct peer *p, const envelope *message);
void slots_handle_reports(struct peer *p, const envelope *message);
/* Handles the user's order that the job of a pool rests or continues. */
void slots_handle_rest(struct peer *p, const envelope *message);
/* Handles the report that a job's trial has reached a rung of its study (SL32). */
void slots_handle_standing(struct peer *p, const envelope *message);
/* Handles a worker's report that it sleeps. */
void slots_handle_resting(struct peer *p, const envelope *message);
/* Called when the peer is about to be freed. */
void slots_peer_gone(struct peer *p);

/* Returns whether the pool of the job allows the worker to join. Otherwise sends the failure: the
 * incarnation is old, or only a pool starts the workers of this job (SL2). */
bool slots_may_join(struct peer *p, uint64_t request, const WIRE(JoinRequest) * join);

/* Refuses an operator's resize with -EOPNOTSUPP if the scheduler chooses the number of workers of
 * this job: the scheduler would undo the resize (SL3). */
int slots_may_resize(const struct job *job, struct err *err);

/* Returns whether the request about jobs may be answered. A pool without slots is refused with
 * -EEXIST if another pool has the job; the failure was then sent. `request->job` is valid. */
bool slots_may_look(struct peer *p, uint64_t id, const WIRE(JobsRequest) * request);

/* --- views --- */

/* Allocates memory that is freed with the reply. Returns NULL if memory is missing. */
typedef void *(*slots_take_fn)(void *context, size_t bytes);

/* These functions add sites, and jobs of pools, to a reply. Each function returns false if memory
 * is missing. `only`: the tenant that reads; NULL: an operator. */
bool slots_view_sites(const struct service *s, slots_take_fn take, void *context,
                      WIRE(JobsReply) * reply);
/* Adds the jobs without a worker that has joined. `name`: name of the jobs to add; "": all jobs. */
bool slots_view_queued(const struct service *s, const struct tenant *only, const char *name,
                       slots_take_fn take, void *context, WIRE(JobsReply) * reply);
/* Writes a sentence about each job of this name without a worker that has joined: its place in the
 * queue of its site, and the reason for its wait. Writes "" if there is no such job. */
void slots_explain_queued(const struct service *s, const struct tenant *only, const char *name,
                          char *ret_text, size_t text_bytes);
/* Adds the ended job of this name, if no present job has the name. The reply points to `name`. */
bool slots_view_ended(const struct service *s, const struct tenant *only, const char *name,
                      slots_take_fn take, void *context, WIRE(JobsReply) * reply);
/* Sets view->pool if a pool starts the workers of the job. All memory, including that of texts, is
 * from `take`. */
bool slots_view_job(const struct job *job, slots_take_fn take, void *context, WIRE(JobView) * view);

#endif
