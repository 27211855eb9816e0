/* Chooses k before a round: the reconstructed DBW, its variants and AdaSync. Must never return less
 * than 1 or more than the number of members. README.md: BK9, BK10. */
#include "packer/backup/internal.h"

#include <math.h>

static double worth_of(const struct backup *b, uint32_t k)
{
    return b->options->rule == BACKUP_BLIND
               ? (double)k
               : gain_value(&b->estimates->gain, backup_step(b, k), (double)k);
}

/* Returns the k with the largest gain per time, or for BACKUP_BLIND the k with the largest k per
 * time. Returns the number of members if no k has a gain. */
static uint32_t best_by_time(const struct backup *b)
{
    uint32_t former = b->former_k ? b->former_k : b->members, best = b->members;
    double most = 0;
    for (uint32_t k = b->options->least; k <= b->members; k++) {
        double time = cells_time(b->cells, former, k), worth = worth_of(b, k);
        double ratio = worth / (time > 1 ? time : 1);
        if (ratio > most) {
            most = ratio;
            best = k;
        }
    }
    return best;
}

static uint32_t choose_by_time(struct backup *b)
{
    uint32_t first = backup_first_rounds(b->options->rule);
    if ((b->measured_rounds - first) % BACKUP_FIT_ROUNDS == 0)
        cells_fit(b->cells);
    if (b->options->rule != BACKUP_BLIND && !b->estimates->gain.is_known)
        return b->members;
    uint32_t k = best_by_time(b);
    /* The last step raised the loss, so it was too noisy: k must grow (guard of DBW). */
    if (b->options->rule == BACKUP_DBW && gain_recent_rises(&b->estimates->recent) &&
        k <= b->former_k)
        k = b->former_k + 1;
    return k;
}

static uint32_t choose_by_loss(const struct backup *b)
{
    double k = (double)b->options->k;
    if (b->estimates->loss > 0)
        k = ceil(k * sqrt(b->estimates->first_loss / b->estimates->loss));
    return k < (double)b->members ? (uint32_t)k : b->members;
}

uint32_t backup_choose_before(struct backup *b)
{
    uint32_t k = b->options->rule == BACKUP_STATIC    ? b->options->k
                 : b->options->rule == BACKUP_ADASYNC ? choose_by_loss(b)
                                                      : choose_by_time(b);
    uint32_t most = b->members;
    return k < 1 ? 1 : k < most ? k : most;
}
