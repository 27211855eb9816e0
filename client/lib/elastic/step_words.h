/* The step record as 64-bit words. Each rank sends its own words, and the sum of all ranks is the
 * record: the sum of the sets of ranks has no carry, because each rank sends only its own bit. */
#ifndef GRADPOOL_CLIENT_ELASTIC_STEP_WORDS_H
#define GRADPOOL_CLIENT_ELASTIC_STEP_WORDS_H

#include "client/lib/elastic/deal.h"

enum step_words {
    STEP_WORDS_PRESENT = 0,
    STEP_WORDS_LEAVING = RANKS_WORDS,
    STEP_WORDS_HOLDS = 2 * RANKS_WORDS,
    STEP_WORDS_FULL = 3 * RANKS_WORDS, /* number of ranks with the state whose step has samples */
    STEP_WORDS_END,    /* number of ranks with the state that are at the end of the training */
    STEP_WORDS_ROUNDS, /* completed rounds of tensors, summed over the ranks with the state */
    /* completed rounds of tensors, summed over the ranks without the state */
    STEP_WORDS_ROUNDS_LATE,
    STEP_WORDS_DEAL, /* deal_print(), summed over all ranks */
    /* rest << 16 | 1, summed over the ranks to which the coordinator has sent a rest */
    STEP_WORDS_REST,
    STEP_WORDS_COUNT,
};

/* The words of one rank. */
struct step_word {
    uint32_t rank;
    bool is_leaving, holds;
    bool is_full;    /* with `holds`: the step has samples */
    bool is_end;     /* with `holds`: the training has ended before the step */
    uint64_t rounds; /* rounds that this rank's tensors have completed before the step */
    uint64_t print;  /* deal_print() of this rank's deal */
    uint32_t rest;   /* number of the rest that was ordered; 0: none */
};

/* A step without samples, a step with samples, and the end of the training. */
enum step_kind { STEP_EMPTY, STEP_FULL, STEP_END };

/* The contents of a step record, the same on all ranks. */
struct step_sum {
    struct deal_record record;
    enum step_kind kind;
    uint64_t rounds; /* rounds that tensors had completed before the step */
    /* the ranks without the state have completed as many rounds as the ranks with the state */
    bool late_are_level;
};

void step_words_write(const struct step_word *word, uint64_t ret_words[STEP_WORDS_COUNT]);
/* Checks and reads a step record, in a job of at most `workers` ranks. -EPROTO: the words are no
 * sum of step words, or do not include rank `rank`; -EOWNERDEAD: no rank has the state; -EINVAL:
 * the deal of some rank has another hash than `print`. */
int step_words_read(const uint64_t words[STEP_WORDS_COUNT], uint32_t workers, uint32_t rank,
                    uint64_t print, struct step_sum *ret_sum);
/* Returns the number of the rest that a record orders before the next step; 0: none. If ranks have
 * sent different numbers, the record orders no rest: all ranks see this in the same sum, and the
 * next record has the newest number. */
uint32_t step_words_rest(const uint64_t words[STEP_WORDS_COUNT]);
/* Returns a hash of a deal. Two different deals almost never have the same hash. */
uint64_t deal_print(const struct deal_spec *spec);

#endif
