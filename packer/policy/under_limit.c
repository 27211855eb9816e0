/* Owns packing within loss limits: best fit decreasing, all or nothing, with any rule of loss. No
 * plan exceeds a loss limit, neither of the placed job nor of other jobs on its lanes (P9). No lane
 * opens while an open lane has room (P10). loss.h has the rules of loss. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "packer/loss/loss.h"
#include "packer/placement/cut.h"
#include "packer/placement/distribute.h"
#include "packer/policy/policy.h"

#define LANES_OF_A_JOB_MIN 8

/* Two lanes count as equal if the job's spare lane time on them differs by less than a hundredth of
 * the period. */
#define SPARE_STEPS 100

#define PIECES_A_LANE_MIN 8

#define GENTLE_PARTS 4 /* put_gently() tries 2/4 and 3/4 of the loss limit */

struct roomy {
    double room_ns;
    size_t lane;
};

struct fit {
    struct placement *placement;
    const struct loss_rule *rule;
    struct cut *cuts; /* pieces of the request; the piece with the most lane time is first */
    size_t cuts_count;
    /* largest lane time that the job may use on each lane; negative: the job may not use the
     * lane */
    double *room_ns;
    double reserve_ns;   /* part of room_ns that is kept free */
    struct roomy *order; /* lanes, sorted by falling room */
    size_t lanes_max;    /* maximum number of lanes of this job */
    size_t lanes_hosted; /* number of lanes with pieces of the job so far */
};

/* Obstacles of a piece that fits on no lane: for each obstacle the number of lanes that have it,
 * and the largest free amount on one of these lanes. */
struct obstacles {
    size_t memory, network, loss, unmeasured, beyond;
    uint64_t memory_bytes, network_bytes_per_s;
    double room_ns;
};

static const struct packer_lane *lane_at(const struct fit *fit, size_t lane)
{
    return &fit->placement->request->lanes[lane];
}

/* Returns the lane time that the job may still use on the lane. */
static double spare_ns(const struct fit *fit, size_t lane)
{
    return fit->room_ns[lane] - fit->reserve_ns - (double)fit->placement->lanes[lane].job_lane_ns;
}

static double step_ns(const struct placement *placement)
{
    return (double)placement->request->timing.period_ns / SPARE_STEPS;
}

/* --- one piece --- */

static bool is_beyond(const struct fit *fit, size_t lane)
{
    const struct placement_lane *l = &fit->placement->lanes[lane];

    return !l->usable || (!l->hosts_job && fit->lanes_hosted >= fit->lanes_max);
}

static bool is_unmeasured(const struct packer_lane *lane)
{
    return lane->jobs > lane->residents_count;
}

static bool is_admissible(const struct fit *fit, size_t lane, const struct placement_need *need)
{
    return !is_beyond(fit, lane) && spare_ns(fit, lane) >= (double)need->lane_ns &&
           placement_lane_fits(fit->placement, lane, need);
}

/* Returns the position of a lane in the order of opening (parked lanes before lanes of
 * aggregators that are not started); 0: the lane is open, or this plan opens it already. */
static int opening(const struct fit *fit, size_t lane)
{
    return fit->placement->lanes[lane].taken ? 0 : (int)lane_at(fit, lane)->state;
}

/* Returns whether a piece should go to lane a, which has the higher position, and not to lane b
 * (P10). */
static bool is_better(const struct fit *fit, size_t a, size_t b, const struct placement_need *need)
{
    const struct placement_lane *lanes = fit->placement->lanes;
    double step = step_ns(fit->placement);
    bool small = (double)need->lane_ns < step, hosts = lanes[a].hosts_job && !lanes[b].hosts_job;
    uint64_t spare_a, spare_b;

    if (opening(fit, a) != opening(fit, b))
        return opening(fit, a) < opening(fit, b);
    if (small && lanes[a].hosts_job != lanes[b].hosts_job)
        return hosts;
    spare_a = (uint64_t)((spare_ns(fit, a) - (double)need->lane_ns) / step);
    spare_b = (uint64_t)((spare_ns(fit, b) - (double)need->lane_ns) / step);
    return spare_a != spare_b ? spare_a < spare_b : hosts;
}

static void note_obstacle(const struct fit *fit, size_t lane, const struct placement_need *need,
                          struct obstacles *obstacles)
{
    uint64_t memory_bytes = placement_memory_left(fit->placement, lane);
    uint64_t network = placement_nic_left(fit->placement, lane);

    if (is_unmeasured(lane_at(fit, lane))) {
        obstacles->unmeasured++;
    } else if (spare_ns(fit, lane) < (double)need->lane_ns) {
        obstacles->loss++;
        if (spare_ns(fit, lane) > obstacles->room_ns)
            obstacles->room_ns = spare_ns(fit, lane);
    } else if (memory_bytes < need->memory_bytes) {
        obstacles->memory++;
        if (memory_bytes > obstacles->memory_bytes)
            obstacles->memory_bytes = memory_bytes;
    } else if (network < need->nic_bytes_per_s) {
        obstacles->network++;
        if (network > obstacles->network_bytes_per_s)
            obstacles->network_bytes_per_s = network;
    } else {
        obstacles->beyond++;
    }
}

static void say(struct placement *placement, size_t *used, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void say(struct placement *placement, size_t *used, const char *format, ...)
{
    va_list arguments;

    if (*used >= placement->reason_bytes)
        return;
    va_start(arguments, format);
    *used += (size_t)vsnprintf(placement->reason + *used, placement->reason_bytes - *used, format,
                               arguments);
    va_end(arguments);
}

static void say_tensor(struct placement *placement, size_t *used,
                       const struct packer_tensor *tensor)
{
    if (tensor->name)
        say(placement, used, "tensor %.64s", tensor->name);
    else
        say(placement, used, "tensor %" PRIu32, tensor->id);
}

/* Writes the reason: the need of the piece, and for each obstacle the number of lanes and the
 * largest free amount (P11). */
static int refuse(struct fit *fit, const struct cut *cut, const struct placement_need *need)
{
    struct placement *placement = fit->placement;
    struct obstacles o = {0};
    size_t used = 0;

    for (size_t i = 0; i < placement->request->lanes_count; i++)
        note_obstacle(fit, i, need, &o);
    say_tensor(placement, &used, &placement->request->tensors[cut->tensor]);
    say(placement, &used,
        " needs %" PRIu64 " us of lane time a round and %" PRIu64
        " bytes of memory, but none of %zu lanes can take the piece",
        need->lane_ns / 1000, need->memory_bytes, placement->request->lanes_count);
    if (o.loss)
        say(placement, &used, "; lanes over a loss limit: %zu (most free time: %.0f us)", o.loss,
            o.room_ns / 1000);
    if (o.memory)
        say(placement, &used, "; lanes short of memory: %zu (most free: %" PRIu64 " bytes)",
            o.memory, o.memory_bytes);
    if (o.network)
        say(placement, &used,
            "; lanes short of %" PRIu64 " bytes/s of network: %zu (most free: %" PRIu64 ")",
            need->nic_bytes_per_s, o.network, o.network_bytes_per_s);
    if (o.unmeasured)
        say(placement, &used, "; lanes with an unmeasured job: %zu", o.unmeasured);
    if (o.beyond)
        say(placement, &used, "; lanes beyond the job's maximum of %zu: %zu", fit->lanes_max,
            o.beyond);
    return -ENOSPC;
}

static int put(struct fit *fit, const struct cut *cut)
{
    struct placement *placement = fit->placement;
    struct placement_need need = placement_need(placement, cut->tensor, cut->elements);
    size_t count = placement->request->lanes_count, best = count;

    for (size_t i = 0; i < count; i++)
        if (is_admissible(fit, i, &need) && (best == count || is_better(fit, i, best, &need)))
            best = i;
    if (best == count)
        return refuse(fit, cut, &need);
    fit->lanes_hosted += !placement->lanes[best].hosts_job;
    return placement_put(placement, cut->tensor, best, cut->first, cut->elements);
}

/* --- all pieces --- */

static size_t count_hosted(const struct placement *placement)
{
    size_t count = 0;

    for (size_t i = 0; i < placement->request->lanes_count; i++)
        count += placement->lanes[i].hosts_job;
    return count;
}

static int put_all(struct fit *fit)
{
    int error = 0;

    for (size_t i = 0; i < fit->cuts_count && error == 0; i++)
        error = put(fit, &fit->cuts[i]);
    return error;
}

/* Makes at most `lanes_max` lanes usable: first lanes with pieces of the job, then the lanes on
 * which the job may use the most lane time. */
static void keep_roomiest(struct fit *fit, bool open_only)
{
    struct placement *placement = fit->placement;
    size_t kept = fit->lanes_hosted;

    for (size_t i = 0; i < placement->request->lanes_count; i++) {
        size_t lane = fit->order[i].lane;
        bool open = lane_at(fit, lane)->state == PACKER_LANE_OPEN;

        if (placement->lanes[lane].hosts_job)
            continue;
        placement->lanes[lane].usable = kept < fit->lanes_max && (open || !open_only);
        kept += placement->lanes[lane].usable;
    }
}

static void start_again(struct fit *fit)
{
    placement_reset(fit->placement);
    fit->lanes_hosted = count_hosted(fit->placement);
}

/* Places all pieces on at most `lanes_max` lanes (P10). Best fit fills the lanes with the least
 * room first, so `lanes_max` may be reached before all pieces are placed. The second attempt uses
 * the open lanes with the most room, the third attempt the lanes with the most room, open or
 * not. */
static int put_within_lanes_max(struct fit *fit)
{
    int error, attempts;

    start_again(fit);
    error = put_all(fit);
    attempts = fit->lanes_hosted >= fit->lanes_max ? 2 : 0;
    for (int open_only = 1; error == -ENOSPC && attempts > 0; open_only--, attempts--) {
        start_again(fit);
        keep_roomiest(fit, open_only);
        error = put_all(fit);
    }
    return error;
}

static int put_and_deal(struct fit *fit, double reserve_ns)
{
    int error;

    fit->reserve_ns = reserve_ns;
    error = put_within_lanes_max(fit);
    fit->reserve_ns = 0;
    return error == 0 ? distribute_in_order(fit->placement, fit->room_ns, step_ns(fit->placement))
                      : error;
}

static bool is_own(const struct fit *fit, size_t lane)
{
    return fit->placement->lanes[lane].taken && lane_at(fit, lane)->residents_count == 0;
}

static size_t count_own(const struct fit *fit)
{
    size_t count = 0;

    for (size_t i = 0; i < fit->placement->request->lanes_count; i++)
        count += is_own(fit, i);
    return count;
}

static double one_piece_ns(const struct fit *fit)
{
    bool has_many = fit->cuts_count >= PIECES_A_LANE_MIN * fit->lanes_hosted;

    return has_many ? (double)fit->cuts[0].weight : 0;
}

/* Places all pieces again, with a reserve: distribute_in_order() may fail if best fit has filled
 * lanes completely. With a reserve of one piece on each lane the call succeeds, but needs more
 * lanes. Only a job of many pieces has a reserve. The result is refused if the job then has more
 * lanes without other jobs than before, and more lanes than workers. */
static int put_loosely(struct fit *fit)
{
    size_t workers = fit->placement->request->workers, own = count_own(fit);
    double reserve_ns = one_piece_ns(fit);
    int error = reserve_ns > 0 ? put_and_deal(fit, reserve_ns) : -ENOSPC;

    return error == 0 && count_own(fit) > own && count_own(fit) > workers ? -ENOSPC : error;
}

static int put_evenly(struct fit *fit)
{
    int error = put_within_lanes_max(fit);

    if (error < 0)
        return error;
    error = distribute_in_order(fit->placement, fit->room_ns, step_ns(fit->placement));
    if (error == -ENOSPC)
        error = put_loosely(fit);
    return error == -ENOSPC ? put_within_lanes_max(fit) : error;
}

/* --- lanes without other jobs (P15) --- */

static bool loses_by_itself(const struct fit *fit)
{
    const struct placement *placement = fit->placement;
    double free_ns = loss_alone_room_ns(&placement->request->timing, 0);

    for (size_t i = 0; i < placement->request->lanes_count; i++)
        if (is_own(fit, i) && (double)placement->lanes[i].job_lane_ns > free_ns)
            return true;
    return false;
}

/* On lanes without other jobs, limits the room to the lane time with which the job loses `loss`,
 * plus `more_ns`. A lane with a negative value in `ret_room_ns` stays unusable. */
static void take_room(const struct fit *fit, double loss, double more_ns, double *ret_room_ns)
{
    double own_ns = loss_alone_room_ns(&fit->placement->request->timing, loss) + more_ns;

    for (size_t i = 0; i < fit->placement->request->lanes_count; i++) {
        bool is_own_lane = lane_at(fit, i)->residents_count == 0 && own_ns < fit->room_ns[i];

        ret_room_ns[i] = ret_room_ns[i] < 0 ? -1 : is_own_lane ? own_ns : fit->room_ns[i];
    }
}

/* Places all pieces again on the same lanes, with less load on the job's own lanes. The
 * distribution may exceed this load by one piece on each lane. `room_ns` and `wider_room_ns` are
 * buffers with one value for each lane. */
static int put_on_same_lanes(struct fit *fit, double *room_ns, double *wider_room_ns)
{
    double *full_ns = fit->room_ns, limit = loss_limit(&fit->placement->request->timing);
    double piece_ns = (double)fit->cuts[0].weight;
    int error = -ENOSPC;

    for (size_t i = 0; i < fit->placement->request->lanes_count; i++)
        room_ns[i] = wider_room_ns[i] = fit->placement->lanes[i].taken ? 0 : -1;
    for (int part = GENTLE_PARTS / 2; part < GENTLE_PARTS && error == -ENOSPC; part++) {
        take_room(fit, limit * part / GENTLE_PARTS, 0, room_ns);
        take_room(fit, limit * part / GENTLE_PARTS, piece_ns, wider_room_ns);
        fit->room_ns = room_ns;
        error = put_within_lanes_max(fit);
        fit->room_ns = full_ns;
        if (error == 0)
            error = distribute_in_order(fit->placement, wider_room_ns, step_ns(fit->placement));
    }
    return error;
}

/* Places the job. If its pieces on one lane delay each other, places the job again on the same
 * lanes with less load: best fit fills a lane to the limit even if this saves no lane (P15). */
static int put_gently(struct fit *fit)
{
    size_t lanes = fit->placement->request->lanes_count;
    double *room_ns;
    int error = put_evenly(fit);

    if (error < 0 || !loses_by_itself(fit))
        return error;
    room_ns = calloc(2 * lanes, sizeof(*room_ns));
    if (!room_ns)
        return 0;
    error = put_on_same_lanes(fit, room_ns, room_ns + lanes);
    free(room_ns);
    return error == -ENOSPC ? put_evenly(fit) : error;
}

/* --- the report of losses --- */

static uint32_t to_ppm(double loss, double margin)
{
    double ppm = (loss + margin) * 1e6 + 0.5;

    return ppm < 0 ? 0 : ppm < 1e6 ? (uint32_t)ppm : 1000000;
}

/* Lists the residents of a lane, then the placed job. Returns the number of residents. */
static size_t gather_jobs(const struct fit *fit, size_t lane, struct packer_resident *ret_jobs)
{
    const struct packer_lane *l = lane_at(fit, lane);

    for (size_t i = 0; i < l->residents_count; i++)
        ret_jobs[i] = l->residents[i];
    ret_jobs[l->residents_count] = (struct packer_resident){
        .lane_ns = fit->placement->lanes[lane].job_lane_ns,
        .timing = fit->placement->request->timing,
    };
    return l->residents_count;
}

static void report_lane(const struct fit *fit, size_t lane, struct packer_resident *jobs,
                        double *losses)
{
    struct packer_share *share = &fit->placement->shares[lane];
    size_t others = gather_jobs(fit, lane, jobs);
    double margin = others > 0 ? fit->rule->margin : 0;

    fit->rule->losses(jobs, others + 1, losses);
    share->loss_ppm = to_ppm(losses[others], margin);
    share->spare_ns = spare_ns(fit, lane) > 0 ? (uint64_t)spare_ns(fit, lane) : 0;
    for (size_t i = 0; i < others; i++) {
        if (to_ppm(losses[i], margin) <= share->worst_ppm)
            continue;
        share->worst_ppm = to_ppm(losses[i], margin);
        share->worst_job = jobs[i].job;
    }
}

static int report(struct fit *fit)
{
    const struct packer_request *request = fit->placement->request;
    struct packer_resident *jobs;
    double *losses;
    size_t most = 0;
    int error = 0;

    for (size_t i = 0; i < request->lanes_count; i++)
        if (request->lanes[i].residents_count > most)
            most = request->lanes[i].residents_count;
    jobs = calloc(most + 1, sizeof(*jobs));
    losses = calloc(most + 1, sizeof(*losses));
    if (!jobs || !losses)
        error = placement_refuse(fit->placement, -ENOMEM,
                                 "the packer has no memory for the losses of %zu jobs", most);
    for (size_t i = 0; i < request->lanes_count && error == 0; i++)
        if (fit->placement->lanes[i].taken)
            report_lane(fit, i, jobs, losses);
    free(jobs);
    free(losses);
    return error;
}

/* --- the policies --- */

static int compare_roomy(const void *a, const void *b)
{
    const struct roomy *x = a, *y = b;

    if (x->room_ns != y->room_ns)
        return x->room_ns > y->room_ns ? -1 : 1;
    return (x->lane > y->lane) - (x->lane < y->lane);
}

static int fit_init(struct fit *fit, struct placement *placement, const struct loss_rule *rule)
{
    const struct packer_request *request = placement->request;
    size_t lanes_min =
        request->workers > LANES_OF_A_JOB_MIN ? request->workers : LANES_OF_A_JOB_MIN;

    *fit = (struct fit){
        .placement = placement,
        .rule = rule,
        .room_ns = calloc(request->lanes_count, sizeof(*fit->room_ns)),
        .order = calloc(request->lanes_count, sizeof(*fit->order)),
        .lanes_max = request->lanes_max ? request->lanes_max : lanes_min,
    };
    if (!fit->room_ns || !fit->order)
        return placement_refuse(placement, -ENOMEM, "the packer has no memory for %zu lanes",
                                request->lanes_count);
    for (size_t i = 0; i < request->lanes_count; i++) {
        const struct packer_lane *lane = &request->lanes[i];

        fit->room_ns[i] =
            is_unmeasured(lane)
                ? -1
                : rule->room_ns(lane->residents, lane->residents_count, &request->timing);
        fit->order[i] = (struct roomy){fit->room_ns[i], i};
    }
    qsort(fit->order, request->lanes_count, sizeof(*fit->order), compare_roomy);
    return cut_by_lane_time(placement, &fit->cuts, &fit->cuts_count);
}

static void fit_fini(struct fit *fit)
{
    free(fit->cuts);
    free(fit->room_ns);
    free(fit->order);
}

int policy_under_limit(struct placement *placement, const struct loss_rule *rule)
{
    struct fit fit;
    int error;

    if (placement->request->timing.period_ns == 0)
        return policy_unmeasured(placement);
    error = fit_init(&fit, placement, rule);
    if (error == 0)
        error = put_gently(&fit);
    if (error == 0)
        error = report(&fit);
    fit_fini(&fit);
    return error;
}

int policy_shared(struct placement *placement)
{
    return policy_under_limit(placement, &loss_shared);
}
