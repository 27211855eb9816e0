/* Strikes of `faults` against connections. */
#ifndef GRADPOOL_BENCH_FAULTS_STRIKE_H
#define GRADPOOL_BENCH_FAULTS_STRIKE_H

#include <sys/types.h>

/* Ends one open connection of the process, selected by `chance`, as a network failure would.
 * -ENOENT: the process has none; -EPERM: not allowed here. */
int strike_cut(pid_t pid, unsigned chance);
#endif
