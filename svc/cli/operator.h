/* What `gradpool status` and `gradpool jobs` share: their options, and asking the coordinator. */
#ifndef GRADPOOL_CLI_OPERATOR_H
#define GRADPOOL_CLI_OPERATOR_H

#include "svc/view/view.h"
#include "svc/wire/channel.h"

#include <stdbool.h>

struct operator_options {
    const char *endpoint;
    bool json;
    const char *job; /* NULL: all */
};

/* `operands`: "[JOB]", or NULL for none. */
void operator_parse(const char *name, const char *operands, const char *before, const char *after,
                    int argc, char **argv, struct operator_options *ret_options);
/* Asks and waits for the reply. Failures are said on standard error; -EHOSTDOWN: nobody there. */
int operator_ask(const struct operator_options *options, envelope *request, envelope **ret_reply);
void operator_use(const Gradpool__Wire__JobUse *use, struct view_use *ret_use);

#endif
