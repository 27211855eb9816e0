/* Checks the records of tables. A record is a copy, so no other process changes it during a check.
 * Never trusts a byte, never allocates, and never asserts on bytes of a peer (W9). */
#include "svc/wire/table/record_rows.h"

#include <stddef.h>

#define PLACE_BYTES 8u /* alignment of directory, keys and rows */
#define ELEMENT_BYTES_MAX 8u

static bool words_are_zero(const uint32_t *words, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (words[i])
            return false;
    return true;
}

static bool place_is_sound(uint64_t offset, uint64_t bytes)
{
    uint64_t end;
    return offset % PLACE_BYTES == 0 && !__builtin_add_overflow(offset, bytes, &end);
}

static bool number_is_sound(uint64_t number) { return number >= 1 && number <= RECORD_CLOCK_MOST; }

static bool counts_are_sound(const struct record_rows *r)
{
    return r->dim >= 1 && r->dim <= RECORD_ROW_DIM_MAX && r->keys >= 1 &&
           r->keys <= RECORD_ROW_KEYS_MAX && r->spans >= 1 && r->spans <= RECORD_SHARDS_MAX &&
           r->spans <= r->keys;
}

/* The lane compares dtype and dim with those of the table; this function does not. */
bool record_rows_are_sound(const struct record_rows *r)
{
    if (r->reserved != 0 || r->reserved_2 != 0)
        return false;
    if (r->operation != RECORD_PULL && r->operation != RECORD_PUSH)
        return false;
    if (!counts_are_sound(r) || !number_is_sound(r->clock) || !number_is_sound(r->sequence))
        return false;
    uint64_t row_bytes_max = (uint64_t)r->dim * ELEMENT_BYTES_MAX;
    return place_is_sound(r->directory_offset, r->spans * sizeof(struct row_span)) &&
           place_is_sound(r->keys_offset, r->keys * sizeof(uint64_t)) &&
           place_is_sound(r->rows_offset, r->keys * row_bytes_max);
}

static bool tables_are_sound(const struct record_clock *r)
{
    if (r->count < 1 || r->count > RECORD_CLOCK_TABLES_MAX)
        return false;
    for (uint32_t i = 1; i < r->count; i++)
        if (r->tables[i] <= r->tables[i - 1])
            return false;
    return words_are_zero(r->tables + r->count, RECORD_CLOCK_TABLES_MAX - r->count);
}

bool record_clock_is_sound(const struct record_clock *r)
{
    if (r->reserved != 0 || r->reserved_2 != 0 || r->sequence > RECORD_CLOCK_MOST)
        return false;
    if (r->clock > RECORD_CLOCK_MOST || (r->clock == 0 && r->form != RECORD_CLOCK_STANDING))
        return false;
    switch (r->form) {
    case RECORD_CLOCK_ENDED:
    case RECORD_CLOCK_STANDING: return tables_are_sound(r);
    case RECORD_CLOCK_SETTINGS:
        return r->count == 0 &&
               words_are_zero(r->settings.padding, sizeof r->settings.padding / sizeof(uint32_t));
    }
    return false;
}

static bool behind_are_sound(const struct record_clocks *r)
{
    for (uint32_t i = 0; i < RECORD_CLOCKS_RANKS_MAX; i++) {
        bool is_used = i < r->count;
        if (is_used ? !number_is_sound(r->clocks[i]) : r->clocks[i] != 0 || r->ranks[i] != 0)
            return false;
        if (is_used && i > 0 && r->ranks[i] <= r->ranks[i - 1])
            return false;
    }
    return true;
}

bool record_clocks_are_sound(const struct record_clocks *r)
{
    if (r->is_answer > 1 || r->reserved != 0 || !number_is_sound(r->minimum))
        return false;
    if (r->count > RECORD_CLOCKS_RANKS_MAX || r->behind < r->count)
        return false;
    if (!r->is_answer && (r->word != 0 || r->behind != 0))
        return false;
    return behind_are_sound(r);
}

bool record_taken_is_sound(const struct record_taken *r)
{
    return !r->reserved[0] && !r->reserved[1] && !r->reserved[2];
}

bool record_ring_is_sound(const struct record_ring *r)
{
    return !r->reserved[0] && !r->reserved[1] && !r->reserved[2] && r->reserved_2 == 0 &&
           r->copy != 0 && r->offset % 4096 == 0;
}

bool record_logged_is_sound(const struct record_logged *r)
{
    return !r->reserved[0] && !r->reserved[1] && !r->reserved[2] && r->copy != 0;
}
