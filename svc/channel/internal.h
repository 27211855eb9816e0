/* struct channel and functions that are private to this folder. */
#ifndef GRADPOOL_CHANNEL_INTERNAL_H
#define GRADPOOL_CHANNEL_INTERNAL_H

#include "svc/channel/channel.h"
#include "svc/channel/tls.h"

#define CHANNEL_PEER_TEXT_BYTES 80

/* A buffer. Bytes from `first` to `end` wait; bytes before `first` are used up. */
struct buffer {
    uint8_t *bytes;
    size_t capacity, first, end;
};

enum channel_mode {
    CHANNEL_PLAIN,
    CHANNEL_UNDECIDED, /* TLS or plain: the first bytes of the peer decide */
    CHANNEL_SHAKING,   /* TLS, but the key is not proven yet: frames wait */
    CHANNEL_SEALED,
};

struct channel {
    int fd;
    int failed; /* first error, which every later call returns */
    enum channel_end end;
    uint32_t frame_bytes_max; /* maximum bytes of the next frame */
    /* maximum bytes of a frame that is read; of a longer frame only the length is read */
    uint32_t held_bytes;
    bool is_cut; /* the last receive has left bytes in the socket */
    uint64_t last_id;
    enum channel_mode mode;
    struct buffer in, out; /* received and unsent frames, whole or in part */
    struct buffer sealed;  /* TLS: encrypted records that wait for the socket */
    struct tls *tls;       /* NULL: the connection is plain */
    key_find_fn find_key;
    void *find_context;
    char peer[CHANNEL_PEER_TEXT_BYTES];
    char failure[ERR_TEXT_BYTES];
};

/* --- io.c ------------------------------------------------------------------------------------ */

/* Stores the first error and its text, and returns its code. Later errors are ignored. */
int channel_fail(struct channel *ch, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static inline size_t buffer_waiting(const struct buffer *b) { return b->end - b->first; }
/* Removes `bytes` bytes from the beginning. */
void buffer_take(struct buffer *b, size_t bytes);
/* Makes room for `bytes` more bytes at the end. Returns 0 or -ENOMEM. */
int buffer_reserve(struct buffer *b, size_t bytes);
/* Reads from the socket once. Returns 0 if bytes have arrived, -EAGAIN, or the error of the
 * channel. */
int channel_read(struct channel *ch);

/* --- peer.c ---------------------------------------------------------------------------------- */

/* Returns how a connection has ended. `error`: positive errno that its socket has returned. */
enum channel_end channel_end_of(const struct channel *ch, int error);
/* Writes the address of the socket's peer to `ch->peer`. */
void channel_describe_peer(struct channel *ch, int family);
void channel_tune_tcp(int fd);

#endif
