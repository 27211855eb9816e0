/* gradpool drain: empties lanes while jobs train. No task is placed on these lanes until the drain
 * is undone. */
#include "svc/cli/cli.h"
#include "svc/cli/internal.h"
#include "svc/cli/operator.h"

#include <errno.h>
#include <string.h>

enum { UNDO = OPERATOR_KNOBS };

const struct knob drain_knobs[] = {
    [OPERATOR_ENDPOINT] = {OPERATOR_ENDPOINT_KNOB},
    [OPERATOR_JSON] = {"json", NULL, "print JSON instead of a sentence"},
    [UNDO] = {"undo", NULL, "end a drain, so that the lanes are used again (default: off)"},
    {0},
};

struct drain {
    struct operator_options options;
    const char *kind, *number;
    bool undo;
};

static int set(void *context, int index, const char *value, struct err *err)
{
    struct drain *d = context;
    if (index < OPERATOR_KNOBS)
        return operator_set(&d->options, index, value, err);
    d->undo = true;
    return 0;
}

static int set_operand(void *context, const char *value, struct err *err)
{
    struct drain *d = context;
    if (!d->kind && strcmp(value, "lane") != 0 && strcmp(value, "aggregator") != 0)
        return err_set(err, -EINVAL, "'%s': expected lane or aggregator, then its number", value);
    if (d->number)
        return err_set(err, -EINVAL,
                       "'%s': one argument too many; give lane or aggregator, then its number",
                       value);
    *(d->kind ? &d->number : &d->kind) = value;
    return 0;
}

static void parse(int argc, char **argv, struct drain *ret_drain)
{
    static const struct knob_command command = {
        .name = "gradpool drain",
        .operands = "lane NUMBER | aggregator NUMBER",
        .knobs = drain_knobs,
        .set = set,
        .operand = set_operand,
        .before = "Moves all tasks of a lane, or of all lanes of an aggregator, to other lanes "
                  "while the jobs train, and places no new task on the drained lanes. A drained "
                  "aggregator can be stopped without an effect on jobs. If a job fits on no "
                  "other lane, its name is printed and the drain is undone: the lanes are used "
                  "as before.",
        .after = "Examples:\n"
                 "  gradpool drain aggregator 2\n"
                 "  gradpool drain lane 3 --undo\n\n"
                 "Lanes are used again after --undo, or when gradpool serve is started again.\n\n"
                 "Exit code: 0 the lanes have no tasks; 1 failed, or the drain was undone "
                 "because a task could not be moved; 2 a mistake on the command line; 3 no "
                 "service there, or no such lane or aggregator."};
    *ret_drain = (struct drain){
        .options = {.endpoint = OPERATOR_ENDPOINT_DEFAULT, .timeout_ms = OPERATOR_PATIENCE_MS}};
    knobs_parse(&command, argc, argv, ret_drain);
}

int cli_drain(int argc, char **argv)
{
    struct drain d;
    unsigned long long number = 0;
    struct err err;
    parse(argc, argv, &d);
    if (!d.number || knobs_number(d.number, 1, UINT32_MAX, &number, &err) < 0)
        return knobs_mistake("gradpool drain", "%s: expected lane or aggregator, then its number",
                             d.number ? d.number : "an argument is missing");
    bool is_lane = strcmp(d.kind, "lane") == 0;
    return operator_order(&d.options,
                          &MESSAGE(0, DRAIN_LANES_REQUEST, drain_lanes_request,
                                   .lane = is_lane ? (uint32_t)number : 0,
                                   .aggregator = is_lane ? 0 : (uint32_t)number, .undo = d.undo));
}
