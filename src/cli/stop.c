/* cli/stop.c -- work that Ctrl-C and SIGTERM end in order. */
#include "cli/cli.h"
#include <signal.h>
#include <string.h>
#include <unistd.h>

volatile sig_atomic_t stopped;
static char line[96];

/* The first signal asks the work to end, the second one ends the program, at once. */
static void stop(int sig)
{
    const size_t from = isatty(2) ? 0 : 4;
    if (stopped) {
        signal(sig, SIG_DFL);
        raise(sig);
        return;
    }
    stopped = sig;
    const ssize_t n = write(2, line + from, strlen(line) - from);
    (void)n;
}

static void catch (int sig)
{
    struct sigaction is;
    struct sigaction act = {.sa_handler = stop, .sa_flags = SA_RESTART};
    if (sigaction(sig, NULL, &is) == 0 && is.sa_handler != SIG_IGN) /* nohup */
        sigaction(sig, &act, NULL);
}

void catch_stop(const char *what)
{
    snprintf(line, sizeof line, "\r\033[Knnc: %s; once more ends at once\n", what);
    catch (SIGINT);
    catch (SIGTERM);
}
