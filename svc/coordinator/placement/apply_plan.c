/* Applies the packer's plans: creates pieces, tasks and shares of lanes. ask_packer.c calls the
 * packer. */
#include "svc/coordinator/placement/apply_plan.h"

#include "svc/base/cleanup.h"
#include "svc/base/hash.h"
#include "svc/coordinator/aggregator/lane.h"
#include "svc/coordinator/fleet/open_lanes.h"
#include "svc/coordinator/job/share.h"
#include "svc/coordinator/placement/ask_packer.h"
#include "svc/coordinator/placement/reason.h"
#include "svc/coordinator/replica/replica.h"
#include "svc/coordinator/service.h"

#include <errno.h>
#include <stdlib.h>

/* --- planning --- */

/* Returns the job's open task on the lane if the piece fits into it, otherwise a new task. */
static uint32_t task_for(struct job *job, struct lane *lane, uint64_t bytes)
{
    struct share *share = jobs_share(job, lane);
    if (!share)
        return job->service->numbers->next_task++;
    if (share->open_task == 0 || share->open_task_bytes + bytes > job->index->piece_bytes) {
        share->open_task = job->service->numbers->next_task++;
        share->open_task_bytes = 0;
    }
    share->open_task_bytes += bytes;
    return share->open_task;
}

/* Creates the tensor's pieces from `count` consecutive rows of the plan. */
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
                                           .lost_epoch = job->epoch,
                                           .first = plan[i].first,
                                           .elements = plan[i].elements,
                                           .lane = lane,
                                           .task = task_for(job, lane, bytes)};
        keeping_placed(job, &tensor->pieces[i], keeping_choose(tensor, &tensor->pieces[i], lane));
    }
    tensor->pieces_count = count;
    job->index->pieces_count += count;
    return 0;
}

static int take_plan(struct tensor *const *tensors, size_t count, const struct packer_plan *plan,
                     struct err *err)
{
    if (plan->pieces_count > DECLARE_PIECES_MAX)
        return err_set(err, -EMSGSIZE,
                       "the tensors of this declaration have %zu pieces, but one call may declare "
                       "at most %u; declare them in several calls",
                       plan->pieces_count, DECLARE_PIECES_MAX);
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        size_t end = at;
        while (end < plan->pieces_count && plan->pieces[end].tensor == tensors[i]->id)
            end++;
        if (end == at || take_pieces(tensors[i], plan->pieces + at, end - at) < 0)
            return err_set(
                err, -ENOMEM,
                "gradpool serve has no memory for the pieces of a tensor; raise its memory limit");
        at = end;
    }
    return 0;
}

/* Records why each lane was chosen, and the predicted lane time, which is used until the lane is
 * measured. */
static void note_shares(struct job *job, const struct answer *answer, enum ask_for why)
{
    for (size_t i = 0; i < answer->plan.shares_count; i++) {
        const struct packer_share *planned = &answer->plan.shares[i];
        struct lane *lane = lane_find(job->service, planned->lane);
        struct share *share = lane ? jobs_share(job, lane) : NULL;
        if (!share)
            continue;
        lane_open(lane);
        share->how = answer->how;
        /* a migration moves the measured lane time together with the tasks */
        bool goes_along = why == ASK_FOR_LEAVING || why == ASK_FOR_ENDING;
        if (planned->lane_ns > 0 && !goes_along)
            share->lane_ns = planned->lane_ns;
    }
}

int placing_plan(struct job *job, struct tensor *const *tensors, size_t count, struct err *err)
{
    struct answer answer = {0};
    _cleanup_free_ struct packer_tensor *items = calloc(count, sizeof *items);
    if (!items)
        return err_set(
            err, -ENOMEM,
            "gradpool serve has no memory for a placement of job %.64s; raise its memory limit",
            job->name);
    choose_piece_bytes(job);
    describe_tensors(job, tensors, count, items);
    int error = ask_packer(job, items, count, ASK_FOR_NEW, &answer, err);
    if (error < 0)
        return error;
    bool is_first = job->index->pieces_count == 0;
    error = take_plan(tensors, count, &answer.plan, err);
    if (error == 0) {
        note_shares(job, &answer, ASK_FOR_NEW);
        deciding_log(job, "tensor goes", "tensors go", count, is_first, &answer);
    }
    packer_plan_fini(&answer.plan);
    return error;
}

static void describe_shards(const struct job_table *table, struct packer_tensor *ret_items)
{
    for (uint32_t i = 0; i < table->terms->shards; i++)
        ret_items[i] = (struct packer_tensor){.id = i,
                                              .name_hash = hash_text(table->name) + i,
                                              .name = table->name,
                                              .elements = shard_bytes(table),
                                              .element_bytes = 1,
                                              .is_whole = true};
}

int placing_plan_shards(const struct job_table *table, struct lane **ret_lanes, struct err *err)
{
    struct job *job = table->job;
    size_t count = table->terms->shards;
    struct answer answer = {0};
    _cleanup_free_ struct packer_tensor *items = calloc(count, sizeof *items);
    if (!items)
        return err_set(
            err, -ENOMEM,
            "gradpool serve has no memory for shards of job %.64s; raise its memory limit",
            job->name);
    choose_piece_bytes(job);
    describe_shards(table, items);
    int error = ask_packer(job, items, count, ASK_FOR_SHARDS, &answer, err);
    if (error < 0)
        return error;
    note_shares(job, &answer, ASK_FOR_SHARDS);
    deciding_log(job, "shard goes", "shards go", count, true, &answer);
    /* a policy may have divided the shard into several pieces; the shard gets the lane of its first
     * piece */
    for (size_t i = answer.plan.pieces_count; i-- > 0;)
        ret_lanes[answer.plan.pieces[i].tensor] =
            lane_find(job->service, answer.plan.pieces[i].lane);
    packer_plan_fini(&answer.plan);
    return 0;
}

int placing_try(struct job *job, struct answer *ret_answer, struct err *err)
{
    size_t count = job->tensors_count;
    uint32_t next_task = job->service->numbers->next_task;
    _cleanup_free_ struct packer_tensor *items = calloc(count + 1, sizeof *items);
    if (!items)
        return err_set(
            err, -ENOMEM,
            "gradpool serve has no memory for a placement of job %.64s; raise its memory limit",
            job->name);
    choose_piece_bytes(job);
    describe_tensors(job, job->tensors, count, items);
    int error = ask_packer(job, items, count, ASK_FOR_NEW, ret_answer, err);
    if (error < 0)
        return error;
    bool has_lanes = true;
    for (size_t i = 0; i < ret_answer->plan.shares_count; i++)
        has_lanes &= ret_answer->plan.shares[i].state != PACKER_LANE_UNSTARTED;
    if (has_lanes)
        error = take_plan(job->tensors, count, &ret_answer->plan, err);
    job->service->numbers->next_task = next_task;
    if (error < 0)
        packer_plan_fini(&ret_answer->plan);
    return error;
}

static int plan_tasks(struct job *job, struct task *tasks, size_t count, enum ask_for why,
                      struct err *err)
{
    struct answer answer = {0};
    _cleanup_free_ struct packer_tensor *items = calloc(count, sizeof *items);
    if (!items)
        return err_set(
            err, -ENOMEM,
            "gradpool serve has no memory for a placement of job %.64s; raise its memory limit",
            job->name);
    describe_tasks(job, tasks, count, items);
    int error = ask_packer(job, items, count, why, &answer, err);
    if (error < 0)
        return error;
    note_shares(job, &answer, why);
    if (why == ASK_FOR_LOST)
        deciding_log(job, "task of a lost lane moves", "tasks of a lost lane move", count, true,
                     &answer);
    else
        deciding_log(job, "task of a drained lane moves", "tasks of a drained lane move", count,
                     true, &answer);
    /* A task is never divided. If the policy has divided the task, all its pieces move to the lane
     * of its first piece. */
    for (size_t i = answer.plan.pieces_count; i-- > 0;)
        tasks[answer.plan.pieces[i].tensor].lane = answer.plan.pieces[i].lane;
    packer_plan_fini(&answer.plan);
    return 0;
}

int placing_plan_tasks(struct job *job, struct task *tasks, size_t count, struct err *err)
{
    return plan_tasks(job, tasks, count, ASK_FOR_LOST, err);
}

int placing_plan_leaving(struct job *job, struct task *tasks, size_t count, struct err *err)
{
    return plan_tasks(job, tasks, count, ASK_FOR_LEAVING, err);
}

int placing_plan_ending(struct job *job, struct task *tasks, size_t count, struct err *err)
{
    return plan_tasks(job, tasks, count, ASK_FOR_ENDING, err);
}
