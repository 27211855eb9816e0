/* The bell on which one side of fabric_shm sleeps, and with which the other side wakes it (W8). A
 * worker has one bell for all its lanes, and sleeps by futex on the bell's word. A lane sleeps in
 * epoll instead, and is woken through eventfds; the word of its bell is unused. Workers can read
 * `sleeping` of a lane's bell, but not write it (S4). */
#ifndef GRADPOOL_FABRIC_SHM_PEER_BELL_H
#define GRADPOOL_FABRIC_SHM_PEER_BELL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct shm_bell {
    _Atomic uint32_t word; /* counts rings; a sleeping worker waits for a change */
    _Atomic uint32_t sleeping;
};

/* The sleeper calls the first function, checks once more for work, and then sleeps. The first
 * function contains the fence. */
void shm_bell_lie_down(struct shm_bell *b);
void shm_bell_get_up(struct shm_bell *b);
uint32_t shm_bell_value(const struct shm_bell *b);

/* For the waking side, after publishing and shm_fence(). */
bool shm_bell_is_asleep(const struct shm_bell *b);
/* Wakes all who sleep on the word. If several threads wake one sleeper, only one makes the system
 * call. */
void shm_bell_wake(struct shm_bell *b);
/* Rings even if nobody is asleep. */
void shm_bell_ring(struct shm_bell *b);

#endif
