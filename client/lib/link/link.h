/* Links: connections to lanes from ticket to end, and the records on them. */
#ifndef GRADPOOL_CLIENT_LIB_LINK_LINK_H
#define GRADPOOL_CLIENT_LIB_LINK_LINK_H

#include "client/lib/job/job.h"

struct exchange_part;
struct piece;

enum link_state {
    LINK_TICKET, /* waits for the coordinator's reply with the lane's address */
    LINK_CONNECTING,
    LINK_OPEN,
    LINK_CLOSING, /* this side closes the connection */
    LINK_CLOSED,
};

struct link {
    struct list node; /* node in job.links */
    struct gp_job *job;
    uint32_t lane;
    enum link_state state;
    struct fabric_conn *conn;
    bool is_ofi;    /* the connection uses the network */
    bool wants_ofi; /* shared memory has failed, so the next connection uses the network */
    /* the link is opened again after its end, even if the lane has no piece of the job */
    bool wants_open;
    bool is_left; /* the lane has released all pieces and will end the connection (L19) */
    bool has_address, has_ticket;
    bool was_told; /* the log has a line that the lane is on another host */
    uint32_t attempts;
    uint32_t openings; /* number of openings of the connection */
    uint32_t aggregator;
    char shm[FABRIC_ADDRESS_BYTES_MAX], ofi[FABRIC_ADDRESS_BYTES_MAX], node_name[64];
    struct record_connect ticket;
    struct control_call call;
    Gradpool__Wire__TicketRequest ticket_request;
    bool is_asking;     /* the call has no reply yet */
    struct list unsent; /* list of piece.unsent: pieces whose READY is to be sent */
    bool owes_goodbye;  /* a goodbye waits for room in the send queue */
    /* rounds of the two sets of ranks that were last forwarded to the lane */
    uint64_t chosen_round[2];
    /* the slabs 0 to lent - 1 are lent on this connection */
    uint32_t lent;
    struct record_settings settings; /* last settings that this connection has sent */
    /* time for which calls have waited for the lane, and which no READY has reported yet (L24) */
    uint64_t stalled_ns;
    bool was_queried; /* a query of stall.c was sent, and has no answer */
    bool is_hopeless; /* `failure` is final: no other attempt is made */
    /* reason for the end of the link; code 0: the link is not closed, or this side closed it */
    struct err failure;
};

#define for_each_link(l, job)                                               \
    for (struct link *l = list_entry((job)->links.next, struct link, node); \
         &l->node != &(job)->links; l = list_entry(l->node.next, struct link, node))

/* ---- link.c ---- */

/* Returns the link to a lane. The first call creates and opens the link. NULL: no memory. */
struct link *link_get(struct gp_job *job, uint32_t lane);
/* Loads the network library before a late worker enters. Loading takes 0.2 s, in which the other
 * ranks would wait if the library were loaded later. */
void link_prepare(struct gp_job *job);
/* Opens a link to a lane without a piece. If no memory is left, the first piece creates the link
 * later. */
void link_open_ahead(struct gp_job *job, uint32_t lane);
/* Opens a closed link again. */
void link_open(struct link *l);
/* Closes the connection. Pieces of the lane keep their route. */
void link_close(struct link *l);
/* Like link_close(), but the link counts as closed only when the lane can no longer write (W5). */
void link_fence(struct link *l);
void link_free(struct link *l);
/* Writes a text such as "lane 3 of aggregator 1 on node7". */
const char *link_name(const struct link *l, char *buffer, size_t buffer_bytes);
/* Writes a text such as " at 10.0.0.3:4711", with advice for an unreachable address. Empty with
 * shared memory. LINK_WAY_BYTES suffice. */
#define LINK_WAY_BYTES 320
const char *link_way(const struct link *l, char *buffer, size_t buffer_bytes);
/* Fails the link permanently, and all requests that need the lane. */
void link_break(struct link *l, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Handles the loss of a lane: its pieces wait for a new route. */
void link_lose(struct link *l, int code, const char *what);
/* Handles a failed attempt to connect: requests a new ticket for another attempt, or fails the
 * link. `reason`: the lane's refusal; 0: none. */
void link_retry(struct link *l, int error, uint32_t reason);
/* Returns the number of pieces whose route names this lane; shards of tables count as one more. */
uint32_t link_pieces(const struct link *l);

/* ---- events.c: reports of a fabric ---- */

void link_opened(struct link *l);
/* Handles the end of the connection. The event has the error and, after a refusal, the lane's
 * reason. */
void link_closed(struct link *l, const struct fabric_event *event);

/* ---- send.c ---- */

/* Sends a READY for the piece, now or when the link has room. */
void link_announce(struct link *l, struct piece *p);
/* Lends new slabs and sends waiting records until the send queue is full. */
void link_flush(struct link *l);
void link_flush_all(struct gp_job *job);
/* Sends a query for the ranks whose push the round lacks. False: not possible now. */
bool link_query(struct link *l, const struct piece *p);
/* Sends a goodbye, at once or when there is room (`owes_goodbye`). */
void link_say_goodbye(struct link *l);
bool link_owes_goodbye(const struct link *l);

/* ---- rows.c ---- */

/* Removes the fences of tables, because the connection has ended. */
void link_lift_rows(struct link *l);
/* Sends the records of tables that are due, as far as the connection has room. On a connection that
 * the lane may be ending (`is_left`), sends only a query; the records follow after the answer, or
 * on the next connection. */
void link_flush_rows(struct link *l);
/* Sends new records of tables to all lanes, now or when their links have room. */
void link_announce_rows(struct gp_job *job);
/* Sends a query for the ranks that have not reached the clock in the table of the part. False: not
 * possible now. */
bool link_query_rows(struct link *l, const struct exchange_part *part, uint64_t clock);
/* Handles the lane's answer to the query of link_flush_rows(): the lane does not end the
 * connection. */
void link_keep_rows(struct link *l);

#endif
