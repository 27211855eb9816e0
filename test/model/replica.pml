/* A model of the copy of a table on a replica lane, and of its promotion (A127 to A132). The model
 * has an owner, a replica lane, a coordinator and two workers with one row each. A worker sends its
 * pushes one by one. The owner applies a push, logs the changed row with its progress, and sends
 * the word when the log has landed. Blocks in flight are lost with the owner. The owner may be
 * killed, may be counted as lost while it lives, and may lose its connection to the replica lane.
 * The coordinator promotes a copy only if it has stored that the copy is whole.
 *
 * Asserts check that a promoted copy has every push whose word a worker has received, before or
 * after the promotion, and that each row contains each push once. At the end each worker has the
 * words of all pushes, or the table has failed because no copy was whole.
 *
 * Each of these macros breaks one rule, and the search must find an error: WORD_BEFORE_LOG (the
 * owner sends a word before the log has landed), PROMOTES_BEFORE_FENCE (the owner can still write
 * to the ring after the promotion), PROMOTES_LAGGING (words no longer wait when the replica lane is
 * lost, and the coordinator has not stored that), WITHOUT_PROGRESS (the replica lane applies rows,
 * but not their progress), WHOLE_EARLY (the copy is reported before its last block is applied). */

#ifndef PUSHES
#define PUSHES 2
#endif
#define WORKERS 2
#define RING 3 /* blocks that fit into the ring */

mtype = { ROW, END };
mtype = { COPYING, ENDING, WHOLE, BROKEN, ALONE };

chan flight = [2] of { mtype, byte, byte, byte }; /* worker, pushes in the row, progress */
chan ring = [RING] of { mtype, byte, byte, byte };
chan to_owner[WORKERS] = [1] of { byte };
chan to_next[WORKERS] = [1] of { byte };
chan word[WORKERS] = [2] of { byte };
chan report = [2] of { mtype };

byte asked[WORKERS], acked[WORKERS];     /* last push sent, last word received */
byte row[WORKERS], progress[WORKERS];    /* of the owner */
byte copied[WORKERS], reached[WORKERS];  /* of the copy */
byte needed[WORKERS], told[WORKERS];     /* place in the log of the last push, last word sent */
byte logged, landed, walked;
mtype state = COPYING;
bool holds;       /* words wait for the log */
bool is_broken;   /* the ring can no longer be written */
bool is_dead, is_promoted, has_failed, is_over[WORKERS], copy_ended;
bool stored_whole;

#define LOGS (state == COPYING || state == ENDING || state == WHOLE)

inline log_row(i)
{
    flight!ROW, i, row[i], progress[i];
    logged++;
    needed[i] = logged
}

inline apply_block()
{
    d_step {
        ring?kind, i, pushes, number;
        if
        :: kind == ROW ->
            copied[i] = pushes;
#ifndef WITHOUT_PROGRESS
            reached[i] = number
#endif
        :: else -> copy_ended = true
        fi;
        i = 0; pushes = 0; number = 0
    }
}

active proctype owner()
{
    byte i, number, pushes;
    mtype kind;
end:
    do
    :: atomic { !is_dead && nfull(flight) && (nempty(to_owner[0]) || nempty(to_owner[1])) ->
            if /* applies a push */
            :: nempty(to_owner[0]) -> i = 0
            :: nempty(to_owner[1]) -> i = 1
            fi;
            to_owner[i]?number;
            row[i]++;
            progress[i] = number;
            if
            :: LOGS && (state != COPYING || i < walked) -> log_row(i)
            :: else -> skip
            fi;
            i = 0; number = 0 }
    :: atomic { !is_dead && state == COPYING && nfull(flight) -> /* copies the next row */
            if
            :: walked < WORKERS -> log_row(walked); walked++
            :: else -> flight!END, 0, 0, 0; logged++; state = ENDING; holds = true
            fi }
    :: atomic { !is_dead && nempty(flight) && (is_broken || nfull(ring)) -> /* a block lands */
            flight?kind, i, pushes, number;
            if
            :: is_broken -> skip
            :: else -> ring!kind, i, pushes, number; landed++
            fi;
            i = 0; pushes = 0; number = 0; kind = 0 }
#ifdef WHOLE_EARLY
    :: atomic { !is_dead && state == ENDING ->
#else
    :: atomic { !is_dead && state == ENDING && copy_ended && empty(ring) -> /* TAKEN */
#endif
            state = WHOLE; report!WHOLE }
    :: atomic { !is_dead && is_broken && LOGS -> /* sees the end of the connection */
            state = BROKEN; report!BROKEN;
#ifdef PROMOTES_LAGGING
            holds = false
#endif
            }
    :: atomic { !is_dead && progress[0] > told[0] && nfull(word[0]) && (!holds ||
#ifdef WORD_BEFORE_LOG
            true ||
#endif
            (state != BROKEN && needed[0] <= landed)) -> told[0] = progress[0]; word[0]!told[0] }
    :: atomic { !is_dead && progress[1] > told[1] && nfull(word[1]) && (!holds ||
#ifdef WORD_BEFORE_LOG
            true ||
#endif
            (state != BROKEN && needed[1] <= landed)) -> told[1] = progress[1]; word[1]!told[1] }
    od
}

active proctype coordinator()
{
    byte i, pushes, number;
    mtype kind;
end:
    do
    :: atomic { !is_promoted && !has_failed && nempty(report) ->
            report?kind;
            if
            :: kind == WHOLE -> stored_whole = true
            :: else -> stored_whole = false
            fi }
        if
        :: kind == BROKEN -> atomic { holds = false; state = ALONE } /* the order to the owner */
        :: else -> skip
        fi
    :: atomic { !is_promoted && !has_failed && !stored_whole && is_dead -> has_failed = true }
    :: !is_promoted && !has_failed && stored_whole -> /* the owner counts as lost */
#ifndef PROMOTES_BEFORE_FENCE
        is_broken = true;
#endif
        do
        :: atomic { nempty(ring) -> apply_block() }
        :: empty(ring) -> break
        od;
        atomic {
            assert(reached[0] >= acked[0] && reached[1] >= acked[1]);
            is_promoted = true
        }
    :: atomic { is_promoted && (nempty(to_next[0]) || nempty(to_next[1])) ->
            if
            :: nempty(to_next[0]) -> i = 0
            :: nempty(to_next[1]) -> i = 1
            fi;
            to_next[i]?number;
            if
            :: number > reached[i] -> copied[i]++; reached[i] = number
            :: else -> skip
            fi;
            assert(copied[i] == number);
            acked[i] = number }
    od
}

/* The replica lane applies blocks while it is not promoted. */
active proctype replica()
{
    byte i, pushes, number;
    mtype kind;
end:
    do
    :: atomic { !is_promoted && nempty(ring) -> apply_block() }
    od
}

active proctype kill()
{
end:
    if
    :: atomic { is_dead = true; }
    :: is_broken = true
    fi
}

active [WORKERS] proctype worker()
{
    byte number;
    byte me = _pid % WORKERS;
end:
    do
    :: atomic { acked[me] < PUSHES && asked[me] == acked[me] && !is_over[me] ->
            asked[me]++; to_owner[me]!asked[me] }
    :: atomic { !is_over[me] && nempty(word[me]) ->
            word[me]?number;
            acked[me] = number;
            assert(!is_promoted || reached[me] >= number) }
    :: atomic { is_promoted && !is_over[me] -> /* closes the connection to the former owner */
            is_over[me] = true;
            if
            :: asked[me] > acked[me] -> to_next[me]!asked[me]
            :: else -> skip
            fi }
    :: atomic { is_over[me] && acked[me] < PUSHES && asked[me] == acked[me] ->
            asked[me]++; to_next[me]!asked[me] }
    od
}

active proctype monitor()
{
    do
    :: atomic { timeout ->
            assert(has_failed || (acked[0] == PUSHES && acked[1] == PUSHES));
            assert(!is_promoted || (copied[0] == PUSHES && copied[1] == PUSHES));
            break }
    od
}
