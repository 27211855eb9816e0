/* A table for tests of its rules: one lane, rows of two elements, rule SGD with rate 0.25. */
#ifndef GRADPOOL_TEST_ROWS_CASE_H
#define GRADPOOL_TEST_ROWS_CASE_H

#include "test/unit/lane/rows/rows_rig.h"

#define DIM 2
#define KEYS 4
#define START 0.5f /* initial value of all elements */

extern const struct table_terms users;
extern const struct row_settings settings;
extern const uint64_t keys[KEYS];
extern const float ones[KEYS * DIM];
extern struct rows_rig rig;

/* Starts the lane and the workers, and sends the settings. */
void start(uint32_t workers);
struct rig_worker *worker(uint32_t rank);
/* Pushes a gradient of ones for all keys. */
void push_ones(uint32_t rank);
/* Waits for the pull of all keys, and checks that all elements of all rows have the value. */
void rows_are(struct rows_asked *pull, float value);
/* Returns a record with settings of the table, valid from clock 1 on. */
struct record_clock settings_record(double rate);
/* Checks that the job fails on the lane with this text, and that worker 1 receives the failure. */
void fails_in_midst(int code, const char *words);
/* Like fails_in_midst(). Also checks that no row was created, and stops the rig. */
void fails(int code, const char *words);

#endif
