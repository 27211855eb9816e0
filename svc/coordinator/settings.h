/* Settings and host of a service as texts for reports. */
#ifndef GRADPOOL_COORDINATOR_SETTINGS_H
#define GRADPOOL_COORDINATOR_SETTINGS_H

#include "messages.pb-c.h"

#include <stddef.h>

#define SETTINGS_MAX 16
#define SETTING_BYTES 192

extern const char coordinator_commit[]; /* git commit, written by the build */

struct settings {
    size_t count;
    char texts[SETTINGS_MAX][SETTING_BYTES];
    Gradpool__Wire__Setting views[SETTINGS_MAX];
    Gradpool__Wire__Setting *list[SETTINGS_MAX]; /* the settings as fields of a StatusReply */
};

struct service;

/* Creates settings without entries. Returns 0 or -ENOMEM. */
int settings_create(struct service *s);
void settings_destroy(struct service *s);
/* Fills in the settings, once all options are final. Options without a value are left out. */
void settings_fill(struct service *s);

#endif
