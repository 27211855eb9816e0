/* Growth: opens and parks lanes, moves tasks, and starts and stops local aggregators. The rules
 * (packer/growth/scale.h) are called once in each measured window; a job that arrives between two
 * windows is placed without them (K31). Owns the state of the rules. */
#include "svc/coordinator/growth/scaling.h"

#include "svc/base/cleanup.h"
#include "svc/base/log.h"
#include "svc/coordinator/aggregator/lane.h"
#include "svc/coordinator/fleet/open_lanes.h"
#include "svc/coordinator/growth/scaling_moves.h"
#include "svc/coordinator/growth/scaling_view.h"
#include "svc/coordinator/measure/measure.h"
#include "svc/coordinator/migration/migration.h"
#include "svc/coordinator/placement/waiting.h"
#include "svc/coordinator/service.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOTE_BYTES 640
#define PARK_PART 3   /* An idle lane parks after a third of the hold time. */
#define STOP_TIMES 10 /* An idle aggregator stops after ten hold times. */

const char *scaling_verb_name(enum scale_verb verb)
{
    static const char *const names[] = {"nothing", "open",  "start", "narrow", "measure",
                                        "relieve", "drain", "park",  "stop"};
    return names[verb];
}

/* Writes the reason of the decision to `text`, with the job's name instead of its number. Returns
 * `text`, or the unchanged reason if the reason names no job. */
static const char *name_job(struct service *s, const struct scale_decision *d, char *text,
                            size_t text_bytes)
{
    char prefix[TENANT_PREFIX_BYTES], number[32];
    const struct job *job = d->job ? jobs_find_id(s, (uint32_t)d->job) : NULL;
    int bytes = snprintf(number, sizeof number, "job %" PRIu64 " ", d->job);
    const char *at = job ? strstr(d->reason, number) : NULL;
    if (!at)
        return d->reason;
    snprintf(text, text_bytes, "%.*sjob %s%s %s", (int)(at - d->reason), d->reason,
             tenant_prefix(job->tenant, prefix), job->name, at + bytes);
    return text;
}

static void note(struct service *s, enum scale_verb verb, const char *text)
{
    if (verb == SCALE_NOTHING)
        return log_write(LOG_LEVEL_TRACE, "growth: %s", text);
    events_note(s->events, scaling_verb_name(verb), "%s", text);
    log_info("growth: %s: %s", scaling_verb_name(verb), text);
}

/* --- lanes --- */

static void open_all(struct service *s, const struct scale_decision *d)
{
    for (size_t i = 0; i < d->lanes_count; i++) {
        struct lane *lane = lane_find(s, d->lanes[i]);
        if (lane)
            lane_open(lane);
    }
}

static void park_all(struct service *s, const struct scale_decision *d)
{
    for (size_t i = 0; i < d->lanes_count; i++) {
        struct lane *lane = lane_find(s, d->lanes[i]);
        if (lane && lane->use == LANE_OPEN && lane->jobs == 0 && lane->arriving == 0)
            lane->use = LANE_PARKED;
    }
}

void scaling_joined(struct aggregator *a, const struct slot *slot)
{
    size_t open = slot ? slot->open_count : a->lanes_count, room;
    if (!a->service->scaling->is_on)
        return;
    for (size_t i = 0; i < a->lanes_count; i++)
        a->lanes[i].use = LANE_PARKED;
    room = lanes_room(a->service);
    for (size_t i = 0; i < a->lanes_count && i < open && i < room; i++)
        a->lanes[i].use = LANE_OPEN;
    a->service->on->service->training_may_begin(a->service);
}

static void park_beyond(struct service *s, struct aggregator *a, size_t *open)
{
    for (size_t i = 0; i < a->lanes_count; i++) {
        struct lane *lane = &a->lanes[i];
        if (lane->jobs > 0)
            continue;
        if (*open < s->options->lanes_max)
            ++*open;
        else
            lane->use = LANE_PARKED;
    }
}

/* Lanes with pieces stay open, even if they are more than --lanes-max, which may have been higher
 * before the restart. */
void scaling_restored(struct service *s)
{
    size_t open = 0;
    if (!s->scaling->is_on || s->options->lanes_max == 0)
        return;
    list_for_each_entry (const struct aggregator, a, &s->aggregators, link) {
        for (size_t i = 0; i < a->lanes_count; i++)
            open += a->lanes[i].jobs > 0;
    }
    list_for_each_entry (struct aggregator, a, &s->aggregators, link)
        park_beyond(s, a, &open);
}

/* --- tasks --- */

/* Called when a job's tasks have left a closing lane or could not move. After the last of these
 * jobs, the lane opens again. If some tasks could not move, the time of low load is counted anew,
 * so that growth does not repeat the failed drain in every window. */
static void left(struct lane *lane)
{
    if (lane->leaving > 0 || lane->use != LANE_CLOSING)
        return;
    lane->use = LANE_OPEN;
    if (lane->jobs > 0)
        lane->aggregator->service->scaling->state.low_ns = 0;
}

void scaling_left(struct service *s, uint32_t id)
{
    struct lane *lane = lane_find(s, id);
    if (!lane || lane->leaving == 0)
        return;
    lane->leaving--;
    left(lane);
}

/* Moves tasks, with one trip (a list of moves) for each job. `moves` are sorted by task, so the
 * moves of a job are adjacent. Returns the number of trips that have begun. */
static uint32_t move_all(const struct scaling_look *look, const struct scale_decision *d,
                         uint32_t source)
{
    _cleanup_free_ struct task_move *moves = calloc(d->moves_count + 1, sizeof *moves);
    enum share_how how = d->verb == SCALE_DRAIN     ? SHARE_GATHERED
                         : d->verb == SCALE_NARROW  ? SHARE_NARROWED
                         : d->verb == SCALE_MEASURE ? SHARE_ALONE
                                                    : SHARE_RELIEVED;
    uint32_t trips = 0;
    for (size_t first = 0, end; moves && first < d->moves_count; first = end) {
        uint32_t job = look->tasks[d->moves[first].task].job;
        for (end = first; end < d->moves_count && look->tasks[d->moves[end].task].job == job; end++)
            moves[end - first] =
                (struct task_move){look->numbers[d->moves[end].task], d->moves[end].target, how};
        trips += scaling_move(look->owners[job], moves, end - first, source);
    }
    return trips;
}

static void drain(struct service *s, const struct scaling_look *look,
                  const struct scale_decision *d)
{
    struct lane *lane = lane_find(s, d->lane);
    if (!lane)
        return;
    lane->use = LANE_CLOSING;
    lane->leaving += move_all(look, d, lane->id);
    left(lane);
}

/* --- aggregators --- */

static void start(struct service *s, const struct scale_decision *d)
{
    struct slot *slot = d->lanes_count ? slot_of_lane(s, d->lanes[0]) : NULL;
    if (slot)
        fleet_want(slot, d->lanes_count);
}

/* --- a window --- */

static void carry_out(struct service *s, const struct scaling_look *look,
                      const struct scale_decision *d)
{
    struct aggregator *a;
    switch (d->verb) {
    case SCALE_NOTHING: break;
    case SCALE_OPEN: open_all(s, d); break;
    case SCALE_START: start(s, d); break;
    case SCALE_NARROW:
    case SCALE_MEASURE:
    case SCALE_RELIEVE:
        open_all(s, d);
        move_all(look, d, 0);
        break;
    case SCALE_DRAIN: drain(s, look, d); break;
    case SCALE_PARK: park_all(s, d); break;
    case SCALE_STOP:
        a = aggregator_find(s, d->aggregator);
        if (a)
            fleet_release(a);
        break;
    }
}

static struct scale_options rules(const struct service *s)
{
    const struct coordinator_options *o = s->options;
    uint64_t hold_ns = scaling_hold_ns(o->scale_hold_ns);
    return (struct scale_options){.policy = o->policy,
                                  .lanes_min = o->lanes_min,
                                  .lanes_max = o->lanes_max,
                                  .lanes_spare = o->lanes_spare,
                                  .drain_hold_ns = hold_ns,
                                  .park_hold_ns = hold_ns / PARK_PART + 1,
                                  .stop_hold_ns = hold_ns * STOP_TIMES};
}

const char *scaling_stay_text(const struct job *job, char *text, size_t text_bytes)
{
    const struct scale_memory *m = &job->growth->memory;
    double loss = profile_loss_ppm(job->profile) / 1e4;
    if (m->stay == SCALE_STAY_NOT)
        return "";
    snprintf(text, text_bytes,
             "above its loss limit, but %s %.1f %% of its loss of %.1f %%: the job is not moved, "
             "and its "
             "lanes are not emptied",
             m->stay == SCALE_STAY_UNEXPLAINED
                 ? "sharing lanes causes only"
                 : "no lane keeps every job within its limit; sharing causes",
             m->explained_ppm / 1e4, loss);
    return text;
}

/* Logs why a job above its loss limit stays on its lanes, once for each reason. */
static void tell_who_stays(struct service *s)
{
    char prefix[TENANT_PREFIX_BYTES], text[SCALING_STAY_BYTES];
    list_for_each_entry (struct job, job, &s->jobs, link) {
        if (job->growth->told_stay == job->growth->memory.stay)
            continue;
        job->growth->told_stay = job->growth->memory.stay;
        if (job->growth->told_stay == SCALE_STAY_NOT)
            log_info("growth: job %s%s is within its loss limit again, or can move",
                     tenant_prefix(job->tenant, prefix), job->name);
        else
            log_info("growth: job %s%s: %s", tenant_prefix(job->tenant, prefix), job->name,
                     scaling_stay_text(job, text, sizeof text));
    }
}

static int decide(struct service *s, struct scaling_look *look)
{
    struct scale_decision d;
    struct scale_options options = rules(s);
    int error = scale_tick(&s->scaling->state, &options, &look->seen, clock_now_ns(), &d);
    if (error < 0)
        return error;
    char named[NOTE_BYTES];
    note(s, d.verb, name_job(s, &d, named, sizeof named));
    carry_out(s, look, &d);
    scale_decision_fini(&d);
    return 0;
}

void scaling_window(struct service *s)
{
    struct scaling_look look;
    if (!s->scaling->is_on || s->phase != SERVICE_UP || s->fleet->leave_done)
        return;
    int error = scaling_look_make(s, &look);
    if (error == 0) {
        error = decide(s, &look);
        tell_who_stays(s);
        scaling_look_free(&look);
    }
    if (error < 0)
        log_warn("growth: this window ends without a decision: %s; the next window decides",
                 err_text(error));
}

bool scaling_is_due(const struct service *s)
{
    size_t least = s->options->lanes_min ? s->options->lanes_min : 1;
    if (!s->scaling->is_on)
        return false;
    return lanes_open(s) > least + s->options->lanes_spare || fleet_may_stop(s);
}

uint64_t scaling_hold_ns(uint64_t named_ns) { return named_ns ? named_ns : 30 * NS_PER_S; }

int scaling_create(struct service *s)
{
    struct packer_resident nobody = {0};
    double none;
    bool has_rule = packer_losses(s->options->policy, &nobody, 0, &none) == 0;
    s->scaling = calloc(1, sizeof *s->scaling);
    if (!s->scaling)
        return -ENOMEM;
    list_init(&s->scaling->trips);
    s->scaling->is_on = s->options->scales && has_rule;
    return 0;
}

void scaling_destroy(struct service *s) { free(s->scaling); }
