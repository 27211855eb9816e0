/* Which process a number means. A number alone may mean another process later, or in another PID
 * namespace: containers that share a host's network each count from 1. */
#ifndef GRADPOOL_BASE_SYSTEM_PROCESS_H
#define GRADPOOL_BASE_SYSTEM_PROCESS_H

#include <stdint.h>

/* A number that no other process of this host ever has, also after a reboot; 0: no such process. */
uint64_t process_identity(uint32_t pid);
/* State of a process as `ps` shows it: R, S, D, T, t, Z; 0: no such process. */
char process_state(uint32_t pid);
/* The namespace in which this process has its number, by its inode; 0: not known, because /proc is
 * not there or shows another namespace. */
uint64_t process_namespace(void);
/* The number that `pid`, as this process sees it, has in its own namespace; 0: not known. */
uint32_t process_own_number(uint32_t pid);

#endif
