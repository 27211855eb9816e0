/* Medians and confidence intervals of a few values, without an assumption on their distribution. */
#ifndef GRADPOOL_BENCH_SAVINGS_STATISTICS_H
#define GRADPOOL_BENCH_SAVINGS_STATISTICS_H

#include <stddef.h>

struct interval {
    double median, low, high;
    /* Probability that the interval holds the median; 0: fewer than two values. */
    double confidence;
};

/* Sorts `values`. Returns the narrowest symmetric pair of order statistics that holds the median
 * with at least 90 %; with too few values the whole range, and a lower `confidence`. */
struct interval statistics_interval(double *values, size_t count);
/* Sorts `values`. Returns the smallest value that at least the part `part` of them does not exceed;
 * 0 < part <= 1, count >= 1. */
double statistics_quantile(double *values, size_t count, double part);
/* For systems measured in turns: `width` values a turn, `turns` turns, the value at position
 * `at`. */
#define STATISTICS_TURNS_MAX 64
double statistics_turns_median(const void *figures, size_t width, size_t turns, size_t at);
/* Median of the ratios of each turn to the other system's turn before; 0 without one. */
double statistics_turns_ratio(const void *figures, const void *others, size_t width, size_t turns,
                              size_t at);
double statistics_mean(const double *values, size_t count);

#endif
