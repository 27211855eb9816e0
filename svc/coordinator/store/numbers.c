/* The store's row with the next numbers that the service assigns. Owns nothing. */
#include "svc/coordinator/store/numbers.h"

#include "svc/coordinator/service.h"

void service_put_numbers(struct service *s)
{
    struct store_row row = {.table = STORE_SERVICE, .service = *s->numbers};
    store_put(s->store, &row);
}
