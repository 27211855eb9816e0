/* Opens and closes the files of recording and replay, and passes events to them. Owns struct
 * job_sets. */
#include "client/lib/sets/sets.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

struct job_sets {
    struct sets_recording *recording; /* NULL: this rank records no sets */
    struct sets_replay *replay;       /* NULL: this rank sends no sets to the leader lane */
};

static const char *sets_path(const char *given, const char *variable)
{
    const char *path = given ? given : getenv(variable);
    return path && *path ? path : NULL;
}

uint32_t sets_flags(const gp_backup_spec *spec)
{
    bool has_rule = spec->rule != GP_BACKUP_ALL;
    const char *record = has_rule ? sets_path(spec->record, SETS_RECORD_VARIABLE) : spec->record;
    const char *replay = has_rule ? sets_path(spec->replay, SETS_REPLAY_VARIABLE) : spec->replay;
    return (record ? BACKUP_TERMS_RECORDS : 0) | (replay ? BACKUP_TERMS_REPLAYS : 0);
}

/* Reads the file of a replay. A rank other than 0 only checks the file, and may be on a host
 * without it. */
static int sets_open_replay(struct gp_job *job, const char *path, const struct backup_terms *terms,
                            uint32_t workers, struct err *err)
{
    struct sets_replay *replay = NULL;
    if (job->rank != 0 && access(path, R_OK) != 0)
        return 0;
    int error = sets_replay_read(path, job, terms, workers, &replay, err);
    if (job->rank == 0)
        job->backup.sets->replay = replay;
    else
        sets_replay_free(replay);
    return error;
}

int sets_open(struct gp_job *job, const gp_backup_spec *spec, const struct backup_terms *terms,
              uint32_t workers, struct err *err)
{
    int error = 0;
    if (!terms->sets)
        return 0;
    job->backup.sets = calloc(1, sizeof *job->backup.sets);
    if (!job->backup.sets)
        return err_set(err, -ENOMEM, "job '%s': this process has no memory for the job's sets",
                       job->name);
    if (terms->sets & BACKUP_TERMS_REPLAYS)
        error = sets_open_replay(job, sets_path(spec->replay, SETS_REPLAY_VARIABLE), terms, workers,
                                 err);
    if (error == 0 && terms->sets & BACKUP_TERMS_RECORDS && job->rank == 0)
        error = sets_recording_open(sets_path(spec->record, SETS_RECORD_VARIABLE), job, terms,
                                    workers, &job->backup.sets->recording, err);
    return error;
}

void sets_close(struct gp_job *job)
{
    struct job_sets *sets = job->backup.sets;
    if (!sets)
        return;
    sets_recording_close(sets->recording);
    sets_replay_free(sets->replay);
    free(sets);
    job->backup.sets = NULL;
}

bool sets_heard(struct gp_job *job, const struct sets_way *from, const struct record_chosen *passed)
{
    struct sets_recording *recording = job->backup.sets ? job->backup.sets->recording : NULL;
    if (recording)
        sets_recording_hear(recording, from, passed);
    return recording;
}

bool sets_closed(struct gp_job *job, uint64_t round)
{
    struct sets_replay *replay = job->backup.sets ? job->backup.sets->replay : NULL;
    if (replay)
        sets_replay_closed(replay, round);
    return replay;
}

bool sets_send(struct gp_job *job, const struct sets_way *to)
{
    struct sets_replay *replay = job->backup.sets ? job->backup.sets->replay : NULL;
    return !replay || sets_replay_send(replay, to);
}
