/* session/stream.c -- runs that include their copies: host memory, times, and the share of the copies that overlapped with computing. The
 * verdict and its cause are derived from the times of the device's events and from the kind of host memory. */
#include "session/session.h"
#include <math.h>
#include <string.h>

/* Sums over runs, ns. The first upload and the last download of a pipeline cannot overlap with another run. */
typedef struct sums {
    int64_t copies, beside; /* of copies that could overlap; of their time that did */
    int64_t n,
        late; /* number of such copies; of those that the host submitted too late to overlap */
    int64_t all, n_all; /* time and number of all copies */
} sums;

/* One direction of the copies: host memory for each input or output. */
typedef struct side {
    int n;
    const int32_t *tensor; /* the plan's inputs or outputs */
    char **at;
    bool *direct;
    int64_t *
        step; /* bytes between the parts of consecutive chunks: 0 where every chunk gets everything */
    int64_t *last; /* offset of the last chunk's part */
    int64_t bytes; /* copied by one run */
    sums sums;
} side;

struct nnc_streaming {
    nnc_pipe *pipe;
    nnc_arena arena; /* of the sides' arrays */
    side side[NNC_WAYS];
    bool pageable, fresh; /* some memory is not pinned; outputs are those of the last run */
    int64_t run_ns, latency_ns, n_run;
};

static int64_t bytes_of(const nnc_session *s, int way, int i)
{
    return nnc_type_bytes(way == NNC_UP ? nnc_whole_input(s->a, i) : nnc_whole_output(s->a, i));
}

/* ---- memory ---------------------------------------------------------------------------------------------------------- */

static nnc_status host_memory(nnc_session *s, int way, nnc_sink *sink)
{
    nnc_streaming *m = s->stream;
    const nnc_plan *p = s->plan;
    side *o = &m->side[way];
    o->n = way == NNC_UP ? p->n_input : p->n_output;
    o->tensor = way == NNC_UP ? p->input : p->output;
    NNC_NEED(ARENA_ARRAYS(&m->arena, o->n, o->at, o->direct, o->step, o->last), sink);
    for (int i = 0; i < o->n; i++) {
        void *memory;
        int64_t bytes = bytes_of(s, way, i), part = nnc_type_bytes(&p->tensor[o->tensor[i]].type);
        NNC_TRY(nnc_exec_host_alloc(s->exec, bytes, &memory, &o->direct[i], sink));
        o->at[i] = memory;
        o->step[i] = part < bytes ? part : 0;
        o->last[i] = bytes - part;
        o->bytes += part;
        memset(memory, 0, (size_t)bytes);
        m->pageable |= !o->direct[i];
    }
    return NNC_OK;
}

nnc_status nnc_session_stream_open(nnc_session *s, nnc_sink *sink)
{
    if (s->stream)
        return NNC_OK;
    nnc_streaming *m = s->stream = nnc_calloc(1, sizeof *m);
    NNC_NEED(m, sink);
    nnc_status st = nnc_pipe_create(s->exec, &m->pipe, sink);
    for (int way = 0; way < NNC_WAYS && !st; way++)
        st = host_memory(s, way, sink);
    for (int i = 0; i < s->plan->n_input && !st && s->given; i++)
        st = nnc_exec_get_input(s->exec, i, m->side[NNC_UP].at[i]);
    if (!st && s->given)
        st = nnc_exec_sync(s->exec, sink);
    if (st)
        nnc_session_stream_close(s);
    return st;
}

void nnc_session_stream_close(nnc_session *s)
{
    nnc_streaming *m = s->stream;
    if (!m)
        return;
    nnc_pipe_destroy(m->pipe);
    for (int way = 0; way < NNC_WAYS; way++)
        for (int i = 0; m->side[way].at && i < m->side[way].n; i++)
            if (m->side[way].at[i])
                nnc_exec_host_free(s->exec, m->side[way].at[i], m->side[way].direct[i]);
    nnc_arena_deinit(&m->arena);
    nnc_free(m);
    s->stream = NULL;
}

void nnc_stream_keep_input(nnc_session *s, int i, const void *data)
{
    if (s->stream)
        memcpy(s->stream->side[NNC_UP].at[i], data, (size_t)bytes_of(s, NNC_UP, i));
}

const char *nnc_stream_output(const nnc_session *s, int i)
{
    return s->stream && s->stream->fresh ? s->stream->side[NNC_DOWN].at[i] : NULL;
}

bool nnc_stream_take_output(const nnc_session *s, int i, int64_t offset, int64_t bytes, void *data)
{
    const char *from = nnc_stream_output(s, i);
    if (from)
        memcpy(data, from + offset, (size_t)bytes);
    return from != NULL;
}

void nnc_stream_forget(nnc_session *s)
{
    if (s->stream)
        s->stream->fresh = false;
}

/* ---- times ----------------------------------------------------------------------------------------------------------- */

/* Time of copy c during which any of the n runs computed. A run does not compute during its own copies. */
static int64_t beside(const int64_t c[2], const nnc_pipe_span *s, int n)
{
    int64_t ns = 0;
    for (int i = 0; i < n; i++) {
        int64_t from = nnc_max64(c[0], s[i].run[0]), to = nnc_min64(c[1], s[i].run[1]);
        ns += to > from ? to - from : 0;
    }
    return ns;
}

static void add_copy(
    sums *u, const int64_t c[2], const nnc_pipe_span *s, int n, bool could, bool late)
{
    if (c[0] < 0 || c[1] < c[0])
        return;
    u->all += c[1] - c[0];
    u->n_all++;
    if (!could)
        return;
    u->copies += c[1] - c[0];
    u->beside += beside(c, s, n);
    u->n++;
    u->late += late;
}

/* True when run i was submitted after run i - 1 had ended: neither its upload nor the download of run i - 1 could overlap. */
static bool given_late(const nnc_pipe_span *s, int i, int n)
{
    return i > 0 && i < n && s[i].given_up >= s[i - 1].run[1];
}

static void add_spans(nnc_streaming *m, const nnc_pipe_span *s, int n)
{
    for (int i = 0; i < n; i++) {
        add_copy(&m->side[NNC_UP].sums, s[i].up, s, n, i > 0, given_late(s, i, n));
        add_copy(&m->side[NNC_DOWN].sums, s[i].down, s, n, i + 1 < n, given_late(s, i + 1, n));
        int64_t begin = s[i].up[0] >= 0 ? s[i].up[0] : s[i].run[0],
                end = s[i].down[1] >= 0 ? s[i].down[1] : s[i].run[1];
        m->run_ns += s[i].run[1] - s[i].run[0];
        m->latency_ns += end - begin;
        m->n_run++;
    }
}

static int64_t end_of(const nnc_pipe_span *s)
{
    return s->down[1] >= 0 ? s->down[1] : s->run[1];
}

/* Mean time of the n runs after the first one, in the slowest stage. Intervals between single downloads vary more: with two slots, two
 * downloads may end together, and the next one ends two runs later. */
static int64_t time_in_row(const nnc_pipe_span *s, int n)
{
    const int64_t computed = s[n].run[1] - s[0].run[1], ended = end_of(&s[n]) - end_of(&s[0]);
    return nnc_max64(computed, ended) / n;
}

static nnc_status run_pipe(nnc_session *s, int64_t n, nnc_pipe_span *span, nnc_sink *sink)
{
    nnc_streaming *m = s->stream;
    nnc_pipe_side io[NNC_WAYS];
    for (int way = 0; way < NNC_WAYS; way++) {
        const side *o = &m->side[way];
        io[way] = (nnc_pipe_side){o->at, o->step, o->last};
    }
    m->fresh = false;
    NNC_TRY(nnc_pipe_run(m->pipe, io, n, span, sink));
    m->fresh = true;
    add_spans(m, span, (int)nnc_min64(n, NNC_PIPE_SPANS));
    return NNC_OK;
}

nnc_status nnc_stream_chunks(nnc_session *s, nnc_sink *sink)
{
    nnc_pipe_span span[NNC_PIPE_SPANS];
    return run_pipe(s, s->a->chunks, span, sink);
}

nnc_status nnc_session_stream(nnc_session *s, int n, int64_t *ns, nnc_sink *sink)
{
    nnc_pipe_span span[NNC_PIPE_SPANS];
    nnc_streaming *m = s->stream;
    int runs = n == 1 ? 1 : n + 1;
    if (!m || n < 1 || n > NNC_STREAM_RUNS)
        return nnc_fail0(sink, NNC_E_BUG,
            "a session streams 1 to %d runs after nnc_session_stream_open", NNC_STREAM_RUNS);
    for (int i = 0; i < n && s->a->chunks > 1; i++) {
        int64_t from = nnc_now_ns();
        NNC_TRY(nnc_stream_chunks(s, sink));
        ns[i] = nnc_now_ns() - from;
    }
    if (s->a->chunks > 1)
        return NNC_OK;
    NNC_TRY(run_pipe(s, runs, span, sink));
    if (n == 1)
        ns[0] = end_of(&span[0]) - (span[0].up[0] >= 0 ? span[0].up[0] : span[0].run[0]);
    for (int i = 0; i < n && n > 1; i++)
        ns[i] = time_in_row(span, n);
    return NNC_OK;
}

void nnc_session_stream_reset(nnc_session *s)
{
    for (int way = 0; way < NNC_WAYS; way++)
        s->stream->side[way].sums = (sums){0};
    s->stream->run_ns = s->stream->latency_ns = s->stream->n_run = 0;
}

/* ---- verdict --------------------------------------------------------------------------------------------------------- */

static const char *cause_of(const nnc_streaming *m, const sums *u)
{
    if (!u->n)
        return u->n_all ? "one iteration" : "nothing is copied";
    if (2 * u->beside >= u->copies && u->beside > 0)
        return NULL;
    if (m->pageable)
        return "pageable memory";
    if (2 * u->late > u->n)
        return "host synchronisation";
    if (u->copies / u->n > m->run_ns / m->n_run)
        return "copies take longer than computing";
    if (100 * (u->copies / u->n) < m->run_ns / m->n_run)
        return "copies take less than a hundredth of computing";
    return "the device ran copies and kernels one after the other";
}

static nnc_overlap overlap_of(const nnc_streaming *m, const side *copied)
{
    const sums *u = &copied->sums;
    nnc_overlap o = {.cause = cause_of(m, u), .bytes = copied->bytes, .share = NAN, .ms = 0};
    o.overlaps = !o.cause;
    if (u->n && u->copies)
        o.share = (double)u->beside / (double)u->copies;
    if (u->n_all)
        o.ms = (double)u->all * 1e-6 / (double)u->n_all;
    return o;
}

nnc_io_report nnc_session_stream_report(const nnc_session *s)
{
    const nnc_streaming *m = s->stream;
    const nnc_plan *p = s->plan;
    nnc_io_report r = {
        .up = overlap_of(m, &m->side[NNC_UP]), .down = overlap_of(m, &m->side[NNC_DOWN])};
    for (int d = 0; d < p->n_device; d++)
        r.device_bytes += nnc_pipe_bytes(m->pipe, d);
    r.run_ms = m->n_run ? (double)m->run_ns * 1e-6 / (double)m->n_run : NAN;
    r.latency_ms = m->n_run ? (double)m->latency_ns * 1e-6 / (double)m->n_run : NAN;
    return r;
}

/* ---- text and JSON --------------------------------------------------------------------------------------------------- */

static void put_overlap(nnc_text *t, const nnc_overlap *o)
{
    nnc_puts(t, o->overlaps ? "yes" : "no");
    if (isfinite(o->share)) {
        nnc_printf(t, ", %.0f %% of ", o->share * 100);
        nnc_put_ms(t, o->ms, 0);
        nnc_puts(t, " ms");
    }
    if (isfinite(o->share) && o->ms > 0)
        nnc_printf(t, " (%.3g GB/s)", (double)o->bytes / o->ms * 1e-6);
    if (o->cause)
        nnc_printf(t, ": %s", o->cause);
}

void nnc_report_io(const nnc_io_report *r, const char *indent, nnc_text *t)
{
    nnc_printf(t, "%supload overlaps compute: ", indent);
    put_overlap(t, &r->up);
    nnc_printf(t, "\n%sdownload overlaps compute: ", indent);
    put_overlap(t, &r->down);
    nnc_printf(t, "\n%scomputing ", indent);
    nnc_put_ms(t, r->run_ms, 0);
    nnc_puts(t, " ms, from start of upload to end of download ");
    nnc_put_ms(t, r->latency_ms, 0);
    nnc_puts(t, " ms; a second set of inputs and outputs takes ");
    nnc_put_bytes(t, r->device_bytes);
    nnc_putc(t, '\n');
}

static void json_overlap(nnc_json_writer *w, const char *name, const nnc_overlap *o)
{
    NNC_JSON_OBJECT(w, name, J_BOOL("overlaps", o->overlaps),
        J_REAL("share", nnc_decimals(o->share, 4)), J_STRING("cause", o->cause), J_MS("ms", o->ms),
        J_INT("bytes", o->bytes));
}

void nnc_report_io_json(const nnc_io_report *r, nnc_json_writer *w)
{
    nnc_json_open(w, "overlap", '{');
    json_overlap(w, "upload", &r->up);
    json_overlap(w, "download", &r->down);
    nnc_json_close(w, '}');
    NNC_JSON(w, J_MS("compute_ms", r->run_ms), J_MS("latency_ms", r->latency_ms),
        J_INT("io_device_bytes", r->device_bytes));
}
