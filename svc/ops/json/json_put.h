/* JSON member by member. `error` keeps -ENOMEM once something could not be made. Only its .c and
 * those that say what the members are know jansson. */
#ifndef GRADPOOL_OPS_JSON_JSON_PUT_H
#define GRADPOOL_OPS_JSON_JSON_PUT_H

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

/* Takes over `value`. */
void json_put(json_t *object, const char *name, json_t *value, int *error);
void json_put_number(json_t *object, const char *name, uint64_t value, int *error);
/* The same, but 0 stands for what is not known, and is left out. */
void json_put_known_number(json_t *object, const char *name, uint64_t value, int *error);
/* Names come from users; bytes that are not UTF-8 are shown as "?". */
void json_put_text(json_t *object, const char *name, const char *value, int *error);
/* JSON has no NaN and no infinity: null. */
void json_put_real(json_t *object, const char *name, double value, int *error);
/* The same, but what is not known is left out. */
void json_put_known(json_t *object, const char *name, double value, int *error);
/* Members that are called like the fields of a struct or a message that they are of:
 * JSON_PUT(o, job, error, job_id, workers, state). JSON_PUT_KNOWN leaves out numbers that are 0. */
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
/* put(o, from, error, field) of each field; expanded again and again, as a macro names no macro
 * that it is expanded from. */
#define JSON_EACH(put, ...) JSON_AGAIN(JSON_AGAIN(JSON_AGAIN(JSON_FIRST(put, __VA_ARGS__))))
#define JSON_AGAIN(...) JSON_TWICE(JSON_TWICE(JSON_TWICE(__VA_ARGS__)))
#define JSON_TWICE(...) __VA_ARGS__
#define JSON_FIRST(put, o, from, error, field, ...) \
    put(o, from, error, field) __VA_OPT__(JSON_REST PARENTHESES(put, o, from, error, __VA_ARGS__))
#define JSON_REST() JSON_FIRST
#define PARENTHESES ()

/* Appends; takes over `value`. */
void json_put_last(json_t *array, json_t *value, int *error);
/* Prints unless there was an error, with a newline. Takes over `o`. -ENOMEM, -EIO. */
int json_put_out(json_t *o, int error, FILE *out);

#endif
