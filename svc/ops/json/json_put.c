/* Builds JSON with one error for the whole object: if a member fails, the object fails. */
#include "svc/ops/json/json_put.h"

#include <errno.h>
#include <math.h>

void json_put(json_t *object, const char *name, json_t *value, int *error)
{
    if (!object || !value || json_object_set_new(object, name, value) < 0)
        *error = -ENOMEM;
}

void json_put_number(json_t *object, const char *name, uint64_t value, int *error)
{
    json_put(object, name, json_integer((json_int_t)value), error);
}

void json_put_known_number(json_t *object, const char *name, uint64_t value, int *error)
{
    if (value > 0)
        json_put_number(object, name, value, error);
}

void json_put_text(json_t *object, const char *name, const char *value, int *error)
{
    json_t *text = json_string(value ? value : "");
    json_put(object, name, text ? text : json_string("?"), error);
}

void json_put_real(json_t *object, const char *name, double value, int *error)
{
    json_put(object, name, isfinite(value) ? json_real(value) : json_null(), error);
}

void json_put_known(json_t *object, const char *name, double value, int *error)
{
    if (isfinite(value))
        json_put(object, name, json_real(value), error);
}

void json_put_last(json_t *array, json_t *value, int *error)
{
    if (json_array_append_new(array, value) < 0)
        *error = -ENOMEM;
}

int json_put_out(json_t *o, int error, FILE *out)
{
    if (error == 0 && json_dumpf(o, out, JSON_INDENT(2) | JSON_ENSURE_ASCII) < 0)
        error = -EIO;
    json_decref(o);
    if (error == 0 && (fputc('\n', out) == EOF || fflush(out) == EOF))
        error = -EIO;
    return error;
}
