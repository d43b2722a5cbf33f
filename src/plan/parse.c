/* plan/parse.c -- reads the plan's text form (docs/plan.md). It checks the form and that
 * numbers fit their fields; whether the plan may be run is nnc_plan_verify's question. */
#include "plan/internal.h"
#include "plan/words.h"
#include <math.h>
#include <string.h>

typedef struct parser {
    nnc_scan *s;
    nnc_sink *sink;
    nnc_plan *p;
} parser;

static nnc_status want(parser *r, const char *word)
{
    return nnc_scan_eat(r->s, word) ? NNC_OK : nnc_scan_fail(r->s, r->sink, word);
}

/* An integer between lo and hi. */
static nnc_status number(parser *r, int64_t lo, int64_t hi, int64_t *out)
{
    nnc_scan before = *r->s;
    if (!nnc_scan_int(r->s, out))
        return nnc_scan_fail(r->s, r->sink, "an integer");
    if (*out >= lo && *out <= hi)
        return NNC_OK;
    return nnc_fail(r->sink, NNC_E_MODEL, nnc_scan_loc(&before),
        "%lld is out of range: %lld to %lld", (long long)*out, (long long)lo, (long long)hi);
}

/* key=integer */
static nnc_status field(parser *r, const char *key, int64_t lo, int64_t hi, int64_t *out)
{
    NNC_TRY(want(r, key));
    NNC_TRY(want(r, "="));
    return number(r, lo, hi, out);
}

static nnc_status field32(parser *r, const char *key, int32_t *out)
{
    int64_t v;
    NNC_TRY(field(r, key, INT32_MIN, INT32_MAX, &v));
    *out = (int32_t)v;
    return NNC_OK;
}

static nnc_status field_int(parser *r, const char *key, int *out)
{
    return field32(r, key, out);
}

static nnc_status field16(parser *r, const char *key, int16_t *out)
{
    int64_t v;
    NNC_TRY(field(r, key, INT16_MIN, INT16_MAX, &v));
    *out = (int16_t)v;
    return NNC_OK;
}

static nnc_status field64(parser *r, const char *key, int64_t *out)
{
    return field(r, key, INT64_MIN, INT64_MAX, out);
}

static nnc_status field_float(parser *r, const char *key, float *out)
{
    double v;
    NNC_TRY(want(r, key));
    NNC_TRY(want(r, "="));
    if (!nnc_scan_double(r->s, &v))
        return nnc_scan_fail(r->s, r->sink, "a number");
    *out = fabs(v) > 3.4e38 && !isinf(v) ? copysignf(INFINITY, (float)(v > 0 ? 1 : -1)) : (float)v;
    return NNC_OK;
}

static nnc_status string(parser *r, const char **out)
{
    char none[1] = "", *s = none;
    if (!nnc_scan_is(r->s, "\""))
        return nnc_scan_fail(r->s, r->sink, "a string");
    if (!nnc_scan_string(r->s, &r->p->arena, &s))
        return s ? nnc_scan_fail(r->s, r->sink, "a well-formed string") : nnc_nomem(r->sink);
    *out = s;
    return NNC_OK;
}

/* key="16 hex digits" */
static nnc_status field_hex(parser *r, const char *key, uint64_t *out)
{
    const char *s = "";
    NNC_TRY(want(r, key));
    NNC_TRY(want(r, "="));
    nnc_scan before = *r->s;
    NNC_TRY(string(r, &s));
    *out = 0;
    size_t n = strspn(s, "0123456789abcdef");
    if (n != 16 || s[n])
        return nnc_scan_fail(&before, r->sink, "16 hex digits in quotes");
    for (size_t i = 0; i < n; i++)
        *out = *out << 4 | (uint64_t)(s[i] <= '9' ? s[i] - '0' : s[i] - 'a' + 10);
    return NNC_OK;
}

static nnc_status word(parser *r, const char *const *words, int n, const char *what, uint8_t *out)
{
    for (int i = 0; i < n; i++)
        if (nnc_scan_eat(r->s, words[i])) {
            *out = (uint8_t)i;
            return NNC_OK;
        }
    return nnc_scan_fail(r->s, r->sink, what);
}

/* Row number `i` of a table: rows come in order. */
static nnc_status row(parser *r, int i)
{
    int64_t v;
    return number(r, i, i, &v);
}

/* Makes room for one more element; *n is not changed. */
static nnc_status more(parser *r, void *array, size_t *cap, int n, size_t size)
{
    void **at = array;
    void *p = nnc_arena_grow(&r->p->arena, *at, cap, (size_t)n + 1, size);
    if (!p)
        return nnc_nomem(r->sink);
    *at = p;
    return NNC_OK;
}

/* ---- head ---------------------------------------------------------------------------------- */

static nnc_status parse_engine(parser *r, size_t *cap)
{
    nnc_plan *p = r->p;
    NNC_TRY(row(r, p->n_engine));
    NNC_TRY(more(r, &p->engine, cap, p->n_engine, sizeof *p->engine));
    return string(r, &p->engine[p->n_engine++]);
}

static nnc_status parse_device(parser *r, size_t *cap)
{
    nnc_plan *p = r->p;
    NNC_TRY(row(r, p->n_device));
    NNC_TRY(more(r, &p->device, cap, p->n_device, sizeof *p->device));
    nnc_plan_device *d = &p->device[p->n_device];
    *d = (nnc_plan_device){0};
    NNC_TRY(string(r, &d->name));
    NNC_TRY(field64(r, "arena", &d->arena_bytes));
    NNC_TRY(field64(r, "persist", &d->persist_bytes));
    NNC_TRY(field64(r, "init", &d->init_bytes));
    NNC_TRY(field64(r, "workspace", &d->workspace_bytes));
    NNC_TRY(field64(r, "bound", &d->lower_bound));
    NNC_TRY(field32(r, "peak", &d->peak_cmd));
    NNC_TRY(field_int(r, "streams", &d->streams));
    p->n_device++;
    return NNC_OK;
}

/* f32 is not written. */
static nnc_status parse_precision(parser *r)
{
    static const char *const words[] = {"tf32", "f16", "bf16"};
    uint8_t i = 0;
    r->p->precision = NNC_PRECISION_f32;
    if (!nnc_scan_eat(r->s, "precision"))
        return NNC_OK;
    NNC_TRY(want(r, "="));
    NNC_TRY(word(r, words, NNC_COUNT(words), "tf32, f16 or bf16", &i));
    r->p->precision = (nnc_precision)(NNC_PRECISION_tf32 + i);
    return NNC_OK;
}

static nnc_status parse_head(parser *r)
{
    nnc_plan *p = r->p;
    size_t engines = 0, devices = 0;
    int64_t objects;
    NNC_TRY(want(r, "plan"));
    NNC_TRY(string(r, &p->target));
    NNC_TRY(field_int(r, "threads", &p->threads));
    NNC_TRY(field_int(r, "events", &p->n_event));
    NNC_TRY(field(r, "objects", 0, 1 << 20, &objects));
    NNC_TRY(field_int(r, "main", &p->main_first));
    NNC_TRY(parse_precision(r));
    p->n_object = (int)objects;
    p->object = ARENA_NEW(&p->arena, nnc_blob, objects + 1);
    if (!p->object)
        return nnc_nomem(r->sink);
    while (nnc_scan_eat(r->s, "engine"))
        NNC_TRY(parse_engine(r, &engines));
    while (nnc_scan_eat(r->s, "device"))
        NNC_TRY(parse_device(r, &devices));
    return NNC_OK;
}

/* ---- tensors, kernels ---------------------------------------------------------------------- */

static nnc_status parse_tensor(parser *r, size_t *cap)
{
    nnc_plan *p = r->p;
    NNC_TRY(row(r, p->n_tensor));
    NNC_TRY(more(r, &p->tensor, cap, p->n_tensor, sizeof *p->tensor));
    nnc_ptensor *t = &p->tensor[p->n_tensor];
    *t = (nnc_ptensor){0};
    NNC_TRY(string(r, &t->name));
    NNC_TRY(nnc_scan_type(r->s, r->sink, &t->type));
    NNC_TRY(
        word(r, plan_space_word, NNC_COUNT(plan_space_word), "arena, persist or init", &t->space));
    NNC_TRY(field16(r, "device", &t->device));
    NNC_TRY(field64(r, "at", &t->offset));
    NNC_TRY(field64(r, "bytes", &t->bytes));
    NNC_TRY(field32(r, "alias", &t->alias_of));
    NNC_TRY(field32(r, "first", &t->first));
    NNC_TRY(field32(r, "last", &t->last));
    /* "input" and "output" also begin rows of their own, but those go on with a number */
    nnc_scan before = *r->s;
    int64_t v;
    if (nnc_scan_eat(r->s, "input") && nnc_scan_int(r->s, &v))
        *r->s = before;
    else
        t->is_input = r->s->p != before.p && nnc_scan_is(&before, "input");
    before = *r->s;
    if (nnc_scan_eat(r->s, "output") && nnc_scan_int(r->s, &v))
        *r->s = before;
    else
        t->is_output = r->s->p != before.p && nnc_scan_is(&before, "output");
    p->n_tensor++;
    return NNC_OK;
}

/* Lines behind "| " (or "|-": the last, and without its newline). The scanner stands behind
 * the row above. */
static nnc_status parse_ir(parser *r, const char **out)
{
    nnc_text t = {0};
    bool last = false, good = true;
    while (!last && good && nnc_scan_is(r->s, "|")) {
        const char *line = r->s->p + 2, *end = memchr(r->s->p, '\n', (size_t)(r->s->end - r->s->p));
        end = end ? end : r->s->end;
        good = line <= end && (line[-1] == ' ' || line[-1] == '-') &&
               !memchr(line, 0, (size_t)(end - line));
        if (!good)
            break;
        last = line[-1] == '-';
        nnc_putn(&t, line, (size_t)(end - line));
        if (!last)
            nnc_putc(&t, '\n');
        r->s->p = end;
    }
    *out = t.oom || !good ? NULL : nnc_arena_strndup(&r->p->arena, nnc_text_str(&t), t.n);
    nnc_text_deinit(&t);
    if (!good)
        return nnc_scan_fail(r->s, r->sink, "kernel text behind `| `");
    return *out ? NNC_OK : nnc_nomem(r->sink);
}

static nnc_status parse_kernel(parser *r, size_t *cap)
{
    nnc_plan *p = r->p;
    NNC_TRY(row(r, p->n_kernel));
    NNC_TRY(more(r, &p->kernel, cap, p->n_kernel, sizeof *p->kernel));
    nnc_pkernel *k = &p->kernel[p->n_kernel];
    *k = (nnc_pkernel){0};
    NNC_TRY(string(r, &k->symbol));
    NNC_TRY(field_int(r, "args", &k->n_args));
    NNC_TRY(field_int(r, "out", &k->n_out));
    NNC_TRY(field64(r, "domain", &k->domain));
    NNC_TRY(field64(r, "grain", &k->grain));
    NNC_TRY(field64(r, "scratch", &k->scratch_bytes));
    NNC_TRY(field_int(r, "threads", &k->threads));
    NNC_TRY(field_int(r, "object", &k->object));
    NNC_TRY(parse_ir(r, &k->ir));
    p->n_kernel++;
    return NNC_OK;
}

/* ---- calls --------------------------------------------------------------------------------- */

static nnc_status parse_window(parser *r, const char *key, int64_t *v, int n)
{
    NNC_TRY(want(r, key));
    for (int i = 0; i < n; i++) {
        NNC_TRY(want(r, i ? "," : "="));
        NNC_TRY(number(r, INT64_MIN, INT64_MAX, &v[i]));
    }
    return NNC_OK;
}

static nnc_status parse_posts(parser *r, nnc_call *c)
{
    while (nnc_scan_eat(r->s, "post")) {
        if (c->n_post == NNC_MAX_POST)
            return nnc_scan_fail(r->s, r->sink, "at most 6 post-operations");
        nnc_post *o = &c->post[c->n_post++];
        NNC_TRY(word(r, plan_post_word, PO__COUNT, "a post-operation", &o->kind));
        o->in_place = nnc_scan_eat(r->s, "in_place");
        NNC_TRY(field_float(r, "alpha", &o->alpha));
        NNC_TRY(field_float(r, "beta", &o->beta));
    }
    return NNC_OK;
}

static nnc_status parse_types(parser *r, nnc_call *c)
{
    NNC_TRY(want(r, "src"));
    NNC_TRY(nnc_scan_type(r->s, r->sink, &c->src));
    NNC_TRY(want(r, "wei"));
    NNC_TRY(nnc_scan_type(r->s, r->sink, &c->wei));
    NNC_TRY(want(r, "bias"));
    NNC_TRY(nnc_scan_type(r->s, r->sink, &c->bias));
    NNC_TRY(want(r, "dst"));
    return nnc_scan_type(r->s, r->sink, &c->dst);
}

static nnc_status parse_call(parser *r, size_t *cap)
{
    nnc_plan *p = r->p;
    int64_t spatial;
    NNC_TRY(row(r, p->n_call));
    NNC_TRY(more(r, &p->call, cap, p->n_call, sizeof *p->call));
    nnc_call *c = &p->call[p->n_call];
    *c = (nnc_call){0};
    NNC_TRY(word(r, plan_call_word, CALL__COUNT, "the name of a call", &c->kind));
    NNC_TRY(field_int(r, "threads", &c->threads));
    NNC_TRY(field64(r, "work", &c->work_bytes));
    NNC_TRY(field64(r, "packed", &c->packed_bytes));
    NNC_TRY(field32(r, "for", &c->pack_for));
    NNC_TRY(field64(r, "groups", &c->groups));
    NNC_TRY(field(r, "spatial", 0, 3, &spatial));
    c->spatial = (uint8_t)spatial;
    int n = plan_window_dims(c);
    if (n > 0) {
        NNC_TRY(parse_window(r, "kernel", c->kernel, n));
        NNC_TRY(parse_window(r, "stride", c->stride, n));
        NNC_TRY(parse_window(r, "dilation", c->dilation, n));
        NNC_TRY(parse_window(r, "lo", c->pad_lo, n));
        NNC_TRY(parse_window(r, "hi", c->pad_hi, n));
    }
    NNC_TRY(parse_types(r, c));
    c->has_bias = nnc_scan_eat(r->s, "has_bias");
    c->trans_a = nnc_scan_eat(r->s, "trans_a");
    c->trans_b = nnc_scan_eat(r->s, "trans_b");
    c->count_pad = nnc_scan_eat(r->s, "count_pad");
    c->packed = nnc_scan_eat(r->s, "is_packed");
    c->tf32 = nnc_scan_eat(r->s, "tf32");
    c->compiled = nnc_scan_eat(r->s, "compiled");
    NNC_TRY(parse_posts(r, c));
    p->n_call++;
    return NNC_OK;
}

/* ---- weights, commands --------------------------------------------------------------------- */

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Weights may be long: the digits are read where they stand. */
static nnc_status parse_inline(parser *r, nnc_weight *w)
{
    NNC_TRY(field(r, "size", 0, INT64_MAX / 4, &w->size));
    if (!nnc_scan_is(r->s, "\"") || r->s->end - r->s->p < 2 * w->size + 2)
        return nnc_scan_fail(r->s, r->sink, "two hex digits a byte in quotes");
    uint8_t *out = nnc_arena_alloc(&r->p->arena, (size_t)w->size + 1, 1);
    if (!out)
        return nnc_nomem(r->sink);
    const char *s = r->s->p + 1;
    for (int64_t i = 0; i < w->size; i++, s += 2) {
        int hi = hex_digit(s[0]), lo = hex_digit(s[1]);
        if (hi < 0 || lo < 0)
            return nnc_scan_fail(r->s, r->sink, "two hex digits a byte in quotes");
        out[i] = (uint8_t)(hi << 4 | lo);
    }
    r->s->p = s;
    w->data = out;
    return want(r, "\"");
}

static nnc_status parse_weight(parser *r, size_t *cap)
{
    nnc_plan *p = r->p;
    NNC_TRY(row(r, p->n_weight));
    NNC_TRY(more(r, &p->weight, cap, p->n_weight, sizeof *p->weight));
    nnc_weight *w = &p->weight[p->n_weight];
    *w = (nnc_weight){0};
    uint8_t kind = 0;
    NNC_TRY(word(r, plan_weight_word, NNC_COUNT(plan_weight_word), "inline, file or gen", &kind));
    w->kind = kind;
    NNC_TRY(string(r, &w->name));
    if (w->kind == NNC_W_inline) {
        NNC_TRY(parse_inline(r, w));
    } else if (w->kind == NNC_W_file) {
        NNC_TRY(string(r, &w->file));
        NNC_TRY(field64(r, "at", &w->offset));
        NNC_TRY(field64(r, "size", &w->size));
        NNC_TRY(field_hex(r, "hash", &w->header_hash));
    } else {
        NNC_TRY(field_hex(r, "seed", &w->seed));
        NNC_TRY(field_float(r, "scale", &w->scale));
        NNC_TRY(field_float(r, "shift", &w->shift));
    }
    p->n_weight++;
    return NNC_OK;
}

static nnc_status parse_args(parser *r, nnc_cmd *c)
{
    enum { MOST = 64 };
    int32_t arg[MOST];
    int64_t v;
    NNC_TRY(want(r, "("));
    while (!nnc_scan_eat(r->s, ")")) {
        if (c->n_arg == MOST)
            return nnc_scan_fail(r->s, r->sink, "at most 64 arguments");
        NNC_TRY(number(r, 0, INT32_MAX, &v));
        arg[c->n_arg++] = (int32_t)v;
    }
    c->arg = ARENA_NEW(&r->p->arena, int32_t, c->n_arg + 1);
    if (!c->arg)
        return nnc_nomem(r->sink);
    memcpy(c->arg, arg, (size_t)c->n_arg * sizeof *arg);
    return NNC_OK;
}

static nnc_status parse_cmd(parser *r, size_t *cap)
{
    nnc_plan *p = r->p;
    NNC_TRY(row(r, p->n_cmd));
    NNC_TRY(more(r, &p->cmd, cap, p->n_cmd, sizeof *p->cmd));
    nnc_cmd *c = &p->cmd[p->n_cmd];
    *c = (nnc_cmd){0};
    NNC_TRY(word(r, plan_cmd_word, CMD__COUNT, "the name of a command", &c->kind));
    NNC_TRY(field32(r, "item", &c->item));
    NNC_TRY(field16(r, "device", &c->device));
    NNC_TRY(field16(r, "stream", &c->stream));
    NNC_TRY(field16(r, "engine", &c->engine));
    NNC_TRY(field32(r, "work", &c->work));
    NNC_TRY(field64(r, "flops", &c->flops));
    NNC_TRY(field64(r, "bytes", &c->bytes));
    NNC_TRY(parse_args(r, c));
    NNC_TRY(string(r, &c->op_class));
    NNC_TRY(string(r, &c->layers));
    NNC_TRY(string(r, &c->reason));
    p->n_cmd++;
    return NNC_OK;
}

/* "input 3 "x"": a tensor and the name by which the user gives it. */
static nnc_status parse_end(parser *r, size_t cap[2], int *n, int32_t **tensor, const char ***name)
{
    int64_t v;
    NNC_TRY(more(r, tensor, &cap[0], *n, sizeof **tensor));
    NNC_TRY(more(r, name, &cap[1], *n, sizeof **name));
    NNC_TRY(number(r, 0, INT32_MAX, &v));
    (*tensor)[*n] = (int32_t)v;
    NNC_TRY(string(r, &(*name)[*n]));
    ++*n;
    return NNC_OK;
}

static nnc_status parse_all(parser *r)
{
    nnc_plan *p = r->p;
    size_t tensors = 0, kernels = 0, calls = 0, weights = 0, cmds = 0, in[2] = {0}, out[2] = {0};
    NNC_TRY(parse_head(r));
    while (nnc_scan_eat(r->s, "tensor"))
        NNC_TRY(parse_tensor(r, &tensors));
    while (nnc_scan_eat(r->s, "kernel"))
        NNC_TRY(parse_kernel(r, &kernels));
    while (nnc_scan_eat(r->s, "call"))
        NNC_TRY(parse_call(r, &calls));
    while (nnc_scan_eat(r->s, "weight"))
        NNC_TRY(parse_weight(r, &weights));
    while (nnc_scan_eat(r->s, "cmd"))
        NNC_TRY(parse_cmd(r, &cmds));
    while (nnc_scan_eat(r->s, "input"))
        NNC_TRY(parse_end(r, in, &p->n_input, &p->input, &p->input_name));
    while (nnc_scan_eat(r->s, "output"))
        NNC_TRY(parse_end(r, out, &p->n_output, &p->output, &p->output_name));
    return want(r, "end");
}

nnc_plan *nnc_plan_parse(nnc_scan *s, nnc_sink *sink)
{
    parser r = {s, sink, nnc_plan_create()};
    if (!r.p) {
        (void)nnc_nomem(sink);
        return NULL;
    }
    if (parse_all(&r) == NNC_OK)
        return r.p;
    nnc_plan_destroy(r.p);
    return NULL;
}
