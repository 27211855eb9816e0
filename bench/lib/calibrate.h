/* How many GiB of pushed gradients a second one core of this machine sums and hands out. */
#ifndef GRADPOOL_BENCH_LIB_CALIBRATE_H
#define GRADPOOL_BENCH_LIB_CALIBRATE_H

/* Runs a service of its own, one lane, 4 workers over tcp, tasks of 4 MiB, each result checked. A
 * few seconds. Negative errno, with a text on standard error. */
int calibrate(double *ret_gib_per_s);

#endif
