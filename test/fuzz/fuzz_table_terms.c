/* Fuzzes the terms of a table, which clients declare and aggregators receive. Either the terms are
 * refused with a reason, or all counts are in range, and the terms with defaults filled in mean the
 * same. The bytes behind the terms are a name. */
#include "svc/wire/table/table_terms.h"
#include "test/lib/fuzz.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void check_sound(const struct table_terms *terms)
{
    struct table_terms filled = table_terms_filled(*terms);
    struct err err;
    char text[TABLE_TERMS_TEXT_BYTES];
    assert(filled.dim >= 1 && filled.dim <= TABLE_TERMS_DIM_MAX);
    assert(filled.shards >= 1 && filled.shards <= TABLE_TERMS_SHARDS_MAX);
    assert(__builtin_popcount(filled.shards) == 1 && filled.wire != 0 && filled.combine != 0);
    assert(terms->initial == TABLE_TERMS_ZEROS || isfinite(terms->initial_value));
    assert(table_terms_check(&filled, "t", &err) == 0);
    assert(table_terms_are_same(terms, &filled) && table_terms_are_same(terms, terms));
    table_terms_write(terms, text, sizeof text);
    assert(strlen(text) < sizeof text - 1 && strstr(text, "dim ") == text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct table_terms terms;
    struct err err = {0};
    if (bytes < sizeof terms)
        return 0;
    memcpy(&terms, data, sizeof terms);
    char *name = calloc(bytes - sizeof terms + 1, 1);
    assert(name);
    memcpy(name, data + sizeof terms, bytes - sizeof terms);
    int error = table_terms_check_name(name, &err);
    assert(error == 0 ? strlen(name) >= 1 && strlen(name) <= TABLE_TERMS_NAME_BYTES_MAX
                      : error == -EINVAL && err.text[0]);
    error = table_terms_check(&terms, name, &err);
    assert(error == 0 || (error == -EINVAL && err.text[0]));
    if (error == 0)
        check_sound(&terms);
    free(name);
    return 0;
}
