/* Converts error codes to words. Owns nothing; never fails. */
#include "svc/base/err.h"

#include "svc/base/text.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *err_text(int code)
{
    if (code == 0)
        return "success";
    if (code == INT_MIN)
        return "unknown error"; /* INT_MIN has no positive counterpart */
    const char *words = strerrordesc_np(code < 0 ? -code : code);
    return words ? words : "unknown error";
}

int err_set(struct err *err, int code, const char *format, ...)
{
    if (!err)
        return code;
    err->code = code;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(err->text, sizeof err->text, format, arguments);
    va_end(arguments);
    text_disarm(err->text); /* names from peers may contain control characters */
    return code;
}
