/* Checks, compares and writes the terms of a job's backup workers. The functions get only the name
 * of the job and its number of workers. Values of peers never reach an assert (W9). */
#include "svc/wire/backup_terms.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

const char *backup_terms_rule_name(uint32_t rule)
{
    static const char *const names[BACKUP_TERMS_RULES] = {"all", "static", "auto",
                                                          "dbw", "blind",  "adasync"};
    return rule < BACKUP_TERMS_RULES ? names[rule] : NULL;
}

int backup_terms_read(const void *data, size_t bytes, struct backup_terms *ret_terms)
{
    if (bytes != 0 && bytes != sizeof *ret_terms)
        return -EBADMSG;
    *ret_terms = (struct backup_terms){0};
    if (bytes > 0)
        memcpy(ret_terms, data, bytes);
    return 0;
}

static uint32_t backup_terms_or(uint32_t value, uint32_t preset) { return value ? value : preset; }

struct backup_terms backup_terms_filled(struct backup_terms terms, uint32_t workers)
{
    uint32_t least = workers < BACKUP_TERMS_LEAST ? workers : BACKUP_TERMS_LEAST;
    if (terms.rule == BACKUP_TERMS_ALL)
        return terms;
    terms.least = backup_terms_or(terms.least, least);
    terms.absence = backup_terms_or(terms.absence, BACKUP_TERMS_ABSENCE);
    terms.lag = backup_terms_or(terms.lag, BACKUP_TERMS_LAG);
    terms.gradients = backup_terms_or(terms.gradients, 1);
    return terms;
}

static bool has_k(uint32_t rule)
{
    return rule == BACKUP_TERMS_STATIC || rule == BACKUP_TERMS_ADASYNC;
}

static int check_k(const struct backup_terms *t, uint32_t workers, const char *job, struct err *err)
{
    const char *rule = backup_terms_rule_name(t->rule);
    if (has_k(t->rule) && (t->k < 1 || t->k > workers))
        return err_set(err, -EINVAL,
                       "job '%s': backup.k is %u for %u workers with rule '%s'; set k to 1 to %u",
                       job, t->k, workers, rule, workers);
    if (!has_k(t->rule) && t->k != 0)
        return err_set(err, -EINVAL,
                       "job '%s': backup.k is %u, but rule '%s' chooses k itself; set k to 0", job,
                       t->k, rule);
    bool has_table = t->rule == BACKUP_TERMS_DBW || t->rule == BACKUP_TERMS_BLIND;
    if (has_table && workers > BACKUP_TERMS_TABLE_MAX)
        return err_set(err, -EINVAL,
                       "job '%s': backup rule '%s' is for at most %u workers, and the job has %u; "
                       "use rule 'auto'",
                       job, rule, BACKUP_TERMS_TABLE_MAX, workers);
    if (t->least > workers)
        return err_set(err, -EINVAL,
                       "job '%s': backup.least is %u for %u workers; set least to 0 to %u", job,
                       t->least, workers, workers);
    return 0;
}

static int check_gradients(const struct backup_terms *t, uint32_t workers, const char *job,
                           struct err *err)
{
    bool repeats = t->rule == BACKUP_TERMS_STATIC || t->rule == BACKUP_TERMS_AUTO;
    if (t->gradients > BACKUP_TERMS_GRADIENTS_MAX)
        return err_set(err, -EINVAL, "job '%s': backup.gradients is %u; set gradients to 0 to %u",
                       job, t->gradients, BACKUP_TERMS_GRADIENTS_MAX);
    if (t->gradients > 1 && !repeats)
        return err_set(err, -EINVAL,
                       "job '%s': backup.gradients is %u with rule '%s'; use rule 'static' or "
                       "'auto', or set gradients to 1",
                       job, t->gradients, backup_terms_rule_name(t->rule));
    if (t->gradients > 1 && workers > BACKUP_TERMS_REPEATING_MAX)
        return err_set(err, -EINVAL,
                       "job '%s': backup.gradients is %u for %u workers, but more than 1 gradient "
                       "needs a job of at most %u workers; set gradients to 1, or start fewer "
                       "workers",
                       job, t->gradients, workers, BACKUP_TERMS_REPEATING_MAX);
    return 0;
}

int backup_terms_check(const struct backup_terms *terms, uint32_t workers, const char *job,
                       struct err *err)
{
    static const struct backup_terms none;
    if (terms->rule >= BACKUP_TERMS_RULES)
        return err_set(err, -EINVAL,
                       "job '%s': backup.rule is %u; set rule to a value of enum gp_backup_rule",
                       job, terms->rule);
    if (terms->rule == BACKUP_TERMS_ALL && memcmp(terms, &none, sizeof none) != 0)
        return err_set(err, -EINVAL,
                       "job '%s': backup has values and no rule; set backup.rule, or all fields of "
                       "backup to 0",
                       job);
    if (terms->rate >= BACKUP_TERMS_RATES)
        return err_set(err, -EINVAL,
                       "job '%s': backup.rate is %u; set rate to a value of enum gp_backup_rate",
                       job, terms->rate);
    if (terms->lag > BACKUP_TERMS_LAG_MAX)
        return err_set(err, -EINVAL, "job '%s': backup.lag is %u; set lag to 0 to %u", job,
                       terms->lag, BACKUP_TERMS_LAG_MAX);
    if (terms->sets > (BACKUP_TERMS_RECORDS | BACKUP_TERMS_REPLAYS))
        return err_set(err, -EINVAL,
                       "job '%s': backup.sets has unknown flags (%u); install one version of "
                       "gradpool on all hosts",
                       job, terms->sets);
    if (terms->sets && terms->gradients > 1)
        return err_set(err, -EINVAL,
                       "job '%s': backup.gradients is %u, and sets are recorded and replayed with "
                       "one gradient of a rank in a round; set gradients to 1",
                       job, terms->gradients);
    int error = check_k(terms, workers, job, err);
    return error < 0 ? error : check_gradients(terms, workers, job, err);
}

bool backup_terms_are_same(const struct backup_terms *a, const struct backup_terms *b,
                           uint32_t workers)
{
    struct backup_terms first = backup_terms_filled(*a, workers);
    struct backup_terms second = backup_terms_filled(*b, workers);
    return memcmp(&first, &second, sizeof first) == 0;
}

void backup_terms_write(const struct backup_terms *terms, uint32_t workers, char *text,
                        size_t text_bytes)
{
    struct backup_terms t = backup_terms_filled(*terms, workers);
    const char *rule = backup_terms_rule_name(t.rule);
    const char *rate = t.rate == BACKUP_TERMS_FIXED ? "fixed" : "proportional";
    const char *records = t.sets & BACKUP_TERMS_RECORDS ? ", GRADPOOL_SETS_RECORD" : "";
    const char *replays = t.sets & BACKUP_TERMS_REPLAYS ? ", GRADPOOL_SETS_REPLAY" : "";
    if (t.rule == BACKUP_TERMS_ALL)
        snprintf(text, text_bytes, "%s", rule);
    else
        snprintf(text, text_bytes,
                 "%s, k %u, least %u, absence %u, lag %u, gradients %u, rate %s%s%s", rule, t.k,
                 t.least, t.absence, t.lag, t.gradients, rate, records, replays);
}
