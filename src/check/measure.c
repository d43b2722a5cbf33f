/* check/measure.c -- loads programs, times them (timing.c) and accumulates the errors of their results.
 *
 * Training: timed steps have a learning rate of 0, so that all of them compute the same. Moments and running statistics move, and every
 * update is computed and written. For the results the states are set back to their first values, and one step is made with the learning
 * rate of the inputs. A state is judged by its change in that step. A weight's change is its gradient, whose errors would vanish beside
 * the weight itself. */
#include "check/compare.h"
#include "session/session.h"
#include "train/train.h"
#include <string.h>

enum { PIECE = 1 << 20, KEEP_ALL = 1 << 30 };

static int64_t input_bytes(const nnc_artifact *a, int i)
{
    return nnc_type_bytes(nnc_whole_input(a, i));
}

static int64_t output_bytes(const nnc_artifact *a, int i)
{
    return nnc_type_bytes(nnc_whole_output(a, i));
}

static int64_t result_bytes(const program *p, int i)
{
    return nnc_type_bytes(nnc_result_type(p, i));
}

static nnc_status result_part(
    comparison *c, const program *p, int i, int64_t offset, int64_t bytes, void *data)
{
    const int n = p->a->plan->n_output;
    return i < n ? nnc_session_output_part(p->s, i, offset, bytes, data, c->sink)
                 : nnc_session_state_part(p->s, i - n, offset, bytes, data, c->sink);
}

int64_t nnc_copies_bytes(const nnc_artifact *a)
{
    int64_t n = 0;
    for (int i = 0; i < a->plan->n_input; i++)
        n += 2 * input_bytes(a, i);
    for (int i = 0; i < a->plan->n_output; i++)
        n += 3 * output_bytes(a, i);
    return n;
}

static int64_t memory_of(const comparison *c, const program *p)
{
    int64_t n = c->io != NNC_IO_EXCLUDE ? nnc_copies_bytes(p->a) : 0;
    for (int d = 0; d < p->a->plan->n_device; d++)
        n += nnc_device_needs(p->a->plan, d);
    return n;
}

/* ---- numbers ----------------------------------------------------------------------------------------- */

/* The number that element i of a result changed from; 0 of an output. */
static double before(const comparison *c, int result, nnc_dtype d, int64_t i)
{
    return c->initial[result] ? nnc_get_f64(d, c->initial[result], i) : 0;
}

/* Compares the rows of one result with the reference, piece by piece; `all`: open elements, too. */
static nnc_status check_reference(comparison *c, program *p, int out, char *piece, bool all)
{
    const nnc_type *t = nnc_result_type(p, out);
    nnc_dtype d = (nnc_dtype)t->dtype;
    nnc_error *e = &p->output[out].reference;
    bool rows = c->reference.rows && c->reference.carried_out[out];
    int64_t n_row = rows ? c->reference.rows : 1, size = nnc_dtype_size(d);
    int64_t row = nnc_type_numel(t) / (rows ? t->dim[0] : 1), step = PIECE / size;
    *e = (nnc_error){0};
    for (int64_t r = 0; r < n_row; r++)
        for (int64_t at = 0; at < row; at += step) {
            int64_t n = nnc_min64(step, row - at),
                    from = (rows ? c->reference.row[r] : 0) * row + at;
            NNC_TRY(result_part(c, p, out, from * size, n * size, piece));
            for (int64_t i = 0; i < n; i++)
                nnc_error_add_reference(e, &c->reference, out, r * row + at + i,
                    nnc_get_f64(d, piece, i), before(c, out, d, from + i), all);
        }
    return NNC_OK;
}

/* A result beyond its limit is compared again, without the elements that are open. */
static nnc_status check_result(comparison *c, program *p, int out, char *piece)
{
    double mean_square;
    NNC_TRY(check_reference(c, p, out, piece, true));
    if (c->o->tolerance != 0 || nnc_within_plain_limit(c, p, out))
        return NNC_OK;
    NNC_TRY(nnc_conditioning(c, p, out, &mean_square));
    return c->reference.open[out] ? check_reference(c, p, out, piece, false) : NNC_OK;
}

static nnc_status keep_pieces(comparison *c, program *p)
{
    const int n_result = c->n_result;
    int64_t total = 0;
    for (int i = 0; i < n_result; i++)
        total += result_bytes(p, i);
    c->kept_all = total <= KEEP_ALL && n_result <= MAX_KEPT;
    int per_output = n_result < MAX_KEPT ? MAX_KEPT / n_result : 1;
    for (int i = 0; i < n_result; i++) {
        int64_t bytes = result_bytes(p, i),
                size = nnc_dtype_size((nnc_dtype)nnc_result_type(p, i)->dtype);
        int64_t piece = c->kept_all ? bytes : nnc_min64(PIECE, bytes),
                n = c->kept_all ? 1 : nnc_min64(per_output, bytes / piece);
        for (int64_t k = 0; k < n && c->n_kept < MAX_KEPT; k++) {
            kept *q = &c->kept[c->n_kept];
            *q = (kept){i, n > 1 ? (bytes - piece) / size * k / (n - 1) * size : 0, piece,
                nnc_malloc((size_t)piece)};
            NNC_NEED(q->data, c->sink);
            c->n_kept++;
            NNC_TRY(result_part(c, p, i, q->offset, q->bytes, q->data));
        }
    }
    return NNC_OK;
}

static nnc_status check_kept(comparison *c, program *p)
{
    for (int k = 0; k < c->n_kept; k++) {
        const kept *q = &c->kept[k];
        nnc_dtype d = (nnc_dtype)nnc_result_type(p, q->output)->dtype;
        NNC_FREED char *got = nnc_malloc((size_t)q->bytes);
        nnc_status st =
            got ? result_part(c, p, q->output, q->offset, q->bytes, got) : nnc_nomem(c->sink);
        int64_t n = q->bytes / nnc_dtype_size(d), first = q->offset / nnc_dtype_size(d);
        const bool *open =
            c->reference.ran && !c->reference.rows ? c->reference.open[q->output] : NULL;
        for (int64_t i = 0; !st && i < n; i++) {
            if (open && open[first + i])
                continue;
            const double was = before(c, q->output, d, first + i);
            nnc_error_add(&p->output[q->output].unfused, nnc_get_f64(d, got, i) - was,
                nnc_get_f64(d, q->data, i) - was);
        }
        NNC_TRY(st);
    }
    return NNC_OK;
}

static nnc_status check(comparison *c, program *p)
{
    NNC_FREED char *piece = nnc_malloc(PIECE);
    NNC_NEED(piece, c->sink);
    for (int i = 0; c->reference.ran && i < c->n_result; i++)
        NNC_TRY(check_result(c, p, i, piece));
    return p == &c->p[c->unfused] && !c->n_kept ? keep_pieces(c, p) : check_kept(c, p);
}

/* ---- groups ------------------------------------------------------------------------------------------ */

/* NULL: the learning rate of the inputs. */
static nnc_status set_lr(comparison *c, const program *p, const float *lr)
{
    for (int i = 0; i < c->n_input; i++)
        if (!strcmp(nnc_artifact_own_input(p->a, i),
                NNC_TRAIN_LR)) /* of several models, each has one */
            NNC_TRY(nnc_session_input(p->s, i, lr ? lr : c->input[i], c->sink));
    return NNC_OK;
}

/* Keeps the states as they are first, and sets the learning rate of timed steps. */
static nnc_status hold_weights(comparison *c, const program *p)
{
    static const float zero = 0;
    const int n = p->a->plan->n_output;
    for (int i = n; i < c->n_result; i++) {
        if (c->initial[i]) /* those of the program before are the same */
            continue;
        c->initial[i] = nnc_aligned_alloc(64, (size_t)result_bytes(p, i));
        NNC_NEED(c->initial[i], c->sink);
        NNC_TRY(nnc_session_state(p->s, i - n, c->initial[i], c->sink));
    }
    return set_lr(c, p, &zero);
}

static nnc_status load(comparison *c, program *p)
{
    NNC_TRY(nnc_session_create(c->env, p->a, &p->s, c->sink));
    for (int i = 0; i < c->n_input; i++)
        NNC_TRY(nnc_session_input(p->s, i, c->input[i], c->sink));
    return c->o->training ? hold_weights(c, p) : NNC_OK;
}

/* Computes the results that are compared, after the timed runs. */
static nnc_status run_once(comparison *c, program *p)
{
    if (!c->o->training) /* streamed runs leave no outputs in the session */
        return c->io != NNC_IO_EXCLUDE ? nnc_session_run(p->s, c->sink) : NNC_OK;
    const int n = p->a->plan->n_output;
    for (int i = n; i < c->n_result; i++)
        NNC_TRY(nnc_session_set_state(p->s, i - n, c->initial[i], c->sink));
    NNC_TRY(set_lr(c, p, NULL));
    return nnc_session_step(p->s, c->sink);
}

static nnc_status measure_group(comparison *c, program **p, int n)
{
    nnc_status st = NNC_OK;
    for (int i = 0; !st && i < n; i++)
        st = load(c, p[i]);
    if (!st && c->io != NNC_IO_INCLUDE)
        st = nnc_time(c, p, n, false);
    for (int i = 0; !st && i < n && c->io != NNC_IO_EXCLUDE; i++)
        st = nnc_session_stream_open(p[i]->s, c->sink); /* slows runs without copies */
    if (!st && c->io != NNC_IO_EXCLUDE)
        st = nnc_time(c, p, n, true);
    if (!st && c->o->training)
        st = nnc_time_parts(c, p, n);
    for (int i = 0; !st && i < n; i++) {
        st = run_once(c, p[i]);
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
    int64_t total = 0, room = nnc_memory_free().bytes / 2;
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
