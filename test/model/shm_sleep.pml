/* A model of a worker of fabric_shm that sleeps until a lane wakes it (svc/wire, W8;
 * svc/fabric/shm, S4). The steps are those of svc/fabric/shm/peer/bell.c and ring.c. Two lanes
 * publish records and ring one bell.
 *
 * A plain store remains in its processor's buffer until the `memory` process or a fence writes it
 * to memory, as on real machines: otherwise the model could not detect a missing fence. The search
 * checks that the worker does not sleep forever while a record waits: the model ends only when the
 * worker has read all records.
 *
 * Each of these macros removes or displaces one step, and the search must find an error:
 * WITHOUT_WAKER_FENCE, WITHOUT_SLEEPER_FENCE, WITHOUT_SECOND_LOOK, VALUE_READ_LATE. */

#define LANES 2
#define RECORDS 2

byte tail[LANES];
byte tail_in_buffer[LANES];
bool tail_is_buffered[LANES];
byte tails_seen[LANES]; /* records that the worker has read from each lane */
bool sleeping;
bool sleeping_in_buffer;
bool sleeping_is_buffered;
byte word; /* the word of the futex: number of rings */

inline flush_tail(i)
{
    atomic {
        if
        :: tail_is_buffered[i] -> tail[i] = tail_in_buffer[i]; tail_is_buffered[i] = false
        :: else
        fi
    }
}

inline flush_sleeping()
{
    atomic {
        if
        :: sleeping_is_buffered -> sleeping = sleeping_in_buffer; sleeping_is_buffered = false
        :: else
        fi
    }
}

/* Stores of one processor become visible in their order, so an earlier store leaves the buffer
 * first. */
inline store_tail(i, value)
{
    flush_tail(i);
    atomic { tail_in_buffer[i] = value; tail_is_buffered[i] = true }
}

inline store_sleeping(value)
{
    flush_sleeping();
    atomic { sleeping_in_buffer = value; sleeping_is_buffered = true }
}

active proctype memory()
{
end:
    do
    :: tail_is_buffered[0] -> flush_tail(0)
    :: tail_is_buffered[1] -> flush_tail(1)
    :: sleeping_is_buffered -> flush_sleeping()
    od
}

/* shm_push(), then shm_flush(): fence, shm_bell_wake(). */
active [LANES] proctype lane()
{
    byte published;
    bool rings;
    byte me = _pid - 1;

    do
    :: published < RECORDS ->
        published++;
        store_tail(me, published);
#ifndef WITHOUT_WAKER_FENCE
        flush_tail(me);
#endif
        if
        :: sleeping ->
            atomic { rings = sleeping; sleeping = false } /* one lane rings */
            if
            :: rings -> word++
            :: else
            fi
        :: else
        fi
    :: else -> break
    od
}

/* Reads all records (shm_poll()), then sleeps (shm_arm(), then the futex). */
active proctype worker()
{
    byte value;
    byte taken;
    bool has_work;

    do
    :: true ->
        store_sleeping(false); /* shm_bell_get_up() */
        tails_seen[0] = tail[0];
        tails_seen[1] = tail[1];
        taken = tails_seen[0] + tails_seen[1];
        if
        :: taken == LANES * RECORDS -> break
        :: else
        fi;
#ifndef VALUE_READ_LATE
        value = word;
#endif
        store_sleeping(true); /* shm_bell_lie_down() */
#ifndef WITHOUT_SLEEPER_FENCE
        flush_sleeping();
#endif
        has_work = false;
#ifndef WITHOUT_SECOND_LOOK
        has_work = tail[0] != tails_seen[0];
        has_work = has_work || tail[1] != tails_seen[1];
#endif
#ifdef VALUE_READ_LATE
        value = word;
#endif
        if
        :: has_work
        :: else -> word != value /* the futex sleeps while both are equal */
        fi
    od
}
