/* Experiments: moves load from slow lanes to faster lanes, at most one experiment at a time for
 * each job (K46). packer/explore/explore.h decides which pieces move, and whether they move back.
 * This file describes the job for these decisions, divides tasks of which only some pieces move,
 * and moves pieces. Owns struct exploring. */
#include "svc/coordinator/growth/exploring.h"

#include "packer/explore/explore.h"
#include "svc/base/cleanup.h"
#include "svc/base/log.h"
#include "svc/coordinator/aggregator/lane.h"
#include "svc/coordinator/growth/scaling_moves.h"
#include "svc/coordinator/job/hold.h"
#include "svc/coordinator/job/members.h"
#include "svc/coordinator/job/share.h"
#include "svc/coordinator/job/task.h"
#include "svc/coordinator/membership/membership.h"
#include "svc/coordinator/migration/migration.h"
#include "svc/coordinator/placement/neighbour.h"
#include "svc/coordinator/service.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MARGIN_PPM 10000 /* margin below the loss limit, as in the packer (L1) */
/* number of steps of the bisection in room_beside(), enough for a result to a millionth */
#define ROOM_STEPS 20
/* limit of exploring.pause */
#define PAUSE_LOOKS 64

/* A piece of the experiment and its lane before the experiment. The struct has numbers instead of
 * pointers, because the piece or the lane may be freed before the experiment is undone. */
struct origin {
    uint32_t piece, lane;
};

struct exploring {
    struct explore state;
    /* membership: number of changes of the job's ranks or lanes by code outside this file (X8).
     * moved_ns: time of the job's last move, when this file last compared. */
    uint64_t membership, moved_ns;
    uint32_t layout; /* hash of workers and lanes */
    /* Pieces of the experiment and their former lanes. Empty if no piece has to move back. */
    struct origin *origins;
    size_t origins_count;
    /* `pause`: number of measurements between two attempts to move pieces back. `pause_left`:
     * number of measurements until the next attempt. */
    uint32_t pause, pause_left;
    bool is_under_way; /* tasks of the experiment are moving */
};

struct spot {
    struct tensor *tensor;
    struct piece *piece;
};

/* Description of one job, as input of the rules. */
struct sight {
    struct explore_seen seen;
    struct explore_lane lanes[EXPLORE_LANES_MAX];
    struct lane *places[EXPLORE_LANES_MAX];
    struct explore_piece *pieces;
    struct spot *spots; /* spots[i] is the piece that pieces[i] describes */
};

void exploring_free(struct exploring *x)
{
    if (x)
        free(x->origins);
    free(x);
}

/* --- room on a lane: lane time that its other jobs tolerate --- */

static bool are_within(const char *policy, const struct packer_resident *jobs, size_t count)
{
    _cleanup_free_ double *losses = calloc(count + 1, sizeof *losses);
    if (!losses || packer_losses(policy, jobs, count, losses) < 0)
        return false;
    for (size_t i = 0; i < count; i++) {
        uint32_t limit_ppm = jobs[i].timing.loss_limit_ppm;
        limit_ppm = limit_ppm ? limit_ppm : PACKER_LOSS_LIMIT_PPM;
        if (losses[i] * 1e6 + MARGIN_PPM > limit_ppm)
            return false;
    }
    return true;
}

/* Returns the largest lane time that the job may add to the lane so that every job on the lane
 * stays within its loss limit. Found by bisection. */
static uint64_t room_beside(const struct job *job, const struct residents *all, const char *policy,
                            uint64_t lane_ns, uint32_t lane)
{
    size_t first, count = residents_of_lane(all, lane, &first);
    uint64_t low = 0, high = job_timing(job).period_ns;
    _cleanup_free_ struct packer_resident *jobs = calloc(count + 1, sizeof *jobs);
    if (!jobs)
        return 0;
    memcpy(jobs, all->jobs + first, count * sizeof *jobs);
    jobs[count] = (struct packer_resident){.job = job->id, .timing = job_timing(job)};
    for (int i = 0; i < ROOM_STEPS; i++) {
        uint64_t middle = low + (high - low) / 2;
        jobs[count].lane_ns = lane_ns + middle;
        if (are_within(policy, jobs, count + 1))
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Returns how many bytes of tensors the job may add to the lane. 0: the lane time of one of the
 * jobs is not measured. UINT64_MAX: no other job is on the lane, or the policy has no loss
 * limits. */
static uint64_t room_bytes(const struct job *job, const struct residents *all,
                           const struct lane *lane)
{
    const struct share *share = share_in_use(job, lane);
    const char *policy = job->service->options->policy;
    uint64_t lanes_ns = job_tensors_ns(job);
    size_t first, others = lane->jobs - (share != NULL);
    struct packer_resident nobody = {0};
    double none;
    if (others == 0 || packer_losses(policy, &nobody, 0, &none) < 0)
        return UINT64_MAX;
    if (residents_of_lane(all, lane->id, &first) < others || lanes_ns == 0)
        return 0;
    uint64_t room_ns = room_beside(job, all, policy, share ? share->lane_ns : 0, lane->id);
    return (uint64_t)((double)room_ns / (double)lanes_ns * (double)job->index->bytes);
}

/* --- description of the job --- */

static bool is_open(const struct lane *lane)
{
    const struct aggregator *a = lane->aggregator;
    return lane->use == LANE_OPEN && a->state == AGGREGATOR_UP && !a->is_stopping;
}

static int compare_places(const void *a, const void *b)
{
    uint32_t left = (*(struct lane *const *)a)->id, right = (*(struct lane *const *)b)->id;
    return left < right ? -1 : left > right;
}

/* Lists the lanes. Returns 0, or -E2BIG if there are more lanes than the rules can handle. */
static int see_lanes(struct job *job, struct sight *sight)
{
    size_t count = 0;
    list_for_each_entry (struct aggregator, a, &job->service->aggregators, link) {
        for (size_t i = 0; i < a->lanes_count && a->state != AGGREGATOR_LOST; i++) {
            if (!share_in_use(job, &a->lanes[i]) && !is_open(&a->lanes[i]))
                continue;
            if (count == EXPLORE_LANES_MAX)
                return -E2BIG;
            sight->places[count++] = &a->lanes[i];
        }
    }
    qsort(sight->places, count, sizeof *sight->places, compare_places);
    sight->seen.lanes_count = count;
    return 0;
}

static int see_times(const struct job *job, struct sight *sight, uint64_t rounds)
{
    struct residents all;
    int error = residents_gather(job->service, job, &all);
    if (error < 0)
        return error;
    for (size_t i = 0; i < sight->seen.lanes_count; i++) {
        const struct lane *lane = sight->places[i];
        const struct share *share = share_in_use(job, lane);
        sight->lanes[i] = (struct explore_lane){.id = lane->id};
        if (is_open(lane))
            sight->lanes[i].room_bytes = room_bytes(job, &all, lane);
        if (!share)
            continue;
        sight->lanes[i].handled_ns = share->handled_ns * rounds;
        sight->lanes[i].stalled_ns = share->stalled_ns * rounds * members_training(job);
    }
    residents_free(&all);
    return 0;
}

static size_t place_of(const struct sight *sight, struct lane *lane)
{
    struct lane *const *found = bsearch(&lane, sight->places, sight->seen.lanes_count,
                                        sizeof *sight->places, compare_places);
    return found ? (size_t)(found - sight->places) : SIZE_MAX;
}

/* Lists the pieces. Returns 0, or -EBUSY if a piece is not ready or its lane is not listed. */
static int see_pieces(struct job *job, struct sight *sight)
{
    size_t count = 0;
    job_each_tensor (tensor, job) {
        for (size_t i = 0; i < tensor->pieces_count && !tensor->failure; i++) {
            struct piece *piece = &tensor->pieces[i];
            size_t place = piece->lane ? place_of(sight, piece->lane) : SIZE_MAX;
            if (place == SIZE_MAX || piece->state != PIECE_READY)
                return -EBUSY;
            sight->spots[count] = (struct spot){tensor, piece};
            sight->pieces[count++] = (struct explore_piece){
                .lane = (uint32_t)place, .bytes = tensor_bytes(tensor, piece->elements)};
        }
    }
    sight->seen.pieces_count = count;
    return 0;
}

/* Returns a hash of the job's lanes and training workers, to detect changes. The hash ignores
 * whether a lane is open, because a closed lane may open again. */
static uint32_t layout_of(const struct job *job, const struct sight *sight)
{
    /* the version differs if other ranks train, even if their number is the same */
    uint32_t who = members_training(job) + job->ranks->version;
    uint32_t hash = who * UINT32_C(2654435761) + (uint32_t)job->tensors_count;
    for (size_t i = 0; i < sight->seen.lanes_count; i++)
        hash = (hash ^ sight->places[i]->id) * UINT32_C(16777619);
    return hash;
}

/* Forgets the experiment and resets the rules for this job if other code has moved the job's tasks,
 * or if the job's lanes or workers have changed (X8). */
static void look_for_strangers(struct exploring *x, const struct job *job,
                               const struct sight *sight)
{
    uint32_t layout = layout_of(job, sight);
    if (x->layout == layout && x->moved_ns == job->figures->moved_ns)
        return;
    x->membership++;
    x->layout = layout;
    x->moved_ns = job->figures->moved_ns;
    x->origins_count = 0;
}

static int see(struct job *job, uint64_t rounds, uint64_t elapsed_ns, struct sight *sight)
{
    sight->pieces = calloc(job->index->pieces_count + 1, sizeof *sight->pieces);
    sight->spots = calloc(job->index->pieces_count + 1, sizeof *sight->spots);
    int error = sight->pieces && sight->spots ? see_lanes(job, sight) : -ENOMEM;
    if (error == 0)
        error = see_times(job, sight, rounds);
    if (error == 0)
        error = see_pieces(job, sight);
    sight->seen.workers = members_training(job);
    sight->seen.rounds = rounds;
    sight->seen.elapsed_ns = elapsed_ns;
    sight->seen.lanes = sight->lanes;
    sight->seen.pieces = sight->pieces;
    return error;
}

/* --- decisions --- */

static void note(struct job *job, const struct explore_decision *d)
{
    static const char *const kinds[] = {"nothing", "explore", "keep", "roll back"};
    if (d->verb == EXPLORE_NOTHING)
        return log_write(LOG_LEVEL_TRACE, "slow lanes: job %s: %s", job->name, d->reason);
    events_note(job->service->events, kinds[d->verb], "job %s: %s", job->name, d->reason);
    log_info("slow lanes: job %s: %s: %s", job->name, kinds[d->verb], d->reason);
}

/* A piece that moves. Arrays of this struct are sorted by task and target. */
struct leaver {
    struct spot spot;
    struct lane *target;
};

/* Lists the pieces of the experiment that have not returned to their former lane. Pieces that were
 * undeclared or have no lane are left out, and so are pieces whose former lane is not open.
 * `ret_leavers` has room for all origins; NULL: the pieces are only counted. */
static size_t find_returners(const struct job *job, struct leaver *ret_leavers)
{
    const struct exploring *x = job->growth->exploring;
    size_t count = 0;
    for (size_t i = 0; i < x->origins_count; i++) {
        struct lane *lane = lane_find(job->service, x->origins[i].lane);
        struct spot spot;
        spot.piece = jobs_piece(job, x->origins[i].piece, &spot.tensor);
        if (!spot.piece || !spot.piece->lane || !lane || spot.piece->lane == lane || !is_open(lane))
            continue;
        if (ret_leavers)
            ret_leavers[count] = (struct leaver){spot, lane};
        count++;
    }
    return count;
}

/* Called when the moves have ended. If some pieces could not return, the rules are not informed
 * yet, and the pieces are moved again after the next measurement (X4). */
static void trip_over(struct service *s, uint32_t job_id, bool has_moved)
{
    struct job *job = jobs_find_id(s, job_id);
    if (!job || !job->growth->exploring)
        return;
    struct exploring *x = job->growth->exploring;
    x->is_under_way = false;
    /* This move was part of the experiment, so look_for_strangers() must ignore the move. */
    x->moved_ns = job->figures->moved_ns;
    if (x->state.phase != EXPLORE_RETURNING || find_returners(job, NULL) == 0)
        explore_moved(&x->state, has_moved);
}

static int compare_leavers(const void *a, const void *b)
{
    const struct leaver *left = a, *right = b;
    if (left->spot.piece->task != right->spot.piece->task)
        return left->spot.piece->task < right->spot.piece->task ? -1 : 1;
    if (left->target->id != right->target->id)
        return left->target->id < right->target->id ? -1 : 1;
    return left->spot.piece->id < right->spot.piece->id
               ? -1
               : left->spot.piece->id > right->spot.piece->id;
}

/* Begins the moves. Pieces with the same task and the same target become a new task. Sorts
 * `leavers`. */
static int send_off(struct job *job, struct leaver *leavers, size_t count)
{
    _cleanup_free_ struct task_move *moves = calloc(count + 1, sizeof *moves);
    _cleanup_free_ struct spot_of_task *parts = calloc(count + 1, sizeof *parts);
    size_t tasks = 0;
    if (!moves || !parts)
        return -ENOMEM;
    qsort(leavers, count, sizeof *leavers, compare_leavers);
    for (size_t i = 0; i < count; i++) {
        const struct leaver *l = &leavers[i], *before = i ? l - 1 : NULL;
        bool is_same = before && before->spot.piece->task == l->spot.piece->task &&
                       before->target == l->target;
        if (!is_same)
            moves[tasks++] = (struct task_move){.lane = l->target->id, .how = SHARE_SHIFTED};
        parts[i] = (struct spot_of_task){l->spot.tensor, l->spot.piece, (uint32_t)tasks - 1};
    }
    int error = tasks_split(job, parts, count, tasks);
    for (size_t i = 0; error == 0 && i < count; i++)
        moves[parts[i].part].task = parts[i].piece->task;
    if (error == 0 && !scaling_trip(job, moves, tasks, trip_over))
        error = -EAGAIN;
    job->growth->exploring->is_under_way = error == 0;
    return error;
}

static int move_there(struct job *job, const struct sight *sight, const struct explore_move *moves,
                      size_t count)
{
    struct exploring *x = job->growth->exploring;
    _cleanup_free_ struct leaver *leavers = calloc(count + 1, sizeof *leavers);
    struct origin *origins = realloc(x->origins, (count + 1) * sizeof *origins);
    if (origins)
        x->origins = origins;
    if (!leavers || !origins)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++) {
        const struct spot *spot = &sight->spots[moves[i].piece];
        origins[i] = (struct origin){spot->piece->id, spot->piece->lane->id};
        leavers[i] = (struct leaver){*spot, sight->places[moves[i].lane]};
    }
    x->origins_count = count;
    return send_off(job, leavers, count);
}

static void move_back(struct job *job)
{
    struct exploring *x = job->growth->exploring;
    _cleanup_free_ struct leaver *leavers = calloc(x->origins_count + 1, sizeof *leavers);
    size_t count = leavers ? find_returners(job, leavers) : 0;
    int error = leavers ? 0 : -ENOMEM;
    if (count > 0)
        error = send_off(job, leavers, count);
    else if (leavers)
        explore_moved(&x->state, true);
    if (error < 0)
        log_warn(
            "slow lanes: job %s: the return of its tasks is postponed: %s; the service tries again",
            job->name, err_text(error));
}

/* Called after each measurement while pieces have to move back. Moves the pieces at the first call,
 * then after pauses of doubling length. */
static void try_again(struct job *job)
{
    struct exploring *x = job->growth->exploring;
    if (x->pause_left > 0) {
        x->pause_left--;
        return;
    }
    x->pause = x->pause >= PAUSE_LOOKS / 2 ? PAUSE_LOOKS : 2 * x->pause + 1;
    x->pause_left = x->pause - 1;
    move_back(job);
}

static void begin_return(struct job *job)
{
    job->growth->exploring->pause = job->growth->exploring->pause_left = 0;
    move_back(job);
}

static void carry_out(struct job *job, const struct sight *sight, const struct explore_move *moves,
                      const struct explore_decision *d)
{
    int error = 0;
    note(job, d);
    if (d->verb == EXPLORE_MOVE)
        error = move_there(job, sight, moves, d->moves_count);
    else if (d->verb == EXPLORE_BACK)
        begin_return(job);
    if (error < 0) {
        log_warn("slow lanes: job %s: tasks stay on their lanes: %s; the service tries again",
                 job->name, err_text(error));
        explore_moved(&job->growth->exploring->state, false);
    }
}

static bool is_away(const struct lane *lane)
{
    return lane && lane->aggregator->state == AGGREGATOR_AWAY;
}

/* Returns whether the job or its experiment has a lane on a disconnected aggregator. Such a lane
 * cannot carry out a decision, so decisions wait until the aggregator is connected or lost. */
static bool waits_for_lanes(const struct job *job)
{
    const struct exploring *x = job->growth->exploring;
    bool waits = false;
    for (size_t i = 0; i < job->shares_count; i++)
        waits |= is_away(job->shares[i].lane);
    for (size_t i = 0; i < x->origins_count; i++)
        waits |= is_away(lane_find(job->service, x->origins[i].lane));
    return waits;
}

/* Returns whether the rules may examine the job now: no snapshot and no other move is in progress,
 * and the job has tensors. A job that has only tables cannot be moved. */
static bool is_due(struct job *job)
{
    struct err err;
    if (!job->service->options->explores || job->failure || job->index->pieces_count == 0 ||
        order_hold_ns(job) > 0 || job->service->phase != SERVICE_UP || moving_check(job, &err) < 0)
        return false;
    if (!job->growth->exploring)
        job->growth->exploring = calloc(1, sizeof *job->growth->exploring);
    return job->growth->exploring && !job->growth->exploring->is_under_way && !waits_for_lanes(job);
}

void exploring_look(struct job *job, uint64_t rounds, uint64_t elapsed_ns)
{
    struct sight sight = {0};
    struct explore_decision d;
    const struct explore_options options = {.is_blind = job->service->options->explores ==
                                                        COORDINATOR_EXPLORES_BLINDLY};
    if (!is_due(job))
        return;
    _cleanup_free_ struct explore_move *moves = calloc(job->index->pieces_count + 1, sizeof *moves);
    if (moves && see(job, rounds, elapsed_ns, &sight) == 0) {
        struct exploring *x = job->growth->exploring;
        look_for_strangers(x, job, &sight);
        sight.seen.membership = x->membership;
        uint64_t seed = job->id * UINT64_C(0x9e3779b97f4a7c15);
        bool goes_back = x->state.phase == EXPLORE_RETURNING;
        if (explore_tick(&x->state, &options, &sight.seen, seed, clock_now_ns(), moves, &d) == 0)
            carry_out(job, &sight, moves, &d);
        if (goes_back && x->state.phase == EXPLORE_RETURNING)
            try_again(job);
    }
    free(sight.pieces);
    free(sight.spots);
}
