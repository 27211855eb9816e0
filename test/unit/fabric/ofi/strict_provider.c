/* Wraps the `tcp` provider that fabric_ofi uses. All objects opened on a domain get function tables
 * of this file. This file stores the posted receives, and passes only one receive to tcp. A word
 * can therefore use up a stored receive. */
#include "test/unit/fabric/ofi/strict_provider.h"

#include "svc/fabric/ofi/provider/types.h"

#include <pthread.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MODE (FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY)
#define RECEIVES_MAX 8

/* The lock protects the state below, because each thread of a test polls its own fabric. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct strict_counts counts;

static void count(unsigned *what)
{
    pthread_mutex_lock(&lock);
    (*what)++;
    pthread_mutex_unlock(&lock);
}

struct strict_counts strict_counts(void)
{
    pthread_mutex_lock(&lock);
    struct strict_counts copy = counts;
    pthread_mutex_unlock(&lock);
    return copy;
}

static void wrong(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("strict provider: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    abort();
}

/* --- memory ---------------------------------------------------------------------------------- */

/* The object to which a descriptor of registered memory points. */
struct registration {
    /* first member: the fid points to this table, which is found at the address of the struct */
    struct fi_ops fid_ops;
    struct fi_ops *true_ops;
    const char *base;
    size_t bytes;
    uint64_t access;
};

static int registration_close(struct fid *fid)
{
    struct registration *r = (struct registration *)fid->ops;
    int result = r->true_ops->close(fid);
    free(r);
    return result;
}

struct domain {
    struct fi_ops fid_ops;
    struct fi_ops *true_ops;
    struct fi_ops_domain ops, *true_domain_ops;
    struct fi_ops_mr mr, *true_mr_ops;
};

static int register_memory(struct fid *fid, const void *base, size_t bytes, uint64_t access,
                           uint64_t offset, uint64_t requested_key, uint64_t flags,
                           struct fid_mr **ret_mr, void *context)
{
    struct domain *d = (struct domain *)fid->ops;
    struct registration *r = calloc(1, sizeof *r);
    if (requested_key != 0)
        wrong("a key was asked for, they are the provider's");
    int result = d->true_mr_ops->reg(fid, base, bytes, access, offset, requested_key, flags, ret_mr,
                                     context);
    if (result != 0) {
        free(r);
        return result;
    }
    *r = (struct registration){.fid_ops = *(*ret_mr)->fid.ops,
                               .true_ops = (*ret_mr)->fid.ops,
                               .base = base,
                               .bytes = bytes,
                               .access = access};
    r->fid_ops.close = registration_close;
    (*ret_mr)->fid.ops = &r->fid_ops;
    (*ret_mr)->mem_desc = r;
    return 0;
}

static void check_local(const void *base, size_t bytes, void *descriptor, uint64_t access)
{
    const struct registration *r = descriptor;
    if (bytes == 0)
        return;
    if (!r)
        wrong("%zu bytes were posted without a descriptor", bytes);
    if ((const char *)base < r->base || (const char *)base + bytes > r->base + r->bytes)
        wrong("%zu bytes were posted that their descriptor does not cover", bytes);
    if ((r->access & access) != access)
        wrong("memory registered for %#llx was posted for %#llx", (unsigned long long)r->access,
              (unsigned long long)access);
    count(&counts.descriptors);
}

static void check_parts(const struct iovec *parts, void **descriptors, size_t parts_count,
                        uint64_t access)
{
    for (size_t i = 0; i < parts_count; i++)
        check_local(parts[i].iov_base, parts[i].iov_len, descriptors ? descriptors[i] : NULL,
                    access);
}

/* --- endpoints ------------------------------------------------------------------------------- */

struct receive {
    void *base;
    size_t bytes;
    void *context;
};

struct endpoint {
    struct fi_ops fid_ops;
    struct fi_ops *true_ops;
    struct list link;
    struct fid_ep *ep;
    struct fi_ops_msg msg, *true_msg;
    struct fi_ops_rma rma, *true_rma;
    size_t inject_bytes_max;
    struct receive receives[RECEIVES_MAX]; /* the oldest receive is first */
    int receives_count;
    struct fi_context own; /* context of the only receive posted to tcp */
    void *buffer;
    size_t buffer_bytes;
    struct fi_cq_data_entry held; /* an entry for which no receive is posted yet */
    bool is_held;
};

static struct list endpoints = {&endpoints, &endpoints};

static struct endpoint *endpoint_of(struct fid_ep *ep) { return (struct endpoint *)ep->fid.ops; }

/* Finds the endpoint of a connection by its context. The completion queue of the connection has the
 * same context. */
static struct endpoint *endpoint_by_context(const void *context)
{
    struct endpoint *found = NULL;
    pthread_mutex_lock(&lock);
    list_for_each (node, &endpoints) {
        struct endpoint *e = list_entry(node, struct endpoint, link);
        if (e->ep->fid.context == context)
            found = e;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

static ssize_t post_own(struct endpoint *e)
{
    return e->true_msg->recv(e->ep, e->buffer, e->buffer_bytes, NULL, 0, &e->own);
}

static ssize_t receive(struct fid_ep *ep, void *base, size_t bytes, void *descriptor,
                       fi_addr_t source, void *context)
{
    struct endpoint *e = endpoint_of(ep);
    check_local(base, bytes, descriptor, FI_RECV);
    if (e->receives_count == RECEIVES_MAX)
        wrong("more than %d receives", RECEIVES_MAX);
    e->receives[e->receives_count++] = (struct receive){base, bytes, context};
    if (e->buffer)
        return 0;
    e->buffer = malloc(bytes);
    e->buffer_bytes = bytes;
    return post_own(e);
}

static ssize_t send_message(struct fid_ep *ep, const struct fi_msg *message, uint64_t flags)
{
    struct endpoint *e = endpoint_of(ep);
    if (!(flags & FI_INJECT))
        check_parts(message->msg_iov, message->desc, message->iov_count, FI_SEND);
    else if (message->iov_count != 1 || message->msg_iov[0].iov_len > e->inject_bytes_max)
        wrong("more injected than the provider copies");
    return e->true_msg->sendmsg(ep, message, flags);
}

static ssize_t read_message(struct fid_ep *ep, const struct fi_msg_rma *message, uint64_t flags)
{
    check_parts(message->msg_iov, message->desc, message->iov_count, FI_READ);
    return endpoint_of(ep)->true_rma->readmsg(ep, message, flags);
}

static ssize_t write_message(struct fid_ep *ep, const struct fi_msg_rma *message, uint64_t flags)
{
    check_parts(message->msg_iov, message->desc, message->iov_count, FI_WRITE);
    if (message->data > UINT32_MAX)
        wrong("a word of more than 4 bytes");
    return endpoint_of(ep)->true_rma->writemsg(ep, message, flags);
}

static int endpoint_close(struct fid *fid)
{
    struct endpoint *e = (struct endpoint *)fid->ops;
    int r = e->true_ops->close(fid);
    if (r != 0)
        return r;
    pthread_mutex_lock(&lock);
    list_remove(&e->link);
    pthread_mutex_unlock(&lock);
    free(e->buffer);
    free(e);
    return 0;
}

static void endpoint_wrap(struct fid_ep *ep, size_t inject_bytes_max)
{
    struct endpoint *e = calloc(1, sizeof *e);
    *e = (struct endpoint){.fid_ops = *ep->fid.ops,
                           .true_ops = ep->fid.ops,
                           .ep = ep,
                           .msg = *ep->msg,
                           .true_msg = ep->msg,
                           .rma = *ep->rma,
                           .true_rma = ep->rma,
                           .inject_bytes_max = inject_bytes_max};
    e->fid_ops.close = endpoint_close;
    e->msg.recv = receive;
    e->msg.sendmsg = send_message;
    e->rma.readmsg = read_message;
    e->rma.writemsg = write_message;
    ep->fid.ops = &e->fid_ops;
    ep->msg = &e->msg;
    ep->rma = &e->rma;
    pthread_mutex_lock(&lock);
    list_append(&endpoints, &e->link);
    pthread_mutex_unlock(&lock);
}

static int open_endpoint(struct fid_domain *domain, struct fi_info *info, struct fid_ep **ret_ep,
                         void *context)
{
    struct domain *d = (struct domain *)domain->fid.ops;
    int r = d->true_domain_ops->endpoint(domain, info, ret_ep, context);
    if (r == 0)
        endpoint_wrap(*ret_ep, info->tx_attr->inject_size);
    return r;
}

/* --- completion queues ----------------------------------------------------------------------- */

struct queue {
    struct fi_ops fid_ops;
    struct fi_ops *true_ops;
    struct fi_ops_cq ops, *true_cq_ops;
};

static bool uses_up_receive(const struct endpoint *e, const struct fi_cq_data_entry *entry)
{
    return entry->op_context == &e->own || (entry->flags & FI_REMOTE_WRITE);
}

/* Uses the oldest receive for the entry, and copies a message's bytes into it. Returns false if
 * there is no receive. */
static bool use_up_receive(struct endpoint *e, struct fi_cq_data_entry *entry)
{
    bool is_message = entry->op_context == &e->own;
    if (e->receives_count == 0)
        return false;
    struct receive oldest = e->receives[0];
    memmove(&e->receives[0], &e->receives[1], (size_t)--e->receives_count * sizeof oldest);
    entry->op_context = oldest.context;
    if (!is_message) {
        count(&counts.words);
        return true;
    }
    if (entry->len > oldest.bytes)
        wrong("a message longer than its receive");
    memcpy(oldest.base, e->buffer, entry->len);
    ssize_t r = post_own(e);
    if (r != 0 &&
        r != -FI_EAGAIN) /* with libfabric 2, -FI_EAGAIN means that the endpoint has ended */
        wrong("tcp refuses a receive");
    return true;
}

/* Reads one entry, or returns the result of fi_cq_read(). An entry for which no receive is posted
 * is stored, and later entries wait. */
static ssize_t read_one(struct queue *q, struct fid_cq *cq, struct endpoint *e,
                        struct fi_cq_data_entry *ret_entry)
{
    struct fi_cq_data_entry entry = e->held;
    ssize_t r = e->is_held ? 1 : q->true_cq_ops->read(cq, &entry, 1);
    if (r != 1)
        return r;
    if (uses_up_receive(e, &entry) && !use_up_receive(e, &entry)) {
        if (!e->is_held)
            count(&counts.waits);
        e->held = entry;
        e->is_held = true;
        return -FI_EAGAIN;
    }
    e->is_held = false;
    *ret_entry = entry;
    return 1;
}

static ssize_t read_queue(struct fid_cq *cq, void *buffer, size_t entries_max)
{
    struct queue *q = (struct queue *)cq->fid.ops;
    struct endpoint *e = endpoint_by_context(cq->fid.context);
    struct fi_cq_data_entry *entries = buffer;
    ssize_t got = 0, r = 1;
    while (e && (size_t)got < entries_max && (r = read_one(q, cq, e, &entries[got])) == 1)
        got++;
    return got > 0 ? got : e ? r : -FI_EAGAIN;
}

static ssize_t read_error(struct fid_cq *cq, struct fi_cq_err_entry *ret_entry, uint64_t flags)
{
    struct queue *q = (struct queue *)cq->fid.ops;
    struct endpoint *e = endpoint_by_context(cq->fid.context);
    ssize_t r = q->true_cq_ops->readerr(cq, ret_entry, flags);
    if (r == 1 && e && ret_entry->op_context == &e->own)
        ret_entry->op_context = NULL;
    return r;
}

static int queue_close(struct fid *fid)
{
    struct queue *q = (struct queue *)fid->ops;
    int r = q->true_ops->close(fid);
    if (r == 0)
        free(q);
    return r;
}

static int open_queue(struct fid_domain *domain, struct fi_cq_attr *attr, struct fid_cq **ret_cq,
                      void *context)
{
    struct domain *d = (struct domain *)domain->fid.ops;
    if (attr->format != FI_CQ_FORMAT_DATA)
        wrong("a queue of another format");
    int r = d->true_domain_ops->cq_open(domain, attr, ret_cq, context);
    if (r != 0)
        return r;
    struct fid_cq *cq = *ret_cq;
    struct queue *q = calloc(1, sizeof *q);
    *q = (struct queue){
        .fid_ops = *cq->fid.ops, .true_ops = cq->fid.ops, .ops = *cq->ops, .true_cq_ops = cq->ops};
    q->fid_ops.close = queue_close;
    q->ops.read = read_queue;
    q->ops.readerr = read_error;
    cq->fid.ops = &q->fid_ops;
    cq->ops = &q->ops;
    return 0;
}

/* --- domains --------------------------------------------------------------------------------- */

static int domain_close(struct fid *fid)
{
    struct domain *d = (struct domain *)fid->ops;
    int r = d->true_ops->close(fid);
    if (r == 0)
        free(d);
    return r;
}

static void domain_wrap(struct fid_domain *domain)
{
    struct domain *d = calloc(1, sizeof *d);
    *d = (struct domain){.fid_ops = *domain->fid.ops,
                         .true_ops = domain->fid.ops,
                         .ops = *domain->ops,
                         .true_domain_ops = domain->ops,
                         .mr = *domain->mr,
                         .true_mr_ops = domain->mr};
    d->fid_ops.close = domain_close;
    d->ops.cq_open = open_queue;
    d->ops.endpoint = open_endpoint;
    d->mr.reg = register_memory;
    domain->fid.ops = &d->fid_ops;
    domain->ops = &d->ops;
    domain->mr = &d->mr;
}

/* Opens the fabric, and opens its domain again with all requirements that a provider may have. No
 * other object is open on the domain at this time. */
int strict_open(const struct fabric_options *options, struct fabric **ret_fabric)
{
    int r = fabric_open("ofi", options, ret_fabric);
    if (r < 0)
        return r;
    struct ofi_fabric *f = (struct ofi_fabric *)*ret_fabric;
    fi_close(&f->domain->fid);
    f->info->domain_attr->mr_mode = MODE;
    f->info->mode |= FI_RX_CQ_DATA;
    r = fi_domain(f->fabric, f->info, &f->domain, NULL);
    if (r != 0)
        wrong("tcp opens no domain of that kind: %s", fi_strerror(-r));
    domain_wrap(f->domain);
    ofi_memory_destroy(f->memory);
    return ofi_memory_create(f->domain, f->info, &f->memory);
}
