/* Calls the packer with a description of jobs and lanes, and handles refusals (K17). */
#ifndef GRADPOOL_COORDINATOR_PLACEMENT_ASK_PACKER_H
#define GRADPOOL_COORDINATOR_PLACEMENT_ASK_PACKER_H

#include "packer/packer.h"
#include "svc/coordinator/job/task.h"

struct answer {
    /* plan of the packer; the caller frees the plan with packer_plan_fini() */
    struct packer_plan plan;
    enum share_how how;
};

/* These functions fill `ret_items` with descriptions of the tensors or tasks, in their order. A
 * task is described as a tensor with one byte for each element. The `id` of a described task is its
 * index in `tasks`. */
void describe_tensors(const struct job *job, struct tensor *const *tensors, size_t count,
                      struct packer_tensor *ret_items);
void describe_tasks(const struct job *job, const struct task *tasks, size_t count,
                    struct packer_tensor *ret_items);
/* Predicts the lane time of each share from the lane times of the tensors. The predictions are used
 * until the first measurement. */
void predict_shares(struct job *job);
enum ask_for {
    ASK_FOR_NEW,
    ASK_FOR_SHARDS, /* shards of a new table, on lanes that share memory with all workers */
    ASK_FOR_LOST,   /* tasks of a lost lane; without another lane the job fails */
    /* tasks of a drained lane; without another lane the tasks stay on their lane */
    ASK_FOR_LEAVING,
    /* tasks of an ending aggregator; without another lane their state is lost */
    ASK_FOR_ENDING,
};
/* Chooses lanes for `items`. Returns 0, or -ENOSPC, -ENOMEM or -EINVAL with the reason in `err`.
 * -EINPROGRESS: an aggregator is starting, or a measurement is in progress. The declare is handled
 * again afterwards (K31). */
int ask_packer(struct job *job, const struct packer_tensor *items, size_t items_count,
               enum ask_for why, struct answer *ret_answer, struct err *err);

/* Returns the number of lanes that a new job may use: open or parked, but not withheld. */
size_t lanes_on_offer(const struct service *s);
/* Returns the number of lanes on which the job would be measured if it were alone
 * (declare/dry_run.c). */
size_t job_own_lanes(const struct job *job);
/* Sets the maximum size of pieces of new tensors. The caller then calls describe_tensors(). */
void choose_piece_bytes(struct job *job);

#endif
