/* Tests endpoints: accepted texts, and failures of sockets. The messages about failures name the
 * next step. All traffic stays on loopback. */
#include "svc/base/clock.h"
#include "svc/endpoint/endpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#define CONNECT_NS (60 * NS_PER_S)
#define SHORT_NS (100 * NS_PER_MS)

static void expect_text(const char *text, const char *part)
{
    if (strstr(text, part) == NULL)
        fail_msg("expected '%s' in '%s'", part, text);
}

/* Replaces the resolver. A lookup of HUNG_NAME waits for the semaphore let_go, as if name servers
 * were silent. */
#define HUNG_NAME "node.hangs.example"
static sem_t let_go, has_returned;

int __real_getaddrinfo(const char *, const char *, const struct addrinfo *, struct addrinfo **);
int __wrap_getaddrinfo(const char *, const char *, const struct addrinfo *, struct addrinfo **);

int __wrap_getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                       struct addrinfo **ret_list)
{
    if (strcmp(node, HUNG_NAME) != 0 || hints->ai_flags & AI_NUMERICHOST)
        return __real_getaddrinfo(node, service, hints, ret_list);
    while (sem_wait(&let_go) < 0)
        ;
    int r = __real_getaddrinfo("127.0.0.1", service, hints, ret_list);
    sem_post(&has_returned);
    return r;
}

/* --- text ------------------------------------------------------------------------------------ */

static void every_form_is_understood(void **state)
{
    static const struct {
        const char *text, *host;
        unsigned port;
        bool is_unix;
        const char *url;
    } cases[] = {
        {"gradpool://node7:7078", "node7", 7078, false, "gradpool://node7:7078"},
        {"gradpool://node7", "node7", 7077, false, "gradpool://node7:7077"},
        {"node7", "node7", 7077, false, "gradpool://node7:7077"},
        {"node7:1", "node7", 1, false, "gradpool://node7:1"},
        {"node-7.a_b.example:65535", "node-7.a_b.example", 65535, false, NULL},
        {"10.0.0.3:80", "10.0.0.3", 80, false, "gradpool://10.0.0.3:80"},
        {"0.0.0.0:0", "0.0.0.0", 0, false, "gradpool://0.0.0.0:0"},
        {"gradpool://[::1]:7079", "::1", 7079, false, "gradpool://[::1]:7079"},
        {"[fe80::1%eth0]:7079", "fe80::1%eth0", 7079, false, "gradpool://[fe80::1%eth0]:7079"},
        {"[::]", "::", 7077, false, "gradpool://[::]:7077"},
        {"gradpool+unix:///run/g.sock", "/run/g.sock", 0, true, "gradpool+unix:///run/g.sock"},
        {"unix:/run/g.sock", "/run/g.sock", 0, true, "gradpool+unix:///run/g.sock"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct endpoint e, again;
        struct err err = {0};
        char url[300];
        assert_int_equal(endpoint_parse(cases[i].text, &e, &err), 0);
        assert_string_equal(e.host, cases[i].host);
        assert_int_equal(e.port, cases[i].port);
        assert_int_equal(e.is_unix, cases[i].is_unix);
        assert_ptr_equal(endpoint_format(&e, url, sizeof url), url);
        if (cases[i].url)
            assert_string_equal(url, cases[i].url);
        assert_int_equal(endpoint_parse(url, &again, &err), 0);
        assert_string_equal(again.host, e.host);
        assert_int_equal(again.port, e.port);
    }
}

static void expect_bad(const char *text, const char *part)
{
    struct endpoint e = {.port = 4711};
    struct err err = {0};
    if (endpoint_parse(text, &e, &err) != -EINVAL)
        fail_msg("'%.60s' was accepted", text);
    assert_int_equal(err.code, -EINVAL);
    expect_text(err.text, part);
    assert_int_equal(e.port, 4711);
    assert_int_equal(endpoint_parse(text, &e, NULL), -EINVAL);
}

static void an_invalid_endpoint_is_refused_with_the_expected_forms(void **state)
{
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"", "expected gradpool://HOST:PORT"},
        {"gradpool://", "expected gradpool://HOST:PORT"},
        {":7077", "expected gradpool://HOST:PORT"},
        {"http://node7:7077", "endpoint 'http://node7:7077': expected gradpool://HOST:PORT"},
        {"GRADPOOL://node7", "expected gradpool://HOST:PORT"},
        {"gradpool://node7/", "expected gradpool://HOST:PORT"},
        {"gradpool://me@node7", "expected gradpool://HOST:PORT"},
        {"node 7", "expected gradpool://HOST:PORT"},
        {" node7", "expected gradpool://HOST:PORT"},
        {"node7\n", "expected gradpool://HOST:PORT"},
        {"n\xc3\xb6"
         "de",
         "expected gradpool://HOST:PORT"},
        {"node7:", "expected a port from 0 to 65535, got ''"},
        {"node7:http", "expected a port from 0 to 65535, got 'http'"},
        {"node7:65536", "expected a port from 0 to 65535, got '65536'"},
        {"node7:-1", "expected a port from 0 to 65535, got '-1'"},
        {"node7:7077/", "expected a port from 0 to 65535, got '7077/'"},
        {"node7:99999999999999999999999", "expected a port"},
        {"::1", "write an IPv6 address in brackets, as in gradpool://[::1]:7077"},
        {"gradpool://fe80::1:7077", "write an IPv6 address in brackets"},
        {"[::1", "'[' has no ']'"},
        {"[::1]7077", "expected gradpool://HOST:PORT"},
        {"[node7]:7077", "expected gradpool://HOST:PORT"},
        {"[]:7077", "expected gradpool://HOST:PORT"},
        {"[1.2.3.4]:7077", "expected gradpool://HOST:PORT"},
        {"[:::::]:7077", "expected gradpool://HOST:PORT"},
        {"unix:", "the path of a Unix socket must be absolute"},
        {"unix:run/g.sock", "the path of a Unix socket must be absolute"},
        {"gradpool+unix://run/g.sock", "the path of a Unix socket must be absolute"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        expect_bad(cases[i].text, cases[i].part);
}

static void a_text_that_is_too_long_is_refused(void **state)
{
    char text[1000];
    struct endpoint e;
    memset(text, 'a', sizeof text);
    text[sizeof text - 1] = '\0';
    expect_bad(text, "expected gradpool://HOST:PORT");
    text[255] = '\0';
    assert_int_equal(endpoint_parse(text, &e, NULL), 0);
    memcpy(text, "unix:/", 6);
    expect_bad(text, "a path of 250 bytes: a Unix socket's path has at most 107");
    text[5 + 107] = '\0';
    assert_int_equal(endpoint_parse(text, &e, NULL), 0);
    text[5 + 107] = 'a';
    text[5 + 108] = '\0';
    expect_bad(text, "a path of 108 bytes");
}

static void random_text_never_harms(void **state)
{
    static const char alphabet[] = "gradpool+unix:/[]:.%0719azAZ-_ \t\xff@#?";
    unsigned seed = 4242;
    print_message("# seed %u\n", seed);
    for (int i = 0; i < 100000; i++) {
        char text[64] = "";
        size_t length = (size_t)rand_r(&seed) % 40;
        struct endpoint e, again;
        struct err err = {0};
        char url[300];
        if (i % 2)
            snprintf(text, sizeof text, "gradpool://");
        size_t used = strlen(text);
        for (size_t j = 0; j < length; j++)
            text[used + j] = alphabet[(size_t)rand_r(&seed) % (sizeof alphabet - 1)];
        if (endpoint_parse(text, &e, &err) < 0)
            continue;
        assert_int_equal(endpoint_parse(endpoint_format(&e, url, sizeof url), &again, &err), 0);
        assert_string_equal(again.host, e.host);
    }
}

static void loopback_addresses_are_distinguished_from_others(void **state)
{
    static const struct {
        const char *text;
        bool expected;
    } cases[] = {
        {"localhost", true},
        {"LocalHost:80", true},
        {"127.0.0.1", true},
        {"127.255.3.4:1", true},
        {"[::1]", true},
        {"[::ffff:127.0.0.1]", true},
        {"unix:/run/g.sock", true},
        {"128.0.0.1", false},
        {"0.0.0.0", false},
        {"[::]", false},
        {"[::ffff:10.0.0.1]", false},
        {"node7", false},
        {"localhost.evil", false},
        {"127.0.0.1.evil", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct endpoint e;
        assert_int_equal(endpoint_parse(cases[i].text, &e, NULL), 0);
        if (endpoint_is_loopback(&e) != cases[i].expected)
            fail_msg("'%s' is judged wrongly", cases[i].text);
    }
}

/* --- sockets --------------------------------------------------------------------------------- */

static struct endpoint parse(const char *text)
{
    struct endpoint e;
    assert_int_equal(endpoint_parse(text, &e, NULL), 0);
    return e;
}

static int listen_on(struct endpoint *e)
{
    struct err err = {0};
    int fd;
    int r = endpoint_listen(e, NULL, &fd, &err);
    if (r < 0)
        fail_msg("%s", err.text);
    return fd;
}

/* Sends a byte from the connecting side to the listening side. */
static void expect_talk(int listener, const struct endpoint *e)
{
    struct err err = {0};
    struct pollfd wait = {.fd = listener, .events = POLLIN};
    char byte = 0;
    int fd;
    if (endpoint_connect(e, clock_now_ns() + CONNECT_NS, &fd, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(poll(&wait, 1, 60000), 1);
    int peer = accept(listener, NULL, NULL);
    assert_true(peer >= 0);
    assert_int_equal(send(fd, "!", 1, 0), 1);
    assert_int_equal(recv(peer, &byte, 1, 0), 1);
    assert_int_equal(byte, '!');
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    close(peer);
    close(fd);
}

static bool has_ipv6(void)
{
    struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_addr = in6addr_loopback};
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    bool has = fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0;
    if (fd >= 0)
        close(fd);
    return has;
}

static void a_listener_is_reached_over_every_form_of_address(void **state)
{
    static const struct {
        const char *listen, *connect;
        bool needs_ipv6;
    } cases[] = {
        {"127.0.0.1:0", "127.0.0.1", false}, {"127.0.0.1:0", "localhost", false},
        {"0.0.0.0:0", "127.0.0.1", false},   {"localhost:0", "localhost", false},
        {"[::1]:0", "[::1]", true},          {"[::]:0", "127.0.0.1", true},
        {"[::]:0", "[::1]", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (cases[i].needs_ipv6 && !has_ipv6())
            continue;
        struct endpoint here = parse(cases[i].listen), there = parse(cases[i].connect);
        int listener = listen_on(&here);
        assert_true(here.port != 0);
        there.port = here.port;
        expect_talk(listener, &there);
        close(listener);
    }
}

static void a_port_in_use_is_reported_with_the_next_step(void **state)
{
    struct endpoint e = parse("127.0.0.1:0");
    struct err err = {0};
    char url[300];
    int listener = listen_on(&e), second = -7;
    assert_int_equal(endpoint_listen(&e, NULL, &second, &err), -EADDRINUSE);
    assert_int_equal(second, -7);
    expect_text(err.text, endpoint_format(&e, url, sizeof url));
    expect_text(err.text, "is another `gradpool serve` running? stop it or use another port");
    close(listener);
    close(listen_on(&e)); /* after the close the port can be used again at once */
}

static void an_address_of_another_host_cannot_be_listened_on(void **state)
{
    struct endpoint e = parse("192.0.2.1:0"); /* an address reserved for documentation */
    struct err err = {0};
    int fd;
    assert_int_equal(endpoint_listen(&e, NULL, &fd, &err), -EADDRNOTAVAIL);
    expect_text(err.text, "192.0.2.1");
    expect_text(err.text, "this host has no such address");
}

static void a_port_without_a_listener_is_refused_at_once(void **state)
{
    static const char *const hosts[] = {"127.0.0.1", "localhost"};
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    int bound = socket(AF_INET, SOCK_STREAM, 0); /* reserves the port, but does not listen */
    assert_int_equal(bind(bound, (struct sockaddr *)&address, bytes), 0);
    assert_int_equal(getsockname(bound, (struct sockaddr *)&address, &bytes), 0);
    for (int i = 0; i < 2; i++) {
        struct endpoint e = parse(hosts[i]);
        struct err err = {0};
        char url[300];
        uint64_t before_ns = clock_now_ns();
        int fd = -7;
        e.port = ntohs(address.sin_port);
        assert_int_equal(endpoint_connect(&e, before_ns + CONNECT_NS, &fd, &err), -ECONNREFUSED);
        assert_true(clock_now_ns() - before_ns < CONNECT_NS / 2);
        assert_int_equal(fd, -7);
        expect_text(err.text, endpoint_format(&e, url, sizeof url));
        expect_text(err.text, "127.0.0.1:");
        expect_text(err.text, "is `gradpool serve` running there, on that port?");
    }
    close(bound);
}

/* Fills the listener's queue. The kernel then drops further packets, as if the address were
 * unreachable. */
static int fill_queue(int family, const struct sockaddr *address, socklen_t bytes, int *fds, int n)
{
    for (int i = 0; i < n; i++) {
        fds[i] = socket(family, SOCK_STREAM | SOCK_NONBLOCK, 0);
        assert_true(fds[i] >= 0);
        (void)connect(fds[i], address, bytes);
    }
    return n;
}

static void expect_timeout(const struct endpoint *e, const char *part)
{
    struct err err = {0};
    uint64_t before_ns = clock_now_ns();
    int fd;
    assert_int_equal(endpoint_connect(e, before_ns + SHORT_NS, &fd, &err), -ETIMEDOUT);
    assert_in_range(clock_now_ns() - before_ns, SHORT_NS - NS_PER_MS, CONNECT_NS);
    expect_text(err.text, part);
    expect_text(err.text, "does a firewall let the port through?");
}

static void an_address_that_does_not_answer_ends_by_the_deadline(void **state)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    struct endpoint e = parse("127.0.0.1");
    int listener = socket(AF_INET, SOCK_STREAM, 0), fds[8];
    assert_int_equal(bind(listener, (struct sockaddr *)&address, bytes), 0);
    assert_int_equal(listen(listener, 0), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &bytes), 0);
    int n = fill_queue(AF_INET, (struct sockaddr *)&address, bytes, fds, 8);
    e.port = ntohs(address.sin_port);
    expect_timeout(&e, "127.0.0.1:");
    while (n > 0)
        close(fds[--n]);
    close(listener);
}

/* --- Unix sockets ---------------------------------------------------------------------------- */

static char folder[64];

static struct endpoint unix_endpoint(const char *name)
{
    char text[128];
    snprintf(text, sizeof text, "unix:%s/%s", folder, name);
    return parse(text);
}

static int folder_make(void **state)
{
    snprintf(folder, sizeof folder, "/tmp/gradpool-endpoint-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int folder_remove(void **state)
{
    char path[128];
    snprintf(path, sizeof path, "%s/s", folder);
    unlink(path);
    return rmdir(folder);
}

static void a_unix_socket_is_reached_by_its_path(void **state)
{
    struct endpoint e = unix_endpoint("s");
    int listener = listen_on(&e);
    expect_talk(listener, &e);
    close(listener);
}

static void a_stale_socket_file_is_replaced_and_a_live_one_left(void **state)
{
    struct endpoint e = unix_endpoint("s");
    struct err err = {0};
    int second = -7;
    close(listen_on(&e)); /* a killed process leaves a socket file like this one */
    assert_int_equal(access(e.host, F_OK), 0);
    int listener = listen_on(&e);
    expect_talk(listener, &e);
    assert_int_equal(endpoint_listen(&e, NULL, &second, &err), -EADDRINUSE);
    assert_int_equal(second, -7);
    expect_text(err.text, "stop it or use another path");
    /* the second listener was refused; it had connected once to check whether a process listens */
    close(accept(listener, NULL, NULL));
    expect_talk(listener, &e); /* the listener must still work after the failed attempt */
    close(listener);
}

static void a_file_that_is_no_socket_is_never_removed(void **state)
{
    struct endpoint e = unix_endpoint("s");
    struct err err = {0};
    int fd = open(e.host, O_CREAT | O_WRONLY, 0600), listener;
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(endpoint_listen(&e, NULL, &listener, &err), -EADDRINUSE);
    expect_text(err.text, "a file other than a socket; remove the file, or use another path");
    assert_int_equal(access(e.host, F_OK), 0);
}

static void a_unix_path_without_a_listener_is_an_error_with_that_reason(void **state)
{
    struct endpoint missing = unix_endpoint("none"), stale = unix_endpoint("s");
    struct endpoint lost = unix_endpoint("no/such/folder");
    struct err err = {0};
    int fd;
    uint64_t deadline_ns = clock_now_ns() + CONNECT_NS;
    assert_int_equal(endpoint_connect(&missing, deadline_ns, &fd, &err), -ENOENT);
    expect_text(err.text, "/none: No such file or directory; "); /* the endpoint has the path */
    expect_text(err.text, "is `gradpool serve` running with this path?");
    close(listen_on(&stale));
    assert_int_equal(endpoint_connect(&stale, deadline_ns, &fd, &err), -ECONNREFUSED);
    expect_text(err.text, "refused; the socket file is stale: is `gradpool serve` running?");
    assert_int_equal(endpoint_listen(&lost, NULL, &fd, &err), -ENOENT);
    expect_text(err.text, "make the directory first");
}

static void a_unix_socket_with_a_full_queue_ends_by_the_deadline(void **state)
{
    struct endpoint e = unix_endpoint("s");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int listener = socket(AF_UNIX, SOCK_STREAM, 0), fds[4];
    snprintf(address.sun_path, sizeof address.sun_path, "%.100s", e.host);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(listener, 0), 0);
    int n = fill_queue(AF_UNIX, (struct sockaddr *)&address, sizeof address, fds, 4);
    expect_timeout(&e, e.host);
    while (n > 0)
        close(fds[--n]);
    close(listener);
}

/* --- names and interfaces -------------------------------------------------------------------- */

/* A label of a name has at most 63 letters, so the lookup of this name fails without a query. */
static void the_error_of_an_impossible_name_names_the_name(void **state)
{
    char name[80];
    struct err err = {0};
    int fd;
    memset(name, 'n', sizeof name);
    name[sizeof name - 1] = '\0';
    struct endpoint e = parse(name);
    assert_int_equal(endpoint_connect(&e, clock_now_ns() + CONNECT_NS, &fd, &err), -ENOENT);
    expect_text(err.text, "is unknown");
    expect_text(err.text, "check its spelling, or give an address");
    assert_int_equal(endpoint_listen(&e, NULL, &fd, &err), -ENOENT);
}

static void a_name_without_an_answer_ends_by_the_deadline(void **state)
{
    struct endpoint e = parse(HUNG_NAME ":7077");
    struct err err = {0};
    uint64_t before_ns = clock_now_ns();
    int fd = -7;
    assert_int_equal(endpoint_connect(&e, before_ns + SHORT_NS, &fd, &err), -ETIMEDOUT);
    assert_in_range(clock_now_ns() - before_ns, SHORT_NS - NS_PER_MS, CONNECT_NS);
    assert_int_equal(fd, -7);
    expect_text(err.text, "gradpool://" HUNG_NAME ":7077: no name server");
    expect_text(err.text, "give an address in place of the name");
    sem_post(&let_go); /* the abandoned lookup must not write to this function's memory */
    assert_int_equal(sem_wait(&has_returned), 0);
}

static void a_slow_name_is_taken_when_it_comes_in_time(void **state)
{
    struct endpoint e = parse(HUNG_NAME ":7077");
    struct endpoint_addresses addresses = {0};
    struct err err = {0};
    sem_post(&let_go);
    assert_int_equal(endpoint_resolve(&e, clock_now_ns() + CONNECT_NS, &addresses, &err), 0);
    assert_int_equal(sem_wait(&has_returned), 0);
    const struct sockaddr_in *a = (const struct sockaddr_in *)&addresses.list[0].socket;
    assert_int_equal(addresses.count, 1);
    assert_int_equal(a->sin_addr.s_addr, htonl(INADDR_LOOPBACK));
    assert_int_equal(a->sin_port, htons(7077));
}

static void port_zero_is_for_listening_only(void **state)
{
    struct endpoint e = parse("127.0.0.1:0");
    struct err err = {0};
    int fd;
    assert_int_equal(endpoint_connect(&e, clock_now_ns() + CONNECT_NS, &fd, &err), -EINVAL);
    expect_text(err.text, "port 0 cannot be connected to");
}

static void an_interface_narrows_where_to_listen(void **state)
{
    struct endpoint any = parse("0.0.0.0:0"), one = parse("127.0.0.1:0");
    struct endpoint other = parse("192.0.2.1:0");
    struct err err = {0};
    int fd;
    assert_int_equal(endpoint_listen(&any, "lo", &fd, &err), 0);
    assert_string_equal(any.host, "127.0.0.1");
    expect_talk(fd, &any);
    close(fd);
    assert_int_equal(endpoint_listen(&one, "lo", &fd, &err), 0);
    close(fd);
    assert_int_equal(endpoint_listen(&other, "lo", &fd, &err), -EADDRNOTAVAIL);
    expect_text(err.text, "the interface has address 127.0.0.1");
    assert_int_equal(endpoint_listen(&any, "no-such-if0", &fd, &err), -ENODEV);
    expect_text(err.text, "interface 'no-such-if0': this host has no such interface");
}

static void the_local_address_is_of_the_interface_or_the_socket(void **state)
{
    char buffer[64] = "", tiny[4];
    struct endpoint e = parse("127.0.0.1:0");
    struct err err = {0};
    int listener = listen_on(&e), fd, pair[2];
    assert_int_equal(endpoint_local_address("lo", -1, buffer, sizeof buffer), 0);
    assert_string_equal(buffer, "127.0.0.1");
    assert_int_equal(endpoint_local_address("no-such-if0", -1, buffer, sizeof buffer), -ENODEV);
    assert_int_equal(endpoint_connect(&e, clock_now_ns() + CONNECT_NS, &fd, &err), 0);
    buffer[0] = '\0';
    assert_int_equal(endpoint_local_address(NULL, fd, buffer, sizeof buffer), 0);
    assert_string_equal(buffer, "127.0.0.1");
    assert_int_equal(endpoint_local_address(NULL, fd, tiny, sizeof tiny), -ENOSPC);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    buffer[0] = '\0';
    assert_int_equal(endpoint_local_address(NULL, pair[0], buffer, sizeof buffer), 0);
    assert_string_equal(buffer, "127.0.0.1");
    assert_int_equal(endpoint_local_address(NULL, -1, buffer, sizeof buffer), -EBADF);
    close(pair[0]);
    close(pair[1]);
    close(fd);
    close(listener);
}

#define WITH_FOLDER(test) cmocka_unit_test_setup_teardown(test, folder_make, folder_remove)

int main(void)
{
    sem_init(&let_go, 0, 0);
    sem_init(&has_returned, 0, 0);
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(every_form_is_understood),
        cmocka_unit_test(an_invalid_endpoint_is_refused_with_the_expected_forms),
        cmocka_unit_test(a_text_that_is_too_long_is_refused),
        cmocka_unit_test(random_text_never_harms),
        cmocka_unit_test(loopback_addresses_are_distinguished_from_others),
        cmocka_unit_test(a_listener_is_reached_over_every_form_of_address),
        cmocka_unit_test(a_port_in_use_is_reported_with_the_next_step),
        cmocka_unit_test(an_address_of_another_host_cannot_be_listened_on),
        cmocka_unit_test(a_port_without_a_listener_is_refused_at_once),
        cmocka_unit_test(an_address_that_does_not_answer_ends_by_the_deadline),
        WITH_FOLDER(a_unix_socket_is_reached_by_its_path),
        WITH_FOLDER(a_stale_socket_file_is_replaced_and_a_live_one_left),
        WITH_FOLDER(a_file_that_is_no_socket_is_never_removed),
        WITH_FOLDER(a_unix_path_without_a_listener_is_an_error_with_that_reason),
        WITH_FOLDER(a_unix_socket_with_a_full_queue_ends_by_the_deadline),
        cmocka_unit_test(the_error_of_an_impossible_name_names_the_name),
        cmocka_unit_test(a_name_without_an_answer_ends_by_the_deadline),
        cmocka_unit_test(a_slow_name_is_taken_when_it_comes_in_time),
        cmocka_unit_test(port_zero_is_for_listening_only),
        cmocka_unit_test(an_interface_narrows_where_to_listen),
        cmocka_unit_test(the_local_address_is_of_the_interface_or_the_socket),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
