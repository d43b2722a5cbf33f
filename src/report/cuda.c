/* report/cuda.c -- doctor's report on NVIDIA's libraries and GPUs, and devices' report on a GPU target. */
#include "report/report.h"
#include "cuda/cuda.h"
#include <string.h>

enum { MAX_GPUS = 16 };

static void text_libraries(nnc_text *t)
{
    nnc_cuda_found f[CUDA__LIBS];
    int found = 0;
    for (int i = 0; i < CUDA__LIBS; i++) {
        nnc_cuda_look((nnc_cuda_lib)i, &f[i]);
        found += f[i].ok;
    }
    nnc_puts(t, "\n  NVIDIA GPUs: nnc compiles for them (--target=cuda:sm_90), and runs where "
                "there is one\n");
    if (!found) {
        nnc_puts(t, "  cuda     absent   no CUDA library was found in $NNC_CUDA_PATH, the "
                    "toolkit, the loader's path or the active Python\n"
                    "           environment; pip install nvidia-cuda-nvrtc is enough to compile\n");
        return;
    }
    for (int i = 0; i < CUDA__LIBS; i++) {
        nnc_printf(t, "  %-8s %-8s %s%s%s", f[i].name, f[i].ok ? "found" : "absent", f[i].what,
            *f[i].version ? ", " : "", f[i].version);
        if (f[i].ok)
            nnc_printf(t, "\n           %s (%s)\n", f[i].path, f[i].place);
        else
            nnc_printf(t, "\n           %s\n", f[i].why);
    }
}

/* Returns the number of GPUs. use: makes a context on each, and says where that fails. */
static int put_gpus(nnc_text *t, bool use, nnc_sink *sink)
{
    nnc_cuda_device d[MAX_GPUS];
    int n = nnc_cuda_devices(d, MAX_GPUS, sink);
    for (int i = 0; i < n && i < MAX_GPUS; i++) {
        nnc_printf(t, "  GPU %d    %s, sm_%d, %d SMs, memory ", i, d[i].name, d[i].sm, d[i].sms);
        nnc_put_bytes(t, d[i].memory_bytes);
        nnc_cuda_limits(t, i);
        nnc_putc(t, '\n');
        NNC_LOCAL(nnc_text) why = {0};
        if (use && nnc_cuda_try(i, &why))
            nnc_printf(t, "           cannot be used: %s\n", nnc_text_str(&why));
    }
    return n;
}

void nnc_devices_gpus_text(nnc_text *t)
{
    NNC_OWNED(nnc_sink) *why = nnc_sink_create();
    if (put_gpus(t, false, why) > 0)
        nnc_puts(t, "  --target=cuda is the first of these GPUs, with the numbers that its driver "
                    "reports\n");
    else if (why && nnc_sink_count(why) && NNC_CUDA(driver, NULL) && NNC_CUDA(cudart, NULL))
        nnc_printf(t, "  %s\n", nnc_sink_at(why, 0)->message);
}

static void text_gpus(nnc_text *t)
{
    NNC_OWNED(nnc_sink) *sink = nnc_sink_create();
    put_gpus(t, true, sink);
    for (size_t i = 0; sink && i < nnc_sink_count(sink); i++)
        nnc_printf(t, "  %s\n", nnc_sink_at(sink, i)->message);
}

/* Adds each line of nnc_cuda_mismatches to w's array or, where w is NULL, as a line of text. */
static void each_mismatch(nnc_json_writer *w, nnc_text *t)
{
    NNC_LOCAL(nnc_text) m = {0};
    nnc_cuda_mismatches(&m);
    for (const char *p = nnc_text_str(&m); *p;) {
        int n = (int)strcspn(p, "\n");
        char line[1024];
        snprintf(line, sizeof line, "%.*s", n, p);
        if (w)
            NNC_JSON(w, J_STRING(NULL, line));
        else
            nnc_printf(t, "  does not match: %s\n", line);
        p += n + (p[n] == '\n');
    }
}

void nnc_doctor_cuda_json(nnc_json_writer *w)
{
    nnc_cuda_device d[MAX_GPUS];
    nnc_json_open(w, "cuda", '{');
    nnc_json_open(w, "libraries", '[');
    for (int i = 0; i < CUDA__LIBS; i++) {
        nnc_cuda_found f;
        nnc_cuda_look((nnc_cuda_lib)i, &f);
        NNC_JSON_OBJECT(w, NULL, J_STRING("name", f.name), J_BOOL("found", f.ok),
            J_STRING("version", f.version), J_STRING("path", f.path), J_STRING("place", f.place),
            J_STRING("note", f.why));
    }
    nnc_json_close(w, ']');
    nnc_json_open(w, "mismatches", '[');
    each_mismatch(w, NULL);
    nnc_json_close(w, ']');
    nnc_json_open(w, "gpus", '[');
    NNC_OWNED(nnc_sink) *why = nnc_sink_create();
    int n = nnc_cuda_devices(d, MAX_GPUS, why);
    for (int i = 0; i < n && i < MAX_GPUS; i++) {
        NNC_LOCAL(nnc_text) limits = {0}, fails = {0};
        nnc_cuda_limits(&limits, i);
        if (!nnc_cuda_try(i, &fails))
            nnc_text_clear(&fails);
        const char *now = nnc_text_str(&limits);
        NNC_JSON_OBJECT(w, NULL, J_INT("sm", d[i].sm), J_INT("sms", d[i].sms),
            J_INT("memory_bytes", d[i].memory_bytes), J_STRING("name", d[i].name),
            J_STRING("pci", d[i].pci), J_STRING("now", *now ? now + 2 : ""),
            J_STRING("note", nnc_text_str(&fails)));
    }
    nnc_json_close(w, ']');
    if (why && nnc_sink_count(why))
        NNC_JSON(w, J_STRING("note", nnc_sink_at(why, 0)->message));
    nnc_json_close(w, '}');
}

void nnc_doctor_cuda_text(nnc_text *t)
{
    text_libraries(t);
    each_mismatch(NULL, t);
    text_gpus(t);
}

void nnc_devices_cuda_text(const nnc_target *g, nnc_text *t)
{
    nnc_printf(t, "  %s: %s, %d SMs of %d threads at %.0f MHz; memory ", g->name,
        *g->card ? g->card : "a GPU", g->sms, g->sm_threads, (double)g->clock_hz * 1e-6);
    nnc_put_bytes(t, g->memory_bytes);
    nnc_puts(t, ", L2 ");
    nnc_put_bytes(t, g->l3_bytes);
    nnc_puts(t, ", shared memory of a block ");
    nnc_put_bytes(t, g->shared_bytes);
    nnc_printf(t, "\n  peak %.1f TFLOP/s (f32)", (double)g->flops_f32 * 1e-12);
    if (g->flops_tf32)
        nnc_printf(t, ", %.0f (tf32)", (double)g->flops_tf32 * 1e-12);
    if (g->flops_f16)
        nnc_printf(t, ", %.0f (f16)", (double)g->flops_f16 * 1e-12);
    nnc_printf(t, ", copies %.0f GB/s; %s\n", (double)g->copy_bytes_s * 1e-9,
        g->measured ? "measured"
        : g->asked
            ? "numbers reported by the driver, peaks scaled from the architecture's data sheet"
            : "described, not measured");
    nnc_puts(t, "  plans assume ");
    nnc_target_put_libraries(t, g);
    nnc_putc(t, '\n');
}
