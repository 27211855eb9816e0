/* Reasons for placements, as texts. */
#ifndef GRADPOOL_COORDINATOR_PLACEMENT_REASON_H
#define GRADPOOL_COORDINATOR_PLACEMENT_REASON_H

#include "svc/coordinator/placement/ask_packer.h"

/* Returns why a lane was chosen, as text after "lane 3: ". */
const char *share_why(enum share_how how);
/* Logs the lanes of `count` tensors or tasks, and the reason. The log line continues after the
 * count with `one` if the count is 1, and otherwise with `many`: "3 tensors go to lane 2". Only the
 * first placement of a job is logged at level info, because some scripts declare one tensor after
 * another. */
void deciding_log(const struct job *job, const char *one, const char *many, size_t count,
                  bool is_first, const struct answer *answer);

#endif
