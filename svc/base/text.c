/* Builds bounded texts and parses numbers strictly. Owns nothing. */
#include "svc/base/text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Replaces the end of a truncated text by "...", from the beginning of a character on. A UTF-8
 * character has at most three continuation bytes. */
static bool mark_cut(char *buffer, size_t buffer_bytes)
{
    if (buffer_bytes < 4)
        return false;
    size_t at = buffer_bytes - 4;
    for (int i = 0; i < 3 && at > 0 && (buffer[at] & 0xc0) == 0x80; i++)
        at--;
    memcpy(buffer + at, "...", 4);
    return false;
}

_Bool text_append(char *buffer, size_t buffer_bytes, const char *format, ...)
{
    size_t used = strnlen(buffer, buffer_bytes);
    if (used >= buffer_bytes)
        return false;
    va_list arguments;
    va_start(arguments, format);
    int wanted = vsnprintf(buffer + used, buffer_bytes - used, format, arguments);
    va_end(arguments);
    if (wanted < 0 || (size_t)wanted >= buffer_bytes - used)
        return mark_cut(buffer, buffer_bytes);
    return true;
}

/* Returns the length in bytes of the UTF-8 character at `c`, or 0 if no character begins there. The
 * terminator of the string is no continuation byte, so no byte after the terminator is read. */
static size_t utf8_bytes(const unsigned char *c, uint32_t *ret_point)
{
    static const struct {
        unsigned char mask, lead;
        uint32_t least;
    } forms[] = {{0x80, 0x00, 0}, {0xe0, 0xc0, 0x80}, {0xf0, 0xe0, 0x800}, {0xf8, 0xf0, 0x10000}};
    for (size_t more = 0; more < sizeof forms / sizeof *forms; more++) {
        if ((c[0] & forms[more].mask) != forms[more].lead)
            continue;
        uint32_t point = c[0] & (unsigned char)~forms[more].mask;
        for (size_t i = 1; i <= more; i++) {
            if ((c[i] & 0xc0) != 0x80)
                return 0;
            point = point << 6 | (c[i] & 0x3f);
        }
        bool is_surrogate = point >= 0xd800 && point <= 0xdfff;
        *ret_point = point;
        return point < forms[more].least || point > 0x10ffff || is_surrogate ? 0 : more + 1;
    }
    return 0;
}

/* Returns true for terminal commands (C0 and C1), line breaks, and characters that change the
 * writing direction: a text with these can be displayed as a different text. */
static bool is_control(uint32_t point)
{
    static const struct {
        uint32_t first, last;
    } ranges[] = {{0, 0x1f},        {0x7f, 0x9f},     {0x61c, 0x61c},  {0x200e, 0x200f},
                  {0x2028, 0x202e}, {0x2066, 0x2069}, {0xfff9, 0xfffb}};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (point >= ranges[i].first && point <= ranges[i].last)
            return true;
    return false;
}

/* Finds the first byte that text_disarm() replaces, or the end of the text. `ret_bytes`: length of
 * the character there. */
static const char *find_armed(const char *text, size_t *ret_bytes)
{
    uint32_t point;
    for (const unsigned char *c = (const unsigned char *)text; *c;) {
        size_t bytes = utf8_bytes(c, &point);
        *ret_bytes = bytes > 0 ? bytes : 1;
        if (bytes == 0 || is_control(point))
            return (const char *)c;
        c += bytes;
    }
    return text + strlen(text);
}

_Bool text_is_harmless(const char *text)
{
    size_t bytes;
    return *find_armed(text, &bytes) == '\0';
}

void text_disarm(char *text)
{
    size_t bytes = 0;
    for (char *c = text; *(c = (char *)find_armed(c, &bytes)); c += bytes)
        memset(c, '?', bytes);
}

_Bool text_is_utf8(const char *text)
{
    uint32_t point;
    for (const unsigned char *c = (const unsigned char *)text; *c;) {
        size_t bytes = utf8_bytes(c, &point);
        if (bytes == 0)
            return false;
        c += bytes;
    }
    return true;
}

int text_parse_u64(const char *text, uint64_t least, uint64_t most, uint64_t *ret_value)
{
    uint64_t value = 0;
    if (!text || !*text)
        return -EINVAL;
    for (const char *c = text; *c; c++) {
        if (*c < '0' || *c > '9')
            return -EINVAL;
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*c - '0'), &value))
            return -ERANGE;
    }
    if (value < least || value > most)
        return -ERANGE;
    *ret_value = value;
    return 0;
}

const char *text_bytes(uint64_t bytes, char *buffer, size_t buffer_bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    int unit = 0;
    while (value >= 1024 && unit < 4) {
        value /= 1024;
        unit++;
    }
    snprintf(buffer, buffer_bytes, value == (uint64_t)value ? "%.0f %s" : "%.1f %s", value,
             units[unit]);
    return buffer;
}

const char *text_plural(uint64_t count) { return count == 1 ? "" : "s"; }
