/* Settings of a service as texts. They never contain a secret, or a value that changes while the
 * service runs. */
#include "svc/coordinator/settings.h"

#include "svc/base/clock.h"
#include "svc/coordinator/growth/scaling.h"
#include "svc/coordinator/service.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#define CPU_BYTES 96

static void __attribute__((format(printf, 3, 4)))
tell(struct settings *all, const char *name, const char *format, ...)
{
    va_list arguments;
    assert(all->count < SETTINGS_MAX);
    size_t at = all->count++;
    va_start(arguments, format);
    vsnprintf(all->texts[at], SETTING_BYTES, format, arguments);
    va_end(arguments);
    all->views[at] = MESSAGE_PART(Setting, setting, .name = (char *)name, .value = all->texts[at]);
    all->list[at] = &all->views[at];
}

/* Writes " of MODEL" with the model of the CPU, or "" if the kernel names no model. */
static void find_cpu(char ret_text[CPU_BYTES])
{
    char line[512];
    FILE *file = fopen("/proc/cpuinfo", "re");
    *ret_text = '\0';
    while (file && !*ret_text && fgets(line, sizeof line, file)) {
        char *value = strncmp(line, "model name", 10) == 0 ? strchr(line, ':') : NULL;
        if (value)
            snprintf(ret_text, CPU_BYTES, " of %.*s", (int)strcspn(value + 2, "\n"), value + 2);
    }
    if (file)
        fclose(file);
}

static void tell_machine(struct settings *all)
{
    struct utsname host;
    char cpu[CPU_BYTES];
    find_cpu(cpu);
    if (uname(&host) == 0)
        tell(all, "machine", "%ld cores%s, Linux %.60s, %s", sysconf(_SC_NPROCESSORS_ONLN), cpu,
             host.release, host.machine);
}

static void tell_growth(struct settings *all, const struct service *s)
{
    const struct coordinator_options *o = s->options;
    tell(all, "scale", "%s", s->scaling->is_on ? "on" : "off");
    if (!s->scaling->is_on)
        return;
    tell(all, "scale hold", "%llu s",
         (unsigned long long)(scaling_hold_ns(o->scale_hold_ns) / NS_PER_S));
    tell(all, "order hold", "%llu s", (unsigned long long)(o->order_hold_ns / NS_PER_S));
    if (o->lanes_min)
        tell(all, "lanes min", "%u", o->lanes_min);
    if (o->lanes_max)
        tell(all, "lanes max", "%u", o->lanes_max);
}

int settings_create(struct service *s)
{
    s->identity->settings = calloc(1, sizeof *s->identity->settings);
    return s->identity->settings ? 0 : -ENOMEM;
}

void settings_destroy(struct service *s)
{
    if (s->identity)
        free(s->identity->settings);
}

void settings_fill(struct service *s)
{
    const struct coordinator_options *o = s->options;
    struct settings *all = s->identity->settings;
    if (o->name)
        tell(all, "name", "%s", o->name);
    tell(all, "policy", "%s", o->policy);
    if (o->loss_limit_ppm)
        tell(all, "loss limit", "%g %%", o->loss_limit_ppm / 1e4);
    tell(all, "durability", "%s", durability_name(o->durability ? o->durability : DURABILITY_NONE));
    tell_growth(all, s);
    tell(all, "local aggregators", "%u", o->aggregators);
    if (o->cores)
        tell(all, "cores", "%s", o->cores);
    if (o->lanes_per_core > 1)
        tell(all, "lanes a core", "%u", o->lanes_per_core);
    tell_machine(all);
    tell(all, "version", "%s", GRADPOOL_VERSION);
    tell(all, "commit", "%s", coordinator_commit);
}
