/* backup: decides when a round closes although some ranks (stragglers) have not announced their
 * gradients. PURE: no clock, no I/O, no randomness; no allocation except in backup_create(). The
 * same events give the same decisions. README.md has the rules: BK1 to BK12.
 *
 * The caller reports events of the open round: backup_began() when a rank begins a gradient,
 * backup_arrived() when the gradient is announced, backup_measured() when the sums of a closed
 * round are known. The caller calls backup_decide() at each arrival and at the time `until_ns` of
 * the last decision, and backup_closed() when the round closes. Times are nanoseconds of a
 * monotonic clock. One thread at a time may use a state.
 *
 * Sources: BACKUP_DBW and BACKUP_BLIND are our reconstructions from the abstract of DBW (arXiv
 * 2004.14696). BACKUP_ADASYNC is AdaSync from memory, not compared with the paper. BACKUP_AUTO,
 * BACKUP_BEFORE and second gradients are this project's own. */
#ifndef GRADPOOL_PACKER_BACKUP_BACKUP_H
#define GRADPOOL_PACKER_BACKUP_BACKUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* maximum number of workers if each rank has at most one gradient in a round */
#define BACKUP_WORKERS_MAX UINT32_C(768)
/* maximum number of workers if a rank may have several gradients in a round */
#define BACKUP_SECOND_MAX UINT32_C(256)
#define BACKUP_GRADIENTS_MAX UINT32_C(7) /* maximum number of gradients of one rank in one round */
#define BACKUP_LEAST UINT32_C(2)         /* default of `least` */
#define BACKUP_ABSENCE UINT32_C(64)      /* default of `absence` */
#define BACKUP_ABSENCE_NONE UINT32_MAX   /* rounds never wait for a rank because of its absence */
/* no time is set: the next decision follows at the next arrival */
#define BACKUP_NEVER_NS UINT64_MAX

enum backup_rule {
    BACKUP_ALL,    /* every round waits for all ranks */
    BACKUP_STATIC, /* the round closes at its k-th gradient */
    /* closes the round when more gradients no longer pay; decides at each arrival */
    BACKUP_AUTO,
    BACKUP_BEFORE, /* like BACKUP_AUTO, but chooses k before the round */
    /* before the round, chooses the k with the largest gain per time, from losses and rate */
    BACKUP_DBW,
    /* before the round, chooses the k with the largest k per time; reads no gradient */
    BACKUP_BLIND,
    BACKUP_ADASYNC, /* k grows with the square root of the decrease of the loss */
    BACKUP_RULES,
};

/* Learning rate of a step with the mean of k of n gradients. */
enum backup_rate {
    BACKUP_RATE_FIXED,
    BACKUP_RATE_PROPORTIONAL, /* the step is multiplied by k/n */
};

struct backup_options {
    enum backup_rule rule;
    enum backup_rate rate;
    uint32_t workers; /* number n of workers, from 1 to BACKUP_WORKERS_MAX */
    /* for STATIC: number of gradients that close a round; for ADASYNC: k of the first round; else
     * 0 */
    uint32_t k;
    uint32_t least; /* smallest number of gradients that closes a round; 0: BACKUP_LEAST */
    /* after this many rounds without a rank, a round waits for the rank; 0: BACKUP_ABSENCE */
    uint32_t absence;
    /* maximum gradients of a rank in one round; 0 means 1; above 1 only with STATIC and AUTO */
    uint32_t gradients;
};

/* Sums over the gradients g_i of a closed round, and their mean g. An unknown value is NAN. */
struct backup_measure {
    uint32_t inputs; /* number of gradients in the mean */
    double squares;  /* sum of |g_i|^2 over the gradients of the round */
    double mean;     /* |g|^2, the squared norm of the mean gradient */
    double product;  /* scalar product of g and the mean gradient of the previous round */
    double loss;     /* mean loss of the batches, for DBW and ADASYNC */
    double rate;     /* learning rate, for DBW */
};

enum backup_verb {
    BACKUP_WAIT,  /* the round waits for the next arrival, at most until `until_ns` */
    BACKUP_CLOSE, /* the round closes with all gradients that have arrived */
};

enum backup_reason {
    BACKUP_REASON_ALL,    /* every rank has a gradient in the round */
    BACKUP_REASON_GAIN,   /* the rule closed the round at an arrival */
    BACKUP_REASON_MOMENT, /* the rule closed the round at a time that it had set in `until_ns` */
    /* the round waited for a rank that was absent for many rounds, and this rank has arrived */
    BACKUP_REASON_ABSENCE,
};

struct backup_decision {
    enum backup_verb verb;
    enum backup_reason reason; /* reason of a BACKUP_CLOSE */
    /* with BACKUP_WAIT: time at which the caller calls backup_decide() again; BACKUP_NEVER_NS:
     * none */
    uint64_t until_ns;
    /* With BACKUP_WAIT: ranks that begin another gradient now, in ascending order; valid until the
     * next call. backup_decide() has already called backup_began() for these ranks. */
    const uint32_t *go_on;
    size_t go_on_count;
};

enum backup_arrival {
    BACKUP_COUNTED, /* the gradient belongs to the open round */
    BACKUP_LATE,    /* the gradient belongs to a closed round; the rank begins a new gradient */
};

/* The present state, for views and benches. */
struct backup_view {
    uint64_t round;   /* number of the open round; the first is 0 */
    uint32_t counted; /* number of gradients in the open round */
    uint32_t ranks;   /* number of ranks with a gradient in the open round */
    uint32_t k;       /* number of gradients that close the round; 0: decided at each arrival */
    /* noise V/N: variance of a gradient, divided by the squared norm of the true gradient */
    double noise;
    double curvature; /* c: learning rate times the curvature of the loss along the step */
    double k_mean;    /* harmonic mean of k over rounds: 1/(mean of 1/k) */
    double round_ns;  /* mean time of a round */
};

struct backup;

/* Returns the bytes of the state for these options; 0: an option is out of its range. */
size_t backup_bytes(const struct backup_options *options);
/* Like backup_create(), but the state lies in `memory`, which has backup_bytes() bytes and is
 * aligned to 8 bytes. The caller frees the memory. -EINVAL: as for backup_create(). */
int backup_init(const struct backup_options *options, uint64_t now_ns, void *memory,
                struct backup **ret_backup);
/* Allocates the state. The first round opens at `now_ns`, and every rank is a member. -EINVAL: an
 * option is out of its range, or `k` or `least` is above `workers`; -ENOMEM. */
int backup_create(const struct backup_options *options, uint64_t now_ns,
                  struct backup **ret_backup);
void backup_destroy(struct backup *backup);

/* Reports that the rank begins a gradient of the open round. If the rank was computing another
 * gradient, that gradient is interrupted, and its time counts as time without a gradient. -EINVAL:
 * the rank is no member; the state is unchanged. */
int backup_began(struct backup *backup, uint32_t rank, uint64_t now_ns);
/* Reports that the rank has given its gradient up. The time counts as computing time that gave no
 * gradient. -EINVAL: the rank is no member, or computes no gradient; the state is unchanged. */
int backup_interrupted(struct backup *backup, uint32_t rank, uint64_t now_ns);
/* Reports that the rank has announced its gradient. Returns an enum backup_arrival. -EINVAL: the
 * rank is no member, or computes no gradient; the state is unchanged. */
int backup_arrived(struct backup *backup, uint32_t rank, uint64_t now_ns);
/* Like backup_arrived(), for a caller that knows whether the gradient is of the open round or of a
 * closed one. A gradient also counts without an earlier backup_began(), but its duration is
 * unknown. If a rank announces more gradients in a round than the option `gradients`, the
 * additional ones do not count. -EINVAL: the rank is no member. */
int backup_announced(struct backup *backup, uint32_t rank, bool is_of_open, uint64_t now_ns);
void backup_decide(struct backup *backup, uint64_t now_ns, struct backup_decision *ret_decision);
/* Reports that the round has closed with the gradients that have arrived, and opens the next round.
 * The caller closes a round after the decision BACKUP_CLOSE, or when it replays a recorded set of
 * gradients. A closed round without gradients changes only the round number. */
void backup_closed(struct backup *backup, uint64_t now_ns);
/* Reports the sums of the last closed round. Sums that are not finite are ignored. */
void backup_measured(struct backup *backup, const struct backup_measure *measure);

/* Reports a rank that joins in the open round. The earlier times of the rank are deleted. -EINVAL:
 * the rank is out of range. */
int backup_joined(struct backup *backup, uint32_t rank, uint64_t now_ns);
/* Reports a rank that has left or was lost. Its gradient in the open round does not count. */
int backup_left(struct backup *backup, uint32_t rank);
/* Reports that the parameters were replaced: the estimates of noise and curvature are deleted. */
void backup_replaced(struct backup *backup);
/* Deletes all measurements. The next rounds wait for all ranks. */
void backup_restored(struct backup *backup, uint64_t now_ns);

/* Returns whether the rank computes a gradient. */
bool backup_is_flying(const struct backup *backup, uint32_t rank);
/* Returns whether the open round has a gradient of the rank. */
bool backup_is_counted(const struct backup *backup, uint32_t rank);
/* Returns the number of gradients of the rank in the open round. */
uint32_t backup_counted(const struct backup *backup, uint32_t rank);
/* Returns the number of closed rounds since the last round with a gradient of the rank. */
uint32_t backup_absence(const struct backup *backup, uint32_t rank);
/* Returns the scale of the rank, which is the mean time of its gradients; 0: unknown. */
double backup_scale_ns(const struct backup *backup, uint32_t rank);
void backup_look(const struct backup *backup, struct backup_view *ret_view);
const char *backup_rule_name(enum backup_rule rule);
const char *backup_reason_name(enum backup_reason reason);

#endif
