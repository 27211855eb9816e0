/* Runs fabric_ofi on a provider that has all requirements of RDMA hardware. The provider `tcp`
 * sends the bytes. Local memory must be registered and have descriptors (FI_MR_LOCAL). Addresses
 * are virtual (FI_MR_VIRT_ADDR), and the provider chooses keys (FI_MR_PROV_KEY). Memory must exist
 * at registration (FI_MR_ALLOCATED). A word has 4 bytes and uses up a receive (FI_RX_CQ_DATA).
 * After a wrong post the process prints the mistake and ends. */
#ifndef GRADPOOL_TEST_STRICT_PROVIDER_H
#define GRADPOOL_TEST_STRICT_PROVIDER_H

#include "svc/fabric/fabric.h"

/* Like fabric_open("ofi"). */
int strict_open(const struct fabric_options *options, struct fabric **ret_fabric);

struct strict_counts {
    unsigned descriptors; /* number of posts that used registered local memory */
    unsigned words;       /* number of words that used up a receive */
    /* number of messages and words that arrived before a receive was posted */
    unsigned waits;
};
/* Returns the counts since the program's start. */
struct strict_counts strict_counts(void);

#endif
