/* Questions to the packer: the description of jobs and lanes, and the handling of refusals
 * (K17). */
#ifndef GRADPOOL_COORDINATOR_PLACEMENT_ASK_PACKER_H
#define GRADPOOL_COORDINATOR_PLACEMENT_ASK_PACKER_H

#include "packer/packer.h"
#include "svc/coordinator/job/task.h"

struct answer {
    struct packer_plan plan; /* the caller calls packer_plan_fini() */
    enum share_how how;
};

/* Describe tensors or tasks for the packer, in the same order. A task is described as `elements`
 * single bytes, with its index as its number. */
void describe_tensors(const struct job *job, struct tensor *const *tensors, size_t count,
                      struct packer_tensor *ret_items);
void describe_tasks(const struct job *job, const struct task *tasks, size_t count,
                    struct packer_tensor *ret_items);
/* Predicts the lane time of each share from the tensors' lane time, until the first look. */
void predict_shares(struct job *job);
enum ask_for {
    ASK_FOR_NEW,
    ASK_FOR_LOST,    /* lost their lane: after a refusal the job fails */
    ASK_FOR_LEAVING, /* their lane is drained: after a refusal they stay */
    ASK_FOR_ENDING,  /* their aggregator ends: after a refusal their state is lost */
};
/* Chooses lanes for `items`. -ENOSPC, -ENOMEM, -EINVAL: `err` says why. -EINPROGRESS: an aggregator
 * starts, or a measurement is under way; the declare is handled again afterwards (K31). */
int ask_packer(struct job *job, const struct packer_tensor *items, size_t items_count,
               enum ask_for why, struct answer *ret_answer, struct err *err);

/* Number of lanes for a new job: open or parked, not withheld. */
size_t lanes_on_offer(const struct service *s);
/* Number of lanes on which a job without others would be measured (declare/dry_run.c). */
size_t job_own_lanes(const struct job *job);
/* Sets the size of pieces of new tensors, before describe_tensors(). */
void choose_piece_bytes(struct job *job);

#endif
