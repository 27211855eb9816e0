/* A worker's connection that died without a word, and the worker made another. For the files of
 * this folder only. */
#ifndef GRADPOOL_AGGREGATOR_REPLACE_H
#define GRADPOOL_AGGREGATOR_REPLACE_H

#include "svc/aggregator/lane_types.h"

/* Of a worker whose ticket was good while it is connected: ends that connection and forgets what
 * was said on it, so that another may be accepted. Changes nothing where it must end by itself
 * first: a goodbye was said, or the lane itself would see its end. */
void replace_connection(struct worker *w);
/* Such a connection has ended. */
void replace_ended(struct lane_job *job);

#endif
