/* Building of texts in buffers of fixed size, and parsing of numbers. */
#ifndef GRADPOOL_BASE_TEXT_H
#define GRADPOOL_BASE_TEXT_H

#include <stddef.h>
#include <stdint.h>

/* Appends to the string in `buffer`, which stays terminated within its capacity in bytes. A
 * text that does not fit is cut and ends in "..."; the function then returns false. */
_Bool text_append(char *buffer, size_t buffer_bytes, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Returns whether the whole string is UTF-8 by RFC 3629: shortest forms, no surrogates. */
_Bool text_is_utf8(const char *text);

/* Makes a name from outside safe for terminals and logs. Control characters (C0, C1),
 * characters that turn the direction of writing, and bytes that are not UTF-8 become '?'. */
void text_disarm(char *text);
/* Returns whether text_disarm() would change nothing. */
_Bool text_is_harmless(const char *text);

/* Parses a decimal number that is the whole text. -EINVAL: the text is anything else; -ERANGE: the
 * number is outside [least, most]. */
int text_parse_u64(const char *text, uint64_t least, uint64_t most, uint64_t *ret_value);

/* Writes a size such as "4 KiB" or "1.5 GiB" to `buffer`, and returns `buffer`. */
const char *text_bytes(uint64_t bytes, char *buffer, size_t buffer_bytes);

/* Returns "" for one, and "s" for any other number. */
const char *text_plural(uint64_t count);

#endif
