/* Reads and checks the terms of a tensor. This file knows only the number of workers of the job.
 * The owner of the job makes the other checks. Bytes of peers never reach an assert (W9). */
#include "svc/wire/terms.h"

#include <errno.h>
#include <string.h>

int terms_read(const void *data, size_t bytes, struct terms *ret_terms)
{
    if (bytes != 0 && bytes != sizeof *ret_terms)
        return -EBADMSG;
    memset(ret_terms, 0, sizeof *ret_terms);
    if (bytes > 0)
        memcpy(ret_terms, data, bytes);
    return 0;
}

bool terms_are_for_all(const struct terms *terms) { return ranks_are_none(terms->ranks); }

bool terms_have_rank(const struct terms *terms, uint32_t rank)
{
    return terms_are_for_all(terms) || ranks_have(terms->ranks, rank);
}

uint32_t terms_count(const struct terms *terms, uint32_t workers)
{
    uint32_t count = 0;
    for (uint32_t rank = 0; rank < workers; rank++)
        count += terms_have_rank(terms, rank);
    return count;
}

static bool has_foreign_rank(const struct terms *terms, uint32_t workers)
{
    for (uint32_t rank = workers; rank < TERMS_RANK_WORDS * 64; rank++)
        if (ranks_have(terms->ranks, rank))
            return true;
    return false;
}

/* Returns whether `lag` is possible. A tensor with TERMS_FOLLOWS has either an update rule or a
 * lag. Of all other tensors, only the leading tensor may have a lag. */
static bool suits_lag(const struct terms *terms)
{
    bool follows = terms->flags & TERMS_FOLLOWS, leads = terms->flags & TERMS_LEADS;
    if (!follows || terms->lag > TERMS_LAG_MAX)
        return terms->lag == 0;
    return leads || (terms->lag == 0) == (terms->rule != 0);
}

const char *terms_fault(const struct terms *terms, uint32_t workers)
{
    if (terms->quorum > QUORUM_ANY)
        return "the quorum is unknown; set gp_tensor_spec.quorum to a value of enum gp_quorum";
    if (terms->flags & ~(TERMS_LEADS | TERMS_MEASURES | TERMS_FOLLOWS))
        return "a flag is unknown; set gp_tensor_spec.flags to GP_LEADS, GP_MEASURES or 0";
    if (terms->rule > TERMS_RULES_MAX)
        return "the update rule is unknown; set gp_tensor_spec.rule to a value of enum gp_rule";
    bool follows = terms->flags & TERMS_FOLLOWS;
    bool leads = terms->flags & TERMS_LEADS;
    if (follows && !leads && terms->quorum != QUORUM_CHOSEN)
        return "a tensor that follows the sets of a job has no other quorum";
    if (!suits_lag(terms))
        return "only sums that follow the sets of a job have a lag, of 1 to 16 rounds";
    if (terms->rule && terms->quorum != QUORUM_ALL && (!follows || leads))
        return "a tensor with an update rule needs all ranks; set gp_tensor_spec.quorum to GP_ALL";
    if (!terms_are_for_all(terms) && has_foreign_rank(terms, workers))
        return "the set has a rank that the job does not have; name ranks of the job";
    if (terms->flags & TERMS_LEADS && terms->quorum != QUORUM_FIRST)
        return "GP_LEADS is for the quorum GP_FIRST; set gp_tensor_spec.quorum";
    bool is_first = terms->quorum == QUORUM_FIRST;
    if (is_first && (terms->bound == 0 || terms->bound > terms_count(terms, workers)))
        return "GP_FIRST needs a bound; set gp_tensor_spec.bound to 1 up to the number of ranks of "
               "the set";
    return NULL;
}

size_t terms_bytes(const struct terms *terms)
{
    static const struct terms plain;
    return terms_are_same(terms, &plain) ? 0 : sizeof *terms;
}

bool terms_are_same(const struct terms *a, const struct terms *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}
