/* Strikes of `faults` against connections. */
#ifndef GRADPOOL_BENCH_FAULTS_STRIKE_H
#define GRADPOOL_BENCH_FAULTS_STRIKE_H

#include <sys/types.h>

/* Ends one of the process's open connections, selected by `chance`, as a network does. -ENOENT: the
 * process has none; -EPERM: not allowed here. */
int strike_cut(pid_t pid, unsigned chance);
#endif
