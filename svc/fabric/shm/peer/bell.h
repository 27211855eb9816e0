/* Bell: one side of fabric_shm sleeps on a bell, and the other side rings the bell to wake it (W8).
 * A worker has one bell for all its lanes, and sleeps on the bell's word (a futex). A lane sleeps
 * in epoll and is woken by eventfds; its bell's word is unused. Workers can read `sleeping` of a
 * lane's bell, but cannot write it (S4). */
#ifndef GRADPOOL_FABRIC_SHM_PEER_BELL_H
#define GRADPOOL_FABRIC_SHM_PEER_BELL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct shm_bell {
    _Atomic uint32_t word; /* number of rings; a worker sleeps until this value changes */
    _Atomic uint32_t sleeping;
};

/* shm_bell_lie_down() announces the sleep, with a fence. The caller then checks once more for work
 * before it sleeps. shm_bell_get_up() ends the announcement. */
void shm_bell_lie_down(struct shm_bell *b);
void shm_bell_get_up(struct shm_bell *b);
uint32_t shm_bell_value(const struct shm_bell *b);

/* Returns whether the other side sleeps. Called after publishing work and shm_fence(). */
bool shm_bell_is_asleep(const struct shm_bell *b);
/* Wakes all threads that sleep on the word. If several threads call this for one sleeper, only one
 * makes the system call. */
void shm_bell_wake(struct shm_bell *b);
/* Rings the bell even if no thread sleeps. */
void shm_bell_ring(struct shm_bell *b);

#endif
