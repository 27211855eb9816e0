/* A worker that sends false messages (a liar), for tests of the lane's checks. */
#ifndef GRADPOOL_TEST_SHM_LIAR_H
#define GRADPOOL_TEST_SHM_LIAR_H

#include "svc/fabric/shm/peer/bell.h"
#include "svc/fabric/shm/peer/ring.h"
#include "test/unit/fabric/fabric_suite.h"

/* maximum number of bytes that a connection of the rig may share */
#define LIAR_BYTES_MAX (1 << 20)

/* Defines a case. Its `*state` is a rig of fabric_shm. */
#define LIAR_CASE(name) cmocka_unit_test_setup_teardown(name, liar_set_up, liar_tear_down)
int liar_set_up(void **state);
int liar_tear_down(void **state);

struct liar {
    int socket;
    int rings_fd, bell_fd;
    struct shm_rings *rings;
    struct shm_producer out;
    struct shm_bell *bell;
    struct fabric_conn *at_lane;
};

/* Makes a socket to the lane, and the memory for a correct handshake. Sends no message. */
struct liar liar_make(struct rig *rig);
void liar_hello(struct liar *l, int rings_fd, int bell_fd);
/* Returns a liar after a correct handshake. The lane accepts its connection with the rig as
 * owner. */
struct liar liar_admitted(struct rig *rig);
void liar_drop(struct liar *l);

#define PAGE 4096
/* sizes and seals that a correct worker uses */
#define RINGS_BYTES ((sizeof(struct shm_rings) + PAGE - 1) / PAGE * PAGE)
#define HONEST_SEALS (F_SEAL_SHRINK | F_SEAL_GROW)

/* Returns a memfd with this number of bytes. */
int unsealed_memory(uint64_t bytes);
int sealed_memory(uint64_t bytes, int seals);
int open_descriptors(void);
/* Sends one packet with these bytes and descriptors (at most 16). */
void send_raw(int socket, const void *bytes, size_t length, const int *fds, size_t count);

#endif
