/* The state of backup.h, for the files of this folder. */
#ifndef GRADPOOL_PACKER_BACKUP_INTERNAL_H
#define GRADPOOL_PACKER_BACKUP_INTERNAL_H

#include "packer/backup/backup.h"
#include "packer/backup/cells.h"
#include "packer/backup/gain.h"
#include "packer/backup/pace.h"

#define BACKUP_FIRST_AUTO 2 /* number of first rounds that wait for all ranks (BK8) */
#define BACKUP_FIRST_DBW 5
#define BACKUP_FIT_ROUNDS 5 /* number of rounds between two fits of the cells (BK9) */
/* with BACKUP_BEFORE the weights of all cells are multiplied by this factor in each round */
#define BACKUP_BEFORE_FORGET 0.97
#define BACKUP_LOSS_WEIGHT 0.1 /* weight of the last loss in the mean of BACKUP_ADASYNC */

struct backup_rank {
    uint64_t began_ns;
    uint64_t round; /* round of the gradient in progress */
    struct pace_rank pace;
    uint32_t absence;
    uint8_t counted; /* number of gradients in the open round */
    bool is_member, is_flying;
};

/* Estimates from the sums of closed rounds. */
struct backup_estimates {
    struct gain_windows windows;
    struct gain_recent recent;
    struct gain gain;
    double loss, first_loss; /* mean loss for BACKUP_ADASYNC, now and at first; 0: unknown */
};

/* A gradient that may arrive in the open round. */
struct backup_flight {
    double wait_ns;    /* time until the gradient begins; 0: the gradient has begun */
    double elapsed_ns; /* time since the start of the gradient */
    double scale_ns;
    double left; /* probability of a duration above `elapsed_ns` */
};

/* The state of a job's rounds. All its memory is one allocation, into which the pointers point. */
struct backup {
    const struct backup_options *options;
    struct backup_estimates *estimates;
    struct pace_curve *curve;
    /* table of arrival times; NULL for rules that do not choose k before the round */
    struct cells *cells;
    uint32_t members;
    uint64_t round, opened_ns;
    uint32_t
        /* number of rounds since the start or backup_restored(); stops at its maximum */
        measured_rounds;
    uint32_t counted, ranks_counted;
    uint32_t k,
        former_k; /* k: for the open round, 0: not chosen; former_k: k of the previous round */
    /* running means of 1/k and of the round time over GAIN_RECENT rounds */
    double k_inverse, round_ns;
    bool has_news; /* whether a gradient has arrived since the last decision */
    bool is_held;  /* whether the open round has waited for an absent rank */
    struct backup_flight *flights;
    size_t flights_count;
    uint32_t *go_on;
    struct backup_rank *ranks;
};

/* Returns the factor on the learning rate for a round with k gradients: 1 or k/n. */
double backup_step(const struct backup *backup, double k);
/* Returns the number of first rounds that wait for all ranks. */
uint32_t backup_first_rounds(enum backup_rule rule);
bool backup_has_cells(enum backup_rule rule);

/* --- before.c: k chosen at the first decision of a round --- */

uint32_t backup_choose_before(struct backup *backup);

#endif
