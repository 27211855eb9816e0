/* Hands values over from the lowest member of the former stage to the ranks that were not in it: a
 * broadcast over a hidden tensor of these ranks, so each new rank gets one write of a lane. The
 * source of FlexPS sends from worker to worker; over a lane is our reconstruction. */
#include "client/lib/border/internal.h"
#include "client/lib/declare/declare.h"
#include "client/lib/session/process.h"
#include "svc/base/clock.h"
#include "svc/base/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define WORD_BYTES 4

struct hand_over {
    const struct stage_call *call;
    uint32_t giver, count;
    uint32_t ranks[RANKS_WORDS * 64]; /* the giver and the new ranks */
    uint64_t bytes;
    char name[256];
    void *buffer;
};

uint64_t carry_bytes(const gp_stage_spec *spec)
{
    uint64_t bytes = 0;
    for (size_t i = 0; spec && i < spec->carry_count; i++)
        bytes += spec->carry[i].bytes;
    return bytes;
}

/* Finds the ranks of the hand-over. Returns whether this rank takes part. */
static bool hand_over_find_ranks(struct hand_over *h, const uint64_t *members)
{
    const uint64_t *former = h->call->stage->members;
    bool is_mine = false;
    h->giver = 0;
    while (!ranks_have(former, h->giver))
        h->giver++;
    for (uint32_t rank = 0; rank < h->call->job->workers; rank++) {
        bool is_new = ranks_have(members, rank) && !ranks_have(former, rank);
        if (!is_new && rank != h->giver)
            continue;
        h->ranks[h->count++] = rank;
        is_mine |= rank == h->call->job->rank;
    }
    return is_mine && h->count > 1;
}

/* The name has the ranks and the number of bytes, so that a later hand-over of the same ranks uses
 * the same tensor. */
static int hand_over_name(struct hand_over *h)
{
    uint64_t set[RANKS_WORDS] = {0};
    int words = RANKS_WORDS;
    for (uint32_t i = 0; i < h->count; i++)
        ranks_add(set, h->ranks[i]);
    while (words > 1 && set[words - 1] == 0)
        words--;
    *h->name = '\0';
    text_append(h->name, sizeof h->name, NAME_RESERVED "carry.%" PRIu64 ".", h->bytes);
    for (int i = 0; i < words; i++)
        text_append(h->name, sizeof h->name, "%" PRIx64 "%s", set[i], i + 1 < words ? "." : "");
    return 0;
}

static void hand_over_copy(const struct hand_over *h, bool gives)
{
    const gp_stage_spec *spec = h->call->spec;
    char *at = h->buffer;
    for (size_t i = 0; i < spec->carry_count; at += spec->carry[i++].bytes) {
        const gp_carry *item = &spec->carry[i];
        if (item->bytes > 0)
            memcpy(gives ? at : item->values, gives ? item->values : at, item->bytes);
    }
}

static int hand_over_broadcast(struct hand_over *h)
{
    struct gp_job *job = h->call->job;
    uint64_t now_ns = clock_now_ns();
    uint64_t left_ns = h->call->deadline_ns > now_ns ? h->call->deadline_ns - now_ns : 1;
    gp_tensor_spec spec = {.name = h->name,
                           .dtype = GP_I32,
                           .elements = (h->bytes + WORD_BYTES - 1) / WORD_BYTES,
                           .ranks = h->ranks,
                           .ranks_count = h->count};
    struct gp_tensor *tensor;
    gp_request *request;
    int error = declare_together(job, &spec, 1, NULL, 0, &tensor);
    if (error == 0)
        error = gp_broadcast(tensor, h->buffer, h->giver, &request);
    return error == 0 ? gp_wait(request, (int)(left_ns / NS_PER_MS) + 1) : error;
}

static int hand_over_run(struct hand_over *h)
{
    struct gp_job *job = h->call->job;
    bool gives = job->rank == h->giver;
    size_t room = (size_t)(h->bytes + WORD_BYTES);
    int error = gp_alloc(job, room, &h->buffer);
    if (error < 0)
        return error;
    memset((char *)h->buffer + h->bytes, 0, WORD_BYTES);
    if (gives)
        hand_over_copy(h, true);
    error = hand_over_broadcast(h);
    if (error == 0 && !gives)
        hand_over_copy(h, false);
    /* After an error a lane may still use the buffer, which then lives as long as the job. */
    if (error == 0)
        gp_free(job, h->buffer);
    return error;
}

int carry_hand_over(const struct stage_call *call, const uint64_t *members)
{
    struct hand_over *h = calloc(1, sizeof *h);
    int error = 0;
    if (!h)
        return client_error(-ENOMEM, "job '%s': this process has no memory for a hand-over",
                            call->job->name);
    h->call = call;
    h->bytes = carry_bytes(call->spec);
    if (h->bytes > 0 && hand_over_find_ranks(h, members)) {
        hand_over_name(h);
        call->stage->is_carrying = true;
        error = hand_over_run(h);
        call->stage->is_carrying = false;
    }
    free(h);
    return error;
}
