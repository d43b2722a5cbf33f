/* report/dump.c -- every stage of a compiled model as files in a folder, for reading. */
#include "report/report.h"
#include "session/session.h"
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

typedef struct dump {
    nnc_env *e;
    const nnc_artifact *a;
    const char *dir;
    nnc_sink *sink;
} dump;

static nnc_status write_file(const dump *d, const char *name, const void *data, size_t n)
{
    char path[4096];
    if (snprintf(path, sizeof path, "%s/%s", d->dir, name) >= (int)sizeof path)
        return nnc_fail(d->sink, NNC_E_IO, (nnc_loc){.file = d->dir}, "the path is too long");
    return nnc_file_write(path, data, n, false, d->sink);
}

static nnc_status write_text(const dump *d, const char *name, const nnc_text *t)
{
    return t->oom ? nnc_nomem(d->sink) : write_file(d, name, nnc_text_str(t), t->n);
}

static nnc_status stage(const dump *d, const char *what, const char *name)
{
    NNC_LOCAL(nnc_text) t = {0};
    NNC_TRY(nnc_emit_text(d->e, d->a, what, &t, d->sink));
    return write_text(d, name, &t);
}

static nnc_status unit(
    const dump *d, const nnc_unit *u, int number, nnc_emit what, const char *ending)
{
    NNC_LOCAL(nnc_text) t = {0};
    char name[32];
    snprintf(name, sizeof name, "unit%d.%s", number, ending);
    NNC_TRY(nnc_cuda_emit_unit(d->e, d->a, u, what, &t, d->sink));
    return write_text(d, name, &t);
}

/* Either all units have code or none has (no NVRTC), and then only sources are written. */
static nnc_status units(const dump *d)
{
    const nnc_plan *p = d->a->plan;
    NNC_LOCAL(nnc_text) code = {0};
    NNC_FREED nnc_unit *list = NULL;
    int n = nnc_plan_units(p, true, NNC_UNIT_FUNCTIONS, &list);
    if (n < 0)
        return nnc_nomem(d->sink);
    for (int u = 0; u < n; u++) {
        char name[32];
        const nnc_blob *object = nnc_pkernel_code(p, &p->kernel[list[u].kernel[0]]);
        const int sm = nnc_target_on(d->e->target, d->e->n_target, list[u].device)->sm;
        NNC_TRY(unit(d, &list[u], u, EMIT_cuda, "cu"));
        NNC_TRY(nnc_cuda_describe(p, &list[u], u, sm, &code, d->sink));
        if (!object)
            continue;
        NNC_TRY(unit(d, &list[u], u, EMIT_ptx, "ptx"));
        if (!(object->n > 4 && !memcmp(object->data, "\177ELF", 4)))
            continue;
        snprintf(name, sizeof name, "unit%d.cubin", u);
        NNC_TRY(write_file(d, name, object->data, object->n));
    }
    return code.n ? write_text(d, "code.txt", &code) : NNC_OK;
}

nnc_status nnc_dump(nnc_env *e, const nnc_artifact *a, const char *dir, nnc_sink *sink)
{
    dump d = {e, a, dir, sink};
    if (mkdir(dir, 0777) != 0 && errno != EEXIST)
        return nnc_fail(
            sink, NNC_E_IO, (nnc_loc){.file = dir}, "cannot make the folder: %s", strerror(errno));
    NNC_TRY(stage(&d, "graph", "graph.txt"));
    NNC_TRY(stage(&d, "plan", "plan.txt"));
    NNC_TRY(stage(&d, "kernels", "kernels.txt"));
    NNC_TRY(stage(&d, "remarks", "remarks.json"));
    if (nnc_env_has(e, NNC_T_cuda))
        NNC_TRY(units(&d));
    if (!nnc_env_has(e, NNC_T_cpu) || !nnc_env_emits(e, NULL))
        return NNC_OK;
    NNC_TRY(stage(&d, "llvm", "kernels.ll"));
    return stage(&d, "asm", "kernels.s");
}
