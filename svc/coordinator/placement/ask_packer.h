/* What the packer is told of jobs and lanes, and what is done when it refuses: K17. */
#ifndef GRADPOOL_COORDINATOR_PLACEMENT_ASK_PACKER_H
#define GRADPOOL_COORDINATOR_PLACEMENT_ASK_PACKER_H

#include "packer/packer.h"
#include "svc/coordinator/job/task.h"

struct answer {
    struct packer_plan plan; /* for packer_plan_fini() */
    enum share_how how;
};

/* One for each, in the same order; a task is `elements` single bytes, and its place its number. */
void describe_tensors(const struct job *job, struct tensor *const *tensors, size_t count,
                      struct packer_tensor *ret_items);
void describe_tasks(const struct job *job, const struct task *tasks, size_t count,
                    struct packer_tensor *ret_items);
/* Lane time of each of its shares, by what is known of its tensors: until lanes are looked at. */
void predict_shares(struct job *job);
enum ask_for {
    ASK_FOR_NEW,
    ASK_FOR_LOST,    /* they have lost their lane: the job fails when it is refused */
    ASK_FOR_LEAVING, /* their lane is drained: they stay when they are refused */
    ASK_FOR_ENDING,  /* their aggregator is to end: what it keeps for them ends when refused */
};
/* -ENOSPC, -ENOMEM,
 * -EINVAL: the text says why. -EINPROGRESS: an aggregator starts, ask again when it has (K31). */
int ask_packer(struct job *job, const struct packer_tensor *items, size_t items_count,
               enum ask_for why, struct answer *ret_answer, struct err *err);

/* Open or parked, and not withheld: where a new job may go. */
size_t lanes_on_offer(const struct service *s);
/* declare/dry_run.c: so many lanes a job is measured on that has them to itself. */
size_t job_own_lanes(const struct job *job);
/* How its new tensors are cut, before they are described and asked for. */
void choose_piece_bytes(struct job *job);

#endif
