/* State of a piece that moves: the stored arrays, and values that only the former owner knows. This
 * file owns the format: a head and one array. Every field of a received head is checked, because
 * another process has sent it. RULES.md: A27. */
#include "svc/lane/move/moved_state.h"

#include "svc/lane/hear/leave.h"
#include "svc/lane/job/table.h"
#include "svc/lane/piece/kept.h"
#include "svc/lane/piece/quorum.h"
#include "svc/lane/piece/rest.h"
#include "svc/lane/piece/takers.h"
#include "svc/lane/round/holder.h"
#include "svc/lane/round/round.h"
#include "svc/lane/state/replica.h"

#include <errno.h>
#include <string.h>

#define HEAD_MAGIC 0x36535047u /* "GPS6" */
#define FAILURE_MOST 4095      /* largest errno value in an ERROR record */

/* Head of a moved state, little endian like all records. After the head follow the clock of each
 * member, the numbers of takers_save(), and the array. With parameters, the array consists of the
 * arrays of a state, one after another. With `has_before`, the array begins with the previous
 * state, and the committed state follows. */
struct head {
    uint32_t magic;
    uint32_t members;
    uint64_t elements;
    uint64_t round;     /* newest committed round; 0: unknown */
    uint64_t job_round; /* piece.job_round of the former owner */
    uint64_t body_bytes;
    uint64_t steps; /* only for pieces with parameters, like the next two fields */
    uint64_t swapped_round, steps_before; /* values of struct parameters */
    struct update_settings told;
    uint8_t has_before, were_set, is_told, are_set;
    uint8_t dtype, quorum, rule;
    uint8_t kept_results; /* number of stored results in the array, for pieces without parameters */
    int64_t failure;
    char failure_text[LANE_TEXT_BYTES];
    uint64_t left[RECORD_MISSING_WORDS]; /* ranks that have left with a goodbye */
    struct record_chosen choices[CHOICES_PER_JOB];
};
_Static_assert(sizeof(struct head) == 136 + LANE_TEXT_BYTES + 96 + CHOICES_PER_JOB * 120,
               "no holes");
_Static_assert(sizeof(struct head) + (2 * LANE_WORKERS_MAX + 1) * sizeof(uint64_t) <=
                   LANE_STATE_HEAD_BYTES,
               "a head fits");

static size_t head_bytes(const struct piece *p)
{
    return sizeof(struct head) + (p->members + takers_words(p)) * sizeof(uint64_t);
}

static uint64_t body_room(const struct piece *p)
{
    uint64_t bytes = piece_bytes(p, p->elements);
    if (p->parameters)
        return bytes * (1 + (uint64_t)update_moments(p->terms.rule));
    return p->kept ? bytes * kept_room(p) : 0;
}

static bool is_kept(const struct piece *p)
{
    return p->parameters ? p->round > 1 : p->kept_from > 0;
}

/* Returns whether the moved state includes the previous state, because an elastic job may have to
 * repeat a round that is committed here (A44). */
static bool sends_before(const struct piece *p)
{
    return is_kept(p) && p->parameters && p->job->is_elastic && p->parameters->has_before;
}

static uint64_t body_bytes(const struct piece *p)
{
    return is_kept(p) ? body_room(p) * (1 + sends_before(p)) : 0;
}

/* Returns the address of byte `at` of the array. `ret_left`: number of bytes of the array from this
 * address to the next gap in memory. */
static char *body_at(const struct piece *p, bool has_before, uint64_t at, uint64_t *ret_left)
{
    const struct parameters *q = p->parameters;
    uint64_t room = body_room(p);
    bool is_before = has_before && at < room;
    uint64_t first = has_before && !is_before ? room : 0;
    *ret_left = first + room - at;
    char *array = q ? (char *)q->state[is_before ? 1 - q->now : q->now][0] : kept_result(p, 0);
    return array + (at - first);
}

/* ---- the former owner ---- */

static uint64_t committed(const struct piece *p) { return p->round > 0 ? p->round - 1 : 0; }

/* Returns the number of stored results that move. If results are stored, at least one moves, also
 * if an elastic job may have to repeat the round of this result. */
static uint8_t kept_results(const struct piece *p)
{
    uint64_t newest = committed(p), room = kept_room(p);
    if (p->kept_from == 0)
        return 0;
    uint64_t made = p->kept_from < newest ? newest + 1 - p->kept_from : 1;
    return (uint8_t)(made < room ? made : room);
}

/* Returns whether the piece has state to move. With a full quorum and no stored arrays, the workers
 * have all information that the new owner needs. */
static bool has_state(const struct piece *p)
{
    return p->failure || p->job->has_left || p->terms.quorum != QUORUM_ALL || body_bytes(p) > 0;
}

static uint64_t state_bytes(const struct piece *p)
{
    return has_state(p) ? head_bytes(p) + body_bytes(p) : 0;
}

static uint64_t sound_steps(const struct piece *p)
{
    const struct parameters *q = p->parameters;
    return q && q->are_set && !p->failure ? q->steps + 1 : 0;
}

static bool is_recovering(const struct piece *p)
{
    return !p->failure && (p->round == 0 || (p->parameters && p->parameters->fetched));
}

int lane_standing(struct lane *lane, uint32_t job, uint32_t id, struct lane_standing *ret)
{
    struct piece *p;
    int error = piece_find_frozen(lane, job, id, &p);
    if (error == 0)
        *ret =
            (struct lane_standing){committed(p), state_bytes(p), sound_steps(p), is_recovering(p)};
    return error;
}

static void note_leavers(const struct lane_job *job, struct head *head)
{
    for (uint32_t i = 0; i < job->workers_count; i++) {
        if (job->workers[i].state == WORKER_LEFT)
            ranks_add(head->left, i);
    }
}

static void note_parameters(const struct piece *p, struct head *head)
{
    const struct parameters *q = p->parameters;
    head->steps = q->steps;
    head->are_set = q->are_set;
    head->swapped_round = q->swapped_round;
    head->has_before = sends_before(p);
    head->were_set = q->were_set;
    head->steps_before = q->steps_before;
    head->told = q->told;
    head->is_told = q->is_told;
}

static void read_body(const struct piece *p, uint64_t at, char *ret_data, uint64_t count)
{
    for (uint64_t part; count > 0; at += part, ret_data += part, count -= part) {
        const char *from = body_at(p, sends_before(p), at, &part);
        part = part < count ? part : count;
        memcpy(ret_data, from, part);
    }
}

static void write_head(const struct piece *p, char *ret_head)
{
    struct head head = {.magic = HEAD_MAGIC,
                        .members = p->members,
                        .elements = p->elements,
                        .round = committed(p),
                        .job_round = p->job_round,
                        .body_bytes = body_bytes(p),
                        .dtype = (uint8_t)p->dtype,
                        .quorum = (uint8_t)p->terms.quorum,
                        .rule = (uint8_t)p->terms.rule,
                        .kept_results = kept_results(p),
                        .failure = p->failure};
    if (p->parameters)
        note_parameters(p, &head);
    memcpy(head.failure_text, p->failure_text, sizeof head.failure_text);
    memcpy(head.choices, p->job->choices, sizeof head.choices);
    note_leavers(p->job, &head);
    memcpy(ret_head, &head, sizeof head);
    for (uint32_t i = 0; i < p->members; i++)
        memcpy(ret_head + sizeof head + i * sizeof(uint64_t), &p->ranks[i].clock, sizeof(uint64_t));
    uint64_t takers[LANE_WORKERS_MAX + 1];
    takers_save(p, takers);
    memcpy(ret_head + sizeof head + p->members * sizeof(uint64_t), takers,
           takers_words(p) * sizeof(uint64_t));
}

int64_t lane_state_read(struct lane *lane, uint32_t job, uint32_t id, uint64_t offset,
                        void *ret_data, size_t room)
{
    struct piece *p;
    char head[LANE_STATE_HEAD_BYTES];
    int error = piece_find_frozen(lane, job, id, &p);
    if (error < 0)
        return error;
    uint64_t total = state_bytes(p), before = head_bytes(p);
    if (offset > total)
        return -EINVAL;
    size_t count = total - offset < room ? total - offset : room, of_head = 0;
    if (offset < before && count > 0) {
        write_head(p, head);
        of_head = before - offset < count ? before - offset : count;
        memcpy(ret_data, head + offset, of_head);
    }
    if (count > of_head)
        read_body(p, offset + of_head - before, (char *)ret_data + of_head, count - of_head);
    return (int64_t)count;
}

/* ---- the new owner ---- */

static bool waits(const struct piece *p)
{
    return p->round == 0 && p->spoken == 0 && !p->is_held && !p->is_dropped;
}

static int find_waiting(struct lane *lane, uint32_t job_id, uint32_t id, struct piece **ret_piece)
{
    struct lane_job *job = job_find(lane, job_id);
    struct piece *p = job ? piece_find(job, id) : NULL;
    if (!p)
        return -ENOENT;
    if (!waits(p))
        return -EBUSY;
    *ret_piece = p;
    return 0;
}

/* Returns whether the length of the array is correct for the piece. The array may be missing if the
 * piece has failed, or if a former owner with a partial quorum has lost its stored result; late
 * ranks then receive the next result. */
static bool body_suits(const struct piece *p, const struct head *head)
{
    bool is_partial = quorum_is_partial(p) && !p->parameters;
    bool is_needed = head->round > 0 && !head->failure && !is_partial;
    if (head->body_bytes == 0)
        return !is_needed || body_room(p) == 0;
    return head->round > 0 && head->body_bytes == body_room(p) * (1 + head->has_before);
}

static bool parameters_suit_head(const struct piece *p, const struct head *head)
{
    return head->are_set <= 1 && head->were_set <= 1 && head->is_told <= 1 &&
           head->has_before <= (p->parameters != NULL) && head->swapped_round <= RECORD_ROUND_MOST;
}

static bool results_suit(const struct piece *p, const struct head *head)
{
    bool has_results = !p->parameters && head->body_bytes > 0;
    return has_results == (head->kept_results > 0) && head->kept_results <= head->round &&
           head->kept_results <= kept_room(p);
}

static bool suits(const struct piece *p, const struct head *head)
{
    return head->magic == HEAD_MAGIC && head->members == p->members &&
           head->elements == p->elements && head->dtype == p->dtype &&
           head->quorum == p->terms.quorum && head->rule == p->terms.rule &&
           head->round <= RECORD_ROUND_MOST && head->job_round <= RECORD_ROUND_MOST &&
           (piece_follows(p) || head->job_round == 0) && head->failure <= 0 &&
           head->failure >= -FAILURE_MOST && parameters_suit_head(p, head) && body_suits(p, head) &&
           results_suit(p, head);
}

static bool take_clocks(struct piece *p, const char *clocks)
{
    for (uint32_t i = 0; i < p->members; i++) {
        uint64_t clock;
        memcpy(&clock, clocks + i * sizeof clock, sizeof clock);
        if (clock > RECORD_ROUND_MOST)
            return false;
        p->ranks[i].clock = clock;
    }
    return true;
}

static bool take_takers(struct piece *p, const char *words)
{
    uint64_t takers[LANE_WORKERS_MAX + 1];
    memcpy(takers, words, takers_words(p) * sizeof(uint64_t));
    return takers_load(p, takers);
}

/* Stores the sets of ranks from the head, because the open round may wait for a set that no worker
 * can send again (W13). */
static bool take_choices(struct lane_job *job, const struct head *head)
{
    for (size_t i = 0; i < CHOICES_PER_JOB; i++) {
        if (head->choices[i].round > 0 && round_choose(job, &head->choices[i]) < 0)
            return false;
    }
    return true;
}

static void take_parameters(struct parameters *q, const struct head *head)
{
    q->steps = head->steps;
    q->are_set = head->are_set;
    q->swapped_round = head->swapped_round;
    q->has_before = head->has_before && head->body_bytes > 0;
    q->were_set = head->were_set;
    q->steps_before = head->steps_before;
    q->told = head->told;
    q->is_told = head->is_told;
}

static void write_body(struct piece *p, uint64_t at, const char *data, uint64_t count)
{
    bool has_before = p->parameters && p->parameters->has_before;
    for (uint64_t part; count > 0; at += part, data += part, count -= part) {
        char *to = body_at(p, has_before, at, &part);
        part = part < count ? part : count;
        memcpy(to, data, part);
    }
}

static int take_head(struct piece *p, const char *data, size_t bytes)
{
    struct head head;
    if (bytes < head_bytes(p))
        return -EBADMSG;
    memcpy(&head, data, sizeof head);
    if (!suits(p, &head) || bytes > head_bytes(p) + head.body_bytes)
        return -EBADMSG;
    if (!take_clocks(p, data + sizeof head) || !take_choices(p->job, &head))
        return -EBADMSG;
    if (!take_takers(p, data + sizeof head + p->members * sizeof(uint64_t)))
        return -EBADMSG;
    if (p->parameters)
        take_parameters(p->parameters, &head);
    p->failure = (int)head.failure;
    memcpy(p->failure_text, head.failure_text, sizeof p->failure_text);
    p->failure_text[sizeof p->failure_text - 1] = '\0';
    p->state_round = head.round;
    p->job_round = head.job_round;
    p->kept_from = head.kept_results > 0 ? head.round + 1 - head.kept_results : 0;
    p->state_bytes = head_bytes(p) + head.body_bytes;
    lane_leave(p->job->lane, p->job->id, head.left);
    return 0;
}

int lane_state_put(struct lane *lane, uint32_t job, uint32_t id, uint64_t offset, const void *data,
                   size_t bytes)
{
    struct piece *p;
    size_t of_head = 0;
    int error = find_waiting(lane, job, id, &p);
    if (error < 0)
        return error;
    if (offset != p->put_bytes)
        return -EINVAL;
    if (offset == 0) {
        error = take_head(p, data, bytes);
        of_head = head_bytes(p);
    }
    if (error < 0 || bytes > p->state_bytes - offset)
        return -EBADMSG;
    if (bytes > of_head)
        write_body(p, offset + of_head - head_bytes(p), (const char *)data + of_head,
                   bytes - of_head);
    p->put_bytes += bytes;
    return 0;
}

static int check_state(const struct piece *p, uint64_t round)
{
    bool needs_state = round > 0 && (p->parameters || p->terms.quorum != QUORUM_ALL);
    if (round > RECORD_ROUND_MOST)
        return -EINVAL;
    if (p->put_bytes == 0)
        return needs_state ? -EBADMSG : 0;
    return p->put_bytes == p->state_bytes && p->state_round == round ? 0 : -EBADMSG;
}

int lane_install(struct lane *lane, uint32_t job, const uint32_t *pieces, const uint64_t *rounds,
                 size_t count)
{
    struct piece *p;
    int error = 0;
    for (size_t i = 0; i < count && error == 0; i++) {
        error = find_waiting(lane, job, pieces[i], &p) ?: check_state(p, rounds[i]);
    }
    for (size_t i = 0; i < count && error == 0; i++) {
        p = piece_find(job_find(lane, job), pieces[i]);
        p->is_installed = rounds[i] > 0;
        p->round = rounds[i] > 0 ? rounds[i] + 1 : 0;
        if (!p->is_installed)
            continue;
        replica_know(p); /* the state was received from the former owner, so no replica is read */
        round_go_on(p);  /* the replica holder may already be connected, and then gets the state */
    }
    return error;
}

int lane_copied(struct lane *lane, uint32_t job_id, const uint32_t *pieces, size_t count)
{
    struct lane_job *job = job_find(lane, job_id);
    bool are_all = true;
    if (job && job->failure)
        return -ECONNABORTED;
    for (size_t i = 0; i < count; i++) {
        const struct piece *p = job ? piece_find(job, pieces[i]) : NULL;
        if (!p || p->is_dropped)
            return -ENOENT;
        are_all &= replica_is_ready(p);
    }
    return are_all ? 0 : -EAGAIN;
}
