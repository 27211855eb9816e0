/* Reads a table. Owns one open file and its present line. The contents come from a user, so every
 * value must be checked. */
#include "bench/sim/input/csv.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

int table_complain(struct table *table, const char *format, ...)
{
    int used = snprintf(table->error, sizeof(table->error), "%s:%zu: ", table->path, table->line);
    va_list arguments;

    va_start(arguments, format);
    if (used > 0 && (size_t)used < sizeof(table->error))
        vsnprintf(table->error + used, sizeof(table->error) - (size_t)used, format, arguments);
    va_end(arguments);
    return -EINVAL;
}

/* Splits the line at its commas. Returns the number of fields; TABLE_COLUMNS_MAX + 1: too many. */
static size_t cut_line(struct table *table)
{
    char *rest = table->text, *field;
    size_t count = 0;

    table->text[strcspn(table->text, "\r\n")] = 0;
    while ((field = strsep(&rest, ","))) {
        if (count == TABLE_COLUMNS_MAX)
            return TABLE_COLUMNS_MAX + 1;
        table->fields[count++] = field;
    }
    return count;
}

/* Reads the next line that is not empty. Returns 1, or 0 at the end of the file. */
static int next_line(struct table *table)
{
    while (getline(&table->text, &table->text_bytes, table->file) >= 0) {
        table->line++;
        if (strcspn(table->text, "\r\n") > 0)
            return 1;
    }
    return ferror(table->file) ? table_complain(table, "cannot be read") : 0;
}

static int find_columns(struct table *table)
{
    for (size_t name = 0; table->names[name]; name++) {
        size_t at = 0;

        while (at < table->columns && strcmp(table->fields[at], table->names[name]) != 0)
            at++;
        if (at == table->columns)
            return table_complain(table, "expected a column '%s' in the first line",
                                  table->names[name]);
        table->positions[name] = at;
    }
    return 0;
}

int table_open(struct table *table, const char *path, const char *const *names)
{
    int r;

    memset(table, 0, sizeof(*table));
    table->names = names;
    snprintf(table->path, sizeof(table->path), "%s", path);
    table->file = fopen(path, "re");
    if (!table->file) {
        r = -errno;
        snprintf(table->error, sizeof(table->error), "%s: %s", path, strerror(-r));
        return r;
    }
    r = next_line(table);
    if (r == 0)
        table->line = 1; /* errors name line 1, which is missing */
    if (r == 0)
        return table_complain(table, "expected a first line with the names of columns");
    if (r < 0)
        return r;
    table->columns = cut_line(table);
    if (table->columns > TABLE_COLUMNS_MAX)
        return table_complain(table, "expected at most %d columns", TABLE_COLUMNS_MAX);
    return find_columns(table);
}

int table_next(struct table *table)
{
    size_t fields;
    int r = next_line(table);

    if (r <= 0)
        return r;
    fields = cut_line(table);
    if (fields != table->columns)
        return table_complain(table, "expected %zu fields, as in the first line; there are %s%zu",
                              table->columns, fields > TABLE_COLUMNS_MAX ? "more than " : "",
                              fields > TABLE_COLUMNS_MAX ? (size_t)TABLE_COLUMNS_MAX : fields);
    return 1;
}

const char *table_text(const struct table *table, size_t name)
{
    return table->fields[table->positions[name]];
}

int table_number(struct table *table, size_t name, double least, double most, double *ret_value)
{
    const char *text = table_text(table, name);
    char *end;
    double value = strtod(text, &end);

    if (end == text || *end || !isfinite(value) || value < least || value > most)
        return table_complain(table, "%s: expected a number from %g to %g, got '%.40s'",
                              table->names[name], least, most, text);
    *ret_value = value;
    return 0;
}

void table_close(struct table *table)
{
    if (table->file)
        fclose(table->file);
    free(table->text);
    table->file = NULL;
    table->text = NULL;
}
