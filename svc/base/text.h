/* Bounded text building. */
#ifndef GRADPOOL_BASE_TEXT_H
#define GRADPOOL_BASE_TEXT_H

#include <stddef.h>
#include <stdint.h>

/* Appends to the string in `buffer` (capacity in bytes, always terminated). What does not fit is
 * cut and the text then ends in "...". Returns false when it was cut. */
_Bool text_append(char *buffer, size_t buffer_bytes, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Whether the bytes up to the end are UTF-8 as RFC 3629 has it: shortest form, no surrogates. */
_Bool text_is_utf8(const char *text);

/* Names come from outside, and are shown on terminals and in logs: characters that a terminal obeys
 * (C0 and C1 controls) or that turn the direction of writing become '?', and so do bytes that are
 * no UTF-8. */
void text_disarm(char *text);
/* Whether text_disarm() would change nothing. */
_Bool text_is_harmless(const char *text);

/* Parses a whole decimal number; -EINVAL for anything else, -ERANGE outside [least, most]. */
int text_parse_u64(const char *text, uint64_t least, uint64_t most, uint64_t *ret_value);

/* "4 KiB", "1.5 GiB" into `buffer`; returns it. */
const char *text_bytes(uint64_t bytes, char *buffer, size_t buffer_bytes);

/* "" for one, "s" for any other number. */
const char *text_plural(uint64_t count);

#endif
