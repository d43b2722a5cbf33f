/* report/graphviz.c -- runs Graphviz's program dot on a text. */
#include "report/report.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static void close_all(int fd[4])
{
    for (int i = 0; i < 4; i++)
        if (fd[i] >= 0)
            close(fd[i]);
}

/* Starts dot: it reads fd[0], which fd[1] fills, and writes fd[3], which fd[2] reads; returns an errno. The input is a socket, since a
 * pipe whose reader has ended raises a signal. */
static int start(int fd[4], pid_t *pid)
{
    char *const argv[] = {"dot", "-Tsvg", NULL};
    posix_spawn_file_actions_t a;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd) || pipe2(fd + 2, O_CLOEXEC))
        return errno;
    int err = posix_spawn_file_actions_init(&a);
    if (err)
        return err;
    err = posix_spawn_file_actions_adddup2(&a, fd[0], 0);
    err = err ? err : posix_spawn_file_actions_adddup2(&a, fd[3], 1);
    err = err ? err : posix_spawnp(pid, "dot", &a, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&a);
    return err;
}

/* Writes the text to dot while it reads what dot writes: neither waits for the other. */
static void exchange(int to, int from, const nnc_text *in, nnc_text *out)
{
    size_t sent = 0;
    char buffer[16384];
    for (bool open = true; open;) {
        struct pollfd p[2] = {
            {.fd = from, .events = POLLIN}, {.fd = sent < in->n ? to : -1, .events = POLLOUT}};
        if (poll(p, 2, -1) < 0) {
            if (errno == EINTR)
                continue;
            break;
        }
        if (p[1].revents) {
            const ssize_t n = send(to, in->s + sent, in->n - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
            if (n >= 0)
                sent += (size_t)n;
            else if (errno != EAGAIN && errno != EINTR)
                sent = in->n; /* dot has ended: its status says why */
        }
        if (sent >= in->n && to >= 0) {
            close(to);
            to = -1;
        }
        if (p[0].revents & (POLLIN | POLLHUP | POLLERR)) {
            const ssize_t n = read(from, buffer, sizeof buffer);
            open = n > 0 || (n < 0 && errno == EINTR);
            if (n > 0)
                nnc_putn(out, buffer, (size_t)n);
        }
    }
    if (to >= 0)
        close(to);
}

nnc_status nnc_dot_to_svg(const nnc_text *dot, nnc_text *svg, nnc_sink *sink)
{
    int fd[4] = {-1, -1, -1, -1}, how = 0;
    pid_t pid = -1;
    if (dot->oom)
        return nnc_nomem(sink);
    const int err = start(fd, &pid);
    if (err) {
        close_all(fd);
        return nnc_fail0(sink, NNC_E_DEVICE,
            "drawing a graph needs Graphviz's program dot, which could not be started: %s. Install "
            "it (Debian: apt-get install graphviz), or write the text with --emit=dot or "
            "--dot=FILE.dot",
            strerror(err));
    }
    close(fd[0]);
    close(fd[3]);
    exchange(fd[1], fd[2], dot, svg);
    close(fd[2]);
    while (waitpid(pid, &how, 0) < 0 && errno == EINTR)
        continue;
    if (!WIFEXITED(how) || WEXITSTATUS(how) != 0 || !svg->n)
        return nnc_fail0(sink, NNC_E_DEVICE,
            "Graphviz's program dot failed (%s %d): write the text with --emit=dot or "
            "--dot=FILE.dot to see what it says",
            WIFEXITED(how) ? "exit code" : "signal",
            WIFEXITED(how) ? WEXITSTATUS(how) : WTERMSIG(how));
    return svg->oom ? nnc_nomem(sink) : NNC_OK;
}

nnc_status nnc_write_dot(const nnc_text *dot, const char *file, nnc_sink *sink)
{
    NNC_LOCAL(nnc_text) svg = {0};
    const bool draws = nnc_is_svg(file);
    if (draws)
        NNC_TRY(nnc_dot_to_svg(dot, &svg, sink));
    const nnc_text *out = draws ? &svg : dot;
    return out->oom ? nnc_nomem(sink)
                    : nnc_file_write(file, nnc_text_str(out), out->n, false, sink);
}
