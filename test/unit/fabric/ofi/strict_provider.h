/* fabric_ofi on a provider that asks for all that RDMA hardware may ask for, although what carries
 * the bytes is `tcp`: local memory registered and its descriptors passed (FI_MR_LOCAL), addresses
 * virtual (FI_MR_VIRT_ADDR), keys the provider's (FI_MR_PROV_KEY), memory there when it is
 * registered (FI_MR_ALLOCATED), words of 4 bytes, and a receive used up by each of them
 * (FI_RX_CQ_DATA). What a post does wrong ends the process, with a line that says what. */
#ifndef GRADPOOL_TEST_STRICT_PROVIDER_H
#define GRADPOOL_TEST_STRICT_PROVIDER_H

#include "svc/fabric/fabric.h"

/* As fabric_open("ofi"). */
int strict_open(const struct fabric_options *options, struct fabric **ret_fabric);

struct strict_counts {
    unsigned descriptors; /* posts whose local memory was found registered */
    unsigned words;       /* that used up a receive */
    unsigned waits;       /* messages and words that found no receive posted at first */
};
/* Since the program began. */
struct strict_counts strict_counts(void);

#endif
