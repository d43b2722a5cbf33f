/* report/annotate.c -- the comment above each kernel in a model's CUDA C: layers that launch it, tensors of its first launch, remarks
 * about those layers. Comments are added after compilation, since equal kernels of different models share one cache entry. */
#include "report/report.h"
#include "session/session.h"
#include <string.h>

enum { WIDTH = 120, LAUNCHES = 6, REMARKS = 12 };

/* ---- lines of a comment ------------------------------------------------------------------------------------------------ */

/* Appends " *   name      text", wrapped at spaces and between layers; a comment terminator in the text is broken up. */
static void put_entry(nnc_text *out, const char *name, const char *text)
{
    enum { ROOM = WIDTH - 14 };
    size_t used = 0;
    bool space = false; /* before the next word */
    nnc_printf(out, " *   %-9s ", name);
    while (*text) {
        size_t n = strcspn(text, " +");
        n += text[n] == '+';
        if (used > 0 && used + space + n > ROOM) {
            nnc_printf(out, "\n *   %-9s ", "");
            used = space = 0;
        }
        if (space)
            nnc_putc(out, ' ');
        for (size_t i = 0; i < n; i++) {
            nnc_putc(out, text[i] == '\n' ? ' ' : text[i]);
            if (text[i] == '*' && text[i + 1] == '/')
                nnc_putc(out, ' ');
        }
        used += space + n;
        space = text[n] == ' ';
        text += n + space;
    }
    nnc_putc(out, '\n');
}

/* ---- launches ------------------------------------------------------------------------------------------------------ */

/* The last layer in the tensor's name, which is the one that computes it. */
static const char *short_name(const nnc_ptensor *x)
{
    const char *plus = x->name ? strrchr(x->name, '+') : NULL;
    return plus ? plus + 1 : x->name ? x->name : "";
}

/* Arguments in parameter order: inputs x0, x1, ..., then outputs y0, ... */
static void put_tensors(nnc_text *out, const nnc_plan *p, const nnc_cmd *c, int n_out)
{
    for (int i = 0; i < c->n_arg; i++) {
        const nnc_ptensor *x = &p->tensor[c->arg[i]];
        const int written = i - (c->n_arg - n_out);
        NNC_LOCAL(nnc_text) t = {.into = out};
        char name[16];
        snprintf(name, sizeof name, "%c%d", written < 0 ? 'x' : 'y', written < 0 ? i : written);
        nnc_put_type(&t, &x->type);
        if (*short_name(x))
            nnc_printf(&t, " %s", short_name(x));
        put_entry(out, name, nnc_text_str(&t));
    }
}

/* True when `layer` is one of "a+b+c". */
static bool among(const char *layer, const char *layers)
{
    size_t n = strlen(layer);
    for (const char *s = layers; *s; s += strcspn(s, "+"), s += *s == '+')
        if (!strncmp(s, layer, n) && (!s[n] || s[n] == '+'))
            return true;
    return false;
}

static bool concerns(const nnc_remark *r, const char *layers)
{
    for (int i = 0; i < r->n_layers; i++)
        if (!among(r->layer[i], layers))
            return false;
    return r->applied && r->n_layers > 0;
}

static bool same_text(const nnc_remark *a, const nnc_remark *b)
{
    const char *x = a->reason ? a->reason : "", *y = b->reason ? b->reason : "";
    return !strcmp(a->pass, b->pass) && !strcmp(a->rule, b->rule) && !strcmp(x, y);
}

static void put_remark(nnc_text *out, const nnc_remark *r, int times)
{
    NNC_LOCAL(nnc_text) t = {.into = out};
    nnc_printf(&t, "%s: %s", r->pass, r->rule);
    if (times > 1)
        nnc_printf(&t, " (%d times)", times);
    if (r->reason && *r->reason)
        nnc_printf(&t, ": %s", r->reason);
    put_entry(out, "remark", nnc_text_str(&t));
}

/* Each text once: an optimizer's kernel of many layers has hundreds of equal remarks. */
static void put_remarks(nnc_text *out, const nnc_remarks *r, const char *layers)
{
    const nnc_remark *said[REMARKS] = {0};
    int times[REMARKS] = {0}, n = 0, more = 0;
    for (size_t i = 0; i < r->n; i++) {
        int k = 0;
        if (!concerns(&r->at[i], layers))
            continue;
        while (k < n && !same_text(said[k], &r->at[i]))
            k++;
        if (k == REMARKS) {
            more++;
            continue;
        }
        if (k == n)
            said[n++] = &r->at[i];
        times[k]++;
    }
    for (int k = 0; k < n; k++)
        put_remark(out, said[k], times[k]);
    if (more)
        nnc_printf(out, " *   %-9s and %d remarks more (--emit=remarks)\n", "", more);
}

static void annotate(nnc_text *out, const nnc_artifact *a, int kernel)
{
    const nnc_plan *p = a->plan;
    const nnc_cmd *first = NULL;
    int n = 0;
    for (int i = 0; i < p->n_cmd; i++) {
        const nnc_cmd *c = &p->cmd[i];
        if (c->kind != CMD_kernel || c->item != kernel)
            continue;
        first = first ? first : c;
        if (n++ < LAUNCHES)
            put_entry(out, i < nnc_plan_first(p, SEC_main) ? "at load" : "layers",
                c->layers && *c->layers ? c->layers : "(no layer)");
    }
    if (n > LAUNCHES)
        nnc_printf(out, " *   %-9s and %d launches more\n", "", n - LAUNCHES);
    if (!first)
        return;
    put_tensors(out, p, first, p->kernel[kernel].n_out);
    put_remarks(out, &a->remarks, first->layers ? first->layers : "");
}

void nnc_cuda_annotate(
    nnc_text *out, const nnc_artifact *a, const nnc_unit *u, const char *source, size_t size)
{
    const char *end = source + size;
    for (int k = 0; k < u->n; k++) {
        const int i = u->kernel[k];
        char head[300];
        if (snprintf(head, sizeof head, "\n/* %s\n", a->plan->kernel[i].symbol) >= (int)sizeof head)
            continue;
        const char *at = strstr(source, head);
        if (!at)
            continue;
        at += strlen(head);
        nnc_putn(out, source, (size_t)(at - source));
        annotate(out, a, i);
        source = at;
    }
    nnc_putn(out, source, (size_t)(end - source));
}
