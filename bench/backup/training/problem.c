/* Implements quadratics, softmax regression and a multi-layer perceptron. Only problem_gradient()
 * may draw from the stream of batches, so that runs with one seed get the same batches. */
#include "bench/backup/training/problem.h"

#include <math.h>
#include <string.h>

#include "bench/sim/chance.h"

#define DIMENSIONS 200
#define PIXELS DIGITS_PIXELS
#define CLASSES DIGITS_CLASSES
#define HIDDEN 24
#define WEIGHT_SEED 4711
#define MLP_LOSS_STRIDE 3 /* the loss is computed as the mean over every third sample */

/* Positions of biases and outputs in the array of parameters. The weights of one input are
 * adjacent, so that the product of a sample is added row by row. */
#define SOFTMAX_BIASES (PIXELS * CLASSES)
#define SOFTMAX_FLOATS (SOFTMAX_BIASES + CLASSES)
#define MLP_BIASES (PIXELS * HIDDEN)
#define MLP_OUTPUTS (MLP_BIASES + HIDDEN)
#define MLP_OUTPUT_BIASES (MLP_OUTPUTS + HIDDEN * CLASSES)
#define MLP_FLOATS (MLP_OUTPUT_BIASES + CLASSES)

/* Draws by the Box-Muller method. `count` is even. */
static void draw_normals(uint64_t *state, float *ret_values, size_t count)
{
    for (size_t i = 0; i < count; i += 2) {
        float u = (float)chance_unit(state), turn = 6.2831853f * (float)chance_unit(state);
        float radius = sqrtf(-2 * logf(1 - 0.99999994f * u));
        ret_values[i] = radius * cosf(turn);
        ret_values[i + 1] = radius * sinf(turn);
    }
}

/* --- quadratic --- */

static void quadratic_init(struct problem *p)
{
    p->floats = DIMENSIONS;
    for (int i = 0; i < DIMENSIONS; i++) {
        p->curvature[i] = (float)pow(500, -i / (double)(DIMENSIONS - 1));
        p->parameters[i] = 1;
    }
}

static double quadratic_loss(const struct problem *p)
{
    double loss = 0;
    for (int i = 0; i < DIMENSIONS; i++)
        loss += 0.5 * (double)p->curvature[i] * p->parameters[i] * p->parameters[i];
    return loss;
}

static double quadratic_gradient(struct problem *p, float *g)
{
    float normals[DIMENSIONS], noise = (float)(p->setting->noise / sqrt(DIMENSIONS));
    double loss = 0;
    draw_normals(&p->batches, normals, DIMENSIONS);
    for (int i = 0; i < DIMENSIONS; i++) {
        float w = p->parameters[i], n = noise * normals[i];
        g[i] = p->curvature[i] * w + n;
        loss += 0.5 * (double)p->curvature[i] * w * w + (double)n * w;
    }
    return loss;
}

/* --- digits --- */

/* Adds the product of a sample and the matrix `weights`, which has one row for each input. */
static void add_product(const float *inputs, int count, const float *weights, int width,
                        float *outputs)
{
    for (int i = 0; i < count; i++) {
        float x = inputs[i];
        if (x == 0)
            continue;
        for (int j = 0; j < width; j++)
            outputs[j] += x * weights[i * width + j];
    }
}

/* Adds the gradient of add_product() with respect to the weights: an outer product. */
static void add_outer(const float *inputs, int count, const float *slopes, int width,
                      float *gradient)
{
    for (int i = 0; i < count; i++) {
        float x = inputs[i];
        if (x == 0)
            continue;
        for (int j = 0; j < width; j++)
            gradient[i * width + j] += x * slopes[j];
    }
}

/* Replaces each output by the derivative of the loss with respect to this output. Returns the
 * loss. */
static double cross_entropy(float *outputs, uint8_t label)
{
    float most = outputs[0], sum = 0, wanted;
    for (int i = 1; i < CLASSES; i++)
        most = outputs[i] > most ? outputs[i] : most;
    wanted = outputs[label] - most;
    for (int i = 0; i < CLASSES; i++) {
        outputs[i] = expf(outputs[i] - most);
        sum += outputs[i];
    }
    for (int i = 0; i < CLASSES; i++)
        outputs[i] /= sum;
    outputs[label] -= 1;
    return (double)(logf(sum) - wanted);
}

static double softmax_sample(const struct problem *p, size_t sample, float share, float *g)
{
    const float *w = p->parameters, *pixels = p->digits->pixels[sample];
    float outputs[CLASSES];
    memcpy(outputs, w + SOFTMAX_BIASES, sizeof outputs);
    add_product(pixels, PIXELS, w, CLASSES, outputs);
    double loss = cross_entropy(outputs, p->digits->labels[sample]);
    if (!g)
        return loss;
    for (int i = 0; i < CLASSES; i++) {
        outputs[i] *= share;
        g[SOFTMAX_BIASES + i] += outputs[i];
    }
    add_outer(pixels, PIXELS, outputs, CLASSES, g);
    return loss;
}

static void mlp_init(struct problem *p)
{
    float first[PIXELS * HIDDEN], second[HIDDEN * CLASSES];
    uint64_t state = WEIGHT_SEED;
    draw_normals(&state, first, PIXELS * HIDDEN);
    draw_normals(&state, second, HIDDEN * CLASSES);
    memset(p->parameters, 0, sizeof p->parameters);
    for (int i = 0; i < PIXELS; i++)
        for (int j = 0; j < HIDDEN; j++)
            p->parameters[i * HIDDEN + j] = first[j * PIXELS + i] * sqrtf(2.0f / PIXELS);
    for (int i = 0; i < HIDDEN; i++)
        for (int j = 0; j < CLASSES; j++)
            p->parameters[MLP_OUTPUTS + i * CLASSES + j] =
                second[j * HIDDEN + i] * sqrtf(1.0f / HIDDEN);
}

/* Computes the derivative of the loss with respect to the hidden values; 0 for inactive ReLUs. */
static void mlp_backward(const float *weights, const float *slopes, const float *hidden,
                         float *ret_slopes)
{
    for (int i = 0; i < HIDDEN; i++) {
        float sum = 0;
        for (int j = 0; j < CLASSES; j++)
            sum += weights[i * CLASSES + j] * slopes[j];
        ret_slopes[i] = hidden[i] > 0 ? sum : 0;
    }
}

static double mlp_sample(const struct problem *p, size_t sample, float share, float *g)
{
    const float *w = p->parameters, *pixels = p->digits->pixels[sample];
    float hidden[HIDDEN], outputs[CLASSES], slopes[HIDDEN];
    memcpy(hidden, w + MLP_BIASES, sizeof hidden);
    add_product(pixels, PIXELS, w, HIDDEN, hidden);
    for (int i = 0; i < HIDDEN; i++)
        hidden[i] = hidden[i] > 0 ? hidden[i] : 0;
    memcpy(outputs, w + MLP_OUTPUT_BIASES, sizeof outputs);
    add_product(hidden, HIDDEN, w + MLP_OUTPUTS, CLASSES, outputs);
    double loss = cross_entropy(outputs, p->digits->labels[sample]);
    if (!g)
        return loss;
    for (int i = 0; i < CLASSES; i++) {
        outputs[i] *= share;
        g[MLP_OUTPUT_BIASES + i] += outputs[i];
    }
    add_outer(hidden, HIDDEN, outputs, CLASSES, g + MLP_OUTPUTS);
    mlp_backward(w + MLP_OUTPUTS, outputs, hidden, slopes);
    for (int i = 0; i < HIDDEN; i++)
        g[MLP_BIASES + i] += slopes[i];
    add_outer(pixels, PIXELS, slopes, HIDDEN, g);
    return loss;
}

static double sample_loss(const struct problem *p, size_t sample, float share, float *g)
{
    return p->setting->kind == PROBLEM_MLP ? mlp_sample(p, sample, share, g)
                                           : softmax_sample(p, sample, share, g);
}

static double digits_loss(const struct problem *p)
{
    size_t stride = p->setting->kind == PROBLEM_MLP ? MLP_LOSS_STRIDE : 1, count = 0;
    double loss = 0;
    for (size_t i = 0; i < p->digits->count; i += stride, count++)
        loss += sample_loss(p, i, 0, NULL);
    return loss / (double)count;
}

static double digits_gradient(struct problem *p, float *g)
{
    double loss = 0;
    memset(g, 0, p->floats * sizeof *g);
    for (uint32_t i = 0; i < p->setting->batch; i++)
        loss += sample_loss(p, chance_next(&p->batches) % p->digits->count,
                            1 / (float)p->setting->batch, g);
    return loss / p->setting->batch;
}

/* --- all kinds --- */

void problem_init(struct problem *p, const struct grid_problem *setting, uint64_t seed,
                  const struct digits *digits)
{
    p->setting = setting;
    p->digits = digits;
    p->batches = seed * 104729 + 5;
    if (setting->kind == PROBLEM_QUADRATIC) {
        quadratic_init(p);
    } else if (setting->kind == PROBLEM_MLP) {
        p->floats = MLP_FLOATS;
        mlp_init(p);
    } else {
        p->floats = SOFTMAX_FLOATS;
        memset(p->parameters, 0, sizeof p->parameters);
    }
}

double problem_gradient(struct problem *p, float *ret_gradient)
{
    return p->setting->kind == PROBLEM_QUADRATIC ? quadratic_gradient(p, ret_gradient)
                                                 : digits_gradient(p, ret_gradient);
}

double problem_loss(const struct problem *p)
{
    return p->setting->kind == PROBLEM_QUADRATIC ? quadratic_loss(p) : digits_loss(p);
}

double problem_rate(const struct problem *p, uint32_t round)
{
    double rate = p->setting->rate;
    for (int i = 0; i < 2; i++)
        if (p->setting->falls[i] > 0 && round >= p->setting->falls[i])
            rate *= 0.3;
    return rate;
}

void problem_step(struct problem *p, const float *mean, float rate)
{
    for (size_t i = 0; i < p->floats; i++)
        p->parameters[i] -= rate * mean[i];
}
