/* Curvatures are scaled so that the loss at the start equals that of the quadratic of the virtual
 * bench, which has 200 dimensions. The live bench and the virtual bench therefore have the same
 * losses and targets. */
#include "bench/backup/live/crew_problem.h"

#include "bench/sim/chance.h"

#include <math.h>

#define CONDITION 500
#define DIMENSIONS 200 /* number of dimensions in the virtual bench */
#define NOISE 4        /* standard deviation of the norm of a gradient */

void crew_problem_init(struct crew_problem *p, uint64_t seed, uint32_t rank)
{
    for (int i = 0; i < CREW_FLOATS; i++)
        p->curvature[i] = (float)pow(CONDITION, -i / (double)(CREW_FLOATS - 1));
    p->batches = chance_hash(seed, rank);
}

void crew_problem_start(float *ret_parameters)
{
    for (int i = 0; i < CREW_FLOATS; i++)
        ret_parameters[i] = (float)sqrt((double)DIMENSIONS / CREW_FLOATS);
}

/* Returns two uniformly distributed values with mean 0 and standard deviation 1. */
static void crew_problem_noise(uint64_t *batches, float ret_noise[2])
{
    uint64_t bits = chance_next(batches);
    for (int i = 0; i < 2; i++)
        ret_noise[i] = ((float)(uint32_t)(bits >> (32 * i)) * 0x1p-32f - 0.5f) * sqrtf(12);
}

double crew_problem_gradient(struct crew_problem *p, const float *w, float *ret_gradient)
{
    const float scale = NOISE / sqrtf(CREW_FLOATS);
    double loss = 0;
    for (int i = 0; i < CREW_FLOATS; i += 2) {
        float noise[2];
        crew_problem_noise(&p->batches, noise);
        for (int k = 0; k < 2; k++) {
            float slope = p->curvature[i + k] * w[i + k], n = scale * noise[k];
            ret_gradient[i + k] = slope + n;
            loss += 0.5 * (double)slope * w[i + k] + (double)n * w[i + k];
        }
    }
    return loss;
}

double crew_problem_loss(const struct crew_problem *p, const float *w)
{
    double loss = 0;
    for (int i = 0; i < CREW_FLOATS; i++)
        loss += 0.5 * (double)p->curvature[i] * w[i] * w[i];
    return loss;
}
