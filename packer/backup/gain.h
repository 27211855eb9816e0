/* gain: estimates noise and curvature of a training run from sums over its gradients, and predicts
 * the gain of a round with k gradients. V is the variance of one gradient, N the squared norm of
 * the true gradient, c the curvature of the loss along a step times the learning rate, s the factor
 * on the learning rate (1 or k/n). PURE: the caller owns the states, which are all zeros at first.
 * README.md: BK1 to BK4. */
#ifndef GRADPOOL_PACKER_BACKUP_GAIN_H
#define GRADPOOL_PACKER_BACKUP_GAIN_H

#include <stdbool.h>
#include <stdint.h>

#define GAIN_WINDOWS 5
/* number of newest rounds that count in the estimates of DBW, and in the means of k and of the
 * round time */
#define GAIN_RECENT 20
#define GAIN_NOISE_MAX 1000.0   /* maximum of the noise V/N */
#define GAIN_CURVATURE_MAX 1.95 /* maximum of the curvature c for BACKUP_AUTO */
#define GAIN_PRIOR_ROUNDS 5     /* weight of the assumption that the curvature c is 1, in rounds */
#define GAIN_MADE_ROUNDS 8      /* minimum number of products from which `made` is computed */

/* Measured values of one round. `product`, `loss` and `rate` may be NAN. */
struct gain_sample {
    double k;
    /* s, the factor on the learning rate: 1, or k/n if the rate is proportional to k */
    double step;
    /* V: variance of one gradient around the true one; an estimate may be negative */
    double variance;
    double signal;  /* N: squared norm of the true gradient; an estimate may be negative */
    double mean;    /* squared norm of the mean gradient */
    double product; /* scalar product with the mean gradient of the previous round */
    double loss, rate;
};

/* Computes samples of the variance V and the squared norm N from k gradients. False: fewer than two
 * gradients, or sums that are not finite. */
bool gain_sample(uint32_t k, double squares, double mean, struct gain_sample *ret_sample);

/* Returns the weight of the next sample in a running mean over `window` samples, of which `count`
 * exist. */
double gain_weight(uint32_t count, uint32_t window);

/* Estimated noise and curvature; valid if `is_known`. */
struct gain {
    bool is_known;
    /* noise V/N, from 0 to GAIN_NOISE_MAX; large if gradients differ much from rank to rank */
    double noise;
    double curvature; /* c: curvature of the loss along a step, times the learning rate */
    /* gain of the past rounds for s = 1 (BACKUP_AUTO), measured without V and c; NAN: unknown */
    double made;
};

/* Returns the estimates without any sample: the largest noise, and the curvature 1. */
struct gain gain_unknown(void);

/* Returns the gain of a round with k gradients, in units of the learning rate times N: s (1 - c s/2
 * (1 + V/(N k))). `step` is s. */
double gain_value(const struct gain *gain, double step, double k);

/* --- BACKUP_AUTO: five windows, no loss and no rate --- */

struct gain_window {
    /* running means of the samples; `spread` is the variance of the samples of the squared norm
     * N */
    double variance, signal, spread, mean, product;
};

struct gain_windows {
    struct gain_window windows[GAIN_WINDOWS];
    /* number of samples in the means; number of samples with a product */
    uint32_t rounds, products;
};

void gain_windows_add(struct gain_windows *windows, const struct gain_sample *sample);
struct gain gain_windows_read(const struct gain_windows *windows);

/* --- BACKUP_DBW: the last rounds, with losses and rate --- */

struct gain_recent {
    struct gain_sample rounds[GAIN_RECENT];
    uint32_t count; /* number of samples */
};

/* Adds a sample. After a change of the rate, all earlier samples are deleted. */
void gain_recent_add(struct gain_recent *recent, const struct gain_sample *sample);
struct gain gain_recent_read(const struct gain_recent *recent);
/* Returns whether the last loss exceeds the previous one by more than 1 %. */
bool gain_recent_rises(const struct gain_recent *recent);

#endif
