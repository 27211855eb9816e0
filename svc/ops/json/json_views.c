/* JSON of views that several reports contain. Unknown values are left out (O4). */
#include "svc/ops/json/json_views.h"

#include "svc/ops/json/json_put.h"
#include "svc/ops/snapshot/figures.h"

json_t *json_of_cores(const struct view_cores *cores, int *error)
{
    json_t *o = json_object();
    JSON_PUT_KNOWN(o, cores, error, allocated, used, dedicated);
    json_put_known(o, "saved", cores_saved(cores), error);
    return o;
}

json_t *json_of_moment(const struct view_moment *moment, int *error)
{
    json_t *o = json_of_cores(&moment->cores, error);
    json_put_known(o, "at_s", moment->at_s, error);
    return o;
}

json_t *json_of_facts(const struct view_fact *facts, size_t count, int *error)
{
    json_t *o = json_object();
    for (size_t i = 0; i < count; i++)
        json_put_text(o, facts[i].name, facts[i].value, error);
    return o;
}

json_t *json_of_events(const struct view_event *events, size_t count, int *error)
{
    json_t *all = json_array();
    for (size_t i = 0; i < count; i++) {
        json_t *o = json_object();
        json_put_known(o, "at_s", events[i].at_s, error);
        json_put_text(o, "kind", events[i].kind, error);
        json_put_text(o, "text", events[i].text, error);
        json_put_last(all, o, error);
    }
    return all;
}
