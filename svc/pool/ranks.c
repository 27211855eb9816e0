/* State of each rank of a pool. Makes no system call and reads no clock. README.md has the table of
 * states. */
#include "svc/pool/ranks.h"

#include "svc/base/clock.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>

#define ASKED_NS (10 * NS_PER_S) /* time between a forwarded signal and SIGTERM */
#define TERM_NS (5 * NS_PER_S)   /* time between SIGTERM and SIGKILL */
#define GONE_NS (30 * NS_PER_S)  /* longest wait for a look after the end of an adopted process */
/* the end of a process older than this begins a new count of deaths */
#define STEADY_NS (120 * NS_PER_S)
#define PAUSE_MAX_S 60
#define REFUSAL_S 5u   /* pause after the first refusal of a start */
#define FAILURES_MAX 3 /* consecutive processes without a step after which the rank fails */
/* the first new round may have begun before the rank joined, so two are required */
#define LOOKS_OF_STEP 2

const char *rank_state_name(enum rank_state state)
{
    static const char *const names[] = {"absent", "waiting", "running", "leaving", "asked",
                                        "ending", "killed",  "gone",    "failed"};
    return names[state];
}

bool ranks_is_alive(const struct pool_rank *rank)
{
    return rank->state >= RANK_RUNNING && rank->state <= RANK_KILLED;
}

void ranks_init(struct pool_ranks *p, uint32_t workers, uint32_t most, uint64_t leave_ns)
{
    memset(p, 0, sizeof *p);
    p->wanted = p->founders = workers;
    p->most = most;
    p->leave_ns = leave_ns;
}

static void await_start(struct pool_rank *rank, uint64_t due_ns)
{
    rank->state = RANK_WAITING;
    rank->due_ns = due_ns;
}

void ranks_begin(struct pool_ranks *p, uint64_t now_ns)
{
    for (uint32_t i = 0; i < p->wanted; i++)
        if (p->ranks[i].state == RANK_ABSENT)
            await_start(&p->ranks[i], now_ns);
}

void ranks_started(struct pool_ranks *p, uint32_t rank, uint64_t incarnation, bool is_adopted,
                   uint64_t now_ns)
{
    struct pool_rank *r = &p->ranks[rank];
    *r = (struct pool_rank){.state = RANK_RUNNING,
                            .is_adopted = is_adopted,
                            .incarnation = incarnation,
                            .ordered = p->is_ordered && r->ordered == 0 ? incarnation : r->ordered,
                            .due_ns = UINT64_MAX,
                            .started_ns = now_ns,
                            .failures = r->failures,
                            .deaths = r->deaths,
                            .refusals = r->refusals,
                            .rounds = UINT64_MAX};
}

static void rank_enter(struct pool_rank *rank, enum rank_state state)
{
    rank->state = state;
    rank->is_pending = true;
}

void ranks_runs(struct pool_ranks *p, uint32_t rank, bool is_running, uint64_t now_ns)
{
    struct pool_rank *r = &p->ranks[rank];
    r->is_withheld = !is_running;
    if (!is_running && r->state == RANK_LEAVING)
        rank_enter(r, RANK_ENDING);
    if (!is_running)
        return;
    r->started_ns = now_ns;
    r->refusals = 0;
}

uint32_t ranks_put_off(struct pool_ranks *p, uint32_t rank, uint64_t now_ns)
{
    struct pool_rank *r = &p->ranks[rank];
    if (r->state != RANK_RUNNING || p->is_ending)
        return 0;
    uint32_t pause_s = REFUSAL_S << (r->refusals < 4 ? r->refusals : 4);
    pause_s = pause_s < PAUSE_MAX_S ? pause_s : PAUSE_MAX_S;
    r->refusals++;
    await_start(r, now_ns + pause_s * NS_PER_S);
    return pause_s;
}

/* --- size --- */

static void ranks_let_leave(struct pool_ranks *p, struct pool_rank *rank, uint64_t now_ns)
{
    rank->was_leaving = true;
    if (rank->is_withheld)
        return rank_enter(rank, RANK_ENDING);
    rank->state = RANK_LEAVING;
    rank->due_ns = now_ns + p->leave_ns;
}

static void resize_needed(struct pool_rank *rank, bool is_new, uint64_t now_ns)
{
    if (rank->state == RANK_LEAVING) {
        rank->state = RANK_RUNNING;
        rank->due_ns = UINT64_MAX;
    } else if (is_new && (rank->state == RANK_ABSENT || rank->state == RANK_FAILED)) {
        rank->failures = rank->deaths = 0;
        await_start(rank, now_ns);
    }
}

static void resize_unneeded(struct pool_ranks *p, struct pool_rank *rank, uint64_t now_ns)
{
    if (rank->state == RANK_RUNNING)
        ranks_let_leave(p, rank, now_ns);
    else if (!ranks_is_alive(rank))
        rank->state = RANK_ABSENT;
}

/* Returns whether a worker of the job runs. The training then continues, although other workers may
 * have left with exit code 0: a resize may have removed them before a look has shown the resize. */
static bool training_goes_on(const struct pool_ranks *p)
{
    for (uint32_t i = 0; i < p->most; i++)
        if (p->ranks[i].state == RANK_RUNNING && p->ranks[i].has_joined)
            return true;
    return false;
}

static void ranks_resize(struct pool_ranks *p, uint32_t wanted, uint64_t now_ns)
{
    if (training_goes_on(p))
        p->has_trained = false;
    for (uint32_t i = 0; i < p->most; i++) {
        if (i >= wanted)
            resize_unneeded(p, &p->ranks[i], now_ns);
        else if (!p->is_ending)
            resize_needed(&p->ranks[i], i >= p->wanted && !p->has_trained, now_ns);
    }
    p->wanted = wanted;
}

/* Counts each look that shows the worker in the job after a new round. After LOOKS_OF_STEP such
 * looks the worker has made a step. */
static void rank_look_at(struct pool_rank *rank, const struct pool_look *look,
                         enum rank_session seen)
{
    if (!ranks_is_alive(rank) || seen != SEEN_JOINED || look->asked_ns < rank->started_ns)
        return;
    rank->has_joined = true;
    if (rank->rounds != UINT64_MAX && look->rounds > rank->rounds)
        rank->looks++;
    rank->rounds = look->rounds;
    rank->has_stepped = rank->has_stepped || rank->looks >= LOOKS_OF_STEP;
}

/* Returns whether the rank has left after a removal, and the other ranks have made a round since
 * the first look that showed this. The new round shows that the training continues. */
static bool rank_has_gone(struct pool_rank *rank, const struct pool_look *look, uint32_t i)
{
    if (rank->state != RANK_ABSENT || look->sessions[i] != SEEN_LEFT || !look->was_removed[i])
        return false;
    if (rank->rounds_left == 0)
        rank->rounds_left = look->rounds + 1;
    return look->rounds >= rank->rounds_left;
}

/* Starts ranks that two resizes between two looks have removed and included again. Their exit code
 * 0 did not mean the end of the training. */
static void ranks_include_again(struct pool_ranks *p, const struct pool_look *look, uint64_t now_ns)
{
    bool has_gone[POOL_RANKS_MAX] = {0}, any = false;
    if (p->is_ending || !look->is_elastic || !training_goes_on(p))
        return;
    for (uint32_t i = 0; i < p->wanted; i++)
        any |= has_gone[i] = rank_has_gone(&p->ranks[i], look, i);
    for (uint32_t i = 0; any && i < p->wanted; i++) {
        struct pool_rank *rank = &p->ranks[i];
        if (rank->state == RANK_LEAVING)
            resize_needed(rank, false, now_ns);
        else if (rank->state == RANK_ABSENT && (has_gone[i] || look->sessions[i] != SEEN_LEFT))
            await_start(rank, now_ns);
    }
    p->has_trained = p->has_trained && !any;
}

/* Keeps a worker that a look shows in the job only after another worker has ended its training.
 * rank_trained() had set the worker to RANK_LEAVING, but the worker trains to the end, too. */
static void ranks_keep_joined(struct pool_ranks *p, const struct pool_look *look)
{
    bool has_left = false;
    for (uint32_t i = 0; i < p->most; i++)
        has_left |= look->sessions[i] == SEEN_LEFT;
    for (uint32_t i = 0; has_left && i < p->wanted; i++) {
        struct pool_rank *rank = &p->ranks[i];
        if (rank->state != RANK_LEAVING || !rank->has_joined || rank->was_leaving)
            continue;
        rank->state = RANK_RUNNING;
        rank->due_ns = UINT64_MAX;
    }
}

bool ranks_looked(struct pool_ranks *p, const struct pool_look *look, uint64_t now_ns)
{
    if (!look->has_job)
        return false;
    for (uint32_t i = 0; i < p->most; i++)
        rank_look_at(&p->ranks[i], look, look->sessions[i]);
    ranks_keep_joined(p, look);
    bool is_new = look->is_elastic && look->wanted != p->wanted && look->wanted >= 1 &&
                  look->wanted <= p->most;
    if (is_new)
        ranks_resize(p, look->wanted, now_ns);
    ranks_include_again(p, look, now_ns);
    return is_new;
}

void ranks_adopted(struct pool_ranks *p, const struct pool_look *look, uint64_t now_ns)
{
    for (uint32_t i = 0; i < p->wanted; i++)
        p->has_trained |= p->ranks[i].state == RANK_ABSENT && look->sessions[i] == SEEN_LEFT &&
                          !look->was_removed[i];
    for (uint32_t i = 0; i < p->wanted && !p->has_trained; i++)
        if (p->ranks[i].state == RANK_ABSENT && look->sessions[i] != SEEN_LEFT)
            await_start(&p->ranks[i], now_ns);
}

/* --- ends --- */

static void ranks_end_all(struct pool_ranks *p, enum rank_state state)
{
    p->is_ending = true;
    for (uint32_t i = 0; i < p->most; i++) {
        struct pool_rank *rank = &p->ranks[i];
        if (!ranks_is_alive(rank))
            rank->state = rank->state == RANK_FAILED ? RANK_FAILED : RANK_ABSENT;
        else if (rank->state < state)
            rank_enter(rank, state);
    }
}

void ranks_stop(struct pool_ranks *p, int code, uint64_t now_ns)
{
    enum rank_state least = RANK_KILLED;
    bool is_first = !p->is_ending;
    p->code = p->code ? p->code : code;
    for (uint32_t i = 0; i < p->most; i++)
        if (ranks_is_alive(&p->ranks[i]) && p->ranks[i].state < least)
            least = p->ranks[i].state;
    ranks_end_all(p, is_first || least < RANK_ASKED ? RANK_ASKED
                     : least < RANK_KILLED          ? least + 1
                                                    : RANK_KILLED);
}

/* Enters the end of the training. Workers that no look has shown in the job are ended after the
 * leave time. */
static enum rank_verdict rank_trained(struct pool_ranks *p, struct pool_rank *rank, uint64_t now_ns)
{
    rank->state = RANK_ABSENT;
    p->has_trained = true;
    for (uint32_t i = 0; i < p->most; i++) {
        struct pool_rank *other = &p->ranks[i];
        if (other->state == RANK_WAITING)
            other->state = RANK_ABSENT;
        else if (other->state == RANK_RUNNING && !other->has_joined) {
            other->state = RANK_LEAVING;
            other->due_ns = now_ns + p->leave_ns;
        }
    }
    return VERDICT_TRAINED;
}

static bool others_train(const struct pool_ranks *p)
{
    for (uint32_t i = 0; i < p->most; i++)
        if (ranks_is_alive(&p->ranks[i]) && p->ranks[i].has_stepped)
            return true;
    return false;
}

static enum rank_verdict rank_give_up(struct pool_ranks *p, struct pool_rank *rank, int code)
{
    rank->state = RANK_FAILED;
    if (others_train(p))
        return VERDICT_ALONE;
    p->code = p->code ? p->code : code;
    ranks_end_all(p, RANK_ENDING);
    return VERDICT_ALL;
}

static enum rank_verdict rank_again(struct pool_rank *rank, uint32_t pause_s, uint64_t now_ns,
                                    uint32_t *ret_pause_s)
{
    await_start(rank, now_ns + pause_s * NS_PER_S);
    *ret_pause_s = pause_s;
    return VERDICT_AGAIN;
}

static uint32_t rank_pause_of(const struct pool_rank *rank)
{
    return rank->deaths > 6 ? PAUSE_MAX_S : 1u << (rank->deaths - 1);
}

static void rank_count_death(struct pool_rank *rank, uint64_t now_ns)
{
    rank->deaths = now_ns - rank->started_ns > STEADY_NS ? 1 : rank->deaths + 1;
}

static enum rank_verdict rank_failed(struct pool_ranks *p, struct pool_rank *rank, int code,
                                     uint64_t now_ns, uint32_t *ret_pause_s)
{
    if (p->has_trained) {
        rank->state = RANK_FAILED;
        p->code = p->code ? p->code : code;
        return VERDICT_AFTER;
    }
    rank->failures = rank->has_stepped ? 0 : rank->failures + 1;
    rank_count_death(rank, now_ns);
    if (rank->failures >= FAILURES_MAX)
        return rank_give_up(p, rank, code);
    return rank_again(rank, rank_pause_of(rank), now_ns, ret_pause_s);
}

/* --- ends, with orders of the coordinator --- */

static bool others_run(const struct pool_ranks *p, uint32_t rank)
{
    for (uint32_t i = 0; i < p->most; i++)
        if (i != rank && ranks_is_alive(&p->ranks[i]))
            return true;
    return false;
}

/* Counts the failure of a process. The coordinator decides whether the rank gets another
 * process. */
static enum rank_verdict ordered_failed(struct pool_ranks *p, struct pool_rank *rank, int code,
                                        uint64_t now_ns)
{
    rank_count_death(rank, now_ns);
    rank->has_failed = true;
    p->last_code = code;
    return VERDICT_ORDERS;
}

/* Starts the next process if its order came while the former process was being ended. */
static void ordered_go_on(const struct pool_ranks *p, struct pool_rank *rank, uint64_t now_ns)
{
    rank->state = RANK_ABSENT;
    if (!p->is_ending && rank->ordered != 0 && rank->ordered != rank->incarnation)
        await_start(rank, now_ns);
}

static enum rank_verdict ordered_ended(struct pool_ranks *p, struct pool_rank *rank,
                                       enum rank_end end, int number, uint64_t now_ns)
{
    bool was_ended = rank->state > RANK_LEAVING || rank->was_leaving || p->is_ending;
    bool is_well = end == END_EXIT && number == 0;
    ordered_go_on(p, rank, now_ns);
    rank->has_trained = is_well && !was_ended;
    if (was_ended || is_well) {
        rank->deaths = 0;
        return VERDICT_AS_ASKED;
    }
    return ordered_failed(p, rank, end == END_SIGNAL ? 128 + number : number, now_ns);
}

enum rank_verdict ranks_refused(struct pool_ranks *p, uint32_t rank, int code, uint64_t now_ns)
{
    struct pool_rank *r = &p->ranks[rank];
    if (!p->is_ordered || !others_run(p, rank))
        return rank_give_up(p, r, code);
    r->incarnation = r->ordered;
    r->state = RANK_ABSENT;
    r->started_ns = now_ns;
    return ordered_failed(p, r, code, now_ns);
}

enum rank_verdict ranks_ended(struct pool_ranks *p, uint32_t rank, enum rank_end end, int number,
                              uint64_t now_ns, uint32_t *ret_pause_s)
{
    struct pool_rank *r = &p->ranks[rank];
    bool was_ended = r->state > RANK_LEAVING, is_well = end == END_EXIT && number == 0;
    r->ended_ns = now_ns;
    r->is_pending = false;
    if (p->is_ordered)
        return ordered_ended(p, r, end, number, now_ns);
    if (p->is_ending || rank >= p->wanted) {
        r->state = RANK_ABSENT;
        return VERDICT_AS_ASKED;
    }
    if (p->has_trained && was_ended) {
        r->state = RANK_ABSENT;
        return VERDICT_DROPPED;
    }
    if (end == END_UNKNOWN && !was_ended) {
        r->state = RANK_GONE;
        r->due_ns = now_ns + GONE_NS;
        return VERDICT_LATER;
    }
    if (!p->has_trained && r->was_leaving && (is_well || was_ended))
        return rank_again(r, 0, now_ns, ret_pause_s); /* the job has grown again since */
    if (is_well)
        return rank_trained(p, r, now_ns);
    return rank_failed(p, r, end == END_SIGNAL ? 128 + number : number, now_ns, ret_pause_s);
}

enum rank_verdict ranks_judge(struct pool_ranks *p, uint32_t rank, const struct pool_look *look,
                              uint64_t now_ns, uint32_t *ret_pause_s)
{
    struct pool_rank *r = &p->ranks[rank];
    bool is_over = look && look->has_ended && r->has_joined; /* the rank was in the ended job */
    bool is_known = is_over || (look && look->has_job);
    enum rank_session seen = is_known ? look->sessions[rank] : SEEN_NOT;
    if (seen == SEEN_ENTERING || seen == SEEN_JOINED || seen == SEEN_AWAY)
        return VERDICT_LATER; /* the service has not detected the end of the process yet */
    if (seen == SEEN_LEFT && r->was_leaving)
        return rank_again(r, 0, now_ns, ret_pause_s);
    if (seen == SEEN_LEFT)
        return rank_trained(p, r, now_ns);
    if (is_known)
        return rank_failed(p, r, 1, now_ns, ret_pause_s);
    r->state = RANK_FAILED;
    p->code = p->code ? p->code : 1;
    return VERDICT_UNKNOWN;
}

/* --- orders --- */

enum rank_effect ranks_order_start(struct pool_ranks *p, uint32_t rank, uint64_t incarnation,
                                   uint64_t now_ns, uint32_t *ret_pause_s)
{
    struct pool_rank *r = &p->ranks[rank];
    bool is_alive = ranks_is_alive(r);
    *ret_pause_s = 0;
    if (r->ordered == incarnation && (is_alive || r->state == RANK_WAITING))
        return EFFECT_KNOWN;
    if (p->is_ending || r->incarnation == incarnation)
        return EFFECT_ENDED;
    r->ordered = incarnation;
    if (is_alive && r->state < RANK_ENDING)
        rank_enter(r, RANK_ENDING);
    if (is_alive)
        return EFFECT_NEW;
    *ret_pause_s = r->deaths > 0 ? rank_pause_of(r) : 0;
    await_start(r, now_ns + *ret_pause_s * NS_PER_S);
    return EFFECT_NEW;
}

enum rank_effect ranks_order_leave(struct pool_ranks *p, uint32_t rank, uint64_t incarnation,
                                   bool is_end, uint64_t now_ns)
{
    struct pool_rank *r = &p->ranks[rank];
    if (!ranks_is_alive(r) || r->incarnation != incarnation) {
        if (r->ordered == incarnation && r->state == RANK_WAITING)
            r->state = RANK_ABSENT;
        if (r->ordered == incarnation)
            r->ordered = r->incarnation;
        return EFFECT_ENDED;
    }
    if (p->is_ending || r->state >= (is_end ? RANK_ENDING : RANK_LEAVING))
        return EFFECT_KNOWN;
    if (is_end)
        rank_enter(r, RANK_ENDING);
    else
        ranks_let_leave(p, r, now_ns);
    return EFFECT_NEW;
}

void ranks_order_over(struct pool_ranks *p, int code)
{
    p->is_over = true;
    p->has_trained = code == 0;
    if (code < 0 && p->code == 0)
        p->code = p->last_code ? p->last_code : 1;
    ranks_end_all(p, RANK_ENDING);
}

bool ranks_order_forgotten(struct pool_ranks *p)
{
    bool has_trained = false, has_failed = ranks_have_workers(p);
    for (uint32_t i = 0; i < p->most; i++) {
        has_trained |= p->ranks[i].has_trained;
        has_failed |= p->ranks[i].has_failed;
    }
    ranks_order_over(p, has_trained && !has_failed ? 0 : -ENOENT);
    return has_trained && !has_failed;
}

/* --- actions --- */

static int signal_of(enum rank_state state, int forwarded)
{
    return state == RANK_ASKED ? forwarded : state == RANK_ENDING ? SIGTERM : SIGKILL;
}

static uint64_t patience_ns(enum rank_state state)
{
    return state == RANK_ASKED ? ASKED_NS : state == RANK_ENDING ? TERM_NS : UINT64_MAX;
}

static bool is_signal_due(const struct pool_rank *rank, uint64_t now_ns)
{
    return rank->is_pending ||
           (rank->state >= RANK_LEAVING && rank->state <= RANK_ENDING && now_ns >= rank->due_ns);
}

static struct pool_action send_signal(struct pool_ranks *p, uint32_t i, int forwarded,
                                      uint64_t now_ns)
{
    struct pool_rank *rank = &p->ranks[i];
    bool is_late = !rank->is_pending && rank->state == RANK_LEAVING;
    if (!rank->is_pending)
        rank->state = rank->state < RANK_ENDING ? RANK_ENDING : RANK_KILLED;
    uint64_t patience = patience_ns(rank->state);
    rank->is_pending = false;
    rank->due_ns = patience == UINT64_MAX ? UINT64_MAX : now_ns + patience;
    return (struct pool_action){.verb = POOL_SIGNAL,
                                .rank = i,
                                .signal = signal_of(rank->state, forwarded),
                                .is_late = is_late};
}

static struct pool_action rank_start(struct pool_ranks *p, uint32_t rank)
{
    if (!p->is_ordered && !others_run(p, rank))
        p->founders = p->wanted; /* the workers begin a new job of this size */
    return (struct pool_action){.verb = POOL_START, .rank = rank};
}

/* Signals go to the highest rank first, because rank 0 is the last to leave a job. */
struct pool_action ranks_next(struct pool_ranks *p, int forwarded, uint64_t now_ns)
{
    uint64_t at_ns = UINT64_MAX;
    for (uint32_t i = p->most; i-- > 0;)
        if (is_signal_due(&p->ranks[i], now_ns))
            return send_signal(p, i, forwarded, now_ns);
    for (uint32_t i = 0; i < p->most; i++) {
        const struct pool_rank *rank = &p->ranks[i];
        bool is_timed = (rank->state == RANK_WAITING || rank->state == RANK_GONE ||
                         (rank->state >= RANK_LEAVING && rank->state <= RANK_ENDING));
        if (is_timed && rank->due_ns < at_ns)
            at_ns = rank->due_ns;
        if (!is_timed || now_ns < rank->due_ns)
            continue;
        if (rank->state == RANK_WAITING)
            return rank_start(p, i);
        if (rank->state == RANK_GONE)
            return (struct pool_action){.verb = POOL_JUDGE, .rank = i};
    }
    return (struct pool_action){.verb = POOL_NOTHING, .at_ns = at_ns};
}

bool ranks_have_workers(const struct pool_ranks *p)
{
    for (uint32_t i = 0; i < p->most; i++)
        if (ranks_is_alive(&p->ranks[i]) || p->ranks[i].state == RANK_WAITING ||
            p->ranks[i].state == RANK_GONE)
            return true;
    return false;
}

bool ranks_are_over(const struct pool_ranks *p)
{
    if (p->is_ordered && !p->is_over && !p->is_ending)
        return false;
    return !ranks_have_workers(p);
}
