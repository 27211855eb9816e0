/* Measures how many GiB of gradients one core of this machine sums and returns in a second. */
#ifndef GRADPOOL_BENCH_LIB_CALIBRATE_H
#define GRADPOOL_BENCH_LIB_CALIBRATE_H

/* Runs a separate service for a few seconds: one lane, 4 workers over tcp, tasks of 4 MiB. Checks
 * each result. Returns a negative errno, with a text on standard error. */
int calibrate(double *ret_gib_per_s);

#endif
