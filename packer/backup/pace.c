/* Computes the mean time of each rank's gradients, and the distribution of their durations. Must
 * never call the math library in pace_survival(), which runs for each absent rank and each time of
 * a search. README.md: BK5, BK6. */
#include "packer/backup/pace.h"

#include <string.h>

/* edges[i] is 2^(i/12), the lower edge of bin i of the bins from ratio 1 to ratio 2 */
static const double edges[PACE_OCTAVE + 1] = {
    1.0,
    1.0594630943592953,
    1.122462048309373,
    1.189207115002721,
    1.2599210498948732,
    1.3348398541700344,
    1.4142135623730951,
    1.4983070768766815,
    1.5874010519681994,
    1.681792830507429,
    1.7817974362806785,
    1.8877486253633868,
    2.0,
};
/* Bin in which each 32nd part of the range 1 to 2 begins. */
static const uint8_t first_bins[32] = {0, 0, 1, 1, 2, 2, 2, 3, 3, 4, 4,  5,  5,  5,  6,  6,
                                       7, 7, 7, 8, 8, 8, 9, 9, 9, 9, 10, 10, 10, 11, 11, 11};

/* Returns the position of a ratio among the bins, 0 to PACE_BINS; linear within a bin. */
static double pace_position(double ratio)
{
    uint64_t bits, one = UINT64_C(1023) << 52;
    memcpy(&bits, &ratio, sizeof bits);
    int octave = (int)(bits >> 52) - 1023;
    if (!(ratio > 0) || octave < -PACE_ONE / PACE_OCTAVE)
        return 0;
    if (octave >= (PACE_BINS - PACE_ONE) / PACE_OCTAVE)
        return PACE_BINS;
    uint64_t mantissa = bits & ((UINT64_C(1) << 52) - 1), scaled = mantissa | one;
    double part;
    memcpy(&part, &scaled, sizeof part);
    int bin = first_bins[mantissa >> 47];
    while (part >= edges[bin + 1])
        bin++;
    return PACE_ONE + octave * PACE_OCTAVE + bin +
           (part - edges[bin]) / (edges[bin + 1] - edges[bin]);
}

void pace_curve_init(struct pace_curve *curve, uint32_t workers)
{
    *curve = (struct pace_curve){.keep = 1 - 1 / ((double)PACE_MEMORY_ROUNDS * workers),
                                 .is_stale = true};
}

double pace_scale_ns(const struct pace_rank *rank)
{
    return rank->gradients > 0 ? rank->time_ns / rank->gradients : 0;
}

static void pace_observe(struct pace_curve *curve, const struct pace_rank *rank, double ns,
                         bool is_end)
{
    double scale_ns = pace_scale_ns(rank);
    if (scale_ns <= 0)
        return;
    int last = (int)pace_position(ns / scale_ns);
    last = last < PACE_BINS ? last : PACE_BINS - 1;
    for (int i = 0; i < PACE_BINS; i++) {
        curve->ended[i] *= curve->keep;
        curve->observed[i] = curve->observed[i] * curve->keep + (i <= last ? 1 : 0);
    }
    curve->ended[last] += is_end ? 1 : 0;
    curve->is_stale = true;
}

void pace_finished(struct pace_curve *curve, struct pace_rank *rank, double ns)
{
    pace_observe(curve, rank, ns, true);
    rank->time_ns = rank->time_ns * PACE_KEEP + ns;
    rank->gradients = rank->gradients * PACE_KEEP + 1;
}

void pace_interrupted(struct pace_curve *curve, struct pace_rank *rank, double ns)
{
    pace_observe(curve, rank, ns, false);
    rank->time_ns += ns;
}

void pace_curve_fit(struct pace_curve *curve)
{
    double left = 1;
    if (!curve->is_stale)
        return;
    for (int i = 0; i < PACE_BINS; i++) {
        curve->survival[i] = left;
        if (curve->ended[i] > 0)
            left *= 1 - curve->ended[i] / curve->observed[i];
        left = left > 1e-12 ? left : 0;
    }
    curve->survival[PACE_BINS] = left;
    curve->is_stale = false;
}

double pace_survival(const struct pace_curve *curve, double ratio)
{
    double position = pace_position(ratio);
    int bin = (int)position;
    if (bin >= PACE_BINS)
        return curve->survival[PACE_BINS];
    double before = curve->survival[bin], after = curve->survival[bin + 1];
    return before + (position - bin) * (after - before);
}
