/* Texts about ranks for which other ranks wait. The texts are used in errors and warnings only.
 * RULES.md: K77. */
#include "svc/coordinator/session/late_rank.h"

#include "svc/base/system/process.h"
#include "svc/base/text.h"
#include "svc/coordinator/membership/membership.h"
#include "svc/coordinator/service.h"

#include <errno.h>

#define RANKS_TOLD_MAX 3
/* maximum bytes of the text, which is a part of an error text of 640 bytes */
#define TEXT_BYTES 400

/* Describes the state of a process on this host, read from the kernel. The identity of the process
 * must still be that of the process that joined. */
static const char *describe_process(const struct session *session)
{
    bool is_here = session->identity && process_identity(session->pid) == session->identity;
    switch (is_here ? process_state(session->pid) : 0) {
    case 'T':
        return "has joined, but its process is stopped, by a signal (kill -CONT continues it)";
    case 't': return "has joined, but a debugger has stopped its process";
    case 'R': return "has joined and computes, but has not pushed this tensor";
    default: return "has joined, but has not pushed this tensor";
    }
}

static const char *describe(const struct session *session)
{
    switch (session->state) {
    case SESSION_JOINED: return describe_process(session);
    case SESSION_AWAY: return "has lost its connection to the coordinator";
    case SESSION_LEFT: return "has left the job";
    default: return "was lost";
    }
}

static void append_rank(const struct job *job, uint32_t rank, char *text)
{
    const struct session *session = job->sessions[rank];
    const char *comma = *text ? "; " : "";
    if (!session)
        text_append(text, TEXT_BYTES,
                    "%srank %u has not joined (start it, under the same name of the job)", comma,
                    rank);
    else
        text_append(text, TEXT_BYTES, "%srank %u (%.64s, pid %u) %s", comma, rank, session->node,
                    session->pid, describe(session));
}

static bool is_asked(const WIRE(LateRequest) * request, uint32_t rank)
{
    return rank / 8 < request->ranks.len && request->ranks.data[rank / 8] >> (rank % 8) & 1;
}

void late_handle(struct peer *p, const envelope *message)
{
    char text[TEXT_BYTES] = "";
    uint32_t told = 0;
    if (!p->session)
        return peer_fail(p, message->id, -ENOTCONN, "this connection has no job; join a job first");
    const struct job *job = p->session->job;
    for (uint32_t rank = 0; rank < job->workers && told < RANKS_TOLD_MAX; rank++) {
        if (!is_asked(message->late_request, rank))
            continue;
        append_rank(job, rank, text);
        told++;
    }
    peer_reply(p, message->id, LATE_REPLY, late_reply, .text = text);
}
