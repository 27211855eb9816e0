/* Settings of tables that are on their way to the lanes. */
#ifndef GRADPOOL_CLIENT_LIB_ROWS_CHANGES_H
#define GRADPOOL_CLIENT_LIB_ROWS_CHANGES_H

#include "client/gradpool_table.h"
#include "client/lib/job/job_tables.h"

/* Sends the settings to all lanes of the table; they apply from this clock on. Called with the
 * job's lock held. -ENOMEM, with text. */
int changes_add(struct gp_table *t, const gp_row_settings *settings);

#endif
