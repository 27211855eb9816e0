/* Owns the rule of loss `shared`: a closed queue with one processor-sharing server and one customer
 * for each job (L1, L2). A polynomial is never divided by a factor, because the terms would cancel.
 * All sums have only positive terms, so they are accurate for hundreds of jobs. */
#include "packer/loss/loss.h"

#include "packer/loss/loss_nodes.h"

#define FULL 1e290 /* a larger sum may overflow, so the lane is closed */

/* Sums over a set of jobs with shares u. P(x) is the product of ((1-u) + u x), and S(sum of c_k
 * x^k) is the sum of k! c_k (L2). g = S(P), h = S(x P), i = S(x^2 P). These three sums suffice to
 * add two more jobs. */
struct sums {
    double g, h, i;
};

/* Value at each node of the quadrature: weight x P(node). */
struct product {
    double at[LOSS_NODES];
};

static struct product product_of_nobody(void)
{
    struct product product;

    for (size_t k = 0; k < LOSS_NODES; k++)
        product.at[k] = loss_weights[k];
    return product;
}

static void product_add(struct product *product, double share)
{
    for (size_t k = 0; k < LOSS_NODES; k++)
        product->at[k] *= 1 - share + share * loss_nodes[k];
}

/* Returns the sums over the jobs in `product`, without one job of this share. If `share` is 0, the
 * sums are over all these jobs. */
static struct sums sums_without(const struct product *product, double share)
{
    struct sums sums = {0};

    for (size_t k = 0; k < LOSS_NODES; k++) {
        double t = loss_nodes[k], term = product->at[k] / (1 - share + share * t);

        sums.g += term;
        sums.h += term * t;
        sums.i += term * t * t;
    }
    return sums;
}

static double g_with(const struct sums *sums, double share)
{
    return (1 - share) * sums->g + share * sums->h;
}

static double h_with(const struct sums *sums, double share)
{
    return (1 - share) * sums->h + share * sums->i;
}

static bool is_full(const struct sums *sums) { return !(sums->i < FULL); }

static double loss_of(const struct packer_resident *job, const struct sums *others)
{
    double alone_ns = loss_alone_ns(&job->timing, (double)job->lane_ns);

    if (is_full(others))
        return 1;
    return 1 -
           (double)job->timing.period_ns / alone_ns * others->g / g_with(others, loss_share(job));
}

/* --- room for one more job --- */

/* Returns the largest lane time with which the new job stays within its own loss limit. The waits
 * of this job grow in proportion to its lane time. Lane time beyond the free lane time lengthens
 * its own rounds, also in proportion (L3). */
static double own_room_ns(const struct packer_timing *job, const struct sums *met)
{
    double limit = loss_limit(job) - LOSS_MARGIN, free_ns, slack_ns, waits;

    if (limit < 0 || is_full(met))
        return -1;
    free_ns = loss_alone_room_ns(job, 0);
    slack_ns = loss_alone_room_ns(job, limit) - free_ns;
    waits = met->h / met->g - 1;
    if (waits * free_ns > slack_ns)
        return slack_ns / waits;
    return (slack_ns + free_ns) / (1 + waits);
}

/* Returns the largest lane time of the new job with which this resident stays within its loss
 * limit. `others`: sums over the other residents. */
static double resident_room_ns(const struct packer_resident *resident, const struct sums *others,
                               const struct packer_timing *job)
{
    double share = loss_share(resident), limit = loss_limit(&resident->timing) - LOSS_MARGIN;
    double alone_ns = loss_alone_ns(&resident->timing, (double)resident->lane_ns);
    double speed = (1 - limit) * alone_ns / (double)resident->timing.period_ns;
    double g = g_with(others, share), h = h_with(others, share);
    /* The resident keeps `speed` (a part of its speed alone) if (1-v) G' + v H' >= speed x ((1-v) G
     * + v H), where v is the share of the new job, G and H are the sums of struct sums with the
     * resident, and G' and H' those without the resident (`others`). */
    double now = others->g - speed * g, slope = (others->h - others->g) - speed * (h - g);

    if (limit < 0 || now < 0)
        return -1;
    return slope >= 0 ? 1e300 : loss_share_room_ns(job, now / -slope);
}

static double least(double a, double b) { return a < b ? a : b; }

/* --- the rule --- */

static void shared_losses(const struct packer_resident *jobs, size_t count, double *ret_losses)
{
    struct product all = product_of_nobody();

    for (size_t i = 0; i < count; i++)
        product_add(&all, loss_share(&jobs[i]));
    for (size_t i = 0; i < count; i++) {
        struct sums others = sums_without(&all, loss_share(&jobs[i]));

        ret_losses[i] = loss_of(&jobs[i], &others);
    }
}

static double shared_stretch(const struct packer_resident *jobs, size_t count, size_t self)
{
    struct product product = product_of_nobody();
    struct sums others;

    for (size_t i = 0; i < count; i++)
        if (i != self)
            product_add(&product, loss_share(&jobs[i]));
    others = sums_without(&product, 0);
    return is_full(&others) ? -1 : others.h / others.g;
}

static double shared_room_ns(const struct packer_resident *residents, size_t count,
                             const struct packer_timing *job)
{
    struct product all = product_of_nobody();
    struct sums met;
    double room_ns;

    if (count == 0)
        return loss_alone_room_ns(job, loss_limit(job));
    for (size_t i = 0; i < count; i++)
        product_add(&all, loss_share(&residents[i]));
    met = sums_without(&all, 0);
    room_ns = own_room_ns(job, &met);
    for (size_t i = 0; i < count && room_ns >= 0; i++) {
        struct sums others = sums_without(&all, loss_share(&residents[i]));

        room_ns = least(room_ns, resident_room_ns(&residents[i], &others, job));
    }
    return room_ns;
}

const struct loss_rule loss_shared = {"shared", LOSS_MARGIN, shared_losses, shared_stretch,
                                      shared_room_ns};
