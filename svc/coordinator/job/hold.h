/* How long an operator's move holds against growth and slow lanes. README: K105. */
#ifndef GRADPOOL_COORDINATOR_JOB_HOLD_H
#define GRADPOOL_COORDINATOR_JOB_HOLD_H

#include <stddef.h>
#include <stdint.h>

struct job;
struct lane;

#define ORDER_HOLD_TEXT_BYTES 128

/* From now, for --order-hold: the job, and each job that has tasks on the lane already, stay. */
void order_hold_begin(struct job *job, const struct lane *lane);
/* Time left; 0: growth may move tasks of the job. */
uint64_t order_hold_ns(const struct job *job);
/* The same as a sentence for `gradpool explain`; "": nothing holds. Returns `text`. */
const char *order_hold_text(const struct job *job, char *text, size_t text_bytes);

#endif
