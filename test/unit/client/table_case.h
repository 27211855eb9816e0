/* A table for tests of the client: rows of three floats on lanes of the scripted service. */
#ifndef GRADPOOL_TEST_TABLE_CASE_H
#define GRADPOOL_TEST_TABLE_CASE_H

#include "client/gradpool_table.h"
#include "test/unit/client/client_fixture.h"

#define DIM 3
#define KEYS 200

extern gp_table *t[WORKERS];
extern uint64_t keys[KEYS];
extern float rows[KEYS][DIM], gradients[KEYS][DIM];
extern const gp_table_spec usual;
extern const gp_row_settings rate;

/* Places the shards of tables that are declared from now on, on these lanes. */
void use_lanes(uint32_t first, uint32_t count);
/* `holds` true: the lanes delay all answers. `holds` false: the lanes answer at once. */
void hold_answers(bool holds);
/* Declares table `usual` on every rank. */
void declare_tables(uint32_t lanes);
/* Fills `keys` and `gradients`, and makes a batch of the first `count` keys. */
gp_batch *batch_of(gp_table *table, size_t count);
/* Checks that `rows` has the rows of this clock. */
void check_rows(size_t count, uint64_t clock);
void end_clocks(void);
void pull_and_check(gp_batch *batch, size_t count, uint64_t clock);
/* Waits until the lanes have `count` records about tables, and locks the rig. */
struct script_tables *wait_records(uint32_t count);

#endif
