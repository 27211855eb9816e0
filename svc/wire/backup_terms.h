/* Terms of a job's backup workers: the rule by which a round closes without its stragglers. Every
 * rank of a job joins with the same terms (BackupSpec). With all fields 0 every round waits for all
 * ranks. */
#ifndef GRADPOOL_WIRE_BACKUP_TERMS_H
#define GRADPOOL_WIRE_BACKUP_TERMS_H

#include "svc/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The values of enum gp_backup_rule. */
enum backup_terms_rule {
    BACKUP_TERMS_ALL,
    BACKUP_TERMS_STATIC,
    BACKUP_TERMS_AUTO,
    BACKUP_TERMS_DBW,
    BACKUP_TERMS_BLIND,
    BACKUP_TERMS_ADASYNC,
    BACKUP_TERMS_RULES,
};

/* The values of enum gp_backup_rate. */
enum backup_terms_rate { BACKUP_TERMS_FIXED, BACKUP_TERMS_PROPORTIONAL, BACKUP_TERMS_RATES };

#define BACKUP_TERMS_LEAST 2u         /* default of `least` in a job with at least 2 workers */
#define BACKUP_TERMS_ABSENCE 64u      /* default of `absence` */
#define BACKUP_TERMS_LAG 4u           /* default of `lag` */
#define BACKUP_TERMS_LAG_MAX 16u      /* largest `lag`: number of results that a lane can store */
#define BACKUP_TERMS_GRADIENTS_MAX 7u /* maximum number of gradients of one rank in one round */
/* maximum number of workers, if ranks push several gradients a round */
#define BACKUP_TERMS_REPEATING_MAX 256u
/* Maximum number of workers with the rules DBW and BLIND. These rules store a table of mean times
 * with one row and one column for each worker (packer/backup/cells.h). */
#define BACKUP_TERMS_TABLE_MAX 256u

/* Flags of `sets`: rank 0 records the sets of the job's rounds; the leader lane takes the sets from
 * a recording that rank 0 reads. */
#define BACKUP_TERMS_RECORDS 1u
#define BACKUP_TERMS_REPLAYS 2u

/* Meaning, units and defaults: gp_backup_spec of gradpool.h. */
struct backup_terms {
    uint32_t rule, k, least, absence, lag, gradients, rate;
    uint32_t sets; /* BACKUP_TERMS_RECORDS, BACKUP_TERMS_REPLAYS, or both */
};

/* Reads terms from bytes of a peer. Without bytes the rule is GP_BACKUP_ALL. The values are not
 * checked. Returns 0, or -EBADMSG if the number of bytes is wrong. */
int backup_terms_read(const void *data, size_t bytes, struct backup_terms *ret_terms);
/* Returns whether the rule needs sums over gradients (MEASURE). */
static inline bool backup_terms_measure(const struct backup_terms *terms)
{
    return terms->rule == BACKUP_TERMS_AUTO || terms->rule == BACKUP_TERMS_DBW;
}
/* Returns whether the k-th rank closes each round, independent of times. A lane stores no state of
 * a rule for such a job. */
static inline bool backup_terms_are_fixed(const struct backup_terms *terms)
{
    return terms->rule == BACKUP_TERMS_ALL ||
           (terms->rule == BACKUP_TERMS_STATIC && terms->absence == UINT32_MAX &&
            terms->gradients < 2);
}
/* Returns the name of a rule, such as "static"; NULL: no such rule. */
const char *backup_terms_rule_name(uint32_t rule);
/* Replaces zeros by the defaults, so that equal terms have equal fields. Terms without a rule are
 * not changed. */
struct backup_terms backup_terms_filled(struct backup_terms terms, uint32_t workers);
/* Checks the terms, as they were sent, for a job that starts with `workers`. Returns 0, or -EINVAL
 * with a text that names the job, the value and the possible values. */
int backup_terms_check(const struct backup_terms *terms, uint32_t workers, const char *job,
                       struct err *err);
/* Returns whether two terms are equal once their zeros are replaced by the defaults. */
bool backup_terms_are_same(const struct backup_terms *a, const struct backup_terms *b,
                           uint32_t workers);
/* Writes all values of the terms: "static, k 3, least 2, absence 64, lag 4, gradients 1, rate
 * fixed", or "all". The variables of a recording and of a replay follow. The terms have passed the
 * check. */
void backup_terms_write(const struct backup_terms *terms, uint32_t workers, char *text,
                        size_t text_bytes);
#define BACKUP_TERMS_TEXT_BYTES 192

#endif
