/* Fuzzes records of the data plane. Either a record is refused, or the record is valid, has a
 * length, and passes a second check, too. All functions that read a set of ranks must agree. */
#include "svc/wire/record.h"
#include "svc/wire/round_set.h"
#include "test/lib/fuzz.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

/* Checks that all functions that read a set of ranks agree. */
static void check_set(const struct record_chosen *set)
{
    uint32_t ranks = 0, gradients = 0;
    for (uint32_t rank = 0; rank < RECORD_MISSING_WORDS * 64 + 1; rank++) {
        uint32_t count = round_set_count(set, rank);
        assert(count <= (set->form == RECORD_FORM_COUNTS ? RECORD_GRADIENTS_MAX : 1));
        ranks += count > 0;
        gradients += count;
    }
    assert(ranks == round_set_ranks(set) && gradients == round_set_gradients(set));
    assert(ranks > 0 || set->form == RECORD_FORM_TAKERS);
    assert(round_set_is_within(set, RECORD_MISSING_WORDS * 64) && round_set_is_same(set, set));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    union record record, again;
    size_t fixed, fixed_again;
    int r = record_check(data, bytes, &record, &fixed);
    if (r < 0) {
        assert(r == -EBADMSG);
        return 0;
    }
    assert(fixed <= bytes && fixed == record_bytes(&record));
    assert(memcmp(&record, data, fixed) == 0);
    if (record.kind == RECORD_READY) {
        assert(record.ready.payload_bytes == bytes - fixed);
        assert(record.ready.outputs <= RECORD_OUTPUTS_MAX);
    } else {
        assert(fixed == bytes);
    }
    if (record.kind == RECORD_CHOSEN || record.kind == RECORD_PASSED)
        check_set(&record.chosen);
    r = record_check(data, bytes, &again, &fixed_again);
    assert(r == 0 && fixed_again == fixed && memcmp(&again, &record, fixed) == 0);
    return 0;
}
