/* How one side of fabric_shm sleeps and the other wakes it (W8). A worker has one bell for all its
 * lanes and sleeps by futex on its word; a lane's word is unused (it sleeps in epoll and is woken
 * by eventfds), and its workers can read, not write, the lane's `sleeping` (S4). */
#ifndef GRADPOOL_WIRE_SHM_BELL_H
#define GRADPOOL_WIRE_SHM_BELL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct shm_bell {
    _Atomic uint32_t word; /* counts rings; slept on */
    _Atomic uint32_t sleeping;
};

/* Sleeper: between these two it looks once more for work, or sleeps. The first has the fence. */
void shm_bell_lie_down(struct shm_bell *b);
void shm_bell_get_up(struct shm_bell *b);
uint32_t shm_bell_value(const struct shm_bell *b);

/* Waker, after publishing and shm_fence(). */
bool shm_bell_is_asleep(const struct shm_bell *b);
/* Wakes all sleepers on the word; of several wakers at one sleeper only one makes the system
 * call. */
void shm_bell_wake(struct shm_bell *b);
/* Rings whether or not anybody has lain down. */
void shm_bell_ring(struct shm_bell *b);

#endif
