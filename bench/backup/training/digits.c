/* Draws or reads images. All runs must use the same labels. */
#include "bench/backup/training/digits.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/sim/chance.h"

#define WRONG_LABELS 0.2
#define LABEL_SEED 99
#define GLYPH_SEED 1797
#define GLYPHS 1797
#define GLYPH_ROWS 8
#define PIXEL_MAX 16

/* Shape of each class, one byte for each row; the highest bit is the left pixel. */
static const uint8_t glyphs[DIGITS_CLASSES][GLYPH_ROWS] = {
    {0x3c, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x3c},
    {0x18, 0x38, 0x58, 0x18, 0x18, 0x18, 0x18, 0x3c},
    {0x3c, 0x66, 0x06, 0x0c, 0x18, 0x30, 0x60, 0x7e},
    {0x3c, 0x66, 0x06, 0x1c, 0x06, 0x06, 0x66, 0x3c},
    {0x0c, 0x1c, 0x2c, 0x4c, 0x7e, 0x0c, 0x0c, 0x0c},
    {0x7e, 0x60, 0x60, 0x7c, 0x06, 0x06, 0x66, 0x3c},
    {0x1c, 0x30, 0x60, 0x7c, 0x66, 0x66, 0x66, 0x3c},
    {0x7e, 0x06, 0x06, 0x0c, 0x0c, 0x18, 0x18, 0x18},
    {0x3c, 0x66, 0x66, 0x3c, 0x66, 0x66, 0x66, 0x3c},
    {0x3c, 0x66, 0x66, 0x66, 0x3e, 0x06, 0x0c, 0x38},
};

/* Replaces a fifth of the labels by random labels. */
static void digits_mislabel(struct digits *d)
{
    uint64_t state = LABEL_SEED;
    for (size_t i = 0; i < d->count; i++)
        if (chance_unit(&state) < WRONG_LABELS)
            d->labels[i] = (uint8_t)(chance_next(&state) % DIGITS_CLASSES);
}

/* --- drawn images --- */

static float glyph_at(const uint8_t *rows, int row, int column)
{
    return row >= 0 && row < GLYPH_ROWS && column >= 0 && column < GLYPH_ROWS
               ? (float)(rows[row] >> (GLYPH_ROWS - 1 - column) & 1)
               : 0;
}

/* Draws a glyph, moved by up to 0.7 of a pixel in both directions, with uneven strokes and grey
 * noise. */
static void digits_draw(const uint8_t *rows, uint64_t *state, float *ret_pixels)
{
    double down = 1.4 * chance_unit(state) - 0.7, right = 1.4 * chance_unit(state) - 0.7;
    int row_moved = down < 0 ? -1 : 0, column_moved = right < 0 ? -1 : 0;
    float y = (float)(down - row_moved), x = (float)(right - column_moved);
    float stroke = (float)(0.75 + 0.25 * chance_unit(state));
    for (int i = 0; i < DIGITS_PIXELS; i++) {
        int row = i / GLYPH_ROWS + row_moved, column = i % GLYPH_ROWS + column_moved;
        float value = (1 - y) * ((1 - x) * glyph_at(rows, row, column) +
                                 x * glyph_at(rows, row, column + 1)) +
                      y * ((1 - x) * glyph_at(rows, row + 1, column) +
                           x * glyph_at(rows, row + 1, column + 1));
        value = stroke * value + 0.08f * (float)chance_normal(state);
        value = value < 0 ? 0 : value > 1 ? 1 : value;
        ret_pixels[i] = (float)(int)(value * PIXEL_MAX + 0.5f) / PIXEL_MAX;
    }
}

void digits_generate(struct digits *ret_digits)
{
    uint64_t state = GLYPH_SEED;
    ret_digits->count = GLYPHS;
    for (size_t i = 0; i < GLYPHS; i++) {
        size_t digit = i * DIGITS_CLASSES / GLYPHS;
        digits_draw(glyphs[digit], &state, ret_digits->pixels[i]);
        ret_digits->labels[i] = (uint8_t)digit;
    }
    digits_mislabel(ret_digits);
}

/* --- images of a file --- */

static int image_read(char *line, float *ret_pixels, uint8_t *ret_label)
{
    char *end = line;
    for (int i = 0; i <= DIGITS_PIXELS; i++) {
        long value = strtol(line, &end, 10);
        long most = i < DIGITS_PIXELS ? PIXEL_MAX : DIGITS_CLASSES - 1;
        if (end == line || value < 0 || value > most || (i < DIGITS_PIXELS && *end != ','))
            return -EBADMSG;
        if (i < DIGITS_PIXELS)
            ret_pixels[i] = (float)value / PIXEL_MAX;
        else
            *ret_label = (uint8_t)value;
        line = end + 1;
    }
    return 0;
}

static int class_read(FILE *file, uint8_t class, struct digits *d)
{
    char line[512];
    float pixels[DIGITS_PIXELS];
    uint8_t label = 0;
    rewind(file);
    while (fgets(line, sizeof line, file)) {
        int error = image_read(line, pixels, &label);
        if (error < 0)
            return error;
        if (label != class)
            continue;
        if (d->count == DIGITS_MAX)
            return -EFBIG;
        memcpy(d->pixels[d->count], pixels, sizeof pixels);
        d->labels[d->count++] = label;
    }
    return 0;
}

int digits_read(const char *path, struct digits *ret_digits)
{
    FILE *file = fopen(path, "re");
    int error = file ? 0 : -errno;
    ret_digits->count = 0;
    for (uint8_t class = 0; error == 0 && class < DIGITS_CLASSES; class ++)
        error = class_read(file, class, ret_digits);
    if (file)
        fclose(file);
    if (error == 0 && ret_digits->count == 0)
        error = -ENODATA;
    if (error < 0) {
        fprintf(stderr,
                "gradpool-bench: %s: %s. A file of digits has 64 pixels from 0 to 16 and a class "
                "from 0 to 9 in each line; bench/backup/training/digits.py writes one\n",
                path, strerror(-error));
        return error;
    }
    digits_mislabel(ret_digits);
    return 0;
}
