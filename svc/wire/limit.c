/* The table of named maxima, reading their values, and the words of a refusal. Counts nothing. */
#include "svc/wire/limit.h"

#include "svc/base/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define KIB (UINT64_C(1) << 10)

static const struct limit_about about[LIMITS] = {
#define ROW(id, ...) [LIMIT_##id] = {__VA_ARGS__},
    LIMIT_TABLE(ROW)
#undef ROW
};

const struct limit_about *limit_about(enum limit limit) { return &about[limit]; }

void limits_init(struct limits *limits)
{
    for (int i = 0; i < LIMITS; i++)
        limits->most[i] = about[i].value;
}

/* "64G": a number and one of K, M, G, T. */
static int parse_bytes(const char *text, uint64_t *ret_bytes)
{
    static const char units[] = "KMGT";
    char digits[32];
    size_t length = strlen(text);
    const char *unit = length > 0 ? strchr(units, text[length - 1]) : NULL;
    uint64_t scale = unit && *unit ? KIB << (10 * (unit - units)) : 1, number;
    if (length >= sizeof digits)
        return -EINVAL;
    snprintf(digits, sizeof digits, "%.*s", (int)(length - (scale > 1)), text);
    int error = text_parse_u64(digits, 0, UINT64_MAX / scale, &number);
    if (error == 0)
        *ret_bytes = number * scale;
    return error;
}

static const char *format(const struct limit_about *a, uint64_t value, char buffer[32])
{
    if (a->is_bytes)
        return text_bytes(value, buffer, 32);
    snprintf(buffer, 32, "%" PRIu64, value);
    return buffer;
}

int limits_set(struct limits *limits, enum limit limit, const char *value, struct err *err)
{
    const struct limit_about *a = &about[limit];
    char least[32], most[32];
    uint64_t number = 0;
    int error =
        a->is_bytes ? parse_bytes(value, &number) : text_parse_u64(value, 0, UINT64_MAX, &number);
    if (error < 0 || number < a->least || number > a->most)
        return err_set(err, -EINVAL, "'%.64s': expected %s from %s to %s", value,
                       a->is_bytes ? "bytes, like 512M or 64G," : "a whole number",
                       format(a, a->least, least), format(a, a->most, most));
    limits->most[limit] = number;
    return 0;
}

int limits_check(const struct limits *limits, enum limit limit, const char *who, uint64_t used,
                 uint64_t more, struct err *err)
{
    const struct limit_about *a = &about[limit];
    uint64_t most = limits->most[limit];
    char has[32], wants[32], allowed[32];
    if (used <= most && more <= most - used)
        return 0;
    return err_set(err, -EDQUOT,
                   "%.200s: %s: has %s, asks for %s more, may have %s; whoever runs gradpool serve "
                   "can raise --%s-max",
                   who, a->what, format(a, used, has), format(a, more, wants),
                   format(a, most, allowed), a->name);
}
