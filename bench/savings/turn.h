/* One turn: jobs come, train and leave on a service that is looked at meanwhile. */
#ifndef GRADPOOL_BENCH_SAVINGS_TURN_H
#define GRADPOOL_BENCH_SAVINGS_TURN_H

#include "bench/savings/look.h"
#include "bench/savings/plan.h"

#define TURN_LOOKS_MAX 2000

struct turn_job {
    bool takes_part;
    double arrive_ns; /* since the begin of the turn */
    uint32_t rounds;
    /* What came of it. */
    double period_ns; /* mean of its timed rounds, over all ranks */
    uint64_t timed_rounds, checked_rounds, wrong;
    bool is_known;        /* the service had measured it */
    uint64_t predictions; /* looks that were told one, and what was predicted at them together */
    uint64_t predicted_sum_ppm;
    uint64_t lane_ns; /* a round, as last seen; 0: not known */
};

struct turn {
    const struct plan *plan;
    const struct service *service;
    const char *transport;
    bool scales;       /* the service parks what it does not need: what is open is allocated */
    size_t jobs_looks; /* every so many looks the jobs are looked at, too; 0: never */
    struct turn_job jobs[PLAN_JOBS_MAX];
    /* What the service has said. */
    struct turn_look {
        double at_s;    /* since the begin */
        uint32_t lanes; /* allocated */
        double used;    /* cores, since the look before; NAN: the first one */
    } looks[TURN_LOOKS_MAX];
    size_t looks_count;
    double seconds;             /* first to last look */
    double allocated_s, used_s; /* core-seconds */
    /* While all who take part were there; the whole turn where that was for less than a look. */
    double offered; /* CPU of all lanes, a second */
    double busiest; /* of the busiest lane */
    uint32_t lanes_most;
};

/* Plan, service, transport and who takes part are set. Negative errno, with a text on standard
 * error; also when a worker failed. */
int turn_run(struct turn *turn);
/* All jobs come and go as planned. */
void turn_all(struct turn *turn);
/* This one from the begin on, for `stay_ns` and for so many rounds at least. */
void turn_add(struct turn *turn, size_t job, double stay_ns, uint32_t rounds_least);
/* The mean over the looks, as the measured loss is one over the stay. NAN: none was told. */
double turn_predicted(const struct turn_job *job);
uint64_t turn_wrong(const struct turn *turn);

#endif
