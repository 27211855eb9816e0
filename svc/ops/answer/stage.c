/* Texts for stages. `gradpool jobs` and `gradpool explain` use the same texts. */
#include "svc/ops/answer/stage.h"

#include "svc/base/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

int stage_print(const struct view_stage *stage, FILE *out)
{
    char *tamed = strdup(*stage->name ? stage->name : "none");
    if (!tamed)
        return -ENOMEM;
    text_disarm(tamed);
    fprintf(out,
            "stage: %s, number %" PRIu64 ", %u worker%s (%s), begun %.1f s ago, %.3f ms after "
            "the end of the previous stage\n",
            tamed, stage->number, stage->workers, text_plural(stage->workers), stage->choice,
            (double)stage->age_ns / 1e9, (double)stage->hand_over_ns / 1e6);
    free(tamed);
    return 0;
}

json_t *stage_json(const struct view_stage *stage, int *error)
{
    json_t *o = json_object();
    JSON_PUT(o, stage, error, name, number, workers, choice, age_ns, hand_over_ns);
    return o;
}
