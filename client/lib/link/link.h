/* Links: connections to lanes, each from its ticket to its end, and the records sent on it. */
#ifndef GRADPOOL_CLIENT_LIB_LINK_LINK_H
#define GRADPOOL_CLIENT_LIB_LINK_LINK_H

#include "client/lib/job/job.h"

struct piece;

enum link_state {
    LINK_TICKET, /* waits for the reply of the coordinator with the lane's address */
    LINK_CONNECTING,
    LINK_OPEN,
    LINK_CLOSING, /* this side is closing the connection */
    LINK_CLOSED,
};

struct link {
    struct list node; /* node in job.links */
    struct gp_job *job;
    uint32_t lane;
    enum link_state state;
    struct fabric_conn *conn;
    bool is_ofi;    /* the connection uses the network */
    bool wants_ofi; /* shared memory was tried without success */
    /* will be opened again when it has closed, even for a lane without a piece so far */
    bool wants_open;
    bool is_left; /* the lane has released all pieces, and will end this connection (L19) */
    bool has_address, has_ticket;
    bool was_told; /* the log says that the lane is not on this host */
    uint32_t attempts;
    uint32_t openings; /* number of times that the connection was open */
    uint32_t aggregator;
    char shm[FABRIC_ADDRESS_BYTES_MAX], ofi[FABRIC_ADDRESS_BYTES_MAX], node_name[64];
    struct record_connect ticket;
    struct control_call call;
    Gradpool__Wire__TicketRequest ticket_request;
    bool is_asking;           /* the call has no reply yet */
    struct list unsent;       /* list of piece.unsent: pieces for which a READY has to be sent */
    bool owes_goodbye;        /* the send queue had no room for a goodbye */
    uint64_t chosen_round[2]; /* rounds of the last sets of ranks that were forwarded */
    uint32_t lent;            /* slabs 0 .. lent-1 are lent on this connection */
    struct record_settings settings; /* settings that were sent last */
    uint64_t stalled_ns; /* time for which threads waited for the lane, not reported yet (L24) */
    bool was_queried;    /* a query was sent (stall.c) */
    bool is_hopeless;    /* `failure` is final, even if the link waits for a new route */
    struct err failure;  /* reason of the end; code 0: closed by this side, or not closed */
};

#define for_each_link(l, job)                                               \
    for (struct link *l = list_entry((job)->links.next, struct link, node); \
         &l->node != &(job)->links; l = list_entry(l->node.next, struct link, node))

/* ---- link.c ---- */

/* Returns the link to a lane; creates and opens it if needed. NULL: no memory. */
struct link *link_get(struct gp_job *job, uint32_t lane);
/* Opens a link to a lane that has no piece yet. Without memory the link is created together with
 * the first piece. */
void link_open_ahead(struct gp_job *job, uint32_t lane);
/* Opens a closed link again. */
void link_open(struct link *l);
/* Closes the connection. Pieces routed to this lane stay there. */
void link_close(struct link *l);
/* Like link_close(), but the link counts as closed only when the lane cannot write any more
 * (W5). */
void link_fence(struct link *l);
void link_free(struct link *l);
/* Writes a text such as "lane 3 of aggregator 1 on node7". */
const char *link_name(const struct link *l, char *buffer, size_t buffer_bytes);
/* Writes a text such as " at 10.0.0.3:4711", with advice for an address that cannot be reached.
 * Empty if memory is shared. LINK_WAY_BYTES are enough. */
#define LINK_WAY_BYTES 320
const char *link_way(const struct link *l, char *buffer, size_t buffer_bytes);
/* Fails the link for a reason that does not pass. Requests that need the lane fail. */
void link_break(struct link *l, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Handles a lane that is gone: its pieces wait for a new route. */
void link_lose(struct link *l, int code, const char *what);
/* Handles a failed attempt to connect: makes another attempt with a new ticket, or gives up.
 * `reason`: the lane's refusal; 0: none. */
void link_retry(struct link *l, int error, uint32_t reason);
/* Returns the number of pieces that have this lane in their route. */
uint32_t link_pieces(const struct link *l);

/* ---- events.c: reports of a fabric ---- */

void link_opened(struct link *l);
/* Handles the event of the connection's end, with its error and, if the lane has refused, the
 * lane's word. */
void link_closed(struct link *l, const struct fabric_event *event);

/* ---- send.c ---- */

/* Sends a READY for the piece, now or when the link has room. */
void link_announce(struct link *l, struct piece *p);
/* Lends new slabs and sends waiting records, as many as the connection takes. */
void link_flush(struct link *l);
void link_flush_all(struct gp_job *job);
/* Sends a query for the ranks that the piece's round lacks. False: not possible now. */
bool link_query(struct link *l, const struct piece *p);
/* Sends a goodbye, at once or when there is room (`owes_goodbye`). */
void link_say_goodbye(struct link *l);
bool link_owes_goodbye(const struct link *l);

#endif
