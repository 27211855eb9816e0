/* Order statistics. The ends of intervals are measured values, so no mean hides an outlier. */
#include "bench/savings/statistics.h"

#include <assert.h>
#include <stdlib.h>

#define CONFIDENCE 0.9

static int compare(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static void sort(double *values, size_t count)
{
    if (count > 0)
        qsort(values, count, sizeof *values, compare);
}

/* Returns the probability that the median is between the k-th smallest and the k-th largest of n
 * values: 1 - 2 * P(Binomial(n, 1/2) < k). */
static double coverage(size_t count, size_t k)
{
    double term = 1, below = 0;
    for (size_t i = 0; i < count; i++)
        term /= 2;
    for (size_t i = 0; i < k; i++) {
        below += term;
        term *= (double)(count - i) / (double)(i + 1);
    }
    return 1 - 2 * below;
}

static double middle(const double *sorted, size_t count)
{
    return (sorted[(count - 1) / 2] + sorted[count / 2]) / 2;
}

struct interval statistics_interval(double *values, size_t count)
{
    size_t k = 1;
    if (count == 0)
        return (struct interval){0};
    sort(values, count);
    while (2 * (k + 1) <= count && coverage(count, k + 1) >= CONFIDENCE)
        k++;
    return (struct interval){.median = middle(values, count),
                             .low = values[k - 1],
                             .high = values[count - k],
                             .confidence = count > 1 ? coverage(count, k) : 0};
}

double statistics_quantile(double *values, size_t count, double part)
{
    assert(count > 0 && part > 0 && part <= 1);
    sort(values, count);
    size_t rank = (size_t)(part * (double)count);
    if ((double)rank < part * (double)count)
        rank++;
    return values[rank > 0 ? rank - 1 : 0];
}

double statistics_turns_median(const void *figures, size_t width, size_t turns, size_t at)
{
    double values[STATISTICS_TURNS_MAX];
    assert(turns <= STATISTICS_TURNS_MAX && at < width);
    for (size_t i = 0; i < turns; i++)
        values[i] = ((const double *)figures)[i * width + at];
    return statistics_interval(values, turns).median;
}

double statistics_turns_ratio(const void *figures, const void *others, size_t width, size_t turns,
                              size_t at)
{
    double values[STATISTICS_TURNS_MAX];
    assert(turns <= STATISTICS_TURNS_MAX && at < width);
    for (size_t i = 0; i < turns; i++) {
        double other = ((const double *)others)[i * width + at];
        values[i] = other > 0 ? ((const double *)figures)[i * width + at] / other : 0;
    }
    return statistics_interval(values, turns).median;
}

double statistics_mean(const double *values, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += values[i];
    return count ? sum / (double)count : 0;
}
