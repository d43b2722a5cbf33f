/* strategy/report.c -- the table of nnc partition as text, CSV and JSON. */
#include "report/report.h"
#include "strategy/strategy.h"
#include <math.h>
#include <string.h>

/* Milliseconds, or 0 for none: not 0.000000, which looks like a small number. */
static void put_time(nnc_text *out, double t, int width)
{
    if (t == 0)
        nnc_printf(out, "%*d", width, 0);
    else
        nnc_put_ms(out, t, width);
}

static double per_second(const nnc_partition_table *t, const nnc_partition_row *r)
{
    const double s = (double)r->iteration_ns * 1e-9;
    return s > 0 ? (double)t->micro * (double)t->m->batch / s : 0;
}

/* ---- JSON, CSV --------------------------------------------------------------------------------------- */

static const char *memory_word(const nnc_partition_row *r)
{
    return r->planned ? "plan" : "estimate";
}

static const char *time_word(const nnc_partition_row *r)
{
    return r->simulated_shares ? "plan" : "estimate";
}

/* null, in CSV nan: not known. */
static nnc_json_member fits_member(const nnc_partition_row *r)
{
    return r->open ? (nnc_json_member)J_REAL("fits", NAN)
                   : (nnc_json_member)J_BOOL("fits", r->fits);
}

static void json_devices(
    nnc_json_writer *w, const nnc_partition_table *t, const nnc_partition_row *r)
{
    nnc_json_open(w, "devices", '[');
    for (int d = 0; d < t->devices; d++) {
        const nnc_device_use *u = &r->use[d];
        nnc_json_open_at(w, 3, NULL, '{');
        NNC_JSON(w, J_INT("device", d), J_STRING("layers", u->layers), J_NS("busy_ms", u->busy_ns),
            J_NS("idle_ms", r->iteration_ns - u->busy_ns), J_INT("memory_bytes", u->bytes),
            J_INT("capacity_bytes", nnc_partition_capacity(t)));
        nnc_json_open(w, "fill", '{');
        for (int k = 0; k < NNC_FILL_KINDS; k++)
            NNC_JSON(w, J_INT(nnc_partition_fill[k], u->fill[k]));
        nnc_json_close(w, '}');
        nnc_json_close(w, '}');
    }
    nnc_json_close(w, ']');
}

/* nnc run divides the batch: that of as many micro-batches as a run has. Steps take several batches instead. */
static int64_t run_batch(const nnc_partition_table *t, const nnc_partition_row *r)
{
    const nnc_partition_way *w = &r->way;
    return t->m->step || !w->strategy || w->runs < 1 ? t->m->batch
                                                     : t->m->batch * t->micro / w->runs;
}

static bool on_all_devices(const nnc_partition_row *r)
{
    return r->way.strategy || r->place || r->id == NNC_STRATEGY_manual;
}

/* Processes that the strategy's devices need: one for each node of described hardware, as a process has the devices of its own host. */
static int ranks_of(const nnc_partition_table *t, const nnc_partition_row *r)
{
    return on_all_devices(r) && t->cluster ? nnc_cluster_node(t->cluster, t->devices - 1) + 1 : 1;
}

/* The command with which nnc executes the strategy; none: it does not. A step takes the micro-batches of an iteration. */
static void put_command(const nnc_partition_table *t, const nnc_partition_row *r, nnc_text *out)
{
    const nnc_partition_way *w = &r->way;
    if (!w->runs)
        return;
    if (ranks_of(t, r) > 1)
        nnc_printf(out, "mpirun -n %d ", ranks_of(t, r));
    nnc_printf(out, "nnc %s%s%s", t->m->step ? "train" : "run", t->o->typed ? t->o->typed : "",
        t->target->kind == NNC_T_cuda ? " --target=cuda" : "");
    if (w->strategy) {
        nnc_printf(out, " --strategy=%s", nnc_strategy_names[w->strategy]);
        if (w->micro > 1)
            nnc_printf(out, " --%s=%d", t->m->step ? "micro-batches" : "batch-parts", w->micro);
        if (w->replicas > 1 && w->strategy != NNC_STRATEGY_data)
            nnc_printf(out, " --replicas=%d", w->replicas);
        if (w->chunks)
            nnc_printf(out, " --chunks=%d", w->chunks);
        if (w->zero)
            nnc_printf(out, " --zero=%d", w->zero);
    }
    if (on_all_devices(r))
        nnc_printf(out, " --devices=%d", t->devices);
    const int own = t->o->compile.streams, streams = w->streams > own ? w->streams : own;
    if (streams > 1 || w->schedule)
        nnc_printf(out, " --streams=%d%s", streams, w->schedule ? " --streams-by=ios" : "");
    if (w->strategy && w->buckets)
        nnc_printf(out, " --bucket-mb=%g", t->o->bucket_mb);
    const bool file_says = t->training && t->training->accumulate > 1;
    if (t->m->step && (w->runs > 1 || file_says))
        nnc_printf(out, " --accumulate=%d", w->runs);
    if (r->place)
        nnc_printf(out, " --place=%s", r->place);
    else if (r->id == NNC_STRATEGY_manual && t->o->typed_place)
        nnc_printf(out, " --place=%s", t->o->typed_place);
    if (run_batch(t, r) != t->m->batch && t->sets_batch)
        nnc_printf(out, " --set batch=%lld", (long long)run_batch(t, r));
    else if (t->o->typed_batch)
        nnc_printf(out, " --set %s", t->o->typed_batch);
}

static void json_row(nnc_json_writer *w, const nnc_partition_table *t, const nnc_partition_row *r)
{
    nnc_json_open_at(w, 2, NULL, '{');
    NNC_JSON(w, J_STRING("strategy", r->strategy), J_BOOL("executable", r->executable));
    if (r->why_not) {
        NNC_JSON(w, J_STRING("impossible", r->why_not));
        nnc_json_close(w, '}');
        return;
    }
    json_devices(w, t, r);
    NNC_JSON(w, J_NS("iteration_ms", r->iteration_ns), J_STRING("time", time_word(r)),
        J_REAL("samples_per_s", nnc_decimals(per_second(t, r), 3)),
        J_REAL("bubble", nnc_decimals(r->bubble, 6)), J_NS("comm_exposed_ms", r->exposed_ns),
        J_NS("comm_hidden_ms", r->hidden_ns), fits_member(r), J_STRING("memory", memory_word(r)));
    if (t->o->sensitivity) {
        nnc_json_open(w, "at_bandwidth", '[');
        for (int k = 0; k < NNC_BANDWIDTHS; k++)
            if (r->at_bandwidth_ns[k])
                NNC_JSON_OBJECT(w, NULL, J_REAL("factor", nnc_partition_bandwidth[k]),
                    J_STRING("strategy", r->at_bandwidth[k]),
                    J_NS("iteration_ms", r->at_bandwidth_ns[k]));
        nnc_json_close(w, ']');
    }
    if (r->not_simulated)
        NNC_JSON(w, J_STRING("not_simulated", r->not_simulated));
    nnc_partition_run_json(w, t, r);
    if (r->place)
        NNC_JSON(w, J_STRING("place", r->place));
    NNC_LOCAL(nnc_text) command = {.into = w->out};
    put_command(t, r, &command);
    if (command.n)
        NNC_JSON(w, J_STRING("command", nnc_text_str(&command)));
    if (r->note)
        NNC_JSON(w, J_STRING("note", r->note));
    if (r->search)
        nnc_partition_json_search(w, r->search);
    nnc_json_close(w, '}');
}

static void json_layers(nnc_json_writer *w, const nnc_partition_model *m)
{
    nnc_json_open_at(w, 1, "blocks", '[');
    for (int b = 0; b < m->n_block; b++) {
        nnc_json_line(w, 2);
        NNC_JSON_OBJECT(w, NULL, J_INT("first", m->first[b]), J_INT("last", m->first[b + 1] - 1),
            J_STRING("layer", m->layer[m->first[b]]), J_NS("forward_ms", m->cost.forward[b]),
            J_NS("backward_ms", m->cost.backward[b]), J_NS("weight_ms", m->cost.weight[b]),
            J_INT("weights", m->cost.weights[b]), J_INT("saved", m->cost.saved[b]),
            J_INT("boundary", m->boundary[b]));
    }
    nnc_json_close(w, ']');
}

static void print_json(const nnc_partition_table *t, nnc_text *out)
{
    nnc_json_writer w = {.out = out};
    nnc_json_open(&w, NULL, '{');
    NNC_JSON(&w, J_STRING("model", t->m->name), J_STRING("mode", t->m->step ? "step" : "forward"),
        J_STRING("target", t->target->name),
        J_STRING("times", t->o->measure ? "measured" : "predicted"), J_INT("devices", t->devices));
    if (t->cluster)
        NNC_JSON(&w, J_STRING("hardware", t->cluster->name));
    if (t->target->kind == NNC_T_cuda) {
        nnc_json_item(&w, "libraries");
        nnc_target_libraries_json(out, t->target);
    }
    NNC_JSON(&w, J_INT("micro_batches", t->micro), J_INT("micro_batch", t->m->batch),
        J_INT("layers", t->m->n_layer), J_INT("plan_bytes", t->m->plan_bytes));
    json_layers(&w, t->m);
    nnc_json_open_at(&w, 1, "strategies", '[');
    for (int i = 0; i < t->n_row; i++)
        json_row(&w, t, &t->row[i]);
    nnc_json_close(&w, ']');
    nnc_json_end(&w, '}');
}

/* Columns of what was asked for come last, and are there in all lines. */
static void csv_row(nnc_json_writer *w, const nnc_partition_table *t, const nnc_partition_row *r,
    int d, const nnc_device_use *u)
{
    const nnc_json_member always[] = {J_STRING("strategy", r->strategy),
        J_BOOL("executable", r->executable), J_INT("device", d), J_STRING("layers", u->layers),
        J_NS("busy_ms", u->busy_ns), J_NS("idle_ms", r->iteration_ns - u->busy_ns),
        J_INT("memory_bytes", u->bytes), J_INT("capacity_bytes", nnc_partition_capacity(t)),
        J_NS("iteration_ms", r->iteration_ns),
        J_REAL("samples_per_s", nnc_decimals(per_second(t, r), 3)),
        J_REAL("bubble", nnc_decimals(r->bubble, 6)), J_NS("comm_exposed_ms", r->exposed_ns),
        J_NS("comm_hidden_ms", r->hidden_ns), fits_member(r),
        J_INT("weights_bytes", u->fill[FILLED_weights]),
        J_INT("gradients_bytes", u->fill[FILLED_gradients]),
        J_INT("optimizer_bytes", u->fill[FILLED_optimizer]),
        J_INT("saved_bytes", u->fill[FILLED_saved]),
        J_INT("working_bytes", u->fill[FILLED_working]), J_STRING("memory", memory_word(r)),
        J_STRING("time", time_word(r))};
    static const char *const key[NNC_BANDWIDTHS] = {"iteration_ms_quarter_bandwidth",
        "iteration_ms_half_bandwidth", "iteration_ms_2x_bandwidth", "iteration_ms_4x_bandwidth"};
    nnc_json_member m[NNC_COUNT(always) + NNC_BANDWIDTHS + NNC_RUN_COLUMNS];
    size_t n = NNC_COUNT(always);
    memcpy(m, always, sizeof always);
    for (int k = 0; t->o->sensitivity && k < NNC_BANDWIDTHS; k++) {
        const int64_t ns = r->at_bandwidth_ns[k];
        m[n++] = (nnc_json_member)J_REAL(key[k], ns ? nnc_decimals(nnc_ms(ns), 6) : NAN);
    }
    if (t->o->run)
        n += (size_t)nnc_partition_run_columns(r, d, m + n);
    nnc_json_row(w, 0, m, n);
}

/* A line a device; strategies that do not exist have none. */
static void print_csv(const nnc_partition_table *t, nnc_text *out)
{
    static const nnc_device_use none = {.layers = ""};
    static const nnc_partition_row empty = {.strategy = ""};
    nnc_json_writer w = {.out = out, .csv = true};
    int n = 0;
    for (int i = 0; i < t->n_row; i++)
        n += !t->row[i].why_not;
    w.empty = !n;
    for (int i = 0; i < (n ? t->n_row : 1); i++)
        for (int d = 0; d < (n ? t->devices : 1); d++) {
            const nnc_partition_row *r = n ? &t->row[i] : &empty;
            const nnc_device_use *u = n ? &r->use[d] : &none;
            if (r->why_not)
                break;
            csv_row(&w, t, r, d, u);
        }
}

/* ---- text ---------------------------------------------------------------------------------------------- */

/* Do rows not fit the terminal? Then time per sample, hidden communication and the lesser kinds of memory are left out. */
static bool is_narrow(const nnc_partition_table *t)
{
    enum { WIDE = 104 };
    return t->o->columns > 0 && t->o->columns < WIDE;
}

/* An estimate is marked. */
static void put_memory(nnc_text *t, const nnc_partition_row *r, int64_t bytes, int width)
{
    NNC_LOCAL(nnc_text) b = {.into = t};
    nnc_puts(&b, r->planned || !bytes ? "" : "~");
    nnc_put_bytes(&b, bytes);
    nnc_printf(t, "%*s", width, nnc_text_str(&b));
}

/* Time of an iteration, of a sample unless the table is narrow, and samples per second. An estimate beside simulations is marked. */
static void put_speed(const nnc_partition_table *t, const nnc_partition_row *r, nnc_text *out)
{
    NNC_LOCAL(nnc_text) time = {.into = out};
    nnc_puts(&time, t->cluster && !r->simulated_shares ? "~" : "");
    put_time(&time, nnc_ms(r->iteration_ns), 0);
    nnc_printf(out, " %10s", nnc_text_str(&time));
    if (!is_narrow(t)) {
        nnc_putc(out, ' ');
        put_time(out, nnc_ms(r->iteration_ns) / ((double)t->micro * (double)t->m->batch), 9);
    }
    nnc_printf(out, " %11.1f ", per_second(t, r));
}

static void text_row(const nnc_partition_table *t, const nnc_partition_row *r, nnc_text *out)
{
    const bool narrow = is_narrow(t);
    nnc_printf(out, "  %-15s", r->strategy);
    if (strlen(r->strategy) > 15) /* a combination */
        nnc_printf(out, "\n  %15s", "");
    if (r->why_not) {
        nnc_printf(out, " not possible: %s\n", r->why_not);
        return;
    }
    put_speed(t, r, out);
    nnc_printf(out, "%6.1f%% %s", 100 * r->bubble, narrow ? "" : " ");
    put_time(out, nnc_ms(r->exposed_ns), 9);
    if (!narrow) {
        nnc_putc(out, ' ');
        put_time(out, nnc_ms(r->hidden_ns), 9);
    }
    put_memory(out, r, nnc_partition_fullest(t, r), narrow ? 11 : 12);
    nnc_printf(out, "  %-4s %s\n",
        r->open   ? "?"
        : r->fits ? "yes"
                  : "NO",
        r->executable ? "yes" : "no");
    if (r->not_simulated)
        nnc_printf(out, "    no plan: %s\n", r->not_simulated);
}

enum { FEW = 16 }; /* devices that have a line each; of more, equal neighbours share one */

static bool same_use(const nnc_device_use *a, const nnc_device_use *b)
{
    return a->busy_ns == b->busy_ns && !memcmp(a->fill, b->fill, sizeof a->fill) &&
           !strcmp(a->layers, b->layers);
}

/* The end of the devices from d on that share a line: equal ones, where there are many devices or they have no work. */
static int end_of_line(const nnc_partition_table *t, const nnc_partition_row *r, int d)
{
    const bool joins = t->devices > FEW || !*r->use[d].layers;
    int end = d + 1;
    while (joins && end < t->devices && same_use(&r->use[d], &r->use[end]))
        end++;
    return end;
}

static int largest_fill(const nnc_device_use *u)
{
    int most = 0;
    for (int k = 1; k < NNC_FILL_KINDS; k++)
        most = u->fill[k] > u->fill[most] ? k : most;
    return most;
}

static void device_line(const nnc_partition_row *r, int d, int end, bool narrow, nnc_text *out)
{
    const nnc_device_use *u = &r->use[d];
    char name[32];
    nnc_snprintf(name, sizeof name, end > d + 1 ? "%d-%d" : "%d", d, end - 1);
    nnc_printf(out, "  %-9s ", name);
    put_time(out, nnc_ms(u->busy_ns), 10);
    nnc_putc(out, ' ');
    put_time(out, nnc_ms(r->iteration_ns - u->busy_ns), 10);
    put_memory(out, r, u->bytes, 12);
    const int most = largest_fill(u);
    if (narrow)
        nnc_printf(out, "  %-9s", u->bytes ? nnc_partition_fill[most] : "");
    for (int k = 0; k < NNC_FILL_KINDS; k++)
        if (!narrow || k == most)
            nnc_put_bytes_column(out, u->fill[k], 11, false);
    nnc_printf(out, "  %s\n", *u->layers ? u->layers : "none");
}

/* Prints a line for each device; if there are very many, only for the first, the last, the fullest and the busiest. */
static void device_lines(const nnc_partition_table *t, const nnc_partition_row *r, nnc_text *out)
{
    int lines = 0, line = 0, fullest = 0, busiest = 0, hidden = 0;
    for (int d = 0; d < t->devices; d = end_of_line(t, r, d), lines++)
        continue;
    for (int d = 0; d < t->devices; d++) {
        fullest = r->use[d].bytes > r->use[fullest].bytes ? d : fullest;
        busiest = r->use[d].busy_ns > r->use[busiest].busy_ns ? d : busiest;
    }
    for (int d = 0, end; d < t->devices; d = end, line++) {
        end = end_of_line(t, r, d);
        const bool shown = lines <= 2 * FEW || line < FEW / 2 || line >= lines - 2 ||
                           (d <= fullest && fullest < end) || (d <= busiest && busiest < end);
        if (shown && hidden)
            nnc_printf(out, "  ...       %d more device%s: --format=csv has all\n", hidden,
                nnc_plural(hidden, "s"));
        hidden = shown ? 0 : hidden + end - d;
        if (shown)
            device_line(r, d, end, is_narrow(t), out);
    }
}

static void text_devices(const nnc_partition_table *t, const nnc_partition_row *r, nnc_text *out)
{
    nnc_printf(out, "\n%s\n  device       busy ms    idle ms      memory", r->strategy);
    for (int k = 0; k < NNC_FILL_KINDS && !is_narrow(t); k++)
        nnc_printf(out, "%11s", nnc_partition_fill[k]);
    nnc_puts(out, is_narrow(t) ? "  most of it is       layers\n" : "  layers\n");
    device_lines(t, r, out);
    if (r->note)
        nnc_printf(out, "  note: %s\n", r->note);
    if (r->search)
        nnc_partition_put_search(r->search, out);
    NNC_LOCAL(nnc_text) command = {.into = out};
    put_command(t, r, &command);
    if (command.n)
        nnc_printf(
            out, "  %s %s", r->executable ? "runs with" : "would be", nnc_text_str(&command));
    if (command.n && run_batch(t, r) != t->m->batch && !t->sets_batch)
        nnc_printf(out, " # a batch of %lld", (long long)run_batch(t, r));
    nnc_puts(out, command.n ? "\n" : "");
}

/* The blocks, each with its layers. */
static void text_layers(const nnc_partition_model *m, nnc_text *out)
{
    nnc_puts(out,
        "    layer   forward ms backward ms   weights ms     weights       saved    boundary\n");
    for (int b = 0; b < m->n_block; b++) {
        for (int l = m->first[b]; l < m->first[b + 1]; l++) {
            nnc_printf(out, "  %7d  ", l);
            if (l > m->first[b]) {
                nnc_printf(out, "%72s  %s\n", "", m->layer[l]);
                continue;
            }
            const int64_t ns[] = {m->cost.forward[b], m->cost.backward[b], m->cost.weight[b]};
            const int64_t bytes[] = {m->cost.weights[b], m->cost.saved[b], m->boundary[b]};
            for (int k = 0; k < 3; k++) {
                put_time(out, nnc_ms(ns[k]), 11);
                nnc_putc(out, ' ');
            }
            for (int k = 0; k < 3; k++)
                nnc_put_bytes_column(out, bytes[k], 12, false);
            nnc_printf(out, "  %s\n", m->layer[l]);
        }
    }
    nnc_putc(out, '\n');
}

static void text_sensitivity(const nnc_partition_table *t, nnc_text *out)
{
    nnc_puts(out, "\niteration ms with links of other bandwidths, planned for them\n"
                  "  strategy               x 1/4      x 1/2          1        x 2        x 4\n");
    for (int i = 0; i < t->n_row; i++) {
        const nnc_partition_row *r = &t->row[i];
        if (r->why_not)
            continue;
        nnc_printf(out, "  %-15s ", r->strategy);
        for (int k = 0; k <= NNC_BANDWIDTHS; k++) {
            const int middle = NNC_BANDWIDTHS / 2, at = k - (k > middle);
            const int64_t ns = k == middle ? r->iteration_ns : r->at_bandwidth_ns[at];
            nnc_putc(out, ' ');
            if (ns)
                put_time(out, nnc_ms(ns), 10);
            else
                nnc_printf(out, "%10s", "-");
        }
        nnc_putc(out, '\n');
        for (int k = 0; k < NNC_BANDWIDTHS; k++)
            if (r->at_bandwidth_ns[k] && strcmp(r->at_bandwidth[k], r->strategy) != 0)
                nnc_printf(out, "    x %g: %s\n", nnc_partition_bandwidth[k], r->at_bandwidth[k]);
    }
}

/* Prints what is divided among which devices, no wider than the terminal. */
static void text_head(const nnc_partition_table *t, nnc_text *out)
{
    const nnc_partition_options *o = t->o;
    const nnc_partition_model *m = t->m;
    nnc_printf(out, "%s, %s: %d layers in %d blocks on %d device%s %s of ", m->name,
        m->step ? "training step" : "inference", m->n_layer, m->n_block, t->devices,
        nnc_plural(t->devices, "s"), t->target->name);
    nnc_put_bytes(out, nnc_partition_capacity(t));
    if (t->cluster) {
        const bool fits =
            out->n + strlen(", linked as in ") + strlen(t->cluster->name) < REPORT_WIDTH;
        nnc_printf(out, ",%slinked as in %s\n", fits ? " " : "\n", t->cluster->name);
    } else {
        nnc_printf(out, ", links of %g GB/s and %g us\n", nnc_option_or(o->link_gbs, NNC_LINK_GBS),
            nnc_option_or(o->link_us, NNC_LINK_US));
    }
    if (t->target->kind == NNC_T_cuda) {
        nnc_puts(out, "The GPUs have ");
        nnc_target_put_libraries(out, t->target);
        nnc_puts(out, ".\n");
    }
    nnc_printf(out,
        "An iteration is %d micro-batch%s of %lld sample%s (the model's batch). Times of layers "
        "are %s.\n",
        t->micro, nnc_plural(t->micro, "es"), (long long)m->batch, nnc_plural(m->batch, "s"),
        o->measure
            ? "measured on\nthis machine, command by command; the rest is predicted from them"
        : t->cluster
            ? "predicted by\nthe simulator's model of the device (docs/hardware.md), not measured"
            : "predicted from the cost\nrules of the target, not measured");
}

static void print_head(const nnc_partition_table *t, nnc_text *out)
{
    NNC_LOCAL(nnc_text) head = {.into = out};
    text_head(t, &head);
    char *second = head.s ? strstr(head.s, "\nAn iteration") : NULL;
    if (!is_narrow(t) || !second) {
        nnc_printf(out, "%s\n", nnc_text_str(&head));
        return;
    }
    for (size_t i = 0; i + 1 < head.n; i++)
        head.s[i] = head.s[i] == '\n' ? ' ' : head.s[i];
    *second = 0;
    nnc_put_wrapped(out, head.s, 0, 0, t->o->columns);
    nnc_putc(out, '\n');
    nnc_put_wrapped(out, second + 1, 0, 0, t->o->columns);
    nnc_putc(out, '\n');
}

/* What the columns say. */
static void text_legend(const nnc_partition_table *t, nnc_text *out)
{
    static const char *const line[] = {
        "iteration: simulated from its plan; ~: an estimate, of passes, transfers and collectives "
        "as tasks",
        "idle: share of all devices' time in which they compute nothing, waiting for transfers "
        "included",
        "exposed: communication that no computing hides; of an estimate, what it adds to an "
        "iteration",
        "hidden: all other communication, beside computing",
        "most memory: of the fullest device, by its plan; ~: by an estimate, of which ? is too "
        "near "
        "to what there is",
        "runs: nnc executes it today"};
    for (size_t i = 0; i < NNC_COUNT(line); i++) {
        if ((is_narrow(t) && i == 3) || (!t->cluster && !i)) /* has no such column, or mark */
            continue;
        nnc_puts(out, "  ");
        nnc_put_wrapped(out, line[i], 2, 4, is_narrow(t) ? t->o->columns : INT_MAX);
        nnc_putc(out, '\n');
    }
}

static void print_text(const nnc_partition_table *t, nnc_text *out)
{
    const nnc_partition_options *o = t->o;
    const nnc_partition_model *m = t->m;
    print_head(t, out);
    if (o->layers)
        text_layers(m, out);
    nnc_puts(out, is_narrow(t)
                      ? "  strategy       iteration ms  samples/s  idle  exposed ms most "
                        "memory fits runs\n"
                      : "  strategy       iteration ms ms/sample   samples/s  idle   exposed "
                        "ms hidden ms  most memory  fits runs\n");
    for (int i = 0; i < t->n_row; i++)
        text_row(t, &t->row[i], out);
    text_legend(t, out);
    if (o->sensitivity)
        text_sensitivity(t, out);
    if (o->run)
        nnc_partition_run_text(t, out);
    for (int i = 0; i < t->n_row; i++)
        if (!t->row[i].why_not)
            text_devices(t, &t->row[i], out);
}

void nnc_partition_print(const nnc_partition_table *t, nnc_format f, nnc_text *out)
{
    if (f == NNC_JSON)
        print_json(t, out);
    else if (f == NNC_CSV)
        print_csv(t, out);
    else
        print_text(t, out);
}
