/* Copies of states: this process stores copies for lanes of other aggregators, and other holders
 * store copies for the lanes of this process. Handles requests of the coordinator, and sends the
 * replica holder's requests for tickets. The holder is created on first use, because most
 * aggregators store no copy. Owns the requests that wait for complete copies. svc/lane/RULES.md:
 * A9, A49. */
#include "svc/aggregator/copying/copying.h"
#include "svc/aggregator/internal.h"
#include "svc/lane/move/moved_state.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

#define WAITS_MAX 1024 /* maximum number of pending requests */

/* A request of the coordinator that waits until the copies of these pieces are complete. */
struct copies_wait {
    struct copies_wait *next;
    uint64_t id; /* number of the request */
    uint32_t lane, job;
    size_t count;
    uint32_t pieces[];
};

/* ---- copies stored here ---- */

static void note_ask(void *context) { eventfd_write(((struct aggregator *)context)->keep_fd, 1); }

int keeping_make_holder(struct aggregator *a)
{
    const struct holder_options options = {.interface_name = a->options->interface_name,
                                           .provider = a->options->provider,
                                           .asks = note_ask,
                                           .context = a};
    return a->holder ? 0 : holder_create(&options, &a->holder);
}

static int keep(struct aggregator *a, const Gradpool__Wire__CopiesRequest *request)
{
    size_t count = request->n_copies;
    struct holder_copy *copies = calloc(count ? count : 1, sizeof *copies);
    int error = copies ? keeping_make_holder(a) : -ENOMEM;
    for (size_t i = 0; copies && i < count; i++) {
        const Gradpool__Wire__CopySpec *spec = request->copies[i];
        copies[i] = (struct holder_copy){.piece = spec->piece,
                                         .epoch = spec->epoch,
                                         .lost_epoch = spec->lost_epoch,
                                         .bytes = spec->bytes,
                                         .begins = spec->begins};
    }
    if (error == 0)
        error = holder_keep(a->holder, request->job_id, request->job, request->lane, copies, count);
    free(copies);
    return error;
}

/* ---- copies of this process's lanes ---- */

static int set_holder(struct lane *lane, void *context)
{
    const Gradpool__Wire__HolderRequest *request = context;
    lane_set_holder(lane, request->job_id, request->pieces, request->n_pieces, request->holder,
                    request->when_known);
    return 0;
}

static int look_at_copies(struct lane *lane, void *context)
{
    const struct copies_wait *w = context;
    return lane_copied(lane, w->job, w->pieces, w->count);
}

static int answer_wait(struct aggregator *a, const struct copies_wait *w, int code)
{
    char text[ERR_TEXT_BYTES];
    if (code == 0)
        return serve_reply(a, w->id, 0);
    snprintf(text, sizeof text, "lane %u, job %u: %s", w->lane, w->job,
             code == -ENOENT ? "this aggregator lacks a piece to be copied" : err_text(code));
    return serve_reply_failure(a, w->id, code, text);
}

int keeping_copied(struct aggregator *a)
{
    int sent = 0;
    for (struct copies_wait **at = &a->copies_waits, *w; (w = *at) && sent >= 0;) {
        int code = serve_call(a, w->lane, look_at_copies, w);
        if (code == -EAGAIN) {
            at = &w->next;
            continue;
        }
        sent = answer_wait(a, w, code);
        *at = w->next;
        free(w);
    }
    return sent;
}

void keeping_abandon(struct aggregator *a)
{
    for (struct copies_wait *w; (w = a->copies_waits);) {
        a->copies_waits = w->next;
        free(w);
    }
}

static int wait_for_copies(struct aggregator *a, uint64_t id,
                           const Gradpool__Wire__CopiesWait *request)
{
    size_t count = request->n_pieces, waits = 0;
    struct copies_wait *w = NULL;
    for (const struct copies_wait *other = a->copies_waits; other; other = other->next)
        waits++;
    if (waits < WAITS_MAX)
        w = malloc(sizeof *w + count * sizeof w->pieces[0]);
    if (!w)
        return serve_reply(a, id, -ENOBUFS);
    *w = (struct copies_wait){.next = a->copies_waits,
                              .id = id,
                              .lane = request->lane,
                              .job = request->job_id,
                              .count = count};
    if (count > 0)
        memcpy(w->pieces, request->pieces, count * sizeof w->pieces[0]);
    a->copies_waits = w;
    return keeping_copied(a);
}

/* ---- requests ---- */

static void take_ticket(struct aggregator *a, const Gradpool__Wire__CopyTicket *told)
{
    struct record_connect ticket = {0};
    int code = told->code;
    if (code == 0 && told->ticket.len != sizeof ticket)
        code = -EPROTO;
    if (code == 0)
        memcpy(&ticket, told->ticket.data, sizeof ticket);
    if (a->holder)
        holder_ticket(a->holder, told->job_id, told->lane, code, told->shm, told->ofi, &ticket);
}

bool keeping_knows(const envelope *request)
{
    switch (request->body_case) {
    case GRADPOOL__WIRE__ENVELOPE__BODY_COPIES_REQUEST:
    case GRADPOOL__WIRE__ENVELOPE__BODY_COPIES_END:
    case GRADPOOL__WIRE__ENVELOPE__BODY_COPIES_WAIT:
    case GRADPOOL__WIRE__ENVELOPE__BODY_COPY_TICKET:
    case GRADPOOL__WIRE__ENVELOPE__BODY_HOLDER_REQUEST: return true;
    default: return false;
    }
}

int keeping_serve(struct aggregator *a, const envelope *request)
{
    const Gradpool__Wire__CopiesEnd *end = request->copies_end;
    switch (request->body_case) {
    case GRADPOOL__WIRE__ENVELOPE__BODY_COPIES_REQUEST:
        return serve_reply(a, request->id, keep(a, request->copies_request));
    case GRADPOOL__WIRE__ENVELOPE__BODY_COPIES_END:
        if (end->n_pieces == 0 && !end->others)
            copying_end_job(a, end->job_id);
        if (a->holder)
            holder_end(a->holder, end->job_id, end->pieces, end->n_pieces, end->others);
        return serve_reply(a, request->id, 0);
    case GRADPOOL__WIRE__ENVELOPE__BODY_COPIES_WAIT:
        return wait_for_copies(a, request->id, request->copies_wait);
    case GRADPOOL__WIRE__ENVELOPE__BODY_COPY_TICKET: take_ticket(a, request->copy_ticket); return 0;
    default:
        return serve_reply(
            a, request->id,
            serve_call(a, request->holder_request->lane, set_holder, request->holder_request));
    }
}

int keeping_ask(struct aggregator *a)
{
    struct holder_ask ask;
    eventfd_t asks;
    int error = 0;
    (void)eventfd_read(a->keep_fd, &asks);
    while (error == 0 && a->holder && a->channel && holder_next_ask(a->holder, &ask))
        error = serve_answer(a, 0, COPY_TICKET_REQUEST, copy_ticket_request, .job_id = ask.job,
                             .lane = ask.lane, .failures = ask.failures);
    return error;
}

int keeping_timeout_ms(const struct aggregator *a)
{
    return a->holder && a->channel ? holder_timeout_ms(a->holder) : -1;
}

void keeping_joined(struct aggregator *a)
{
    if (a->holder)
        holder_ask_again(a->holder);
}

bool keeping_is_used(const struct aggregator *a)
{
    struct holder_use use = {0};
    if (a->holder)
        holder_measure(a->holder, &use);
    return use.connections > 0;
}
