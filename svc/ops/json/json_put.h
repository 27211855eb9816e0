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
/* Appends; takes over `value`. */
void json_put_last(json_t *array, json_t *value, int *error);
/* Prints unless there was an error, with a newline. Takes over `o`. -ENOMEM, -EIO. */
int json_put_out(json_t *o, int error, FILE *out);

#endif
