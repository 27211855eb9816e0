/* Fuzzes the first bytes of an unknown peer. The first byte selects connect data of fabric_ofi, or
 * a packet on the socket of fabric_shm. Either the bytes are refused, or they are valid, and
 * packing the parsed values gives the same bytes. */
#include "svc/fabric/ofi/message/hello.h"
#include "svc/fabric/shm/peer/socket.h"
#include "test/lib/fuzz.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PACKET_BYTES_MAX 4096

static void hello(const uint8_t *data, size_t bytes)
{
    struct ofi_hello_said said;
    uint8_t again[OFI_HELLO_BYTES_MAX];
    if (ofi_hello_check(data, bytes, &said) < 0)
        return;
    assert(said.ticket_bytes <= FABRIC_TICKET_BYTES_MAX);
    size_t packed = ofi_hello_pack(said.payload_bytes_max, said.ticket, said.ticket_bytes, again);
    assert(packed <= bytes && memcmp(again, data, packed) == 0);
}

static void packet(const uint8_t *data, size_t bytes)
{
    struct shm_packet packet;
    int ends[2], fds[SHM_PACKET_FDS_MAX];
    size_t count = 0;
    assert(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
    ssize_t sent = send(ends[0], data, bytes < PACKET_BYTES_MAX ? bytes : PACKET_BYTES_MAX, 0);
    assert(sent >= 0);
    int r = shm_packet_receive(ends[1], &packet, fds, &count);
    assert(r == 0 || r == -EBADMSG || r == -EPIPE);
    if (r == 0) {
        assert(count == 0 && packet.magic == SHM_MAGIC);
        assert(packet.ticket_bytes <= FABRIC_TICKET_BYTES_MAX);
        assert((size_t)sent == sizeof packet && memcmp(&packet, data, sizeof packet) == 0);
    }
    close(ends[0]);
    close(ends[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes == 0)
        return 0;
    if (data[0] % 2 == 0)
        hello(data + 1, bytes - 1);
    else
        packet(data + 1, bytes - 1);
    return 0;
}
