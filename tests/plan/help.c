/* tests/plan/help.c -- see help.h. */
#include "help.h"

bool fake_declines, fake_in_place, fake_alone;

static nnc_status choose(const nnc_call *c, nnc_choice *out, nnc_sink *sink)
{
    (void)sink;
    *out = (nnc_choice){.ok = !fake_declines, .workspace_bytes = 1000, .reason = "fake:jit"};
    for (int i = 0; i < c->n_post; i++)
        if (fake_in_place && c->post[i].kind == PO_sum && !c->post[i].in_place)
            *out = (nnc_choice){.reason = "sums in place only"};
    if (fake_declines)
        out->reason = "it is only a fake";
    return NNC_OK;
}

static nnc_status load(const nnc_load *l, void **handle, nnc_sink *sink)
{
    (void)l;
    *handle = NULL;
    return nnc_fail0(sink, NNC_E_BUG, "a fake engine does not run");
}

const nnc_engine fake_library = {
    .name = "fake", .version = "1", .choose = choose, .load_call = load};
const nnc_engine fake_kernels = {.name = "interp", .version = "1", .load_kernel = load};

void help_target(nnc_target *t, int threads)
{
    *t = (nnc_target){.name = "paper",
        .cpu = "x86-64-v3",
        .features = "",
        .vector_bits = 256,
        .fma = true,
        .cores = 4,
        .threads = threads,
        .memory_bytes = INT64_C(1) << 34,
        .l1_bytes = 32 << 10,
        .l2_bytes = 1 << 20,
        .l3_bytes = 8 << 20,
        .flops_f32 = 400000000000,
        .copy_bytes_s = 20000000000,
        .cache_bytes_s = 100000000000,
        .launch_ns = 1000,
        .n_engines = 2};
    t->engine[0] = (nnc_target_engine){.name = "fake", .efficiency = 0.9};
    t->engine[1] = (nnc_target_engine){.name = "interp", .efficiency = 0.02};
}

nnc_graph *help_graph(const char *text)
{
    nnc_scan s;
    nnc_scan_init(&s, "graph", text, strlen(text));
    nnc_graph *g = nnc_graph_parse(&s, test_sink);
    if (!g) {
        test_fail(__FILE__, __LINE__, "graph rejected");
        nnc_sink_print(test_sink, stderr);
    }
    return g;
}

nnc_plan *help_plan(const nnc_graph *g, int streams, int devices)
{
    static const nnc_engine *const engines[] = {&fake_library, &fake_kernels};
    nnc_target t;
    help_target(&t, 4);
    t.n_engines = fake_alone ? 1 : 2;
    nnc_plan_options o = {.target = &t,
        .engine = engines,
        .n_engine = 2,
        .jobs = 1,
        .streams = streams,
        .devices = devices};
    nnc_plan *p = NULL;
    nnc_status s = nnc_plan_make(g, &o, &p, test_sink);
    if ((s == NNC_OK) != (p != NULL))
        test_fail(__FILE__, __LINE__, "status %s, plan %p", nnc_status_name(s), (void *)p);
    return p;
}

nnc_plan *help_plan_text(const char *text, int streams, int devices)
{
    nnc_graph *g = help_graph(text);
    nnc_plan *p = g ? help_plan(g, streams, devices) : NULL;
    if (g && !p) {
        test_fail(__FILE__, __LINE__, "no plan");
        nnc_sink_print(test_sink, stderr);
    }
    nnc_graph_destroy(g);
    return p;
}

void help_check(const nnc_plan *p)
{
    nnc_text a = {0}, b = {0};
    nnc_scan s;
    CHECK_OK(nnc_plan_verify(p, test_sink));
    nnc_plan_print(&a, p);
    nnc_scan_init(&s, "plan", nnc_text_str(&a), a.n);
    nnc_plan *q = nnc_plan_parse(&s, test_sink);
    CHECK(q != NULL);
    if (q) {
        CHECK(nnc_scan_end(&s));
        nnc_plan_print(&b, q);
        CHECK_STR(nnc_text_str(&b), nnc_text_str(&a));
        CHECK_OK(nnc_plan_verify(q, test_sink));
        nnc_hash128 x = nnc_plan_hash(p), y = nnc_plan_hash(q);
        CHECK(x.lo == y.lo && x.hi == y.hi);
        nnc_plan_destroy(q);
    } else {
        nnc_sink_print(test_sink, stderr);
    }
    nnc_text_deinit(&a);
    nnc_text_deinit(&b);
}

const nnc_cmd *help_cmd(const nnc_plan *p, const char *layers)
{
    for (int i = nnc_plan_first(p, SEC_main); i < p->n_cmd; i++)
        if (strcmp(p->cmd[i].layers, layers) == 0)
            return &p->cmd[i];
    test_fail(__FILE__, __LINE__, "no command for %s", layers);
    return NULL;
}

int help_count(const nnc_plan *p, nnc_cmd_kind kind)
{
    int n = 0;
    for (int i = 0; i < p->n_cmd; i++)
        n += p->cmd[i].kind == kind;
    return n;
}

int help_at(const nnc_plan *p, const char *layers)
{
    const nnc_cmd *c = help_cmd(p, layers);
    return c ? (int)(c - p->cmd) : 0;
}

void help_rejected(nnc_plan *p, const char *why)
{
    nnc_sink_clear(test_sink);
    if (nnc_plan_verify(p, test_sink) == NNC_OK)
        test_fail(__FILE__, __LINE__, "accepted; should say: %s", why);
    CHECK_DIAG(why);
}

void help_drop_waits(nnc_plan *p)
{
    for (int i = 0; i < p->n_cmd; i++)
        if (p->cmd[i].kind == CMD_wait) {
            p->cmd[i].kind = CMD_record;
            p->cmd[i].item = p->n_event++;
        }
}
