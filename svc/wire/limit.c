/* Contains the table of named maxima, parses their values, and writes the texts of refusals.
 * Callers count what a job, tenant or lane uses; this file compares the counts with the limits. */
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
    limits->own = 0;
    limits->tenant = NULL;
}

enum limit limit_find(const char *name)
{
    enum limit limit = 0;
    while (limit < LIMITS && strcmp(about[limit].name, name) != 0)
        limit++;
    return limit;
}

/* Parses a text such as "64G", a number followed by K, M, G or T. */
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

_Static_assert((int)LIMITS_OF_TENANT <= 32, "a bit each in limits.own");

int limits_set_own(struct limits *limits, const struct limits *service, enum limit limit,
                   const char *value, struct err *err)
{
    if (limit >= LIMITS_OF_TENANT)
        return err_set(err, -EINVAL, "expected a limit that can be set for one tenant");
    if (strcmp(value, "default") == 0) {
        limits->own &= ~(UINT32_C(1) << limit);
        limits->most[limit] = service->most[limit];
        return 0;
    }
    int error = limits_set(limits, limit, value, err);
    if (error == 0)
        limits->own |= UINT32_C(1) << limit;
    return error;
}

static bool limit_is_own(const struct limits *limits, enum limit limit)
{
    return limit < LIMITS_OF_TENANT && limits->own >> limit & 1;
}

void limits_write_own(const struct limits *limits, char *text, size_t text_bytes)
{
    text[0] = 0;
    for (enum limit limit = 0; limit < LIMITS_OF_TENANT; limit++)
        if (limit_is_own(limits, limit))
            text_append(text, text_bytes, "%s%s=%" PRIu64, *text ? " " : "", about[limit].name,
                        limits->most[limit]);
}

int limits_read_own(struct limits *limits, const char *text)
{
    char copy[LIMITS_TEXT_BYTES], *rest = copy;
    struct err err;
    if (snprintf(copy, sizeof copy, "%s", text) >= (int)sizeof copy)
        return -EBADMSG;
    for (char *item; *rest && (item = strsep(&rest, " "));) {
        const char *name = strsep(&item, "=");
        if (!item || limits_set_own(limits, limits, limit_find(name), item, &err) < 0)
            return -EBADMSG;
        if (!rest)
            break;
    }
    return 0;
}

/* Appends to the error text which option raises the limit, and who may set the option. */
static void append_remedy(const struct limits *limits, enum limit limit, struct err *err)
{
    const char *name = about[limit].name;
    if (limit_is_own(limits, limit) && limits->tenant)
        text_append(err->text, sizeof err->text,
                    "; an operator can raise it with gradpool tenant set %s --%s-max",
                    limits->tenant, name);
    else
        text_append(err->text, sizeof err->text,
                    "; the operator can raise --%s-max of gradpool "
                    "serve",
                    name);
}

int limits_check(const struct limits *limits, enum limit limit, const char *who, uint64_t used,
                 uint64_t more, struct err *err)
{
    const struct limit_about *a = &about[limit];
    uint64_t most = limits->most[limit];
    char has[32], wants[32], allowed[32];
    if (used <= most && more <= most - used)
        return 0;
    err_set(err, -EDQUOT, "%.200s: %s: has %s, asks for %s more, may have %s", who, a->what,
            format(a, used, has), format(a, more, wants), format(a, most, allowed));
    if (err)
        append_remedy(limits, limit, err);
    return -EDQUOT;
}
