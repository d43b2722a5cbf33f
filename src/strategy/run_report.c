/* strategy/run_report.c -- what nnc partition --run measured, beside what was predicted: as members of a strategy's
 * object, and as a table. */
#include "report/report.h"
#include "strategy/strategy.h"
#include <math.h>
#include <string.h>

/* Relative error of a prediction; 0 where there is none. */
static double error_of(int64_t predicted, int64_t measured)
{
    return predicted && measured ? (double)predicted / (double)measured - 1 : 0;
}

static double spread_of(const nnc_partition_measured *x)
{
    return x->median_ns ? (double)(x->p90_ns - x->p10_ns) / (double)x->median_ns : 0;
}

static int64_t ns_of(int64_t ps)
{
    return ps / 1000;
}

/* Copies between devices and collectives, waiting for the others included. */
static int64_t communication_of(const nnc_shares *s)
{
    return ns_of(s->part[PART_communication] + s->waits + s->hidden);
}

static int64_t busy_of(const nnc_shares *s)
{
    return s ? nnc_ceildiv(nnc_shares_computing(s), 1000) : 0;
}

void nnc_partition_run_json(
    nnc_json_writer *w, const nnc_partition_table *t, const nnc_partition_row *r)
{
    const nnc_partition_measured *x = r->measured;
    if (r->not_run)
        NNC_JSON(w, J_STRING("not_run", r->not_run));
    if (!x)
        return;
    nnc_json_open(w, "measured", '{');
    NNC_JSON(w, J_INT("iterations", x->n), J_NS("iteration_ms", x->median_ns),
        J_NS("min_ms", x->least_ns), J_NS("p10_ms", x->p10_ns), J_NS("p90_ms", x->p90_ns),
        J_REAL("spread", nnc_decimals(spread_of(x), 4)),
        J_REAL("predicted_error", nnc_decimals(error_of(r->iteration_ns, x->median_ns), 4)));
    nnc_json_open(w, "devices", '[');
    for (int d = 0; d < t->devices; d++) {
        nnc_json_open(w, NULL, '{');
        const nnc_shares *s = &x->shares[d];
        NNC_JSON(w, J_INT("device", d), J_NS("busy_ms", busy_of(s)),
            J_NS("communication_ms", communication_of(s)),
            J_NS("exposed_ms", ns_of(s->part[PART_communication])),
            J_NS("hidden_ms", ns_of(s->hidden)));
        nnc_json_close(w, '}');
    }
    nnc_json_close(w, ']');
    nnc_json_close(w, '}');
}

int nnc_partition_run_columns(const nnc_partition_row *r, int d, nnc_json_member *out)
{
    const nnc_partition_measured *x = r->measured;
    const struct {
        const char *name;
        double v;
    } column[NNC_RUN_COLUMNS] = {{"measured_ms", x ? nnc_ms(x->median_ns) : NAN},
        {"spread", x ? spread_of(x) : NAN},
        {"measured_busy_ms", x ? nnc_ms(busy_of(&x->shares[d])) : NAN},
        {"measured_communication_ms", x ? nnc_ms(communication_of(&x->shares[d])) : NAN}};
    for (int i = 0; i < NNC_RUN_COLUMNS; i++)
        out[i] = (nnc_json_member)J_MS(column[i].name, column[i].v);
    return NNC_RUN_COLUMNS;
}

static void put_error(nnc_text *out, int64_t predicted, int64_t measured)
{
    if (predicted)
        nnc_printf(out, " %+9.1f%%", 100 * error_of(predicted, measured));
    else
        nnc_printf(out, " %10s", "-");
}

static void put_time(nnc_text *out, int64_t ns, int width)
{
    if (ns)
        nnc_put_ms(out, nnc_ms(ns), width);
    else
        nnc_printf(out, "%*s", width, "-");
}

static void text_devices(const nnc_partition_table *t, const nnc_partition_row *r, nnc_text *out)
{
    for (int d = 0; d < t->devices; d++) {
        const nnc_shares *s = &r->measured->shares[d];
        const int64_t busy = busy_of(s);
        if (!busy && !r->use[d].busy_ns)
            continue;
        nnc_printf(out, "    busy %-8d", d);
        put_time(out, r->use[d].busy_ns, 13);
        put_time(out, busy, 13);
        nnc_printf(out, "%9s", "");
        put_error(out, r->use[d].busy_ns, busy);
        put_time(out, communication_of(s), 16);
        put_time(out, s->part[PART_communication] / 1000, 11);
        nnc_putc(out, '\n');
    }
}

void nnc_partition_run_text(const nnc_partition_table *t, nnc_text *out)
{
    nnc_puts(out,
        "\nRun on this machine: medians of iterations, strategies in turn. Spread is (p90 - p10) / "
        "median. Busy is a device's time in\ncommands that compute, communication its copies "
        "between devices and collectives, waiting for\nthe others included; exposed, what of it "
        "computing does not hide, without waiting.\n\n"
        "  strategy        predicted ms  measured ms   spread      error communication ms exposed "
        "ms\n");
    for (int i = 0; i < t->n_row; i++) {
        const nnc_partition_row *r = &t->row[i];
        const nnc_partition_measured *x = r->measured;
        if (!x && !r->not_run)
            continue;
        nnc_printf(out, "  %-15s", r->strategy);
        if (x && strlen(r->strategy) > 15) /* a combination */
            nnc_printf(out, "\n  %15s", "");
        if (!x) {
            nnc_printf(out, " not run: %s\n", r->not_run);
            continue;
        }
        put_time(out, r->iteration_ns, 13);
        put_time(out, x->median_ns, 13);
        nnc_printf(out, " %7.1f%%", 100 * spread_of(x));
        put_error(out, r->iteration_ns, x->median_ns);
        nnc_printf(out, "  %d iterations\n", x->n);
        text_devices(t, r, out);
    }
}
