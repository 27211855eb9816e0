/* The Unix socket beside the rings: it identifies the peer's process, and carries handshake,
 * descriptors and goodbye. An address is "@name", a name in the abstract space of one network
 * namespace. Only connecting blocks, for half a second at most (T7). */
#ifndef GRADPOOL_FABRIC_SHM_PEER_SOCKET_H
#define GRADPOOL_FABRIC_SHM_PEER_SOCKET_H

#include "svc/fabric/fabric.h"

#include <stddef.h>
#include <stdint.h>

#define SHM_MAGIC 0x31535047u /* "GPS1": version 1 of handshake and rings */
#define SHM_PACKET_FDS_MAX 2

enum shm_packet_kind {
    SHM_PACKET_HELLO = 1,  /* worker; ticket; descriptors: rings, bell */
    SHM_PACKET_ACCEPT = 2, /* lane; descriptors: eventfd, bell */
    SHM_PACKET_REFUSE = 3, /* lane; word: reason */
    /* worker; word: number of the region, then its length; descriptor: memfd. The record that
     * announces the region is pushed later (S5) */
    SHM_PACKET_LEND = 4,
    SHM_PACKET_BYE = 5, /* both; word: 0 for an end in order, else the reason (positive errno) */
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
    int pid; /* 0: not visible from this PID namespace */
    uint32_t uid;
    int pidfd; /* readable when the process is dead; -1: not available */
};

/* Opens a listening socket. -EINVAL: not "@name"; -EADDRINUSE. */
int shm_socket_listen(const char *address, int *ret_fd);
/* Accepts a caller. -EAGAIN: there is none; -ECONNABORTED; -EMFILE and -ENFILE. */
int shm_socket_accept(int listener, int *ret_fd);
/* Connects. -EINVAL; -ECONNREFUSED: no listener; -EAGAIN: the listener's queue is full. */
int shm_socket_connect(const char *address, int *ret_fd);

/* Returns the process at the other end. The caller closes `pidfd`. -ENOTCONN: the peer is gone
 * already. */
int shm_socket_peer(int fd, struct shm_peer *ret_peer);

/* Sends one packet. The descriptors are duplicated, and still belong to the caller. `magic` is
 * filled in. -EAGAIN: the socket is full; -ECONNRESET. */
int shm_packet_send(int fd, const struct shm_packet *packet, const int *fds, size_t fds_count);

/* Returns -EMFILE if this process has no room for the descriptors of a packet on `fd`. */
int shm_packet_has_room(int fd);

/* Receives one packet with at most SHM_PACKET_FDS_MAX descriptors, which belong to the caller.
 * -EAGAIN: there is none; -EPIPE: the peer has closed; -ECONNRESET; -EMFILE: no room for
 * descriptors; -EBADMSG: not a packet of gradpool. After an error all descriptors that arrived have
 * been closed. */
int shm_packet_receive(int fd, struct shm_packet *ret_packet, int ret_fds[SHM_PACKET_FDS_MAX],
                       size_t *ret_fds_count);
/* Closes the descriptors that are not -1. */
void shm_fds_close(const int *fds, size_t fds_count);

#endif
