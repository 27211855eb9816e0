/* `tables`: measures the cost of tables of keyed rows, part by part. */
#include "bench/commands.h"
#include "bench/lib/parts.h"
#include "bench/tables/tables.h"

static const char *const names[] = {"apply", "exchange", "memory", "latency", "ahead", "copies"};
#define PARTS (sizeof names / sizeof *names)
static int (*const parts[PARTS])(struct tables *t) = {
    tables_apply, tables_exchange, tables_memory, tables_latency, tables_ahead, tables_copies};

static const struct parts_command command = {
    .about =
        "Measure tables of keyed rows on one lane: updates compared with the row store alone; "
        "pulls and pushes of two workers through shared memory and by tcp; memory of a row; pulls "
        "while rows are made; SSP compared with BSP for workers of changing speed; copies on "
        "another aggregator, "
        "and a killed owner. Rows are "
        "compared with a replay, or with the sums of all gradients. The command starts a separate "
        "service.",
    .quick = "rows and clocks",
    .seed = "keys and gradients",
    .names = names,
    .count = PARTS,
};

int tables_command(int argc, char **argv)
{
    struct parts_options options;
    parts_parse(&command, argc, argv, &options);
    return tables_measure("tables", &options, parts, PARTS);
}
