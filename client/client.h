/* A client: where the service is and how this process talks to it. Also the text of a thread's last
 * error. For the files of this folder only. */
#ifndef GRADPOOL_CLIENT_CLIENT_H
#define GRADPOOL_CLIENT_CLIENT_H

#include "client/gradpool.h"
#include "svc/base/err.h"
#include "svc/base/list.h"
#include "svc/channel/key.h"
#include "svc/endpoint/endpoint.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CLIENT_WORKERS_MAX 768
#define CLIENT_PROGRAM "libgradpool " GP_VERSION
#define CLIENT_ENDPOINT_BYTES 320

enum client_transport { TRANSPORT_AUTO, TRANSPORT_SHM, TRANSPORT_TCP };

struct gp_client {
    unsigned generation; /* fork.h */
    struct endpoint endpoint;
    struct endpoint_addresses addresses; /* behind it when the client connected (L13) */
    char endpoint_text[CLIENT_ENDPOINT_BYTES];
    bool has_key; /* then connections to the coordinator speak TLS with it */
    struct key key;
    enum client_transport transport;
    char *interface_name; /* NULL: any */
    uint64_t connect_timeout_ns, timeout_ns;
    uint64_t stall_ns, progress_ns; /* until a wait is told, between lines of progress; 0: never */
    uint64_t eager_bytes;           /* longest input that travels with its announcement (W6) */
    pthread_mutex_t lock;           /* of the two lists; nothing else is locked under it */
    struct list jobs;               /* of gp_job.node */
    struct list abandoned;          /* of gp_request.node: open when their job was left */
};

/* Makes the sentence the thread's last error and returns `code`. */
int client_error(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same for what a deeper layer has put into words. */
int client_error_from(const struct err *err);

#endif
