/* Estimates the variance V of a gradient, the squared norm N of the true gradient and the curvature
 * c, and computes the gain of a round. Must never divide by an estimate, which may be zero or
 * negative. README.md: BK1 to BK4. */
#include "packer/backup/gain.h"

#include <math.h>
#include <stddef.h>

static const uint32_t window_rounds[GAIN_WINDOWS] = {8, 20, 50, 125, 300};

bool gain_sample(uint32_t k, double squares, double mean, struct gain_sample *ret_sample)
{
    double count = (double)k;
    double variance = (squares - count * mean) / (count - 1);
    double signal = mean - variance / count;
    if (k < 2 || !isfinite(squares) || !isfinite(mean) || !isfinite(variance) || !isfinite(signal))
        return false;
    *ret_sample = (struct gain_sample){.k = count,
                                       .step = 1,
                                       .variance = variance,
                                       .signal = signal,
                                       .mean = mean,
                                       .product = NAN,
                                       .loss = NAN,
                                       .rate = NAN};
    return true;
}

double gain_weight(uint32_t count, uint32_t window)
{
    return count < window ? 1.0 / ((double)count + 1) : 2.0 / ((double)window + 1);
}

struct gain gain_unknown(void)
{
    return (struct gain){.noise = GAIN_NOISE_MAX, .curvature = 1, .made = (double)NAN};
}

double gain_value(const struct gain *gain, double step, double k)
{
    return step * (1 - gain->curvature * step / 2 * (1 + gain->noise / k));
}

static double within(double value, double least, double most)
{
    return value < least ? least : value > most ? most : value;
}

/* Returns the noise: variance V divided by squared norm N of the gradient, or GAIN_NOISE_MAX if N
 * is not positive. */
static double noise_of(double variance, double signal)
{
    double positive = variance > 0 ? variance : 0;
    return positive < GAIN_NOISE_MAX * signal ? positive / signal : GAIN_NOISE_MAX;
}

/* --- five windows --- */

static void gain_window_add(struct gain_window *w, const struct gain_sample *s, double a)
{
    double away = s->signal - w->signal;
    w->variance += a * (s->variance - w->variance);
    w->signal += a * away;
    w->spread = (1 - a) * (w->spread + a * away * away);
    w->mean += a * (s->step * s->mean - w->mean);
}

void gain_windows_add(struct gain_windows *windows, const struct gain_sample *sample)
{
    for (size_t i = 0; i < GAIN_WINDOWS; i++) {
        struct gain_window *w = &windows->windows[i];
        gain_window_add(w, sample, gain_weight(windows->rounds, window_rounds[i]));
        if (isfinite(sample->product))
            w->product +=
                gain_weight(windows->products, window_rounds[i]) * (sample->product - w->product);
    }
    windows->rounds += windows->rounds < UINT32_MAX;
    windows->products += isfinite(sample->product) && windows->products < UINT32_MAX;
}

/* Returns the upper bound of the squared norm N of the gradient in window i: the mean plus two
 * standard errors. `rounds` is at least 1. */
static double signal_above(const struct gain_windows *windows, size_t i)
{
    const struct gain_window *w = &windows->windows[i];
    double a = gain_weight(windows->rounds - 1, window_rounds[i]);
    bool is_filling = windows->rounds <= window_rounds[i];
    return w->signal + 2 * sqrt(w->spread * (is_filling ? a : a / (2 - a)));
}

/* Returns the curvature c of the window, computed from the decrease of the product of two
 * successive mean gradients. With few rounds the result is close to 1. */
static double curvature_of(const struct gain_windows *windows, const struct gain_window *w)
{
    double signal = w->signal > 0 ? w->signal : 0;
    double measured = w->mean > 0 ? (signal - w->product) / w->mean : 1;
    double rounds = (double)windows->products;
    return (rounds * within(measured, 0, GAIN_CURVATURE_MAX) + GAIN_PRIOR_ROUNDS) /
           (rounds + GAIN_PRIOR_ROUNDS);
}

/* Returns the measured gain of the rounds of the window. On a quadratic loss, a step along the mean
 * gradient lowers the loss by the learning rate times (N + D)/2. N and D are the products of this
 * mean gradient with the true gradient before and after the step. */
static double made_of(const struct gain_windows *windows, const struct gain_window *w,
                      double signal)
{
    bool is_known = windows->products >= GAIN_MADE_ROUNDS;
    return is_known ? (signal + w->product) / (2 * signal) : (double)NAN;
}

struct gain gain_windows_read(const struct gain_windows *windows)
{
    struct gain gain = gain_unknown();
    const struct gain_window *chosen = NULL;
    double least = 0;
    for (size_t i = 0; i < GAIN_WINDOWS && windows->rounds > 0; i++) {
        double above = signal_above(windows, i);
        if (above > 0 && (!chosen || above < least)) {
            chosen = &windows->windows[i];
            least = above;
        }
    }
    gain.is_known = windows->rounds > 0;
    if (chosen) {
        gain.noise = noise_of(chosen->variance, least);
        gain.curvature = curvature_of(windows, chosen);
        gain.made = made_of(windows, chosen, least);
    }
    return gain;
}

/* --- the last rounds --- */

static const struct gain_sample *recent_at(const struct gain_recent *r, uint32_t back)
{
    return &r->rounds[(r->count - 1 - back) % GAIN_RECENT];
}

static uint32_t recent_known(const struct gain_recent *r)
{
    return r->count < GAIN_RECENT ? r->count : GAIN_RECENT;
}

void gain_recent_add(struct gain_recent *recent, const struct gain_sample *sample)
{
    if (recent->count > 0 && isfinite(sample->rate) && isfinite(recent_at(recent, 0)->rate) &&
        recent_at(recent, 0)->rate != sample->rate)
        recent->count = 0;
    recent->rounds[recent->count % GAIN_RECENT] = *sample;
    recent->count++;
    if (recent->count == 2 * GAIN_RECENT)
        recent->count = GAIN_RECENT;
}

static double positive_of(double value) { return value > 0 ? value : 0; }

/* Returns the curvature c = rate * L, computed from the losses. L is the amount by which the losses
 * decreased less than linearly, divided by the amount that L = 1 would cause. */
static double recent_curvature(const struct gain_recent *r)
{
    double above = 0, below = 0;
    for (uint32_t back = recent_known(r); back-- > 1;) {
        const struct gain_sample *now = recent_at(r, back), *next = recent_at(r, back - 1);
        double rate = now->rate * now->step, signal = positive_of(now->signal);
        double variance = positive_of(now->variance);
        if (!isfinite(now->loss) || !isfinite(next->loss) || !isfinite(rate))
            continue;
        above += 2 * (next->loss - now->loss + rate * signal);
        below += rate * rate * (signal + variance / now->k);
    }
    double rate = recent_at(r, 0)->rate;
    return below > 0 ? positive_of(above / below) * rate : 1;
}

struct gain gain_recent_read(const struct gain_recent *recent)
{
    double variance = 0, signal = 0;
    uint32_t known = recent_known(recent);
    if (known == 0)
        return gain_unknown();
    for (uint32_t back = known; back-- > 0;) {
        variance += positive_of(recent_at(recent, back)->variance);
        signal += positive_of(recent_at(recent, back)->signal);
    }
    return (struct gain){.is_known = true,
                         .noise = noise_of(variance, signal),
                         .curvature = recent_curvature(recent),
                         .made = (double)NAN};
}

bool gain_recent_rises(const struct gain_recent *recent)
{
    return recent_known(recent) > 1 &&
           recent_at(recent, 0)->loss > 1.01 * recent_at(recent, 1)->loss;
}
