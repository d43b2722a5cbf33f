/* experiments/html.c -- the report as an HTML page without references to other files. */
#include "experiments/experiments.h"
#include "experiments/page.h"

nnc_status nnc_experiments_html(const nnc_experiments *x, nnc_text *out, nnc_sink *sink)
{
    NNC_LOCAL(nnc_text) json = {0};
    NNC_TRY(nnc_experiments_print(x, NNC_JSON, 0, &json, sink));
    nnc_page_begin(out, "nnc report", page_style);
    nnc_puts(out, page_head);
    nnc_page_end(out, page_after, nnc_text_str(&json), page_script);
    return out->oom ? nnc_nomem(sink) : NNC_OK;
}
