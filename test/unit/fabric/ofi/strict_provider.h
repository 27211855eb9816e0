/* fabric_ofi on a provider with all requirements of RDMA hardware, although `tcp` carries the
 * bytes: registered local memory with descriptors (FI_MR_LOCAL), virtual addresses
 * (FI_MR_VIRT_ADDR), keys of the provider (FI_MR_PROV_KEY), memory present at registration
 * (FI_MR_ALLOCATED), words of 4 bytes, and a receive used up by each word (FI_RX_CQ_DATA). A wrong
 * post ends the process with a line that names the mistake. */
#ifndef GRADPOOL_TEST_STRICT_PROVIDER_H
#define GRADPOOL_TEST_STRICT_PROVIDER_H

#include "svc/fabric/fabric.h"

/* Like fabric_open("ofi"). */
int strict_open(const struct fabric_options *options, struct fabric **ret_fabric);

struct strict_counts {
    unsigned descriptors; /* posts whose local memory was found registered */
    unsigned words;       /* words that used up a receive */
    unsigned waits;       /* messages and words for which no receive was posted at first */
};
/* Returns the counts since the program began. */
struct strict_counts strict_counts(void);

#endif
