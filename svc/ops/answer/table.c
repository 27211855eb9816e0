/* Cells of a table, their widths, and their output. Owns the cells until they are printed. */
#include "svc/ops/answer/table.h"

#include "svc/base/text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>

void table_init(struct table *table, const char *const *titles)
{
    *table = (struct table){0};
    while (titles[table->columns])
        table->columns++;
    for (size_t i = 0; i < table->columns; i++)
        table_add(table, "%s", titles[i]);
}

static void table_add_arguments(struct table *table, const char *format, va_list arguments)
{
    char *cell = NULL, **grown = realloc(table->cells, (table->count + 1) * sizeof *grown);
    if (grown)
        table->cells = grown;
    if (!grown || vasprintf(&cell, format, arguments) < 0)
        table->error = -ENOMEM;
    else
        text_disarm(grown[table->count++] = cell);
}

void table_add(struct table *table, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    table_add_arguments(table, format, arguments);
    va_end(arguments);
}

void table_add_known(struct table *table, bool is_known, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    table_add_arguments(table, is_known ? format : "-", arguments);
    va_end(arguments);
}

void table_add_bytes(struct table *table, uint64_t bytes)
{
    char cell[64];
    table_add(table, "%s", text_bytes(bytes, cell, sizeof cell));
}

static bool is_number(const struct table *table, size_t column)
{
    return table->cells[column][0] == '>';
}

static const char *text(const struct table *table, size_t cell)
{
    return table->cells[cell] + (cell < table->columns && is_number(table, cell));
}

/* Counts characters, not bytes, because names may be UTF-8. */
static int width(const char *cell)
{
    int characters = 0;
    for (; *cell; cell++)
        characters += (*cell & 0xc0) != 0x80;
    return characters;
}

static void print_row(const struct table *table, size_t row, const int *widths, FILE *out)
{
    for (size_t column = 0; column < table->columns; column++) {
        const char *cell = text(table, row * table->columns + column);
        int padding = widths[column] - width(cell);
        bool last = column + 1 == table->columns;
        if (is_number(table, column))
            fprintf(out, "%*s%s%s", padding, "", cell, last ? "\n" : "  ");
        else
            fprintf(out, "%s%*s", cell, last ? 0 : padding + 2, "");
        if (last && !is_number(table, column))
            fputc('\n', out);
    }
}

static void print(const struct table *table, FILE *out)
{
    int widths[TABLE_COLUMNS_MAX] = {0};
    size_t rows = table->count / table->columns;
    for (size_t i = 0; i < rows * table->columns; i++) {
        int needed = width(text(table, i));
        if (needed > widths[i % table->columns])
            widths[i % table->columns] = needed;
    }
    for (size_t row = 0; row < rows; row++)
        print_row(table, row, widths, out);
}

int table_print(struct table *table, FILE *out)
{
    int error = table->error;
    if (error == 0)
        print(table, out);
    for (size_t i = 0; i < table->count; i++)
        free(table->cells[i]);
    free(table->cells);
    *table = (struct table){0};
    if (error == 0 && (fflush(out) == EOF || ferror(out)))
        error = -EIO;
    return error;
}
