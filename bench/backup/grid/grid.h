/* Settings of the virtual bench: problems, step times, rules, seeds and limits of a run. One unit
 * of time is about the duration of one gradient. */
#ifndef GRADPOOL_BENCH_BACKUP_GRID_GRID_H
#define GRADPOOL_BENCH_BACKUP_GRID_GRID_H

#include "packer/backup/backup.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GRID_TARGETS 4
#define GRID_NAME_BYTES 40
#define GRID_PROBLEMS_MAX 8
#define GRID_TIMES_MAX 12
#define GRID_SEEDS_MAX 16
#define GRID_RULES_MAX 32
#define GRID_CHECKS_MAX 32
#define GRID_WORKERS_MAX 64

enum problem_kind { PROBLEM_QUADRATIC, PROBLEM_SOFTMAX, PROBLEM_MLP };

struct grid_problem {
    char name[GRID_NAME_BYTES];
    enum problem_kind kind;
    double rate;
    /* standard deviation of a gradient's norm, for a quadratic problem */
    double noise;
    uint32_t batch;               /* number of samples in a gradient, for digits */
    double targets[GRID_TARGETS]; /* losses, in descending order */
    /* numbers of the rounds at which the learning rate is multiplied by 0.3; 0: never */
    uint32_t falls[2];
};

enum times_kind {
    TIMES_CALM,
    TIMES_JITTER,
    TIMES_SHORT_TAIL,
    TIMES_LONG_TAIL,
    TIMES_BURST,
    TIMES_HALF,
    TIMES_DRIFT,
    TIMES_ONE,
    TIMES_KINDS,
};

struct grid_times {
    char name[GRID_NAME_BYTES];
    enum times_kind kind;
    /* factor by which a slow rank's step times are longer, for HALF, DRIFT and ONE */
    double slower;
};

struct grid_rule {
    char name[GRID_NAME_BYTES];
    enum backup_rule rule;
    uint32_t k;
    bool has_second; /* whether ranks compute second gradients */
};

enum straggler { STRAGGLER_WAIT, STRAGGLER_INTERRUPT };

/* A run with a known result. */
struct grid_check {
    char problem[GRID_NAME_BYTES], times[GRID_NAME_BYTES], rule[GRID_NAME_BYTES];
    enum straggler straggler;
    uint32_t rounds;
    /* `reached` is the time of each target; -1: not reached */
    double k_mean, reached[GRID_TARGETS];
};

struct grid {
    uint32_t workers, rounds_max;
    double time_max, time_unreached;
    uint64_t check_seed;
    uint64_t seeds[GRID_SEEDS_MAX];
    size_t seeds_count;
    struct grid_problem problems[GRID_PROBLEMS_MAX];
    size_t problems_count;
    struct grid_times times[GRID_TIMES_MAX];
    size_t times_count;
    enum straggler stragglers[2];
    size_t stragglers_count;
    struct grid_rule rules[GRID_RULES_MAX];
    size_t rules_count;
    struct grid_check checks[GRID_CHECKS_MAX];
    size_t checks_count;
};

/* Returns the whole grid: 5 problems, 8 step times, 2 kinds of straggler, 4 targets. */
void grid_whole(struct grid *ret_grid);
/* Returns a grid of softmax regression with learning rate 2, for which no static k is good. */
void grid_fast_rate(struct grid *ret_grid);
/* Returns a part of the whole grid that runs for some seconds. */
void grid_quick(struct grid *ret_grid);

/* Parses a rule's name, such as "static:12", "auto + second" or "dbw"; -EINVAL. */
int grid_rule_parse(const char *name, struct grid_rule *ret_rule);
/* Parses "wait" or "interrupt"; -EINVAL. */
int grid_straggler_parse(const char *name, enum straggler *ret_straggler);
const char *grid_straggler_name(enum straggler straggler);
/* Returns the entry with this name; NULL: no entry has this name. */
const struct grid_problem *grid_find_problem(const struct grid *grid, const char *name);
const struct grid_times *grid_find_times(const struct grid *grid, const char *name);
/* Adds a rule, unless the grid has it already. -EINVAL: the name is unknown; -ENOBUFS: the grid has
 * too many rules. */
int grid_add_rule(struct grid *grid, const char *name);

#endif
