/* Why a lane was chosen, in words. */
#ifndef GRADPOOL_COORDINATOR_PLACEMENT_REASON_H
#define GRADPOOL_COORDINATOR_PLACEMENT_REASON_H

#include "svc/coordinator/placement/ask_packer.h"

/* Why a lane was chosen, in words that follow "lane 3: ". */
const char *share_why(enum share_how how);
/* Logs where `count` things of the job go, and why: subject and verb are `one` or `many`. What is
 * not the first of a job is for debugging only: some declare tensor by tensor. */
void deciding_log(const struct job *job, const char *one, const char *many, size_t count,
                  bool is_first, const struct answer *answer);

#endif
