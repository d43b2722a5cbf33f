/* profile/html.c -- a profile as an HTML page without references to other files. */
#include "profile/page.h"
#include "profile/profile.h"
#include <string.h>

/* Writes what rows of its kind are compared with. */
static nnc_status add_against(nnc_json_writer *w, const nnc_profile *p, nnc_sink *sink)
{
    const nnc_profile_options o = {.by = p->old->by};
    nnc_profile_rows rows;
    const nnc_status st = nnc_profile_group(p, &o, &rows, sink);
    if (!st)
        nnc_profile_against_json(w, p, &rows);
    nnc_arena_deinit(&rows.arena);
    return st;
}

static nnc_status add_rows(
    nnc_json_writer *w, const nnc_profile *p, nnc_profile_by by, nnc_sink *sink)
{
    const nnc_profile_options o = {.by = by, .sort = by == BY_command ? SORT_order : SORT_time};
    nnc_profile_rows rows;
    const nnc_status st = nnc_profile_group(p, &o, &rows, sink);
    if (!st) {
        nnc_json_open(w, nnc_profile_by_names[by], '[');
        nnc_profile_rows_json(w, p, by, &rows);
        nnc_json_close(w, ']');
    }
    nnc_arena_deinit(&rows.arena);
    return st;
}

nnc_status nnc_profile_html(nnc_env *e, const nnc_profile *p, nnc_text *out, nnc_sink *sink)
{
    NNC_LOCAL(nnc_text) json = {.into = out};
    nnc_json_writer w = {.out = &json};
    nnc_status st = NNC_OK;
    nnc_json_open(&w, NULL, '{');
    nnc_profile_head_json(&w, e, p);
    if (p->old)
        st = add_against(&w, p, sink);
    nnc_json_open(&w, "rows", '{');
    for (nnc_profile_by by = 0; !st && by < BY__COUNT; by++)
        st = add_rows(&w, p, by, sink);
    nnc_json_close(&w, '}');
    nnc_json_end(&w, '}');
    nnc_page_begin(out, "nnc profile", page_style);
    nnc_puts(out, page_head);
    nnc_page_end(out, page_after, nnc_text_str(&json), page_script);
    return st ? st : out->oom ? nnc_nomem(sink) : NNC_OK;
}
