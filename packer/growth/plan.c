/* Owns the plan of moves for tasks that must leave a lane. packer_place() chooses the target of
 * each task, for one job after the other. Tasks of earlier jobs already count on their new lanes
 * (G5). Must never cut a task. The rules in up.c, down.c and narrow.c decide which tasks move. */
#include "packer/growth/plan.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#define NS_PER_S UINT64_C(1000000000)
#define LANES_OF_A_JOB_MIN 8

static int compare_parts(const void *a, const void *b)
{
    const struct scale_part *x = a, *y = b;
    if (x->lane != y->lane)
        return x->lane < y->lane ? -1 : 1;
    return (x->job > y->job) - (x->job < y->job);
}

static uint64_t add_saturated(uint64_t a, uint64_t b) { return a + b < a ? UINT64_MAX : a + b; }

/* --- the parts of jobs on lanes --- */

/* Joins parts of the same job on the same lane. */
static void merge_parts(struct scale_plan *plan)
{
    size_t count = 0;
    qsort(plan->parts, plan->parts_count, sizeof *plan->parts, compare_parts);
    for (size_t i = 0; i < plan->parts_count; i++) {
        struct scale_part *last = count ? &plan->parts[count - 1] : NULL, *part = &plan->parts[i];
        if (!last || compare_parts(last, part) != 0) {
            plan->parts[count++] = *part;
            continue;
        }
        last->lane_ns = add_saturated(last->lane_ns, part->lane_ns);
        last->bytes = add_saturated(last->bytes, part->bytes);
    }
    plan->parts_count = count;
}

static void read_tasks(struct scale_plan *plan)
{
    const struct scale_seen *seen = plan->seen;
    for (size_t i = 0; i < seen->tasks_count; i++) {
        const struct scale_task *task = &seen->tasks[i];
        plan->parts[i] = (struct scale_part){task->lane, task->job, task->lane_ns, task->bytes};
    }
    plan->parts_count = seen->tasks_count;
    merge_parts(plan);
}

/* Returns the first part whose lane is this lane or a later one; parts_count if there is none. */
static size_t first_part(const struct scale_plan *plan, uint32_t lane)
{
    size_t low = 0, high = plan->parts_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (plan->parts[middle].lane < lane)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int scale_plan_init(struct scale_plan *plan, const struct scale_seen *seen, const char *policy,
                    uint32_t margin_ppm)
{
    size_t tasks = seen->tasks_count + 1, lanes = seen->lanes_count + 1;
    /* The array `parts` needs at most two entries for each task, because a move adds at most one
     * part, and no task moves twice. */
    *plan = (struct scale_plan){.seen = seen,
                                .policy = policy,
                                .margin_ppm = margin_ppm,
                                .targets = calloc(lanes, sizeof *plan->targets),
                                .parts = calloc(2 * tasks, sizeof *plan->parts),
                                .lanes = calloc(lanes, sizeof *plan->lanes),
                                .nodes = calloc(seen->nodes_count + 1, sizeof *plan->nodes),
                                .moves = calloc(tasks, sizeof *plan->moves),
                                .offer = calloc(lanes, sizeof *plan->offer),
                                .residents = calloc(2 * tasks, sizeof *plan->residents),
                                .positions = calloc(tasks, sizeof *plan->positions),
                                .items = calloc(tasks, sizeof *plan->items)};
    if (!plan->targets || !plan->parts || !plan->lanes || !plan->nodes || !plan->moves ||
        !plan->offer || !plan->residents || !plan->positions || !plan->items)
        return -ENOMEM;
    for (size_t i = 0; i < seen->lanes_count; i++)
        plan->lanes[i] = seen->lanes[i].lane;
    for (size_t i = 0; i < seen->nodes_count; i++)
        plan->nodes[i] = seen->nodes[i];
    read_tasks(plan);
    return 0;
}

void scale_plan_fini(struct scale_plan *plan)
{
    free(plan->targets);
    free(plan->parts);
    free(plan->lanes);
    free(plan->nodes);
    free(plan->moves);
    free(plan->offer);
    free(plan->residents);
    free(plan->positions);
    free(plan->items);
    *plan = (struct scale_plan){0};
}

/* --- one request --- */

/* Returns the timing with a stricter limit. A limit of 0 would mean the default, so the strictest
 * limit is 1. */
static struct packer_timing timing_of(const struct scale_plan *plan, uint32_t job)
{
    struct packer_timing timing = plan->seen->jobs[job].timing;
    uint32_t limit = packer_loss_limit_ppm(timing.loss_limit_ppm, 0, 0);
    timing.loss_limit_ppm = limit > plan->margin_ppm ? limit - plan->margin_ppm : 1;
    return timing;
}

static struct packer_resident resident_of(const struct scale_plan *plan,
                                          const struct scale_part *part)
{
    return (struct packer_resident){.job = plan->seen->jobs[part->job].id,
                                    .lane_ns = part->lane_ns,
                                    .timing = timing_of(plan, part->job)};
}

/* Describes a lane for a placement of the job. Fills `residents` and returns their number. */
static size_t describe_lane(const struct scale_plan *plan, uint32_t lane, uint32_t job,
                            struct packer_resident *residents, struct packer_lane *ret_lane)
{
    *ret_lane = plan->lanes[lane];
    ret_lane->jobs = 0;
    ret_lane->load_bytes = ret_lane->job_bytes = ret_lane->job_lane_ns = 0;
    ret_lane->residents = residents;
    ret_lane->residents_count = 0;
    for (size_t i = first_part(plan, lane); i < plan->parts_count && plan->parts[i].lane == lane;
         i++) {
        const struct scale_part *part = &plan->parts[i];
        ret_lane->load_bytes = add_saturated(ret_lane->load_bytes, part->bytes);
        if (part->job == job) {
            ret_lane->job_bytes = part->bytes;
            ret_lane->job_lane_ns = part->lane_ns;
            continue;
        }
        ret_lane->jobs++;
        if (plan->seen->jobs[part->job].timing.period_ns > 0)
            residents[ret_lane->residents_count++] = resident_of(plan, part);
    }
    return ret_lane->residents_count;
}

static size_t describe_lanes(struct scale_plan *plan, uint32_t job, uint32_t source)
{
    size_t count = 0, residents = 0;
    for (uint32_t i = 0; i < plan->seen->lanes_count; i++)
        if (plan->targets[i] && i != source)
            residents +=
                describe_lane(plan, i, job, plan->residents + residents, &plan->offer[count++]);
    return count;
}

/* Returns lanes_max for the request. Lanes of the job that are not in the request use up a part of
 * the maximum. */
static uint32_t lanes_max(const struct scale_plan *plan, uint32_t job, uint32_t source)
{
    uint32_t workers = plan->seen->jobs[job].workers, elsewhere = 0;
    uint32_t most = workers > LANES_OF_A_JOB_MIN ? workers : LANES_OF_A_JOB_MIN;
    for (size_t i = 0; i < plan->parts_count; i++) {
        const struct scale_part *part = &plan->parts[i];
        elsewhere += part->job == job && part->lane != source && !plan->targets[part->lane];
    }
    return most > elsewhere ? most - elsewhere : 1;
}

/* Describes each leaving task as one tensor of bytes. `ret_bytes_max`, the maximum size of a piece,
 * is the size of the largest of these tasks, so no task is cut. On entry kept->bytes is the number
 * of bytes that should stay on the lane (0: none): the first task stays, and each further task that
 * fits into the remaining bytes. On return `kept` describes the tasks that stay. */
static size_t describe_tasks(struct scale_plan *plan, uint32_t job, uint32_t lane,
                             struct scale_part *kept, uint64_t *ret_bytes_max)
{
    const struct scale_seen *seen = plan->seen;
    uint64_t most = 1, keep_bytes = kept->bytes;
    size_t count = 0;
    *kept = (struct scale_part){.lane = lane, .job = job};
    for (uint32_t i = 0; i < seen->tasks_count; i++) {
        const struct scale_task *task = &seen->tasks[i];
        if (task->job != job || task->lane != lane)
            continue;
        if (keep_bytes > 0 && (kept->bytes == 0 || kept->bytes + task->bytes <= keep_bytes)) {
            kept->bytes += task->bytes;
            kept->lane_ns = add_saturated(kept->lane_ns, task->lane_ns);
            continue;
        }
        most = task->bytes > most ? task->bytes : most;
        plan->items[count] = (struct packer_tensor){.id = (uint32_t)count,
                                                    .elements = task->bytes,
                                                    .element_bytes = 1,
                                                    .lane_ns = task->lane_ns,
                                                    .state_bytes = task->state_bytes,
                                                    .wire_bytes = task->wire_bytes};
        plan->positions[count++] = i;
    }
    *ret_bytes_max = most;
    return count;
}

/* --- the state after the moves --- */

static uint32_t position_of(const struct scale_plan *plan, uint32_t id)
{
    size_t low = 0, high = plan->seen->lanes_count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (plan->seen->lanes[middle].lane.id <= id)
            low = middle;
        else
            high = middle;
    }
    return (uint32_t)low;
}

static void take(uint64_t *left, uint64_t amount)
{
    if (*left != UINT64_MAX)
        *left -= amount < *left ? amount : *left;
}

/* Returns the bytes per second, rounded up as in packer_place(). */
static uint64_t per_second(uint64_t bytes, uint64_t period_ns)
{
    unsigned __int128 rate = ((unsigned __int128)bytes * NS_PER_S + period_ns - 1) / period_ns;
    return rate < UINT64_MAX ? (uint64_t)rate : UINT64_MAX - 1;
}

static void charge(struct scale_plan *plan, uint32_t target, const struct scale_task *task)
{
    struct packer_lane *lane = &plan->lanes[target];
    struct packer_node *node = plan->seen->nodes_count ? &plan->nodes[lane->node] : NULL;
    uint64_t memory = task->state_bytes ? task->state_bytes : task->bytes;
    uint64_t rate = per_second(task->wire_bytes, plan->seen->jobs[task->job].timing.period_ns);
    take(&lane->memory_bytes, memory);
    if (lane->nic_bytes_per_s >
        0) { /* a full lane gets the value 1, because 0 would mean "not limited" */
        take(&lane->nic_bytes_per_s, rate);
        lane->nic_bytes_per_s += lane->nic_bytes_per_s == 0;
    }
    if (node) {
        take(&node->memory_bytes, memory);
        take(&node->nic_bytes_per_s, rate);
    }
}

static void accept_plan(struct scale_plan *plan, const struct packer_plan *placed)
{
    for (size_t i = 0; i < placed->pieces_count; i++) {
        const struct packer_piece *piece = &placed->pieces[i];
        uint32_t position = plan->positions[piece->tensor];
        const struct scale_task *task = &plan->seen->tasks[position];
        uint32_t target = position_of(plan, piece->lane);
        plan->moves[plan->moves_count++] = (struct scale_move){position, piece->lane};
        plan->moved_bytes = add_saturated(plan->moved_bytes, task->bytes);
        plan->parts[plan->parts_count++] =
            (struct scale_part){target, task->job, task->lane_ns, task->bytes};
        charge(plan, target, task);
    }
}

static void remove_part(struct scale_plan *plan, uint32_t job, uint32_t lane)
{
    size_t count = 0;
    for (size_t i = 0; i < plan->parts_count; i++)
        if (plan->parts[i].job != job || plan->parts[i].lane != lane)
            plan->parts[count++] = plan->parts[i];
    plan->parts_count = count;
}

int scale_plan_leave_beyond(struct scale_plan *plan, uint32_t job, uint32_t lane,
                            uint64_t keep_bytes)
{
    struct scale_part kept = {.bytes = keep_bytes};
    struct packer_plan placed = {0};
    struct packer_request request = {.policy = plan->policy,
                                     .workers = plan->seen->jobs[job].workers,
                                     .job_key = plan->seen->jobs[job].id,
                                     .lanes = plan->offer,
                                     .lanes_count = describe_lanes(plan, job, lane),
                                     .tensors = plan->items,
                                     .timing = timing_of(plan, job),
                                     .lanes_max = lanes_max(plan, job, lane),
                                     .nodes = plan->nodes,
                                     .nodes_count = plan->seen->nodes_count};
    request.tensors_count = describe_tasks(plan, job, lane, &kept, &request.piece_bytes_max);
    if (request.tensors_count == 0)
        return 0;
    if (plan->is_even) {
        request.timing.period_ns = 0;
        request.workers = (uint32_t)request.lanes_count;
    }
    int error = packer_place(&request, &placed, NULL, 0);
    if (error < 0)
        return error;
    assert(placed.pieces_count == request.tensors_count);
    remove_part(plan, job, lane);
    if (kept.bytes > 0 || kept.lane_ns > 0)
        plan->parts[plan->parts_count++] = kept;
    accept_plan(plan, &placed);
    merge_parts(plan);
    packer_plan_fini(&placed);
    return 0;
}

int scale_plan_leave(struct scale_plan *plan, uint32_t job, uint32_t lane)
{
    return scale_plan_leave_beyond(plan, job, lane, 0);
}

/* --- all tasks of a lane, all lanes of a job --- */

/* Returns the part with the most lane time on the lane; of several such parts the first; SIZE_MAX:
 * none. */
static size_t largest_part(const struct scale_plan *plan, uint32_t lane)
{
    size_t best = SIZE_MAX;
    for (size_t i = first_part(plan, lane); i < plan->parts_count && plan->parts[i].lane == lane;
         i++)
        if (best == SIZE_MAX || plan->parts[i].lane_ns > plan->parts[best].lane_ns)
            best = i;
    return best;
}

static int compare_moves(const void *a, const void *b)
{
    const struct scale_move *x = a, *y = b;
    return (x->task > y->task) - (x->task < y->task);
}

void scale_sort_moves(struct scale_plan *plan)
{
    qsort(plan->moves, plan->moves_count, sizeof *plan->moves, compare_moves);
}

int scale_plan_empty(struct scale_plan *plan, uint32_t lane)
{
    for (size_t i; (i = largest_part(plan, lane)) != SIZE_MAX;) {
        int error = scale_plan_leave(plan, plan->parts[i].job, lane);
        if (error < 0)
            return error;
    }
    scale_sort_moves(plan);
    return 0;
}

static int loss_on_lane(struct scale_plan *plan, uint32_t job, uint32_t lane, double *losses,
                        double *ret_loss)
{
    struct packer_lane ignored;
    size_t others = describe_lane(plan, lane, job, plan->residents + 1, &ignored);
    plan->residents[0] = (struct packer_resident){.job = plan->seen->jobs[job].id,
                                                  .lane_ns = ignored.job_lane_ns,
                                                  .timing = timing_of(plan, job)};
    if (ignored.jobs == 0)
        return -ENOENT;
    int error = packer_losses(plan->policy, plan->residents, others + 1, losses);
    if (error == 0)
        *ret_loss = losses[0];
    return error;
}

int scale_plan_worst_lane(struct scale_plan *plan, uint32_t job, uint32_t *ret_lane,
                          double *ret_loss)
{
    double *losses = calloc(plan->parts_count + 1, sizeof *losses), worst = -1, loss = 0;
    if (!losses)
        return -ENOMEM;
    for (size_t i = 0; i < plan->parts_count; i++) {
        uint32_t lane = plan->parts[i].lane;
        if (plan->parts[i].job != job || plan->seen->lanes[lane].is_changing ||
            loss_on_lane(plan, job, lane, losses, &loss) < 0)
            continue;
        if (loss > worst) {
            worst = loss;
            *ret_lane = lane;
        }
    }
    free(losses);
    *ret_loss = worst < 0 ? 0 : worst;
    return worst < 0 ? -ENOENT : 0;
}
