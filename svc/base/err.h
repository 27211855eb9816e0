/* An error is a negative errno value and, if a user will read it, one sentence: object,
 * expectation, value, advice. */
#ifndef GRADPOOL_BASE_ERR_H
#define GRADPOOL_BASE_ERR_H

/* A refusal of the packer is the longest: what each lane lacks. */
#define ERR_TEXT_BYTES 640

struct err {
    int code; /* 0 or negative errno */
    char text[ERR_TEXT_BYTES];
};

/* Plain words for a negative errno ("connection refused"); never NULL, thread-safe. */
const char *err_text(int code);

/* Fills `err` (NULL is fine) and returns `code`, so that a function can end with it. */
int err_set(struct err *err, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
