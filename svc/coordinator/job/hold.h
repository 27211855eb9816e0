/* Hold: after an operator has moved tasks of a job, growth and experiments do not move the job for
 * some time (RULES.md: K105). */
#ifndef GRADPOOL_COORDINATOR_JOB_HOLD_H
#define GRADPOOL_COORDINATOR_JOB_HOLD_H

#include <stddef.h>
#include <stdint.h>

struct job;
struct lane;

#define ORDER_HOLD_TEXT_BYTES 128

/* Begins a hold of length --order-hold for `job`, and for each job with pieces on `lane`. The holds
 * are stored; an error of the store is only logged. */
void order_hold_begin(struct job *job, const struct lane *lane);
/* Returns the time until the job's hold ends; 0: the job has no hold. */
uint64_t order_hold_ns(const struct job *job);
/* Writes the remaining time as a sentence for `gradpool explain`; "": no hold. Returns `text`. */
const char *order_hold_text(const struct job *job, char *text, size_t text_bytes);

#endif
