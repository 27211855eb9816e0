/* Owns the last error of each thread, the log function, and the generation of the process. */
#include "client/lib/session/process.h"

#include "client/gradpool.h"
#include "svc/base/log.h"

#include <stdarg.h>
#include <stdio.h>

static _Thread_local struct err last_error;
static gp_log_fn log_function;
static unsigned current_generation = 1;

int client_error(int code, const char *format, ...)
{
    /* a separate buffer, because an argument may point into the last error */
    char text[ERR_TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return err_set(&last_error, code, "%s", text);
}

int client_error_from(const struct err *err)
{
    return client_error(err->code, "%s", err->text[0] ? err->text : err_text(err->code));
}

const char *gp_strerror(int error) { return err_text(error); }
const char *gp_last_error(void) { return last_error.text; }

static void forward_log(enum log_level level, const char *line)
{
    gp_log_fn function = __atomic_load_n(&log_function, __ATOMIC_ACQUIRE);
    if (function)
        function((int)level, line);
}

void gp_set_log(gp_log_fn log)
{
    __atomic_store_n(&log_function, log, __ATOMIC_RELEASE);
    log_set_hook(log ? forward_log : NULL);
}

unsigned generation_now(void) { return __atomic_load_n(&current_generation, __ATOMIC_RELAXED); }

bool generation_is_foreign(unsigned generation) { return generation != generation_now(); }

void generation_begin_next(void) { __atomic_add_fetch(&current_generation, 1, __ATOMIC_RELAXED); }
