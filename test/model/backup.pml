/* A round closes before its slowest worker arrives (GP_BACKUP_STATIC, W13, W22, A85 to A87, A95): a
 * leader lane, two lanes with one tensor each, three workers, and sets of the first two. The steps
 * are those of round_end.c of the client, and of quorum.c, takers.c, round.c and standing.c of the
 * lane. Messages are late by choice: each delivery is a step of its own. A wait for a worker that
 * takes a round ends at any time (not with PATIENT). FAULTS times the leader lane is lost with all
 * that it has not sent; its successor learns sets, announcements and reports from the workers. With
 * SUMS the workers step: a worker takes the result of every round that it missed, lanes store the
 * results of LAG rounds, and the leader lane waits for each worker that is further behind.
 *
 * Asserted: both lanes make a round with the same set; a worker with a word knows the set of its
 * round; the parameters of a worker are of one round when it begins the next gradient; a lane has
 * the round that a worker takes, unless the leader lane waits for the worker no longer; a worker
 * takes sums in order and skips none. No end but the one in which each worker holds the last round.
 *
 * Each of these breaks one rule, and must be found: WORD_BEFORE_SET (a lane sends no set ahead of
 * the word), DECIDES_EARLY (a new leader lane does not wait for all workers), SERVES_NEWEST (a lane
 * answers a taker with its newest state, whatever the round), LANDED_EARLY (a worker begins the next
 * gradient when one tensor has landed), HOLDS_LATE (the leader lane delays only the third round after
 * the one that a worker takes), REPORTS_EARLY (a worker reports before all lanes have answered).
 * With SUMS: SKIPS_SUMS (a worker takes the newest round at once), WAITS_LATE (a round closes while
 * a worker lacks a result that the round overwrites), HOLDS_ENDED (a new leader lane takes the last
 * round that a worker has ended for one that it holds). */

#ifndef FAULTS
#define FAULTS 0
#endif
#ifndef ROUNDS
#define ROUNDS 3
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
byte pushed[WORKERS * LANES];             /* round of the newest gradient that the lane may read */
byte ended[WORKERS];                     /* round of the newest announcement of the hidden tensor */
byte part[WORKERS * LANES];               /* round of the parameters of that lane's tensor */
byte knows[WORKERS * (ROUNDS + 1)];       /* set of a round; 0: unknown */
byte closed[WORKERS];                     /* CLOSED of the leader lane; 0: none */
byte takes[WORKERS * LANES];              /* round that the worker takes from the lane; 0: none */
byte newer[WORKERS];                      /* newest round that a lane named instead */
byte report[WORKERS];                     /* LANDED: 1 + the round, 1: gone; 0: none on its way */
byte named[WORKERS];                      /* answer of the leader lane; 0: none */
byte goal[WORKERS];                       /* of sums: newest round to take; `closed` is the next */

/* --- lanes --- */
byte done[LANES];                         /* newest round that is made */
byte given[LANES * (ROUNDS + 1)];         /* set that a worker has passed on; 0: unknown */
byte used[LANES * (ROUNDS + 1)];          /* set that made the round */

/* --- leader lane --- */
byte leader_round = 1;                    /* open round; 0: workers have not all spoken */
byte leader_set[ROUNDS + 1];
byte leader_heard[WORKERS];               /* newest announcement that it has heard */
bool has_spoken[WORKERS];                 /* to a new leader lane */
byte fetches[WORKERS];                    /* round that the worker takes; 0: none is waited for */
byte tries[WORKERS];                      /* rounds taken since the announcement */
bool may_be_outrun[WORKERS];              /* the leader lane does not wait for the worker */
byte has[WORKERS];                        /* of sums: round up to which the worker needs no result */
byte faults;

/* W13: the first set stays. */
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

/* All parameters are of the round that the worker is going to hold. */
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
    newer[w] = 0; /* `round` may be this one */
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

/* A worker with SUMS takes from its own round on, up to the newest one. */
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

proctype worker(byte w)
{
    byte l, r, n;
    do
    :: held[w] == ROUNDS -> break
    :: held[w] < ROUNDS ->
        r = held[w] + 1;
        atomic { announce(w) }
        ended[w] = r; /* after the last gradient */
        do
        :: atomic { closed[w] == 0 && HAS(knows[OF(w, r)], w) && ALL_LANDED(w, r) ->
                begin(w, r); break }
        :: atomic { closed[w] > 0 && HAS(knows[OF(w, r)], w) == 0 ->
                goal[w] = closed[w]; take(w, FIRST(w, r)); r = 0; break }
        od;
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

/* The lane makes the next round when all gradients of the known set are here, over the state of the
 * round before the last one. */
#define IS_HERE(l, w, r) (HAS(given[OF(l, r)], w) == 0 || pushed[AT(w, l)] >= (r))
#define MAY_MAKE(l, r) \
    (given[OF(l, r)] > 0 && IS_HERE(l, 0, r) && IS_HERE(l, 1, r) && IS_HERE(l, 2, r))

inline make(l)
{
    r = done[l] + 1;
    used[OF(l, r)] = given[OF(l, r)];
    assert(used[OF(1 - l, r)] == 0 || used[OF(1 - l, r)] == used[OF(l, r)]);
    for (w : 0 .. WORKERS - 1) {
        if
        :: HAS(used[OF(l, r)], w) -> assert(pushed[AT(w, l)] == r) /* no gradient of another round */
        :: else
        fi
    }
    done[l] = r
}

/* A word: the result of a round of whose set the worker is. */
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
    :: assert(done[l] < takes[AT(w, l)] + LAG); /* not overwritten */
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

/* Moves of the lane for worker w whose next round is r. `learn` is a set passed on by a worker. */
#define NEXT(w) (held[w] + 1)
#define MAY_WORD(l, w) (NEXT(w) <= ROUNDS && closed[w] == 0 && WANTS_WORD(l, w, NEXT(w)))
#define MAY_ANSWER(l, w) (takes[AT(w, l)] > 0 && done[l] >= takes[AT(w, l)])
#define MAY_LEARN(l, w, r) ((r) <= ROUNDS && knows[OF(w, r)] > 0 && given[OF(l, r)] == 0)
#define LANE_STEPS(l, w) \
    :: atomic { MAY_WORD(l, w) -> word(l, w, NEXT(w)) } \
    :: atomic { MAY_ANSWER(l, w) -> answer(l, w) } \
    :: atomic { MAY_LEARN(l, w, NEXT(w)) -> learn(l, NEXT(w), knows[OF(w, NEXT(w))]) } \
    :: atomic { held[w] > 0 && MAY_LEARN(l, w, held[w]) -> learn(l, held[w], knows[OF(w, held[w])]) } \
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

/* A worker begins with an older round after the second one that it has taken. */
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

/* A successor: sets come ahead of the standing of each worker (W13), and the open round is the one
 * after the newest that any worker holds (W5). */
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
    :: ended[w] > held[w] && closed[w] == 0 -> hear(w) /* the standing is an announcement */
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
    :: leader_round <= ROUNDS && leader_set[leader_round] > 0 -> leader_round++ /* decided before */
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
    }
}

/* The announcement that the leader lane has heard is of a round that it has closed: CHOSEN, or CLOSED
 * with the set of the newest round ahead. */
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
    GIVE_UP(w)

#if defined(PATIENT) || defined(SUMS)
#define GIVE_UP(w)
#else
#define GIVE_UP(w) :: atomic { DELAYS(w) -> fetches[w] = 0; may_be_outrun[w] = true }
#endif

proctype leader()
{
    byte w, r;
    do
    :: atomic { leader_round > 0 && leader_round <= ROUNDS &&
            COUNTS(0) + COUNTS(1) + COUNTS(2) >= ENOUGH &&
            !DELAYS(0) && !DELAYS(1) && !DELAYS(2) -> decide() }
    :: atomic { faults < FAULTS && !ALL_HOLD -> die() }
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
