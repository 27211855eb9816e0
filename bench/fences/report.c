/* Prints the results of `fences`. */
#include "bench/fences/fences.h"
#include "bench/savings/statistics.h"

#include <stdio.h>

static const char *const figures[FIGURES] = {"p50", "p99", "p999", "worst"};
static const double bars[FIGURES] = {0, P99_BAR, P999_BAR, 0}; /* 0: no bar */

double fences_ratio(const struct fences_row *row, enum figure figure)
{
    return statistics_turns_ratio(row->beside_us, row->control_us, FIGURES, row->runs, figure);
}

static double control_us(const struct fences_row *row, int figure)
{
    return statistics_turns_median(row->control_us, FIGURES, row->runs, (size_t)figure);
}

static double beside_us(const struct fences_row *row, int figure)
{
    return statistics_turns_median(row->beside_us, FIGURES, row->runs, (size_t)figure);
}

static bool row_holds(const struct fences_row *row)
{
    return fences_ratio(row, FIGURE_P99) <= P99_BAR && fences_ratio(row, FIGURE_P999) <= P999_BAR &&
           row->wrong == 0;
}

static bool visits_hold(const struct fences_row *row)
{
    bool holds = row->visited.failed == 0;
    for (int visit = 0; visit < VISITS; visit++)
        holds &= row->visited.longest_s[visit] <= VISIT_BAR_S;
    return holds;
}

/* --- lines of JSON --- */

static void print_value(const struct fences_row *row, const char *name, double value)
{
    printf("{\"bench\": \"fences\", \"name\": \"%s.%s.%s\", \"value\": %.6g, \"bar\": null, "
           "\"holds\": null}\n",
           row->load->name, row->transport, name, value);
}

static void print_bar(const char *load, const char *part, const char *name, double value,
                      double bar)
{
    printf("{\"bench\": \"fences\", \"name\": \"%s.%s.%s\", \"value\": %.6g, \"bar\": %g, "
           "\"holds\": %s}\n",
           load, part, name, value, bar, value <= bar ? "true" : "false");
}

static void print_row_as_json(const struct fences_row *row)
{
    for (int figure = 0; figure < FIGURES; figure++) {
        char name[32];
        snprintf(name, sizeof name, "%s_control_us", figures[figure]);
        print_value(row, name, control_us(row, figure));
        snprintf(name, sizeof name, "%s_us", figures[figure]);
        print_value(row, name, beside_us(row, figure));
        snprintf(name, sizeof name, "%s_ratio", figures[figure]);
        double ratio = fences_ratio(row, (enum figure)figure);
        if (bars[figure] > 0)
            print_bar(row->load->name, row->transport, name, ratio, bars[figure]);
        else
            print_value(row, name, ratio);
    }
    print_value(row, "load_done", (double)row->done);
    print_bar(row->load->name, row->transport, "wrong", (double)row->wrong, 0);
}

static void print_alone_as_json(const struct visited *alone)
{
    for (int visit = 0; visit < VISITS; visit++)
        printf("{\"bench\": \"fences\", \"name\": \"alone.%s.longest_s\", \"value\": %.6g, "
               "\"bar\": null, \"holds\": null}\n",
               visit_name((enum visit)visit), alone->longest_s[visit]);
}

static void print_visits_as_json(const struct fences_row *row)
{
    for (int visit = 0; visit < VISITS; visit++)
        print_bar(row->load->name, visit_name((enum visit)visit), "longest_s",
                  row->visited.longest_s[visit], VISIT_BAR_S);
    print_bar(row->load->name, "visits", "failed", row->visited.failed, 0);
}

/* --- tables --- */

static void print_row_as_text(const struct fences_row *row)
{
    printf("%-10s %-4s", row->load->name, row->transport);
    for (int figure = 0; figure < FIGURES; figure++)
        printf(" %7.0f", control_us(row, figure));
    printf(" |");
    for (int figure = 0; figure < FIGURES; figure++)
        printf(" %7.0f", beside_us(row, figure));
    printf(" | %6.2f %6.2f  %s\n", fences_ratio(row, FIGURE_P99), fences_ratio(row, FIGURE_P999),
           row->wrong       ? "WRONG"
           : row_holds(row) ? "yes"
                            : "no");
}

static void print_visited(const char *load, const struct visited *visited)
{
    printf("%-10s", load);
    for (int visit = 0; visit < VISITS; visit++)
        printf(" %11.3f", visited->longest_s[visit]);
}

static void print_visits_as_text(const struct fences_row *row)
{
    print_visited(row->load->name, &row->visited);
    printf("  %s", visits_hold(row) ? "yes" : "no");
    if (row->visited.failed > 0)
        printf(", %u failed", row->visited.failed);
    printf("\n");
}

void fences_print_begin(bool is_json)
{
    if (is_json)
        return;
    printf("A victim's rounds, us: beside the control, and beside the load (bars: p99 %g x, p99.9 "
           "%g x)\n",
           P99_BAR, P999_BAR);
    printf("%-10s %-4s", "load", "over");
    for (int side = 0; side < 2; side++)
        printf(" %7s %7s %7s %7s |", "p50", "p99", "p99.9", "worst");
    printf(" %6s %6s  %s\n", "p99 x", "p999 x", "holds");
    fflush(stdout);
}

void fences_print_row(const struct fences_row *row, bool is_json)
{
    is_json ? print_row_as_json(row) : print_row_as_text(row);
    fflush(stdout);
}

static void print_visits_head(const struct visited *alone)
{
    printf("\nThe longest beside the load, s (bar: %g)\n%-10s", VISIT_BAR_S, "load");
    for (int visit = 0; visit < VISITS; visit++)
        printf(" %11s", visit_name((enum visit)visit));
    printf("  holds\n");
    print_visited("(none)", alone);
    printf("\n");
}

void fences_print_visits(const struct visited *alone, const struct fences_row *rows, size_t count,
                         bool is_json)
{
    is_json ? print_alone_as_json(alone) : print_visits_head(alone);
    for (size_t i = 0; i < count; i++)
        if (rows[i].visits > 0)
            is_json ? print_visits_as_json(&rows[i]) : print_visits_as_text(&rows[i]);
    fflush(stdout);
}

bool fences_print_end(const struct fences_row *rows, size_t count, bool is_json)
{
    size_t lines = 0, missed = 0;
    for (size_t i = 0; i < count; i++) {
        lines += 1 + (rows[i].visits > 0);
        missed += !row_holds(&rows[i]) + (rows[i].visits > 0 && !visits_hold(&rows[i]));
    }
    if (!is_json)
        printf("\n%zu of %zu lines meet their bars\n", lines - missed, lines);
    return missed == 0;
}
