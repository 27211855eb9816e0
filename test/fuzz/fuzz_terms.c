/* Fuzzes the terms of a tensor, which clients declare, the store contains and aggregators receive.
 * Either the terms are refused with a reason, or all ranks, counts and lengths computed from them
 * are in range. The first byte is the number of workers of the job. */
#include "svc/wire/terms.h"
#include "test/lib/fuzz.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void check_sound(const struct terms *terms, uint32_t workers)
{
    uint32_t count = 0;
    for (uint32_t rank = 0; rank < workers; rank++)
        count += terms_have_rank(terms, rank);
    assert(count == terms_count(terms, workers) && count >= 1);
    assert(terms->quorum != QUORUM_FIRST || (terms->bound >= 1 && terms->bound <= count));
    assert(!(terms->flags & TERMS_LEADS) || terms->quorum == QUORUM_FIRST);
    bool follows = terms->flags & TERMS_FOLLOWS && !(terms->flags & TERMS_LEADS);
    assert(terms->rule == 0 || terms->quorum == (follows ? QUORUM_CHOSEN : QUORUM_ALL));
    assert(!follows || (terms->rule > 0) == (terms->lag == 0));
    assert(terms->lag <= TERMS_LAG_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct terms terms, again;
    if (bytes == 0)
        return 0;
    uint32_t workers = 1 + data[0] * 3u;
    uint8_t *exact = malloc(bytes);
    assert(exact);
    memcpy(exact, data + 1, bytes - 1);
    int r = terms_read(exact, bytes - 1, &terms);
    assert(r == 0 ? bytes - 1 == 0 || bytes - 1 == sizeof terms : r == -EBADMSG);
    if (r == 0 && !terms_fault(&terms, workers)) {
        check_sound(&terms, workers);
        assert(terms_read(&terms, terms_bytes(&terms), &again) == 0);
        assert(terms_are_same(&terms, &again));
    }
    free(exact);
    return 0;
}
