/* Medians and confidence intervals of a few values, without an assumption about their
 * distribution. */
#ifndef GRADPOOL_BENCH_SAVINGS_STATISTICS_H
#define GRADPOOL_BENCH_SAVINGS_STATISTICS_H

#include <stddef.h>

struct interval {
    double median, low, high;
    /* Probability that the interval contains the median; 0: fewer than two values. */
    double confidence;
};

/* Sorts `values`. Returns the narrowest symmetric pair of order statistics that contains the median
 * with a probability of at least 90 %. With too few values returns the whole range, and a lower
 * `confidence`. */
struct interval statistics_interval(double *values, size_t count);
/* Sorts `values`. Returns the smallest value such that at least the fraction `part` of all values
 * is not larger; 0 < part <= 1, count >= 1. */
double statistics_quantile(double *values, size_t count, double part);
/* Returns the median, over `turns` turns, of the value at position `at` in the `width` values of
 * each turn. */
#define STATISTICS_TURNS_MAX 64
double statistics_turns_median(const void *figures, size_t width, size_t turns, size_t at);
/* Returns the median over the turns of a ratio: the value of this system in a turn, divided by the
 * value of the other system in the same turn. A turn in which the other value is 0 has the ratio
 * 0. */
double statistics_turns_ratio(const void *figures, const void *others, size_t width, size_t turns,
                              size_t at);
double statistics_mean(const double *values, size_t count);

#endif
