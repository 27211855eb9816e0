/* The Unix socket beside the rings: the peer's process, handshake, descriptors, goodbye. An address
 * is "@name", a name in the abstract space of one network namespace. Nothing here blocks but a
 * connect, for half a second (T7). */
#ifndef GRADPOOL_FABRIC_SHM_PEER_SOCKET_H
#define GRADPOOL_FABRIC_SHM_PEER_SOCKET_H

#include "svc/fabric/fabric.h"

#include <stddef.h>
#include <stdint.h>

#define SHM_MAGIC 0x31535047u /* "GPS1": version 1 of handshake and rings */
#define SHM_PACKET_FDS_MAX 2

enum shm_packet_kind {
    SHM_PACKET_HELLO = 1,  /* worker: ticket; descriptors: rings, bell */
    SHM_PACKET_ACCEPT = 2, /* lane; descriptors: eventfd, bell */
    SHM_PACKET_REFUSE = 3, /* lane; word: reason */
    SHM_PACKET_LEND = 4,   /* worker; word: region, bytes; descriptor: memfd. The record that
                              announces it is pushed after it has been sent (S5) */
    SHM_PACKET_BYE = 5,    /* both; word: 0 orderly, else why (positive errno) */
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
    int pid; /* 0: not visible from here */
    uint32_t uid;
    int pidfd; /* readable when it is dead; -1 when it cannot be had */
};

/* Errors: -EINVAL not "@name", -EADDRINUSE. */
int shm_socket_listen(const char *address, int *ret_fd);
/* Errors: -EAGAIN no caller; -ECONNABORTED; -EMFILE and -ENFILE. */
int shm_socket_accept(int listener, int *ret_fd);
/* Errors: -EINVAL; -ECONNREFUSED no listener; -EAGAIN the listener's backlog is full. */
int shm_socket_connect(const char *address, int *ret_fd);

/* -ENOTCONN: gone already. `pidfd` is the caller's to close. */
int shm_socket_peer(int fd, struct shm_peer *ret_peer);

/* Sends one packet; descriptors are duplicated, not taken over. `magic` is filled in.
 * Errors: -EAGAIN full, -ECONNRESET. */
int shm_packet_send(int fd, const struct shm_packet *packet, const int *fds, size_t fds_count);

/* -EMFILE: this process has no room for the descriptors of a packet on `fd`. */
int shm_packet_has_room(int fd);

/* Receives one packet with at most SHM_PACKET_FDS_MAX descriptors, which are the caller's. Errors:
 * -EAGAIN none there; -EPIPE the peer has closed; -ECONNRESET; -EMFILE no room for descriptors;
 * -EBADMSG no packet of gradpool. With an error all descriptors that came have been closed. */
int shm_packet_receive(int fd, struct shm_packet *ret_packet, int ret_fds[SHM_PACKET_FDS_MAX],
                       size_t *ret_fds_count);
/* Closes the descriptors that are not -1. */
void shm_fds_close(const int *fds, size_t fds_count);

#endif
