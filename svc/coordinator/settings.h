/* How a service was started, on what, and what built it: for whoever reads a report later. */
#ifndef GRADPOOL_COORDINATOR_SETTINGS_H
#define GRADPOOL_COORDINATOR_SETTINGS_H

#include "messages.pb-c.h"

#include <stddef.h>

#define SETTINGS_MAX 16
#define SETTING_BYTES 192

extern const char coordinator_commit[]; /* made at build time */

struct settings {
    size_t count;
    char texts[SETTINGS_MAX][SETTING_BYTES];
    Gradpool__Wire__Setting views[SETTINGS_MAX];
    Gradpool__Wire__Setting *list[SETTINGS_MAX]; /* as a StatusReply has them */
};

struct service;

/* -ENOMEM. */
int settings_create(struct service *s);
void settings_destroy(struct service *s);
/* Once all options are settled. What was not named is left out. */
void settings_fill(struct service *s);

#endif
