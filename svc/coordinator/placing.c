/* Where pieces lie: asks the packer, and keeps what each lane carries. The packer decides; here are
 * only its inputs and what becomes of its plan. */
#include "packer/packer.h"
#include "svc/base/cleanup.h"
#include "svc/coordinator/service.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define TASK_BYTES_MAX (UINT64_C(4) << 20)

/* --- what lies where --- */

void piece_attach(struct tensor *tensor, struct piece *piece, struct lane *lane)
{
    struct share *share = jobs_share(tensor->job, lane);
    uint64_t bytes = tensor_bytes(tensor, piece->elements);
    if (!share)
        return timer_start(&tensor->job->service->loop, &tensor->job->service->retry_timer,
                           clock_now_ns() + RETRY_NS); /* stays stranded meanwhile */
    lane->jobs += share->pieces == 0;
    lane->pieces++;
    lane->ranks += tensor->job->workers;
    lane->load_bytes += bytes;
    share->pieces++;
    share->bytes += bytes;
    piece->lane = lane;
    piece->state = PIECE_PLACED;
}

void piece_detach(struct tensor *tensor, struct piece *piece)
{
    if (!piece->lane)
        return;
    struct share *share = jobs_share(tensor->job, piece->lane);
    uint64_t bytes = tensor_bytes(tensor, piece->elements);
    share->pieces--;
    share->bytes -= bytes;
    piece->lane->load_bytes -= bytes;
    piece->lane->pieces--;
    piece->lane->ranks -= tensor->job->workers;
    piece->lane->jobs -= share->pieces == 0;
    piece->lane = NULL;
    piece->state = PIECE_STRANDED;
}

/* --- planning --- */

static int compare_lanes(const void *a, const void *b)
{
    uint32_t left = ((const struct packer_lane *)a)->id,
             right = ((const struct packer_lane *)b)->id;
    return left < right ? -1 : left > right;
}

static void describe_lane(struct job *job, const struct lane *lane, struct packer_lane *ret_lane)
{
    *ret_lane = (struct packer_lane){
        .id = lane->id,
        .jobs = lane->jobs,
        .load_bytes = lane->load_bytes,
        .numa = lane->numa,
        .memory_bytes = UINT64_MAX /* sums leave nothing on a lane between rounds */};
    for (size_t i = 0; i < job->shares_count; i++) {
        if (job->shares[i].lane != lane || job->shares[i].pieces == 0)
            continue;
        ret_lane->job_bytes = job->shares[i].bytes;
        ret_lane->jobs--;
    }
}

/* Lanes that are up, ascending; free with free(). */
static int describe_lanes(struct job *job, struct packer_lane **ret_lanes, size_t *ret_count)
{
    size_t count = 0, capacity = 0;
    list_for_each (node, &job->service->aggregators)
        capacity += list_entry(node, struct aggregator, link)->lanes_count;
    struct packer_lane *lanes = calloc(capacity ? capacity : 1, sizeof *lanes);
    if (!lanes)
        return -ENOMEM;
    list_for_each (node, &job->service->aggregators) {
        const struct aggregator *a = list_entry(node, struct aggregator, link);
        for (size_t i = 0; i < a->lanes_count && a->state == AGGREGATOR_UP; i++)
            describe_lane(job, &a->lanes[i], &lanes[count++]);
    }
    qsort(lanes, count, sizeof *lanes, compare_lanes);
    *ret_lanes = lanes;
    *ret_count = count;
    return 0;
}

static int ask_packer(struct job *job, const struct packer_tensor *items, size_t items_count,
                      struct packer_plan *ret_plan, struct err *err)
{
    _cleanup_free_ struct packer_lane *lanes = NULL;
    size_t lanes_count;
    char reason[ERR_TEXT_BYTES - 64];
    if (describe_lanes(job, &lanes, &lanes_count) < 0)
        return err_set(err, -ENOMEM, "gradpool serve is out of memory");
    if (lanes_count == 0)
        return err_set(err, -ENOSPC, "no aggregator is up: there is no lane to place job %.64s on",
                       job->name);
    struct packer_request request = {.policy = job->service->options.policy,
                                     .workers = job->workers,
                                     .job_key = job->id,
                                     .lanes = lanes,
                                     .lanes_count = lanes_count,
                                     .tensors = items,
                                     .tensors_count = items_count};
    int error = packer_place(&request, ret_plan, reason, sizeof reason);
    return error < 0 ? err_set(err, error, "job %.64s cannot be placed: %s", job->name, reason) : 0;
}

/* The job's open task on that lane while it has room, else a new one. */
static uint32_t task_for(struct job *job, struct lane *lane, uint64_t bytes)
{
    struct share *share = jobs_share(job, lane);
    if (!share)
        return job->service->numbers.next_task++;
    if (share->open_task == 0 || share->open_task_bytes + bytes > TASK_BYTES_MAX) {
        share->open_task = job->service->numbers.next_task++;
        share->open_task_bytes = 0;
    }
    share->open_task_bytes += bytes;
    return share->open_task;
}

/* Pieces of one tensor stand together in the plan: [at, end). */
static int take_pieces(struct tensor *tensor, const struct packer_piece *plan, size_t count)
{
    struct job *job = tensor->job;
    tensor->pieces = calloc(count, sizeof *tensor->pieces);
    if (!tensor->pieces)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++) {
        struct lane *lane = lane_find(job->service, plan[i].lane);
        uint64_t bytes = tensor_bytes(tensor, plan[i].elements);
        tensor->pieces[i] = (struct piece){.id = job->next_piece++,
                                           .epoch = job->epoch,
                                           .first = plan[i].first,
                                           .elements = plan[i].elements,
                                           .lane = lane,
                                           .task = task_for(job, lane, bytes)};
    }
    tensor->pieces_count = count;
    job->pieces_count += count;
    return 0;
}

static int take_plan(struct tensor *const *tensors, size_t count, const struct packer_plan *plan,
                     struct err *err)
{
    if (plan->pieces_count > DECLARE_PIECES_MAX)
        return err_set(err, -EMSGSIZE,
                       "these tensors make %zu pieces, a declare at most %u: "
                       "declare them in several calls",
                       plan->pieces_count, DECLARE_PIECES_MAX);
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        size_t end = at;
        while (end < plan->pieces_count && plan->pieces[end].tensor == tensors[i]->id)
            end++;
        if (end == at || take_pieces(tensors[i], plan->pieces + at, end - at) < 0)
            return err_set(err, -ENOMEM, "gradpool serve is out of memory");
        at = end;
    }
    return 0;
}

int placing_plan(struct job *job, struct tensor *const *tensors, size_t count, struct err *err)
{
    struct packer_plan plan = {0};
    _cleanup_free_ struct packer_tensor *items = calloc(count, sizeof *items);
    if (!items)
        return err_set(err, -ENOMEM, "gradpool serve is out of memory");
    for (size_t i = 0; i < count; i++)
        items[i] = (struct packer_tensor){.id = tensors[i]->id,
                                          .name_hash = tensors[i]->hash,
                                          .elements = tensors[i]->elements,
                                          .element_bytes = (uint32_t)tensor_bytes(tensors[i], 1)};
    int error = ask_packer(job, items, count, &plan, err);
    if (error < 0)
        return error;
    error = take_plan(tensors, count, &plan, err);
    packer_plan_fini(&plan);
    return error;
}

int placing_plan_tasks(struct job *job, struct task *tasks, size_t count, struct err *err)
{
    struct packer_plan plan = {0};
    _cleanup_free_ struct packer_tensor *items = calloc(count, sizeof *items);
    if (!items)
        return err_set(err, -ENOMEM, "gradpool serve is out of memory");
    for (size_t i = 0; i < count; i++) {
        char name[16];
        snprintf(name, sizeof name, "%u", tasks[i].id);
        items[i] = (struct packer_tensor){.id = (uint32_t)i,
                                          .name_hash = packer_hash(name),
                                          .elements = tasks[i].bytes,
                                          .element_bytes = 1};
    }
    int error = ask_packer(job, items, count, &plan, err);
    if (error < 0)
        return error;
    /* A policy that would cut a task decides by its first piece: a task stays whole. */
    for (size_t i = plan.pieces_count; i-- > 0;)
        tasks[plan.pieces[i].tensor].lane = lane_find(job->service, plan.pieces[i].lane);
    packer_plan_fini(&plan);
    return 0;
}
