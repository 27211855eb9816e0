/* `tables`: measures the cost of tables of keyed rows, part by part. Owns the measured service. */
#include "bench/commands.h"
#include "bench/lib/host.h"
#include "bench/tables/tables.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { KEY_QUICK = 1000, KEY_JSON, KEY_PART, KEY_SEED };

static const struct argp_option options[] = {
    {"quick", KEY_QUICK, 0, 0, "few rows and clocks; the bars are those of a whole run"},
    {"json", KEY_JSON, 0, 0, "a line of JSON for each figure"},
    {"part", KEY_PART, "NAME", 0,
     "only this part: apply, exchange, memory, latency or ahead (default: all)"},
    {"seed", KEY_SEED, "N", 0, "seed of keys and gradients (default 1)"},
    {0},
};

static const struct part {
    const char *name;
    int (*run)(struct tables *t);
} parts[] = {
    {"apply", tables_apply},     {"exchange", tables_exchange}, {"memory", tables_memory},
    {"latency", tables_latency}, {"ahead", tables_ahead},
};
#define PARTS (sizeof parts / sizeof *parts)

struct tables_options {
    struct tables tables;
    const char *part; /* the only part that is measured; NULL: all parts */
};

static bool is_part(const char *name)
{
    for (size_t i = 0; i < PARTS; i++)
        if (strcmp(name, parts[i].name) == 0)
            return true;
    return false;
}

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct tables_options *o = state->input;
    switch (key) {
    case KEY_QUICK: o->tables.is_quick = true; return 0;
    case KEY_JSON: o->tables.is_json = true; return 0;
    case KEY_SEED: o->tables.seed = command_number(state, argument, 0, UINT32_MAX); return 0;
    case KEY_PART:
        if (!is_part(argument))
            argp_error(state, "--part: apply, exchange, memory, latency or ahead, not '%s'",
                       argument);
        o->part = argument;
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static int run_parts(struct tables_options *o)
{
    int error = 0;
    for (size_t i = 0; error == 0 && i < PARTS; i++)
        if (!o->part || strcmp(o->part, parts[i].name) == 0)
            error = parts[i].run(&o->tables);
    return error;
}

int tables_command(int argc, char **argv)
{
    static struct tables_options o = {.tables = {.bench = "tables", .seed = 1}};
    char core[16];
    const struct argp argp = {
        options,
        parse,
        NULL,
        "Measure tables of keyed rows on one lane: updates compared with the row store alone; "
        "pulls and pushes of two workers through shared memory and by tcp; memory of a row; pulls "
        "while rows are made; SSP compared with BSP for workers of changing speed. Rows are "
        "compared with a replay, or with the sums of all gradients. The command starts a separate "
        "service.",
        NULL,
        NULL,
        NULL};
    argp_parse(&argp, argc, argv, 0, NULL, &o);
    snprintf(core, sizeof core, "%d", process_core(0));
    int error =
        service_start_as(&o.tables.service, &(struct service_setting){.cores = core,
                                                                      .lanes_per_core = "1",
                                                                      .scale = "off",
                                                                      .job_memory_max = "8G",
                                                                      .lane_memory_max = "8G"});
    if (error == 0)
        error = run_parts(&o);
    service_stop(&o.tables.service);
    return error < 0 || o.tables.wrong ? 1 : 0;
}
