/* Unix socket of a connection. It identifies the peer's process and transfers handshake,
 * descriptors and BYE. An address is "@name", an abstract name in one network namespace. Only
 * connecting blocks, for half a second at most (T7). */
#ifndef GRADPOOL_FABRIC_SHM_PEER_SOCKET_H
#define GRADPOOL_FABRIC_SHM_PEER_SOCKET_H

#include "svc/fabric/fabric.h"

#include <stddef.h>
#include <stdint.h>

#define SHM_MAGIC 0x31535047u /* "GPS1": version 1 of handshake and rings */
#define SHM_PACKET_FDS_MAX 2

enum shm_packet_kind {
    SHM_PACKET_HELLO = 1,  /* from the worker; ticket; descriptors: rings, bell */
    SHM_PACKET_ACCEPT = 2, /* from the lane; descriptors: eventfd, bell */
    SHM_PACKET_REFUSE = 3, /* from the lane; word: reason */
    /* from the worker; word: number of the region; bytes: its length; descriptor: memfd. The LEND
     * record is sent afterwards (S5) */
    SHM_PACKET_LEND = 4,
    /* from both; word: 0 for an end in order, otherwise the reason (positive errno) */
    SHM_PACKET_BYE = 5,
};

struct shm_packet {
    uint32_t magic;
    uint16_t kind;
    uint16_t ticket_bytes;
    uint32_t word;
    uint32_t reserved;
    uint64_t bytes;
    uint8_t ticket[FABRIC_TICKET_BYTES_MAX];
};

/* The process at the other end. */
struct shm_peer {
    int pid; /* 0: not visible in this PID namespace */
    uint32_t uid;
    int pidfd; /* readable when the process has ended; -1: not available */
};

/* Opens a listening socket. Returns 0, -EINVAL if the address is not "@name", or -EADDRINUSE. */
int shm_socket_listen(const char *address, int *ret_fd);
/* Accepts a caller. Returns 0, -EAGAIN if there is none, -ECONNABORTED, -EMFILE or -ENFILE. */
int shm_socket_accept(int listener, int *ret_fd);
/* Connects. Returns 0, -EINVAL, -ECONNREFUSED if there is no listener, or -EAGAIN if the listener's
 * queue is full. */
int shm_socket_connect(const char *address, int *ret_fd);

/* Writes the process at the other end. The caller closes `pidfd`. Returns 0, or -ENOTCONN if the
 * peer has closed the connection. */
int shm_socket_peer(int fd, struct shm_peer *ret_peer);

/* Sends one packet and sets its `magic`. The descriptors are duplicated; the caller still owns
 * them. Returns 0, -EAGAIN if the socket is full, or -ECONNRESET. */
int shm_packet_send(int fd, const struct shm_packet *packet, const int *fds, size_t fds_count);

/* Returns -EMFILE if this process has no room for the descriptors of a packet on `fd`, otherwise
 * 0. */
int shm_packet_has_room(int fd);

/* Receives one packet with at most SHM_PACKET_FDS_MAX descriptors, which the caller owns. Returns 0
 * or an error, after which all received descriptors are closed. -EAGAIN: no packet. -EPIPE: the
 * peer has closed. -EMFILE: no room for descriptors. -EBADMSG: not a packet of gradpool.
 * -ECONNRESET. */
int shm_packet_receive(int fd, struct shm_packet *ret_packet, int ret_fds[SHM_PACKET_FDS_MAX],
                       size_t *ret_fds_count);
/* Closes the descriptors that are not -1. */
void shm_fds_close(const int *fds, size_t fds_count);

#endif
