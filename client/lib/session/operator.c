/* Owns nothing: the caller closes the connection that is made here. README: L37, L90. */
#include "client/lib/session/operator.h"

#include "svc/base/clock.h"

int operator_connect(const gp_client *client, pthread_mutex_t *lock, int *fd,
                     struct channel **ret_channel, struct err *err)
{
    const struct endpoint_slot slot = {lock, fd};
    uint64_t now_ns = clock_now_ns(), deadline_ns = now_ns + client->connect_timeout_ns;
    uint64_t incarnation;
    struct endpoint_names names = {.known = client->addresses};
    int connected;
    endpoint_names_refresh(&client->endpoint, &names, now_ns + client->connect_timeout_ns / 2);
    endpoint_names_rest(&names);
    int r =
        endpoint_connect_to(&client->endpoint, &names.known, deadline_ns, &slot, &connected, err);
    if (r < 0)
        return r;
    r = channel_create(connected, ret_channel);
    if (r < 0)
        return err_set(err, r, "%s: %s", client->endpoint_text, err_text(r));
    if (client->has_key)
        (void)channel_use_key(*ret_channel, &client->key); /* the greeting tells what failed */
    return channel_greet(*ret_channel, GRADPOOL__WIRE__ROLE__ROLE_OPERATOR, CLIENT_PROGRAM,
                         deadline_ns, &incarnation, err);
}

const char *operator_tenant(const gp_client *client)
{
    return client->has_key ? client->key.tenant : "-";
}
