/* Images of 8 x 8 pixels of ten classes, with labels of which a fifth is wrong. */
#ifndef GRADPOOL_BENCH_BACKUP_TRAINING_DIGITS_H
#define GRADPOOL_BENCH_BACKUP_TRAINING_DIGITS_H

#include <stddef.h>
#include <stdint.h>

#define DIGITS_MAX 4096
#define DIGITS_PIXELS 64
#define DIGITS_CLASSES 10

/* Sorted by true class. */
struct digits {
    size_t count;
    float pixels[DIGITS_MAX][DIGITS_PIXELS]; /* 0 to 1 */
    uint8_t labels[DIGITS_MAX];
};

/* Draws 1,797 glyphs from a seed of the bench's own. */
void digits_generate(struct digits *ret_digits);
/* Reads the CSV that digits.py writes: 64 pixels from 0 to 16 and the class, a line an image.
 * -errno, with a text on standard error. */
int digits_read(const char *path, struct digits *ret_digits);

#endif
