/* The failure of a piece: every announcement is answered with the error, and the open round ends.
 * RULES.md: A4. */
#include "svc/lane/round/piece_failure.h"

#include "svc/lane/piece/piece.h"
#include "svc/lane/piece/quorum.h"
#include "svc/lane/piece/rest.h"
#include "svc/lane/piece/takers.h"
#include "svc/lane/state/parameters.h"
#include "svc/lane/turn/account.h"
#include "svc/lane/worker/serving.h"

#include <stdarg.h>
#include <stdio.h>

void round_rest(struct piece *p)
{
    for (uint32_t i = 0; i < p->members; i++) {
        struct rank *rank = &p->ranks[i];
        if (rank->part && rank->worker->holding == rank->part)
            worker_drop_payload(rank->worker);
        rank->part = NULL;
    }
    account_done(p);
    if (p->parameters)
        p->parameters->fetched = p->parameters->filled = 0;
    p->is_copy = false;
    p->state = PIECE_COLLECTING;
    if (p->is_held)
        piece_rest(p);
}

/* Sends the error for every announcement without an answer, including announcements of the next
 * round. */
static void tell_failure(struct piece *p)
{
    for (uint32_t i = 0; i < p->members; i++) {
        struct rank *rank = &p->ranks[i];
        for (int k = 0; k < 2; k++) {
            struct announcement *a = &rank->said[k];
            bool is_open = a == rank->late || a->round >= quorum_round(p, rank);
            if (a == rank->late)
                serving_forget(rank);
            if (a->round && is_open && a->standing != RECORD_IDLE)
                tell_error(rank->worker, a);
        }
    }
}

void piece_fail_takers(struct piece *p)
{
    struct rank *rank = NULL;
    while (p->takers && (rank = takers_asking(p, rank))) {
        takers_forget(rank);
        tell_error(rank->worker, rank_newest(rank));
    }
}

void piece_fail(struct piece *p, int code, const char *format, ...)
{
    if (p->failure)
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(p->failure_text, sizeof p->failure_text, format, arguments);
    va_end(arguments);
    p->failure = code;
    piece_unqueue(p);
    tell_failure(p);
    piece_fail_takers(p);
    if (p->state == PIECE_RUNNABLE && p->chunks_active == 0)
        round_rest(p); /* a round with chunks in progress ends with its last chunk */
}
