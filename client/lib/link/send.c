/* Sends regions, READY records and queries to lanes. Nothing is sent twice, and no record is sent
 * before its memory is lent. Without room a record stays in the list of the link until the event
 * ROOM (W10). */
#include "client/lib/job/state_copy.h"
#include "client/lib/link/link.h"
#include "client/lib/round/gradients.h"
#include "client/lib/sets/sets.h"
#include "svc/wire/backup_terms.h"

#include <errno.h>
#include <string.h>

/* ---- READY ---- */

static void ready_describe_input(const struct piece *p, const struct push *push,
                                 struct record_ready *ready)
{
    const struct gp_tensor *t = p->tensor;
    size_t element_bytes = reduce_element_bytes(t->dtype);
    if (!push->gradient)
        return;
    ready->input_region = push->input.region;
    ready->input_offset = push->input.offset + p->first * element_bytes;
    ready->input_bytes = p->elements * element_bytes;
    ready->input_stride =
        push->gradient_bytes > t->bytes ? t->bytes : gradients_stride(t, push->operation);
}

static uint32_t ready_source(const struct push *push, bool collects)
{
    bool has_root = push->operation == RECORD_BROADCAST || push->operation == RECORD_SEND;
    return has_root ? push->root : collects ? 0 : RECORD_SOURCE_RESULT;
}

static void ready_describe_output(const struct piece *p, const struct push *push,
                                  struct record_ready *ready)
{
    const struct gp_tensor *t = p->tensor;
    size_t element_bytes = reduce_element_bytes(t->dtype);
    if (!push->result)
        return;
    bool collects = push->result_bytes > t->bytes;
    ready->outputs = 1;
    ready->output[0] =
        (struct record_output){.source = ready_source(push, collects),
                               .count = collects ? (uint32_t)(push->result_bytes / t->bytes) : 1,
                               .stride = collects ? t->bytes : 0,
                               .region = push->landing.region,
                               .offset = push->landing.offset + p->first * element_bytes,
                               .bytes = p->elements * element_bytes};
}

static const uint8_t standings[] = {
    [PIECE_IDLE] = RECORD_IDLE, [PIECE_ANNOUNCED] = RECORD_ANNOUNCE, [PIECE_LANDED] = RECORD_HOLDS};

/* Returns the operation in announcements of a tensor that was never pushed. */
static uint8_t ready_usual_operation(const struct gp_tensor *t)
{
    return t->terms.rule ? RECORD_UPDATE : RECORD_SUM;
}

/* Fills a READY for a round: the open one, or a former one. */
static void ready_describe(const struct piece *p, const struct push *push, uint8_t standing,
                           uint64_t round, struct record_ready *ready)
{
    const struct gp_tensor *t = p->tensor;
    *ready = (struct record_ready){
        .kind = RECORD_READY,
        .operation = push->operation ? push->operation : ready_usual_operation(t),
        .dtype = t->dtype,
        .standing = standing,
        .piece = p->id,
        .word = p->word,
        .round = round,
        .epoch = p->epoch,
        .root = push->root,
        .loss = push->loss,
        .priority = UINT32_MAX - t->index, /* tensors that are declared first are needed first */
        .weight = RECORD_WEIGHT,
        .gradient = RECORD_GRADIENT};
    if (standing == RECORD_IDLE || standing == RECORD_ENTERS || standing == RECORD_FAILED)
        return;
    if (t == t->job->backup.leader)
        ready->gradient = gradients_announced(t->job);
    ready->weight = push->weight;
    if (standing != RECORD_TAKES)
        ready_describe_input(p, push, ready);
    ready_describe_output(p, push, ready);
}

/* Returns whether a lane has reported the loss of a result or state (L80). */
static bool ready_is_of_lost(const struct gp_tensor *t) { return t->failure.code == -EOWNERDEAD; }

/* Returns whether lanes may no longer use the memory of the open round. The round has failed, so
 * the caller may have written to the memory, and other ranks would get wrong sums (L80). */
static bool ready_is_withheld(const struct gp_tensor *t) { return t->failure.code != 0; }

static void ready_describe_standing(const struct piece *p, struct record_ready *ready)
{
    const struct gp_tensor *t = p->tensor;
    uint64_t round = p->standing == PIECE_IDLE ? p->committed : t->round;
    if (ready_is_of_lost(t))
        ready_describe(p, &t->open, RECORD_FAILED, p->committed, ready);
    else if (p->is_entering)
        ready_describe(p, &t->open, RECORD_ENTERS, RECORD_ROUND_NONE, ready);
    else if (ready_is_withheld(t))
        ready_describe(p, &t->open, RECORD_IDLE, p->committed, ready);
    else if (t->open.is_taking && p->standing == PIECE_ANNOUNCED)
        ready_describe(p, &t->open, RECORD_TAKES, round, ready);
    else
        ready_describe(p, &t->open, standings[p->standing], round, ready);
}

/* Returns the payload of a record; NULL: none. Over a network a short input is sent with the
 * record. In shared memory the lane reads the input itself (W6). */
static const void *choose_payload(const struct link *l, struct record_ready *ready)
{
    if (!l->is_ofi || ready->standing != RECORD_ANNOUNCE || ready->input_bytes == 0 ||
        ready->weight == 0 || ready->input_bytes > l->job->client->eager_bytes ||
        ready->input_stride > 0)
        return NULL;
    ready->payload_bytes = (uint32_t)ready->input_bytes;
    return slabs_at(&l->job->slabs, (struct slab_place){.region = ready->input_region,
                                                        .offset = ready->input_offset});
}

/* Sends settings only after a change, because a lane stores the last settings that a connection has
 * sent (W14). */
static int tell_settings(struct link *l, const struct push *push)
{
    const struct update_settings *s = &push->settings;
    struct record_settings settings = {.kind = RECORD_SETTINGS,
                                       .rate = s->rate,
                                       .weight_decay = s->weight_decay,
                                       .momentum = s->momentum,
                                       .dampening = s->dampening,
                                       .beta1 = s->beta1,
                                       .beta2 = s->beta2,
                                       .epsilon = s->epsilon,
                                       .steps = push->steps};
    if (!push->has_settings || memcmp(&l->settings, &settings, sizeof settings) == 0)
        return 0;
    int error = fabric_send(l->conn, &settings, sizeof settings, NULL, 0);
    if (error == 0)
        l->settings = settings;
    return error;
}

/* Returns the waiting time that this record reports, in units of RECORD_STALL_NS. The next READY
 * reports the rest. */
static uint16_t stall_to_tell(const struct link *l, const struct record_ready *ready)
{
    uint64_t units = l->stalled_ns / RECORD_STALL_NS;
    if (ready->standing != RECORD_ANNOUNCE)
        return 0;
    return units < UINT16_MAX ? (uint16_t)units : UINT16_MAX;
}

/* Sends a new owner the standing in the kept round, before the standing in the open round. The new
 * owner may have to send the result of the kept round to another rank (W5). */
static int tell_kept(struct link *l, const struct piece *p)
{
    const struct gp_tensor *t = p->tensor;
    struct record_ready ready;
    if (!p->owes_standing || !t->has_kept || ready_is_withheld(t))
        return 0;
    ready_describe(p, &t->kept, RECORD_KEEPS, t->round - 1, &ready);
    ready.word = p->kept_word;
    int told = tell_settings(l, &t->kept);
    if (told < 0)
        return told;
    return fabric_send(l->conn, &ready, sizeof ready, NULL, 0);
}

/* Returns the push whose settings the lane needs before the piece is announced. The hidden tensor
 * has no settings of its own; with rule DBW its lane needs the settings of the round's updates
 * (W22). */
static const struct push *push_with_settings(const struct piece *p)
{
    const struct gp_tensor *leader = p->tensor->job->backup.leader;
    if (p->tensor != leader || leader->job->join_backup.rule != BACKUP_TERMS_DBW)
        return &p->tensor->open;
    for_each_tensor (t, leader->job) {
        if (terms_are_following(&t->terms) && t->open.has_settings)
            return &t->open;
    }
    return &leader->open;
}

static int send_ready(struct link *l, struct piece *p)
{
    struct record_ready ready;
    int told = copy_tell(p, l->conn, l->openings);
    if (told == 0)
        told = tell_kept(l, p);
    if (told == 0)
        told = tell_settings(l, push_with_settings(p));
    if (told < 0)
        return told;
    ready_describe_standing(p, &ready);
    ready.stalled = stall_to_tell(l, &ready);
    const void *payload = choose_payload(l, &ready);
    int error = fabric_send(l->conn, &ready, sizeof ready, payload, ready.payload_bytes);
    if (error == -EMSGSIZE && payload) {
        /* the payload is optional: the lane reads the input if it is missing */
        ready.payload_bytes = 0;
        error = fabric_send(l->conn, &ready, sizeof ready, NULL, 0);
    }
    if (error == 0)
        l->stalled_ns -= (uint64_t)ready.stalled * RECORD_STALL_NS;
    return error;
}

/* ---- the list ---- */

static bool lend_all(struct link *l)
{
    const struct slabs *slabs = &l->job->slabs;
    char name[128];
    while (l->lent < slabs->count) {
        int error = fabric_lend(l->conn, &slabs->slab[l->lent].region, l->lent);
        if (error < 0 && error != -EAGAIN && error != -ECONNRESET)
            link_break(l, error, "memory cannot be lent to %s: %s", link_name(l, name, sizeof name),
                       err_text(error));
        if (error < 0)
            return false;
        l->lent++;
    }
    return true;
}

static bool pass_choice_on(struct link *l, int k)
{
    const struct record_chosen *chosen = &l->job->chosen[k];
    if (l->chosen_round[k] >= chosen->round)
        return true;
    if (fabric_send(l->conn, chosen, sizeof *chosen, NULL, 0) < 0)
        return false;
    l->chosen_round[k] = chosen->round;
    return true;
}

/* Forwards the sets of ranks from the leader lane to all lanes, because lanes have no connections
 * to each other (W13). The newest two sets are sent: a new owner of a tensor may be one round
 * behind the leader lane. */
static bool pass_choices_on(struct link *l)
{
    int older = l->job->chosen[0].round > l->job->chosen[1].round;
    return pass_choice_on(l, older) && pass_choice_on(l, !older);
}

/* Sends sets of a recording to the leader lane. */
static bool pass_sets_on(struct link *l)
{
    const struct gp_tensor *leader = l->job->backup.leader;
    if (!leader || leader->pieces->link != l)
        return true;
    const struct sets_way to = {
        .conn = l->conn, .lane = l->lane, .openings = l->openings, .epoch = leader->pieces->epoch};
    return sets_send(l->job, &to);
}

/* Marks the report of this rank as unsent if the piece has a new owner or a new connection. */
static void repeat_report(const struct piece *p)
{
    struct backup_rounds *b = &p->tensor->job->backup;
    if (p->owes_standing && p->tensor == b->leader && b->report == REPORT_SENT)
        b->report = REPORT_OWED;
}

static void send_unsent(struct link *l)
{
    list_for_each_safe_entry (struct piece, p, &l->unsent, unsent) {
        if (p->fence)
            continue;
        bool is_owed = p->owes_standing || !ready_is_withheld(p->tensor);
        if ((is_owed || ready_is_of_lost(p->tensor)) && send_ready(l, p) < 0)
            return; /* ROOM or CLOSED will follow; its handler sends the rest */
        repeat_report(p);
        p->owes_standing = false;
        piece_retract(p);
    }
}

/* Reports that all fetched results have landed, or that a lane no longer has a result that this
 * rank has requested (W22). The READY of the hidden tensor is sent before this report. */
static void send_landed(struct link *l)
{
    struct backup_rounds *b = &l->job->backup;
    if (b->report != REPORT_OWED)
        return;
    const struct piece *p = b->leader->pieces;
    struct record_landed landed = {.kind = RECORD_LANDED,
                                   .piece = p->id,
                                   .round = b->newest == b->taking ? b->taking : RECORD_ROUND_NONE};
    if (p->link != l || !list_is_empty(&p->unsent))
        return;
    if (fabric_send(l->conn, &landed, sizeof landed, NULL, 0) == 0)
        b->report = REPORT_SENT;
}

/* Reports to the leader lane that the last gradient was ready after the close of its round, or was
 * given up. The rule of the job uses this record to estimate how long the rank computes. The lane
 * sends no answer. */
static void send_late(struct link *l)
{
    struct backup_rounds *b = &l->job->backup;
    struct record_ready ready;
    bool is_whole = b->report == REPORT_LATE;
    if (!is_whole && b->report != REPORT_LEFT)
        return;
    const struct piece *p = b->leader->pieces;
    if (p->link != l || !list_is_empty(&p->unsent))
        return;
    ready_describe(p, &b->leader->open, is_whole ? RECORD_ANNOUNCE : RECORD_TAKES, b->leader->round,
                   &ready);
    ready.gradient = is_whole ? gradients_pushed(l->job) : gradients_announced(l->job) + 1;
    if (fabric_send(l->conn, &ready, sizeof ready, NULL, 0) == 0)
        b->report = REPORT_NONE;
}

void link_flush(struct link *l)
{
    if (l->owes_goodbye)
        link_say_goodbye(l); /* no record may follow the goodbye */
    else if (l->state == LINK_OPEN && lend_all(l) && pass_choices_on(l) && pass_sets_on(l)) {
        send_unsent(l);
        send_late(l);
        send_landed(l);
        link_flush_rows(l);
    }
}

void link_flush_all(struct gp_job *job)
{
    for_each_link (l, job)
        link_flush(l);
}

void link_announce(struct link *l, struct piece *p)
{
    if (p->is_outside)
        return; /* no READY before the route with which this rank enters */
    if (list_is_empty(&p->unsent)) {
        list_append(&l->unsent, &p->unsent);
        l->job->unsent++;
    }
    link_flush(l);
}

bool link_query(struct link *l, const struct piece *p)
{
    struct record_query query = {.kind = RECORD_QUERY,
                                 .word = p->word,
                                 .piece = p->id,
                                 .round = p->is_entering ? 0 : p->tensor->round};
    return l->state == LINK_OPEN && !p->is_outside &&
           fabric_send(l->conn, &query, sizeof query, NULL, 0) == 0;
}

/* Sends a goodbye. Without a goodbye the service would treat the end of this worker as a crash, and
 * fail the job. */
void link_say_goodbye(struct link *l)
{
    int failure = l->job->failure.code;
    struct record_leave leave = {.kind = RECORD_LEAVE,
                                 .after_failure = failure != 0 && failure != -ECANCELED};
    l->owes_goodbye =
        l->state == LINK_OPEN && fabric_send(l->conn, &leave, sizeof leave, NULL, 0) == -EAGAIN;
}

bool link_owes_goodbye(const struct link *l) { return l->owes_goodbye && l->state == LINK_OPEN; }
