/* Describes the present stage of a job for operators. */
#include "svc/coordinator/service.h"
#include "svc/coordinator/stage/internal.h"

#include <string.h>

static char *view_copy(const char *text, void *(*take)(void *context, size_t bytes), void *context)
{
    size_t bytes = strlen(text) + 1;
    char *copy = take(context, bytes);
    return copy ? memcpy(copy, text, bytes) : NULL;
}

static const char *view_choice(const struct stages *s)
{
    if (!*s->terms->name)
        return "all ranks";
    return s->terms->workers > 0 ? "fixed" : s->trial_steps > 0 ? "trial" : "automatic";
}

bool stage_view_add(const struct job *job, void *(*take)(void *context, size_t bytes),
                    void *context, WIRE(JobView) * view)
{
    const struct stages *s = job->ranks->stages;
    if (!s || s->number == 0)
        return true;
    WIRE(StageView) *stage = take(context, sizeof *stage);
    if (!stage)
        return false;
    *stage =
        MESSAGE_PART(StageView, stage_view, .number = s->number, .workers = ranks_count(s->members),
                     .age_ns = s->times->began_ns ? clock_now_ns() - s->times->began_ns : 0,
                     .hand_over_ns = s->times->hand_over_ns);
    view->stage = stage;
    stage->name = view_copy(s->terms->name, take, context);
    stage->choice = view_copy(view_choice(s), take, context);
    return stage->name && stage->choice;
}
