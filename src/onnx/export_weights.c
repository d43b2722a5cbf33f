/* onnx/export_weights.c -- the numbers of weights: in the model, or where they are too many, in a file beside it. */
#include "onnx/export.h"
#include <string.h>

#define MAX_BYTES ((int64_t)2000 << 20) /* protocol buffers end at 2 GiB */
/* Least bytes of a weight for the other file, alignment of its start there (readers map it), and bytes read at once. */
enum { LEAST_OUTSIDE = 1024, ALIGN = 4096, CHUNK = 1 << 20 };

void op_tensor_head(nnc_text *t, const nnc_type *type, const char *name)
{
    for (int i = 0; i < type->rank; i++)
        op_int(t, TENSOR_dims, type->dim[i]);
    op_int(t, TENSOR_type, ox_code(type->dtype));
    if (name)
        op_text(t, TENSOR_name, name);
}

static bool is_outside(const op_weights *w, const nnc_type *t)
{
    return w->outside && nnc_type_bytes(t) >= LEAST_OUTSIDE;
}

nnc_status op_weights_begin(
    op_weights *w, const nnc_graph *g, const nnc_onnx_place *place, nnc_sink *sink)
{
    const int64_t most = place && place->most ? place->most : MAX_BYTES;
    int64_t all = 0, inside = 0;
    *w = (op_weights){.g = g, .data = place ? place->data : NULL, .sink = sink};
    for (int pass = 0; pass < 2; pass++) {
        w->outside = all > most;
        inside = 0;
        for (uint32_t i = 0; i < g->n_node; i++) {
            const nnc_node *n = &g->node[i];
            const nnc_type *t = nnc_typeof(g, n->out);
            if (n->op == OP_constant || (n->op == OP_param && !is_outside(w, t)))
                inside = nnc_add_sat(inside, nnc_type_bytes(t));
        }
        all = pass ? all : inside;
    }
    if (w->outside && !w->data)
        return nnc_fail0(sink, NNC_E_MODEL,
            "the weights take %lld bytes, and an ONNX file holds at most 2 GiB: give the model a "
            "file (-o), so that they lie in another beside it",
            (long long)all);
    if (inside > most)
        return nnc_fail0(sink, NNC_E_MODEL,
            "the constants and small weights take %lld bytes, and an ONNX file holds at most 2 GiB",
            (long long)inside);
    return NNC_OK;
}

static void put_entry(nnc_text *tensor, const char *key, const char *value)
{
    NNC_LOCAL(nnc_text) e = {0};
    op_text(&e, ENTRY_key, key);
    op_text(&e, ENTRY_value, value);
    op_message(tensor, TENSOR_external, &e);
}

/* The place of the weight in the other file, which has the model's folder. */
static void put_place(op_weights *w, int64_t bytes, nnc_text *tensor)
{
    const char *slash = strrchr(w->data, '/');
    char number[24];
    put_entry(tensor, "location", slash ? slash + 1 : w->data);
    snprintf(number, sizeof number, "%lld", (long long)w->at);
    put_entry(tensor, "offset", number);
    snprintf(number, sizeof number, "%lld", (long long)bytes);
    put_entry(tensor, "length", number);
    op_int(tensor, TENSOR_location, 1);
    w->at = nnc_align_up(w->at + bytes, ALIGN);
}

nnc_status op_put_weight(op_weights *w, const nnc_node *n, const char *name, nnc_text *graph)
{
    const nnc_type *type = nnc_typeof(w->g, n->out);
    const int64_t bytes = nnc_type_bytes(type);
    NNC_LOCAL(nnc_text) head = {0};
    NNC_LOCAL(nnc_text) raw = {0};
    op_tensor_head(&head, type, name);
    if (is_outside(w, type)) {
        put_place(w, bytes, &head);
        op_message(graph, GRAPH_initializer, &head);
        return NNC_OK;
    }
    NNC_FREED void *data = nnc_aligned_alloc(64, (size_t)bytes);
    nnc_status st =
        data ? nnc_weight_read(n->weight, type, 0, nnc_type_numel(type), data, &w->files, w->sink)
             : nnc_nomem(w->sink);
    op_head(&raw, TENSOR_raw, (size_t)bytes);
    op_head(graph, GRAPH_initializer, head.n + raw.n + (size_t)bytes);
    nnc_putn(graph, nnc_text_str(&head), head.n);
    nnc_putn(graph, nnc_text_str(&raw), raw.n);
    if (!st)
        nnc_putn(graph, data, (size_t)bytes);
    return st;
}

/* The numbers one after the other, as put_place has placed them. */
static nnc_status write_data(void *ctx, nnc_out *out)
{
    static const char zeros[ALIGN];
    op_weights *w = ctx;
    int64_t at = 0;
    NNC_FREED char *chunk = nnc_aligned_alloc(64, CHUNK * 8);
    NNC_NEED(chunk, w->sink);
    for (uint32_t i = 0; i < w->g->n_node; i++) {
        const nnc_node *n = &w->g->node[i];
        const nnc_type *t = nnc_typeof(w->g, n->out);
        if (n->op != OP_param || !is_outside(w, t))
            continue;
        const int64_t all = nnc_type_numel(t), start = nnc_align_up(at, ALIGN);
        NNC_TRY(nnc_out_put(out, zeros, (size_t)(start - at)));
        for (int64_t first = 0; first < all; first += CHUNK) {
            const int64_t count = nnc_min64(CHUNK, all - first);
            NNC_TRY(nnc_weight_read(n->weight, t, first, count, chunk, &w->files, w->sink));
            NNC_TRY(nnc_out_put(out, chunk, (size_t)(count * nnc_dtype_size(t->dtype))));
        }
        at = start + nnc_type_bytes(t);
    }
    return NNC_OK;
}

nnc_status op_weights_end(op_weights *w)
{
    return w->outside ? nnc_file_write_by(w->data, write_data, w, true, w->sink) : NNC_OK;
}
