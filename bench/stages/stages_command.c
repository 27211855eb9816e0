/* `stages`: measures stages with their own numbers of workers, part by part. */
#include "bench/commands.h"
#include "bench/lib/parts.h"
#include "bench/stages/stages.h"

static const char *const names[] = {"border", "hand-over", "svrg", "batch", "automatic"};
#define PARTS (sizeof names / sizeof *names)
static int (*const parts[PARTS])(struct tables *t) = {stages_border, stages_hand_over, stages_svrg,
                                                      stages_batch, stages_automatic};

static const struct parts_command command = {
    .about =
        "Measure jobs in stages, on one lane: borders of 8 ranks through shared memory and by tcp; "
        "the CPU of an idle rank; the hand-over of values; SVRG, a growing batch and the automatic "
        "number of workers beside fixed numbers. A sleep emulates the computation of a worker; all "
        "arithmetic is real, and is compared with a replay. The command starts a separate service.",
    .quick = "steps and bytes",
    .seed = "samples",
    .names = names,
    .count = PARTS,
};

int stages_command(int argc, char **argv)
{
    struct parts_options options;
    parts_parse(&command, argc, argv, &options);
    return tables_measure("stages", &options, parts, PARTS);
}
