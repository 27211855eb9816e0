/* Connections to lanes: each from its ticket to its end, and what is sent on it. */
#ifndef GRADPOOL_CLIENT_LIB_LINK_LINK_H
#define GRADPOOL_CLIENT_LIB_LINK_LINK_H

#include "client/lib/job/job.h"

struct piece;

enum link_state {
    LINK_TICKET, /* waits for the coordinator's reply with the lane's address */
    LINK_CONNECTING,
    LINK_OPEN,
    LINK_CLOSING, /* closing, by this side */
    LINK_CLOSED,
};

struct link {
    struct list node; /* in job.links */
    struct gp_job *job;
    uint32_t lane;
    enum link_state state;
    struct fabric_conn *conn;
    bool is_ofi;     /* the connection is over the network */
    bool wants_ofi;  /* shared memory was tried without success */
    bool wants_open; /* to be opened again once closed, also for a lane without a piece so far */
    bool is_left;    /* the lane has released all pieces: it ends this connection some time (L19) */
    bool has_address, has_ticket;
    bool was_told; /* the log has a line that the lane is not on this host */
    uint32_t attempts;
    uint32_t openings; /* counts connections that were open */
    uint32_t aggregator;
    char shm[FABRIC_ADDRESS_BYTES_MAX], ofi[FABRIC_ADDRESS_BYTES_MAX], node_name[64];
    struct record_connect ticket;
    struct control_call call;
    Gradpool__Wire__TicketRequest ticket_request;
    bool is_asking;                  /* the call has no reply yet */
    struct list unsent;              /* of piece.unsent: pieces whose READY is to be sent */
    bool owes_goodbye;               /* a goodbye had no room in the send queue */
    uint64_t chosen_round[2];        /* rounds of the last sets that were forwarded */
    uint32_t lent;                   /* slabs 0 .. lent-1 are lent on this connection */
    struct record_settings settings; /* settings that were sent last */
    uint64_t stalled_ns; /* time that threads waited for the lane, not reported yet (L24) */
    bool was_queried;    /* a query was sent (stall.c) */
    bool is_hopeless;    /* `failure` stays even if the link waits for a new route */
    struct err failure;  /* reason of the end; code 0: closed by this side, or not closed */
};

#define for_each_link(l, job)                                               \
    for (struct link *l = list_entry((job)->links.next, struct link, node); \
         &l->node != &(job)->links; l = list_entry(l->node.next, struct link, node))

/* ---- link.c ---- */

/* The link to a lane, made and opened if need be. NULL: out of memory. */
struct link *link_get(struct gp_job *job, uint32_t lane);
/* The same for a lane where no piece is yet; without memory for it, it is made with the first. */
void link_open_ahead(struct gp_job *job, uint32_t lane);
/* Opens a closed link again. */
void link_open(struct link *l);
/* Closes the connection; pieces routed there stay. */
void link_close(struct link *l);
/* The same; the link counts as closed once the lane can no longer write (W5). */
void link_fence(struct link *l);
void link_free(struct link *l);
/* "lane 3 of aggregator 1 on node7" */
const char *link_name(const struct link *l, char *buffer, size_t buffer_bytes);
/* " at 10.0.0.3:4711", and advice for an address that is not reached; empty where memory is shared.
 * LINK_WAY_BYTES are enough. */
#define LINK_WAY_BYTES 320
const char *link_way(const struct link *l, char *buffer, size_t buffer_bytes);
/* Ends the link for a reason that waiting does not mend: requests that need the lane fail. */
void link_break(struct link *l, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The lane is gone: its pieces wait for a new route. */
void link_lose(struct link *l, int code, const char *what);
/* An attempt to connect has failed: makes another one with a fresh ticket, or gives up. `reason`:
 * the lane's refusal; 0: none. */
void link_retry(struct link *l, int error, uint32_t reason);
/* Number of pieces with this lane in their route. */
uint32_t link_pieces(const struct link *l);

/* ---- events.c: reports of a fabric ---- */

void link_opened(struct link *l);
/* With the event of the connection's end: its error, and the lane's word where the lane refuses. */
void link_closed(struct link *l, const struct fabric_event *event);

/* ---- send.c ---- */

/* Sends a READY for the piece, now or when the link has room. */
void link_announce(struct link *l, struct piece *p);
/* Lends new slabs and sends what waits, as far as the connection takes it. */
void link_flush(struct link *l);
void link_flush_all(struct gp_job *job);
/* Asks for the ranks that the piece's round lacks. False: cannot be sent now. */
bool link_query(struct link *l, const struct piece *p);
/* At once, or when there is room (`owes_goodbye`). */
void link_say_goodbye(struct link *l);
bool link_owes_goodbye(const struct link *l);

#endif
