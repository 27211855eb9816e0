/* Fuzzes the directory of a request for rows, in memory that a worker lends. The first eight bytes
 * are the number of shards and the number of keys. Either an entry is refused, or every span names
 * a shard and keys within the request, and the search for this shard finds the span. */
#include "svc/wire/table/row_directory.h"
#include "test/lib/fuzz.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define HEAD_BYTES 8
/* maximum number of shards that are searched, because the search of more shards takes long */
#define SHARDS_SEARCHED 64

static void check_span(const struct row_directory *directory, uint32_t index)
{
    struct row_span span, found;
    assert(row_directory_read(directory, index, &span) == 0);
    assert(span.shard < directory->shards && span.count >= 1);
    assert((uint64_t)span.first + span.count <= directory->keys);
    assert(row_directory_find(directory, span.shard, &found) == 0);
    assert(memcmp(&span, &found, sizeof span) == 0);
}

/* Checks that the search does not find shards that a valid directory lacks. */
static void check_absent(const struct row_directory *directory)
{
    struct row_span span;
    uint32_t found = 0;
    for (uint32_t shard = 0; shard < directory->shards; shard++) {
        int error = row_directory_find(directory, shard, &span);
        assert(error == 0 || error == -ENOENT);
        found += error == 0;
    }
    assert(found == directory->spans);
}

/* Reads an invalid directory. Reading must stay within the memory, because a worker may damage the
 * directory at any time. */
static void read_unsound(const struct row_directory *directory)
{
    struct row_span span;
    for (uint32_t shard = 0; shard < 4; shard++) {
        int error = row_directory_find(directory, shard, &span);
        assert(error == 0 || error == -ENOENT || error == -EBADMSG);
        assert(error < 0 || (uint64_t)span.first + span.count <= directory->keys);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    uint32_t head[2], wrong = UINT32_MAX;
    if (bytes < HEAD_BYTES)
        return 0;
    memcpy(head, data, sizeof head);
    size_t rest = (bytes - HEAD_BYTES) / sizeof(struct row_span) * sizeof(struct row_span);
    /* with an allocation of the exact size, the sanitizer detects any access outside */
    uint8_t *exact = malloc(rest ? rest : 1);
    assert(exact);
    memcpy(exact, data + HEAD_BYTES, rest);
    struct row_directory directory = {.entries = exact,
                                      .spans = (uint32_t)(rest / sizeof(struct row_span)),
                                      .keys = head[1] % (RECORD_ROW_KEYS_MAX + 1),
                                      .shards = head[0] % (RECORD_SHARDS_MAX + 1)};
    int error = row_directory_check(&directory, &wrong);
    assert(error == 0 || (error == -EBADMSG && wrong < directory.spans));
    for (uint32_t i = 0; error == 0 && i < directory.spans; i++)
        check_span(&directory, i);
    if (error == 0 && directory.shards <= SHARDS_SEARCHED)
        check_absent(&directory);
    else if (error < 0)
        read_unsound(&directory);
    free(exact);
    return 0;
}
