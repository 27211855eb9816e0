/* Fits the speed of jobs (F1). The caller owns studies and curves. No part of a step time is ever
 * negative. A study stores sums of products, so the cost of a point does not depend on the number
 * of jobs. */
#include "packer/elastic/curve.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#define PARTS 3
#define PRIOR_WEIGHT \
    0.002 /* weight of each assumed point in a new study; a measured pair of points has weight 1 */
#define CURVE_RATIO_LEAST 1e-3
#define CURVE_RATIO_MOST 1e3
#define RIDGE 1e-9 /* added to the diagonal, so that each system of equations has a solution */

/* --- shape --- */

static double curve_shape_at(const struct curve_shape *shape, double workers)
{
    return shape->split / workers + shape->serial + shape->wide * workers;
}

/* Adds a weighted equation for the shape: the step times at `w` and `base` workers have the ratio
 * `ratio`. The product of the row and the exact shape is 0. */
static void curve_add_row(double sums[6], double w, double base, double ratio, double weight)
{
    double row[PARTS] = {(1 / w - ratio / base) / ratio, (1 - ratio) / ratio,
                         (w - ratio * base) / ratio};
    size_t at = 0;
    for (size_t i = 0; i < PARTS; i++)
        for (size_t k = i; k < PARTS; k++)
            sums[at++] += weight * row[i] * row[k];
}

static double curve_product(const double sums[6], size_t i, size_t k)
{
    static const size_t places[PARTS][PARTS] = {{0, 1, 2}, {1, 3, 4}, {2, 4, 5}};
    return sums[places[i][k]] + (i == k ? RIDGE : 0);
}

/* Solves the equations of the parts in `active`, whose right-hand sides are all 1. Elimination
 * needs no pivots, because the matrix is positive definite. */
static void curve_solve(const double sums[6], const size_t *active, size_t count, double *ret)
{
    double m[PARTS][PARTS + 1];
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < count; k++)
            m[i][k] = curve_product(sums, active[i], active[k]);
        m[i][count] = 1;
    }
    for (size_t i = 0; i < count; i++)
        for (size_t below = i + 1; below < count; below++) {
            double factor = m[below][i] / m[i][i];
            for (size_t k = i; k <= count; k++)
                m[below][k] -= factor * m[i][k];
        }
    for (size_t i = count; i-- > 0;) {
        double rest = m[i][count];
        for (size_t k = i + 1; k < count; k++)
            rest -= m[i][k] * ret[active[k]];
        ret[active[i]] = rest / m[i][i];
    }
}

/* Computes the shape with the parts in `mask`. Returns false if a part would be negative. */
static bool curve_try(const double sums[6], unsigned mask, double ret_parts[PARTS])
{
    size_t active[PARTS], count = 0;
    double sum = 0;
    for (size_t i = 0; i < PARTS; i++)
        if (mask & (1U << i))
            active[count++] = i;
    memset(ret_parts, 0, PARTS * sizeof *ret_parts);
    curve_solve(sums, active, count, ret_parts);
    for (size_t i = 0; i < PARTS; i++)
        sum += ret_parts[i];
    for (size_t i = 0; i < PARTS; i++)
        ret_parts[i] = sum > 0 ? ret_parts[i] / sum : -1;
    return ret_parts[0] >= 0 && ret_parts[1] >= 0 && ret_parts[2] >= 0;
}

static double curve_misfit(const double sums[6], const double parts[PARTS])
{
    double misfit = 0;
    for (size_t i = 0; i < PARTS; i++)
        for (size_t k = 0; k < PARTS; k++)
            misfit += parts[i] * parts[k] * curve_product(sums, i, k);
    return misfit;
}

/* Fits every non-empty subset of the three parts, and keeps the subset with the least error. */
static void curve_fit(struct curve_study *study)
{
    double best[PARTS] = {0}, least = INFINITY;
    for (unsigned mask = 1; mask < 1U << PARTS; mask++) {
        double parts[PARTS];
        if (!curve_try(study->sums, mask, parts))
            continue;
        double misfit = curve_misfit(study->sums, parts);
        if (misfit < least) {
            least = misfit;
            memcpy(best, parts, sizeof best);
        }
    }
    if (least < INFINITY)
        study->shape = (struct curve_shape){best[0], best[1], best[2]};
}

void curve_study_init(struct curve_study *study, uint32_t id)
{
    *study = (struct curve_study){.id = id, .shape = {0.9, 0.1, 0}};
    for (double w = 2; w <= 8; w *= 2)
        curve_add_row(study->sums, w, 1, curve_shape_at(&study->shape, w), PRIOR_WEIGHT);
}

/* --- points of a job --- */

void curve_init(struct curve *curve, struct curve_study *study)
{
    *curve = (struct curve){.study = study};
}

/* Returns the ratio of two step times, limited to a range. With ratios outside this range the sums
 * would lose digits, and the removal of an equation from the sums would not be exact. */
static double curve_ratio(double step_s, double base_s)
{
    double ratio = step_s / base_s;
    if (!(ratio > CURVE_RATIO_LEAST))
        return CURVE_RATIO_LEAST;
    return ratio < CURVE_RATIO_MOST ? ratio : CURVE_RATIO_MOST;
}

/* Adds the equations of a job to its study (weight 1), or removes these equations (weight -1). Each
 * equation relates one point of the job to its first point. */
static void curve_weigh_points(struct curve *curve, double weight)
{
    for (uint32_t i = 1; i < curve->count; i++) {
        const struct curve_point *point = &curve->points[i], *base = &curve->points[0];
        curve_add_row(curve->study->sums, point->workers, base->workers,
                      curve_ratio(point->step_s, base->step_s), weight);
    }
}

static void curve_put_point(struct curve *curve, uint32_t workers, double step_s)
{
    for (uint32_t i = 0; i < curve->count; i++)
        if (curve->points[i].workers == workers) {
            curve->points[i].step_s = (curve->points[i].step_s + step_s) / 2;
            return;
        }
    if (curve->count == CURVE_POINTS)
        memmove(curve->points, curve->points + 1, --curve->count * sizeof *curve->points);
    curve->points[curve->count++] = (struct curve_point){workers, step_s};
}

/* Fits T(1) by least squares of the relative errors. */
static void curve_fit_scale(struct curve *curve)
{
    double sum = 0, squares = 0;
    for (uint32_t i = 0; i < curve->count; i++) {
        double part = curve_shape_at(&curve->study->shape, curve->points[i].workers) /
                      curve->points[i].step_s;
        sum += part;
        squares += part * part;
    }
    curve->one_s = squares > 0 ? sum / squares : 0;
}

static double curve_lane_s(const struct curve *curve, uint32_t workers)
{
    return curve->lanes ? curve->lane_s * workers / curve->lanes : 0;
}

void curve_add(struct curve *curve, uint32_t workers, double step_s)
{
    double own_s = step_s - curve_lane_s(curve, workers);
    if (!workers || !(own_s > 0) || !isfinite(own_s))
        return;
    curve_weigh_points(curve, -1);
    curve_put_point(curve, workers, own_s);
    curve_weigh_points(curve, 1);
    curve_fit(curve->study);
    curve_fit_scale(curve);
}

double curve_step_s(const struct curve *curve, uint32_t workers)
{
    if (!workers || !(curve->one_s > 0))
        return 0;
    return curve->one_s * curve_shape_at(&curve->study->shape, workers) +
           curve_lane_s(curve, workers);
}

double curve_relative(const struct curve *curve, uint32_t workers)
{
    const struct curve_shape *shape = &curve->study->shape;
    if (!workers)
        return 0;
    if (curve->one_s > 0 && curve->lanes)
        return curve_step_s(curve, 1) / curve_step_s(curve, workers);
    return curve_shape_at(shape, 1) / curve_shape_at(shape, workers);
}
