/* Weight, deal and step records of a job, as one worker knows them. The job's lock protects the
 * state; rooms above own it. */
#ifndef GRADPOOL_CLIENT_ELASTIC_STEPS_H
#define GRADPOOL_CLIENT_ELASTIC_STEPS_H

#include "client/lib/elastic/step_words.h"
#include "svc/wire/terms.h"

struct gp_request;
struct gp_tensor;

/* Names of the hidden tensors. */
#define STEPS_RECORD_NAME TERMS_STEPS_NAME
#define STEPS_CARRY_NAME "gradpool.carry"
#define STEPS_CARRY_WORDS 1024 /* words of one round of the hand-over */

/* The part of gp_step_begin() that comes next. */
enum steps_phase {
    STEPS_NEXT,    /* the record of the next step is to be sent */
    STEPS_RECORD,  /* the record of this step is under way */
    STEPS_BODY,    /* a rank without the state has the record, and trains with weight 0 */
    STEPS_CARRY,   /* the deal is handed over */
    STEPS_CARRIED, /* the script hands its state over */
    STEPS_LAST,    /* a record without a step is under way; then this rank leaves the deal */
    STEPS_OVER,    /* this rank has left the deal, or the training has ended */
};

struct job_steps {
    uint32_t weight; /* of gradients that are pushed from now on */
    /* of a job with a deal */
    struct gp_tensor *record, *carry; /* hidden tensors; NULL: no deal was declared */
    enum steps_phase phase;
    int failure;                /* error after which no step can begin; 0: none */
    bool is_used;               /* a thread is in gp_step_begin() */
    bool holds;                 /* this rank has the state of the training */
    bool has_missed;            /* the script has not received the state of the giver */
    bool is_leaving;            /* announced in the last record and in all later ones */
    uint64_t number;            /* step whose record was sent last; 0: none, or not known yet */
    struct step_deal *deal;     /* without the state only its `spec` */
    struct step_sum sum;        /* of the last record */
    struct gp_request *request; /* open round of `record` or `carry`; NULL: none */
    uint64_t sent[STEP_WORDS_COUNT], heard[STEP_WORDS_COUNT];
    /* words of a hand-over: their number, 0: not known; how many have arrived; at the giver and at
     * late workers all of them, or NULL */
    size_t carried_total, carried_count;
    uint64_t *carried;
    uint64_t chunk_sent[STEPS_CARRY_WORDS], chunk_heard[STEPS_CARRY_WORDS];
};

#endif
