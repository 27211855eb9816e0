/* Other processes on this host. README: K7. */
#ifndef GRADPOOL_COORDINATOR_AGGREGATOR_PROCESS_H
#define GRADPOOL_COORDINATOR_AGGREGATOR_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

/* A pidfd, if `pid` still is the process with that identity; else -ESRCH. -EPERM, -ENOSYS: the
 * process is there, and this host offers no pidfd. */
int process_open(uint32_t pid, uint64_t identity, int *ret_fd);
/* false: the process lives, or nobody can tell. */
bool process_has_ended(uint32_t pid, uint64_t identity);
void process_kill(int pidfd, int signal);

#endif
