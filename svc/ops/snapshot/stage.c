/* Copies the stage of a job from a message. */
#include "svc/ops/snapshot/stage.h"

#include <errno.h>
#include <stdlib.h>

int stage_view_create(const Gradpool__Wire__JobView *job, struct view_stage **ret_stage)
{
    const Gradpool__Wire__StageView *stage = job->stage;
    *ret_stage = stage ? malloc(sizeof **ret_stage) : NULL;
    if (!stage)
        return 0;
    if (!*ret_stage)
        return -ENOMEM;
    **ret_stage = (struct view_stage){.name = stage->name,
                                      .choice = stage->choice,
                                      .number = stage->number,
                                      .workers = stage->workers,
                                      .age_ns = stage->age_ns,
                                      .hand_over_ns = stage->hand_over_ns};
    return 0;
}
