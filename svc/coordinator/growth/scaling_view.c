/* Describes lanes, measured jobs and tasks to the rules of growth (packer G10). Owns nothing.
 * Changes only the last busy time of each lane. */
#include "svc/coordinator/growth/scaling_view.h"

#include "svc/base/cleanup.h"
#include "svc/coordinator/aggregator/busy_time.h"
#include "svc/coordinator/aggregator/lane.h"
#include "svc/coordinator/fleet/open_lanes.h"
#include "svc/coordinator/job/hold.h"
#include "svc/coordinator/job/share.h"
#include "svc/coordinator/measure/measure.h"
#include "svc/coordinator/migration/migration.h"
#include "svc/coordinator/placement/neighbour.h"
#include "svc/coordinator/service.h"

#include <errno.h>
#include <stdlib.h>

/* --- lanes --- */

static struct scale_lane *add_lane(struct scaling_look *look, uint32_t id, uint32_t aggregator,
                                   enum packer_lane_state state, bool is_changing)
{
    struct scale_lane *to = &look->lanes[look->seen.lanes_count++];
    *to = (struct scale_lane){.lane = {.id = id, .state = state, .memory_bytes = UINT64_MAX},
                              .aggregator = aggregator,
                              .is_changing = is_changing};
    return to;
}

/* Returns the busy share of the lane between its last two measurements, in millionths. */
static uint64_t load_ppm(struct lane *lane)
{
    const WIRE(LaneUse) *use = stats_of_lane(lane);
    uint64_t at_ns = lane->aggregator->measured_ns, load = 0;
    if (!use || at_ns == lane->worked_at_ns)
        return lane->load_ppm;
    if (lane->worked_at_ns > 0 && use->busy_ns >= lane->worked_ns)
        load = (uint64_t)((double)(use->busy_ns - lane->worked_ns) * 1e6 /
                          (double)(at_ns - lane->worked_at_ns));
    lane->worked_at_ns = at_ns;
    lane->worked_ns = use->busy_ns;
    return lane->load_ppm = load;
}

/* Adds the lane to the description. Growth must neither open nor close a lane that is withheld, or
 * whose aggregator is away or about to end. Such a lane is described as changing, and is left out
 * if no task is on the lane or moves there. */
static void see_lane(struct scaling_look *look, struct lane *lane, bool is_kept)
{
    const struct aggregator *a = lane->aggregator;
    bool is_there = a->state == AGGREGATOR_UP && !a->is_stopping && lane->use != LANE_WITHHELD;
    bool is_open = lane->use == LANE_OPEN && (is_there || a->state == AGGREGATOR_AWAY);
    bool is_used = lane->jobs > 0 || lane->arriving > 0;
    bool is_parked = lane->use == LANE_PARKED && !is_used;
    struct scale_lane *to;
    if (is_parked && is_there)
        to = add_lane(look, lane->id, a->id, PACKER_LANE_PARKED, false);
    else if (is_used || is_open || (is_there && lane->use == LANE_CLOSING))
        to = add_lane(look, lane->id, a->id, PACKER_LANE_OPEN, !(is_open && is_there));
    else
        return;
    to->is_kept = is_kept;
    /* shards do not move, so a lane with shards stays open */
    to->is_awaited = lane->arriving > 0 || lane->shards > 0;
    to->lane.load_ppm = load_ppm(lane);
    to->lane.numa = lane->numa;
    budgets_of_lane(&look->budgets, lane, &to->lane);
}

static void see_slot(struct scaling_look *look, const struct slot *slot)
{
    bool is_coming = fleet_is_coming(slot);
    if (!is_coming && !fleet_may_start(slot))
        return;
    uint32_t count = is_coming ? slot->open_count : slot->lanes_count;
    for (uint32_t i = 0; i < count; i++)
        add_lane(look, slot_lane(slot, i), slot_aggregator(slot), PACKER_LANE_UNSTARTED, is_coming);
}

static int compare_lanes(const void *a, const void *b)
{
    uint32_t left = ((const struct scale_lane *)a)->lane.id,
             right = ((const struct scale_lane *)b)->lane.id;
    return left < right ? -1 : left > right;
}

static void see_lanes(struct service *s, struct scaling_look *look)
{
    bool all_kept = fleet_wanted(s) <= fleet_least(s);
    list_for_each_entry (struct aggregator, a, &s->aggregators, link) {
        for (size_t i = 0; i < a->lanes_count && a->state != AGGREGATOR_LOST; i++)
            see_lane(look, &a->lanes[i],
                     all_kept || a->slot == 0 || a->slot > s->fleet->slots_count);
    }
    for (size_t i = 0; i < s->fleet->slots_count; i++)
        see_slot(look, &s->fleet->slots[i]);
    qsort(look->lanes, look->seen.lanes_count, sizeof *look->lanes, compare_lanes);
}

/* Returns the index of the lane in the description; SIZE_MAX: the lane was not added. */
static size_t position_of(const struct scaling_look *look, const struct lane *lane)
{
    struct scale_lane key = {.lane = {.id = lane->id}};
    const struct scale_lane *found =
        bsearch(&key, look->lanes, look->seen.lanes_count, sizeof key, compare_lanes);
    return found ? (size_t)(found - look->lanes) : SIZE_MAX;
}

/* --- tasks --- */

struct task_part {
    uint32_t task, lane, pieces;
    uint64_t bytes;
    double lane_ns; /* measured lane time of the task's tensors for a round; 0: unknown */
};

/* Sums over the tasks of a job on one lane. The array of sums has the same order as the lanes of
 * the description. */
struct sum {
    double bytes, parts_ns;
    uint64_t lane_ns; /* measured lane time of a round for all tasks of the job on the lane */
};

static int compare_parts(const void *a, const void *b)
{
    uint32_t left = ((const struct task_part *)a)->task,
             right = ((const struct task_part *)b)->task;
    return left < right ? -1 : left > right;
}

/* Lists the pieces that have a lane, sorted by task. */
static size_t list_parts(const struct scaling_look *look, const struct job *job,
                         struct task_part *parts)
{
    const struct lane *last = NULL;
    size_t count = 0, lane = SIZE_MAX;
    job_each_tensor (tensor, job) {
        double element_ns =
            tensor->elements ? (double)tensor->lane_ns / (double)tensor->elements : 0;
        tensor_each_piece (piece, tensor) {
            if (piece->lane && piece->lane != last)
                lane = position_of(look, last = piece->lane);
            if (piece->lane && lane != SIZE_MAX)
                parts[count++] =
                    (struct task_part){.task = piece->task,
                                       .lane = (uint32_t)lane,
                                       .pieces = 1,
                                       .bytes = tensor_bytes(tensor, piece->elements),
                                       .lane_ns = element_ns * (double)piece->elements};
        }
    }
    qsort(parts, count, sizeof *parts, compare_parts);
    return count;
}

/* Merges adjacent pieces of one task, and adds their times and bytes to the sums of their lanes. */
static size_t merge_parts(struct task_part *parts, size_t count, struct sum *sums)
{
    size_t tasks = 0;
    for (size_t i = 0; i < count; i++) {
        sums[parts[i].lane].bytes += (double)parts[i].bytes;
        sums[parts[i].lane].parts_ns += parts[i].lane_ns;
        if (tasks > 0 && parts[tasks - 1].task == parts[i].task) {
            parts[tasks - 1].pieces += parts[i].pieces;
            parts[tasks - 1].bytes += parts[i].bytes;
            parts[tasks - 1].lane_ns += parts[i].lane_ns;
        } else {
            parts[tasks++] = parts[i];
        }
    }
    return tasks;
}

/* Returns the lane time of a task for a round. The measured lane time of the job on this lane is
 * divided among its tasks, in proportion to the measured times of their tensors, or to their bytes
 * while these times are unknown. */
static uint64_t task_lane_ns(const struct task_part *part, const struct sum *sum)
{
    if (sum->lane_ns == 0)
        return (uint64_t)part->lane_ns;
    double of = sum->parts_ns > 0 ? part->lane_ns / sum->parts_ns
                : sum->bytes > 0  ? (double)part->bytes / sum->bytes
                                  : 0;
    return (uint64_t)((double)sum->lane_ns * of);
}

static void add_tasks(struct scaling_look *look, const struct job *job, uint32_t position,
                      struct task_part *parts, struct sum *sums)
{
    for (size_t i = 0; i < look->seen.lanes_count; i++)
        sums[i] = (struct sum){0};
    for (size_t i = 0; i < job->shares_count; i++) {
        size_t lane = position_of(look, job->shares[i].lane);
        if (lane != SIZE_MAX)
            sums[lane].lane_ns = job->shares[i].lane_ns - share_rows_ns(job, &job->shares[i]);
    }
    size_t count = merge_parts(parts, list_parts(look, job, parts), sums);
    uint64_t piece_bytes = budgets_piece_bytes(job);
    for (size_t i = 0; i < count; i++) {
        size_t at = look->seen.tasks_count++;
        look->numbers[at] = parts[i].task;
        look->tasks[at] =
            (struct scale_task){.job = position,
                                .lane = parts[i].lane,
                                .bytes = parts[i].bytes,
                                .state_bytes = parts[i].pieces * piece_bytes + (piece_bytes == 0),
                                .lane_ns = task_lane_ns(&parts[i], &sums[parts[i].lane])};
    }
}

/* Adds one task for the job's shards on each lane, so that their lane time counts as load. Growth
 * never moves this task, because a job with tables is pinned (is_ordered) and its lanes stay
 * open. */
static void add_shards(struct scaling_look *look, const struct job *job, uint32_t position)
{
    for (size_t i = 0; i < job->shares_count; i++) {
        const struct share *share = &job->shares[i];
        size_t lane = position_of(look, share->lane);
        uint64_t rows_ns = share_rows_ns(job, share);
        if (rows_ns == 0 || share->pieces == 0 || lane == SIZE_MAX)
            continue;
        look->tasks[look->seen.tasks_count++] = (struct scale_task){
            .job = position, .lane = (uint32_t)lane, .state_bytes = 1, .lane_ns = rows_ns};
    }
}

/* --- jobs --- */

/* Returns whether growth must not move the job: the job has failed, is moving, or has a piece that
 * is not ready. */
static bool is_moving(const struct job *job)
{
    if (job->failure || moving_is_busy(job))
        return true;
    for (size_t t = 0; t < job->tensors_count; t++)
        for (size_t i = 0; i < job->tensors[t]->pieces_count && !job->tensors[t]->failure; i++)
            if (job->tensors[t]->pieces[i].state != PIECE_READY)
                return true;
    return false;
}

/* Returns whether the job was measured only on lanes with other jobs. Its loss is then unknown,
 * because there is no measurement without other jobs. */
static bool wants_alone(const struct job *job)
{
    return job->profile->now.period_ns > 0 && !profile_knows_alone(job->profile) &&
           !job_is_idle(job);
}

/* Returns how many lanes are enough for the job; 0: unknown, for example for an idle job, which is
 * not measured. With --explore the result is always 0, because growth would otherwise undo the
 * moves of experiments. */
static uint32_t lanes_enough(const struct job *job)
{
    bool is_sought =
        !job_is_idle(job) && profile_knows_alone(job->profile) && !job->service->options->explores;
    return is_sought ? job->profile->narrow.enough : 0;
}

static void see_job(struct scaling_look *look, struct job *job, struct task_part *parts,
                    struct sum *sums)
{
    size_t position = look->seen.jobs_count++;
    look->owners[position] = job;
    look->jobs[position] =
        (struct scale_job){.id = job->id,
                           .workers = job->workers,
                           .loss_ppm = profile_loss_ppm(job->profile),
                           .shared_ppm = job_shared_loss_ppm(job),
                           .is_shared_measured = job_knows_shared_loss(job),
                           .timing = job_resident_timing(job),
                           .is_moving = is_moving(job),
                           .is_ordered = order_hold_ns(job) > 0 || job->index->tables.count > 0,
                           .wants_alone = wants_alone(job),
                           .lanes_enough = lanes_enough(job),
                           .lanes_next = narrow_next(&job->profile->narrow),
                           .memory = &job->growth->memory};
    if (job->waiting->start_by_ns > clock_now_ns())
        look->wishes[look->seen.wishes_count++] = (struct scale_wish){job->id, 1};
    add_tasks(look, job, (uint32_t)position, parts, sums);
    add_shards(look, job, (uint32_t)position);
}

/* --- the whole description --- */

struct sizes {
    size_t lanes, jobs, pieces, pieces_most; /* pieces_most: largest number of pieces of one job */
    size_t shares;                           /* number of pairs of a job and one of its lanes */
};

static struct sizes count(const struct service *s)
{
    struct sizes sizes = {1, 1, 1, 1, 0};
    list_for_each_entry (struct aggregator, a, &s->aggregators, link)
        sizes.lanes += a->lanes_count;
    for (size_t i = 0; i < s->fleet->slots_count; i++)
        sizes.lanes += s->fleet->slots[i].lanes_count;
    list_for_each_entry (const struct job, job, &s->jobs, link) {
        sizes.jobs++;
        sizes.pieces += job->index->pieces_count;
        sizes.shares += job->shares_count;
        if (job->index->pieces_count > sizes.pieces_most)
            sizes.pieces_most = job->index->pieces_count;
    }
    return sizes;
}

int scaling_look_make(struct service *s, struct scaling_look *ret_look)
{
    struct sizes sizes = count(s);
    size_t tasks = sizes.pieces + sizes.shares;
    struct scaling_look look = {.lanes = calloc(sizes.lanes, sizeof *look.lanes),
                                .jobs = calloc(sizes.jobs, sizeof *look.jobs),
                                .tasks = calloc(tasks, sizeof *look.tasks),
                                .wishes = calloc(sizes.jobs, sizeof *look.wishes),
                                .owners = calloc(sizes.jobs, sizeof *look.owners),
                                .numbers = calloc(tasks, sizeof *look.numbers)};
    _cleanup_free_ struct task_part *parts = calloc(sizes.pieces_most, sizeof *parts);
    _cleanup_free_ struct sum *sums = calloc(sizes.lanes, sizeof *sums);
    if (!look.lanes || !look.jobs || !look.tasks || !look.wishes || !look.owners || !look.numbers ||
        !parts || !sums || budgets_init(&look.budgets, sizes.lanes) < 0) {
        scaling_look_free(&look);
        return -ENOMEM;
    }
    see_lanes(s, &look);
    list_for_each (node, &s->jobs)
        see_job(&look, list_entry(node, struct job, link), parts, sums);
    look.seen.lanes = look.lanes;
    look.seen.jobs = look.jobs;
    look.seen.tasks = look.tasks;
    look.seen.wishes = look.wishes;
    look.seen.nodes = look.budgets.nodes;
    look.seen.nodes_count = look.budgets.count;
    *ret_look = look;
    return 0;
}

void scaling_look_free(struct scaling_look *look)
{
    free(look->lanes);
    free(look->jobs);
    free(look->tasks);
    free(look->wishes);
    free(look->owners);
    free(look->numbers);
    budgets_free(&look->budgets);
    *look = (struct scaling_look){0};
}
