/* bench/device/main.c -- bench_device: what a device reaches, one part at a time; bench/gpu.sh gives the parts and puts the results
 * together.
 *
 *     bench_device list      --cells=FILE
 *     bench_device machine   [--target=T]
 *     bench_device check     --out=DIR --cells=FILE [--only=FLAG] [--graphs=N]
 *     bench_device ceilings  --out=DIR [--duration=MS]
 *     bench_device run       --out=DIR --cells=FILE [--only=FLAG,...] [--duration=MS] [--warm=MS] [--tuning=FILE] [--traces=DIR]
 *     bench_device engines   --out=DIR --cells=FILE [--only=FLAG,...]
 *     bench_device graphs    --out=DIR --cells=FILE [--only=FLAG,...]
 *     bench_device compile   --cells=FILE --target=cuda:sm_NN --cache-dir=DIR
 *
 * --target=cuda (the default) or cpu; --cache-dir=DIR; --limit=SECONDS of one result; --turn=FILE, the lock of whoever uses the GPU.
 * --deadline=SECONDS from now, after which no more results are begun (exit code 75: another run goes on). Exit code 76: the device's
 * context died, another process goes on. A result that is there already is left alone. */
#include "device.h"
#include <stdlib.h>
#include <string.h>

static const struct part {
    const char *name;
    int (*run)(job *j);
    bool writes;
} parts[] = {
    {"list", part_list, false},
    {"machine", part_machine, false},
    {"check", part_check, true},
    {"ceilings", part_ceilings, true},
    {"run", part_run, true},
    {"engines", part_engines, true},
    {"graphs", part_graphs, true},
    {"compile", part_compile, false},
};

int part_list(job *j)
{
    cells c;
    nnc_text t = {0};
    nnc_status st = cells_read(j->cells, &c, j->sink);
    if (!st) {
        cells_json(&c, &t);
        fputs(nnc_text_str(&t), stdout);
    }
    nnc_sink_print(j->sink, stderr);
    nnc_text_deinit(&t);
    cells_deinit(&c);
    return nnc_exit_code(st);
}

/* The value of --name=value when `arg` is that. */
static const char *value_of(const char *arg, const char *name)
{
    size_t n = strlen(name);
    return !strncmp(arg, "--", 2) && !strncmp(arg + 2, name, n) && arg[2 + n] == '=' ? arg + 3 + n
                                                                                     : NULL;
}

static bool read_flag(job *j, const char *arg)
{
    const char *v;
    const struct {
        const char *name, **to;
    } words[] = {{"target", &j->target}, {"cache-dir", &j->cache_dir}, {"out", &j->results.folder},
        {"cells", &j->cells}, {"only", &j->only}, {"tuning", &j->tuning}, {"traces", &j->traces}};
    const struct {
        const char *name;
        int *to;
    } numbers[] = {{"duration", &j->duration_ms}, {"warm", &j->warm_ms}, {"graphs", &j->graphs},
        {"limit", &j->results.limit_s}};
    for (size_t i = 0; i < NNC_COUNT(words); i++)
        if ((v = value_of(arg, words[i].name)) != NULL) {
            *words[i].to = v;
            return true;
        }
    for (size_t i = 0; i < NNC_COUNT(numbers); i++)
        if ((v = value_of(arg, numbers[i].name)) != NULL) {
            *numbers[i].to = atoi(v);
            return *numbers[i].to >= 0;
        }
    if ((v = value_of(arg, "deadline")) != NULL)
        j->results.deadline_ns = nnc_now_ns() + atoll(v) * 1000000000;
    else if ((v = value_of(arg, "turn")) != NULL)
        return turn_open(&j->turn, v);
    else if ((v = value_of(arg, "most")) != NULL)
        j->most_bytes = atoll(v);
    return v != NULL;
}

int main(int argc, char **argv)
{
    job j = {.target = "cuda",
        .duration_ms = 60,
        .warm_ms = 200,
        .graphs = 200,
        .turn = -1,
        .results.limit_s = 60};
    const struct part *part = NULL;
    for (size_t i = 0; argc > 1 && i < NNC_COUNT(parts); i++)
        if (!strcmp(argv[1], parts[i].name))
            part = &parts[i];
    bool ok = part != NULL;
    for (int i = 2; ok && i < argc; i++)
        ok = read_flag(&j, argv[i]);
    ok = ok && (!part->writes || j.results.folder) &&
         (j.cells || part->run == part_machine || part->run == part_ceilings);
    if (!ok) {
        fputs("usage: bench_device list|machine|check|ceilings|run|engines|graphs|compile "
              "[--target=cuda|cpu] "
              "[--out=DIR] "
              "[--cells=FILE] [--only=FLAG,...] [--tuning=FILE] [--traces=DIR] [--turn=FILE]\n"
              "  [--cache-dir=DIR] [--duration=MS] [--warm=MS] [--graphs=N] [--most=BYTES] "
              "[--limit=S] "
              "[--deadline=S]\n",
            stderr);
        return nnc_exit_code(NNC_E_USAGE);
    }
    j.sink = nnc_sink_create();
    int code = j.sink ? part->run(&j) : nnc_exit_code(NNC_E_NOMEM);
    nnc_sink_destroy(j.sink);
    return code;
}
