/* What `faults` does to processes. */
#ifndef GRADPOOL_BENCH_FAULTS_STRIKE_H
#define GRADPOOL_BENCH_FAULTS_STRIKE_H

#include <sys/types.h>

/* Ends one of the process's connections that are open, as a network does: which one, `chance` says.
 * -ENOENT: it has none; -EPERM: not allowed here. */
int strike_cut(pid_t pid, unsigned chance);
#endif
