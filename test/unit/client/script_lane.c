/* The lanes of service_rig.h. The lanes receive announcements, sum gradients in mapped memory, and
 * send words and commits. */
#include "svc/reduce/reduce.h"
#include "svc/wire/round_set.h"
#include "test/unit/client/service_rig.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

void script_lane_start(struct service_rig *rig, uint32_t number)
{
    static int serial;
    char address[FABRIC_ADDRESS_BYTES_MAX];
    struct script_lane *lane = &rig->lanes[number];
    *lane = (struct script_lane){.rig = rig, .number = number};
    snprintf(address, sizeof address, "@gradpool-script-%d-%d", (int)getpid(), serial++);
    assert_int_equal(fabric_open("shm", NULL, &lane->fabric), 0);
    assert_int_equal(fabric_listen(lane->fabric, address, lane->address), 0);
}

static void say(struct script_worker *w, const void *record, size_t bytes)
{
    if (w->conn)
        fabric_send(w->conn, record, bytes, NULL, 0);
}

void script_lane_say_error(struct service_rig *rig, uint32_t lane, uint32_t rank, uint32_t word,
                           int code, const char *text)
{
    struct record_error error;
    record_error_init(&error, word, code, text);
    say(&rig->lanes[lane].workers[rank], &error, sizeof error);
    fabric_flush(rig->lanes[lane].fabric);
}

void script_lane_say_chosen(struct service_rig *rig, uint32_t lane, uint32_t rank, uint64_t round,
                            uint64_t ranks)
{
    struct record_chosen chosen = {.kind = RECORD_CHOSEN, .round = round, .ranks = {ranks}};
    say(&rig->lanes[lane].workers[rank], &chosen, sizeof chosen);
    fabric_flush(rig->lanes[lane].fabric);
}

void script_lane_say_counts(struct service_rig *rig, uint32_t lane, uint32_t rank, uint64_t round,
                            const uint8_t *counts)
{
    struct record_chosen chosen;
    assert_int_equal(round_set_of_counts(&chosen, round, counts, rig->workers), 0);
    say(&rig->lanes[lane].workers[rank], &chosen, sizeof chosen);
    fabric_flush(rig->lanes[lane].fabric);
}

void script_lane_say_go_on(struct service_rig *rig, uint32_t lane, uint32_t rank, uint64_t round,
                           uint8_t gradient)
{
    struct record_go_on go_on = {.kind = RECORD_GO_ON, .gradient = gradient, .round = round};
    say(&rig->lanes[lane].workers[rank], &go_on, sizeof go_on);
    fabric_flush(rig->lanes[lane].fabric);
}

void script_lane_say_closed(struct service_rig *rig, uint32_t lane, uint32_t rank, uint32_t word,
                            uint64_t round)
{
    struct record_closed closed = {.kind = RECORD_CLOSED, .word = word, .round = round};
    say(&rig->lanes[lane].workers[rank], &closed, sizeof closed);
    fabric_flush(rig->lanes[lane].fabric);
}

void script_lane_babble(struct service_rig *rig, uint32_t lane, uint32_t rank)
{
    const char babble[16] = "babble";
    say(&rig->lanes[lane].workers[rank], babble, sizeof babble);
    fabric_flush(rig->lanes[lane].fabric);
}

void script_lane_give_ticket(struct service_rig *rig, uint32_t lane, uint32_t rank)
{
    struct record_ticket ticket = {.kind = RECORD_TICKET,
                                   .connect = {.magic = RECORD_MAGIC,
                                               .job = SCRIPT_JOB_ID,
                                               .rank = rank,
                                               .lane = lane,
                                               .token = {'l', 'a', 'n', 'e'}}};
    say(&rig->lanes[lane].workers[rank], &ticket, sizeof ticket);
    fabric_flush(rig->lanes[lane].fabric);
}

/* ---- rounds ---- */

static struct record_ready *said(struct script_piece *p, uint32_t rank)
{
    return &p->said[rank][p->round & 1];
}

bool script_has(const struct service_rig *rig, uint32_t rank)
{
    return rank < SCRIPT_WORKERS_MAX &&
           (rig->members ? rig->members >> rank & 1 : rank < rig->workers);
}

uint32_t script_members(const struct service_rig *rig)
{
    uint32_t count = 0;
    for (uint32_t rank = 0; rank < SCRIPT_WORKERS_MAX; rank++)
        count += script_has(rig, rank);
    return count;
}

static bool is_complete(const struct service_rig *rig, struct script_piece *p)
{
    for (uint32_t rank = 0; rank < SCRIPT_WORKERS_MAX; rank++) {
        if (!script_has(rig, rank))
            continue;
        if (said(p, rank)->round != p->round || said(p, rank)->standing == RECORD_IDLE)
            return false;
    }
    return true;
}

static float *input_of(struct script_lane *lane, struct script_piece *p, uint32_t rank)
{
    const struct record_ready *r = said(p, rank);
    float *at =
        fabric_map(lane->workers[rank].conn, r->input_region, r->input_offset, r->input_bytes);
    assert_non_null(at);
    return at;
}

static float *output_of(struct script_lane *lane, struct script_piece *p, uint32_t rank)
{
    const struct record_output *o = &said(p, rank)->output[0];
    float *at = fabric_map(lane->workers[rank].conn, o->region, o->offset, o->bytes);
    assert_non_null(at);
    return at;
}

static float element(struct script_lane *lane, struct script_piece *p, size_t i)
{
    const struct service_rig *rig = lane->rig;
    uint32_t first = 0;
    while (!script_has(rig, first))
        first++;
    const struct record_ready *ready = said(p, first);
    if (ready->operation == RECORD_BROADCAST)
        return input_of(lane, p, ready->root)[i];
    float sum = input_of(lane, p, first)[i];
    for (uint32_t rank = first + 1; rank < SCRIPT_WORKERS_MAX; rank++)
        sum += script_has(rig, rank) ? input_of(lane, p, rank)[i] : 0;
    return ready->operation == RECORD_MEAN ? sum / (float)script_members(rig) : sum;
}

/* Returns the sum of 64-bit integers, which step records contain. */
static uint64_t word(struct script_lane *lane, struct script_piece *p, size_t i)
{
    uint64_t total = 0;
    for (uint32_t rank = 0; rank < SCRIPT_WORKERS_MAX; rank++)
        total += script_has(lane->rig, rank) ? ((uint64_t *)input_of(lane, p, rank))[i] : 0;
    return total;
}

/* If a rank has the result, this result is copied to all other ranks. Otherwise the inputs are
 * summed. */
static void sum(struct script_lane *lane, struct script_piece *p)
{
    uint32_t workers = SCRIPT_WORKERS_MAX, holder = workers;
    for (uint32_t rank = 0; rank < workers; rank++) {
        bool holds = script_has(lane->rig, rank) && said(p, rank)->standing == RECORD_HOLDS;
        holder = holds ? rank : holder;
    }
    for (uint32_t rank = 0; rank < workers; rank++) {
        const struct record_ready *r = said(p, rank);
        if (!script_has(lane->rig, rank) || r->standing == RECORD_HOLDS ||
            lane->rig->withheld >> rank & 1)
            continue;
        bool has_words = r->outputs && r->dtype == REDUCE_I64 && holder == workers;
        for (size_t i = 0; has_words && i < r->output[0].bytes / sizeof(uint64_t); i++)
            ((uint64_t *)output_of(lane, p, rank))[i] = word(lane, p, i);
        for (size_t i = 0; r->outputs && !has_words && i < r->output[0].bytes / sizeof(float); i++)
            output_of(lane, p, rank)[i] =
                holder < workers ? output_of(lane, p, holder)[i] : element(lane, p, i);
        fabric_notify(lane->workers[rank].conn, r->word, NULL);
    }
}

static void commit(struct script_lane *lane, struct script_piece *p)
{
    for (uint32_t rank = 0; rank < SCRIPT_WORKERS_MAX; rank++) {
        if (!script_has(lane->rig, rank))
            continue;
        struct record_commit commit = {
            .kind = RECORD_COMMIT, .count = 1, .words = {said(p, rank)->word}};
        say(&lane->workers[rank], &commit, sizeof commit);
    }
    p->round++;
    p->is_summed = false;
}

static void advance(struct script_lane *lane, struct script_piece *p)
{
    struct service_rig *rig = lane->rig;
    while (!p->is_recovering && is_complete(rig, p)) {
        if (!p->is_summed && (rig->holds_results || rig->held_lanes >> lane->number & 1))
            return;
        if (!p->is_summed)
            sum(lane, p);
        p->is_summed = true;
        if (rig->holds_commits)
            return;
        commit(lane, p);
    }
}

void script_lane_resume(struct service_rig *rig)
{
    for (uint32_t i = 0; i < rig->pieces_count; i++) {
        struct script_lane *lane = &rig->lanes[rig->pieces[i].lane];
        if (!lane->fabric)
            continue;
        advance(lane, &rig->pieces[i]);
        fabric_flush(lane->fabric);
    }
}

void script_lane_recover(struct service_rig *rig, struct script_piece *p)
{
    p->is_recovering = true;
    p->is_summed = false;
    p->spoken = p->entering = 0;
    p->round = 0;
    memset(p->said, 0, sizeof p->said);
}

/* Sends COMMIT for the last round to each rank that has announced this round, because another rank
 * has reported the round as committed (W5). */
static void catch_up(struct script_lane *lane, struct script_piece *p)
{
    for (uint32_t rank = 0; rank < SCRIPT_WORKERS_MAX; rank++) {
        const struct record_ready *r = &p->said[rank][(p->round - 1) & 1];
        if (!script_has(lane->rig, rank) || r->round == 0 || r->round != p->round - 1 ||
            r->standing == RECORD_IDLE)
            continue;
        struct record_commit commit = {.kind = RECORD_COMMIT, .count = 1, .words = {r->word}};
        say(&lane->workers[rank], &commit, sizeof commit);
    }
}

static void end_recovery(struct script_worker *w, struct script_piece *p)
{
    p->spoken |= 1u << w->rank;
    for (uint32_t rank = 0; rank < SCRIPT_WORKERS_MAX; rank++) {
        if (script_has(w->lane->rig, rank) && !(p->spoken >> rank & 1))
            return;
    }
    p->is_recovering = false;
    catch_up(w->lane, p);
    if (!w->lane->rig->holds_entries)
        script_lane_welcome(w->lane->rig, p);
}

/* Collects the standings of all ranks (a standing is a rank's report of its last round to the new
 * lane). A fast rank may send more messages before the last standing arrives. */
static void recover(struct script_worker *w, struct script_piece *p, const struct record_ready *r)
{
    const struct record_ready *before = &p->said[w->rank][(r->round - 1) & 1];
    bool keeps = before->standing == RECORD_HOLDS && before->round == r->round - 1;
    uint64_t committed = r->standing == RECORD_IDLE ? r->round : r->round - 1 - keeps;
    if (committed + 1 > p->round)
        p->round = committed + 1;
    end_recovery(w, p);
}

void script_lane_welcome(struct service_rig *rig, struct script_piece *p)
{
    for (uint32_t rank = 0; rank < SCRIPT_WORKERS_MAX; rank++) {
        struct record_closed closed = {
            .kind = RECORD_CLOSED, .word = p->entering_word[rank], .round = p->round - 1};
        if (p->entering >> rank & 1)
            say(&rig->lanes[p->lane].workers[rank], &closed, sizeof closed);
    }
}

/* Handles a late worker, which only reports that it will take part in rounds. */
static void enter(struct script_worker *w, struct script_piece *p, const struct record_ready *ready)
{
    p->entering |= 1u << w->rank;
    p->entering_word[w->rank] = ready->word;
    if (p->is_recovering)
        end_recovery(w, p);
}

/* ---- messages ---- */

static void hear_ready(struct script_worker *w, const struct record_ready *ready)
{
    struct service_rig *rig = w->lane->rig;
    assert_true(rig->heard_count < SCRIPT_LOG_MAX);
    rig->heard[rig->heard_count++] = (struct script_heard){w->lane->number, w->rank, *ready};
    assert_true(ready->piece < rig->pieces_count);
    struct script_piece *p = &rig->pieces[ready->piece];
    if (p->lane != w->lane->number || p->epoch != ready->epoch) {
        script_lane_say_error(rig, w->lane->number, w->rank, ready->word, -ESTALE, "moved");
        return;
    }
    if (ready->standing == RECORD_ENTERS) {
        enter(w, p, ready);
        return;
    }
    struct record_ready *said = &p->said[w->rank][ready->round & 1];
    *said = *ready;
    if (ready->standing == RECORD_KEEPS) {
        said->standing = RECORD_HOLDS; /* the rank has stored an earlier result; its next record
                                        * contains its standing */
        return;
    }
    if (p->is_recovering)
        recover(w, p, ready);
    advance(w->lane, p);
}

static void hear_query(struct script_worker *w, const struct record_query *query)
{
    struct service_rig *rig = w->lane->rig;
    struct record_missing missing = {.kind = RECORD_MISSING, .word = query->word};
    missing.round = rig->pieces[query->piece].round;
    for (uint32_t rank = 0; rank < rig->workers && query->round == 0; rank++)
        missing.ranks[0] |= UINT64_C(1) << rank;
    for (uint32_t rank = 0; rank < rig->workers && query->round > 0; rank++) {
        if (rig->pieces[query->piece].said[rank][query->round & 1].round != query->round)
            missing.ranks[0] |= UINT64_C(1) << rank;
    }
    if (!rig->is_silent)
        say(w, &missing, sizeof missing);
}

static void hear(struct script_worker *w, const struct fabric_event *event)
{
    union record record;
    size_t bytes;
    if (w->is_dropped)
        return fabric_disconnect(event->conn);
    assert_int_equal(record_check(event->data, event->bytes, &record, &bytes), 0);
    bool is_of_table = record.kind == RECORD_QUERY && record.query.is_of_table;
    if (record.kind == RECORD_ROWS || record.kind == RECORD_CLOCK || is_of_table)
        script_table_hear(w, &record);
    else if (record.kind == RECORD_READY)
        hear_ready(w, &record.ready);
    else if (record.kind == RECORD_QUERY)
        hear_query(w, &record.query);
    else if (record.kind == RECORD_CHOSEN)
        w->lane->rig->chosen_heard[w->lane->number] =
            w->lane->rig->chosen_heard[w->lane->number] << 8 | (record.chosen.round & 0xff);
    else if (record.kind == RECORD_LEAVE)
        w->lane->rig->lane_leaves++;
}

static void answer_request(struct script_lane *lane, const struct fabric_event *event)
{
    struct record_connect ticket;
    assert_int_equal(event->bytes, sizeof ticket);
    memcpy(&ticket, event->data, sizeof ticket);
    lane->rig->tickets_seen = lane->rig->tickets_seen << 8 | ticket.token[0];
    if (lane->rig->refusals > 0) {
        lane->rig->refusals--;
        lane->rig->refused++;
        fabric_refuse(event->conn, EACCES);
        return;
    }
    struct script_worker *w = &lane->workers[ticket.rank];
    *w = (struct script_worker){.conn = event->conn, .lane = lane, .rank = ticket.rank};
    assert_int_equal(fabric_accept(event->conn, w), 0);
    lane->accepted++;
}

static void handle(struct script_lane *lane, const struct fabric_event *event)
{
    struct script_worker *w = event->owner;
    if (event->kind == FABRIC_EVENT_REQUEST) {
        answer_request(lane, event);
    } else if (event->kind == FABRIC_EVENT_MESSAGE) {
        hear(w, event);
        fabric_message_done(event->conn, event->data);
    } else if (event->kind == FABRIC_EVENT_CLOSED && w && w->conn == event->conn) {
        w->conn = NULL;
    }
}

void script_lane_turn(struct script_lane *lane)
{
    struct fabric_event events[16];
    int n;
    while ((n = fabric_poll(lane->fabric, events, 16)) > 0) {
        for (int i = 0; i < n; i++)
            handle(lane, &events[i]);
    }
    fabric_flush(lane->fabric);
}
