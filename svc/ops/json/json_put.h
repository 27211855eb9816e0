/* Builds JSON member by member. `error` becomes -ENOMEM once a member could not be made, and stays
 * so. jansson is included by this file only, and by the files that name members. */
#ifndef GRADPOOL_OPS_JSON_JSON_PUT_H
#define GRADPOOL_OPS_JSON_JSON_PUT_H

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

/* Adds a member; takes over `value`. */
void json_put(json_t *object, const char *name, json_t *value, int *error);
void json_put_number(json_t *object, const char *name, uint64_t value, int *error);
/* The same, but 0 means unknown, and is left out. */
void json_put_known_number(json_t *object, const char *name, uint64_t value, int *error);
/* Names come from users: bytes outside UTF-8 become "?". */
void json_put_text(json_t *object, const char *name, const char *value, int *error);
/* NaN and infinity, which JSON does not have, become null. */
void json_put_real(json_t *object, const char *name, double value, int *error);
/* The same, but NaN means unknown, and is left out. */
void json_put_known(json_t *object, const char *name, double value, int *error);
/* Members named like fields of a struct or message: JSON_PUT(o, job, error, job_id, workers,
 * state). JSON_PUT_KNOWN leaves out numbers that are 0. */
#define JSON_PUT(o, from, error, ...) JSON_EACH(JSON_PUT_ONE, o, from, error, __VA_ARGS__)
#define JSON_PUT_KNOWN(o, from, error, ...) \
    JSON_EACH(JSON_PUT_ONE_KNOWN, o, from, error, __VA_ARGS__)
#define JSON_PUT_ONE(o, from, error, field) \
    _Generic((from)->field, double                                              \
             : json_put_real, char *                                            \
             : json_put_text, const char *                                      \
             : json_put_text, default                                           \
             : json_put_number)(o, #field, (from)->field, error);
#define JSON_PUT_ONE_KNOWN(o, from, error, field) \
    _Generic((from)->field, double                \
             : json_put_known, default            \
             : json_put_known_number)(o, #field, (from)->field, error);
/* put(o, from, error, field) for each field. Expanded repeatedly, since a macro does not expand
 * itself. */
#define JSON_EACH(put, ...) JSON_AGAIN(JSON_AGAIN(JSON_AGAIN(JSON_FIRST(put, __VA_ARGS__))))
#define JSON_AGAIN(...) JSON_TWICE(JSON_TWICE(JSON_TWICE(__VA_ARGS__)))
#define JSON_TWICE(...) __VA_ARGS__
#define JSON_FIRST(put, o, from, error, field, ...) \
    put(o, from, error, field) __VA_OPT__(JSON_REST PARENTHESES(put, o, from, error, __VA_ARGS__))
#define JSON_REST() JSON_FIRST
#define PARENTHESES ()

/* Appends to an array; takes over `value`. */
void json_put_last(json_t *array, json_t *value, int *error);
/* Prints `o` with a newline, unless `error` is set. Takes over `o`. Returns `error`, -ENOMEM or
 * -EIO. */
int json_put_out(json_t *o, int error, FILE *out);

#endif
