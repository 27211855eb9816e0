/* JSON of views that several reports contain. */
#ifndef GRADPOOL_OPS_JSON_JSON_VIEWS_H
#define GRADPOOL_OPS_JSON_JSON_VIEWS_H

#include "svc/view/view.h"

#include <jansson.h>

json_t *json_of_cores(const struct view_cores *cores, int *error);
json_t *json_of_moment(const struct view_moment *moment, int *error);
json_t *json_of_events(const struct view_event *events, size_t count, int *error);
json_t *json_of_facts(const struct view_fact *facts, size_t count, int *error);

#endif
