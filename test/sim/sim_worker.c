/* A worker: the client's side of the protocol as one state machine for each piece, without the
 * client library. Pushes in random order, reports the state of its rounds to a new owner, and
 * never contacts a new owner before the old one is disconnected (W5). sim_check.c checks all
 * messages that the worker receives. */
#include "test/sim/sim_types.h"

#include "svc/reduce/reduce.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static struct sim_piece *piece_at(struct sim_worker *w, uint32_t index)
{
    return &w->job->pieces[index];
}

static bool link_is_used(const struct sim_worker *w, uint32_t number)
{
    for (uint32_t i = 0; i < w->job->pieces_count; i++) {
        if (w->views[i].lane == number)
            return true;
    }
    return false;
}

/* --- telling --- */

static void describe(struct sim_worker *w, const struct sim_piece *piece, uint64_t round,
                     uint8_t standing, struct record_ready *ret_ready)
{
    const struct sim_view *v = &w->views[piece->id - 1];
    struct sim_plan plan = plan_of(piece, round ? round : 1);
    uint64_t bytes = piece->elements * sizeof(float);
    uint32_t buffer = w->job->is_double ? round & 1 : 0;
    *ret_ready = (struct record_ready){.kind = RECORD_READY,
                                       .operation = plan.operation,
                                       .dtype = REDUCE_F32,
                                       .standing = standing,
                                       .piece = piece->id,
                                       .word = RECORD_WORD_NONE,
                                       .round = round,
                                       .epoch = v->epoch,
                                       .root = plan.root,
                                       .loss = NAN,
                                       .priority = UINT32_MAX - piece->id,
                                       .weight = RECORD_WEIGHT,
                                       .gradient = RECORD_GRADIENT};
    if (piece->kind == SIM_UPDATE && round == 0)
        ret_ready->operation = RECORD_UPDATE;
    if (standing == RECORD_IDLE || standing == RECORD_FAILED)
        return;
    ret_ready->word = v->open[round & 1].word;
    if (plan_has_input(plan, w->rank)) {
        ret_ready->input_region = SIM_INPUTS;
        ret_ready->input_offset = piece->input_offset[buffer];
        ret_ready->input_bytes = bytes;
    }
    if (plan_has_output(plan, w->rank)) {
        ret_ready->outputs = 1;
        ret_ready->output[0] = (struct record_output){.source = RECORD_SOURCE_RESULT,
                                                      .count = 1,
                                                      .region = SIM_LANDINGS,
                                                      .offset = piece->landing_offset[buffer],
                                                      .bytes = bytes};
    }
}

/* Sends the settings of a round, unless this connection has sent the same settings before (W14). */
static int send_settings(struct sim_worker *w, const struct sim_piece *piece, uint64_t round)
{
    struct sim_link *link = &w->links[w->views[piece->id - 1].lane];
    const struct update_settings s = kind_settings(piece, round);
    const struct record_settings record = {.kind = RECORD_SETTINGS,
                                           .rate = s.rate,
                                           .weight_decay = s.weight_decay,
                                           .momentum = s.momentum,
                                           .dampening = s.dampening,
                                           .beta1 = s.beta1,
                                           .beta2 = s.beta2,
                                           .epsilon = s.epsilon};
    if (memcmp(&link->settings, &record, sizeof record) == 0)
        return 0;
    int r = fabric_send(link->conn, &record, sizeof record, NULL, 0);
    if (r == 0)
        link->settings = record;
    return r;
}

static int send_ready(struct sim_worker *w, const struct sim_piece *piece, uint64_t round,
                      uint8_t standing)
{
    struct sim_view *v = &w->views[piece->id - 1];
    struct record_ready ready;
    const void *payload = NULL;
    describe(w, piece, round, standing, &ready);
    bool is_idle = standing == RECORD_IDLE || standing == RECORD_FAILED;
    if (ready.operation == RECORD_UPDATE && w->rank == 0 && !is_idle) {
        int r = send_settings(w, piece, round);
        if (r < 0)
            return r;
    }
    if (w->job->is_inline && standing == RECORD_ANNOUNCE &&
        ready.input_bytes <= w->sim->options.payload_bytes_max && !w->is_mapped) {
        ready.payload_bytes = (uint32_t)ready.input_bytes;
        payload = ready.payload_bytes ? input_at(w, piece, round) : NULL;
    }
    return fabric_send(w->links[v->lane].conn, &ready, sizeof ready, payload, ready.payload_bytes);
}

static int send_open(struct sim_worker *w, const struct sim_piece *piece, struct sim_open *o)
{
    bool is_last = o->round == w->views[piece->id - 1].begun;
    uint8_t holds = is_last ? RECORD_HOLDS : RECORD_KEEPS;
    return send_ready(w, piece, o->round, o->standing == SIM_LANDED ? holds : RECORD_ANNOUNCE);
}

static bool may_speak(const struct sim_worker *w, const struct sim_view *v)
{
    return v->fence == SIM_NOWHERE && w->links[v->lane].state == SIM_LINK_OPEN;
}

/* Sends announcements in the order of rounds. The announcement of the first open round informs a
 * new owner which rounds are committed (W5). Returns false if the send queue is full. */
static bool flush_piece(struct sim_worker *w, struct sim_piece *piece)
{
    struct sim_view *v = &w->views[piece->id - 1];
    if (!may_speak(w, v))
        return true;
    if (copy_tell(w, piece) < 0)
        return false;
    uint8_t idle = v->has_failed ? RECORD_FAILED : RECORD_IDLE;
    if (v->owes_idle && send_ready(w, piece, v->committed, idle) < 0)
        return false;
    w->sim->result.standings += v->owes_idle;
    v->owes_idle = false;
    for (uint64_t round = v->committed + 1; round <= v->begun; round++) {
        struct sim_open *o = &v->open[round & 1];
        if (o->is_unsent && send_open(w, piece, o) < 0)
            return false;
        o->is_unsent = false;
    }
    return true;
}

static void flush(struct sim_worker *w)
{
    for (uint32_t i = 0; i < w->job->pieces_count; i++)
        (void)flush_piece(w, piece_at(w, i));
}

/* --- messages from lanes --- */

/* Finds the open round to which a word from this lane belongs. NULL: the round is no longer open,
 * or the piece has another lane now. */
static struct sim_open *find_word(struct sim_worker *w, const struct sim_link *link, uint32_t word,
                                  struct sim_piece **ret_piece)
{
    sim_require(w->sim, word < w->next_word, "job %u rank %u: nobody gave out word %u", w->job->id,
                w->rank, word);
    for (uint32_t i = 0; i < w->job->pieces_count; i++) {
        struct sim_view *v = &w->views[i];
        for (int k = 0; k < 2; k++) {
            if (v->lane != link->number || v->open[k].standing == SIM_IDLE ||
                v->open[k].word != word)
                continue;
            *ret_piece = piece_at(w, i);
            return &v->open[k];
        }
    }
    return NULL;
}

static void commit(struct sim_worker *w, struct sim_piece *piece, struct sim_open *o)
{
    struct sim_view *v = &w->views[piece->id - 1];
    sim_require(w->sim, o->round == v->committed + 1,
                "job %u rank %u piece %u: round %" PRIu64 " is committed after round %" PRIu64,
                w->job->id, w->rank, piece->id, o->round, v->committed);
    check_committed(w, piece, o->round);
    v->committed = o->round;
    *o = (struct sim_open){0};
    w->sim->result.commits++;
}

/* A lane opens a round only after the commit of the previous one. So for a worker that is a round
 * ahead, this message also means that the previous round is committed. */
static void commit_before(struct sim_worker *w, struct sim_piece *piece, const struct sim_open *o)
{
    struct sim_view *v = &w->views[piece->id - 1];
    if (o->round == v->committed + 2)
        commit(w, piece, &v->open[(o->round - 1) & 1]);
}

static void take_commit(struct sim_worker *w, struct sim_piece *piece, struct sim_open *o)
{
    commit_before(w, piece, o);
    commit(w, piece, o);
}

/* Handles CLOSED: the worker was late, and the result of this round was written without a word. The
 * next round of the worker follows this round (W12). */
static void take_closed_round(struct sim_worker *w, struct sim_piece *piece, struct sim_open *o,
                              uint64_t round)
{
    struct sim_view *v = &w->views[piece->id - 1];
    sim_require(w->sim, piece->kind == SIM_FIRST && round >= o->round,
                "job %u rank %u piece %u round %" PRIu64 ": closed by round %" PRIu64, w->job->id,
                w->rank, piece->id, o->round, round);
    uint64_t landed = check_landed(w, piece, o->round);
    sim_require(w->sim, landed == round,
                "job %u rank %u piece %u: result of round %" PRIu64 ", told %" PRIu64, w->job->id,
                w->rank, piece->id, landed, round);
    spoil(w, piece, o->round);
    v->begun = v->committed = round;
    w->sim->result.results += o->standing == SIM_ANNOUNCED;
    *o = (struct sim_open){0};
    w->sim->result.commits++;
}

/* Returns whether rounds may be repeated. When a connection ends, its open round is repeated for
 * all ranks with the same bits. */
static bool has_repeats(const struct sim *sim)
{
    const struct sim_options *o = &sim->options;
    return o->cuts > 0 || o->worker_deaths > 0 || o->fault.fault == MEM_FAULT_RESET;
}

static void take_word(struct sim_worker *w, const struct sim_link *link, uint32_t word)
{
    struct sim_piece *piece;
    struct sim_open *o = find_word(w, link, word, &piece);
    if (!o)
        return;
    bool is_again = o->standing == SIM_LANDED && has_repeats(w->sim);
    sim_require(w->sim, o->standing == SIM_ANNOUNCED || is_again,
                "job %u rank %u piece %u round %" PRIu64 ": the result came twice", w->job->id,
                w->rank, piece->id, o->round);
    if (!is_again)
        commit_before(w, piece, o);
    sim_require(w->sim, check_landed(w, piece, o->round) == o->round,
                "job %u rank %u piece %u round %" PRIu64 ": a word for a result of another round",
                w->job->id, w->rank, piece->id, o->round);
    o->standing = SIM_LANDED;
    w->sim->result.results++;
}

/* Handles the loss of a piece's state: each worker of the piece is informed, and no more rounds of
 * the piece begin. */
static bool take_loss(struct sim_worker *w, const struct sim_link *link, uint32_t word)
{
    struct sim_piece *piece;
    struct sim_open *o = word == RECORD_WORD_NONE ? NULL : find_word(w, link, word, &piece);
    if (!o)
        return word != RECORD_WORD_NONE;
    sim_require(w->sim, piece->state_died, "job %u rank %u piece %u: no state of it was lost",
                w->job->id, w->rank, piece->id);
    struct sim_view *v = &w->views[piece->id - 1];
    v->has_failed = true;
    v->begun = v->committed;
    v->open[0] = v->open[1] = (struct sim_open){0};
    w->sim->result.losses++;
    return true;
}

static void take_error(struct sim_worker *w, const struct sim_link *link,
                       const struct record_error *error)
{
    char text[RECORD_TEXT_BYTES + 1] = {0}, name[16];
    struct sim_piece *piece;
    if (error->word != RECORD_WORD_NONE && error->code == -ESTALE)
        return; /* a new route will follow */
    if (error->code == -EOWNERDEAD && take_loss(w, link, error->word))
        return;
    memcpy(text, error->text, error->text_bytes);
    if (error->code == -ENOMEM && w->sim->options.allocation_fails)
        fate_doom(w->sim, w->job, SIM_NOWHERE);
    if (error->word == RECORD_WORD_NONE || w->job->is_doomed) {
        snprintf(name, sizeof name, w->job->victim == SIM_NOWHERE ? "rank " : "rank %u",
                 w->job->victim);
        sim_require(w->sim, w->job->is_doomed, "job %u rank %u got: %s", w->job->id, w->rank, text);
        bool is_named = strstr(text, name) || (error->code == -ENOMEM && strstr(text, "memory"));
        sim_require(w->sim, is_named, "job %u rank %u: %s should name %s", w->job->id, w->rank,
                    text, name);
        w->has_error = true;
        return;
    }
    sim_require(w->sim, !find_word(w, link, error->word, &piece), "job %u rank %u piece %u got: %s",
                w->job->id, w->rank, piece->id, text);
}

static void take_message(struct sim_worker *w, struct sim_link *link,
                         const struct fabric_event *event)
{
    union record record;
    size_t bytes;
    struct sim_piece *piece;
    int r = record_check(event->data, event->bytes, &record, &bytes);
    sim_require(w->sim, r == 0, "job %u rank %u got a bad record", w->job->id, w->rank);
    sim_note(w->sim, record.kind);
    if (record.kind == RECORD_ERROR) {
        take_error(w, link, &record.error);
    } else if (record.kind == RECORD_COMMIT) {
        for (uint32_t i = 0; i < record.commit.count; i++) {
            sim_note(w->sim, record.commit.words[i]);
            struct sim_open *o = find_word(w, link, record.commit.words[i], &piece);
            if (o)
                take_commit(w, piece, o);
        }
    } else if (record.kind == RECORD_CLOSED) {
        struct sim_open *o = find_word(w, link, record.closed.word, &piece);
        if (o)
            take_closed_round(w, piece, o, record.closed.round);
    } else {
        sim_require(w->sim, record.kind == RECORD_TICKET, "job %u rank %u got record %u",
                    w->job->id, w->rank, record.kind);
    }
    fabric_message_done(event->conn, event->data);
}

static void take_open(struct sim_worker *w, struct sim_link *link)
{
    link->state = SIM_LINK_OPEN;
    for (uint32_t id = 0; id < (w->sim->options.has_copies ? SIM_REGIONS : SIM_COPIES); id++) {
        int r = fabric_lend(link->conn, &w->regions[id], id);
        sim_require(w->sim, r == 0 || r == -ECONNRESET, "cannot lend: %d", r);
    }
}

/* Sends all messages about the piece again, on another connection or to another lane. */
static void say_again(struct sim_view *v)
{
    v->owes_idle = v->begun == v->committed;
    v->told_copy = false;
    for (int k = 0; k < 2; k++)
        v->open[k].is_unsent = v->open[k].standing != SIM_IDLE;
}

/* Connects again to a lane that still runs (A69, A70). */
static void come_back(struct sim_worker *w, struct sim_link *link)
{
    link->state = SIM_LINK_NONE;
    link->settings = (struct record_settings){0};
    for (uint32_t i = 0; i < w->job->pieces_count; i++) {
        if (w->views[i].lane == link->number)
            say_again(&w->views[i]);
    }
    w->sim->result.comebacks++;
}

/* Handles the end of a connection: pieces that waited for this end are announced to their next
 * owner. */
static void take_closed(struct sim_worker *w, struct sim_link *link)
{
    bool is_over = !w->sim->lanes[link->number].is_alive || w->job->is_dropped || w->has_left ||
                   !link_is_used(w, link->number);
    link->state = SIM_LINK_CLOSED;
    link->conn = NULL;
    for (uint32_t i = 0; i < w->job->pieces_count; i++) {
        if (w->views[i].fence == link->number)
            w->views[i].fence = SIM_NOWHERE;
    }
    if (!is_over)
        come_back(w, link);
}

static void take(struct sim_worker *w, const struct fabric_event *event)
{
    struct sim_link *link = event->owner;
    sim_note(w->sim, (uint64_t)event->kind << 32 ^ event->word ^ (uint64_t)event->error << 48);
    switch (event->kind) {
    case FABRIC_EVENT_OPEN: take_open(w, link); break;
    case FABRIC_EVENT_MESSAGE: take_message(w, link, event); break;
    case FABRIC_EVENT_WORD: take_word(w, link, event->word); break;
    case FABRIC_EVENT_ROOM: break; /* flush() is called after the events */
    case FABRIC_EVENT_CLOSED: take_closed(w, link); break;
    default: sim_fail(w->sim, "a worker got event %d", event->kind);
    }
}

/* --- routes --- */

static void connect_lane(struct sim_worker *w, uint32_t number)
{
    struct sim_link *link = &w->links[number];
    struct record_connect ticket;
    if (link->state != SIM_LINK_NONE || !coordinator_grant(w->sim, w, number, &ticket))
        return;
    link->number = number;
    int r = fabric_connect(w->fabric, w->sim->lanes[number].address, &ticket, sizeof ticket, link,
                           &link->conn);
    sim_require(w->sim, r == 0, "cannot connect: %d", r);
    link->state = SIM_LINK_CONNECTING;
}

/* Sends messages to the new owner after the old one is disconnected. Uses new words, because the
 * piece may return to a lane whose earlier COMMIT is still in flight. */
static void adopt(struct sim_worker *w, struct sim_view *v)
{
    uint32_t old = v->lane;
    v->lane = v->next_lane;
    v->epoch = v->next_epoch;
    v->next_lane = SIM_NOWHERE;
    for (int k = 0; k < 2; k++)
        v->open[k].word = w->next_word++;
    say_again(v);
    /* The fence stays until its lane is disconnected, because the worker has contacted no later
     * owner. A lane that has released the piece does not write any more, even before its end. */
    if (v->fence == SIM_NOWHERE && old != v->lane && !v->is_released &&
        !w->sim->lanes[old].is_alive && w->links[old].conn)
        v->fence = old;
    v->is_released = false;
    w->sim->result.standings++;
}

static bool adopt_routes(struct sim_worker *w)
{
    bool did = false;
    for (uint32_t i = 0; i < w->job->pieces_count; i++) {
        if (w->views[i].next_lane == SIM_NOWHERE)
            continue;
        did = true;
        if (sim_chance(w->sim, 4))
            adopt(w, &w->views[i]);
    }
    for (uint32_t i = 0; i < w->sim->lanes_count && did; i++) {
        if (w->links[i].conn && !w->sim->lanes[i].is_alive && !link_is_used(w, i))
            fabric_disconnect(w->links[i].conn);
    }
    return did;
}

/* --- the worker's own actions --- */

bool worker_is_finished(const struct sim_worker *w)
{
    if (w->is_killed || w->has_left)
        return true;
    for (uint32_t i = 0; i < w->job->pieces_count; i++) {
        bool is_over = w->views[i].has_failed || kind_is_stranded(&w->job->pieces[i]);
        if (w->views[i].committed < w->job->rounds && !is_over)
            return false;
    }
    return true;
}

/* Returns whether the next round may begin: after the commit of the last round or, with two
 * buffers, after the arrival of its result. In runs in which no lane can be lost (`laps`), the
 * round may begin earlier; in other runs the worker could then be two rounds behind (W5). */
static bool can_begin(const struct sim_worker *w, const struct sim_view *v)
{
    const struct sim_piece *piece = &w->job->pieces[v - w->views];
    if (v->begun >= w->job->rounds || v->has_failed)
        return false;
    if (v->begun == v->committed)
        return true;
    if (!w->job->is_double || kind_is_open(piece) || v->begun > v->committed + 1 ||
        copy_is_kept(w->sim, piece))
        return false;
    return w->sim->options.laps || v->open[v->begun & 1].standing == SIM_LANDED;
}

static void begin(struct sim_worker *w, struct sim_piece *piece)
{
    struct sim_view *v = &w->views[piece->id - 1];
    uint64_t round = ++v->begun;
    sim_require(w->sim, v->open[round & 1].standing == SIM_IDLE, "two rounds in one place");
    v->open[round & 1] = (struct sim_open){
        .round = round, .standing = SIM_ANNOUNCED, .word = w->next_word++, .is_unsent = true};
    w->sim->result.laps += v->begun == v->committed + 2;
    check_begin(w, piece, round);
}

/* Begins rounds. Returns false if a commit must arrive before another round can begin. */
static bool begin_some(struct sim_worker *w)
{
    uint32_t first = (uint32_t)sim_draw(w->sim, w->job->pieces_count);
    bool could = false;
    for (uint32_t i = 0; i < w->job->pieces_count; i++) {
        uint32_t index = (first + i) % w->job->pieces_count;
        if (!can_begin(w, &w->views[index]))
            continue;
        could = true;
        if (sim_chance(w->sim, 2))
            continue;
        connect_lane(w, w->views[index].lane);
        begin(w, piece_at(w, index));
    }
    return could;
}

static void repeat_some(struct sim_worker *w)
{
    uint32_t index = (uint32_t)sim_draw(w->sim, w->job->pieces_count);
    struct sim_view *v = &w->views[index];
    struct sim_open *o = &v->open[sim_draw(w->sim, 2)];
    if (!sim_chance(w->sim, 4) || o->standing == SIM_IDLE || o->is_unsent || v->owes_idle ||
        !may_speak(w, v))
        return;
    if (send_open(w, piece_at(w, index), o) == 0)
        w->sim->result.repeats++;
}

static bool holds_everything(const struct sim_worker *w)
{
    for (uint32_t i = 0; i < w->job->pieces_count; i++) {
        const struct sim_view *v = &w->views[i];
        const struct sim_open *last = &v->open[w->job->rounds & 1];
        if (v->committed < w->job->rounds && !v->has_failed &&
            (v->committed + 1 < w->job->rounds || last->standing != SIM_LANDED))
            return false;
    }
    return true;
}

/* Sends a goodbye on every connection, and leaves. If the send queue is full, the goodbye is sent
 * later, because the end of a worker without a goodbye fails the job. */
static void leave(struct sim_worker *w)
{
    struct record_leave leave = {.kind = RECORD_LEAVE};
    w->has_left = true;
    for (uint32_t i = 0; i < w->sim->lanes_count; i++) {
        struct sim_link *link = &w->links[i];
        if (!link->conn || link->said_goodbye)
            continue;
        if (link->state == SIM_LINK_OPEN &&
            fabric_send(link->conn, &leave, sizeof leave, NULL, 0) == -EAGAIN)
            continue;
        link->said_goodbye = true;
        fabric_disconnect(link->conn);
    }
}

/* Adopts new routes first, so that a new round uses them. */
static bool act(struct sim_worker *w)
{
    bool did = adopt_routes(w);
    for (uint32_t i = 0; i < w->job->pieces_count; i++)
        connect_lane(w, w->views[i].lane);
    did |= begin_some(w);
    flush(w);
    if (w->sim->options.repeats)
        repeat_some(w);
    if (w->sim->options.leaves_early && holds_everything(w) && sim_chance(w->sim, 3))
        leave(w);
    return did;
}

bool worker_turn(struct sim_worker *w)
{
    struct fabric_event events[16];
    int count = fabric_poll(w->fabric, events, 1 + (int)sim_draw(w->sim, 16));
    for (int i = 0; i < count; i++)
        take(w, &events[i]);
    if (w->has_left)
        leave(w);
    if (w->has_left || w->has_error || w->job->is_dropped)
        return count > 0;
    return act(w) || count > 0;
}
