/* One turn: jobs come, train and leave on a service, which is queried repeatedly (a look). */
#ifndef GRADPOOL_BENCH_SAVINGS_TURN_H
#define GRADPOOL_BENCH_SAVINGS_TURN_H

#include "bench/savings/look.h"
#include "bench/savings/plan.h"

#define TURN_LOOKS_MAX 2000

struct turn_job {
    bool takes_part;
    double arrive_ns; /* since the begin of the turn */
    uint32_t rounds;
    /* Results. */
    double period_ns; /* mean of its timed rounds, over all ranks */
    uint64_t timed_rounds, checked_rounds, wrong;
    bool is_known;        /* the service had measured the job */
    uint64_t predictions; /* number of looks with a prediction */
    uint64_t predicted_sum_ppm;
    uint64_t lane_ns; /* lane time a round at the last look; 0: not known */
};

struct turn {
    const struct plan *plan;
    const struct service *service;
    const char *transport;
    bool scales;       /* the service parks unneeded lanes: every open lane is allocated */
    size_t jobs_looks; /* jobs are read at every jobs_looks-th look; 0: never */
    struct turn_job jobs[PLAN_JOBS_MAX];
    /* The service's answers. */
    struct turn_look {
        double at_s;    /* time since the begin of the turn */
        uint32_t lanes; /* allocated lanes */
        double used;    /* used cores since the look before; NAN at the first look */
    } looks[TURN_LOOKS_MAX];
    size_t looks_count;
    double seconds;             /* from the first to the last look */
    double allocated_s, used_s; /* core-seconds */
    /* Measured while all jobs were present; over the whole turn if this was shorter than one
     * look. */
    double offered; /* CPU time of all lanes a second */
    double busiest; /* CPU time a second of the busiest lane */
    uint32_t lanes_most;
};

/* Plan, service, transport and jobs of the turn are set before the call. Returns a negative errno,
 * with a text on standard error, also when a worker failed. */
int turn_run(struct turn *turn);
/* Adds all jobs with their planned arrivals and stays. */
void turn_all(struct turn *turn);
/* Adds one job from the begin on, for `stay_ns` and at least `rounds_least` rounds. */
void turn_add(struct turn *turn, size_t job, double stay_ns, uint32_t rounds_least);
/* Mean prediction over the looks, comparable with the measured loss of the stay. NAN: none. */
double turn_predicted(const struct turn_job *job);
uint64_t turn_wrong(const struct turn *turn);

#endif
