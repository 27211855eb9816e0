/* Sends requests of lanes for table memory to the coordinator. The coordinator answers with a
 * PlaceRequest, which raises the allowance. svc/lane/RULES.md: A82, A134. */
#include "svc/aggregator/internal.h"
#include "svc/lane/rows/room/room.h"

struct allow_asking {
    struct aggregator *a;
    uint32_t lane; /* number of the lane in the service */
    bool again;    /* also requests that were sent before */
    int error;
};

/* Runs between two turns of the lane. Sending never blocks. */
static void allow_send(void *context, const struct lane_rows_wanted *wanted)
{
    struct allow_asking *asking = context;
    if (asking->error >= 0)
        asking->error = serve_answer(asking->a, 0, ROWS_WANTED, rows_wanted, .lane = asking->lane,
                                     .job_id = wanted->job, .allowed_bytes = wanted->allowed_bytes,
                                     .needed_bytes = wanted->needed_bytes);
}

static int allow_ask_lane(struct lane *lane, void *context)
{
    struct allow_asking *asking = context;
    lane_each_rows_wanted(lane, asking->again, allow_send, asking);
    return 0;
}

int allow_ask(struct aggregator *a, bool again)
{
    struct allow_asking asking = {.a = a, .again = again};
    for (size_t i = 0; a->channel && i < a->lanes_count; i++) {
        asking.lane = a->lane_ids[i];
        lane_thread_call(a->lanes[i], allow_ask_lane, &asking);
    }
    return asking.error;
}
