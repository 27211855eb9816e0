/* Compares the loaded libraries with those for which this build was compiled. */
#include "svc/base/text.h"
#include "svc/cli/doctor/doctor.h"

#include <stdlib.h>

/* Returns the next number of a version, or 0 if there is none. */
static unsigned long next_number(const char **at)
{
    char *end;
    unsigned long number = strtoul(*at, &end, 10);
    *at = *end == '.' ? end + 1 : "";
    return number;
}

bool doctor_version_fits(const char *running, const char *built)
{
    if (next_number(&running) != next_number(&built))
        return false;
    while (*built) {
        unsigned long have = next_number(&running), need = next_number(&built);
        if (have != need)
            return have > need;
    }
    return true;
}

void doctor_build(struct view_checks *checks, const struct view_build *build)
{
    doctor_say(checks, "build", VIEW_OK, NULL, "gradpool %s, commit %s, protocol %u, by %s",
               build->version, build->commit, build->protocol, build->compiler);
    doctor_say(checks, "kernels", VIEW_OK, NULL, "%s", build->kernels);
}

void doctor_libraries(struct view_checks *checks, const struct view_build *build)
{
    char wrong[VIEW_CHECK_BYTES] = "", all[VIEW_CHECK_BYTES] = "";
    for (size_t i = 0; i < build->libraries_count; i++) {
        const struct view_library *l = &build->libraries[i];
        text_append(all, sizeof all, "%s%s %s (built with %s)", *all ? ", " : "", l->name,
                    *l->running ? l->running : "none", l->built);
        if (*l->running && !doctor_version_fits(l->running, l->built))
            text_append(wrong, sizeof wrong, "%s%s %s instead of %s", *wrong ? ", " : "", l->name,
                        l->running, l->built);
    }
    if (*wrong)
        doctor_say(checks, "libraries", VIEW_WARN,
                   "build gradpool on a host with these libraries, or install those that it was "
                   "built with",
                   "this program runs with other libraries: %s", wrong);
    else
        doctor_say(checks, "libraries", VIEW_OK, NULL,
                   "this program runs with the libraries of its build, or newer ones: %s", all);
}
