/* plan/print.c -- the plan's text form (docs/plan.md). parse.c reads it back exactly. */
#include "plan/internal.h"
#include "plan/words.h"
#include <string.h>

static void put_str(nnc_text *t, const char *s)
{
    nnc_putc(t, ' ');
    nnc_put_json_string(t, s ? s : "");
}

static void put_int(nnc_text *t, const char *key, int64_t v)
{
    nnc_printf(t, " %s=%lld", key, (long long)v);
}

static void put_head(nnc_text *t, const nnc_plan *p)
{
    nnc_puts(t, "plan");
    put_str(t, p->target);
    put_int(t, "threads", p->threads);
    put_int(t, "events", p->n_event);
    put_int(t, "objects", p->n_object);
    put_int(t, "main", p->main_first);
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
        put_int(t, "arena", d->arena_bytes);
        put_int(t, "persist", d->persist_bytes);
        put_int(t, "init", d->init_bytes);
        put_int(t, "workspace", d->workspace_bytes);
        put_int(t, "bound", d->lower_bound);
        put_int(t, "peak", d->peak_cmd);
        put_int(t, "streams", d->streams);
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
    put_int(t, "device", x->device);
    put_int(t, "at", x->offset);
    put_int(t, "bytes", x->bytes);
    put_int(t, "alias", x->alias_of);
    put_int(t, "first", x->first);
    put_int(t, "last", x->last);
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
    put_int(t, "args", k->n_args);
    put_int(t, "out", k->n_out);
    put_int(t, "domain", k->domain);
    put_int(t, "grain", k->grain);
    put_int(t, "scratch", k->scratch_bytes);
    put_int(t, "threads", k->threads);
    put_int(t, "object", k->object);
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
    put_int(t, "threads", c->threads);
    put_int(t, "work", c->work_bytes);
    put_int(t, "packed", c->packed_bytes);
    put_int(t, "for", c->pack_for);
    put_int(t, "groups", c->groups);
    put_int(t, "spatial", c->spatial);
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
        put_int(t, "size", w->size);
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
        put_int(t, "at", w->offset);
        put_int(t, "size", w->size);
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
    put_int(t, "item", c->item);
    put_int(t, "device", c->device);
    put_int(t, "stream", c->stream);
    put_int(t, "engine", c->engine);
    put_int(t, "work", c->work);
    put_int(t, "flops", c->flops);
    put_int(t, "bytes", c->bytes);
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
