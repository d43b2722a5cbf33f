/* frontend/write.c -- writes a file from pieces without joining them in memory (tensors may be
 * many GB): a temporary file in the same folder, then rename, so that a reader never sees half
 * of it. */
#include "frontend/internal.h"
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Writes the pieces to `name`; false: *why is errno. */
static bool write_pieces(const char *name, int n, const fe_piece *piece, int *why)
{
    FILE *out = fopen(name, "wbe");
    bool ok = out != NULL;
    for (int i = 0; ok && i < n; i++)
        ok = piece[i].n == 0 || fwrite(piece[i].p, 1, piece[i].n, out) == piece[i].n;
    *why = errno;
    if (out && fclose(out) != 0 && ok) {
        ok = false;
        *why = errno;
    }
    return ok;
}

nnc_status fe_write(const char *file, int n, const fe_piece *piece, nnc_sink *sink)
{
    nnc_text tmp = {0};
    nnc_loc loc = {.file = file};
    struct stat there;
    int why = 0;
    bool ok;
    if (lstat(file, &there) == 0 &&
        !S_ISREG(there.st_mode)) { /* a link, pipe or device: not to be replaced */
        ok = write_pieces(file, n, piece, &why);
        return ok ? NNC_OK : nnc_fail(sink, NNC_E_IO, loc, "cannot write: %s", strerror(why));
    }
    nnc_printf(&tmp, "%s.%ld.tmp", file, (long)getpid());
    if (tmp.oom) {
        nnc_text_deinit(&tmp);
        return nnc_nomem(sink);
    }
    ok = write_pieces(nnc_text_str(&tmp), n, piece, &why);
    if (ok && rename(nnc_text_str(&tmp), file) != 0) {
        ok = false;
        why = errno;
    }
    if (!ok)
        unlink(nnc_text_str(&tmp));
    nnc_text_deinit(&tmp);
    return ok ? NNC_OK : nnc_fail(sink, NNC_E_IO, loc, "cannot write: %s", strerror(why));
}
