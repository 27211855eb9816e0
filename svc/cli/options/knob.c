/* An option: its variable, its default, and the types of values. No particular option is named
 * here. */
#include "svc/cli/options/knob.h"

#include "svc/base/text.h"
#include "svc/wire/limit.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const char *knobs_variable(const char *name, char *buffer, size_t buffer_bytes)
{
    snprintf(buffer, buffer_bytes, "GRADPOOL_%s", name);
    for (char *c = buffer; *c; c++)
        *c = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
    return buffer;
}

bool knobs_has_variable(const struct knob_command *command, const struct knob *knob)
{
    return knob->source == KNOB_VARIABLE || knob->source == KNOB_SECRET ||
           (knob->source == KNOB_AS_COMMAND && command->reads_variables);
}

int knobs_find(const struct knob *knobs, const char *name)
{
    for (int i = 0; knobs[i].name; i++)
        if (strcmp(knobs[i].name, name) == 0)
            return i;
    return -1;
}

void knobs_show_preset(const struct knob *knob, char *text, size_t text_bytes)
{
    const char *preset = knob->preset,
               *mark = preset && !isdigit((unsigned char)*preset) ? "`" : "";
    if (knob->shown)
        text_append(text, text_bytes, "%s", knob->shown);
    else if (preset)
        text_append(text, text_bytes, "%s%s%s%s%s", mark, preset, mark, knob->unit ? " " : "",
                    knob->unit ? knob->unit : "");
}

void knobs_unmark(char *text)
{
    char *kept = text;
    for (; *text; text++)
        if (*text != '`')
            *kept++ = *text;
    *kept = '\0';
}

/* --- values --- */

int knobs_number(const char *value, unsigned long long least, unsigned long long most,
                 unsigned long long *ret_value, struct err *err)
{
    uint64_t number;
    if (text_parse_u64(value, least, most, &number) < 0)
        return err_set(err, -EINVAL, "'%.64s': expected a whole number from %llu to %llu", value,
                       least, most);
    *ret_value = number;
    return 0;
}

/* Parses a decimal number digit by digit, because strtod() would accept "nan", "0x1" and the comma
 * of a locale. The result counts units: with `unit` 1000, a power of ten, "1.5" gives 1500, and
 * further digits are ignored. Returns the end of the number, or `value` if there is no number. */
static const char *read_decimal(const char *value, uint64_t unit, uint64_t most, uint64_t *ret_sum)
{
    uint64_t sum = 0, weight = unit;
    const char *at = value;
    for (; isdigit((unsigned char)*at) && sum <= most; at++)
        sum = sum * 10 + (uint64_t)(*at - '0') * unit;
    if (at > value && *at == '.')
        for (at++; isdigit((unsigned char)*at) && weight > 1; at++)
            sum += (uint64_t)(*at - '0') * (weight /= 10);
    *ret_sum = sum;
    return at;
}

int knobs_percent(const char *value, uint32_t *ret_ppm, struct err *err)
{
    uint64_t ppm;
    const char *at = read_decimal(value, 10000, LOSS_LIMIT_PPM_MAX, &ppm);
    bool has_digits = at > value;
    at += *at == '%';
    if (!has_digits || *at || ppm < 1 || ppm > LOSS_LIMIT_PPM_MAX)
        return err_set(err, -EINVAL,
                       "'%.64s': expected percent, such as 5%% or 2.5, with up to four digits "
                       "after the point: above 0, at most %g",
                       value, LOSS_LIMIT_PPM_MAX / 1e4);
    *ret_ppm = (uint32_t)ppm;
    return 0;
}

int knobs_seconds(const char *value, uint64_t most_s, uint64_t *ret_ms, struct err *err)
{
    const uint64_t second_ms = 1000;
    uint64_t ms;
    const char *at = read_decimal(value, second_ms, most_s * second_ms, &ms);
    if (at == value || *at || ms > most_s * second_ms)
        return err_set(err, -EINVAL,
                       "'%.64s': expected seconds, such as 2 or 1.5, with up to three digits after "
                       "the point, at most %" PRIu64,
                       value, most_s);
    *ret_ms = ms;
    return 0;
}

int knob_read_text(void *field, const struct knob *knob, const char *value, struct err *err)
{
    *(const char **)field = value;
    return 0;
}

int knob_read_flag(void *field, const struct knob *knob, const char *value, struct err *err)
{
    bool is_on = strcmp(value, "1") == 0 || strcmp(value, "on") == 0;
    if (!is_on && strcmp(value, "0") != 0 && strcmp(value, "off") != 0)
        return err_set(err, -EINVAL, "'%.64s': expected 0 or 1, or off or on", value);
    *(bool *)field = is_on;
    return 0;
}

/* Writes "a, b or c" for "a|b|c". */
static void list_choices(const char *choices, char *text, size_t text_bytes)
{
    text[0] = '\0';
    while (*choices) {
        size_t length = strcspn(choices, "|");
        const char *next = choices + length + (choices[length] == '|');
        bool is_last = !*next, is_first = !*text;
        text_append(text, text_bytes, "%s%.*s",
                    is_first  ? ""
                    : is_last ? " or "
                              : ", ",
                    (int)length, choices);
        choices = next;
    }
}

int knob_read_choice(void *field, const struct knob *knob, const char *value, struct err *err)
{
    char choices[128];
    size_t bytes = strlen(value), length;
    for (const char *at = knob->argument; *at; at += length + (at[length] == '|')) {
        length = strcspn(at, "|");
        if (length == bytes && strncmp(at, value, bytes) == 0)
            return knob_read_text(field, knob, value, err);
    }
    list_choices(knob->argument, choices, sizeof choices);
    return err_set(err, -EINVAL, "'%.64s': expected %s", value, choices);
}

int knob_read_number(void *field, const struct knob *knob, const char *value, struct err *err)
{
    unsigned long long number = 0;
    int error = knobs_number(value, knob->least, knob->most, &number, err);
    if (error < 0)
        return error;
    if (knob->bytes == sizeof(uint16_t))
        *(uint16_t *)field = (uint16_t)number;
    else if (knob->bytes == sizeof(uint32_t))
        *(uint32_t *)field = (uint32_t)number;
    else
        *(uint64_t *)field = number;
    return 0;
}

int knob_read_seconds(void *field, const struct knob *knob, const char *value, struct err *err)
{
    uint64_t ms = 0;
    int error = knobs_seconds(value, knob->most, &ms, err);
    if (error == 0 && ms > 0 && ms < knob->least * 1000)
        error = err_set(err, -EINVAL, "'%.64s': expected 0, or at least %" PRIu64 " seconds", value,
                        knob->least);
    if (error == 0)
        *(uint64_t *)field = ms;
    return error;
}

int knob_read_percent(void *field, const struct knob *knob, const char *value, struct err *err)
{
    return knobs_percent(value, field, err);
}

/* Stores a value with `set`, which is called for a flag only if the flag is on. */
static int knob_set(const struct knob_command *command, int index, const char *value, void *options,
                    struct err *err)
{
    bool is_on = true;
    if (command->knobs[index].argument)
        return command->set(options, index, value, err);
    int error = knob_read_flag(&is_on, NULL, value, err);
    return error < 0 || !is_on ? error : command->set(options, index, NULL, err);
}

int knob_store(const struct knob_command *command, int index, const char *value, void *options,
               struct err *err)
{
    const struct knob *knob = &command->knobs[index];
    if (knob->source == KNOB_LINE && !command->set)
        return 0;
    return knob->read ? knob->read((char *)options + knob->offset, knob, value, err)
                      : knob_set(command, index, value, options, err);
}
