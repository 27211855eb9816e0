/* Forwards to the implementation. */
#include "svc/fabric/charge.h"

#include "svc/fabric/fabric_ops.h"

bool fabric_next_charge(struct fabric *f, struct fabric_charge *ret_charge)
{
    return f->ops->next_charge && f->ops->next_charge(f, ret_charge);
}
