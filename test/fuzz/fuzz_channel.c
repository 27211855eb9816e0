/* Fuzzes control connections. The peer sends any bytes and disconnects. The channel must return
 * only whole messages, then -EBADMSG or -ECONNRESET, and must leak nothing. The first byte selects
 * the portions in which the rest arrives. */
#include "svc/channel/channel.h"
#include "test/lib/fuzz.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* Far below the size of a socket's buffer, so that no write waits for the reader. */
#define STREAM_BYTES_MAX 32768

static int receive_all(struct channel *ch)
{
    envelope *message;
    int r;
    while ((r = channel_receive(ch, &message)) == 0) {
        assert(gradpool__wire__envelope__get_packed_size(message) <= CHANNEL_FRAME_BYTES_MAX);
        gradpool__wire__envelope__free_unpacked(message, NULL);
    }
    if (r == -EBADMSG)
        assert(channel_failure(ch)[0] != '\0');
    return r;
}

static int feed(struct channel *ch, int peer, const uint8_t *data, size_t bytes, size_t portion)
{
    int r = -EAGAIN;
    for (size_t sent = 0; sent < bytes && r == -EAGAIN; sent += portion) {
        if (portion > bytes - sent)
            portion = bytes - sent;
        ssize_t written = send(peer, data + sent, portion, MSG_NOSIGNAL);
        assert(written == (ssize_t)portion);
        r = receive_all(ch);
    }
    return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    int pair[2];
    struct channel *ch;
    if (bytes < 1 || bytes > STREAM_BYTES_MAX)
        return 0;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        abort();
    if (channel_create(pair[0], &ch) < 0)
        abort();
    int r = feed(ch, pair[1], data + 1, bytes - 1, (size_t)data[0] * 8 + 1);
    close(pair[1]);
    if (r == -EAGAIN)
        r = receive_all(ch);
    assert(r == -EBADMSG || r == -ECONNRESET);
    channel_destroy(ch);
    return 0;
}
