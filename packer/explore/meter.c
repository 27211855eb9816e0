/* Owns means of samples with their confidence intervals (X2), and the table of Student's t. */
#include "packer/explore/explore.h"

#include <math.h>

/* Quantiles of Student's t for a two-sided interval of 95 %, for 1, 2, ... degrees of freedom. For
 * more degrees of freedom than entries the last value is used. */
static const double student[] = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306,
                                 2.262,  2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120};
#define STUDENT (sizeof student / sizeof *student)

void explore_meter_add(struct explore_meter *meter, double weight, double value)
{
    double off = value - meter->mean;
    meter->weight += weight;
    meter->mean += off * weight / meter->weight;
    meter->squares += weight * off * (value - meter->mean);
    meter->samples++;
}

double explore_meter_half(const struct explore_meter *meter)
{
    if (meter->samples < 2)
        return HUGE_VAL;
    size_t freedom = meter->samples - 1;
    double t = student[freedom < STUDENT ? freedom - 1 : STUDENT - 1];
    return t * sqrt(meter->squares / (double)freedom / meter->weight);
}
