/* A timeline of a job that one of its workers writes. */
#ifndef GRADPOOL_CLIENT_LIB_REPORT_TIMELINE_H
#define GRADPOOL_CLIENT_LIB_REPORT_TIMELINE_H

#include "client/lib/job/job.h"

/* Starts a timeline if GRADPOOL_TIMELINE names a file. */
void job_timeline_from_environment(struct gp_job *job);
void job_timeline_end(struct gp_job *job);
void job_timeline_abandon_in_child(struct gp_job *job);

#endif
