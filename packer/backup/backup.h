/* backup: decides when a round closes without its stragglers. PURE: no clock, no I/O, no
 * randomness; no allocation after backup_create(). The same events give the same decisions.
 * README.md has the rules: BK1 to BK12.
 *
 * The caller reports events of the open round: backup_began() when a rank begins a gradient,
 * backup_arrived() when the gradient is announced, backup_measured() when the sums of a closed
 * round are known. It calls backup_decide() at each arrival and at the moment of the last decision,
 * and backup_closed() when the round closes. Times are in nanoseconds of any clock that does not go
 * back. One thread at a time uses a state.
 *
 * Sources: BACKUP_DBW and BACKUP_BLIND are reconstructions of DBW (arXiv 2004.14696), known here by
 * its abstract alone, not the paper's rule. BACKUP_ADASYNC is AdaSync as remembered, not checked.
 * BACKUP_AUTO, BACKUP_BEFORE and second gradients are this project's own. */
#ifndef GRADPOOL_PACKER_BACKUP_BACKUP_H
#define GRADPOOL_PACKER_BACKUP_BACKUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BACKUP_WORKERS_MAX UINT32_C(768) /* with one gradient a rank */
#define BACKUP_SECOND_MAX UINT32_C(256)  /* workers, with more than one gradient a rank */
#define BACKUP_GRADIENTS_MAX UINT32_C(7) /* gradients of one rank in one round */
#define BACKUP_LEAST UINT32_C(2)         /* default of `least` */
#define BACKUP_ABSENCE UINT32_C(64)      /* default of `absence` */
#define BACKUP_ABSENCE_NONE UINT32_MAX   /* no rank is waited for because of its absence */
#define BACKUP_NEVER_NS UINT64_MAX       /* no moment: the next arrival decides */

enum backup_rule {
    BACKUP_ALL,     /* every round waits for all ranks */
    BACKUP_STATIC,  /* the round closes at its k-th gradient */
    BACKUP_AUTO,    /* gain a time, decided at each arrival */
    BACKUP_BEFORE,  /* estimates of BACKUP_AUTO, k chosen before the round */
    BACKUP_DBW,     /* argmax of gain/time before the round, from losses and rate */
    BACKUP_BLIND,   /* argmax of k/time before the round; reads no gradient */
    BACKUP_ADASYNC, /* k grows with the root of the fallen loss */
    BACKUP_RULES,
};

/* Rate of a step over a mean of k of n gradients. */
enum backup_rate {
    BACKUP_RATE_FIXED,
    BACKUP_RATE_PROPORTIONAL, /* the step is multiplied by k/n */
};

struct backup_options {
    enum backup_rule rule;
    enum backup_rate rate;
    uint32_t workers;   /* n, 1 to BACKUP_WORKERS_MAX */
    uint32_t k;         /* STATIC: gradients waited for; ADASYNC: k of the first round; else 0 */
    uint32_t least;     /* no round closes below it; 0: BACKUP_LEAST */
    uint32_t absence;   /* rounds of absence before a rank is waited for; 0: BACKUP_ABSENCE */
    uint32_t gradients; /* most gradients of a rank in one round; 0: 1; more: STATIC, AUTO only */
};

/* Sums over the gradients g_i of a closed round and their mean g; `product` is that of g with the
 * mean of the round before. A value that is not known is NAN. */
struct backup_measure {
    uint32_t inputs; /* gradients in the mean */
    double squares;  /* sum of |g_i|^2 */
    double mean;     /* |g|^2 */
    double product;  /* g . former g */
    double loss;     /* mean of the batch losses; for DBW and ADASYNC */
    double rate;     /* learning rate; for DBW */
};

enum backup_verb {
    BACKUP_WAIT,  /* until the next arrival, or until `until_ns` */
    BACKUP_CLOSE, /* the set is every rank that has arrived */
};

enum backup_reason {
    BACKUP_REASON_ALL,     /* every rank is in the set */
    BACKUP_REASON_GAIN,    /* the rule's choice at an arrival */
    BACKUP_REASON_MOMENT,  /* the rule's choice at a moment without an arrival */
    BACKUP_REASON_ABSENCE, /* a rank that was absent for long has arrived */
};

struct backup_decision {
    enum backup_verb verb;
    enum backup_reason reason; /* with BACKUP_CLOSE */
    uint64_t until_ns;         /* with BACKUP_WAIT: moment of the next call, or BACKUP_NEVER_NS */
    /* With BACKUP_WAIT: ranks that begin another gradient now, ascending; lent until the next call.
     * backup_decide() has reported their beginning already. */
    const uint32_t *go_on;
    size_t go_on_count;
};

enum backup_arrival {
    BACKUP_COUNTED, /* of the open round */
    BACKUP_LATE,    /* of a closed round; the rank has to begin anew */
};

/* The present state, for views and benches. */
struct backup_view {
    uint64_t round;   /* number of the open round, from 0 */
    uint32_t counted; /* gradients of the open round so far */
    uint32_t ranks;   /* ranks among them */
    uint32_t k;       /* gradients that the rule wants; 0: decided at each arrival */
    double noise;     /* V/N: variance of a gradient over the squared norm of the true one */
    double curvature; /* c: learning rate times curvature along the step */
    double k_mean;    /* 1/(mean of 1/k) */
    double round_ns;  /* mean time of a round */
};

struct backup;

/* Allocates the state; the first round opens at `now_ns`, every rank is a member. -EINVAL: an
 * option is out of its range, or `k` or `least` is above `workers`; -ENOMEM. */
int backup_create(const struct backup_options *options, uint64_t now_ns,
                  struct backup **ret_backup);
/* NULL is fine. */
void backup_destroy(struct backup *backup);

/* The rank begins a gradient of the open round. A gradient in flight ends here: its time counts as
 * time without a gradient. -EINVAL: no member of that rank; the state is unchanged. */
int backup_began(struct backup *backup, uint32_t rank, uint64_t now_ns);
/* The rank has announced its gradient. Returns an enum backup_arrival. -EINVAL: no member of that
 * rank, or no gradient in flight; the state is unchanged. */
int backup_arrived(struct backup *backup, uint32_t rank, uint64_t now_ns);
void backup_decide(struct backup *backup, uint64_t now_ns, struct backup_decision *ret_decision);
/* The round has closed over the ranks that have arrived, by a decision or by a recorded set. The
 * next round opens. A closed round without gradients changes nothing but the number. */
void backup_closed(struct backup *backup, uint64_t now_ns);
/* Sums of the round that closed last. Sums that are not finite give no sample. */
void backup_measured(struct backup *backup, const struct backup_measure *measure);

/* The rank enters with the open round; its former times are dropped. -EINVAL: out of range. */
int backup_joined(struct backup *backup, uint32_t rank, uint64_t now_ns);
/* The rank has left or was lost; its gradient of the open round does not count. */
int backup_left(struct backup *backup, uint32_t rank);
/* Parameters were replaced: V, N and c are unknown again. */
void backup_replaced(struct backup *backup);
/* All measurements are dropped; the next rounds wait for all. */
void backup_restored(struct backup *backup, uint64_t now_ns);

/* Returns whether the rank is in the set of the open round, so far. */
bool backup_is_counted(const struct backup *backup, uint32_t rank);
/* Gradients of the rank in the open round, so far. */
uint32_t backup_counted(const struct backup *backup, uint32_t rank);
/* Rounds that closed without the rank since its last gradient in a set. */
uint32_t backup_absence(const struct backup *backup, uint32_t rank);
void backup_look(const struct backup *backup, struct backup_view *ret_view);
const char *backup_rule_name(enum backup_rule rule);
const char *backup_reason_name(enum backup_reason reason);

#endif
