/* A model of a task that moves while two workers train on it (migrator/README.md, M1 to M10). The
 * processes are a coordinator, two lanes and two workers. Their steps are those of svc/coordinator
 * (K19, K20, recovery.c), svc/aggregator (A26 to A28, release.c, standing.c) and the client
 * (reroute.c, settle.c). The task is a sum of all ranks; workers have one buffer. The task moves
 * MOVES times, each time to the other lane. FAULTS faults occur, each of any kind at any moment: a
 * lane is lost (it is dead, or still writes without a connection to the coordinator), a control
 * connection breaks and loses its messages, an answer comes too late, or the coordinator dies and
 * restarts with the stored route.
 *
 * Asserts check the rules M of migrator and W of svc/wire. When no step is possible any more, each
 * worker has every result, and the lane in the stored route serves the task.
 *
 * Each of these macros breaks one rule, and the search must find an error: NO_TOMBSTONE,
 * RESULT_IS_COMMIT, EPOCH_NOT_RAISED. */

#ifndef MOVES
#define MOVES 2
#endif
#ifndef FAULTS
#define FAULTS 1
#endif
#define ROUNDS 2
#define LANES 2
#define WORKERS 2

/* orders of the coordinator to a lane; the answer has the turn of its order */
mtype = { PLACE, RELEASE, INSTALL, DROP, THAW };
/* states of a worker's round, which the worker sends to a lane */
mtype = { ANNOUNCE, HOLDS, IDLE };
/* messages of a lane to a worker */
mtype = { RESULT, COMMIT, MOVED, ERROR };
/* states of a migration, as in migrator.h */
mtype = { C_IDLE, C_PREPARING, C_RELEASING, C_INSTALLING, C_COMMITTED };

typedef piece {
    bool here;
    byte epoch;
    byte round; /* open round; 0: unknown until all workers have sent their states */
    bool is_held;
    bool is_installed;
    bool is_running; /* the lane sums the round, and reads inputs */
    bool is_copy;    /* the lane copies a worker's result to the other workers */
    bool wrote[WORKERS];
    bool has_spoken[WORKERS];
    byte said_round[WORKERS];
    mtype said[WORKERS];
    byte word[WORKERS];
    bool owes_rest; /* the coordinator waits for the answer to RELEASE */
    byte rest_turn; /* turn of this RELEASE */
};

typedef worker_view {
    byte at, epoch; /* the route */
    byte round;         /* newest round that the worker has begun */
    byte committed;
    byte word;          /* word of its newest message; each route gets a new word */
    mtype standing;     /* ANNOUNCE: `round` is announced; HOLDS: its result is here; IDLE */
    bool is_unsent, is_orphan;
};

piece p[LANES];
worker_view w[WORKERS];
byte gradient[WORKERS]; /* round of the gradient in the worker's memory; 0: garbage */
byte landing[WORKERS];  /* round of the result in the worker's memory; 0: garbage */
bool is_open[LANES * WORKERS] = true; /* the worker's connection to the lane */

bool is_lost[LANES];     /* the coordinator has declared the lane dead */
bool is_alive[LANES] = true; /* the process of the lane runs */
bool is_up[LANES] = true; /* the lane has a control connection */
bool applied[ROUNDS + 1]; /* a lane that is not lost has applied the round */

byte stored_lane, stored_epoch = 1; /* route in the store */
byte stored_lost = 1; /* newest epoch that began after a loss (K20) */

chan ready[LANES * WORKERS] = [2] of { mtype, byte, byte, byte }; /* standing, round, epoch, word */
chan heard[LANES * WORKERS] = [4] of { mtype, byte };             /* message, word */
chan order[LANES] = [4] of { mtype, byte, byte }; /* order, turn, epoch or round */
chan answer[LANES] = [4] of { mtype, byte, byte }; /* order, turn, round */
chan route[WORKERS] = [5] of { byte, byte, byte }; /* lane, epoch, newest epoch after a loss */

#define AT(lane, rank) ((lane) * WORKERS + (rank))

inline clear2(c) { do :: len(c) > 0 -> c?_,_ :: else -> break od }
inline clear3(c) { do :: len(c) > 0 -> c?_,_,_ :: else -> break od }
inline clear4(c) { do :: len(c) > 0 -> c?_,_,_,_ :: else -> break od }

/* --- lanes --- */

#define HAS_SAID(l, r) \
    (p[l].has_spoken[r] && p[l].said_round[r] == p[l].round && p[l].said[r] != IDLE)
#define HAS_QUORUM(l) (HAS_SAID(l, 0) && HAS_SAID(l, 1))
#define MAY_BEGIN(l) \
    (p[l].here && p[l].round > 0 && !p[l].is_held && !p[l].is_running && HAS_QUORUM(l))

inline forget(l)
{
    p[l].here = false; p[l].epoch = 0; p[l].round = 0;
    p[l].is_held = false; p[l].is_installed = false; p[l].is_running = false; p[l].is_copy = false;
    p[l].owes_rest = false; p[l].rest_turn = 0;
    for (r : 0 .. WORKERS - 1) {
        p[l].wrote[r] = false; p[l].has_spoken[r] = false;
        p[l].said_round[r] = 0; p[l].said[r] = IDLE; p[l].word[r] = 0
    }
}

/* Answers RELEASE when the piece is frozen: no round runs and none may begin (A26). */
inline rest(l)
{
    if
    :: p[l].owes_rest && p[l].is_held && !p[l].is_running ->
        p[l].owes_rest = false;
        answer[l]!RELEASE, p[l].rest_turn, (p[l].round > 0 -> p[l].round - 1 : 0)
    :: else
    fi
}

/* round_recover(): all workers have sent their states. If one worker knows that a round is
 * committed, the lane sends COMMIT of this round to the workers that do not know (W5). */
inline recover(l)
{
    if
    :: p[l].round == 0 && p[l].has_spoken[0] && p[l].has_spoken[1] && !p[l].is_held ->
        committed = 0;
        for (r : 0 .. WORKERS - 1) {
            known = p[l].said_round[r] - (p[l].said[r] != IDLE);
            committed = (known > committed -> known : committed)
        }
        p[l].round = committed + 1;
        for (r : 0 .. WORKERS - 1) {
            if
            :: p[l].said[r] != IDLE && p[l].said_round[r] < p[l].round ->
                assert(p[l].said_round[r] + 1 == p[l].round); /* no worker is two rounds behind */
                heard[AT(l, r)]!COMMIT, p[l].word[r]
            :: else
            fi
        }
    :: else
    fi
}

/* standing_welcome(): the lane knows the round, so it does not wait for other workers (A28). */
inline welcome(l, rank)
{
    assert(said_round + 1 >= p[l].round); /* standing_accepts() */
    assert(said_round <= p[l].round);
    if
    :: said != IDLE && said_round < p[l].round -> heard[AT(l, rank)]!COMMIT, word
    :: else
    fi
}

inline listen(l, rank)
{
    ready[AT(l, rank)]?said, said_round, epoch, word;
    if
    :: !p[l].here || p[l].epoch != epoch ->
        if
        :: said == IDLE /* the message belongs to no request */
        :: else ->
#ifdef NO_TOMBSTONE
            heard[AT(l, rank)]!ERROR, word
#else
            heard[AT(l, rank)]!MOVED, word
#endif
        fi
    :: else ->
        first = !p[l].has_spoken[rank];
        if
        :: !first && p[l].said_round[rank] == said_round /* repeated message */
        :: else ->
            assert(first || p[l].round == 0 || said_round == p[l].round); /* no earlier round */
            p[l].has_spoken[rank] = true;
            p[l].said_round[rank] = said_round;
            p[l].said[rank] = said;
            p[l].word[rank] = word;
            if
            :: p[l].round == 0 -> recover(l)
            :: p[l].round > 0 && first && p[l].is_installed -> welcome(l, rank)
            :: else
            fi
        fi
    fi
}

inline obey(l)
{
    order[l]?what, turn, number;
    if
    :: what == PLACE ->
        assert(!p[l].here); /* the lane would return -EBUSY */
        forget(l);
        p[l].here = true;
        p[l].epoch = number;
        answer[l]!PLACE, turn, 0
    :: what == RELEASE ->
        p[l].is_held = true;
        p[l].owes_rest = true;
        p[l].rest_turn = turn;
        rest(l)
    :: what == INSTALL ->
        assert(p[l].round == 0 && !p[l].has_spoken[0] && !p[l].has_spoken[1]);
        p[l].round = (number > 0 -> number + 1 : 0);
        p[l].is_installed = number > 0;
        answer[l]!INSTALL, turn, 0
    :: what == DROP ->
        assert(!p[l].is_running); /* the source is frozen; the target has no message of a worker */
        forget(l);
        if
        :: turn > 0 -> answer[l]!DROP, turn, 0
        :: else
        fi
    :: what == THAW ->
        p[l].is_held = false;
        p[l].owes_rest = false;
        recover(l)
    fi
}

/* The lane reads each gradient once, or only the result of a worker that has it. The memory must be
 * lent at this time (W4). */
inline begin(l)
{
    p[l].is_copy = p[l].said[0] == HOLDS || p[l].said[1] == HOLDS;
    for (r : 0 .. WORKERS - 1) {
        if
        :: !is_open[AT(l, r)] -> fails = true
        :: is_open[AT(l, r)] && p[l].said[r] == HOLDS -> assert(landing[r] == p[l].round)
        :: is_open[AT(l, r)] && p[l].said[r] != HOLDS && !p[l].is_copy ->
            assert(gradient[r] == p[l].round)
        :: else
        fi
        p[l].wrote[r] = p[l].said[r] == HOLDS
    }
    if
    :: fails -> fails = false; forget(l) /* the job fails on this lane, which was lost */
    :: else -> p[l].is_running = true
    fi
}

/* A lane does not write over a closed connection: the fence (W5). */
inline write(l, rank)
{
    if
    :: is_open[AT(l, rank)] ->
        landing[rank] = p[l].round;
        heard[AT(l, rank)]!RESULT, p[l].word[rank];
        p[l].wrote[rank] = true
    :: else -> forget(l)
    fi
}

/* M1: a round is applied once. It is applied again only if its owner was lost before any worker
 * knew that the round was committed. */
inline apply(l)
{
    if
    :: !is_lost[l] && !p[l].is_copy ->
        assert(!applied[p[l].round]);
        applied[p[l].round] = true;
        assert(stored_lane == l) /* the stored route names the owner */
    :: else
    fi;
    p[l].is_copy = false;
    p[l].is_running = false;
    p[l].round++;
    for (r : 0 .. WORKERS - 1) {
        p[l].wrote[r] = false;
        if
        :: is_open[AT(l, r)] -> heard[AT(l, r)]!COMMIT, p[l].word[r]
        :: else
        fi
    }
    rest(l)
}

/* Sets local variables to 0, because old values would multiply the states of the search. */
inline reset()
{
    said = 0; what = 0; said_round = 0; epoch = 0; word = 0; turn = 0; number = 0;
    known = 0; committed = 0; r = 0; first = false
}

#define MUST_WRITE(l, r) (p[l].is_running && !p[l].wrote[r])
#define HAS_WRITTEN(l) (p[l].is_running && p[l].wrote[0] && p[l].wrote[1])

proctype lane(byte me)
{
    mtype said, what;
    byte said_round, epoch, word, turn, number, known, committed, r;
    bool first, fails;

end:
    do
    :: atomic { is_alive[me] && len(order[me]) > 0 -> obey(me); reset() }
    :: atomic { is_alive[me] && len(ready[AT(me, 0)]) > 0 -> listen(me, 0); reset() }
    :: atomic { is_alive[me] && len(ready[AT(me, 1)]) > 0 -> listen(me, 1); reset() }
    :: atomic { is_alive[me] && MAY_BEGIN(me) -> begin(me); reset() }
    :: atomic { is_alive[me] && MUST_WRITE(me, 0) -> write(me, 0); reset() }
    :: atomic { is_alive[me] && MUST_WRITE(me, 1) -> write(me, 1); reset() }
    :: atomic { is_alive[me] && HAS_WRITTEN(me) -> apply(me); reset() }
    od
}

/* --- workers --- */

inline speak(me)
{
    ready[AT(w[me].at, me)]!w[me].standing,
        (w[me].standing == IDLE -> w[me].committed : w[me].round), w[me].epoch, w[me].word;
    w[me].is_unsent = false
}

/* A lane that still reads this memory gets garbage. */
inline write_over(me)
{
    gradient[me] = 0;
    landing[me] = 0
}

inline hear(me, from)
{
    heard[AT(from, me)]?what, word;
    if
    :: w[me].at != from || w[me].word != word || w[me].standing == IDLE /* an old word */
    :: else ->
        assert(what != ERROR); /* the worker has made no mistake */
        if
        :: what == RESULT ->
            assert(w[me].standing == ANNOUNCE); /* each result arrives once */
            assert(landing[me] == w[me].round);
            w[me].standing = HOLDS;
#ifdef RESULT_IS_COMMIT
            write_over(me)
#endif
        :: what == COMMIT ->
#ifndef RESULT_IS_COMMIT
            assert(landing[me] == w[me].round); /* even if RESULT was lost (W4) */
            assert(w[1 - me].committed >= w[me].round || landing[1 - me] == w[me].round);
#endif
            write_over(me);
            w[me].committed = w[me].round;
            w[me].standing = IDLE
        :: what == MOVED -> w[me].is_orphan = true
        fi
    fi;
    what = 0; word = 0
}

/* No message and no write of the former owner arrives from now on (W5). */
inline cut_off(me, former)
{
    is_open[AT(former, me)] = false;
    clear2(heard[AT(former, me)]);
    clear4(ready[AT(former, me)])
}

inline adopt(me)
{
    route[me]?lane_id, epoch, lost;
    if
    :: lane_id == w[me].at && epoch == w[me].epoch && !w[me].is_orphan /* no new route */
    :: else ->
        if
        :: lane_id != w[me].at && lost > w[me].epoch -> cut_off(me, w[me].at)
        :: else
        fi;
        w[me].at = lane_id;
        w[me].epoch = epoch;
        w[me].word++;
        w[me].is_orphan = false;
        w[me].is_unsent = true
    fi;
    lane_id = 0; epoch = 0; lost = 0
}

proctype worker(byte me)
{
    mtype what;
    byte word, lane_id, epoch, lost;

end:
    do
    :: atomic { w[me].standing == IDLE && w[me].round < ROUNDS && !w[me].is_unsent ->
            w[me].round++;
            gradient[me] = w[me].round;
            landing[me] = 0;
            w[me].standing = ANNOUNCE;
            w[me].word++;
            w[me].is_unsent = true }
    :: atomic { w[me].is_unsent && nfull(ready[AT(w[me].at, me)]) -> speak(me) }
    :: atomic { len(heard[AT(0, me)]) > 0 -> hear(me, 0) }
    :: atomic { len(heard[AT(1, me)]) > 0 -> hear(me, 1) }
    :: atomic { len(route[me]) > 0 -> adopt(me) }
    od
}

/* --- coordinator --- */

mtype state = C_IDLE;
bool is_placing; /* after a loss, the new owner has not answered PLACE yet */
byte place_turn;

inline tell_routes()
{
    route[0]!stored_lane, stored_epoch, stored_lost;
    route[1]!stored_lane, stored_epoch, stored_lost
}

inline ask(to, kind, value)
{
    turns++;
    order[to]!kind, turns, value
}

inline tell(to, kind)
{
    if
    :: is_up[to] -> order[to]!kind, 0, 0
    :: else /* meet() sends its orders later */
    fi
}

/* SEND_ABORT: the target drops the task; the source thaws it and remains the owner (M1, M2). */
inline give_up()
{
    if
    :: state == C_PREPARING || state == C_RELEASING || state == C_INSTALLING ->
        assert(stored_lane == source || is_lost[source]);
        tell(target, DROP);
        if
        :: state != C_PREPARING -> tell(source, THAW)
        :: else
        fi;
        state = C_IDLE
    :: else
    fi
}

inline place()
{
    is_placing = true;
    ask(stored_lane, PLACE, stored_epoch);
    place_turn = turns
}

/* Reconnects to a lane. Compares its piece with the stored route (K9), and thaws a frozen piece
 * (K19). */
inline meet(l)
{
    clear3(order[l]);
    clear3(answer[l]);
    p[l].owes_rest = false;
    is_up[l] = true;
    if
    :: p[l].here && (stored_lane != l || stored_epoch != p[l].epoch) -> order[l]!DROP, 0, 0
    :: else
    fi;
    if
    :: p[l].here && stored_lane == l && stored_epoch == p[l].epoch ->
        if
        :: p[l].is_held -> order[l]!THAW, 0, 0
        :: else
        fi;
        if
        :: is_placing -> is_placing = false; tell_routes()
        :: else
        fi
    :: stored_lane == l && (!p[l].here || stored_epoch != p[l].epoch) -> place()
    :: else
    fi
}

inline break_control(l)
{
    is_up[l] = false;
    clear3(order[l]);
    clear3(answer[l]);
    p[l].owes_rest = false;
    if
    :: state == C_COMMITTED && l == source ->
        state = C_IDLE /* meet() sends DROP when the lane is back */
    :: (state == C_PREPARING || state == C_RELEASING || state == C_INSTALLING) -> give_up()
    :: else
    fi
}

/* recovery.c: the route is stored first, with the next epoch. */
inline lose(l)
{
    is_lost[l] = true;
    is_up[l] = false;
    clear3(order[l]);
    clear3(answer[l]);
    if
    :: is_alive[l] = false
    :: true /* the lane still runs */
    fi;
    if
    :: state == C_COMMITTED -> state = C_IDLE
    :: else -> give_up()
    fi;
    if
    :: stored_lane == l ->
        for (i : 1 .. ROUNDS) {
            applied[i] = applied[i] && (w[0].committed >= i || w[1].committed >= i)
        }
        i = 0;
        epoch++;
        stored_lane = 1 - l;
        stored_epoch = epoch;
        stored_lost = epoch;
        if
        :: is_up[1 - l] -> place()
        :: else -> is_placing = true /* meet() places the piece later */
        fi
    :: else
    fi
}

/* The coordinator loses its memory and all its connections, and starts again. */
inline restart()
{
    state = C_IDLE;
    is_placing = false;
    epoch = stored_epoch;
    for (i : 0 .. LANES - 1) {
        if
        :: !is_lost[i] -> meet(i)
        :: else
        fi
    }
    clear3(route[0]);
    clear3(route[1]);
    if
    :: !is_placing -> tell_routes()
    :: else
    fi;
    i = 0
}

inline take(from)
{
    answer[from]?kind, turn, value;
    if
    :: is_placing && turn == place_turn -> is_placing = false; tell_routes()
    :: state == C_PREPARING && turn == turns ->
        ask(source, RELEASE, 0);
        state = C_RELEASING
    :: state == C_RELEASING && turn == turns ->
        ask(target, INSTALL, value);
        state = C_INSTALLING
    :: state == C_INSTALLING && turn == turns ->
        stored_lane = target; /* the switch: one transaction */
        stored_epoch = move_epoch;
        if
        :: tell_routes();
            if
            :: is_up[source] -> ask(source, DROP, 0); state = C_COMMITTED
            :: else -> state = C_IDLE
            fi
        :: faults > 0 -> faults--; restart()
        fi
    :: state == C_COMMITTED && turn == turns -> state = C_IDLE
    :: else /* answer to an order that has ended */
    fi;
    kind = 0; turn = 0; value = 0
}

proctype coordinator()
{
    mtype kind;
    byte turn, value, turns, source, target, move_epoch, i;
    byte epoch = 1, moves = MOVES, faults = FAULTS;

end:
    do
    :: atomic { state == C_IDLE && moves > 0 && is_up[0] && is_up[1] && !is_placing ->
            moves--;
            source = stored_lane;
            target = 1 - stored_lane;
#ifndef EPOCH_NOT_RAISED
            epoch++;
#endif
            move_epoch = epoch;
            ask(target, PLACE, move_epoch);
            state = C_PREPARING }
    :: atomic { len(answer[0]) > 0 -> take(0) }
    :: atomic { len(answer[1]) > 0 -> take(1) }
    :: atomic { !is_up[0] && !is_lost[0] -> meet(0) }
    :: atomic { !is_up[1] && !is_lost[1] -> meet(1) }
    :: atomic { faults > 0 && is_up[0] -> faults--; break_control(0) }
    :: atomic { faults > 0 && is_up[1] -> faults--; break_control(1) }
    :: atomic { faults > 0 && !is_lost[0] && !is_lost[1] -> faults--; lose(0) }
    :: atomic { faults > 0 && !is_lost[0] && !is_lost[1] -> faults--; lose(1) }
    :: atomic { faults > 0 -> faults--; restart() }
    :: atomic { faults > 0 && state != C_IDLE -> /* a time-out */
            faults--;
            if
            :: state == C_COMMITTED -> ask(source, DROP, 0)
            :: else -> give_up()
            fi }
    od
}

init
{
    byte r;

    atomic {
        p[0].here = true;
        p[0].epoch = 1;
        p[0].round = 1;
        for (r : 0 .. WORKERS - 1) {
            w[r].epoch = 1;
            w[r].standing = IDLE;
            p[0].said[r] = IDLE;
            p[1].said[r] = IDLE
        }
        r = 0;
        run coordinator();
        run lane(0);
        run lane(1);
        run worker(0);
        run worker(1)
    }
    /* No process can make a step any more. */
    timeout ->
    assert(w[0].committed == ROUNDS && w[1].committed == ROUNDS);
    assert(p[stored_lane].here && p[stored_lane].epoch == stored_epoch);
    assert(!p[stored_lane].is_held);
    assert(is_lost[1 - stored_lane] || !p[1 - stored_lane].here);
    assert(state == C_IDLE && !is_placing)
}
