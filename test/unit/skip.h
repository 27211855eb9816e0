/* Skips the running case with a reason. test/run.sh shows the reason before its closing line. */
#ifndef TEST_UNIT_SKIP_H
#define TEST_UNIT_SKIP_H

#define skip_because(reason)             \
    do {                                 \
        print_message("# " reason "\n"); \
        skip();                          \
    } while (0)

#endif
