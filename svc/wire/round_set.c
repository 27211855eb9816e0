/* Writes and reads the ranks in CHOSEN and PASSED. svc/wire/README.md: W13, W22. */
#include "svc/wire/round_set.h"

#include <errno.h>
#include <string.h>

#define PLANES 3 /* number of bits of a count */
#define PLANE_WORDS (RECORD_COUNTED_RANKS / 64)
_Static_assert(PLANES *PLANE_WORDS == RECORD_MISSING_WORDS, "the planes fill the ranks");
_Static_assert((1 << PLANES) - 1 == RECORD_GRADIENTS_MAX, "a count fits the planes");

void round_set_of_ranks(struct record_chosen *ret_set, uint64_t round, const uint64_t *ranks)
{
    *ret_set = (struct record_chosen){.kind = RECORD_CHOSEN, .round = round};
    memcpy(ret_set->ranks, ranks, sizeof ret_set->ranks);
}

static void put_count(struct record_chosen *set, uint32_t rank, uint32_t count)
{
    for (uint32_t plane = 0; plane < PLANES; plane++)
        if (count >> plane & 1)
            ranks_add(set->ranks + plane * PLANE_WORDS, rank);
}

int round_set_of_counts(struct record_chosen *ret_set, uint64_t round, const uint8_t *counts,
                        uint32_t workers)
{
    struct record_chosen set = {.kind = RECORD_CHOSEN, .round = round};
    uint32_t most = 0, last = 0;
    for (uint32_t rank = 0; rank < workers; rank++) {
        most = counts[rank] > most ? counts[rank] : most;
        last = counts[rank] ? rank : last;
    }
    set.form = most > 1 ? RECORD_FORM_COUNTS : RECORD_FORM_RANKS;
    uint32_t room = most > 1 ? RECORD_COUNTED_RANKS : RECORD_MISSING_WORDS * 64;
    if (most == 0 || most > RECORD_GRADIENTS_MAX || last >= room)
        return -EINVAL;
    for (uint32_t rank = 0; rank <= last; rank++)
        put_count(&set, rank, counts[rank]);
    *ret_set = set;
    return 0;
}

uint32_t round_set_count(const struct record_chosen *set, uint32_t rank)
{
    uint32_t count = 0;
    if (set->form != RECORD_FORM_COUNTS)
        return rank < RECORD_MISSING_WORDS * 64 && ranks_have(set->ranks, rank);
    for (uint32_t plane = 0; rank < RECORD_COUNTED_RANKS && plane < PLANES; plane++)
        count |= (uint32_t)ranks_have(set->ranks + plane * PLANE_WORDS, rank) << plane;
    return count;
}

uint32_t round_set_ranks(const struct record_chosen *set)
{
    const uint64_t *w = set->ranks;
    uint32_t count = 0;
    if (set->form != RECORD_FORM_COUNTS)
        return ranks_count(w);
    for (uint32_t i = 0; i < PLANE_WORDS; i++)
        count += (uint32_t)__builtin_popcountll(w[i] | w[i + PLANE_WORDS] | w[i + 2 * PLANE_WORDS]);
    return count;
}

uint32_t round_set_gradients(const struct record_chosen *set)
{
    uint32_t count = 0;
    if (set->form != RECORD_FORM_COUNTS)
        return ranks_count(set->ranks);
    for (uint32_t i = 0; i < RECORD_MISSING_WORDS; i++)
        count += (uint32_t)__builtin_popcountll(set->ranks[i]) << i / PLANE_WORDS;
    return count;
}

bool round_set_is_within(const struct record_chosen *set, uint32_t workers)
{
    for (uint32_t rank = workers; rank < RECORD_MISSING_WORDS * 64; rank++)
        if (round_set_count(set, rank) > 0)
            return false;
    return true;
}

bool round_set_is_same(const struct record_chosen *a, const struct record_chosen *b)
{
    return a->form == b->form && memcmp(a->ranks, b->ranks, sizeof a->ranks) == 0;
}
