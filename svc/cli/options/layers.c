/* Applies one source after another to the options struct. */
#include "svc/cli/options/layers.h"

#include "svc/base/cleanup.h"
#include "svc/base/text.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int layer_take(struct layers *l, int index, const char *text, enum config_origin origin,
                      struct err *err)
{
    int error = knob_store(l->command, index, text, l->options, err);
    if (error == 0)
        l->own[index] = (struct config_value){.text = text, .origin = origin};
    return error;
}

static void layer_of_presets(struct layers *l)
{
    for (int i = 0; l->command->knobs[i].name; i++) {
        const struct knob *knob = &l->command->knobs[i];
        const char *preset = knob->find_preset
                                 ? knob->find_preset(l->found_preset, sizeof l->found_preset)
                                 : knob->preset;
        int error = preset ? layer_take(l, i, preset, CONFIG_PRESET, NULL) : 0;
        assert(error == 0);
        (void)error;
    }
}

static const char *layer_variable(const struct knob_command *command, int index, char *name,
                                  size_t name_bytes)
{
    const struct knob *knob = &command->knobs[index];
    if (!knobs_has_variable(command, knob))
        return NULL;
    const char *value = getenv(knobs_variable(knob->name, name, name_bytes));
    return value && *value ? value : NULL;
}

/* Returns whether this process has a grant, which means that `serve` has started it. `serve` has
 * already read the configuration file for such an aggregator. */
static bool layers_have_secret(const struct layers *l)
{
    char name[64];
    for (int i = 0; l->command->knobs[i].name; i++)
        if (l->command->knobs[i].source == KNOB_SECRET &&
            (l->typed[i] || layer_variable(l->command, i, name, sizeof name)))
            return true;
    return false;
}

/* Passes values in section [aggregator] to local aggregators through the environment. Each value is
 * stored in its variable, unless the variable is already set. */
static void layer_hand_over(struct layers *l)
{
    const struct knob_command *other = l->command->other;
    for (int i = 0; other->knobs[i].name; i++) {
        char name[64];
        if (!other->knobs[i].is_handed)
            continue;
        const char *variable = layer_variable(other, i, name, sizeof name);
        if (variable)
            l->other[i] = (struct config_value){.text = variable, .origin = CONFIG_VARIABLE};
        else if (l->other[i].text)
            (void)setenv(name, l->other[i].text, 1);
    }
}

static int layer_of_file(struct layers *l, struct err *err)
{
    const struct knob_command *command = l->command;
    if (!command->part)
        return 0;
    const char *named = l->typed[knobs_find(command->knobs, "config")];
    const char *path = named ? named : l->preset_file;
    if (!named && layers_have_secret(l))
        return 0;
    _cleanup_free_ void *unused = calloc(1, command->other->options_bytes);
    if (!unused)
        return err_set(err, -ENOMEM,
                       "this process has no memory to read %s; raise its memory limit", path);
    struct config_part parts[] = {{command, l->options, l->own},
                                  {command->other, unused, l->other}};
    int error = config_read(path, parts, 2, err);
    if (error == -ENOENT && !named)
        return 0;
    l->file = path;
    return error;
}

static int layer_of_variables(struct layers *l, struct err *err)
{
    for (int i = 0; l->command->knobs[i].name; i++) {
        char name[64];
        struct err why;
        const char *value = layer_variable(l->command, i, name, sizeof name);
        int error = value ? layer_take(l, i, value, CONFIG_VARIABLE, &why) : 0;
        if (error < 0)
            return err_set(err, error, "%s: %s", name, why.text);
    }
    return 0;
}

static int layer_of_line(struct layers *l, struct err *err)
{
    for (int i = 0; l->command->knobs[i].name; i++) {
        struct err why;
        bool is_due = l->typed[i] && !l->command->knobs[i].may_repeat;
        int error = is_due ? layer_take(l, i, l->typed[i], CONFIG_LINE, &why) : 0;
        if (error < 0)
            return err_set(err, error, "--%s: %s", l->command->knobs[i].name, why.text);
    }
    return 0;
}

int layers_settle(struct layers *l, struct err *err)
{
    layer_of_presets(l);
    int error = layer_of_file(l, err) ?: layer_of_variables(l, err) ?: layer_of_line(l, err);
    if (error == 0 && l->command->other)
        layer_hand_over(l);
    return error < 0 || !l->command->check ? error : l->command->check(l->options, err);
}

/* --- showing --- */

static void layers_print_value(FILE *out, const char *file, const char *name,
                               const struct config_value *value)
{
    char origin[CONFIG_ORIGIN_BYTES], harmless[PATH_MAX];
    config_origin(file, name, value, origin, sizeof origin);
    snprintf(harmless, sizeof harmless, "%s", value->text);
    text_disarm(harmless);
    if (!config_can_hold(name, value->text))
        fprintf(out, "# %s = %s\n# (no line of a file can hold this value of %s)\n", name, harmless,
                origin);
    else if (value->origin == CONFIG_PRESET)
        fprintf(out, "#%s = %s ; default\n", name, value->text);
    else if (strlen(name) + strlen(value->text) + strlen(origin) + 8 < CONFIG_LINE_BYTES)
        fprintf(out, "%s = %s ; %s\n", name, value->text, origin);
    else
        fprintf(out, "# %s\n%s = %s\n", origin, name, value->text);
}

static void layers_print_knob(FILE *out, const char *file, const struct knob *knob,
                              const struct config_value *value)
{
    char preset[256] = "";
    if (knob->source == KNOB_LINE)
        return;
    knobs_show_preset(knob, preset, sizeof preset);
    knobs_unmark(preset);
    if (knob->source == KNOB_SECRET)
        fprintf(out, "#%s ; %s\n", knob->name,
                value->text ? "a secret, which is not printed" : "default: none");
    else if (value->text)
        layers_print_value(out, file, knob->name, value);
    else if (knob->preset)
        fprintf(out, "#%s = %s ; default\n", knob->name, knob->preset);
    else
        fprintf(out, "#%s = ; default: %s\n", knob->name, preset);
}

void layers_print(const struct layers *l, FILE *out)
{
    const struct knob_command *command = l->command;
    char file[PATH_MAX];
    snprintf(file, sizeof file, "%s", l->file ? l->file : "no file was read");
    text_disarm(file);
    fprintf(out, "# %s: values in force (%s)\n[%s]\n", command->name, file, command->part);
    for (int i = 0; command->knobs[i].name; i++)
        layers_print_knob(out, l->file, &command->knobs[i], &l->own[i]);
    const char *heading = command->other->part;
    for (int i = 0; command->other->knobs[i].name; i++) {
        if (!command->other->knobs[i].is_handed)
            continue;
        if (heading)
            fprintf(out, "\n# of local aggregators\n[%s]\n", heading);
        heading = NULL;
        layers_print_knob(out, l->file, &command->other->knobs[i], &l->other[i]);
    }
}

/* Returns whether `text` contains the option's name (but not a longer one), or its value in
 * quotes. */
static bool layers_is_about(const char *text, const char *name, const char *value)
{
    char option[64];
    snprintf(option, sizeof option, "--%s", name);
    const char *at = strstr(text, option);
    bool is_named = at && !isalnum((unsigned char)at[strlen(option)]) && at[strlen(option)] != '-';
    for (at = text; !is_named && (at = strstr(at, value)); at++)
        is_named = at > text && strchr("'\"", at[-1]) && at[strlen(value)] == at[-1];
    return is_named;
}

const char *layers_explain(const struct layers *l, const char *text, char *buffer,
                           size_t buffer_bytes)
{
    buffer[0] = '\0';
    for (int i = 0; l->command && l->command->knobs[i].name; i++) {
        const struct config_value *value = &l->own[i];
        char origin[CONFIG_ORIGIN_BYTES];
        const char *name = l->command->knobs[i].name;
        if ((value->origin != CONFIG_FILE && value->origin != CONFIG_VARIABLE) ||
            !layers_is_about(text, name, value->text))
            continue;
        config_origin(l->file, name, value, origin, sizeof origin);
        text_append(buffer, buffer_bytes, "; --%s is set by %s", name, origin);
    }
    return buffer;
}
