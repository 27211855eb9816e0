/* One turn: jobs join, train and leave on a service. During the turn the bench reads the state of
 * the service repeatedly; each reading is called a look. */
#ifndef GRADPOOL_BENCH_SAVINGS_TURN_H
#define GRADPOOL_BENCH_SAVINGS_TURN_H

#include "bench/savings/look.h"
#include "bench/savings/plan.h"

#define TURN_LOOKS_MAX 2000

struct turn_job {
    bool takes_part;
    double arrive_ns; /* time of arrival since the start of the turn */
    uint32_t rounds;
    /* Results. */
    double period_ns; /* mean length of the job's measured rounds, over all ranks */
    uint64_t timed_rounds, checked_rounds, wrong;
    bool is_known; /* whether the service had measured the job */
    /* number of readings of the service (looks) that had a prediction for the job */
    uint64_t predictions;
    uint64_t predicted_sum_ppm;
    uint64_t lane_ns; /* lane time of a round in the last reading; 0: unknown */
};

struct turn {
    const struct plan *plan;
    const struct service *service;
    const char *transport;
    /* whether the service parks unneeded lanes; if so, every open lane counts as allocated */
    bool scales;
    size_t jobs_looks; /* the jobs are read at each jobs_looks-th reading of the lanes; 0: never */
    struct turn_job jobs[PLAN_JOBS_MAX];
    /* One reading of the service's state. */
    struct turn_look {
        double at_s;    /* time since the start of the turn */
        uint32_t lanes; /* number of allocated lanes */
        double used;    /* used cores since the previous reading; NAN in the first reading */
    } looks[TURN_LOOKS_MAX];
    size_t looks_count;
    double seconds;             /* time from the first to the last reading */
    double allocated_s, used_s; /* core-seconds */
    /* Values while all jobs were present. If this time had fewer than two readings: values over the
     * whole turn. */
    double offered; /* CPU seconds of all lanes in a second */
    double busiest; /* CPU seconds of the busiest lane in a second */
    uint32_t lanes_most;
};

/* Runs the turn to its end. The caller sets plan, service, transport and jobs of the turn. Returns
 * 0; or a negative errno, with a text on standard error, also if a worker failed. */
int turn_run(struct turn *turn);
/* Adds all jobs. Each job arrives at its planned time, and stays for its planned time. */
void turn_all(struct turn *turn);
/* Adds one job, which joins at the start of the turn. The job stays for `stay_ns`, and for at least
 * `rounds_least` rounds. */
void turn_add(struct turn *turn, size_t job, double stay_ns, uint32_t rounds_least);
/* Returns the mean of all predictions during the stay, for a comparison with the measured loss.
 * NAN: no prediction. */
double turn_predicted(const struct turn_job *job);
uint64_t turn_wrong(const struct turn *turn);

#endif
