/* Errors are negative errno plus, where a person will read it, one sentence: who, what was
 * expected, what came, what to do next. */
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
