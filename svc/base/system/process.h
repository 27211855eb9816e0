/* Identity of processes. A process number alone is ambiguous: it may be reused later, and
 * containers that share a host's network each count from 1 in their own PID namespace. */
#ifndef GRADPOOL_BASE_SYSTEM_PROCESS_H
#define GRADPOOL_BASE_SYSTEM_PROCESS_H

#include <stdint.h>

/* Returns a number that no other process of this host ever has, even after a reboot; 0: no such
 * process. */
uint64_t process_identity(uint32_t pid);
/* Returns the state of a process as `ps` shows it: R, S, D, T, t, Z; 0: no such process. */
char process_state(uint32_t pid);
/* Returns the inode of the PID namespace of this process; 0: unknown, because /proc is missing or
 * shows another namespace. */
uint64_t process_namespace(void);
/* Returns the number of process `pid` in its own namespace; 0: unknown. `pid` is its number in this
 * process's namespace. */
uint32_t process_own_number(uint32_t pid);

#endif
