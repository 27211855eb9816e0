/* Builds texts in buffers of fixed size, and parses numbers. */
#ifndef GRADPOOL_BASE_TEXT_H
#define GRADPOOL_BASE_TEXT_H

#include <stddef.h>
#include <stdint.h>

/* Appends to the string in `buffer`, which stays terminated. A text that does not fit is truncated
 * behind a whole UTF-8 character and ends in "..."; the function then returns false. */
_Bool text_append(char *buffer, size_t buffer_bytes, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Returns whether the whole string is UTF-8 according to RFC 3629: shortest forms, no
 * surrogates. */
_Bool text_is_utf8(const char *text);

/* Makes a name safe for terminals and logs. Control characters (C0, C1), characters that change the
 * writing direction, and bytes that are not UTF-8 are replaced by '?'. */
void text_disarm(char *text);
/* Returns whether text_disarm() would change nothing. */
_Bool text_is_harmless(const char *text);

/* Parses a decimal number, which must be the whole text. Returns 0, -EINVAL if the text is no
 * number, or -ERANGE if the number is not in [least, most]. */
int text_parse_u64(const char *text, uint64_t least, uint64_t most, uint64_t *ret_value);

/* Writes a size such as "4 KiB" or "1.5 GiB" to `buffer` and returns `buffer`. */
const char *text_bytes(uint64_t bytes, char *buffer, size_t buffer_bytes);

/* Returns "" if `count` is 1, otherwise "s". */
const char *text_plural(uint64_t count);

#endif
