/* The state of backup.h, for the files of this room. */
#ifndef GRADPOOL_PACKER_BACKUP_INTERNAL_H
#define GRADPOOL_PACKER_BACKUP_INTERNAL_H

#include "packer/backup/backup.h"
#include "packer/backup/cells.h"
#include "packer/backup/gain.h"
#include "packer/backup/pace.h"

#define BACKUP_FIRST_AUTO 2 /* rounds that wait for all at the start (BK8) */
#define BACKUP_FIRST_DBW 5
#define BACKUP_FIT_ROUNDS 5       /* rounds between two fits of the cells (BK9) */
#define BACKUP_BEFORE_FORGET 0.97 /* weight of former cells at each round, BACKUP_BEFORE */
#define BACKUP_LOSS_WEIGHT 0.1    /* of the last loss in the mean of BACKUP_ADASYNC */

struct backup_rank {
    uint64_t began_ns;
    uint64_t round; /* of the gradient in flight */
    struct pace_rank pace;
    uint32_t absence;
    uint8_t counted; /* gradients in the open round */
    bool is_member, is_flying;
};

/* Estimates from the sums of closed rounds. */
struct backup_estimates {
    struct gain_windows windows;
    struct gain_recent recent;
    struct gain gain;
    double loss, first_loss; /* of BACKUP_ADASYNC; 0: not known */
};

/* A gradient that may still arrive in the open round. */
struct backup_flight {
    double wait_ns;    /* until its beginning; 0: begun */
    double elapsed_ns; /* since its beginning */
    double scale_ns;
    double left; /* survival at `elapsed_ns` */
};

/* One allocation; the pointers lead into it. */
struct backup {
    const struct backup_options *options;
    struct backup_estimates *estimates;
    struct pace_curve *curve;
    struct cells *cells; /* NULL but for rules that choose before the round */
    uint32_t members;
    uint64_t round, opened_ns;
    uint32_t
        measured_rounds; /* rounds since the start or backup_restored(); stops at its maximum */
    uint32_t counted, ranks_counted;
    uint32_t k, former_k;       /* of the open round, 0: not chosen yet; of the round before */
    double k_inverse, round_ns; /* running means over GAIN_RECENT rounds */
    bool has_news;              /* an arrival since the last decision */
    bool is_held;               /* the open round waited for an absent rank */
    struct backup_flight *flights;
    size_t flights_count;
    uint32_t *go_on;
    struct backup_rank *ranks;
};

/* s of a round of k gradients. */
double backup_step(const struct backup *backup, double k);
/* Rounds that wait for all at the start. */
uint32_t backup_first_rounds(enum backup_rule rule);
bool backup_has_cells(enum backup_rule rule);

/* --- before.c: k chosen at the first decision of a round --- */

uint32_t backup_choose_before(struct backup *backup);

#endif
