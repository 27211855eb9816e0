/* A model of rounds with several gradients of a rank (W22, A125, A126, L120, L121). The processes
 * are a leader lane, a lane with one tensor, and two workers with two slots each. Two gradients
 * close a round, also two of one worker. After GO_ON a worker computes its second gradient on the
 * same parameters, while the round may close. The steps are those of gradients.c, round_end.c and
 * settle.c of the client, and of gradients.c and quorum.c of the lane. Each delivery of a message
 * is a separate step. The leader lane is lost FAULTS times; its successor receives sets and
 * announcements from the workers.
 *
 * Asserts check that a set never changes; that a lane reads only whole gradients of the round, as
 * many as the set counts; that no landing area is overwritten before its copy; and that parameters
 * do not change during the computation of a gradient. At the end each worker has the last round.
 *
 * Each of these macros breaks one rule, and the search must find an error: READS_ALL_SLOTS (a lane
 * reads every slot of a rank in the set), ANNOUNCES_EARLY (a gradient is announced before its slot
 * is complete), COUNTS_LATE (the leader lane counts a gradient after the close), COPIES_EARLY (a
 * result is copied while another gradient is computed), ANNOUNCES_CLOSED (a second gradient of a
 * closed round is announced as a gradient of the next round), DECIDES_EARLY (a new leader lane does
 * not wait for all workers). */

#ifndef FAULTS
#define FAULTS 0
#endif
#ifndef ROUNDS
#define ROUNDS 3
#endif
#define WORKERS 2
#define MOST 2   /* gradients of a worker in a round */
#define ENOUGH 2 /* gradients that close a round */

#define OF(w, r) ((w) * (ROUNDS + 1) + (r))
#define SLOT(w, g) ((w) * MOST + (g))
/* A set has the number of gradients of each worker, two bits each. */
#define COUNT(set, w) (((set) >> (2 * (w))) & 3)

/* --- workers --- */
byte held[WORKERS];                 /* round of the parameters */
byte slot[WORKERS * MOST];          /* round of the gradient in the slot; 0: not complete */
byte pushed[WORKERS];               /* round of the newest gradient that the lane may read */
byte ended[WORKERS];                /* round of the newest announcement */
byte gradients[WORKERS];            /* number of gradients in this announcement */
byte knows[WORKERS * (ROUNDS + 1)]; /* set of a round; 0: unknown */
byte closed[WORKERS];               /* round in CLOSED of the leader lane; 0: none */
byte landed[WORKERS];               /* round in the landing area; 0: nothing to copy */
bool go_on[WORKERS];

/* --- the lane --- */
byte done;                          /* newest round that the lane has summed */
byte given[ROUNDS + 1];             /* set that a worker has sent; 0: unknown */

/* --- the leader lane --- */
byte leader_round = 1;              /* open round; 0: states of workers are missing */
byte leader_set[ROUNDS + 1];
byte count[WORKERS];                /* gradients of the open round */
bool was_asked[WORKERS];            /* GO_ON was sent in the open round */
bool has_spoken[WORKERS];
byte faults;

#ifdef COPIES_EARLY
#define COPY_EARLY(w) \
    if \
    :: atomic { landed[w] > 0 -> held[w] = landed[w]; landed[w] = 0 } \
    :: skip \
    fi;
#else
#define COPY_EARLY(w)
#endif
#ifdef ANNOUNCES_CLOSED
#define IS_CLOSED(w, r) false
#else
#define IS_CLOSED(w, r) (COUNT(knows[OF(w, r)], w) > 0)
#endif
#ifdef ANNOUNCES_CLOSED
#define NUMBER(w, r) (COUNT(knows[OF(w, r)], w) > 0 -> (r) + 1 : (r))
#else
#define NUMBER(w, r) (r)
#endif

/* A gradient is announced when its slot is complete, unless the round has closed meanwhile. */
inline announce(w, r, g)
{
    if
    :: IS_CLOSED(w, r)
    :: else -> ended[w] = NUMBER(w, r); gradients[w] = g
    fi
}

inline compute(w, r, g)
{
#ifdef ANNOUNCES_EARLY
    atomic { slot[SLOT(w, g)] = 0; announce(w, r, g + 1) };
#else
    slot[SLOT(w, g)] = 0;
#endif
    COPY_EARLY(w)
    atomic {
        assert(held[w] == r - 1);
        slot[SLOT(w, g)] = r;
        if
        :: g == 0 -> pushed[w] = r
        :: else
        fi
    };
    atomic { announce(w, r, g + 1); g++ }
}

proctype worker(byte w)
{
    byte r, g;
    do
    :: held[w] == ROUNDS -> break
    :: held[w] < ROUNDS ->
        atomic { r = held[w] + 1; g = 0; go_on[w] = false };
        compute(w, r, g);
        do
        :: atomic { go_on[w] && g < MOST && COUNT(knows[OF(w, r)], w) == 0 && closed[w] == 0 ->
                go_on[w] = false };
            compute(w, r, g)
        :: atomic { landed[w] == r -> held[w] = r; landed[w] = 0; break }
        :: atomic { closed[w] >= r && COUNT(knows[OF(w, r)], w) == 0 && done >= closed[w] ->
                held[w] = done; closed[w] = 0; break }
        od
    od
}

#define IS_HERE(w, r) (COUNT(given[r], w) == 0 || pushed[w] >= (r))

/* Sums a round: reads the slots of each worker in the set, and writes the result. */
inline make(r)
{
    for (w : 0 .. WORKERS - 1) {
        if
        :: COUNT(given[r], w) > 0 ->
#ifdef READS_ALL_SLOTS
            for (g : 0 .. MOST - 1) { assert(slot[SLOT(w, g)] == r) }
#else
            for (g : 0 .. COUNT(given[r], w) - 1) { assert(slot[SLOT(w, g)] == r) }
#endif
            assert(landed[w] == 0);
            landed[w] = r
        :: else
        fi
    }
    done = r
}

/* A worker forwards each set (W13). */
inline learn(r, set)
{
    assert(given[r] == 0 || given[r] == set);
    given[r] = set
}

#define MAY_LEARN(w, r) ((r) <= ROUNDS && knows[OF(w, r)] > 0 && given[r] != knows[OF(w, r)])

proctype lane()
{
    byte w, g;
    do
    :: atomic { done < ROUNDS && given[done + 1] > 0 && IS_HERE(0, done + 1) &&
            IS_HERE(1, done + 1) -> make(done + 1) }
    :: atomic { done < ROUNDS && MAY_LEARN(0, done + 1) -> learn(done + 1, knows[OF(0, done + 1)]) }
    :: atomic { done < ROUNDS && MAY_LEARN(1, done + 1) -> learn(done + 1, knows[OF(1, done + 1)]) }
    :: atomic { done > 0 && MAY_LEARN(0, done) -> learn(done, knows[OF(0, done)]) }
    :: atomic { done > 0 && MAY_LEARN(1, done) -> learn(done, knows[OF(1, done)]) }
    :: held[0] == ROUNDS && held[1] == ROUNDS -> break
    od
}

#define SUM (count[0] + count[1])
#define IS_FULL (SUM >= ENOUGH || (count[0] > 0 && count[1] > 0))

inline decide()
{
    leader_set[leader_round] = count[0] | (count[1] << 2);
    leader_round++;
    for (w : 0 .. WORKERS - 1) { count[w] = 0; was_asked[w] = false }
}

/* A worker reports to a new leader lane: sets first (W13). The open round is the one after the
 * newest round that any worker has, or that has a set. */
inline speak(w)
{
    for (r : 1 .. ROUNDS) {
        if
        :: knows[OF(w, r)] > 0 -> leader_set[r] = knows[OF(w, r)]
        :: else
        fi
    }
    has_spoken[w] = true;
    if
#ifdef DECIDES_EARLY
    :: true -> open_round()
#else
    :: has_spoken[0] && has_spoken[1] -> open_round()
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
    :: leader_round <= ROUNDS && leader_set[leader_round] > 0 -> leader_round++
    :: else -> break
    od
}

inline die()
{
    faults++;
    leader_round = 0;
    for (r : 0 .. ROUNDS) { leader_set[r] = 0 }
    for (r : 0 .. WORKERS - 1) { count[r] = 0; was_asked[r] = false; has_spoken[r] = false }
}

/* The leader lane has closed the round of the worker's announcement. */
#define IS_OVER(w) (ended[w] > held[w] && ended[w] < leader_round)
#define IS_IN(w) (COUNT(leader_set[ended[w]], w) > 0)
#ifdef COUNTS_LATE
#define COUNT_LATE(w) :: atomic { IS_OVER(w) && IS_IN(w) && \
            COUNT(leader_set[ended[w]], w) < gradients[w] -> \
            leader_set[ended[w]] = leader_set[ended[w]] + (1 << (2 * w)) }
#else
#define COUNT_LATE(w)
#endif
#define LEADER_STEPS(w) \
    :: atomic { leader_round == 0 && !has_spoken[w] -> speak(w) } \
    :: atomic { leader_round > 0 && ended[w] == leader_round && count[w] < gradients[w] -> \
            count[w] = gradients[w] } \
    :: atomic { leader_round > 0 && count[w] > 0 && count[w] < MOST && SUM < ENOUGH && \
            !was_asked[w] -> go_on[w] = true; was_asked[w] = true } \
    :: atomic { IS_OVER(w) && IS_IN(w) && knows[OF(w, ended[w])] == 0 -> \
            knows[OF(w, ended[w])] = leader_set[ended[w]]; go_on[w] = false } \
    :: atomic { IS_OVER(w) && !IS_IN(w) && closed[w] == 0 -> \
            knows[OF(w, leader_round - 1)] = leader_set[leader_round - 1]; \
            closed[w] = leader_round - 1; go_on[w] = false } \
    COUNT_LATE(w)

proctype leader()
{
    byte w, r;
    do
    :: atomic { leader_round > 0 && leader_round <= ROUNDS && IS_FULL -> decide() }
    :: atomic { faults < FAULTS && !(held[0] == ROUNDS && held[1] == ROUNDS) -> die() }
    LEADER_STEPS(0)
    LEADER_STEPS(1)
    :: held[0] == ROUNDS && held[1] == ROUNDS -> break
    od
}

init
{
    atomic {
        run leader();
        run lane();
        run worker(0); run worker(1)
    }
}
