/* A model of rounds that close before their slowest worker arrives (GP_BACKUP_STATIC, W13, W22, A85
 * to A87, A95). The processes are a leader lane, two lanes with one tensor each, and three workers.
 * The first two gradients close a round. The steps are those of round_end.c of the client, and of
 * quorum.c, takers.c, round.c and standing.c of the lane. Each delivery of a message is a separate
 * step, so any message may be late. A late worker fetches the result of a round; the leader lane
 * may stop waiting for this worker at any time, except with PATIENT. The leader lane is lost FAULTS
 * times, with all messages that it has not sent; its successor receives sets, announcements and
 * reports from the workers. With SUMS the workers step: a worker fetches the result of every round
 * that it missed, lanes store the results of LAG rounds, and the leader lane waits for each worker
 * that is further behind. With INTERRUPT a worker that hears of the close of a round (PASSED)
 * before its gradient is announced may give up this gradient (TAKES, A120); if the lane that closed
 * the round has died, the answer names the round before, and the worker announces the open round.
 *
 * Asserts check that both lanes sum a round over the same set; that a worker with a word knows the
 * set of its round; that all parameters of a worker are of one round when the worker begins the
 * next gradient; that a lane has the round that a worker fetches, unless the leader lane no longer
 * waits for this worker; and that a worker fetches sums in order and skips none. At the end each
 * worker has the last round.
 *
 * Each of these macros breaks one rule, and the search must find an error: WORD_BEFORE_SET (a lane
 * sends a word without its set), DECIDES_EARLY (a new leader lane does not wait for all workers),
 * SERVES_NEWEST (a lane sends its newest state instead of the requested round), LANDED_EARLY (a
 * worker begins the next gradient when one tensor has landed), HOLDS_LATE (the leader lane delays
 * only the third round after the one that a worker fetches), REPORTS_EARLY (a worker reports before
 * all lanes have answered). With SUMS: SKIPS_SUMS (a worker fetches the newest round at once),
 * WAITS_LATE (a round closes while a worker lacks a result that the round overwrites), HOLDS_ENDED
 * (a new leader lane assumes that a worker has the result of the last round that it has ended).
 * With INTERRUPT: COUNTS_GIVEN_UP (a gradient that was given up counts in the open round),
 * GIVES_UP_ONCE (a worker does not repeat TAKES to a new leader lane), GOES_ON_OPEN (a worker that has given up
 * its gradient of an open round goes on as if the round had closed). */

#ifndef FAULTS
#define FAULTS 0
#endif
#ifndef ROUNDS
#define ROUNDS 3
#endif
#ifndef INTERRUPTS
#define INTERRUPTS 3 /* number of workers that may give up gradients */
#endif
#define WORKERS 3
#define LANES 2
#define ENOUGH 2 /* gradients that close a round */
#ifndef LAG
#define LAG 1
#endif

#define OF(w, r) ((w) * (ROUNDS + 1) + (r))
#define AT(w, l) ((w) * LANES + (l))
#define HAS(set, w) (((set) >> (w)) & 1)

/* --- workers --- */
byte held[WORKERS];                       /* newest round whose parameters the worker has */
byte pushed[WORKERS * LANES];             /* newest gradient that the lane may read */
byte ended[WORKERS];                     /* round of the newest announcement of the hidden tensor */
byte part[WORKERS * LANES];               /* round of the parameters of the lane's tensor */
byte knows[WORKERS * (ROUNDS + 1)];       /* set of a round; 0: unknown */
byte closed[WORKERS];                     /* round in CLOSED of the leader lane; 0: none */
byte takes[WORKERS * LANES];              /* round that the worker fetches from the lane; 0: none */
byte newer[WORKERS];                      /* newest round in refusals of lanes; 0: none */
byte report[WORKERS];                     /* LANDED: 1 + its round, or 1: overwritten; 0: none */
byte named[WORKERS];                      /* round in the leader lane's answer; 0: none */
byte goal[WORKERS];                       /* SUMS: newest round to fetch; `closed` is the next */
#ifdef INTERRUPT
byte passed[WORKERS];                     /* newest closed round in PASSED; 0: none */
byte gives_up[WORKERS];                   /* round in TAKES that has no answer yet; 0: none */
bool is_open[WORKERS];                    /* the answer: the round is open */
#endif

/* --- lanes --- */
byte done[LANES];                         /* newest round that the lane has summed */
byte given[LANES * (ROUNDS + 1)];         /* set that a worker has sent; 0: unknown */
byte used[LANES * (ROUNDS + 1)];          /* set whose gradients are in the round */

/* --- leader lane --- */
byte leader_round = 1;                    /* open round; 0: states of workers are missing */
byte leader_set[ROUNDS + 1];
byte leader_heard[WORKERS];               /* newest announcement that has arrived */
bool has_spoken[WORKERS];                 /* the worker's state has arrived */
byte fetches[WORKERS];                    /* round that the worker fetches; 0: no wait */
byte tries[WORKERS];                      /* rounds fetched since the announcement */
bool may_be_outrun[WORKERS];              /* the leader lane does not wait for the worker */
byte has[WORKERS];                        /* SUMS: the worker needs no result up to this round */
#ifdef INTERRUPT
byte told[WORKERS];                       /* newest round in PASSED to the worker */
bool heard_up[WORKERS];                   /* TAKES has arrived, and has no answer yet */
bool said_up[WORKERS];                    /* GIVES_UP_ONCE: TAKES was sent */
#endif
byte faults;

/* W13: the set of a round never changes. */
inline learn(l, r, set)
{
    assert(given[OF(l, r)] == 0 || given[OF(l, r)] == set);
    given[OF(l, r)] = set
}

inline announce(w)
{
    l = 0;
    do
    :: l < LANES -> pushed[AT(w, l)] = held[w] + 1; l++
    :: else -> break
    od
}

/* The worker now has the round. All its parameters must be of this round. */
inline begin(w, round)
{
    held[w] = round;
    for (l : 0 .. LANES - 1) { assert(part[AT(w, l)] == held[w]) }
    closed[w] = 0
}

inline take(w, round)
{
    closed[w] = round;
    for (l : 0 .. LANES - 1) { takes[AT(w, l)] = closed[w] }
    newer[w] = 0; /* reset last, because `round` may be newer[w] */
    named[w] = 0
}

#ifdef LANDED_EARLY
#define ALL_LANDED(w, r) (part[AT(w, 0)] == (r) || part[AT(w, 1)] == (r))
#else
#define ALL_LANDED(w, r) (part[AT(w, 0)] == (r) && part[AT(w, 1)] == (r))
#endif
#ifdef REPORTS_EARLY
#define ALL_ANSWERED(w) (takes[AT(w, 0)] == 0 || takes[AT(w, 1)] == 0)
#else
#define ALL_ANSWERED(w) (takes[AT(w, 0)] == 0 && takes[AT(w, 1)] == 0)
#endif
#define NEWEST(w) (named[w] > newer[w] -> named[w] : newer[w])

/* With SUMS a worker fetches all rounds from its own to the newest. */
#if defined(SUMS) && !defined(SKIPS_SUMS)
#define FIRST(w, r) (r)
#else
#define FIRST(w, r) closed[w]
#endif
#ifdef SUMS
#define HAS_MORE(w) (closed[w] < goal[w])
#else
#define HAS_MORE(w) false
#endif

inline take_next(w)
{
    n = closed[w];
    begin(w, n);
    n++;
    take(w, n)
}

#ifdef INTERRUPT
#ifdef GOES_ON_OPEN
#define TURNS_OUT_OPEN(w) :: atomic { is_open[w] -> is_open[w] = false; begin(w, r); r = 0; break }
#else
#define TURNS_OUT_OPEN(w) :: atomic { is_open[w] -> is_open[w] = false; passed[w] = 0; break }
#endif
/* Gives up the gradient. Sets r to 0 if the worker fetches the results of a closed round. The first
 * gradient is always computed. */
#define GIVE_UP_GRADIENT(w) \
        if \
        :: atomic { w >= WORKERS - INTERRUPTS && held[w] > 0 && passed[w] >= r -> gives_up[w] = r; said_up[w] = false }; \
            do \
            :: atomic { gives_up[w] == 0 && closed[w] > 0 -> \
                    goal[w] = closed[w]; take(w, FIRST(w, r)); r = 0; break } \
            TURNS_OUT_OPEN(w) \
            od \
        :: skip \
        fi;
#else
#define GIVE_UP_GRADIENT(w)
#endif

proctype worker(byte w)
{
    byte l, r, n;
    do
    :: held[w] == ROUNDS -> break
    :: held[w] < ROUNDS ->
        r = held[w] + 1;
        GIVE_UP_GRADIENT(w)
        if
        :: r == 0
        :: else ->
        atomic { announce(w) }
        ended[w] = r; /* the announcement follows the last gradient */
        do
        :: atomic { closed[w] == 0 && HAS(knows[OF(w, r)], w) && ALL_LANDED(w, r) ->
                begin(w, r); break }
        :: atomic { closed[w] > 0 && HAS(knows[OF(w, r)], w) == 0 ->
                goal[w] = closed[w]; take(w, FIRST(w, r)); r = 0; break }
        od
        fi;
        do
        :: r > 0 -> break
        :: atomic { r == 0 && ALL_ANSWERED(w) && HAS_MORE(w) -> take_next(w) }
        :: atomic { r == 0 && ALL_ANSWERED(w) && !HAS_MORE(w) && report[w] == 0 &&
                named[w] == 0 ->
                report[w] = 1 + (newer[w] > 0 -> 0 : closed[w]) }
        :: atomic { r == 0 && named[w] > 0 && NEWEST(w) > closed[w] ->
#ifdef SUMS
                goal[w] = named[w]; take_next(w) }
#else
                l = NEWEST(w); newer[w] = l; take(w, newer[w]) }
#endif
        :: atomic { r == 0 && named[w] > 0 && NEWEST(w) == closed[w] ->
                named[w] = 0; begin(w, closed[w]); break }
        od
    od
}

/* The lane sums the next round when the lane knows its set and all gradients of the set have
 * arrived. The new state overwrites the state of the round before the last one. */
#define IS_HERE(l, w, r) (HAS(given[OF(l, r)], w) == 0 || pushed[AT(w, l)] >= (r))
#define MAY_MAKE(l, r) \
    (given[OF(l, r)] > 0 && IS_HERE(l, 0, r) && IS_HERE(l, 1, r) && IS_HERE(l, 2, r))

inline make(l)
{
    r = done[l] + 1;
    used[OF(l, r)] = given[OF(l, r)];
    assert(used[OF(1 - l, r)] == 0 || used[OF(1 - l, r)] == used[OF(l, r)]);
    for (w : 0 .. WORKERS - 1) {
        if /* the round has no gradient of another round */
        :: HAS(used[OF(l, r)], w) -> assert(pushed[AT(w, l)] == r)
        :: else
        fi
    }
    done[l] = r
}

/* Sends a word and the result of a round to a worker of its set. */
inline word(l, w, r)
{
#ifndef WORD_BEFORE_SET
    knows[OF(w, r)] = used[OF(l, r)];
#endif
    assert(knows[OF(w, r)] == used[OF(l, r)]);
    part[AT(w, l)] = r
}

inline answer(l, w)
{
    if
#ifdef SUMS
    :: assert(done[l] < takes[AT(w, l)] + LAG); /* the result is not overwritten */
            assert(part[AT(w, l)] == takes[AT(w, l)] - 1);
            part[AT(w, l)] = takes[AT(w, l)]
#elif defined(SERVES_NEWEST)
    :: part[AT(w, l)] = done[l]
#else
    :: done[l] <= takes[AT(w, l)] + 1 -> part[AT(w, l)] = takes[AT(w, l)]
    :: done[l] > takes[AT(w, l)] + 1 -> assert(may_be_outrun[w]);
            newer[w] = (done[l] > newer[w] -> done[l] : newer[w])
#endif
    fi;
    takes[AT(w, l)] = 0
}

#define WANTS_WORD(l, w, r) (done[l] >= (r) && HAS(used[OF(l, r)], w) && part[AT(w, l)] < (r))
#define ALL_HOLD (held[0] == ROUNDS && held[1] == ROUNDS && held[2] == ROUNDS)

/* Steps of lane l for worker w. In learn() the lane receives a set of round r from the worker. */
#define NEXT(w) (held[w] + 1)
#define MAY_WORD(l, w) (NEXT(w) <= ROUNDS && closed[w] == 0 && WANTS_WORD(l, w, NEXT(w)))
#define MAY_ANSWER(l, w) (takes[AT(w, l)] > 0 && done[l] >= takes[AT(w, l)])
#define MAY_LEARN(l, w, r) ((r) <= ROUNDS && knows[OF(w, r)] > 0 && given[OF(l, r)] == 0)
#define LANE_STEPS(l, w) \
    :: atomic { MAY_WORD(l, w) -> word(l, w, NEXT(w)) } \
    :: atomic { MAY_ANSWER(l, w) -> answer(l, w) } \
    :: atomic { MAY_LEARN(l, w, NEXT(w)) -> learn(l, NEXT(w), knows[OF(w, NEXT(w))]) } \
    :: atomic { held[w] > 0 && MAY_LEARN(l, w, held[w]) -> \
            learn(l, held[w], knows[OF(w, held[w])]) } \
    :: atomic { closed[w] > 0 && MAY_LEARN(l, w, closed[w]) -> \
            learn(l, closed[w], knows[OF(w, closed[w])]) }

proctype lane(byte l)
{
    byte w, r;
    do
    :: atomic { done[l] < ROUNDS && MAY_MAKE(l, done[l] + 1) -> make(l) }
    LANE_STEPS(l, 0)
    LANE_STEPS(l, 1)
    LANE_STEPS(l, 2)
    :: ALL_HOLD -> break
    od
}

#define COUNTS(w) (leader_heard[w] == leader_round)

#ifdef HOLDS_LATE
#define HELD_FROM 3
#else
#define HELD_FROM 2
#endif
#ifdef SUMS
#ifdef WAITS_LATE
#define DELAYS(w) (has[w] + LAG + 1 < leader_round)
#else
#define DELAYS(w) (has[w] + LAG < leader_round)
#endif
#else
#define DELAYS(w) (fetches[w] > 0 && fetches[w] + HELD_FROM <= leader_round)
#endif

inline knows_held(w, round)
{
    if
    :: has[w] < round -> has[w] = round
    :: else
    fi
}

inline hear(w)
{
    leader_heard[w] = ended[w];
    knows_held(w, ended[w] - 1)
}

inline fetch(w)
{
    fetches[w] = leader_round - 1;
    may_be_outrun[w] = false;
    knows[OF(w, leader_round - 1)] = leader_set[leader_round - 1]
}

/* After two fetches a worker may continue with a round that is not the newest. */
inline answer_report(w)
{
    fetches[w] = 0;
    if
#ifdef SUMS
    :: knows_held(w, report[w] - 1); fetch(w); named[w] = leader_round - 1
#else
    :: report[w] > 1 && (report[w] == leader_round || tries[w] == 2) -> named[w] = report[w] - 1
    :: else -> fetch(w); named[w] = leader_round - 1; tries[w] = 2
#endif
    fi;
    report[w] = 0
}

inline decide()
{
    leader_set[leader_round] = COUNTS(0) | (COUNTS(1) << 1) | (COUNTS(2) << 2);
    for (r : 0 .. WORKERS - 1) {
        if
        :: COUNTS(r) -> has[r] = leader_round
        :: else
        fi
    }
    leader_round++
}

/* A worker reports to a new leader lane. The sets arrive before the state of the worker's round
 * (W13). The open round is the one after the newest round that any worker has (W5). */
inline speak(w)
{
    for (r : 1 .. ROUNDS) {
        if
        :: knows[OF(w, r)] > 0 -> leader_set[r] = knows[OF(w, r)]
        :: else
        fi
    }
    if
#ifdef HOLDS_ENDED
    :: true -> leader_heard[w] = ended[w]; has[w] = ended[w]
#else
    :: ended[w] > held[w] && closed[w] == 0 -> hear(w) /* the worker repeats its announcement */
#endif
    :: else -> leader_heard[w] = ended[w]
    fi;
    has_spoken[w] = true;
#ifdef DECIDES_EARLY
    if
    :: has_spoken[0] + has_spoken[1] + has_spoken[2] >= ENOUGH -> open_round()
#else
    if
    :: has_spoken[0] && has_spoken[1] && has_spoken[2] -> open_round()
#endif
    :: else
    fi
}

inline open_round()
{
    leader_round = 1;
    for (r : 0 .. WORKERS - 1) {
        if
        :: has_spoken[r] && held[r] >= leader_round -> leader_round = held[r] + 1
        :: else
        fi
    }
    do
    :: leader_round <= ROUNDS && leader_set[leader_round] > 0 -> leader_round++ /* is decided */
    :: else -> break
    od
}

inline die()
{
    faults++;
    leader_round = 0;
    for (r : 0 .. ROUNDS) { leader_set[r] = 0 }
    for (r : 0 .. WORKERS - 1) {
        leader_heard[r] = 0; has_spoken[r] = false;
        fetches[r] = 0; tries[r] = 0; may_be_outrun[r] = true; has[r] = 0
#ifdef INTERRUPT
        ; told[r] = 0; heard_up[r] = false
#endif
    }
}

/* The leader lane has closed the round of the worker's announcement. A worker of its set receives
 * CHOSEN. Another worker receives CLOSED, after the set of the newest round. */
#define IS_OVER(w) (leader_heard[w] > held[w] && leader_heard[w] < leader_round)
#define IS_IN(w) HAS(leader_set[leader_heard[w]] | knows[OF(w, leader_heard[w])], w)
#define LEADER_STEPS(w) \
    :: atomic { leader_round == 0 && !has_spoken[w] -> speak(w) } \
    :: atomic { leader_round > 0 && leader_heard[w] < ended[w] -> hear(w) } \
    :: atomic { IS_OVER(w) && IS_IN(w) && knows[OF(w, leader_heard[w])] == 0 -> \
            knows[OF(w, leader_heard[w])] = leader_set[leader_heard[w]] } \
    :: atomic { IS_OVER(w) && !IS_IN(w) && closed[w] == 0 -> \
            closed[w] = leader_round - 1; tries[w] = 1; fetch(w) } \
    :: atomic { leader_round > 1 && report[w] > 0 -> answer_report(w) } \
    INTERRUPT_STEPS(w) \
    GIVE_UP(w)

/* PASSED, and the answer to TAKES. The answer names the newest closed round, also if the round of
 * TAKES is open (A120). */
#ifdef INTERRUPT
inline answer_up(w)
{
    if
    :: gives_up[w] < leader_round -> closed[w] = leader_round - 1; tries[w] = 1; fetch(w)
    :: else -> is_open[w] = true
    fi;
    heard_up[w] = false;
    gives_up[w] = 0
}

inline hear_up(w)
{
    heard_up[w] = true;
    said_up[w] = true;
#ifdef COUNTS_GIVEN_UP
    leader_heard[w] = gives_up[w];
#endif
    knows_held(w, gives_up[w] - 1)
}

#ifdef GIVES_UP_ONCE
#define MAY_SAY_UP(w) (!said_up[w])
#else
#define MAY_SAY_UP(w) true
#endif
#define IS_OUTSIDE(w) (HAS(leader_set[leader_round - 1], w) == 0)
#define INTERRUPT_STEPS(w) \
    :: atomic { leader_round > 1 && told[w] < leader_round - 1 && IS_OUTSIDE(w) -> \
            told[w] = leader_round - 1; passed[w] = leader_round - 1 } \
    :: atomic { leader_round > 0 && gives_up[w] > 0 && !heard_up[w] && MAY_SAY_UP(w) -> \
            hear_up(w) } \
    :: atomic { leader_round > 0 && heard_up[w] -> answer_up(w) }
#else
#define INTERRUPT_STEPS(w)
#endif

#if defined(PATIENT) || defined(SUMS)
#define GIVE_UP(w)
#else
#define GIVE_UP(w) :: atomic { DELAYS(w) -> fetches[w] = 0; may_be_outrun[w] = true }
#endif

/* FAULTS_PASSED: before the last worker hears of a close, the loss is that of a job without
 * INTERRUPT. */
#ifdef FAULTS_PASSED
#define MAY_DIE (passed[WORKERS - 1] > held[WORKERS - 1])
#else
#define MAY_DIE true
#endif

proctype leader()
{
    byte w, r;
    do
    :: atomic { leader_round > 0 && leader_round <= ROUNDS &&
            COUNTS(0) + COUNTS(1) + COUNTS(2) >= ENOUGH &&
            !DELAYS(0) && !DELAYS(1) && !DELAYS(2) -> decide() }
    :: atomic { faults < FAULTS && MAY_DIE && !ALL_HOLD -> die() }
    LEADER_STEPS(0)
    LEADER_STEPS(1)
    LEADER_STEPS(2)
    :: ALL_HOLD -> break
    od
}

init
{
    atomic {
        run leader();
        run lane(0); run lane(1);
        run worker(0); run worker(1); run worker(2)
    }
}
