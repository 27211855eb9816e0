/* A model of a worker that leaves an elastic job while its next round is open (W4, W5, W15, A2,
 * A44). The model has a lane, three workers and one short tensor. A worker begins round r+1 when
 * the result of round r has landed (L17). The steps are those of settle.c and leave.c of the
 * client, and of announce.c, round.c and standing.c of the lane. The last worker leaves when it has
 * the COMMIT of each result, and reports the newest committed round; the coordinator then changes
 * the ranks. The other workers end any number of rounds. Each receive of a record and each send of
 * a COMMIT is a separate step. The lane is lost FAULTS times, with all records that it has not
 * sent. With STOPS worker 0 stops forever at any time after the leave.
 *
 * Asserts check that all workers read equal results of a round, even the worker that left; that a
 * lane reads only gradients that are lent; and that no announcement overwrites an unsent COMMIT. At
 * the end each worker has ended its rounds and the last worker has left. With STOPS no worker waits
 * for a COMMIT of a reported round.
 *
 * Each of these macros breaks one rule, and the search must find an error: MOVES_ON (the lane sends
 * no COMMIT to a worker that has announced the next round), KEEPS_COMMIT (an unsent COMMIT stays at
 * the announcement after the next), REPORTS_KEPT (the leaving worker reports its last result as
 * committed), WITHOUT_REPORT (a lane does not know the reported round), EARLIEST_ALONE (of two
 * announcements the lane compares only the earlier one with the reported round), WAITS_FOR_ALL (the
 * lane sends the COMMIT of a reported round only when all ranks have reported). */

#ifndef ROUNDS
#define ROUNDS 2
#endif
#ifndef FAULTS
#define FAULTS 0
#endif
#define WORKERS 3
#define LEAVER 2
#define ALL 7
#define ROOM 8 /* maximum number of records in flight to one process */

#define AT(i, round) ((i) * 2 + ((round) & 1))
#define OF(i, round) ((i) * (ROUNDS + 1) + (round))
#define HAS(set, i) (((set) >> (i)) & 1)

mtype = { IDLE, ANNOUNCE, HOLDS, KEEPS, RESULT, COMMIT };

/* A word is the epoch of its announcement. No other announcement has the same word and round. */
chan ready[WORKERS] = [ROOM] of { mtype, byte, byte, byte }; /* round, word, epoch */
chan heard[WORKERS] = [ROOM] of { mtype, byte, byte };       /* round, word */

typedef worker {
    byte rounds; /* number of rounds that the worker will begin */
    byte round;  /* newest round that the worker has begun */
    mtype standing;
    byte word, kept_word, epoch;
    bool has_kept, is_gone, is_stopped
};
worker w[WORKERS];

/* memory of the workers, in two halves: round of a gradient, and round and ranks of a result */
byte gradient[WORKERS * 2], landed[WORKERS * 2], landing[WORKERS * 2];
byte result[WORKERS * (ROUNDS + 1)]; /* results that a worker has read */

/* variables of the lane */
byte round, epoch = 1, members = ALL, spoken, wrote, sum;
bool is_held, is_running, is_copy;
mtype said[WORKERS * 2];
byte said_round[WORKERS * 2], said_word[WORKERS * 2];
bool owes[WORKERS * 2];
byte left_round; /* reported round that the lane knows */

/* variables of the coordinator */
byte reported, lost_epoch, faults = FAULTS;
bool must_regroup;

/* variables of the present step */
mtype what;
byte i, r, word, at, known, committed;

/* --- workers --- */

inline speak(me, stands, number, its_word)
{
    assert(nfull(ready[me]));
    ready[me]!stands, number, its_word, w[me].epoch
}

inline begin_round(me)
{
    if
    :: w[me].standing == HOLDS -> w[me].has_kept = true; w[me].kept_word = w[me].word
    :: else
    fi;
    w[me].round++;
    w[me].standing = ANNOUNCE;
    w[me].word = w[me].epoch;
    gradient[AT(me, w[me].round)] = w[me].round;
    speak(me, ANNOUNCE, w[me].round, w[me].word)
}

inline read_result(me)
{
    at = AT(me, w[me].round);
    assert(landed[at] == w[me].round);
    result[OF(me, w[me].round)] = landing[at];
    for (i : 0 .. WORKERS - 1) {
        known = result[OF(i, w[me].round)];
        assert(known == 0 || known == landing[at])
    }
    w[me].has_kept = false;
    w[me].standing = HOLDS
}

inline hear(me)
{
    heard[me]?what, r, word;
    if
    :: what == COMMIT && w[me].has_kept && r + 1 == w[me].round && word == w[me].kept_word ->
        w[me].has_kept = false
    :: else ->
        if
        :: r != w[me].round || word != w[me].word || w[me].standing == IDLE /* old word */
        :: else ->
            if
            :: w[me].standing == ANNOUNCE -> read_result(me)
            :: else
            fi;
            if
            :: what == COMMIT -> w[me].standing = IDLE
            :: else
            fi
        fi
    fi
}

/* Adopts the route of another epoch. The worker reports the states of its rounds with new words;
 * only the kept round keeps its word. The connection to a lost lane ends. */
inline adopt(me)
{
    do
    :: w[me].epoch < lost_epoch && len(heard[me]) > 0 -> heard[me]?_, _, _
    :: else -> break
    od;
    w[me].epoch = epoch;
    if
    :: w[me].has_kept -> speak(me, KEEPS, w[me].round - 1, w[me].kept_word)
    :: else
    fi;
    w[me].word = epoch;
    speak(me, w[me].standing, w[me].round, w[me].word)
}

#ifdef REPORTS_KEPT
#define IS_SETTLED true
#define REPORT (w[LEAVER].standing == ANNOUNCE -> w[LEAVER].round - 1 : w[LEAVER].round)
#else
#define IS_SETTLED (!w[LEAVER].has_kept && w[LEAVER].standing != HOLDS)
#define REPORT (w[LEAVER].standing == IDLE -> w[LEAVER].round : w[LEAVER].round - 1)
#endif

inline leave()
{
    reported = REPORT;
    w[LEAVER].is_gone = true;
    must_regroup = true
}

/* --- the coordinator --- */

inline forget()
{
    round = 0; spoken = 0; wrote = 0; sum = 0;
    is_held = false; is_running = false; is_copy = false;
    for (i : 0 .. WORKERS * 2 - 1) {
        said[i] = IDLE; said_round[i] = 0; said_word[i] = 0; owes[i] = false
    }
    epoch++;
#ifndef WITHOUT_REPORT
    left_round = reported
#endif
}

inline hold()
{
    is_held = true;
    if /* a running round ends, because it needs the gradient of the worker that left */
    :: is_running -> is_running = false; is_copy = false; wrote = 0; sum = 0
    :: else
    fi
}

inline regroup()
{
    members = ALL & ~(1 << LEAVER);
    must_regroup = false;
    forget()
}

inline lose_lane()
{
    faults--;
    forget();
    lost_epoch = epoch
}

/* --- the lane --- */

#define NEWEST(me) (said_round[AT(me, 0)] < said_round[AT(me, 1)] -> AT(me, 1) : AT(me, 0))
#define OLDEST(me) (said_round[AT(me, 0)] < said_round[AT(me, 1)] -> AT(me, 0) : AT(me, 1))
#define EARLIEST(me) (said_round[OLDEST(me)] == 0 -> NEWEST(me) : OLDEST(me))
#define HAS_SAID(me) \
    (!HAS(members, me) || (said_round[AT(me, round)] == round && said[AT(me, round)] != IDLE))
#define MAY_BEGIN \
    (round > 0 && !is_held && !is_running && HAS_SAID(0) && HAS_SAID(1) && HAS_SAID(2))

/* commit_reported() */
inline commit_reported(me)
{
    for (i : 0 .. 1) {
        if
        :: said[AT(me, i)] != IDLE && said_round[AT(me, i)] == left_round && left_round > 0 ->
            owes[AT(me, i)] = true;
            said[AT(me, i)] = IDLE
        :: else
        fi
    }
}

/* settle_rank() */
inline settle(me)
{
    at = NEWEST(me);
    if
    :: said_round[at] > round -> at = EARLIEST(me)
    :: said_round[at] == round && said[EARLIEST(me)] == HOLDS &&
       said_round[EARLIEST(me)] + 1 == round -> owes[EARLIEST(me)] = true
    :: else
    fi;
    if
    :: said[at] == IDLE
    :: said[at] != IDLE && said_round[at] < round ->
        assert(said_round[at] + 1 == round); /* no rank is two rounds behind */
        owes[at] = true
    :: else -> is_copy = is_copy || said[at] == HOLDS
    fi
}

/* round_recover() and round_settle() */
inline recover()
{
    if
    :: !is_held && (spoken & members) == members ->
        committed = 0;
        for (i : 0 .. WORKERS - 1) {
            at = EARLIEST(i);
            known = said_round[at] - (said[at] != IDLE);
#ifndef EARLIEST_ALONE
            known = (left_round > 0 && said_round[NEWEST(i)] == left_round -> left_round : known);
#endif
            known = (left_round > 0 && said_round[at] == left_round -> left_round : known);
            committed = (HAS(members, i) && known > committed -> known : committed)
        }
        round = committed + 1;
        for (i : 0 .. WORKERS - 1) {
            if
            :: HAS(members, i) -> settle(i)
            :: else
            fi
        }
    :: else
    fi
}

/* take() */
inline take(me)
{
    at = AT(me, r);
#ifndef KEEPS_COMMIT
    if
    :: what == ANNOUNCE && said_round[at] + 2 == r -> owes[at] = false
    :: else
    fi;
#endif
    assert(!owes[at]);
    said[at] = (what == KEEPS -> HOLDS : what);
    said_round[at] = r;
    said_word[at] = word;
    if
    :: what == KEEPS
    :: what != KEEPS && round == 0 ->
        spoken = spoken | (1 << me);
#ifndef WAITS_FOR_ALL
        commit_reported(me);
#endif
        recover()
    :: else -> assert(r == round || r == round + 1)
    fi
}

inline listen(me)
{
    ready[me]?what, r, word, known;
    if
    :: known == epoch && HAS(members, me) -> take(me)
    :: else /* ESTALE */
    fi
}

/* The lane reads all gradients, or only the result of a worker that has it. The memory must be lent
 * at this time (W4). */
inline begin()
{
    sum = members;
    for (i : 0 .. WORKERS - 1) {
        at = AT(i, round);
        if
        :: HAS(members, i) && said[at] == HOLDS ->
            assert(landed[at] == round && (wrote == 0 || sum == landing[at]));
            sum = landing[at];
            wrote = wrote | (1 << i)
        :: HAS(members, i) && said[at] != HOLDS && !is_copy -> assert(gradient[at] == round)
        :: else
        fi
    }
    is_running = true
}

/* The result lands only in a worker that still runs. */
inline write(me)
{
    at = AT(me, round);
    landing[at] = sum;
    landed[at] = round;
    assert(nfull(heard[me]));
    heard[me]!RESULT, round, said_word[at];
    wrote = wrote | (1 << me)
}

#ifdef MOVES_ON
#define NEEDS_COMMIT(me) (said_round[AT(me, round + 1)] != round + 1)
#else
#define NEEDS_COMMIT(me) true
#endif

inline commit()
{
    is_running = false; is_copy = false; wrote = 0; sum = 0;
    for (i : 0 .. WORKERS - 1) {
        owes[AT(i, round)] = HAS(members, i) && NEEDS_COMMIT(i)
    }
    round++
}

inline flush(slot)
{
    assert(nfull(heard[(slot) / 2]));
    heard[(slot) / 2]!COMMIT, said_round[slot], said_word[slot];
    owes[slot] = false
}

/* --- all processes --- */

/* Sets variables to 0, because old values would multiply the states of the search. */
inline reset()
{
    what = 0; i = 0; r = 0; word = 0; at = 0; known = 0; committed = 0
}

#define IS_UP(me) (!w[me].is_gone && !w[me].is_stopped)
#define IS_OPEN(me) (IS_UP(me) && w[me].epoch == epoch)
#define MAY_BEGIN_ROUND(me) \
    (IS_OPEN(me) && w[me].round < w[me].rounds && w[me].standing != ANNOUNCE)
#define MUST_WRITE(me) \
    (is_running && HAS(members, me) && !HAS(wrote, me) && IS_OPEN(me))
#define HAS_WRITTEN (is_running && (wrote & members) == members)

/* Checks the state in which no step is possible any more. */
inline check_end()
{
    assert(w[LEAVER].is_gone && !must_regroup);
    for (i : 0 .. LEAVER - 1) {
        known = w[i].round - w[i].has_kept; /* oldest round whose COMMIT the worker lacks */
        assert(w[i].is_stopped || w[0].is_stopped ||
               (w[i].standing == IDLE && !w[i].has_kept) ||
               (w[i].standing == ANNOUNCE && w[i].round > reported));
        assert(w[i].is_stopped || known != reported || w[i].standing == IDLE)
    }
}

active proctype world()
{
    for (i : 0 .. WORKERS - 1) {
        w[i].standing = IDLE;
        w[i].epoch = 1
    }
    for (i : 0 .. WORKERS * 2 - 1) {
        said[i] = IDLE
    }
    round = 1;
    spoken = ALL;
    for (i : 0 .. LEAVER - 1) {
        select (r : 1 .. ROUNDS);
        w[i].rounds = r
    }
    w[LEAVER].rounds = ROUNDS;
    reset();
    do
    :: atomic { MAY_BEGIN_ROUND(0) -> begin_round(0); reset() }
    :: atomic { MAY_BEGIN_ROUND(1) -> begin_round(1); reset() }
    :: atomic { MAY_BEGIN_ROUND(2) -> begin_round(2); reset() }
    :: atomic { IS_UP(0) && len(heard[0]) > 0 -> hear(0); reset() }
    :: atomic { IS_UP(1) && len(heard[1]) > 0 -> hear(1); reset() }
    :: atomic { IS_UP(2) && len(heard[2]) > 0 -> hear(2); reset() }
    :: atomic { IS_UP(0) && w[0].epoch != epoch -> adopt(0); reset() }
    :: atomic { IS_UP(1) && w[1].epoch != epoch -> adopt(1); reset() }
    :: atomic { IS_UP(2) && w[2].epoch != epoch -> adopt(2); reset() }
    :: atomic { IS_UP(2) && w[2].round > 0 && IS_SETTLED -> leave(); reset() }
#ifdef STOPS
    :: atomic { w[LEAVER].is_gone && !w[0].is_stopped -> w[0].is_stopped = true }
#endif
    :: atomic { must_regroup && !is_held -> hold() }
    :: atomic { must_regroup && is_held && !is_running -> regroup(); reset() }
    :: atomic { faults > 0 -> lose_lane(); reset() }
    :: atomic { len(ready[0]) > 0 -> listen(0); reset() }
    :: atomic { len(ready[1]) > 0 -> listen(1); reset() }
    :: atomic { len(ready[2]) > 0 -> listen(2); reset() }
    :: atomic { MAY_BEGIN -> begin(); reset() }
    :: atomic { MUST_WRITE(0) -> write(0); reset() }
    :: atomic { MUST_WRITE(1) -> write(1); reset() }
    :: atomic { MUST_WRITE(2) -> write(2); reset() }
    :: atomic { HAS_WRITTEN -> commit(); reset() }
    :: atomic { owes[0] -> flush(0) }
    :: atomic { owes[1] -> flush(1) }
    :: atomic { owes[2] -> flush(2) }
    :: atomic { owes[3] -> flush(3) }
    :: atomic { owes[4] -> flush(4) }
    :: atomic { owes[5] -> flush(5) }
    :: else -> atomic { check_end(); break }
    od
}
