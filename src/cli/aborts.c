/* cli/aborts.c -- libraries that end the process where memory runs out. C++ libraries throw std::bad_alloc, which no C function can
 * catch; cuDNN and LLVM call abort. Within a limit of memory that becomes nnc's own error, with its exit code. */
#include "cli/cli.h"
#include <signal.h>
#include <string.h>
#include <unistd.h>

/* Libraries give up while some memory is left: they ask for more at once. */
#define SOME ((size_t)256 << 20)

/* Runs on the thread that called abort, maybe within malloc: allocates nothing, and another abort ends the process. */
static void on_abort(int sig)
{
    char text[200];
    signal(sig, SIG_DFL);
    const nnc_memory left = nnc_memory_of_ulimit();
    if ((uint64_t)left.bytes >= SOME) { /* another reason */
        raise(sig);
        return;
    }
    const int n = snprintf(text, sizeof text,
        "nnc: error: out of host memory: a library ended the process; %lld bytes are available "
        "(%s)\n",
        (long long)left.bytes, left.by);
    const ssize_t ignored = write(STDERR_FILENO, text, (size_t)n);
    (void)ignored;
    _exit(nnc_exit_code(NNC_E_NOMEM));
}

void catch_aborts(void)
{
    struct sigaction on;
    memset(&on, 0, sizeof on);
    on.sa_handler = on_abort;
    (void)sigaction(SIGABRT, &on, NULL);
}
