/* Copies of what lanes keep, on other aggregators: who keeps which, and who must be told. A keeper
 * is stored before anybody hears of it, and stays as long as it lives and is another process than
 * the owner's: what it has is worth something only there. README: K57; svc/wire/README.md: W20. */
#include "svc/coordinator/keeping.h"

#include "packer/packer.h"
#include "svc/base/cleanup.h"
#include "svc/base/log.h"
#include "svc/coordinator/service.h"
#include "svc/coordinator/tensors.h"
#include "svc/reduce/update.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNFIT_NS (60 * NS_PER_S)

static bool wants_copy(const struct tensor *tensor, const struct piece *piece)
{
    return tensor->job->durability == DURABILITY_REPLICA && tensor->terms.rule &&
           piece->elements > 0 && !tensor->failure;
}

/* --- choosing --- */

static bool may_keep(const struct aggregator *a, const struct lane *lane)
{
    return a->state == AGGREGATOR_UP && !a->is_stopping && a != lane->aggregator &&
           clock_now_ns() >= a->unfit_until_ns;
}

/* Each owner's copies of a job lie together, and stay where they are while others come and go. On
 * another host, if there is any: one that fails takes all its processes along. */
static uint64_t score(const struct aggregator *a, const struct job *job, const struct lane *lane)
{
    char text[64];
    bool is_elsewhere = strcmp(a->node, lane->aggregator->node) != 0;
    snprintf(text, sizeof text, "%u %u %u", job->id, lane->aggregator->id, a->id);
    return (is_elsewhere ? UINT64_C(1) << 32 : 0) + packer_hash(text);
}

static uint32_t choose(const struct job *job, const struct lane *lane)
{
    const struct aggregator *best = NULL;
    uint64_t best_score = 0;
    list_for_each (node, &job->service->aggregators) {
        const struct aggregator *a = list_entry(node, struct aggregator, link);
        uint64_t its_score = may_keep(a, lane) ? score(a, job, lane) : 0;
        if (may_keep(a, lane) && (!best || its_score > best_score)) {
            best = a;
            best_score = its_score;
        }
    }
    return best ? best->id : 0;
}

static bool is_lost(const struct aggregator *a) { return !a || a->state == AGGREGATOR_LOST; }

static bool may_go_on(const struct aggregator *a, const struct lane *lane)
{
    return !is_lost(a) && !a->is_stopping && a != lane->aggregator;
}

uint32_t keeping_choose(const struct tensor *tensor, const struct piece *piece,
                        const struct lane *lane)
{
    const struct job *job = tensor->job;
    if (!wants_copy(tensor, piece))
        return piece->keeping.keeper;
    const struct keeping *now = &piece->keeping;
    bool stays = now->keeper && !now->is_unfit &&
                 may_go_on(aggregator_find(job->service, now->keeper), lane);
    return stays ? piece->keeping.keeper : choose(job, lane);
}

static void set(struct piece *piece, uint32_t keeper, uint32_t former)
{
    struct keeping *now = &piece->keeping;
    if (now->keeper != keeper)
        *now = (struct keeping){.keeper = keeper, .begins = true};
    now->former = former;
    now->keeper_knows = now->lane_knows = false;
}

/* The lane begins with that keeper, whose copy it is that it may want. */
void keeping_placed(struct piece *piece, uint32_t keeper) { set(piece, keeper, 0); }

/* --- another keeper --- */

struct change {
    struct tensor *tensor;
    struct piece *piece;
    uint32_t keeper;
};

/* Not before its lane has it: it is placed with the keeper that has its copy, if any. */
static size_t find_changes(struct job *job, struct change *changes, size_t room)
{
    size_t count = 0;
    for (size_t t = 0; t < job->tensors_count; t++) {
        struct tensor *tensor = job->tensors[t];
        for (size_t i = 0; i < tensor->pieces_count && count < room; i++) {
            struct piece *piece = &tensor->pieces[i];
            if (piece->state != PIECE_READY || !wants_copy(tensor, piece))
                continue;
            uint32_t keeper = keeping_choose(tensor, piece, piece->lane);
            if (keeper != piece->keeping.keeper)
                changes[count++] = (struct change){tensor, piece, keeper};
        }
    }
    return count;
}

static int store_changes(struct job *job, const struct change *changes, size_t count)
{
    struct store *store = job->service->store;
    struct store_row row;
    struct err err;
    store_begin(store);
    for (size_t i = 0; i < count; i++) {
        piece_row(changes[i].tensor, changes[i].piece, &row);
        row.piece.keeper = changes[i].keeper;
        store_put(store, &row);
    }
    int error = store_commit(store, &err);
    if (error < 0)
        log_error("job %s: its copies stay where they were: %s", job->name, err.text);
    return error;
}

static void retry_later(struct service *s)
{
    timer_start(&s->loop, &s->retry_timer, clock_now_ns() + RETRY_NS);
}

static bool lacks_keeper(const struct job *job)
{
    for (size_t t = 0; t < job->tensors_count; t++)
        for (size_t i = 0; i < job->tensors[t]->pieces_count; i++) {
            const struct piece *piece = &job->tensors[t]->pieces[i];
            if (piece->keeping.keeper == 0 && wants_copy(job->tensors[t], piece))
                return true;
        }
    return false;
}

static void note_lack(struct job *job)
{
    bool lacks = lacks_keeper(job);
    if (lacks && !job->lacks_keeper)
        log_warn("job %s: no other aggregator is there to keep copies of its parameters and "
                 "moments; they begin when one joins (--aggregators, or --durability worker)",
                 job->name);
    if (!lacks && job->lacks_keeper)
        log_info("job %s: its parameters and moments have copies again", job->name);
    job->lacks_keeper = lacks;
    if (lacks)
        fleet_want_another(job->service);
}

/* The lane may not have looked yet at the copy of the first, whoever was to follow that. One that
 * is unfit does not come to the lane any more: it would be waited for in vain. */
static uint32_t former_of(struct service *s, const struct keeping *now)
{
    uint32_t former = now->former ? now->former : now->is_unfit ? 0 : now->keeper;
    return is_lost(aggregator_find(s, former)) ? 0 : former;
}

static void change_keepers(struct job *job)
{
    size_t pieces = job->pieces_count;
    _cleanup_free_ struct change *changes = calloc(pieces ? pieces : 1, sizeof *changes);
    size_t count = changes ? find_changes(job, changes, pieces) : 0;
    if (!changes || (count > 0 && store_changes(job, changes, count) < 0))
        return retry_later(job->service);
    if (count > 0)
        log_debug("job %s: other keepers for %zu pieces", job->name, count);
    for (size_t i = 0; i < count; i++)
        set(changes[i].piece, changes[i].keeper,
            former_of(job->service, &changes[i].piece->keeping));
}

/* --- telling --- */

/* Pieces that one message names. */
struct told {
    uint32_t job, lane, keeper;
    bool is_to_lane, when_known;
    size_t count;
    uint32_t pieces[];
};

/* A lane must know its pieces before anything is said of them. */
static bool is_untold(const struct piece *piece, bool is_to_lane)
{
    if (piece->state != PIECE_READY)
        return false;
    return is_to_lane ? !piece->keeping.lane_knows
                      : !piece->keeping.keeper_knows && piece->keeping.keeper;
}

static bool can_be_told(const struct job *job, const struct piece *piece, bool is_to_lane)
{
    if (!is_untold(piece, is_to_lane))
        return false;
    const struct aggregator *a =
        is_to_lane ? piece->lane->aggregator : aggregator_find(job->service, piece->keeping.keeper);
    return a && a->state == AGGREGATOR_UP;
}

static bool is_alike(const struct told *told, const struct piece *piece)
{
    return told->lane == piece->lane->id && told->keeper == piece->keeping.keeper &&
           (!told->is_to_lane || told->when_known == (piece->keeping.former > 0));
}

static void note(struct piece *piece, bool is_to_lane, bool knows)
{
    if (is_to_lane)
        piece->keeping.lane_knows = knows;
    else
        piece->keeping.keeper_knows = knows;
}

/* Those of one message, which count as told until the answer says otherwise. */
static size_t gather(struct job *job, struct told *told, bool is_to_lane)
{
    told->count = 0;
    for (size_t t = 0; t < job->tensors_count; t++) {
        struct tensor *tensor = job->tensors[t];
        for (size_t i = 0; i < tensor->pieces_count && tensor->terms.rule; i++) {
            struct piece *piece = &tensor->pieces[i];
            if (!can_be_told(job, piece, is_to_lane) || told->count == MESSAGE_PIECES_MAX)
                continue;
            if (told->count == 0) {
                told->job = job->id;
                told->lane = piece->lane->id;
                told->keeper = piece->keeping.keeper;
                told->is_to_lane = is_to_lane;
                told->when_known = piece->keeping.former > 0;
            }
            if (!is_alike(told, piece))
                continue;
            told->pieces[told->count++] = piece->id;
            note(piece, is_to_lane, true);
        }
    }
    return told->count;
}

/* For what lies on that lane another is chosen; what it keeps of others it goes on keeping. */
void keeping_refused(struct aggregator *a, struct job *job, uint32_t lane, const char *why)
{
    char name[AGGREGATOR_NAME_BYTES];
    log_warn("job %s: %s keeps no copies of what is on lane %u: %s", job->name,
             aggregator_name(a, name, sizeof name), lane, why);
    a->unfit_until_ns = clock_now_ns() + UNFIT_NS;
    timer_start(&a->service->loop, &a->service->fit_timer, a->unfit_until_ns);
    for (size_t t = 0; t < job->tensors_count; t++)
        for (size_t i = 0; i < job->tensors[t]->pieces_count; i++) {
            struct piece *piece = &job->tensors[t]->pieces[i];
            if (piece->lane && piece->lane->id == lane && piece->keeping.keeper == a->id)
                piece->keeping.is_unfit = true;
        }
}

/* They are to be told again, or somebody else is. */
static void forget_told(struct job *job, const struct told *told)
{
    for (size_t i = 0; i < told->count; i++) {
        struct piece *piece = jobs_piece(job, told->pieces[i], NULL);
        if (piece && piece->lane && piece->lane->id == told->lane &&
            piece->keeping.keeper == told->keeper)
            note(piece, told->is_to_lane, false);
    }
}

/* Where nobody answered, the aggregator is told when it is back; or it is lost. */
static void answered(struct service *s, void *data, const envelope *reply, int code,
                     const char *text)
{
    const struct told *told = data;
    struct job *job = jobs_find_id(s, told->job);
    struct aggregator *keeper = aggregator_find(s, told->keeper);
    if (reply || !job)
        return;
    forget_told(job, told);
    if (call_went_unanswered(code))
        return code == -ETIMEDOUT ? retry_later(s) : (void)0;
    if (!told->is_to_lane && keeper)
        keeping_refused(keeper, job, told->lane, text);
    else
        log_warn("job %s: lane %u did not take another keeper: %s", job->name, told->lane, text);
    retry_later(s);
}

static int send_to_lane(struct job *job, struct told *told)
{
    WIRE(KeeperRequest) request = GRADPOOL__WIRE__KEEPER_REQUEST__INIT;
    request.lane = told->lane;
    request.job_id = job->id;
    request.keeper = told->keeper;
    request.when_known = told->when_known;
    request.pieces = told->pieces;
    request.n_pieces = told->count;
    envelope e = ENVELOPE_INIT;
    e.body_case = BODY(KEEPER_REQUEST);
    e.keeper_request = &request;
    struct aggregator *a = lane_find(job->service, told->lane)->aggregator;
    return call_send(a, &e, CALL_DEADLINE_NS, answered, told);
}

static void describe(const struct job *job, uint32_t id, WIRE(CopySpec) * spec)
{
    struct tensor *tensor;
    struct piece *piece = jobs_piece(job, id, &tensor);
    gradpool__wire__copy_spec__init(spec);
    spec->piece = id;
    spec->epoch = piece->epoch;
    spec->lost_epoch = piece->lost_epoch;
    spec->bytes =
        tensor_bytes(tensor, piece->elements) * (1 + (uint64_t)update_moments(tensor->terms.rule));
    spec->begins = piece->keeping.begins;
    piece->keeping.begins = false;
}

static int send_to_keeper(struct job *job, struct told *told)
{
    _cleanup_free_ WIRE(CopySpec) *specs = calloc(told->count, sizeof *specs);
    _cleanup_free_ WIRE(CopySpec) **list = calloc(told->count, sizeof *list);
    if (!specs || !list)
        return -ENOMEM;
    for (size_t i = 0; i < told->count; i++) {
        describe(job, told->pieces[i], &specs[i]);
        list[i] = &specs[i];
    }
    WIRE(CopiesRequest) request = GRADPOOL__WIRE__COPIES_REQUEST__INIT;
    request.job_id = job->id;
    request.job = job->name;
    request.lane = told->lane;
    request.copies = list;
    request.n_copies = told->count;
    envelope e = ENVELOPE_INIT;
    e.body_case = BODY(COPIES_REQUEST);
    e.copies_request = &request;
    struct aggregator *a = aggregator_find(job->service, told->keeper);
    return call_send(a, &e, CALL_DEADLINE_NS, answered, told);
}

/* All of one kind: one message for each lane and keeper, or several. */
static void tell_all(struct job *job, bool is_to_lane)
{
    size_t room = job->pieces_count < MESSAGE_PIECES_MAX ? job->pieces_count : MESSAGE_PIECES_MAX;
    for (;;) {
        struct told *told = calloc(1, sizeof *told + room * sizeof told->pieces[0]);
        if (!told || gather(job, told, is_to_lane) == 0) {
            free(told);
            return told ? (void)0 : retry_later(job->service);
        }
        int error = is_to_lane ? send_to_lane(job, told) : send_to_keeper(job, told);
        if (error == 0)
            continue;
        forget_told(job, told);
        free(told);
        return retry_later(job->service);
    }
}

/* --- when --- */

/* Keepers first: one that is about to be relieved may have what a new owner needs. */
void keeping_check(struct job *job)
{
    if (job->failure || job->service->phase != SERVICE_UP || job->durability == DURABILITY_NONE ||
        job->durability == DURABILITY_WORKER)
        return;
    tell_all(job, false);
    change_keepers(job);
    note_lack(job);
    tell_all(job, true);
    tell_all(job, false);
}

void keeping_check_all(struct service *s)
{
    list_for_each (node, &s->jobs)
        keeping_check(list_entry(node, struct job, link));
}

typedef void (*visit_fn)(struct piece *piece, const struct aggregator *a);

static void each_piece(struct aggregator *a, visit_fn visit)
{
    list_for_each (node, &a->service->jobs) {
        struct job *job = list_entry(node, struct job, link);
        for (size_t t = 0; t < job->tensors_count; t++)
            for (size_t i = 0; i < job->tensors[t]->pieces_count; i++)
                visit(&job->tensors[t]->pieces[i], a);
    }
}

static void tell_anew(struct piece *piece, const struct aggregator *a)
{
    if (piece->keeping.keeper == a->id)
        piece->keeping.keeper_knows = false;
    if (piece->lane && piece->lane->aggregator == a)
        piece->keeping.lane_knows = false;
}

void keeping_aggregator_back(struct aggregator *a)
{
    each_piece(a, tell_anew);
    keeping_check_all(a->service);
}

/* Who waits for what it had waits no longer. */
static void forget_former(struct piece *piece, const struct aggregator *a)
{
    if (piece->keeping.former != a->id)
        return;
    piece->keeping.former = 0;
    piece->keeping.lane_knows = false;
}

void keeping_aggregator_lost(struct aggregator *a)
{
    each_piece(a, forget_former);
    keeping_check_all(a->service);
}

bool keeping_has(const struct aggregator *a, const struct job *job, const struct lane *lane)
{
    for (size_t t = 0; t < job->tensors_count; t++)
        for (size_t i = 0; i < job->tensors[t]->pieces_count; i++) {
            const struct piece *piece = &job->tensors[t]->pieces[i];
            bool is_its = piece->keeping.keeper == a->id || piece->keeping.former == a->id;
            if (is_its && (!lane || piece->lane == lane))
                return true;
        }
    return false;
}

static bool has_copies(const struct job *job)
{
    for (size_t t = 0; t < job->tensors_count; t++)
        for (size_t i = 0; i < job->tensors[t]->pieces_count; i++)
            if (job->tensors[t]->pieces[i].keeping.keeper)
                return true;
    return false;
}

/* Who does not hear it finds out when it asks for a ticket next. */
static void ended(struct service *s, void *data, const envelope *reply, int code, const char *text)
{
}

void keeping_end(struct job *job)
{
    WIRE(CopiesEnd) request = GRADPOOL__WIRE__COPIES_END__INIT;
    envelope e = ENVELOPE_INIT;
    if (!has_copies(job))
        return;
    request.job_id = job->id;
    e.body_case = BODY(COPIES_END);
    e.copies_end = &request;
    list_for_each (node, &job->service->aggregators) {
        struct aggregator *a = list_entry(node, struct aggregator, link);
        if (a->state == AGGREGATOR_UP)
            call_send(a, &e, CALL_DEADLINE_NS, ended, NULL);
    }
}
