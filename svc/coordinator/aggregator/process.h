/* Other processes on this host. RULES.md: K7. */
#ifndef GRADPOOL_COORDINATOR_AGGREGATOR_PROCESS_H
#define GRADPOOL_COORDINATOR_AGGREGATOR_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

/* Opens a pidfd, if `pid` still is the process with that identity; else -ESRCH. -EPERM, -ENOSYS:
 * the process lives, but this host offers no pidfd. */
int process_open(uint32_t pid, uint64_t identity, int *ret_fd);
/* Whether the process has ended; false also if its state cannot be known. */
bool process_has_ended(uint32_t pid, uint64_t identity);
void process_kill(int pidfd, int signal);

#endif
