/* Declares of tensors. RULES.md: K3. */
#ifndef GRADPOOL_COORDINATOR_DECLARE_DECLARATION_H
#define GRADPOOL_COORDINATOR_DECLARE_DECLARATION_H

#include "svc/coordinator/job/tensor.h"

/* Answers open declares of the job. A declare is answered if all its pieces are ready, or if one of
 * its tensors has failed. */
void declare_check_waits(struct job *job);
void declare_handle(struct peer *p, const envelope *message);

#endif
