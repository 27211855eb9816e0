/* Sums of products in double. Included by reduce_table.h for each instruction set. */
#include <stddef.h>
#include <string.h>

#define PRODUCT_STRANDS 32

/* Computes the sum in 32 strands (partial sums): strand j adds the products of elements j, j + 32,
 * j + 64, ... Then the strands are added in halves, so every instruction set has the same bits
 * (R13). A product of two f32 values is exact in double. Values may be unaligned. */
static double products_f32(const float *a, const float *b, size_t elements)
{
    double strand[PRODUCT_STRANDS] = {0};
    size_t whole = elements / PRODUCT_STRANDS * PRODUCT_STRANDS;
    for (size_t i = 0; i < whole; i += PRODUCT_STRANDS) {
        float x[PRODUCT_STRANDS], y[PRODUCT_STRANDS];
        memcpy(x, (const char *)a + i * sizeof *a, sizeof x);
        memcpy(y, (const char *)b + i * sizeof *b, sizeof y);
        for (size_t j = 0; j < PRODUCT_STRANDS; j++)
            strand[j] += (double)x[j] * (double)y[j];
    }
    for (size_t i = whole; i < elements; i++) {
        float x, y;
        memcpy(&x, (const char *)a + i * sizeof x, sizeof x);
        memcpy(&y, (const char *)b + i * sizeof y, sizeof y);
        strand[i - whole] += (double)x * (double)y;
    }
    for (size_t half = PRODUCT_STRANDS / 2; half > 0; half /= 2)
        for (size_t j = 0; j < half; j++)
            strand[j] += strand[j + half];
    return strand[0];
}
