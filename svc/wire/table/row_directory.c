/* Reads directories of requests for rows. The bytes are those of a peer (W9). */
#include "svc/wire/table/row_directory.h"

#include <errno.h>
#include <string.h>

int row_directory_read(const struct row_directory *directory, uint32_t index,
                       struct row_span *ret_span)
{
    const char *entry = (const char *)directory->entries + index * sizeof *ret_span;
    memcpy(ret_span, entry, sizeof *ret_span);
    if (ret_span->shard >= directory->shards || ret_span->count == 0)
        return -EBADMSG;
    if (ret_span->first > directory->keys || ret_span->count > directory->keys - ret_span->first)
        return -EBADMSG;
    return 0;
}

bool row_span_follows(const struct row_span *span, const struct row_span *before)
{
    return !before || (span->shard > before->shard && span->first >= before->first + before->count);
}

int row_directory_check(const struct row_directory *directory, uint32_t *ret_index)
{
    struct row_span before = {0}, span;
    for (uint32_t i = 0; i < directory->spans; i++) {
        int error = row_directory_read(directory, i, &span);
        if (error < 0 || !row_span_follows(&span, i > 0 ? &before : NULL)) {
            *ret_index = i;
            return -EBADMSG;
        }
        before = span;
    }
    return 0;
}

int row_directory_find(const struct row_directory *directory, uint32_t shard,
                       struct row_span *ret_span)
{
    uint32_t low = 0, high = directory->spans;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        struct row_span span;
        int error = row_directory_read(directory, middle, &span);
        if (error < 0)
            return error;
        if (span.shard == shard) {
            *ret_span = span;
            return 0;
        }
        low = span.shard < shard ? middle + 1 : low;
        high = span.shard < shard ? high : middle;
    }
    return -ENOENT;
}
