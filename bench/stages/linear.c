/* Linear regression: the samples are drawn from the seed, and a sample's value is the product of
 * its features with the weights 1, -1, 1, ... So the smallest loss is 0. */
#include "bench/stages/stages.h"
#include "bench/tables/draw.h"

#include <string.h>

/* Returns a feature of a sample, between -0.5 and 0.5. */
static float linear_feature(uint64_t seed, uint32_t sample, uint32_t element)
{
    return (float)(tables_mix(seed, sample, element) >> 40) / (1 << 24) - 0.5f;
}

/* Writes the features of a sample. Returns the error of the prediction. */
static float linear_error(uint64_t seed, uint32_t sample, const float *weights,
                          float ret_features[STAGES_DIM])
{
    float error = 0;
    for (uint32_t i = 0; i < STAGES_DIM; i++) {
        ret_features[i] = linear_feature(seed, sample, i);
        error += ret_features[i] * (weights[i] - (i % 2 ? -1.0f : 1.0f));
    }
    return error;
}

void linear_gradient(uint64_t seed, uint32_t sample, const float *weights, float *ret_gradient)
{
    float error = linear_error(seed, sample, weights, ret_gradient);
    for (uint32_t i = 0; i < STAGES_DIM; i++)
        ret_gradient[i] *= error;
}

void linear_add(uint64_t seed, uint32_t sample, const float *weights, float *sum)
{
    float gradient[STAGES_DIM];
    linear_gradient(seed, sample, weights, gradient);
    for (uint32_t i = 0; i < STAGES_DIM; i++)
        sum[i] += gradient[i];
}

double linear_loss(uint64_t seed, uint32_t samples, const float *weights)
{
    float features[STAGES_DIM];
    double loss = 0;
    for (uint32_t sample = 0; sample < samples; sample++) {
        double error = (double)linear_error(seed, sample, weights, features);
        loss += error * error / 2;
    }
    return loss / samples;
}

uint64_t linear_wrong(const float *values, const float *expected)
{
    uint64_t wrong = 0;
    for (uint32_t i = 0; i < STAGES_DIM; i++)
        wrong += memcmp(&values[i], &expected[i], sizeof values[i]) != 0;
    return wrong;
}
