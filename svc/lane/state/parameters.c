/* State of a piece with an update rule: parameters, moments, and settings of its rounds. Owns these
 * arrays. A committed state is never written, so a round can be repeated or aborted until its
 * commit. RULES.md: A19; svc/wire/README.md: W14. */
#include "svc/lane/state/parameters.h"

/* Length of the blocks in which means are measured. The means of a block stay in the first-level
 * cache. */
#define MEASURED_ELEMENTS 1024

static size_t arrays_of(const struct piece *p) { return 1 + (size_t)update_moments(p->terms.rule); }

size_t parameters_bytes(enum update_rule rule, uint64_t elements)
{
    size_t arrays = 1 + (size_t)update_moments(rule);
    return sizeof(struct parameters) + 2 * arrays * elements * sizeof(float);
}

static bool ranks_settings_create(struct lane_job *job, struct parameters *q)
{
    size_t bytes = 2 * job->workers_count * sizeof(struct update_settings);
    q->ranks_settings[0] = arena_alloc(job->lane->options.arena, &job->account, bytes);
    if (q->ranks_settings[0])
        q->ranks_settings[1] = q->ranks_settings[0] + job->workers_count;
    return q->ranks_settings[0];
}

struct parameters *parameters_create(const struct piece *p)
{
    struct lane_job *job = p->job;
    size_t arrays = arrays_of(p), bytes = p->elements * sizeof(float);
    struct parameters *q = arena_alloc(job->lane->options.arena, &job->account,
                                       parameters_bytes(p->terms.rule, p->elements));
    char *next = (char *)(q + 1);
    if (!q)
        return NULL;
    for (size_t i = 0; i < 2 * arrays; i++, next += bytes)
        q->state[i / arrays][i % arrays] = (float *)next;
    list_init(&q->replica.told.tell_link);
    if (piece_follows(p) && !ranks_settings_create(job, q)) {
        arena_free(job->lane->options.arena, &job->account, q);
        return NULL;
    }
    return q;
}

void parameters_free(struct piece *p)
{
    struct lane_job *job = p->job;
    if (p->parameters)
        arena_free(job->lane->options.arena, &job->account, p->parameters->ranks_settings[0]);
    arena_free(job->lane->options.arena, &job->account, p->parameters);
}

void parameters_tell(struct worker *w, const struct record_settings *told)
{
    w->has_settings = true;
    w->settings = (struct update_settings){.rate = told->rate,
                                           .weight_decay = told->weight_decay,
                                           .momentum = told->momentum,
                                           .dampening = told->dampening,
                                           .beta1 = told->beta1,
                                           .beta2 = told->beta2,
                                           .epsilon = told->epsilon};
    w->steps = told->steps;
}

void parameters_hear(struct piece *p, const struct rank *rank, const struct operation *operation,
                     const struct record_ready *ready)
{
    struct parameters *q = p->parameters;
    bool is_first = rank == &p->ranks[0];
    if (piece_follows(p) && operation->updates)
        q->ranks_settings[ready->round & 1][rank->worker->number] = rank->worker->settings;
    if (is_first && (rank->worker->has_settings || !p->job->is_elastic))
        q->told = rank->worker->settings;
    q->is_told |= is_first && rank->worker->has_settings;
    if (operation->updates && is_first)
        /* q->told may be the settings of a rank that was the lowest rank earlier (A44) */
        q->settings[ready->round & 1] = q->told;
    if (operation->restores && rank->worker->number == ready->root)
        q->restored_steps[ready->round & 1] = rank->worker->steps;
}

bool parameters_suit(const struct piece *p, const struct operation *operation)
{
    bool is_of_state = operation->updates || operation->saves || operation->restores;
    return p->parameters ? is_of_state || operation->code == RECORD_BROADCAST : !is_of_state;
}

static float *array_at(float *array, uint64_t first) { return array ? array + first : NULL; }

float *parameters_set_at(const struct transfer *t)
{
    const struct piece *p = t->piece;
    const struct parameters *q = p->parameters;
    if (!q || (p->operation && (p->operation->updates || p->operation->saves)))
        return NULL;
    unsigned which = q->fetched ? q->now : 1 - q->now;
    return array_at(q->state[which][t->array], t->first);
}

const float *parameters_saved(const struct transfer *t)
{
    const struct piece *p = t->piece;
    if (!p->parameters || !p->operation || !p->operation->saves)
        return NULL;
    return array_at(p->parameters->state[p->parameters->now][t->array], t->first);
}

static struct update_state state_at(const struct parameters *q, uint64_t first)
{
    float *const *before = q->state[q->now], *const *after = q->state[1 - q->now];
    return (struct update_state){
        .parameters = array_at(before[0], first),
        .moments = {array_at(before[1], first), array_at(before[2], first)},
        .ret_parameters = array_at(after[0], first),
        .ret_moments = {array_at(after[1], first), array_at(after[2], first)}};
}

static void update(const struct piece *p, const struct reduce_pass *sums, uint64_t first)
{
    const struct parameters *q = p->parameters;
    const struct update_state state = state_at(q, first);
    update_fn kernel =
        update_pick(p->job->lane->options.kernels, p->terms.rule, p->dtype, REDUCE_F32);
    kernel(sums, &q->settings[p->round & 1], q->steps + 1, &state);
}

/* Computes the mean of `elements` elements of the chunk, beginning with element `at`, from the
 * inputs of the last pass. */
static void take_mean(const struct piece *p, const struct reduce_pass *sums, size_t at,
                      size_t elements, float *ret_mean)
{
    struct reduce_pass pass = *sums;
    const void *sources[REDUCE_SOURCES_MAX];
    void *target = ret_mean;
    for (int i = 0; i < sums->sources_count; i++)
        sources[i] = (const char *)sums->sources[i] + piece_bytes(p, at);
    pass.sources = sources;
    pass.targets = &target;
    pass.targets_count = 1;
    pass.partial = sums->partial ? (const float *)sums->partial + at : NULL;
    pass.elements = elements;
    enum reduce_operation operation = sums->weights ? REDUCE_WEIGHTED : REDUCE_SUM;
    reduce_pick(p->job->lane->options.kernels, operation, p->dtype, REDUCE_F32)(&pass);
}

/* Measures the mean, then updates the parameters. The result has the same bits as without a
 * measurement, because update() gets the mean as its only input, and the mean of one input is the
 * input itself. */
static void update_measured(struct transfer *t, const struct reduce_pass *sums)
{
    struct piece *p = t->piece;
    float mean[MEASURED_ELEMENTS];
    const void *source = mean;
    void *targets[REDUCE_TARGETS_MAX];
    for (size_t at = 0; at < sums->elements; at += MEASURED_ELEMENTS) {
        size_t left = sums->elements - at;
        size_t elements = left < MEASURED_ELEMENTS ? left : MEASURED_ELEMENTS;
        take_mean(p, sums, at, elements, mean);
        p->result_squares += reduce_squares(REDUCE_F32, mean, elements);
        for (int i = 0; i < sums->targets_count; i++)
            targets[i] = (float *)sums->targets[i] + at;
        const struct reduce_pass pass = {.targets = targets,
                                         .targets_count = sums->targets_count,
                                         .sources = &source,
                                         .sources_count = 1,
                                         .elements = elements};
        update(p, &pass, t->first + at);
    }
}

void parameters_update(struct transfer *t, const struct reduce_pass *sums)
{
    if (t->piece->terms.measures)
        update_measured(t, sums);
    else
        update(t->piece, sums, t->first);
}

/* Copies the old state to the new state. Before the first step the old moments are undefined, and
 * zeros are copied in their place. */
void parameters_keep(const struct transfer *t, void *const targets[], int count)
{
    const struct parameters *q = t->piece->parameters;
    const struct update_state state = state_at(q, t->first);
    size_t bytes = t->elements * sizeof(float);
    memcpy(state.ret_parameters, state.parameters, bytes);
    for (int m = 0; m < update_moments(t->piece->terms.rule); m++) {
        if (q->steps == 0)
            memset(state.ret_moments[m], 0, bytes);
        else
            memcpy(state.ret_moments[m], state.moments[m], bytes);
    }
    for (int i = 0; i < count; i++)
        memcpy(targets[i], state.parameters, bytes);
}

void parameters_start(struct piece *p)
{
    struct parameters *q = p->parameters;
    q->is_spare_dirty |= !p->operation || !p->operation->saves;
    if (!piece_follows(p) || !parameters_step(p))
        return;
    for (uint32_t i = 0; i < p->members; i++) {
        const struct rank *rank = &p->ranks[i];
        if (rank->inputs == 0)
            continue;
        q->settings[p->round & 1] = q->ranks_settings[p->round & 1][rank->worker->number];
        return;
    }
}

bool parameters_have(const struct piece *p, uint64_t round)
{
    const struct parameters *q = p->parameters;
    if (!q->are_set || p->round == 0 || round >= p->round)
        return false;
    bool is_before = round + 2 == p->round && q->swapped_round + 1 == p->round;
    return round + 1 == p->round ||
           (is_before && q->has_before && q->were_set && !q->is_spare_dirty);
}

const float *parameters_at(const struct piece *p, uint64_t round, uint64_t first)
{
    const struct parameters *q = p->parameters;
    unsigned which = round + 1 == p->round ? q->now : 1 - q->now;
    return array_at(q->state[which][0], first);
}

uint64_t parameters_steps_after(const struct piece *p)
{
    const struct parameters *q = p->parameters;
    if (p->operation->saves)
        return q->steps;
    return p->operation->updates    ? q->steps + 1
           : p->operation->restores ? q->restored_steps[p->round & 1]
                                    : 0;
}

void parameters_commit(struct piece *p)
{
    struct parameters *q = p->parameters;
    if (p->operation->saves)
        return;
    q->swapped_round = p->round;
    q->has_before = true;
    q->is_spare_dirty = false;
    q->were_set = q->are_set;
    q->steps_before = q->steps;
    q->now = 1 - q->now;
    q->are_set = true;
    q->steps = parameters_steps_after(p);
}

bool parameters_revert(struct piece *p)
{
    struct parameters *q = p->parameters;
    if (q->swapped_round != p->round)
        return true; /* the open round, such as a SAVE, has produced no new state */
    if (!q->has_before)
        return false;
    q->now = 1 - q->now;
    q->are_set = q->were_set;
    q->steps = q->steps_before;
    return true;
}
