/* picture/trace.c -- timelines in Chrome's trace format. A process for each device of each timeline, sorted so that a device of one stands
 * beside the same device of the other. Each lane is a thread, since a viewer does not draw slices of a thread that overlap. */
#include "base/json_writer.h"
#include "picture/internal.h"

typedef struct tracer {
    const nnc_timeline *t;
    int which, n; /* of the timelines */
    int most; /* devices of one */
    int first; /* process of its device 0 */
    bool any; /* events so far */
    int arrows; /* so far, of all timelines */
    bool *held; /* [device][kind]: at any time, since a counter has the same series throughout */
    nnc_text *out;
} tracer;

/* Microseconds with all picoseconds. */
static void put_us(nnc_text *out, const char *key, int64_t ps)
{
    nnc_printf(
        out, ", \"%s\": %lld.%06lld", key, (long long)(ps / 1000000), (long long)(ps % 1000000));
}

static void open_event(tracer *t, const char *phase, int device)
{
    nnc_printf(
        t->out, "%s\n{\"ph\": \"%s\", \"pid\": %d", t->any ? "," : "", phase, t->first + device);
    t->any = true;
}

static void open_lane(tracer *t, const char *phase, int lane)
{
    open_event(t, phase, t->t->lane[lane].device);
    nnc_printf(t->out, ", \"tid\": %d", lane + 1);
}

static void put_names(tracer *t)
{
    for (int d = 0; d < t->t->n_device; d++) {
        NNC_LOCAL(nnc_text) name = {0};
        open_event(t, "M", d);
        nnc_printf(&name, "%s, %s", t->t->device[d], t->t->name);
        nnc_puts(t->out, ", \"name\": \"process_name\", \"args\": {\"name\": ");
        nnc_put_json_string(t->out, nnc_text_str(&name));
        nnc_puts(t->out, "}}");
        open_event(t, "M", d);
        nnc_printf(t->out, ", \"name\": \"process_sort_index\", \"args\": {\"sort_index\": %d}}",
            (t->t->group * t->most + d) * t->n + t->which);
    }
    for (int l = 0; l < t->t->n_lane; l++) {
        open_lane(t, "M", l);
        nnc_puts(t->out, ", \"name\": \"thread_name\", \"args\": {\"name\": ");
        nnc_put_json_string(t->out, t->t->lane[l].name ? t->t->lane[l].name : "");
        nnc_puts(t->out, "}}");
    }
}

static void put_slice(tracer *t, const nnc_slice *s)
{
    const bool has_micro = s->micro >= 0, has_bytes = s->bytes > 0;
    open_lane(t, "X", s->lane);
    nnc_puts(t->out, ", \"name\": ");
    nnc_put_json_string(t->out, s->name ? s->name : nnc_work_names[s->kind]);
    nnc_printf(t->out, ", \"cat\": \"%s\"", nnc_work_names[s->kind]);
    put_us(t->out, "ts", s->start_ps);
    put_us(t->out, "dur", s->end_ps - s->start_ps);
    if (has_micro || has_bytes)
        nnc_puts(t->out, ", \"args\": {");
    if (has_micro)
        nnc_printf(t->out, "\"micro_batch\": %d%s", s->micro, has_bytes ? ", " : "");
    if (has_bytes)
        nnc_printf(t->out, "\"bytes\": %lld", (long long)s->bytes);
    nnc_puts(t->out, has_micro || has_bytes ? "}}" : "}");
}

/* From the end of one slice to the start of another. A viewer binds each end to the slice around it, so the first is a picosecond before
 * its end. It is earlier where the other has begun by then (a message that its sender still has to finish). */
static void put_arrow(tracer *t, const nnc_arrow *a)
{
    const nnc_slice *from = &t->t->span[a->from], *to = &t->t->span[a->to];
    const int64_t at = nnc_max64(from->start_ps, nnc_min64(from->end_ps - 1, to->start_ps));
    const int id = ++t->arrows;
    open_lane(t, "s", from->lane);
    nnc_printf(t->out, ", \"name\": \"data\", \"cat\": \"data\", \"id\": %d", id);
    put_us(t->out, "ts", at);
    nnc_puts(t->out, "}");
    open_lane(t, "f", to->lane);
    nnc_printf(t->out, ", \"name\": \"data\", \"cat\": \"data\", \"id\": %d, \"bp\": \"e\"", id);
    put_us(t->out, "ts", nnc_max64(at, to->start_ps));
    nnc_puts(t->out, "}");
}

static void put_level(tracer *t, const nnc_level *l)
{
    open_event(t, "C", l->device);
    nnc_puts(t->out, ", \"name\": \"memory, bytes\"");
    put_us(t->out, "ts", l->ps);
    nnc_puts(t->out, ", \"args\": {");
    for (int k = 0, any = 0; k < HOLD__COUNT; k++) {
        if (t->held[l->device * HOLD__COUNT + k])
            nnc_printf(t->out, "%s\"%s\": %lld", any++ ? ", " : "", nnc_hold_names[k],
                (long long)l->bytes[k]);
    }
    nnc_puts(t->out, "}}");
}

static void put_levels(tracer *t)
{
    NNC_FREED bool *held = nnc_calloc((size_t)t->t->n_device * HOLD__COUNT + 1, sizeof *held);
    t->held = held;
    t->out->oom = t->out->oom || !held;
    for (int i = 0; held && i < t->t->n_level; i++)
        for (int k = 0; k < HOLD__COUNT; k++)
            held[t->t->level[i].device * HOLD__COUNT + k] |= t->t->level[i].bytes[k] != 0;
    for (int i = 0; held && i < t->t->n_level; i++)
        put_level(t, &t->t->level[i]);
    t->held = NULL;
}

void nnc_trace_put(const nnc_timeline *const *t, int n, nnc_text *out)
{
    tracer x = {.n = n, .first = 1, .out = out};
    nnc_puts(out, "{\"traceEvents\": [");
    for (int i = 0; i < n; i++)
        x.most = t[i]->n_device > x.most ? t[i]->n_device : x.most;
    for (x.which = 0; x.which < n && !out->oom; x.which++) {
        x.t = t[x.which];
        put_names(&x);
        for (int i = 0; i < x.t->n_span; i++)
            put_slice(&x, &x.t->span[i]);
        for (int i = 0; i < x.t->n_arrow; i++)
            put_arrow(&x, &x.t->arrow[i]);
        put_levels(&x);
        x.first += x.t->n_device;
        out->oom = out->oom || x.t->oom;
    }
    nnc_puts(out, "\n], \"displayTimeUnit\": \"ms\"}\n");
}
