/* The provider's connect request, written for tests: 32 bytes of header, then the hello. */
#include "test/unit/fabric/ofi/ofi_stranger.h"

#include "svc/base/text.h"
#include "svc/fabric/ofi/message/hello.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define HEADER_BYTES 32
#define ORDER_AT 24

int stranger_connect(const char *address)
{
    struct sockaddr_in lane = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    uint64_t port;
    assert_int_equal(text_parse_u64(strchr(address, ':') + 1, 1, UINT16_MAX, &port), 0);
    lane.sin_port = htons((uint16_t)port);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&lane, sizeof(lane)), 0);
    return fd;
}

size_t stranger_request(uint64_t order, uint8_t ret_bytes[STRANGER_REQUEST_BYTES_MAX])
{
    uint8_t header[HEADER_BYTES] = {3};
    size_t hello_bytes = ofi_hello_pack(0, "hostile", 7, ret_bytes + HEADER_BYTES);
    header[3] = (uint8_t)hello_bytes;
    memcpy(header + ORDER_AT, &order, sizeof(order));
    memcpy(ret_bytes, header, sizeof(header));
    return HEADER_BYTES + hello_bytes;
}
