/* Adds one result of `gradpool doctor` to the list. Owns nothing. */
#include "svc/cli/doctor/doctor.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>

void doctor_say(struct view_checks *checks, const char *name, enum view_verdict verdict,
                const char *advice, const char *format, ...)
{
    va_list arguments;
    assert(checks->count < VIEW_CHECKS_MAX);
    struct view_check *check = &checks->list[checks->count++];
    check->name = name;
    check->verdict = verdict;
    snprintf(check->advice, sizeof check->advice, "%s", advice ? advice : "");
    va_start(arguments, format);
    vsnprintf(check->text, sizeof check->text, format, arguments);
    va_end(arguments);
}
