/* Prints figures, as text or as JSON. */
#include "bench/tables/tables.h"

#include <stdio.h>

static bool line_holds(const struct tables_line *line)
{
    return line->kind == TABLES_AT_MOST ? line->value <= line->bar : line->value >= line->bar;
}

static void print_json(const char *bench, const struct tables_line *line)
{
    printf("{\"bench\": \"%s\", \"name\": \"%s\", \"value\": %.4f, \"unit\": \"%s\", ", bench,
           line->name, line->value, line->unit);
    if (line->kind == TABLES_NO_BAR)
        printf("\"bar\": null, \"holds\": null, ");
    else
        printf("\"bar\": %g, \"holds\": %s, ", line->bar, line_holds(line) ? "true" : "false");
    printf("\"wrong\": %llu}\n", (unsigned long long)line->wrong);
}

static void print_text(const struct tables_line *line)
{
    printf("%-22s %10.4f %-5s", line->name, line->value, line->unit);
    if (line->kind == TABLES_NO_BAR)
        printf("                ");
    else
        printf("  bar %s %-4g %s", line->kind == TABLES_AT_MOST ? "<=" : ">=", line->bar,
               line_holds(line) ? "holds " : "missed");
    printf("  %llu wrong\n", (unsigned long long)line->wrong);
}

void tables_print(struct tables *t, const struct tables_line *line)
{
    t->wrong += line->wrong;
    if (t->is_json)
        print_json(t->bench, line);
    else
        print_text(line);
    fflush(stdout);
}
