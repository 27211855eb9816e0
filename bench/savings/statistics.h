/* Medians and intervals of a few figures, without assumptions on how they are distributed. */
#ifndef GRADPOOL_BENCH_SAVINGS_STATISTICS_H
#define GRADPOOL_BENCH_SAVINGS_STATISTICS_H

#include <stddef.h>

struct interval {
    double median, low, high;
    double confidence; /* that the median lies in it; 0: fewer than two figures */
};

/* Sorts `values`. The narrowest pair of order statistics that is symmetric and holds the median
 * with 90 % at least; all of them where there are too few for that, and `confidence` says so. */
struct interval statistics_interval(double *values, size_t count);
/* Sorts `values`. The smallest that `part` of them do not exceed; 0 < part <= 1, count >= 1. */
double statistics_quantile(double *values, size_t count, double part);
/* Systems that take turns: `width` figures a turn, `turns` of them, of which one is at `at`. */
#define STATISTICS_TURNS_MAX 64
double statistics_turns_median(const void *figures, size_t width, size_t turns, size_t at);
/* Each turn beside the other system's that it followed; 0 beside nothing. */
double statistics_turns_ratio(const void *figures, const void *others, size_t width, size_t turns,
                              size_t at);
double statistics_mean(const double *values, size_t count);

#endif
