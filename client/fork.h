/* What happens to a job when the process forks: the child closes what it inherited and can do
 * nothing with it; the parent notices nothing (L8). */
#ifndef GRADPOOL_CLIENT_FORK_H
#define GRADPOOL_CLIENT_FORK_H

#include <stdbool.h>

struct gp_job;

/* Changes in every forked child; an object made under another value is its parent's. */
unsigned fork_generation(void);
static inline bool fork_is_foreign(unsigned generation) { return generation != fork_generation(); }

/* From now on forks are watched for this job. -ENOMEM. */
int fork_watch(struct gp_job *job);
void fork_forget(struct gp_job *job);

#endif
