/* Weight, deal and step records of a job on one worker. The job's lock protects the state, which
 * the files in client/lib/steps own. */
#ifndef GRADPOOL_CLIENT_ELASTIC_STEPS_H
#define GRADPOOL_CLIENT_ELASTIC_STEPS_H

#include "client/lib/elastic/step_words.h"
#include "svc/wire/terms.h"

struct gp_request;
struct gp_tensor;

/* Names of the hidden tensors. */
#define STEPS_RECORD_NAME TERMS_STEPS_NAME
#define STEPS_CARRY_NAME "gradpool.carry"
#define STEPS_END_NAME "gradpool.end"
#define STEPS_CARRY_WORDS 1024 /* words that one round of the hand-over transfers */

/* The phase in which the next gp_step_begin() continues. */
enum steps_phase {
    STEPS_NEXT,    /* the record of the next step was not sent yet */
    STEPS_RECORD,  /* the record of this step was sent, and is not complete yet */
    STEPS_BODY,    /* a rank without the state has the record, and trains with weight 0 */
    STEPS_CARRY,   /* the giver sends the deal to late workers */
    STEPS_CARRIED, /* the script of the giver sends its state to late workers */
    STEPS_MISSED,  /* like STEPS_CARRIED, on a late worker that has not received the state */
    STEPS_LAST,    /* this rank leaves the deal, and has sent its last record, which has no step */
    STEPS_END,     /* the training has ended, and this rank pushes the round of `end` */
    STEPS_OVER,    /* this rank has left the deal, or the training has ended */
};

/* Pauses and end of the steps on this rank. */
struct steps_rest {
    bool is_ended;     /* the script has ended the deal: no further step begins */
    bool is_used;      /* a thread is in gp_step_begin() */
    uint32_t newest;   /* newest number of the job's rest; odd: a rest is ordered */
    uint32_t recorded; /* number of the rest in the last record; 0: none */
    bool must_say;     /* this rank still has to inform the coordinator that it sleeps */
    /* the script has called gp_deal_rests(): instead of sleeping, the script may end its process */
    bool may_end;
    uint32_t offered; /* number of the rest for which the script got GP_RESTS last; 0: none */
    /* the script has got GP_RESTS and has not begun the next step; until then no rank completes a
     * further record */
    bool is_offered;
    uint64_t before; /* number of steps of earlier jobs of this training */
    uint64_t print;  /* hash of the cursor at which the deal began; 0: none */
};

struct job_steps {
    uint32_t weight; /* weight of gradients that are pushed from now on */
    /* the following fields are for jobs with a deal */
    /* Hidden tensors; NULL: no deal was declared. `end` has one round, at the end of the training;
     * the number of this round informs a later worker that the training has ended */
    struct gp_tensor *record, *carry, *end;
    enum steps_phase phase;
    int failure; /* error after which no step can begin; 0: none */
    bool holds;  /* this rank has the state of the training */
    /* this rank leaves, and its last record has announced that it leaves */
    bool is_leaving;
    struct steps_rest *rest;
    uint64_t number;            /* step whose record was sent last; 0: none, or not known yet */
    struct step_deal *deal;     /* on a rank without the state only `spec` is valid */
    struct step_sum sum;        /* contents of the last record */
    struct gp_request *request; /* open round of a hidden tensor; NULL: none */
    uint64_t sent[STEP_WORDS_COUNT], heard[STEP_WORDS_COUNT];
    /* state that the giver sends: number of its words (0: unknown), and number of words that have
     * arrived. `carried`: the words on the giver and on late workers; NULL on other ranks */
    size_t carried_total, carried_count;
    uint64_t *carried;
    uint64_t chunk_sent[STEPS_CARRY_WORDS], chunk_heard[STEPS_CARRY_WORDS];
};

#endif
