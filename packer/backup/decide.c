/* Decides whether a round waits or closes, at each arrival and at set times, and which ranks begin
 * another gradient. Must never close a round with fewer than `least` gradients, and must never
 * allocate. README.md: BK5 to BK12.
 */
#include "packer/backup/internal.h"

/* Waiting times that the search tries, in units of the mean time of a round. */
static const double moments[] = {0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.14, 0.2, 0.27, 0.35,
                                 0.45, 0.6,  0.8,  1,    1.3,  1.7, 2.2,  3,   4,    6};
#define MOMENTS (sizeof moments / sizeof *moments)

/* --- expected arrivals --- */

/* Returns the assumed mean time for a rank without a completed gradient: the mean over the other
 * ranks, or the mean time of a round if no rank has completed a gradient. */
static double usual_scale_ns(const struct backup *b)
{
    double sum = 0, known = 0;
    for (uint32_t i = 0; i < b->options->workers; i++) {
        double scale_ns = pace_scale_ns(&b->ranks[i].pace);
        sum += scale_ns;
        known += scale_ns > 0;
    }
    return known > 0 ? sum / known : b->round_ns;
}

/* Describes the gradient in progress of a rank. A straggler first ends its old gradient, then
 * begins a gradient of the open round. */
static struct backup_flight flight_of(const struct backup *b, const struct backup_rank *r,
                                      double usual_ns, uint64_t now_ns)
{
    double scale_ns = pace_scale_ns(&r->pace);
    struct backup_flight f = {.scale_ns = scale_ns > 0 ? scale_ns : usual_ns, .left = 1};
    if (!r->is_flying)
        return f;
    f.elapsed_ns = now_ns > r->began_ns ? (double)(now_ns - r->began_ns) : 0;
    if (r->round == b->round) {
        f.left = pace_survival(b->curve, f.elapsed_ns / f.scale_ns);
        return f;
    }
    f.wait_ns = f.scale_ns - f.elapsed_ns;
    if (f.wait_ns <= 0)
        f.wait_ns = PACE_OVERDUE * f.scale_ns;
    f.elapsed_ns = 0;
    return f;
}

static bool is_outstanding(const struct backup_rank *r)
{
    return r->is_member && (r->is_flying || r->counted == 0);
}

/* Lists all gradients that may still arrive in the open round. */
static void list_flights(struct backup *b, uint64_t now_ns)
{
    double usual_ns = usual_scale_ns(b);
    b->flights_count = 0;
    pace_curve_fit(b->curve);
    if (usual_ns <= 0)
        return;
    for (uint32_t i = 0; i < b->options->workers; i++)
        if (is_outstanding(&b->ranks[i]))
            b->flights[b->flights_count++] = flight_of(b, &b->ranks[i], usual_ns, now_ns);
}

/* Returns the expected number of gradients in `flights` that arrive within `ns`. */
static double expected_within(const struct backup *b, double ns)
{
    double sum = 0;
    for (size_t i = 0; i < b->flights_count; i++) {
        const struct backup_flight *f = &b->flights[i];
        double more_ns = ns - f->wait_ns;
        if (more_ns > 0 && f->left > 0)
            sum += 1 - pace_survival(b->curve, (f->elapsed_ns + more_ns) / f->scale_ns) / f->left;
    }
    return sum;
}

/* --- gain per time --- */

static double gain_at(const struct backup *b, double k)
{
    return gain_value(&b->estimates->gain, backup_step(b, k), k);
}

/* Returns the gain per time in the last rounds. If V/N is larger than k, an error of the curvature
 * is multiplied by (V/N)/k, so the estimated gain may be negative although the rounds lower the
 * loss. The measured gain has no such error, so the larger one of the two gains is used. */
static double rate_of_gain(const struct backup *b)
{
    double k = b->k_inverse > 0 ? 1 / b->k_inverse : (double)b->members;
    double gain = gain_at(b, k), made = backup_step(b, k) * b->estimates->gain.made;
    if (made > gain)
        gain = made;
    return b->round_ns > 0 ? gain / b->round_ns : 0;
}

/* Returns whether waiting pays (BACKUP_AUTO): in some further time this round gains more than new
 * rounds would gain in the same time. `ret_until_ns`: end of the shortest such time among the times
 * of the search; BACKUP_NEVER_NS while the gain is unknown. */
static bool is_worth_waiting(const struct backup *b, uint64_t now_ns, uint64_t *ret_until_ns)
{
    double rate = rate_of_gain(b), counted = (double)b->counted;
    double now = gain_at(b, counted);
    double most = gain_at(b, (double)b->members * b->options->gradients) - now;
    *ret_until_ns = BACKUP_NEVER_NS;
    if (!b->estimates->gain.is_known || rate <= 0)
        return true;
    for (size_t i = 0; i < MOMENTS; i++) {
        double ns = moments[i] * b->round_ns;
        if (gain_at(b, counted + expected_within(b, ns)) - now > rate * ns) {
            *ret_until_ns = now_ns + (uint64_t)ns + 1;
            return true;
        }
        if (most < rate * ns)
            return false;
    }
    return false;
}

/* --- another gradient of a waiting rank --- */

/* Returns the number of gradients that the rule requires for the open round. */
static double wanted_of(const struct backup *b)
{
    double most = (double)b->members * b->options->gradients;
    double k = b->options->rule == BACKUP_STATIC ? (double)b->options->k
               : b->k_inverse > 0                ? 1 / b->k_inverse
                                                 : (double)b->members;
    return k < most ? k : most;
}

static bool rank_may_go_on(const struct backup *b, const struct backup_rank *r)
{
    return r->is_member && !r->is_flying && r->counted > 0 && r->counted < b->options->gradients;
}

/* Returns whether the round gets the required number of gradients within `ns` even if no waiting
 * rank begins another gradient. */
static bool will_be_full(const struct backup *b, double ns)
{
    return (double)b->counted + expected_within(b, ns) >= wanted_of(b) - 0.5;
}

/* Returns the mean gradient time of the fastest rank that may begin another gradient; 0: no rank
 * may begin one. */
static double least_scale_ns(const struct backup *b)
{
    double least_ns = 0;
    for (uint32_t i = 0; i < b->options->workers; i++) {
        double scale_ns = pace_scale_ns(&b->ranks[i].pace);
        if (rank_may_go_on(b, &b->ranks[i]) && (least_ns == 0 || scale_ns < least_ns))
            least_ns = scale_ns;
    }
    return least_ns;
}

/* If the round would not get enough gradients in time, makes waiting ranks begin another gradient.
 * Adds these ranks to `go_on`, and their gradients to `flights`. */
static size_t begin_others(struct backup *b, uint64_t now_ns)
{
    double least_ns = least_scale_ns(b);
    size_t count = 0;
    if (least_ns <= 0 || will_be_full(b, least_ns))
        return 0;
    for (uint32_t i = 0; i < b->options->workers; i++) {
        struct backup_rank *r = &b->ranks[i];
        double scale_ns = pace_scale_ns(&r->pace);
        if (!rank_may_go_on(b, r) || will_be_full(b, scale_ns))
            continue;
        r->is_flying = true;
        r->began_ns = now_ns;
        r->round = b->round;
        b->go_on[count++] = i;
        b->flights[b->flights_count++] = flight_of(b, r, scale_ns, now_ns);
    }
    return count;
}

/* --- the decision --- */

static bool is_any_outstanding(const struct backup *b)
{
    for (uint32_t i = 0; i < b->options->workers; i++)
        if (is_outstanding(&b->ranks[i]))
            return true;
    return false;
}

static bool is_absent_rank_missing(const struct backup *b)
{
    for (uint32_t i = 0; b->options->absence != BACKUP_ABSENCE_NONE && i < b->options->workers; i++)
        if (b->ranks[i].is_member && b->ranks[i].counted == 0 &&
            b->ranks[i].absence >= b->options->absence)
            return true;
    return false;
}

static bool waits_for_all(const struct backup *b)
{
    return b->options->rule == BACKUP_ALL || b->members < 3 ||
           b->measured_rounds < backup_first_rounds(b->options->rule);
}

/* Returns whether the rule closes the round now. If not, `ret_until_ns` is the time of the next
 * decision. */
static bool rule_closes(struct backup *b, uint64_t now_ns, uint64_t *ret_until_ns)
{
    uint32_t least = b->options->least < b->members ? b->options->least : b->members;
    *ret_until_ns = BACKUP_NEVER_NS;
    if (waits_for_all(b))
        return b->ranks_counted == b->members;
    if (b->counted < least)
        return false;
    if (is_absent_rank_missing(b)) {
        b->is_held = true;
        return false;
    }
    if (!is_any_outstanding(b))
        return true;
    if (b->options->rule == BACKUP_AUTO)
        return !is_worth_waiting(b, now_ns, ret_until_ns);
    b->k = b->k ? b->k : backup_choose_before(b);
    return b->counted >= b->k;
}

static enum backup_reason reason_of(const struct backup *b)
{
    return b->ranks_counted == b->members ? BACKUP_REASON_ALL
           : b->is_held                   ? BACKUP_REASON_ABSENCE
           : b->has_news                  ? BACKUP_REASON_GAIN
                                          : BACKUP_REASON_MOMENT;
}

static bool may_begin_others(const struct backup *b)
{
    return b->options->gradients > 1 && b->has_news && b->members > 2 &&
           b->measured_rounds >= BACKUP_FIRST_AUTO;
}

void backup_decide(struct backup *b, uint64_t now_ns, struct backup_decision *ret_decision)
{
    struct backup_decision d = {.verb = BACKUP_WAIT, .until_ns = BACKUP_NEVER_NS};
    if (b->counted > 0) {
        if (b->options->rule == BACKUP_AUTO || b->options->gradients > 1)
            list_flights(b, now_ns);
        d.go_on_count = may_begin_others(b) ? begin_others(b, now_ns) : 0;
        if (rule_closes(b, now_ns, &d.until_ns)) {
            /* The round closes, so the ranks in `go_on` begin no other gradient. */
            for (size_t i = 0; i < d.go_on_count; i++)
                b->ranks[b->go_on[i]].is_flying = false;
            d = (struct backup_decision){
                .verb = BACKUP_CLOSE, .reason = reason_of(b), .until_ns = BACKUP_NEVER_NS};
        }
        d.go_on = b->go_on;
    }
    b->has_news = false;
    *ret_decision = d;
}
