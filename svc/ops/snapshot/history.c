/* Ring of samples, and sums over time. Merging samples does not change means. */
#include "svc/ops/snapshot/history.h"

#include <math.h>

static double mean(double left, double right)
{
    return isnan(left) ? right : isnan(right) ? left : (left + right) / 2;
}

static struct view_moment merge(const struct view_moment *a, const struct view_moment *b)
{
    return (struct view_moment){
        .at_s = mean(a->at_s, b->at_s),
        .cores = {.allocated = mean(a->cores.allocated, b->cores.allocated),
                  .used = mean(a->cores.used, b->cores.used),
                  .dedicated = mean(a->cores.dedicated, b->cores.dedicated)}};
}

static void halve(struct history *h)
{
    for (size_t i = 0; i < h->count / 2; i++)
        h->samples[i] = merge(&h->samples[2 * i], &h->samples[2 * i + 1]);
    h->count /= 2;
    h->stride *= 2;
}

/* Ends a sample, which is the mean of the pending snapshots. */
static struct view_moment settle(struct history *h)
{
    double n = h->pending_count, used_n = h->pending_used_count;
    struct view_cores *sum = &h->pending.cores;
    struct view_moment sample = {.at_s = h->pending.at_s / n,
                                 .cores = {.allocated = sum->allocated / n,
                                           .used = used_n > 0 ? sum->used / used_n : NAN,
                                           .dedicated = sum->dedicated / n}};
    h->pending = (struct view_moment){0};
    h->pending_count = h->pending_used_count = 0;
    return sample;
}

/* Adds a snapshot to the sums. The times between snapshots differ, so each snapshot is weighted by
 * its time. `used` is a mean over the time since the previous snapshot. All other values are
 * momentary, so each of two adjacent snapshots counts for half of the time between them. */
static void sum_up(struct history *h, double at_s, const struct view_cores *cores)
{
    double elapsed_s = at_s - h->last.at_s;
    struct history_sum *sum = &h->sum;
    if (h->has_last && elapsed_s > 0) {
        sum->elapsed_s += elapsed_s;
        sum->cores.allocated += mean(h->last.cores.allocated, cores->allocated) * elapsed_s;
        sum->cores.dedicated += mean(h->last.cores.dedicated, cores->dedicated) * elapsed_s;
        sum->cores.used += isnan(cores->used) ? 0 : cores->used * elapsed_s;
        sum->used_s += isnan(cores->used) ? 0 : elapsed_s;
    }
    h->last = (struct view_moment){.at_s = at_s, .cores = *cores};
    h->has_last = true;
}

void history_add(struct history *h, double at_s, const struct view_cores *cores)
{
    sum_up(h, at_s, cores);
    if (h->stride == 0)
        h->stride = 1;
    h->pending.at_s += at_s;
    h->pending.cores.allocated += cores->allocated;
    h->pending.cores.dedicated += cores->dedicated;
    if (!isnan(cores->used)) {
        h->pending.cores.used += cores->used;
        h->pending_used_count++;
    }
    if (++h->pending_count < h->stride)
        return;
    h->samples[h->count++] = settle(h);
    if (h->count == HISTORY_SAMPLES_MAX)
        halve(h);
}

bool history_mean(const struct history *h, struct view_cores *ret_cores)
{
    const struct history_sum *sum = &h->sum;
    if (!h->has_last)
        return false;
    *ret_cores = h->last.cores;
    if (sum->elapsed_s > 0)
        *ret_cores =
            (struct view_cores){.allocated = sum->cores.allocated / sum->elapsed_s,
                                .used = sum->used_s > 0 ? sum->cores.used / sum->used_s : NAN,
                                .dedicated = sum->cores.dedicated / sum->elapsed_s};
    return true;
}
