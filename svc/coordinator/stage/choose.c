/* Checks the terms of a stage and chooses its ranks. Owns no state. */
#include "svc/coordinator/stage/choose.h"

#include "svc/base/text.h"
#include "svc/wire/ranks.h"
#include "svc/wire/table/table_terms.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

int stage_terms_check(const struct stage_terms *t, struct err *err)
{
    if (!*t->name)
        return err_set(err, -EINVAL, "a stage has no name; give each stage a name of 1 to %d bytes",
                       STAGE_NAME_BYTES_MAX);
    if (strchr(t->name, '"') || !text_is_harmless(t->name))
        return err_set(err, -EINVAL,
                       "the name of a stage is no plain UTF-8; leave out quotes and control "
                       "characters");
    if (t->workers_max > 0 && t->workers_min > t->workers_max)
        return err_set(err, -EINVAL,
                       "stage '%s': workers_min is %u and workers_max %u; set workers_max to at "
                       "least workers_min, or to 0",
                       t->name, t->workers_min, t->workers_max);
    if (t->workers > 0 && t->workers < t->workers_min)
        return err_set(err, -EINVAL,
                       "stage '%s': workers is %u and workers_min %u; set workers to at least "
                       "workers_min",
                       t->name, t->workers, t->workers_min);
    if (t->goal > PARALLEL_FRUGAL || t->visit >= STAGE_VISITS)
        return err_set(err, -EINVAL,
                       "stage '%s': goal is %u and visit %u; set values of enum gp_goal and enum "
                       "gp_visit",
                       t->name, t->goal, t->visit);
    if (t->consistency >= TABLE_TERMS_CONSISTENCIES ||
        (t->staleness > 0 && t->consistency != TABLE_TERMS_SSP))
        return err_set(err, -EINVAL,
                       "stage '%s': consistency is %u and staleness %u; set a value of enum "
                       "gp_consistency, and a staleness with GP_SSP alone",
                       t->name, t->consistency, t->staleness);
    return 0;
}

const char *stage_terms_write(const struct stage_terms *t, char text[STAGE_TEXT_BYTES])
{
    static const char *const visits[] = {"stay", "travel"}, *const goals[] = {"fastest", "frugal"};
    static const char *const modes[] = {"bsp", "bsp", "ssp", "asp"};
    if (!*t->name) {
        snprintf(text, STAGE_TEXT_BYTES, "the end of all stages");
        return text;
    }
    snprintf(text, STAGE_TEXT_BYTES, "'%s' with ", t->name);
    if (t->workers)
        text_append(text, STAGE_TEXT_BYTES, "%u worker%s", t->workers, t->workers > 1 ? "s" : "");
    else
        text_append(text, STAGE_TEXT_BYTES, "automatic workers (%s)", goals[t->goal]);
    text_append(text, STAGE_TEXT_BYTES, ", workers_min %u, workers_max %u, %s, %s", t->workers_min,
                t->workers_max, visits[t->visit], modes[t->consistency]);
    if (t->consistency == TABLE_TERMS_SSP)
        text_append(text, STAGE_TEXT_BYTES, ":%u", t->staleness);
    if (t->carry_bytes > 0)
        text_append(text, STAGE_TEXT_BYTES, ", carry of %" PRIu64 " bytes", t->carry_bytes);
    return text;
}

int stage_bounds(const struct stage_terms *t, uint32_t resident, uint32_t *ret_least,
                 uint32_t *ret_most)
{
    uint32_t least = t->workers_min ? t->workers_min : 1;
    uint32_t most = t->workers ? t->workers : t->workers_max;
    if (least > resident)
        return -ENOSPC;
    *ret_most = most && most < resident ? most : resident;
    *ret_least = t->workers ? *ret_most : least;
    return 0;
}

/* Returns the rank outside the set that the rule `visit` chooses next. */
static uint32_t stage_next(enum stage_visit visit, const uint32_t *visits, uint32_t resident,
                           const uint64_t *members)
{
    uint32_t best = resident;
    for (uint32_t rank = 0; rank < resident; rank++) {
        if (ranks_have(members, rank))
            continue;
        if (best == resident || (visit == STAGE_TRAVEL && visits[rank] < visits[best]))
            best = rank;
    }
    return best;
}

void stage_choose(enum stage_visit visit, const uint32_t *visits, uint32_t resident,
                  uint32_t workers, uint64_t *ret_members)
{
    for (uint32_t i = 0; i < workers && i < resident; i++)
        ranks_add(ret_members, stage_next(visit, visits, resident, ret_members));
}
