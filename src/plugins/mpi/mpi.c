/* plugins/mpi/mpi.c -- messages between processes through MPI: nonblocking calls alone, so that deadlines hold (comm/comm.c polls).
 * Serialised by the caller's lock: MPI_THREAD_SERIALIZED. Errors are returned, not fatal. */
#include "comm/comm.h"

#include <dlfcn.h>
#include <mpi.h>
#include <string.h>

/* Counts of MPI are ints: longer messages are several with one tag, which arrive in order. */
enum { PIECE = 1 << 30 };
/* MPI promises tags up to 32767; Open MPI has 2^31-1, MPICH 2^28-1 or more. */
enum { MOST_TAG = (1 << 28) - 1 };

/* Open MPI opens some 40 files of its own when it starts, and ends the process, with exit code 2, where there is no memory for one. */
#define START_ROOM ((size_t)96 << 20)

typedef struct group {
    MPI_Comm comm, next; /* next: of a split under way */
    MPI_Request splitting;
    bool split_begun;
} group;

struct nnc_request {
    int n;
    MPI_Request at[]; /* pieces */
};

static char said[MPI_MAX_ERROR_STRING + 1]; /* the latest error's text */

static const char *check(int code)
{
    int n = 0;
    if (code == MPI_SUCCESS)
        return NULL;
    if (MPI_Error_string(code, said, &n) != MPI_SUCCESS)
        return "an error of MPI";
    said[n] = 0;
    return said;
}

/* "Open MPI v4.1.4": up to the first comma of what the library says. */
static const char *mpi_version(void)
{
    static char version[MPI_MAX_LIBRARY_VERSION_STRING + 1];
    int n = 0;
    if (MPI_Get_library_version(version, &n) != MPI_SUCCESS)
        return "";
    version[strcspn(version, ",\n")] = 0;
    return version;
}

static const char *mpi_open(const nnc_ranks *r, void **out, int *rank, int *world)
{
    (void)r; /* MPI's launcher says it */
    static group first;
    int level = 0, begun = 0;
    MPI_Initialized(&begun);
    if (begun)
        return "MPI is in use in this process already";
    if (!nnc_has_room(START_ROOM))
        return "out of memory";
    /* Open MPI's components find its symbols in the process's global scope; plug-ins are opened with a scope of their own */
    Dl_info info;
    if (dladdr((void *)(uintptr_t)MPI_Init_thread, &info) && info.dli_fname)
        (void)dlopen(info.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
    const char *wrong = check(MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level));
    if (wrong)
        return wrong;
    first = (group){.comm = MPI_COMM_WORLD};
    *out = &first; /* from here on close finalizes */
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (level < MPI_THREAD_SERIALIZED)
        return "it cannot be called by several threads in turn";
    int *most = NULL, has = 0;
    wrong = check(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, (void *)&most, &has));
    if (wrong || !has || *most < MOST_TAG)
        return wrong ? wrong : "it has fewer tags than messages need";
    wrong = check(MPI_Comm_rank(MPI_COMM_WORLD, rank));
    return wrong ? wrong : check(MPI_Comm_size(MPI_COMM_WORLD, world));
}

static const char *mpi_close(void *at)
{
    (void)at;
    return check(MPI_Finalize());
}

static const char *mpi_split(void *at, void **out, bool *done)
{
    group *g = at;
    int over = 0;
    *done = false;
    if (!g->split_begun) {
        const char *wrong = check(MPI_Comm_idup(g->comm, &g->next, &g->splitting));
        if (wrong)
            return wrong;
        g->split_begun = true;
    }
    const char *wrong = check(MPI_Test(&g->splitting, &over, MPI_STATUS_IGNORE));
    if (wrong || !over)
        return wrong;
    g->split_begun = false;
    group *to = nnc_calloc(1, sizeof *to);
    if (!to)
        return "out of memory";
    to->comm = g->next;
    MPI_Comm_set_errhandler(to->comm, MPI_ERRORS_RETURN);
    *out = to;
    *done = true;
    return NULL;
}

/* MPI_Comm_free is collective and may wait for the others. A job has few communicators, and MPI_Finalize frees them. */
static void mpi_drop(void *at)
{
    nnc_free(at);
}

static nnc_request *request(int64_t bytes)
{
    const int64_t n = bytes ? (bytes + PIECE - 1) / PIECE : 1;
    nnc_request *r = nnc_malloc(sizeof *r + (size_t)n * sizeof r->at[0]);
    for (int i = 0; r && i < n; i++)
        r->at[i] = MPI_REQUEST_NULL;
    if (r)
        r->n = (int)n;
    return r;
}

static int piece_of(int64_t bytes, int i)
{
    const int64_t left = bytes - (int64_t)i * PIECE;
    return (int)(left < PIECE ? left : PIECE);
}

static const char *mpi_send(
    void *at, const void *data, int64_t bytes, int to, int tag, nnc_request **out)
{
    const group *g = at;
    const char *p = data ? data : "", *wrong = NULL; /* NULL + 0 is no address */
    nnc_request *r = request(bytes);
    if (!r)
        return "out of memory";
    for (int i = 0; i < r->n && !wrong; i++)
        wrong = check(MPI_Isend(
            p + (size_t)i * PIECE, piece_of(bytes, i), MPI_BYTE, to, tag, g->comm, &r->at[i]));
    *out = r; /* kept also after a failure: MPI may still read from the data */
    return wrong;
}

static const char *mpi_recv(
    void *at, void *data, int64_t bytes, int from, int tag, nnc_request **out)
{
    const group *g = at;
    const char *wrong = NULL;
    nnc_request *r = request(bytes);
    if (!r)
        return "out of memory";
    char *p = data ? data : (char *)r; /* without data: any address, NULL + 0 is none */
    for (int i = 0; i < r->n && !wrong; i++)
        wrong = check(MPI_Irecv(
            p + (size_t)i * PIECE, piece_of(bytes, i), MPI_BYTE, from, tag, g->comm, &r->at[i]));
    *out = r;
    return wrong;
}

/* Piece by piece, so that no table of statuses is needed. Sizes that differ end in MPI_ERR_TRUNCATE; shorter ones cannot be: both sides
 * have them from one plan, whose hash was compared. */
static const char *mpi_test(void *at, nnc_request *r, bool *done)
{
    int over = 1;
    (void)at;
    for (int i = 0; i < r->n && over; i++) {
        const char *wrong = check(MPI_Test(&r->at[i], &over, MPI_STATUS_IGNORE));
        if (wrong) {
            nnc_free(r);
            *done = false;
            return wrong;
        }
    }
    *done = over;
    if (over)
        nnc_free(r);
    return NULL;
}

static void mpi_abort(void *at, int code)
{
    (void)at;
    MPI_Abort(MPI_COMM_WORLD, code);
}

extern __attribute__((visibility("default"))) const nnc_transport nnc_transport_mpi;
const nnc_transport nnc_transport_mpi = {
    .name = "mpi",
    .version = mpi_version,
    .open = mpi_open,
    .close = mpi_close,
    .split = mpi_split,
    .drop = mpi_drop,
    .send = mpi_send,
    .recv = mpi_recv,
    .test = mpi_test,
    .abort = mpi_abort,
    .most_tag = MOST_TAG,
};
