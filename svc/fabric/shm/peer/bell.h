/* The bell on which one side of fabric_shm sleeps, and with which the other side wakes it (W8). A
 * worker has one bell for all its lanes, and sleeps by futex on its word. A lane's word is unused:
 * a lane sleeps in epoll and is woken by eventfds; its workers can read, not write, `sleeping`
 * (S4). */
#ifndef GRADPOOL_FABRIC_SHM_PEER_BELL_H
#define GRADPOOL_FABRIC_SHM_PEER_BELL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct shm_bell {
    _Atomic uint32_t word; /* counts rings; a sleeper waits on it */
    _Atomic uint32_t sleeping;
};

/* The sleeper checks once more for work between these two calls, then sleeps. The first has the
 * fence. */
void shm_bell_lie_down(struct shm_bell *b);
void shm_bell_get_up(struct shm_bell *b);
uint32_t shm_bell_value(const struct shm_bell *b);

/* For the waker, after publishing and shm_fence(). */
bool shm_bell_is_asleep(const struct shm_bell *b);
/* Wakes all sleepers on the word; of several wakers of one sleeper only one makes the system call.
 */
void shm_bell_wake(struct shm_bell *b);
/* Rings even if no sleeper has lain down. */
void shm_bell_ring(struct shm_bell *b);

#endif
