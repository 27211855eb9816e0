/* Builds JSON member by member. If a member cannot be created, `error` is set to -ENOMEM, and later
 * calls leave it unchanged. Only this header, and files that name members, include jansson. */
#ifndef GRADPOOL_OPS_JSON_JSON_PUT_H
#define GRADPOOL_OPS_JSON_JSON_PUT_H

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

/* Adds a member. Owns `value`. */
void json_put(json_t *object, const char *name, json_t *value, int *error);
void json_put_number(json_t *object, const char *name, uint64_t value, int *error);
/* Like json_put_number(), but 0 means unknown and is left out. */
void json_put_known_number(json_t *object, const char *name, uint64_t value, int *error);
/* Adds a text. Bytes that are not UTF-8 are replaced by "?", because users choose names. */
void json_put_text(json_t *object, const char *name, const char *value, int *error);
/* Adds a number. NaN and infinity are written as null, because JSON does not have them. */
void json_put_real(json_t *object, const char *name, double value, int *error);
/* Like json_put_real(), but NaN means unknown and is left out. */
void json_put_known(json_t *object, const char *name, double value, int *error);
/* Adds members with the names of fields of a struct or message, for example JSON_PUT(o, job, error,
 * job_id, workers, state). JSON_PUT_KNOWN leaves out numbers that are 0. */
#define JSON_PUT(o, from, error, ...) JSON_EACH(JSON_PUT_ONE, o, from, error, __VA_ARGS__)
#define JSON_PUT_KNOWN(o, from, error, ...) \
    JSON_EACH(JSON_PUT_ONE_KNOWN, o, from, error, __VA_ARGS__)
/* clang-format off */
#define JSON_PUT_ONE(o, from, error, field)             \
    _Generic((from)->field,                             \
             double: json_put_real,                     \
             char *: json_put_text,                     \
             const char *: json_put_text,               \
             default: json_put_number)(o, #field, (from)->field, error);
#define JSON_PUT_ONE_KNOWN(o, from, error, field)       \
    _Generic((from)->field,                             \
             double: json_put_known,                    \
             default: json_put_known_number)(o, #field, (from)->field, error);
/* clang-format on */
/* Expands to put(o, from, error, field) for each field. The preprocessor does not expand a macro
 * inside itself, so JSON_AGAIN and JSON_TWICE repeat the expansion. */
#define JSON_EACH(put, ...) JSON_AGAIN(JSON_AGAIN(JSON_AGAIN(JSON_FIRST(put, __VA_ARGS__))))
#define JSON_AGAIN(...) JSON_TWICE(JSON_TWICE(JSON_TWICE(__VA_ARGS__)))
#define JSON_TWICE(...) __VA_ARGS__
#define JSON_FIRST(put, o, from, error, field, ...) \
    put(o, from, error, field) __VA_OPT__(JSON_REST PARENTHESES(put, o, from, error, __VA_ARGS__))
#define JSON_REST() JSON_FIRST
#define PARENTHESES ()

/* Appends to an array. Owns `value`. */
void json_put_last(json_t *array, json_t *value, int *error);
/* Prints `o` and a newline, unless `error` is set. Owns `o`. Returns `error`, -ENOMEM or -EIO. */
int json_put_out(json_t *o, int error, FILE *out);

#endif
