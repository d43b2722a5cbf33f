/* tests/net/command.c -- the program's main function inside this process, with its standard streams in files. */
#include "net.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

int nnc_main(int argc, char **argv); /* cli/main.c, built with this name */

typedef struct stream {
    int fd, saved;
    char file[400];
} stream;

static void divert(stream *s, const char *dir, const char *name, int fd)
{
    snprintf(s->file, sizeof s->file, "%s/%s", dir, name);
    s->fd = fd;
    s->saved = dup(fd);
    int to = open(s->file, O_RDWR | O_CREAT | O_TRUNC, 0600);
    dup2(to, fd);
    close(to);
}

static void restore(stream *s, nnc_text *out)
{
    char *p = NULL;
    size_t n;
    nnc_sink *sink = nnc_sink_create();
    dup2(s->saved, s->fd);
    close(s->saved);
    if (nnc_file_read(s->file, 0, &p, &n, sink) == NNC_OK)
        nnc_putn(out, p, n);
    nnc_free(p);
    nnc_sink_destroy(sink);
}

int net_command(const char *dir, const char *const *argv, nnc_text *out, nnc_text *err)
{
    stream o, e;
    int argc = 0;
    while (argv[argc])
        argc++;
    fflush(stdout);
    fflush(stderr);
    divert(&o, dir, "stdout", 1);
    divert(&e, dir, "stderr", 2);
    int code = nnc_main(argc, (char **)argv);
    fflush(stdout);
    fflush(stderr);
    restore(&e, err);
    restore(&o, out);
    return code;
}
