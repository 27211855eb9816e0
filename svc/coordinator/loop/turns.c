/* Chooses the next turn: the party with the least recent CPU time, and within this party the
 * connection with the least. A running handler is not interrupted, so expensive work waits until no
 * cheap work has arrived for a while. Owns the records of CPU time, but not the objects that
 * contain turns (RULES.md: K99, K100). */
#include "svc/coordinator/loop/turns.h"

#include "svc/base/clock.h"
#include "svc/coordinator/view/pool.h"

#define WINDOW_NS NS_PER_S
/* Upper end of level 0, in recent CPU time. The upper end of each further level is twice as
 * high. */
#define LEVEL_NS (256 * NS_PER_US)
/* From this level on (131 ms of recent CPU time), a connection's work counts as expensive. */
#define HEAVY_LEVEL 10
/* Limit of recent CPU time for each percent of a party's budget. Recent CPU time is halved in each
 * window. A party that uses a share S of the thread therefore has at most 2 * S * WINDOW_NS of
 * recent CPU time. */
#define BUDGET_NS_A_PERCENT (2 * WINDOW_NS / 100)
/* Time without turns of lower classes after which a party over its budget is served. Even on a
 * loaded host, a client usually sends its next request within this time after an answer. */
#define REST_NS (250 * NS_PER_MS)

/* Classes of turns. The turn with the lowest key is served first. KEY_OVER_LIGHT and
 * KEY_OVER_HEAVY: the party has exceeded its budget. A turn of one of these two classes is served
 * when no turn with a lower key was served for REST_NS. */
enum turn_key { KEY_FIRST, KEY_LIGHT, KEY_HEAVY, KEY_OVER_LIGHT, KEY_OVER_HEAVY };

static uint64_t usage_now(const struct usage *usage, uint64_t window)
{
    uint64_t passed = window - usage->window;
    return passed < 64 ? usage->used_ns >> passed : 0;
}

static void usage_add(struct usage *usage, uint64_t spent_ns, uint64_t window)
{
    usage->used_ns = usage_now(usage, window) + spent_ns;
    usage->window = window;
}

static int level_of(uint64_t used_ns)
{
    int level = 0;
    for (uint64_t units = used_ns / LEVEL_NS; units > 0 && level < TURN_LEVELS - 1; units /= 2)
        level++;
    return level;
}

static uint64_t window_at(uint64_t now_ns) { return now_ns / WINDOW_NS; }

/* --- records of CPU time --- */

void turns_init(struct turns *turns)
{
    *turns = (struct turns){0};
    list_init(&turns->parties);
}

void party_init(struct party *party, enum party_kind kind, uint32_t budget_percent)
{
    *party = (struct party){.kind = kind, .budget_percent = budget_percent};
    list_init(&party->link);
    for (int level = 0; level < TURN_LEVELS; level++)
        list_init(&party->levels[level]);
}

void party_fini(struct party *party) { list_remove(&party->link); }

void turn_init(struct turn *turn, struct party *party, void (*take)(struct turn *turn))
{
    *turn = (struct turn){.party = party, .take = take};
    list_init(&turn->link);
}

static void leave_queue(struct turn *turn)
{
    if (list_is_empty(&turn->link))
        return;
    list_remove(&turn->link);
    if (--turn->party->waiting == 0)
        list_remove(&turn->party->link);
}

void turn_fini(struct turns *turns, struct turn *turn)
{
    leave_queue(turn);
    if (turns->payer == turn)
        turns_bill(turns, NULL);
}

static void charge(struct turn *turn, uint64_t spent_ns)
{
    uint64_t window = window_at(clock_now_ns());
    usage_add(&turn->usage, spent_ns, window);
    usage_add(&turn->party->usage, spent_ns, window);
    turn->cpu_ns += spent_ns;
    turn->party->cpu_ns += spent_ns;
}

struct turn *turns_bill(struct turns *turns, struct turn *payer)
{
    struct turn *before = turns->payer;
    uint64_t now_ns = clock_thread_cpu_ns();
    if (before && now_ns > turns->since_ns)
        charge(before, now_ns - turns->since_ns);
    turns->payer = payer;
    turns->since_ns = now_ns;
    return before;
}

/* --- queues --- */

/* Moves waiting turns one level down for each past window, because each window has halved their
 * recent CPU time. */
static void shift_levels(struct party *party, uint64_t window)
{
    uint64_t passed = window - party->window;
    party->window = window;
    for (; passed > 0 && party->waiting > 0; passed--)
        for (int level = 1; level < TURN_LEVELS; level++)
            while (!list_is_empty(&party->levels[level])) {
                struct list *node = list_first(&party->levels[level]);
                list_remove(node);
                list_append(&party->levels[level - 1], node);
            }
}

static void enter_queue(struct turns *turns, struct turn *turn)
{
    struct party *party = turn->party;
    uint64_t window = window_at(clock_now_ns());
    if (party->waiting++ == 0) {
        party->window = window;
        list_append(&turns->parties, &party->link);
    }
    shift_levels(party, window);
    list_append(&party->levels[level_of(usage_now(&turn->usage, window))], &turn->link);
}

void turn_wait(struct turns *turns, struct turn *turn)
{
    if (list_is_empty(&turn->link))
        enter_queue(turns, turn);
}

bool turn_waits(const struct turn *turn) { return !list_is_empty(&turn->link); }

void turn_join(struct turns *turns, struct turn *turn, struct party *party)
{
    bool waits = turn_waits(turn);
    if (turns->payer == turn)
        turns_bill(turns, turn);
    leave_queue(turn);
    turn->party = party;
    if (waits)
        enter_queue(turns, turn);
}

/* --- choice of the next turn --- */

static int first_level(const struct party *party)
{
    int level = 0;
    while (level < TURN_LEVELS - 1 && list_is_empty(&party->levels[level]))
        level++;
    return level;
}

static bool is_over(const struct party *party, uint64_t window)
{
    return party->budget_percent < 100 &&
           usage_now(&party->usage, window) >= party->budget_percent * BUDGET_NS_A_PERCENT;
}

static enum turn_key key_of(const struct party *party, uint64_t window)
{
    bool over = party->kind != PARTY_AGGREGATORS && is_over(party, window);
    if (party->kind != PARTY_OTHERS && !over)
        return KEY_FIRST;
    bool is_heavy = first_level(party) >= HEAVY_LEVEL;
    if (over)
        return is_heavy ? KEY_OVER_HEAVY : KEY_OVER_LIGHT;
    return is_heavy ? KEY_HEAVY : KEY_LIGHT;
}

/* Returns the time from which a turn of class `key` may be served: REST_NS after the last turn of
 * any lower class. */
static uint64_t rested_ns(const struct turns *turns, enum turn_key key)
{
    uint64_t last_ns = 0;
    for (int before = 0; key >= KEY_OVER_LIGHT && before < (int)key; before++)
        if (turns->served_ns[before] > last_ns)
            last_ns = turns->served_ns[before];
    return last_ns ? last_ns + REST_NS : 0;
}

/* Returns the party to serve: lowest class first, then least recent CPU time, then longest wait. */
static struct party *choose(struct turns *turns, uint64_t now_ns, enum turn_key *ret_key)
{
    uint64_t window = window_at(now_ns);
    struct party *best = NULL;
    int best_level = 0;
    list_for_each_entry (struct party, party, &turns->parties, link) {
        shift_levels(party, window);
        enum turn_key key = key_of(party, window);
        int level = level_of(usage_now(&party->usage, window));
        if (best && (key > *ret_key || (key == *ret_key && level >= best_level)))
            continue;
        best = party;
        best_level = level;
        *ret_key = key;
    }
    return best;
}

uint64_t turns_due_ns(struct turns *turns, uint64_t now_ns)
{
    enum turn_key key;
    if (!choose(turns, now_ns, &key))
        return UINT64_MAX;
    uint64_t due_ns = rested_ns(turns, key);
    return due_ns <= now_ns ? 0 : due_ns;
}

/* Records the time at which a turn ended: parties over their budget wait REST_NS for the client's
 * next request. An aggregator sends no further request after an answer, so its turns are left
 * out. */
static void note_served(struct turns *turns, enum party_kind kind, enum turn_key key)
{
    if (kind != PARTY_AGGREGATORS)
        turns->served_ns[key] = clock_now_ns();
}

void turns_take(struct turns *turns, uint64_t now_ns)
{
    enum turn_key key;
    struct party *party = choose(turns, now_ns, &key);
    if (!party || rested_ns(turns, key) > now_ns)
        return;
    struct turn *turn =
        list_entry(list_first(&party->levels[first_level(party)]), struct turn, link);
    enum party_kind kind = party->kind;
    leave_queue(turn);
    if (party->waiting > 0) { /* the party goes to the end of the queue */
        list_remove(&party->link);
        list_append(&turns->parties, &party->link);
    }
    turns_bill(turns, turn);
    turn->take(turn);
    turns_bill(turns, NULL);
    note_served(turns, kind, key);
}
