/* Fuzzes records of the data plane. Either a record is refused, or it is valid, has a length, and a
 * second check has the same result. */
#include "svc/wire/record.h"
#include "test/lib/fuzz.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

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
    r = record_check(data, bytes, &again, &fixed_again);
    assert(r == 0 && fixed_again == fixed && memcmp(&again, &record, fixed) == 0);
    return 0;
}
