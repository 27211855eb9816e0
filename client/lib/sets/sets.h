/* Recording and replay of the sets of a job with backup workers (W32). Rank 0 writes the sets that
 * the leader lane sends to a file, or reads sets from a file and sends them to the leader lane. The
 * job's lock protects all state. */
#ifndef GRADPOOL_CLIENT_LIB_SETS_SETS_H
#define GRADPOOL_CLIENT_LIB_SETS_SETS_H

#include "client/lib/job/job.h"
#include "svc/wire/backup_terms.h"

#define SETS_RECORD_VARIABLE "GRADPOOL_SETS_RECORD"
#define SETS_REPLAY_VARIABLE "GRADPOOL_SETS_REPLAY"

struct sets_recording;
struct sets_replay;

/* A connection to the leader lane. */
struct sets_way {
    struct fabric_conn *conn;
    uint32_t lane;
    uint32_t openings; /* number of openings of the connection, from 1 */
    uint32_t epoch;    /* epoch of the leading tensor on the lane */
};

/* Returns the flags of backup_terms.sets: files that the spec names, and in a job with a rule also
 * files that variables name. */
uint32_t sets_flags(const gp_backup_spec *spec);
/* Opens the files of a job with a rule. Rank 0 reads or creates them; every other rank checks the
 * file of a replay if the rank has this file. `workers`: number of ranks. Returns 0, or an error
 * with a text that names the file: -EINVAL the file is damaged, or for another job; -EEXIST the
 * file of a recording exists; another error of the file system. */
int sets_open(struct gp_job *job, const gp_backup_spec *spec, const struct backup_terms *terms,
              uint32_t workers, struct err *err);
void sets_close(struct gp_job *job);

/* The functions below do nothing without files. */

/* Handles a PASSED. Returns whether the record belongs to the recording. */
bool sets_heard(struct gp_job *job, const struct sets_way *from,
                const struct record_chosen *passed);
/* Reports that the round is closed. Returns whether further sets may have to be sent. */
bool sets_closed(struct gp_job *job, uint64_t round);
/* Sends the next sets to the leader lane. Returns false if the send queue is full. */
bool sets_send(struct gp_job *job, const struct sets_way *to);

/* ---- recording.c ---- */

int sets_recording_open(const char *path, const struct gp_job *job,
                        const struct backup_terms *terms, uint32_t workers,
                        struct sets_recording **ret_recording, struct err *err);
void sets_recording_close(struct sets_recording *r);
void sets_recording_hear(struct sets_recording *r, const struct sets_way *from,
                         const struct record_chosen *passed);

/* ---- replay.c ---- */

/* Reads the whole file. If it was cut off within a line, that line is ignored. */
int sets_replay_read(const char *path, const struct gp_job *job, const struct backup_terms *terms,
                     uint32_t workers, struct sets_replay **ret_replay, struct err *err);
void sets_replay_free(struct sets_replay *r);
void sets_replay_closed(struct sets_replay *r, uint64_t round);
bool sets_replay_send(struct sets_replay *r, const struct sets_way *to);

#endif
