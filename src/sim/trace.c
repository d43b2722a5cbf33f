/* sim/trace.c -- a simulated run in Chrome's trace format: one thread per lane, since slices of a thread must not overlap. */
#include "base/json_writer.h"
#include "sim/internal.h"

typedef struct tracer {
    const nnc_sim *s;
    nnc_text *out;
    int arrows;
} tracer;

/* Microseconds with all picoseconds. */
static void put_us(nnc_text *out, const char *key, int64_t ps)
{
    nnc_printf(
        out, ", \"%s\": %lld.%06lld", key, (long long)(ps / 1000000), (long long)(ps % 1000000));
}

static void open_event(tracer *t, const char *phase, int lane)
{
    const int device = lane < 0 ? -1 : t->s->lane[lane].device;
    nnc_printf(t->out, ",\n{\"ph\": \"%s\", \"pid\": %d, \"tid\": %d", phase, device + 1, lane + 1);
}

static void put_names(tracer *t)
{
    nnc_puts(t->out, "{\"traceEvents\": [\n{\"ph\": \"M\", \"pid\": 0, \"name\": \"process_name\", "
                     "\"args\": {\"name\": \"host\"}}");
    for (int l = 0, last = -1; l < t->s->n_lane; l++) {
        const sim_lane *x = &t->s->lane[l];
        if (x->device >= 0 && x->device != last) {
            open_event(t, "M", l);
            nnc_printf(t->out, ", \"name\": \"process_name\", \"args\": {\"name\": \"device %d\"}}",
                x->device);
            last = x->device;
        }
        open_event(t, "M", l);
        nnc_puts(t->out, ", \"name\": \"thread_name\", \"args\": {\"name\": ");
        nnc_put_json_string(t->out, x->name);
        nnc_puts(t->out, "}}");
    }
}

static void put_slice(tracer *t, const sim_task *x, int lane)
{
    open_event(t, "X", lane);
    nnc_puts(t->out, ", \"name\": ");
    nnc_put_json_string(t->out, x->name);
    nnc_puts(t->out, ", \"cat\": ");
    nnc_put_json_string(t->out, x->category);
    put_us(t->out, "ts", x->span.start_ps);
    put_us(t->out, "dur", x->span.end_ps - x->span.start_ps);
    if (x->bytes)
        nnc_printf(t->out, ", \"args\": {\"bytes\": %lld}", (long long)x->bytes);
    nnc_puts(t->out, "}");
}

/* An arrow from the end of one slice to the start of the next, where these are on different devices. */
static void put_arrow(tracer *t, const sim_task *from, const sim_task *to)
{
    if (!from->n_lane || !to->n_lane || from->kind == SIM_launch ||
        t->s->lane[from->lane[0]].device == t->s->lane[to->lane[0]].device)
        return;
    const int id = t->arrows++;
    open_event(t, "s", from->lane[0]);
    nnc_printf(t->out, ", \"name\": \"dependency\", \"cat\": \"dependency\", \"id\": %d", id);
    put_us(t->out, "ts", nnc_max64(from->span.end_ps - 1, from->span.start_ps));
    nnc_puts(t->out, "}");
    open_event(t, "f", to->lane[0]);
    nnc_printf(t->out,
        ", \"name\": \"dependency\", \"cat\": \"dependency\", \"id\": %d, \"bp\": \"e\"", id);
    put_us(t->out, "ts", to->span.start_ps);
    nnc_puts(t->out, "}");
}

void nnc_sim_trace(const nnc_sim *s, nnc_text *out)
{
    tracer t = {.s = s, .out = out};
    put_names(&t);
    for (int i = 0; i < s->n_task; i++) {
        const sim_task *x = &s->task[i];
        for (int l = 0; l < x->n_lane && x->span.end_ps > x->span.start_ps; l++)
            put_slice(&t, x, x->lane[l]);
        for (int n = 0; n < x->n_next; n++)
            put_arrow(&t, x, &s->task[x->next[n]]);
    }
    for (int i = 0; i < s->n_sample; i++) {
        nnc_printf(
            out, ",\n{\"ph\": \"C\", \"pid\": %d, \"name\": \"memory\"", s->sample[i].device + 1);
        put_us(out, "ts", s->sample[i].ps);
        nnc_printf(out, ", \"args\": {\"bytes\": %lld}}", (long long)s->sample[i].bytes);
    }
    nnc_puts(out, "\n], \"displayTimeUnit\": \"ms\"}\n");
}
