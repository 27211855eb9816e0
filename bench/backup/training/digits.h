/* Images of 8 x 8 pixels in ten classes. A fifth of the labels is wrong. */
#ifndef GRADPOOL_BENCH_BACKUP_TRAINING_DIGITS_H
#define GRADPOOL_BENCH_BACKUP_TRAINING_DIGITS_H

#include <stddef.h>
#include <stdint.h>

#define DIGITS_MAX 4096
#define DIGITS_PIXELS 64
#define DIGITS_CLASSES 10

/* Images and their labels, sorted by the true class of the images. */
struct digits {
    size_t count;
    float pixels[DIGITS_MAX][DIGITS_PIXELS]; /* values from 0 to 1 */
    uint8_t labels[DIGITS_MAX];
};

/* Draws 1,797 glyphs with a built-in seed. */
void digits_generate(struct digits *ret_digits);
/* Reads the CSV file of digits.py: on each line 64 pixels from 0 to 16 and the class. Returns
 * -errno, with a text on standard error. */
int digits_read(const char *path, struct digits *ret_digits);

#endif
