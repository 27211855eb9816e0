/* A lane that is slow without using its core, for tests and benches (A35). */
#ifndef GRADPOOL_LANE_TURN_SLOWING_H
#define GRADPOOL_LANE_TURN_SLOWING_H

#include <stddef.h>
#include <stdint.h>

/* One lane's; what it points to may change at any time. */
struct slowing {
    const uint32_t *ns_per_kib; /* that are summed. NULL: never slow */
    const uint32_t *task;       /* one task's number, and the ns of each of its chunks; or NULL */
    int64_t debt_ns;
};

/* A number for each lane, and then, maybe, a task's two, in the file that GRADPOOL_TEST_SLOW
 * names. `numbers` is NULL where it is not set, or cannot be (logged). */
struct slowing_file {
    const uint32_t *numbers;
    size_t lanes, count;
};

void slowing_open(size_t lanes, struct slowing_file *ret_file);
void slowing_close(struct slowing_file *file);
struct slowing slowing_of(const struct slowing_file *file, size_t lane);
/* So much has been done. */
void slowing_owe(struct slowing *s, uint64_t bytes);
/* A chunk of this task is begun. */
static inline void slowing_owe_task(struct slowing *s, uint32_t task)
{
    if (s->task && __atomic_load_n(&s->task[0], __ATOMIC_RELAXED) == task)
        s->debt_ns += __atomic_load_n(&s->task[1], __ATOMIC_RELAXED);
}
/* Sleeps for it, before the next is begun. */
void slowing_pay(struct slowing *s);

#endif
