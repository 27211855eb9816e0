/* Owns lanes, residents, the pieces of placed jobs, and the moves between lanes. Must contain no
 * rule of placement: the packer decides, and this file applies the plan. */
#include "bench/sim/lanes/cluster.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GIB ((double)(1 << 30))
/* minimum of a job's default number of lanes; equal to the packer's value */
#define LANES_OF_A_JOB_MIN 8
#define DRAINS_TRIED 8 /* consolidation tries to empty this many of the least busy lanes */
#define NO_LANE SIZE_MAX

int cluster_init(struct cluster *cluster, const struct setting *setting, size_t jobs_count)
{
    *cluster = (struct cluster){.setting = setting, .jobs_count = jobs_count};
    cluster->jobs = calloc(jobs_count + 1, sizeof(*cluster->jobs));
    return cluster->jobs ? 0 : -ENOMEM;
}

void cluster_fini(struct cluster *cluster)
{
    for (size_t i = 0; i < cluster->lanes_count; i++)
        free(cluster->lanes[i].residents);
    for (size_t i = 0; i < cluster->jobs_count && cluster->jobs; i++)
        free(cluster->jobs[i].pieces);
    free(cluster->lanes);
    free(cluster->jobs);
    *cluster = (struct cluster){0};
}

/* --- residents of the lanes --- */

static size_t find_resident(const struct cluster_lane *lane, size_t job)
{
    size_t at = 0;

    while (at < lane->count && lane->residents[at].job != job)
        at++;
    return at;
}

static int add_work(struct cluster *cluster, size_t lane_id, size_t job, uint64_t ns)
{
    struct cluster_lane *lane = &cluster->lanes[lane_id];
    size_t at = find_resident(lane, job);

    if (at == lane->capacity) {
        size_t capacity = lane->capacity ? 2 * lane->capacity : 4;
        struct packer_resident *all = reallocarray(lane->residents, capacity, sizeof(*all));

        if (!all)
            return -ENOMEM;
        lane->residents = all;
        lane->capacity = capacity;
    }
    if (at == lane->count) {
        cluster->lanes_open += lane->count == 0;
        lane->residents[lane->count++] =
            (struct packer_resident){.job = job, .timing = cluster->jobs[job].timing};
    }
    lane->residents[at].lane_ns += ns;
    return 0;
}

/* Removes work from a lane. Residents keep their order, because the packer's result must not depend
 * on earlier placements. */
static void remove_work(struct cluster *cluster, size_t lane_id, size_t job, uint64_t ns)
{
    struct cluster_lane *lane = &cluster->lanes[lane_id];
    size_t at = find_resident(lane, job);

    lane->residents[at].lane_ns -= ns;
    if (lane->residents[at].lane_ns > 0)
        return;
    lane->count--;
    memmove(&lane->residents[at], &lane->residents[at + 1],
            (lane->count - at) * sizeof(*lane->residents));
    cluster->lanes_open -= lane->count == 0;
}

double cluster_busy(const struct cluster *cluster, size_t lane)
{
    double busy = 0;

    for (size_t i = 0; i < cluster->lanes[lane].count; i++) {
        const struct packer_resident *resident = &cluster->lanes[lane].residents[i];

        busy += (double)resident->lane_ns / (double)resident->timing.period_ns;
    }
    return busy;
}

static int add_lanes(struct cluster *cluster, size_t closed_wanted)
{
    size_t closed = cluster->lanes_count - cluster->lanes_open, count;
    struct cluster_lane *lanes;

    if (closed >= closed_wanted)
        return 0;
    count = cluster->lanes_open + closed_wanted;
    lanes = reallocarray(cluster->lanes, count, sizeof(*lanes));
    if (!lanes)
        return -ENOMEM;
    memset(lanes + cluster->lanes_count, 0, (count - cluster->lanes_count) * sizeof(*lanes));
    cluster->lanes = lanes;
    cluster->lanes_count = count;
    return 0;
}

/* --- requests --- */

/* The lanes for a request to the packer. `others`: residents of the job's lanes, without the
 * job. */
struct view {
    struct packer_lane *lanes;
    size_t count;
    struct packer_resident *others;
    size_t others_count;
};

static void view_fini(struct view *view)
{
    free(view->lanes);
    free(view->others);
}

static int view_init(struct view *view, const struct cluster *cluster, size_t job)
{
    size_t others = 1;

    for (size_t i = 0; i < cluster->lanes_count; i++)
        if (find_resident(&cluster->lanes[i], job) < cluster->lanes[i].count)
            others += cluster->lanes[i].count;
    *view = (struct view){.lanes = calloc(cluster->lanes_count + 1, sizeof(*view->lanes)),
                          .others = calloc(others, sizeof(*view->others))};
    return view->lanes && view->others ? 0 : -ENOMEM;
}

/* Returns the free bandwidth. Every pushed byte is received once and sent once by the lane. */
static uint64_t network_left(const struct cluster *cluster, size_t lane)
{
    const struct setting *s = cluster->setting;
    double all = 2 * SETTING_LANE_LINES * s->line_gbit_per_s / 8 * 1e9;
    double used = 2 * s->x_gib_per_s * GIB * cluster_busy(cluster, lane);

    return used < all ? (uint64_t)(all - used) : 0;
}

static void view_lane(struct view *view, const struct cluster *cluster, size_t id, size_t job)
{
    const struct cluster_lane *lane = &cluster->lanes[id];
    size_t own = find_resident(lane, job);
    struct packer_lane *shown = &view->lanes[view->count++];

    *shown = (struct packer_lane){
        .id = (uint32_t)id,
        .jobs = (uint32_t)lane->count,
        .memory_bytes = UINT64_MAX,
        .state = lane->count > 0 ? PACKER_LANE_OPEN : PACKER_LANE_UNSTARTED,
        .nic_bytes_per_s = network_left(cluster, id),
        .residents = lane->residents,
        .residents_count = lane->count,
    };
    if (own == lane->count)
        return;
    shown->job_lane_ns = lane->residents[own].lane_ns;
    shown->job_bytes = 1; /* any value above 0 means that the job is on the lane */
    shown->residents = view->others + view->others_count;
    for (size_t i = 0; i < lane->count; i++)
        if (i != own)
            view->others[view->others_count++] = lane->residents[i];
    shown->residents_count = --shown->jobs;
}

/* Returns the number of closed lanes to offer to the job. */
static size_t lanes_to_open(const struct cluster *cluster, const struct job_profile *profile)
{
    size_t most = profile->workers > LANES_OF_A_JOB_MIN ? profile->workers : LANES_OF_A_JOB_MIN;
    size_t all = cluster->setting->lanes, open = cluster->lanes_open;

    if (all == 0)
        return most;
    return all < open ? 0 : all - open < most ? all - open : most;
}

/* Describes all open lanes except lane `but`, and a number of closed lanes (`closed`). */
static void view_fill(struct view *view, const struct cluster *cluster, size_t job, size_t but,
                      size_t closed)
{
    for (size_t id = 0; id < cluster->lanes_count; id++) {
        bool is_open = cluster->lanes[id].count > 0;

        if (id == but || (!is_open && closed == 0))
            continue;
        closed -= !is_open;
        view_lane(view, cluster, id, job);
    }
}

static int ask(struct cluster *cluster, const struct view *view, size_t job,
               const struct packer_tensor *tensors, size_t count, struct packer_plan *ret_plan)
{
    const struct job_profile *profile = cluster->jobs[job].profile;
    const struct packer_request request = {
        .policy = cluster->setting->policy,
        .workers = profile->workers,
        .job_key = job,
        .lanes = view->lanes,
        .lanes_count = view->count,
        .tensors = tensors,
        .tensors_count = count,
        .piece_bytes_max = profile->piece_bytes,
        .timing = cluster->jobs[job].timing,
    };

    return packer_place(&request, ret_plan, cluster->reason, sizeof(cluster->reason));
}

/* --- placement and removal of a job --- */

static int take_plan(struct cluster *cluster, size_t job, struct packer_plan *plan)
{
    struct cluster_job *j = &cluster->jobs[job];
    int r = 0;

    for (size_t i = 0; i < plan->pieces_count && r == 0; i++)
        r = add_work(cluster, plan->pieces[i].lane, job,
                     job_profile_piece_ns(j->profile, &plan->pieces[i]));
    j->pieces = plan->pieces;
    j->count = plan->pieces_count;
    j->is_placed = true;
    plan->pieces = NULL;
    return r;
}

int cluster_place(struct cluster *cluster, size_t job, const struct job_profile *profile)
{
    struct cluster_job *j = &cluster->jobs[job];
    struct packer_plan plan = {0};
    struct view view;
    size_t closed = lanes_to_open(cluster, profile);
    int r = add_lanes(cluster, closed);

    if (r < 0)
        return r;
    *j = (struct cluster_job){.profile = profile, .timing = profile->timing};
    r = view_init(&view, cluster, job);
    if (r == 0) {
        view_fill(&view, cluster, job, NO_LANE, closed);
        r = ask(cluster, &view, job, profile->tensors, profile->tensors_count, &plan);
    }
    if (r == 0)
        r = take_plan(cluster, job, &plan);
    packer_plan_fini(&plan);
    view_fini(&view);
    return r;
}

void cluster_remove(struct cluster *cluster, size_t job)
{
    struct cluster_job *j = &cluster->jobs[job];

    for (size_t i = 0; i < j->count; i++)
        remove_work(cluster, j->pieces[i].lane, job,
                    job_profile_piece_ns(j->profile, &j->pieces[i]));
    free(j->pieces);
    *j = (struct cluster_job){0};
}

/* --- drains --- */

/* A moved piece with its former lane, for the roll-back. */
struct step {
    size_t job, piece;
    uint32_t source;
};

struct drain {
    struct cluster *cluster;
    uint32_t lane;
    struct step *steps;
    size_t steps_count;
};

static int move_piece(struct cluster *cluster, size_t job, size_t piece, uint32_t target)
{
    struct cluster_job *j = &cluster->jobs[job];
    uint64_t ns = job_profile_piece_ns(j->profile, &j->pieces[piece]);
    int r = add_work(cluster, target, job, ns);

    if (r < 0)
        return r;
    remove_work(cluster, j->pieces[piece].lane, job, ns);
    j->pieces[piece].lane = target;
    return 0;
}

/* Describes a job's pieces on the lane, each as a tensor. */
static size_t gather(const struct drain *drain, size_t job, struct packer_tensor *ret_tensors)
{
    const struct cluster_job *j = &drain->cluster->jobs[job];
    size_t count = 0;

    for (size_t i = 0; i < j->count; i++) {
        if (j->pieces[i].lane != drain->lane)
            continue;
        ret_tensors[count++] = (struct packer_tensor){
            .id = (uint32_t)i,
            .elements = j->pieces[i].elements,
            .element_bytes = drain->cluster->setting->element_bytes,
            .lane_ns = job_profile_piece_ns(j->profile, &j->pieces[i]),
            .wire_bytes = 2 * j->profile->workers * j->pieces[i].elements *
                          drain->cluster->setting->element_bytes,
        };
    }
    return count;
}

static int follow(struct drain *drain, size_t job, const struct packer_plan *plan)
{
    int r = 0;

    for (size_t i = 0; i < plan->pieces_count && r == 0; i++) {
        size_t piece = plan->pieces[i].tensor;

        drain->steps[drain->steps_count++] = (struct step){job, piece, drain->lane};
        r = move_piece(drain->cluster, job, piece, plan->pieces[i].lane);
    }
    return r;
}

static int rehome(struct drain *drain, size_t job)
{
    struct cluster *cluster = drain->cluster;
    size_t pieces = cluster->jobs[job].count, count;
    struct packer_tensor *tensors = calloc(pieces, sizeof(*tensors));
    struct step *steps =
        reallocarray(drain->steps, drain->steps_count + pieces, sizeof(*drain->steps));
    struct packer_plan plan = {0};
    struct view view = {0};
    int r = tensors && steps ? view_init(&view, cluster, job) : -ENOMEM;

    drain->steps = steps ? steps : drain->steps;
    if (r == 0) {
        count = gather(drain, job, tensors);
        view_fill(&view, cluster, job, drain->lane, 0);
        r = view.count > 0 ? ask(cluster, &view, job, tensors, count, &plan) : -ENOSPC;
        /* the drain must not split a piece */
        if (r == 0 && plan.pieces_count != count)
            r = -ENOSPC;
    }
    if (r == 0)
        r = follow(drain, job, &plan);
    packer_plan_fini(&plan);
    view_fini(&view);
    free(tensors);
    return r;
}

static void put_back(struct drain *drain)
{
    while (drain->steps_count > 0) {
        const struct step *step = &drain->steps[--drain->steps_count];

        /* The lane had room for the piece before the move, so nothing is allocated. */
        move_piece(drain->cluster, step->job, step->piece, step->source);
    }
}

/* Counts the moves from this lane. All pieces of a job that went to the same lane count as one
 * move. */
static uint64_t count_moves(const struct drain *drain)
{
    uint64_t moves = 0;

    for (size_t i = 0; i < drain->steps_count; i++) {
        const struct step *a = &drain->steps[i];
        const struct packer_piece *pieces = drain->cluster->jobs[a->job].pieces;
        bool is_first = true;

        for (size_t k = i; k-- > 0 && drain->steps[k].job == a->job && is_first;)
            is_first = pieces[drain->steps[k].piece].lane != pieces[a->piece].lane;
        moves += is_first;
    }
    return moves;
}

/* Moves all tasks off the lane, or none. Returns 1: the lane is empty; 0: a task fits on no
 * other lane. */
static int drain_lane(struct cluster *cluster, size_t lane)
{
    struct drain drain = {.cluster = cluster, .lane = (uint32_t)lane};
    int r = 0;

    while (r == 0 && cluster->lanes[lane].count > 0)
        r = rehome(&drain, cluster->lanes[lane].residents[0].job);
    if (r == 0)
        cluster->moves += count_moves(&drain);
    else
        put_back(&drain);
    free(drain.steps);
    return r == 0 ? 1 : r == -ENOSPC ? 0 : r;
}

/* Writes the open lanes, the least busy first. Returns their number. */
static size_t least_busy(const struct cluster *cluster, size_t *ret_lanes, size_t most)
{
    double busy[DRAINS_TRIED];
    size_t count = 0;

    for (size_t lane = 0; lane < cluster->lanes_count; lane++) {
        double share = cluster_busy(cluster, lane);
        size_t at = count;

        if (cluster->lanes[lane].count == 0 || (count == most && share >= busy[count - 1]))
            continue;
        at = count < most ? count++ : count - 1;
        for (; at > 0 && busy[at - 1] > share; at--) {
            busy[at] = busy[at - 1];
            ret_lanes[at] = ret_lanes[at - 1];
        }
        busy[at] = share;
        ret_lanes[at] = lane;
    }
    return count;
}

int cluster_consolidate(struct cluster *cluster)
{
    size_t lanes[DRAINS_TRIED], count = least_busy(cluster, lanes, DRAINS_TRIED);

    for (size_t i = 0; i < count; i++) {
        int r = drain_lane(cluster, lanes[i]);

        if (r < 0)
            return r;
    }
    return 0;
}
