/* Sends random events to the scheduler of trials. A model of the site executes every action and
 * detects impossible actions: a slot is used twice, a rank is started twice, a job has too many
 * workers, or workers start before their lanes exist. */
#include "test/unit/packer/scheduler_rig.h"

#define SITES 60
#define EVENTS 1500
#define MODEL_SLOTS 24
#define MODEL_JOBS 4096

enum model_slot_state { MODEL_FREE, MODEL_WORKS, MODEL_LEAVES, MODEL_LOST };

struct model_slot {
    enum model_slot_state state;
    uint32_t job, rank;
};

struct model_job {
    bool lives, rests, ends;
    uint32_t min, max, lanes;
};

struct model {
    struct model_slot slots[MODEL_SLOTS];
    struct model_job jobs[MODEL_JOBS];
    uint32_t jobs_count;
    const char *complaint; /* error of the last event; NULL: none */
    uint64_t hash;         /* hash of all actions */
};

/* --- the model --- */

static uint32_t model_workers(const struct model *m, uint32_t job)
{
    uint32_t workers = 0;
    for (size_t i = 0; i < MODEL_SLOTS; i++)
        workers += m->slots[i].state == MODEL_WORKS && m->slots[i].job == job;
    return workers;
}

static struct model_slot *model_find(struct model *m, uint32_t job, uint32_t rank)
{
    for (size_t i = 0; i < MODEL_SLOTS; i++)
        if ((m->slots[i].state == MODEL_WORKS || m->slots[i].state == MODEL_LEAVES) &&
            m->slots[i].job == job && m->slots[i].rank == rank)
            return &m->slots[i];
    return NULL;
}

static void model_start(struct model *m, const struct scheduler_action *a)
{
    struct model_job *job = &m->jobs[a->job];
    if (!job->lives || job->ends)
        m->complaint = "a job that ended got a worker";
    else if (a->slot >= MODEL_SLOTS || m->slots[a->slot].state != MODEL_FREE)
        m->complaint = "a slot is used twice, or is lost";
    else if (model_find(m, a->job, a->rank))
        m->complaint = "a rank started while its process lives";
    else if (model_workers(m, a->job) >= job->max || a->rank >= job->max)
        m->complaint = "more workers than the maximum";
    else if (job->lanes <= model_workers(m, a->job))
        m->complaint = "a worker started before its lanes";
    else
        m->slots[a->slot] = (struct model_slot){MODEL_WORKS, a->job, a->rank};
    job->rests = false;
}

static void model_leave(struct model *m, const struct scheduler_action *a)
{
    struct model_slot *slot = model_find(m, a->job, a->rank);
    for (size_t i = 0; i < MODEL_SLOTS; i++)
        if (m->slots[i].state == MODEL_WORKS && m->slots[i].job == a->job &&
            m->slots[i].rank > a->rank)
            m->complaint = "not the highest rank left";
    if (!slot || slot->state != MODEL_WORKS)
        m->complaint = "a worker left that does not work";
    else if (!m->jobs[a->job].ends && model_workers(m, a->job) <= m->jobs[a->job].min)
        m->complaint = "a job shrank below its minimum";
    else
        slot->state = MODEL_LEAVES;
}

static void model_rest(struct model *m, const struct scheduler_action *a)
{
    if (m->jobs[a->job].rests || !m->jobs[a->job].lives)
        m->complaint = "a job rested twice";
    m->jobs[a->job].rests = true;
    for (size_t i = 0; i < MODEL_SLOTS; i++)
        if (m->slots[i].state == MODEL_WORKS && m->slots[i].job == a->job)
            m->slots[i].state = MODEL_LEAVES;
}

static void model_lanes(struct model *m, const struct scheduler_action *a)
{
    if (a->workers < model_workers(m, a->job))
        m->complaint = "lanes narrowed before their workers were out";
    m->jobs[a->job].lanes = a->workers;
}

static void model_obey(struct model *m, const struct scheduler_action *a)
{
    m->hash = (m->hash ^ a->verb) * UINT64_C(0x100000001b3);
    m->hash = (m->hash ^ a->job) * UINT64_C(0x100000001b3);
    m->hash = (m->hash ^ a->rank) * UINT64_C(0x100000001b3);
    m->hash = (m->hash ^ a->slot) * UINT64_C(0x100000001b3);
    switch (a->verb) {
    case SCHEDULER_START:
    case SCHEDULER_GO_ON: model_start(m, a); break;
    case SCHEDULER_LEAVE: model_leave(m, a); break;
    case SCHEDULER_REST: model_rest(m, a); break;
    case SCHEDULER_LANES: model_lanes(m, a); break;
    }
}

static void model_compare(struct model *m, const struct scheduler *scheduler)
{
    for (uint32_t i = 0; i < MODEL_SLOTS; i++) {
        uint32_t job = 0, rank = 0;
        bool is_held = m->slots[i].state == MODEL_WORKS || m->slots[i].state == MODEL_LEAVES;
        if (scheduler_holder(scheduler, i, &job, &rank) != is_held ||
            (is_held && (job != m->slots[i].job || rank != m->slots[i].rank)))
            m->complaint = "the view of a slot is wrong";
    }
}

/* --- random events --- */

struct play {
    struct model model;
    struct scheduler *scheduler;
    uint64_t now_ns, seed;
};

static uint64_t draw(struct play *p, uint64_t below)
{
    uint64_t z = p->seed += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (z ^ (z >> 31)) % below;
}

static int play_send(struct play *p, struct scheduler_event event)
{
    const struct scheduler_action *actions = NULL;
    event.now_ns = p->now_ns;
    int count = scheduler_step(p->scheduler, &event, &actions);
    for (int i = 0; i < count && !p->model.complaint; i++)
        model_obey(&p->model, &actions[i]);
    if (!p->model.complaint)
        model_compare(&p->model, p->scheduler);
    return count;
}

static void play_submit(struct play *p)
{
    struct model *m = &p->model;
    if (m->jobs_count == MODEL_JOBS)
        return;
    uint32_t id = m->jobs_count++, min = draw(p, 4) ? 1 : 1 + (uint32_t)draw(p, 8);
    struct scheduler_job job = {.id = id,
                                .tenant = (uint32_t)draw(p, 3),
                                .study = (uint32_t)draw(p, 2),
                                .workers_min = min,
                                .workers_max = min + (uint32_t)draw(p, 6),
                                .steps = draw(p, 2) * 1000,
                                .is_stage = draw(p, 12) == 0};
    m->jobs[id] = (struct model_job){.lives = true, .min = min, .max = job.workers_max};
    int r = play_send(p, (struct scheduler_event){.kind = SCHEDULER_SUBMITTED, .submitted = &job});
    if (r == -ENOSPC)
        m->jobs[id].lives = false;
    else
        assert_true(r >= 0);
}

static void play_worker_out(struct play *p)
{
    struct model_slot *slot = &p->model.slots[draw(p, MODEL_SLOTS)];
    struct model_slot before = *slot;
    if (before.state != MODEL_LEAVES && (before.state != MODEL_WORKS || draw(p, 20)))
        return;
    *slot = (struct model_slot){.state = MODEL_FREE};
    if (p->model.jobs[before.job].ends) {
        bool has_slots = false;
        for (size_t i = 0; i < MODEL_SLOTS; i++)
            has_slots |= p->model.slots[i].state != MODEL_FREE &&
                         p->model.slots[i].state != MODEL_LOST &&
                         p->model.slots[i].job == before.job;
        p->model.jobs[before.job].lives = has_slots;
    }
    assert_true(play_send(p, (struct scheduler_event){.kind = SCHEDULER_WORKER_OUT,
                                                      .job = before.job,
                                                      .rank = before.rank}) >= 0);
}

static void play_end(struct play *p, uint32_t id)
{
    for (size_t i = 0; i < MODEL_SLOTS; i++)
        if ((p->model.slots[i].state == MODEL_WORKS || p->model.slots[i].state == MODEL_LEAVES) &&
            p->model.slots[i].job == id)
            p->model.slots[i].state = MODEL_FREE;
    p->model.jobs[id].lives = false;
    assert_true(play_send(p, (struct scheduler_event){.kind = SCHEDULER_ENDED, .job = id}) >= 0);
}

static void play_order_end(struct play *p, uint32_t id)
{
    bool has_slots = false;
    for (size_t i = 0; i < MODEL_SLOTS; i++)
        has_slots |=
            (p->model.slots[i].state == MODEL_WORKS || p->model.slots[i].state == MODEL_LEAVES) &&
            p->model.slots[i].job == id;
    p->model.jobs[id].ends = true;
    p->model.jobs[id].lives = has_slots;
    assert_true(play_send(p, (struct scheduler_event){.kind = SCHEDULER_END_ORDERED, .job = id}) >=
                0);
}

static void play_slot(struct play *p)
{
    uint32_t at = (uint32_t)draw(p, MODEL_SLOTS);
    struct model_slot *slot = &p->model.slots[at], before = *slot;
    if (before.state != MODEL_FREE && before.state != MODEL_LOST)
        return;
    bool was_lost = before.state == MODEL_LOST;
    if (!was_lost && draw(p, 3))
        return;
    slot->state = was_lost ? MODEL_FREE : MODEL_LOST;
    assert_true(play_send(p, (struct scheduler_event){.kind = was_lost ? SCHEDULER_SLOT_FOUND
                                                                       : SCHEDULER_SLOT_LOST,
                                                      .slot = at}) >= 0);
}

static void play_report(struct play *p, uint32_t id)
{
    struct scheduler_event event = {.kind = SCHEDULER_REPORTED, .job = id};
    event.step = draw(p, 1000);
    event.rung = (uint32_t)draw(p, 4);
    event.value = draw(p, 5) ? (double)draw(p, 100) : NAN;
    assert_true(play_send(p, event) >= 0);
}

static void play_measure(struct play *p, uint32_t id)
{
    struct scheduler_event event = {.kind = SCHEDULER_MEASURED, .job = id};
    event.workers = model_workers(&p->model, id);
    event.step_s = (double)(1 + draw(p, 1000)) / 100;
    if (event.workers > 0)
        assert_true(play_send(p, event) >= 0);
}

static void play_job(struct play *p)
{
    uint32_t id = (uint32_t)draw(p, p->model.jobs_count ? p->model.jobs_count : 1);
    if (p->model.jobs_count > 40 && draw(p, 4))
        id = p->model.jobs_count - 1 - (uint32_t)draw(p, 40);
    if (!p->model.jobs[id].lives || p->model.jobs[id].ends)
        return;
    switch (draw(p, 8)) {
    case 0: play_end(p, id); return;
    case 1: play_order_end(p, id); return;
    case 2: play_measure(p, id); return;
    case 3:
        assert_true(play_send(p, (struct scheduler_event){.kind = SCHEDULER_LANES_LIMIT,
                                                          .job = id,
                                                          .workers = (uint32_t)draw(p, 8)}) >= 0);
        return;
    default: play_report(p, id); return;
    }
}

static void play_event(struct play *p)
{
    p->now_ns += draw(p, 20) * RIG_S;
    switch (draw(p, 6)) {
    case 0: play_submit(p); return;
    case 1:
    case 2: play_worker_out(p); return;
    case 3: play_job(p); return;
    case 4: play_slot(p); return;
    default: assert_true(play_send(p, (struct scheduler_event){.kind = SCHEDULER_TICK}) >= 0);
    }
}

/* Runs a site with this seed. Returns the hash of all actions. */
static uint64_t play_site(uint64_t seed)
{
    struct scheduler_options options = {.slots = MODEL_SLOTS, .resting_max = seed % 3};
    struct play *p = calloc(1, sizeof *p);
    assert_non_null(p);
    options.never_rests = seed % 5 == 0;
    p->seed = seed;
    p->scheduler = scheduler_create(&options);
    assert_non_null(p->scheduler);
    for (int i = 0; i < EVENTS; i++) {
        play_event(p);
        if (p->model.complaint)
            fail_msg("seed %llu, event %d: %s", (unsigned long long)seed, i, p->model.complaint);
    }
    uint64_t hash = p->model.hash;
    scheduler_destroy(p->scheduler);
    free(p);
    return hash;
}

static void no_slot_or_rank_is_used_twice_in_any_case(void **state)
{
    for (uint64_t seed = 0; seed < SITES; seed++)
        play_site(seed);
}

static void the_same_events_give_the_same_actions(void **state)
{
    for (uint64_t seed = 0; seed < 5; seed++)
        assert_true(play_site(seed) == play_site(seed));
    assert_true(play_site(1) != play_site(2));
}

/* --- the model itself --- */

/* Makes a model with a job of up to two workers. Rank 0 is on slot 0. */
static struct model *model_new(void)
{
    struct model *m = calloc(1, sizeof *m);
    assert_non_null(m);
    m->jobs[1] = (struct model_job){.lives = true, .min = 1, .max = 2, .lanes = 2};
    m->jobs[2] = (struct model_job){.lives = true, .min = 1, .max = 1, .lanes = 1};
    m->slots[0] = (struct model_slot){MODEL_WORKS, 1, 0};
    return m;
}

static void the_model_sees_each_planted_mistake(void **state)
{
    static const struct {
        struct scheduler_action action;
        const char *complaint;
    } plants[] = {
        {{.verb = SCHEDULER_START, .job = 2, .rank = 0, .slot = 0},
         "a slot is used twice, or is lost"},
        {{.verb = SCHEDULER_START, .job = 1, .rank = 0, .slot = 1},
         "a rank started while its process lives"},
        {{.verb = SCHEDULER_START, .job = 1, .rank = 2, .slot = 1},
         "more workers than the maximum"},
        {{.verb = SCHEDULER_START, .job = 3, .rank = 0, .slot = 1},
         "a job that ended got a worker"},
        {{.verb = SCHEDULER_LEAVE, .job = 1, .rank = 1}, "a worker left that does not work"},
        {{.verb = SCHEDULER_LEAVE, .job = 1, .rank = 0}, "a job shrank below its minimum"},
        {{.verb = SCHEDULER_LANES, .job = 1, .workers = 0},
         "lanes narrowed before their workers were out"},
        {{.verb = SCHEDULER_REST, .job = 3}, "a job rested twice"},
    };
    for (size_t i = 0; i < sizeof plants / sizeof *plants; i++) {
        struct model *m = model_new();
        model_obey(m, &plants[i].action);
        assert_non_null(m->complaint);
        assert_string_equal(m->complaint, plants[i].complaint);
        free(m);
    }
}

int main(void)
{
    static const struct CMUnitTest cases[] = {
        cmocka_unit_test(no_slot_or_rank_is_used_twice_in_any_case),
        cmocka_unit_test(the_same_events_give_the_same_actions),
        cmocka_unit_test(the_model_sees_each_planted_mistake),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
