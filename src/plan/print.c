/* plan/print.c -- the plan's text form (docs/plan.md). parse.c reads it back exactly. */
#include "plan/internal.h"
#include "plan/words.h"
#include <string.h>

static void put_str(nnc_text *t, const char *s)
{
    nnc_putc(t, ' ');
    nnc_put_json_string(t, s ? s : "");
}

typedef struct field {
    const char *key;
    int64_t v;
} field;

static void put_fields(nnc_text *t, const field *f, size_t n)
{
    for (size_t i = 0; i < n; i++)
        nnc_printf(t, " %s=%lld", f[i].key, (long long)f[i].v);
}

/* {"key", value}, ... */
#define PUT(t, ...) \
    put_fields(t, (const field[]){__VA_ARGS__}, sizeof(const field[]){__VA_ARGS__} / sizeof(field))

static void put_head(nnc_text *t, const nnc_plan *p)
{
    nnc_puts(t, "plan");
    put_str(t, p->target);
    PUT(t, {"threads", p->threads}, {"events", p->n_event}, {"objects", p->n_object},
        {"main", p->main_first});
    if (p->precision > NNC_PRECISION_f32)
        nnc_printf(t, " precision=%s", nnc_precision_name(p->precision));
    nnc_puts(t, "\n");
    for (int i = 0; i < p->n_engine; i++) {
        nnc_printf(t, "engine %d", i);
        put_str(t, p->engine[i]);
        nnc_puts(t, "\n");
    }
    for (int i = 0; i < p->n_device; i++) {
        const nnc_plan_device *d = &p->device[i];
        nnc_printf(t, "device %d", i);
        put_str(t, d->name);
        PUT(t, {"arena", d->arena_bytes}, {"persist", d->persist_bytes}, {"init", d->init_bytes},
            {"workspace", d->workspace_bytes}, {"bound", d->lower_bound}, {"peak", d->peak_cmd},
            {"streams", d->streams});
        nnc_puts(t, "\n");
    }
}

static void put_tensor(nnc_text *t, const nnc_ptensor *x, int i)
{
    nnc_printf(t, "tensor %d", i);
    put_str(t, x->name);
    nnc_putc(t, ' ');
    nnc_put_type(t, &x->type);
    nnc_printf(t, " %s", plan_space_word[x->space]);
    PUT(t, {"device", x->device}, {"at", x->offset}, {"bytes", x->bytes}, {"alias", x->alias_of},
        {"first", x->first}, {"last", x->last});
    nnc_puts(t, x->is_input ? " input" : "");
    nnc_puts(t, x->is_output ? " output\n" : "\n");
}

/* The kernel's text, each line behind "| "; a last line without its newline stands behind "|-". */
static void put_ir(nnc_text *t, const char *s)
{
    while (*s) {
        const char *end = strchr(s, '\n');
        nnc_puts(t, end ? "| " : "|-");
        nnc_putn(t, s, end ? (size_t)(end - s) : strlen(s));
        nnc_puts(t, "\n");
        s = end ? end + 1 : s + strlen(s);
    }
}

static void put_kernel(nnc_text *t, const nnc_pkernel *k, int i)
{
    nnc_printf(t, "kernel %d", i);
    put_str(t, k->symbol);
    PUT(t, {"args", k->n_args}, {"out", k->n_out}, {"domain", k->domain}, {"grain", k->grain},
        {"scratch", k->scratch_bytes}, {"threads", k->threads}, {"object", k->object});
    nnc_puts(t, "\n");
    put_ir(t, k->ir ? k->ir : "");
}

static void put_window(nnc_text *t, const char *key, const int64_t *v, int n)
{
    nnc_printf(t, " %s", key);
    for (int i = 0; i < n; i++)
        nnc_printf(t, "%c%lld", i ? ',' : '=', (long long)v[i]);
}

static void put_typed(nnc_text *t, const char *key, const nnc_type *ty)
{
    nnc_printf(t, " %s ", key);
    nnc_put_type(t, ty);
}

static void put_posts(nnc_text *t, const nnc_call *c)
{
    for (int i = 0; i < c->n_post && i < NNC_MAX_POST; i++) {
        const nnc_post *o = &c->post[i];
        nnc_printf(t, " post %s", plan_post_word[o->kind]);
        nnc_puts(t, o->in_place ? " in_place" : "");
        nnc_puts(t, " alpha=");
        nnc_put_double(t, o->alpha);
        nnc_puts(t, " beta=");
        nnc_put_double(t, o->beta);
    }
}

static void put_call(nnc_text *t, const nnc_call *c, int i)
{
    nnc_printf(t, "call %d %s", i, plan_call_word[c->kind]);
    PUT(t, {"threads", c->threads}, {"work", c->work_bytes}, {"packed", c->packed_bytes},
        {"for", c->pack_for}, {"groups", c->groups}, {"spatial", c->spatial});
    int n = plan_window_dims(c);
    if (n > 0) {
        put_window(t, "kernel", c->kernel, n);
        put_window(t, "stride", c->stride, n);
        put_window(t, "dilation", c->dilation, n);
        put_window(t, "lo", c->pad_lo, n);
        put_window(t, "hi", c->pad_hi, n);
    }
    put_typed(t, "src", &c->src);
    put_typed(t, "wei", &c->wei);
    put_typed(t, "bias", &c->bias);
    put_typed(t, "dst", &c->dst);
    nnc_puts(t, c->has_bias ? " has_bias" : "");
    nnc_puts(t, c->trans_a ? " trans_a" : "");
    nnc_puts(t, c->trans_b ? " trans_b" : "");
    nnc_puts(t, c->count_pad ? " count_pad" : "");
    nnc_puts(t, c->packed ? " is_packed" : "");
    nnc_puts(t, c->tf32 ? " tf32" : "");
    nnc_puts(t, c->compiled ? " compiled" : "");
    put_posts(t, c);
    nnc_puts(t, "\n");
}

static void put_weight(nnc_text *t, const nnc_weight *w, int i)
{
    static const char hex[] = "0123456789abcdef";
    nnc_printf(t, "weight %d %s", i, plan_weight_word[w->kind]);
    put_str(t, w->name);
    switch (w->kind) {
    case NNC_W_inline:
        PUT(t, {"size", w->size});
        nnc_puts(t, " \"");
        for (int64_t k = 0; k < w->size; k++) {
            uint8_t b = ((const uint8_t *)w->data)[k];
            nnc_putc(t, hex[b >> 4]);
            nnc_putc(t, hex[b & 15]);
        }
        nnc_puts(t, "\"\n");
        return;
    case NNC_W_file:
        put_str(t, w->file);
        PUT(t, {"at", w->offset}, {"size", w->size});
        nnc_printf(t, " hash=\"%016llx\"\n", (unsigned long long)w->header_hash);
        return;
    case NNC_W_gen:
        nnc_printf(t, " seed=\"%016llx\" scale=", (unsigned long long)w->seed);
        nnc_put_double(t, w->scale);
        nnc_puts(t, " shift=");
        nnc_put_double(t, w->shift);
        nnc_puts(t, "\n");
        return;
    }
}

static void put_cmd(nnc_text *t, const nnc_cmd *c, int i)
{
    nnc_printf(t, "cmd %d %s", i, plan_cmd_word[c->kind]);
    PUT(t, {"item", c->item}, {"device", c->device}, {"stream", c->stream}, {"engine", c->engine},
        {"work", c->work}, {"flops", c->flops}, {"bytes", c->bytes});
    nnc_puts(t, " (");
    for (int k = 0; k < c->n_arg; k++)
        nnc_printf(t, "%s%d", k ? " " : "", c->arg[k]);
    nnc_puts(t, ")");
    put_str(t, c->op_class);
    put_str(t, c->layers);
    put_str(t, c->reason);
    nnc_puts(t, "\n");
}

void nnc_plan_print(nnc_text *t, const nnc_plan *p)
{
    put_head(t, p);
    for (int i = 0; i < p->n_tensor; i++)
        put_tensor(t, &p->tensor[i], i);
    for (int i = 0; i < p->n_kernel; i++)
        put_kernel(t, &p->kernel[i], i);
    for (int i = 0; i < p->n_call; i++)
        put_call(t, &p->call[i], i);
    for (int i = 0; i < p->n_weight; i++)
        put_weight(t, &p->weight[i], i);
    for (int i = 0; i < p->n_cmd; i++)
        put_cmd(t, &p->cmd[i], i);
    for (int i = 0; i < p->n_input; i++) {
        nnc_printf(t, "input %d", p->input[i]);
        put_str(t, p->input_name[i]);
        nnc_puts(t, "\n");
    }
    for (int i = 0; i < p->n_output; i++) {
        nnc_printf(t, "output %d", p->output[i]);
        put_str(t, p->output_name[i]);
        nnc_puts(t, "\n");
    }
    nnc_puts(t, "end\n");
}
