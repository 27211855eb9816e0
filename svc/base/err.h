/* An error is a negative errno value. An error that a user reads also has a text: object,
 * expectation, actual value, advice. */
#ifndef GRADPOOL_BASE_ERR_H
#define GRADPOOL_BASE_ERR_H

/* The longest text is a refusal by the packer, which names for each lane the reason why the lane
 * cannot be used. */
#define ERR_TEXT_BYTES 640

struct err {
    int code; /* 0, or a negative errno */
    char text[ERR_TEXT_BYTES];
};

/* Returns words for a negative errno value, such as "connection refused". Never NULL;
 * thread-safe. */
const char *err_text(int code);

/* Fills in `err` (may be NULL) and returns `code`, so that a function can return err_set(...). */
int err_set(struct err *err, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
