/* The inside of a control connection, for the files of the channel alone. */
#ifndef GRADPOOL_CHANNEL_INTERNAL_H
#define GRADPOOL_CHANNEL_INTERNAL_H

#include "svc/channel/channel.h"
#include "svc/channel/tls.h"

#define CHANNEL_PEER_TEXT_BYTES 80

/* Bytes first .. end wait; those before have been taken. */
struct buffer {
    uint8_t *bytes;
    size_t capacity, first, end;
};

enum channel_mode {
    CHANNEL_PLAIN,
    CHANNEL_UNDECIDED, /* the peer's first bytes decide */
    CHANNEL_SHAKING,   /* TLS, before the key is proven: frames wait */
    CHANNEL_SEALED,
};

struct channel {
    int fd;
    int failed;               /* the first error; every later verb returns it */
    bool was_closed;          /* the error was the end of the peer's bytes */
    uint32_t frame_bytes_max; /* most bytes of the next frame */
    uint32_t held_bytes;      /* longer frames are not read on */
    bool is_cut;              /* the last receive left bytes to the next one */
    uint64_t last_id;
    enum channel_mode mode;
    struct buffer in, out; /* frames */
    struct buffer sealed;  /* TLS: records that wait for the socket */
    struct tls *tls;       /* NULL: plain */
    key_find_fn find_key;
    void *find_context;
    char peer[CHANNEL_PEER_TEXT_BYTES];
    char failure[ERR_TEXT_BYTES];
};

/* --- io.c ------------------------------------------------------------------------------------ */

/* Keeps the first failure and its text; returns its code. */
int channel_fail(struct channel *ch, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static inline size_t buffer_waiting(const struct buffer *b) { return b->end - b->first; }
/* Drops `bytes` bytes from the front. */
void buffer_take(struct buffer *b, size_t bytes);
/* Makes room for `bytes` more behind the end. -ENOMEM. */
int buffer_reserve(struct buffer *b, size_t bytes);
/* Reads once. 0: bytes came, perhaps not a whole frame; -EAGAIN, or the channel's failure. */
int channel_read(struct channel *ch);

/* --- peer.c ---------------------------------------------------------------------------------- */

/* Writes the socket's other end in words into `ch->peer`. */
void channel_describe_peer(struct channel *ch, int family);
void channel_tune_tcp(int fd);

#endif
