/* gradpool-bench of a build with sanitizers: the worker of end-to-end tests, without the other
 * commands, which no test of such a build starts. */
#include "bench/commands.h"

#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    argp_err_exit_status = 2;
    if (argc > 1 && strcmp(argv[1], "push") == 0)
        return push_command(argc - 1, argv + 1);
    fprintf(stderr, "gradpool-bench: a build with sanitizers has the command push alone; start "
                    "another command in a build without -Db_sanitize\n");
    return 2;
}
