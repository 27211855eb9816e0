/* Bells: a futex word and a flag in shared memory. This file wakes threads, and never sleeps
 * itself. */
#include "svc/fabric/shm/peer/bell.h"

#include "svc/fabric/shm/peer/ring.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

void shm_bell_lie_down(struct shm_bell *b)
{
    atomic_store_explicit(&b->sleeping, 1, memory_order_relaxed);
    shm_fence();
}

void shm_bell_get_up(struct shm_bell *b)
{
    atomic_store_explicit(&b->sleeping, 0, memory_order_relaxed);
}

uint32_t shm_bell_value(const struct shm_bell *b)
{
    return atomic_load_explicit(&b->word, memory_order_acquire);
}

bool shm_bell_is_asleep(const struct shm_bell *b)
{
    return atomic_load_explicit(&b->sleeping, memory_order_relaxed) != 0;
}

void shm_bell_wake(struct shm_bell *b)
{
    /* Only the thread that clears the flag rings the bell. Other threads need not ring the bell,
     * because a thread that wakes up reads all its record rings, executes a fence, and reads these
     * rings again before its next sleep. */
    if (shm_bell_is_asleep(b) &&
        atomic_exchange_explicit(&b->sleeping, 0, memory_order_relaxed) != 0)
        shm_bell_ring(b);
}

void shm_bell_ring(struct shm_bell *b)
{
    atomic_fetch_add_explicit(&b->word, 1, memory_order_release);
    syscall(SYS_futex, &b->word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}
