/* api/measure.c -- loads programs, times them (timing.c) and accumulates the errors of their outputs. */
#include "api/compare.h"
#include <string.h>
#include <unistd.h>

enum { PIECE = 1 << 20, KEEP_ALL = 1 << 30 };

static int64_t input_bytes(const nnc_artifact *a, int i)
{
    return nnc_type_bytes(nnc_whole_input(a, i));
}

static int64_t output_bytes(const nnc_artifact *a, int i)
{
    return nnc_type_bytes(nnc_whole_output(a, i));
}

static int64_t memory_of(const comparison *c, const program *p)
{
    int64_t n = 0;
    for (int d = 0; d < p->a->plan->n_device; d++) {
        const nnc_plan_device *v = &p->a->plan->device[d];
        n += v->persist_bytes + nnc_max64(v->arena_bytes, v->init_bytes);
    }
    for (int i = 0; i < p->a->plan->n_input && c->io != NNC_IO_EXCLUDE; i++)
        n += 2 * input_bytes(p->a, i); /* a second set, and the host's */
    for (int i = 0; i < p->a->plan->n_output && c->io != NNC_IO_EXCLUDE; i++)
        n += 3 * output_bytes(p->a, i);
    return n;
}

/* ---- numbers ----------------------------------------------------------------------------------------- */

static void add_range(
    nnc_error *e, const nnc_rval *want, int64_t first_want, nnc_dtype d, const void *got, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        nnc_error_add(e, nnc_get_f64(d, got, i), nnc_rval_number(want, first_want + i));
}

/* Compares the rows of one output with the reference, piece by piece. */
static nnc_status check_reference(comparison *c, program *p, int out, char *piece)
{
    const nnc_type *t = nnc_session_output_type(p->s, out);
    nnc_dtype d = (nnc_dtype)t->dtype;
    bool rows = c->reference.rows && c->reference.carried_out[out];
    int64_t n_row = rows ? c->reference.rows : 1, size = nnc_dtype_size(d);
    int64_t row = nnc_type_numel(t) / (rows ? t->dim[0] : 1), step = PIECE / size;
    for (int64_t r = 0; r < n_row; r++)
        for (int64_t at = 0; at < row; at += step) {
            int64_t n = nnc_min64(step, row - at),
                    from = (rows ? c->reference.row[r] : 0) * row + at;
            NNC_TRY(nnc_session_output_part(p->s, out, from * size, n * size, piece, c->sink));
            add_range(
                &p->output[out].reference, &c->reference.value[out], r * row + at, d, piece, n);
        }
    return NNC_OK;
}

static nnc_status keep_pieces(comparison *c, program *p)
{
    const nnc_plan *plan = p->a->plan;
    int64_t total = 0;
    for (int i = 0; i < plan->n_output; i++)
        total += output_bytes(p->a, i);
    c->kept_all = total <= KEEP_ALL && plan->n_output <= MAX_KEPT;
    int per_output = plan->n_output < MAX_KEPT ? MAX_KEPT / plan->n_output : 1;
    for (int i = 0; i < plan->n_output; i++) {
        int64_t bytes = output_bytes(p->a, i),
                size = nnc_dtype_size((nnc_dtype)nnc_session_output_type(p->s, i)->dtype);
        int64_t piece = c->kept_all ? bytes : nnc_min64(PIECE, bytes),
                n = c->kept_all ? 1 : nnc_min64(per_output, bytes / piece);
        for (int64_t k = 0; k < n && c->n_kept < MAX_KEPT; k++) {
            kept *q = &c->kept[c->n_kept];
            *q = (kept){i, n > 1 ? (bytes - piece) / size * k / (n - 1) * size : 0, piece,
                nnc_malloc((size_t)piece)};
            NNC_NEED(q->data, c->sink);
            c->n_kept++;
            NNC_TRY(nnc_session_output_part(p->s, i, q->offset, q->bytes, q->data, c->sink));
        }
    }
    return NNC_OK;
}

static nnc_status check_kept(comparison *c, program *p)
{
    for (int k = 0; k < c->n_kept; k++) {
        const kept *q = &c->kept[k];
        nnc_dtype d = (nnc_dtype)nnc_session_output_type(p->s, q->output)->dtype;
        NNC_FREED char *got = nnc_malloc((size_t)q->bytes);
        nnc_status st =
            got ? nnc_session_output_part(p->s, q->output, q->offset, q->bytes, got, c->sink)
                : nnc_nomem(c->sink);
        int64_t n = q->bytes / nnc_dtype_size(d);
        for (int64_t i = 0; !st && i < n; i++)
            nnc_error_add(
                &p->output[q->output].unfused, nnc_get_f64(d, got, i), nnc_get_f64(d, q->data, i));
        NNC_TRY(st);
    }
    return NNC_OK;
}

static nnc_status check(comparison *c, program *p)
{
    char *piece = nnc_malloc(PIECE);
    nnc_status st = piece ? NNC_OK : nnc_nomem(c->sink);
    for (int i = 0; !st && c->reference.ran && i < p->a->plan->n_output; i++)
        st = check_reference(c, p, i, piece);
    nnc_free(piece);
    if (!st)
        st = p == &c->p[c->unfused] && !c->n_kept ? keep_pieces(c, p) : check_kept(c, p);
    return st;
}

/* ---- groups ------------------------------------------------------------------------------------------ */

static nnc_status load(comparison *c, program *p)
{
    NNC_TRY(nnc_session_create(c->env, p->a, &p->s, c->sink));
    if (c->io != NNC_IO_EXCLUDE)
        NNC_TRY(nnc_session_stream_open(p->s, c->sink));
    for (int i = 0; i < c->n_input; i++)
        NNC_TRY(nnc_session_input(p->s, i, c->input[i], c->sink));
    return NNC_OK;
}

static nnc_status measure_group(comparison *c, program **p, int n)
{
    nnc_status st = NNC_OK;
    for (int i = 0; !st && i < n; i++)
        st = load(c, p[i]);
    for (int io = 0; !st && io < 2; io++)
        if (c->io == NNC_IO_BOTH || io == c->main)
            st = nnc_time(c, p, n, io == 1);
    for (int i = 0; !st && i < n; i++) {
        if (c->io != NNC_IO_EXCLUDE) /* streamed runs leave no outputs in the session */
            st = nnc_session_run(p[i]->s, c->sink);
        if (!st)
            st = check(c, p[i]);
    }
    for (int i = 0; i < n; i++) {
        if (p[i]->s)
            p[i]->first_run = nnc_exec_first_run(p[i]->s->exec);
        nnc_session_destroy(p[i]->s);
        p[i]->s = NULL;
    }
    return st;
}

/* Do the programs fit into GPU memory at once? True for CPUs. */
static bool fit_together(const comparison *c, program *const *p, int n)
{
    int64_t need = 0;
    for (int i = 0; i < n; i++)
        need += nnc_chunks_need(p[i]->a, c->io != NNC_IO_EXCLUDE);
    return need <= nnc_chunks_room(c->env);
}

nnc_status nnc_measure(comparison *c)
{
    program *p[MAX_PROGRAMS];
    int n = 0;
    int64_t total = 0, room = (int64_t)sysconf(_SC_AVPHYS_PAGES) * sysconf(_SC_PAGESIZE) / 2;
    p[n++] = &c->p[c->unfused]; /* first, since the others are compared with it */
    if (c->fused != c->unfused)
        p[n++] = &c->p[c->fused]; /* together, so that their bursts form pairs */
    for (int i = 0; i < c->n; i++)
        if (i != c->unfused && i != c->fused)
            p[n++] = &c->p[i];
    for (int i = 0; i < n; i++)
        total += memory_of(c, p[i]);
    if (total <= room && fit_together(c, p, n))
        return measure_group(c, p, n);
    for (int i = 0; i < n; i++)
        NNC_TRY(measure_group(c, &p[i], 1));
    return NNC_OK;
}
