/* State of the engine of Slurm. README.md has the table of states. */
#ifndef GRADPOOL_POOL_SLURM_INTERNAL_H
#define GRADPOOL_POOL_SLURM_INTERNAL_H

#include "svc/base/clock.h"
#include "svc/pool/slurm/command.h"
#include "svc/pool/slurm/list.h"
#include "svc/pool/slurm/slurm.h"

#define SLURM_NODES_MAX 64 /* maximum number of nodes whose failures are counted */
/* longest time of a command; Slurm itself stops trying after 20 s */
#define SLURM_COMMAND_NS (30 * NS_PER_S)

enum slurm_state {
    SLURM_NONE,
    SLURM_NEW,     /* no command was started */
    SLURM_SENT,    /* srun or sbatch runs, and no list has shown the worker */
    SLURM_QUEUED,  /* the job waits in the queue */
    SLURM_RUNS,    /* a list has shown the worker as running */
    SLURM_DOUBTED, /* srun or sbatch has failed; the next list shows whether the worker runs */
};

struct slurm_worker {
    enum slurm_state state;
    struct cookie cookie;
    char id[SLURM_ID_BYTES]; /* identifier of the job or step; "": not known */
    char node[SLURM_NODE_BYTES];
    char **program;
    char **variables;            /* own copies; NULL ends */
    struct slurm_command client; /* srun of this pool */
    bool was_seen;               /* the list that is being read has shown the worker */
    bool has_run;                /* a list has shown the worker as running */
    int signal;                  /* to be sent; 0: none */
    int last_signal;             /* last signal, sent or still to be sent; 0: none */
    uint64_t since_ns;           /* of the state */
    /* time of the first SIGKILL, or of the first list with SLURM_ENDING; 0: neither */
    uint64_t killed_ns;
    uint64_t log_bytes;           /* length of the log before the start */
    struct engine_event *event;   /* event that the pool has not read; ENGINE_NOTHING: none */
    char told[ENGINE_TEXT_BYTES]; /* last ENGINE_WAITS */
};

struct slurm_node {
    char name[SLURM_NODE_BYTES];
    uint32_t failures;           /* in a row */
    uint64_t pause_ns, until_ns; /* `until_ns`: no worker starts on the node before */
};

enum slurm_purpose { PURPOSE_LIST, PURPOSE_SIGNAL, PURPOSE_SUBMIT };

struct slurm {
    struct pool_engine engine;
    const struct slurm_setup *setup;
    bool has_steps; /* workers are steps of an allocation */
    int epoll_fd, timer_fd;
    struct slurm_command command; /* the running command, except the srun of workers */
    enum slurm_purpose purpose;
    uint32_t submits;     /* PURPOSE_SUBMIT: the rank */
    uint64_t deadline_ns; /* of the command */
    uint64_t list_ns;     /* time of the next list */
    bool has_list;        /* the last list has arrived */
    uint64_t settled_ns; /* no step starts before this time, because srun would wait for a minute */
    char trouble[ENGINE_TEXT_BYTES]; /* printed reason why Slurm does not answer; "": it answers */
    char saying[ENGINE_TEXT_BYTES];  /* for the user; "": nothing */
    uint64_t strays_ns;              /* of the last end of strays */
    struct slurm_entry *strays;
    size_t strays_count;
    struct slurm_worker workers[POOL_RANKS_MAX];
    struct slurm_node nodes[SLURM_NODES_MAX];
};

/* --- worker.c: states and events of a worker --- */

/* Stores a line for the user. A line that the pool has not read is replaced. */
void slurm_say(struct slurm *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Stores an event. An event that the pool has not read is replaced. */
void slurm_worker_tell(struct slurm_worker *w, enum engine_event_kind kind, const char *text);
/* Stores the reason why the worker does not run yet. Has no effect if `text` is "" or is the last
 * reason. */
void slurm_worker_waits(struct slurm_worker *w, const char *text);
void slurm_worker_enter(struct slurm_worker *w, enum slurm_state state);
/* Frees the memory of a worker, so that its rank has no worker. */
void slurm_worker_free(struct slurm_worker *w);
/* Reports that the worker was not started, for the reason `text`. Frees the worker. */
void slurm_worker_refused(struct slurm_worker *w, const char *text);
/* Reports that all processes of the worker have ended. Frees the worker. */
void slurm_worker_ended(struct slurm *s, struct slurm_worker *w, enum rank_end end, int number);
/* Gives up a worker that Slurm has not ended within 30 s after SIGKILL, for example on a node that
 * does not answer. Returns whether the worker was freed. */
bool slurm_worker_is_stuck(struct slurm *s, struct slurm_worker *w);

/* --- seen.c: changes of workers that a list shows --- */

/* Reads the output of squeue. `is_good`: the list is complete. `text`: the error of a list that is
 * not complete. */
void slurm_take_list(struct slurm *s, bool is_good, const char *text);

/* --- turn.c: commands --- */

/* Handles the ends of srun. */
void slurm_check_clients(struct slurm *s);
/* Handles the end of the command. A command that has run for too long is killed first. */
void slurm_check_command(struct slurm *s);
/* Starts the next command if no command runs. */
void slurm_next_command(struct slurm *s);
bool slurm_has_workers(const struct slurm *s);

/* --- adopt.c: lists, and workers of an earlier pool --- */

/* Calls `found` for each job or step of this pool in the output of the command. */
void slurm_each_entry(struct slurm *s, bool is_step,
                      void (*found)(struct slurm *s, const struct slurm_entry *entry));
int slurm_adopt(struct pool_engine *engine, struct err *err);
void slurm_end_strays(struct pool_engine *engine);

/* --- words.c: command lines --- */

void words_list(struct slurm_words *words, bool is_step);
/* Starts srun or sbatch of the worker. */
int words_start(struct slurm *s, struct slurm_worker *worker, struct slurm_command *ret_command,
                bool *ret_is_final, struct err *err);
/* Returns the length of the rank's log. */
uint64_t words_log_bytes(const struct slurm *s, uint32_t rank);
/* Returns a copy of the texts and of their list, which the caller frees; NULL: no memory. */
char **words_copy(char *const *texts);
/* Writes the script that sbatch runs. */
int words_write_script(const struct pool_folder *folder, struct err *err);
/* Adds the workers that get the same signal in the same way. Returns the signal; 0: no signal is
 * due. */
int words_signal(struct slurm *s, struct slurm_words *words);
/* Adds jobs or steps of this folder that belong to no worker, in order to kill them. Returns
 * whether there are any. */
bool words_strays(struct slurm *s, struct slurm_words *words);

/* --- nodes.c: nodes on which workers fail --- */

/* Counts the end of a worker that has run on the node. */
void nodes_ended(struct slurm *s, const char *node, bool has_failed, uint64_t now_ns);
/* Writes the nodes on which no worker starts now, separated by commas. */
void nodes_excluded(const struct slurm *s, uint64_t now_ns, char *ret_text, size_t text_bytes);

#endif
