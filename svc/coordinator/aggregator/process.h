/* Processes on this host, by number and identity (RULES.md: K7). */
#ifndef GRADPOOL_COORDINATOR_AGGREGATOR_PROCESS_H
#define GRADPOOL_COORDINATOR_AGGREGATOR_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

/* Opens a pidfd if process `pid` still has this identity. Returns 0, or -ESRCH if the process has
 * ended. -EPERM or -ENOSYS: the process is alive, but this host does not allow pidfds. */
int process_open(uint32_t pid, uint64_t identity, int *ret_fd);
/* Returns whether the process has ended; false if its state cannot be read. */
bool process_has_ended(uint32_t pid, uint64_t identity);
void process_kill(int pidfd, int signal);

#endif
