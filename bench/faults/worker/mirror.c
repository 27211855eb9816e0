/* Computes the gradient of a momentum step from the states before and after, for the elements that
 * identify gradients. Those elements are small whole numbers, so rounding cannot change them. Owns
 * two states. Must not copy any other element from the service: a wrong element would become the
 * reference for the next step. */
#include "bench/faults/worker/mirror.h"

#include "bench/lib/gradient.h"
#include "svc/base/clock.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Decay limits the size of the parameters, so that small whole numbers in the gradients stay
 * exact. */
#define DECAY 0.0625
#define MOMENTUM 0.5
/* smaller than the mean of four numbers of which one is 1 and the others are 0 */
#define SOME 0.125
#define AGAIN_NS NS_PER_MS

int mirror_init(struct mirror *k, struct mirror_book *book, uint64_t seed)
{
    *k = (struct mirror){.seed = seed,
                         .book = book,
                         .now = calloc(1, sizeof *k->now),
                         .next = calloc(1, sizeof *k->next),
                         .gradients = calloc(LEDGER_RANKS, PUSH_ELEMENTS * sizeof(float))};
    return k->now && k->next && k->gradients ? 0 : -ENOMEM;
}

void mirror_fini(struct mirror *k)
{
    free(k->now);
    free(k->next);
    free(k->gradients);
}

struct update_settings mirror_settings(void)
{
    return (struct update_settings){.rate = 1, .weight_decay = DECAY, .momentum = MOMENTUM};
}

void mirror_set(struct mirror *k, float *values)
{
    const struct gradient g = {k->seed, 0, 0};
    *k->now = (struct mirror_state){.step = 0};
    gradient_fill(&g, 0, k->now->parameters, PUSH_ELEMENTS);
    memset(k->now->parameters, 0, PUSH_FIRST * sizeof *values);
    memcpy(values, k->now->parameters, sizeof k->now->parameters);
}

/* --- a step --- */

/* Returns the mean of the gradients at this element. */
static double undo(const struct mirror_state *s, const float *result, size_t i)
{
    double step = (double)s->parameters[i] - (double)result[i];
    return step - MOMENTUM * (double)s->moment[i] - DECAY * (double)s->parameters[i];
}

static bool read_pushes(const struct mirror_state *s, const float *result,
                        struct pushes *ret_pushes)
{
    double numbers[PUSH_END];
    uint32_t present = 0;
    for (size_t rank = 0; rank < LEDGER_RANKS; rank++)
        present += undo(s, result, 2 * rank) > SOME;
    for (size_t i = 0; i < PUSH_END; i++)
        numbers[i] = round(undo(s, result, i) * present);
    return present > 0 && pushes_read(numbers, ret_pushes);
}

static void step(struct mirror *k, const struct pushes *pushes)
{
    const void *gradients[LEDGER_RANKS];
    const struct update_settings settings = mirror_settings();
    uint32_t count = pushes_draw_all(k->seed, pushes, k->gradients, gradients);
    void *target = k->next->parameters;
    const struct reduce_pass sums = {.targets = &target,
                                     .targets_count = 1,
                                     .sources = gradients,
                                     .sources_count = (int)count,
                                     .elements = PUSH_ELEMENTS,
                                     .divisor = count};
    const struct update_state state = {.parameters = k->now->parameters,
                                       .moments = {k->now->moment},
                                       .ret_parameters = k->next->parameters,
                                       .ret_moments = {k->next->moment}};
    k->next->step = k->now->step + 1;
    k->next->trail = k->now->trail;
    update_pick(REDUCE_C, UPDATE_MOMENTUM, REDUCE_F32, REDUCE_F32)(&sums, &settings, k->next->step,
                                                                   &state);
}

static uint64_t count_wrong(const struct mirror_state *s, const float *result)
{
    uint64_t wrong = 0;
    for (size_t i = 0; i < PUSH_ELEMENTS; i++)
        wrong += i != PUSH_END && memcmp(&result[i], &s->parameters[i], sizeof *result) != 0;
    return wrong;
}

uint64_t mirror_follow(struct mirror *k, const float *result, struct pushes *ret_pushes)
{
    struct mirror_state *before = k->now;
    if (!read_pushes(before, result, ret_pushes))
        return PUSH_ELEMENTS;
    step(k, ret_pushes);
    uint64_t wrong = count_wrong(k->next, result);
    k->next->parameters[PUSH_END] = result[PUSH_END];
    k->now = k->next;
    k->next = before;
    return wrong;
}

bool mirror_ends(const struct mirror *k)
{
    return k->now->step > 0 && k->now->parameters[PUSH_END] != 0;
}

/* --- the others --- */

void mirror_show(struct mirror *k, uint32_t rank)
{
    struct mirror_page *page = &k->book->pages[rank][k->now->step % 2];
    uint64_t turn = atomic_load(&page->turn) | 1;
    atomic_store(&page->turn, turn);
    memcpy(&page->state, k->now, sizeof page->state);
    atomic_store(&page->turn, turn + 1);
}

/* Reads a page of another member. False: the page is empty or is being written. */
static bool read_page(struct mirror *k, struct mirror_page *page)
{
    uint64_t turn = atomic_load(&page->turn);
    if (turn == 0 || turn % 2 == 1)
        return false;
    memcpy(k->now, &page->state, sizeof *k->now);
    atomic_thread_fence(memory_order_acquire);
    return atomic_load(&page->turn) == turn;
}

/* Returns whether the result can follow from this state. The state may include the step of this
 * result, or lack only this step. */
static bool leads_to(struct mirror *k, const float *result, struct pushes *ret_pushes)
{
    if (k->now->step > 0 && count_wrong(k->now, result) == 0) {
        for (uint32_t rank = 0; rank < LEDGER_RANKS; rank++)
            ret_pushes->of[rank] =
                k->now->trail.was_there[rank] ? k->now->trail.last[rank] : (struct ledger_push){0};
        return true;
    }
    if (mirror_follow(k, result, ret_pushes) > 0)
        return false;
    return trail_follow(&k->now->trail, ret_pushes->of);
}

bool mirror_find(struct mirror *k, const float *result, uint64_t grace_ns,
                 struct pushes *ret_pushes)
{
    const struct timespec again = {0, AGAIN_NS};
    uint64_t deadline_ns = clock_now_ns() + grace_ns;
    do {
        for (size_t i = 0; i < 2 * (size_t)LEDGER_RANKS; i++)
            if (read_page(k, &k->book->pages[i / 2][i % 2]) && leads_to(k, result, ret_pushes))
                return true;
        nanosleep(&again, NULL);
    } while (clock_now_ns() < deadline_ns);
    return false;
}
