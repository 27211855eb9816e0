/* Settings of a service as texts. The settings never contain a secret, or a value that changes
 * while the service runs. */
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

static void add_setting(struct settings *all, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void add_setting(struct settings *all, const char *name, const char *format, ...)
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

static void add_machine(struct settings *all)
{
    struct utsname host;
    char cpu[CPU_BYTES];
    find_cpu(cpu);
    if (uname(&host) == 0)
        add_setting(all, "machine", "%ld cores%s, Linux %.60s, %s", sysconf(_SC_NPROCESSORS_ONLN),
                    cpu, host.release, host.machine);
}

static void add_growth(struct settings *all, const struct service *s)
{
    const struct coordinator_options *o = s->options;
    add_setting(all, "scale", "%s", s->scaling->is_on ? "on" : "off");
    if (!s->scaling->is_on)
        return;
    add_setting(all, "scale hold", "%llu s",
                (unsigned long long)(scaling_hold_ns(o->scale_hold_ns) / NS_PER_S));
    add_setting(all, "order hold", "%llu s", (unsigned long long)(o->order_hold_ns / NS_PER_S));
    if (o->lanes_min)
        add_setting(all, "lanes min", "%u", o->lanes_min);
    if (o->lanes_max)
        add_setting(all, "lanes max", "%u", o->lanes_max);
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
        add_setting(all, "name", "%s", o->name);
    add_setting(all, "policy", "%s", o->policy);
    if (o->loss_limit_ppm)
        add_setting(all, "loss limit", "%g %%", o->loss_limit_ppm / 1e4);
    add_setting(all, "durability", "%s",
                durability_name(o->durability ? o->durability : DURABILITY_NONE));
    add_growth(all, s);
    add_setting(all, "local aggregators", "%u", o->aggregators);
    if (o->cores)
        add_setting(all, "cores", "%s", o->cores);
    if (o->worker_slots)
        add_setting(all, "worker slots", "%s", o->worker_slots);
    if (o->lanes_per_core > 1)
        add_setting(all, "lanes a core", "%u", o->lanes_per_core);
    add_machine(all);
    add_setting(all, "version", "%s", GRADPOOL_VERSION);
    add_setting(all, "commit", "%s", coordinator_commit);
}
