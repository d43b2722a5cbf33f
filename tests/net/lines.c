/* tests/net/lines.c -- command lines at random, and files of every kind with damaged bytes. Each ends with a documented exit code and
 * says why, and never with a signal or 70. The flags are those that `nnc COMMAND --help` lists. */
#include "net.h"
#include "test.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LINES = 600, LINES_SANITIZED = 160, SECONDS = 120 };

typedef struct lines {
    uint64_t key, count;
    const char *dir;
    const char *argv[24];
    char word[24][700];
    int n;
    nnc_text *why;
} lines;

static uint32_t roll(lines *l, uint32_t n)
{
    return (uint32_t)((uint64_t)nnc_rng_u32(l->key, l->count++) * n >> 32);
}

static void word(lines *l, const char *fmt, ...) NNC_PRINTF(2, 3);
static void word(lines *l, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(l->word[l->n], sizeof l->word[0], fmt, ap);
    va_end(ap);
    l->argv[l->n] = l->word[l->n];
    l->argv[++l->n] = NULL;
}

/* ---- files ------------------------------------------------------------------------------------------------------------------- */

static const char model[] =
    "{\"args\": {\"n\": 2}, \"inputs\": {\"x\": [\"n\", 3]}, \"layers\": [{\"op\": \"linear\", "
    "\"name\": "
    "\"fc\", \"out\": 2}, {\"op\": \"relu\", \"name\": \"relu\"}], \"outputs\": [\"relu\", \"x\"]}";

static bool put_file(const lines *l, const char *name, const void *data, size_t n)
{
    char path[400];
    nnc_sink *sink = nnc_sink_create();
    snprintf(path, sizeof path, "%s/%s", l->dir, name);
    bool ok = nnc_file_write(path, data, n, false, sink) == NNC_OK;
    nnc_sink_destroy(sink);
    return ok;
}

/* The weights of the model above, as a safetensors file. */
static bool put_weights(const lines *l)
{
    static const char header[] =
        "{\"fc.weight\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
        "\"fc.bias\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[24,32]}}";
    char file[8 + sizeof header - 1 + 32] = {(char)(sizeof header - 1)};
    memcpy(file + 8, header, sizeof header - 1);
    return put_file(l, "w.safetensors", file, sizeof file);
}

static int command(const lines *l, nnc_text *out, nnc_text *err)
{
    return net_command(l->dir, l->argv, out, err);
}

/* One of each kind: a model, its artifact, weights, an input, a machine and graph text. */
static bool make_files(lines *l)
{
    static const char *const make[][6] = {
        {"nnc", "compile", "m.json", "-o", "m.nnc"},
        {"nnc", "run", "m.json", "--iterations=1", "--output=x=y.npy"},
        {"nnc", "devices", "--format=json", "--threads=2", NULL},
        {"nnc", "sweep", "m.json", "--set=n=1,2", "-orows.json", "--duration=1"},
        {"nnc", "opt", "m.json", "-O0", NULL},
    };
    static const char *const keep[] = {NULL, NULL, "machine.json", NULL, "m.txt"};
    if (access("m.txt", R_OK) == 0)
        return true;
    bool ok = put_file(l, "m.json", model, sizeof model - 1) && put_weights(l) &&
              put_file(l, "x.npy", "", 0);
    mkdir("folder", 0700);
    for (size_t i = 0; ok && i < NNC_COUNT(make); i++) {
        nnc_text out = {0}, err = {0};
        for (l->n = 0; l->n < 6 && make[i][l->n];)
            word(l, "%s", make[i][l->n]);
        ok = command(l, &out, &err) == 0 && (!keep[i] || put_file(l, keep[i], out.s, out.n));
        if (!ok)
            nnc_printf(
                l->why, "the files are not made: nnc %s: %s", make[i][1], nnc_text_str(&err));
        nnc_text_deinit(&out);
        nnc_text_deinit(&err);
    }
    l->n = 0;
    return ok;
}

/* A file cut off, or with bytes changed, as bad.FILE. */
static bool damage_file(lines *l, const char *name)
{
    char *p = NULL, bad[64];
    size_t n = 0;
    nnc_sink *sink = nnc_sink_create();
    bool ok = nnc_file_read(name, 0, &p, &n, sink) == NNC_OK && n > 0;
    nnc_sink_destroy(sink);
    if (ok && roll(l, 3) == 0)
        n = roll(l, (uint32_t)n);
    else
        for (uint32_t k = 1 + roll(l, 3); ok && k > 0; k--)
            p[roll(l, (uint32_t)n)] ^= (char)(1 << roll(l, 8));
    snprintf(bad, sizeof bad, "bad.%s", name);
    ok = ok && put_file(l, bad, p, n);
    nnc_free(p);
    return ok;
}

/* ---- lines ------------------------------------------------------------------------------------------------------------------- */

/* A flag of the command, from its help text, without its value. */
static bool random_flag(lines *l, const char *name, char flag[64])
{
    char command_name[16], help[] = "--help";
    const char *argv[] = {"nnc", command_name, help, NULL};
    nnc_text out = {0}, err = {0};
    int n = 0;
    snprintf(command_name, sizeof command_name, "%s", name);
    if (net_command(l->dir, argv, &out, &err) != 0)
        nnc_text_clear(&out);
    for (int pass = 0, pick = 0; pass<2; pass++, pick = n> 0 ? (int)roll(l, (uint32_t)n) : 0, n = 0)
        for (const char *p = nnc_text_str(&out); (p = strstr(p, "\n  -")) != NULL; p++)
            if (n++ == pick && pass == 1)
                snprintf(flag, 64, "%.*s", (int)strcspn(p + 3, " =\n0"), p + 3);
    nnc_text_deinit(&out);
    nnc_text_deinit(&err);
    return n > 0;
}

static const char *value(lines *l)
{
    static const char *const values[] = {"", "0", "1", "2", "3", "-1", "99999999999999999999",
        "1e400", "nan", "x", "n=3", "n=1..4x2", "n=2,1", "1,2", "on,off", "f32,f16", "rows.json",
        "n=", "=1", "n=a=b", "x=y.npy", "relu=o.npy", "x=m.json", "/dev/null/f", "folder", "m.json",
        "m.nnc", "w.safetensors", "machine.json", "m.txt", "cpu", "cuda:sm_90", "cuda:sm_1", "cuda",
        "all", "dce,cse", ",", "dce,,cse", "exact", "fast", "f16", "f64", "json", "csv", "text",
        "graph", "kernels", "cuda ", "llvm", "asm", "ptx", "remarks", "include", "both", "%s%n",
        "\xff\xfe", " ", "true"};
    return values[roll(l, NNC_COUNT(values))];
}

static void random_line(lines *l)
{
    static const char *const names[] = {"compile", "run", "compare", "explain", "memory", "profile",
        "partition", "verify", "train", "sweep", "show", "check", "opt", "layers", "ops", "passes",
        "devices", "doctor", "nothing", ""};
    static const char *const files[] = {"m.json", "m.json", "m.json", "m.nnc", "m.txt",
        "w.safetensors", "machine.json", "x.npy", "folder", "missing", "", "/dev/null", "y.npy"};
    const char *name = names[roll(l, NNC_COUNT(names) * 3) % NNC_COUNT(names)];
    bool file_first = roll(l, 3) > 0;
    word(l, "nnc");
    word(l, "%s", name);
    if (file_first && roll(l, 8))
        word(l, "%s", files[roll(l, NNC_COUNT(files))]);
    for (uint32_t k = roll(l, 4); k > 0; k--) {
        char flag[64] = "--bogus";
        if (roll(l, 10))
            random_flag(l, name, flag);
        switch (roll(l, 4)) {
        case 0: word(l, "%s", flag); break;
        case 1:
            word(l, "%s", flag);
            word(l, "%s", value(l));
            break;
        default: word(l, "%s%s%s", flag, flag[1] == '-' ? "=" : "", value(l));
        }
        if (roll(l, 8) == 0) /* twice */
            word(l, "%s", l->argv[l->n - 1]);
    }
    if (!file_first)
        word(l, "%s", files[roll(l, NNC_COUNT(files))]);
    if (!strcmp(name, "sweep") && roll(l, 4))
        word(l, "--set=n=1,2");
    if (!strcmp(name, "run") || !strcmp(name, "compare") || !strcmp(name, "sweep") ||
        !strcmp(name, "profile"))
        word(l, "--duration=1");
}

/* A command on a damaged file of some kind. */
static bool damaged_line(lines *l)
{
    static const struct {
        const char *file, *commands[4],
            *as; /* as: the flag that takes the file; NULL: it is the model */
    } kinds[] = {
        {"m.json", {"check", "show", "explain", "run"}, NULL},
        {"m.txt", {"check", "opt", "explain", "compile"}, NULL},
        {"m.nnc", {"run", "explain", "memory", "show"}, NULL},
        {"machine.json", {"explain", "memory", "compile", "devices"}, "--target="},
        {"rows.json", {"sweep", "sweep", "sweep", "sweep"}, "-o"},
        {"y.npy", {"run", "run", "compare", "run"}, "--input=x="},
        {"w.safetensors", {"run", "check", "show", "compile"}, "--weights="},
    };
    uint32_t kind = roll(l, NNC_COUNT(kinds));
    const char *name = kinds[kind].commands[roll(l, 4)];
    word(l, "nnc");
    word(l, "%s", name);
    if (!kinds[kind].as)
        word(l, "bad.%s", kinds[kind].file);
    else if (strcmp(name, "devices") != 0)
        word(l, "m.json");
    if (kinds[kind].as)
        word(l, "%sbad.%s", kinds[kind].as, kinds[kind].file);
    if (!strcmp(name, "run") || !strcmp(name, "compare"))
        word(l, "--iterations=1");
    if (!strcmp(name, "sweep"))
        word(l, "--duration=1");
    if (!strcmp(name, "sweep"))
        word(l, "--set=n=1,2");
    if (!strcmp(name, "compile"))
        word(l, "--emit=plan");
    return damage_file(l, kinds[kind].file);
}

static bool check_line(uint64_t i, const char *dir, void *ctx, nnc_text *why)
{
    lines l = {.key = nnc_rng_key("net_lines", test_seed + i), .dir = dir, .why = why};
    nnc_text out = {0}, err = {0};
    (void)ctx;
    net_surroundings(dir);
    if (chdir(dir) != 0 || !make_files(&l))
        return false;
    if (i % 2)
        random_line(&l);
    else if (!damaged_line(&l))
        return nnc_puts(why, "no damaged file"), false;
    int code = command(&l, &out, &err);
    bool compares = l.n > 1 && (!strcmp(l.argv[1], "compare") || !strcmp(l.argv[1], "verify")),
         ok = code == 0 || (code == 1 && compares) || (code >= 2 && code <= 5 && err.n > 0);
    if (!ok) {
        nnc_printf(why, "exit code %d%s:\n ", code, err.n ? "" : " without a message");
        for (int k = 0; k < l.n; k++)
            nnc_printf(why, " '%s'", l.argv[k]);
        nnc_printf(why, "\n%.3000s", nnc_text_str(&err));
    }
    nnc_text_deinit(&out);
    nnc_text_deinit(&err);
    return ok;
}

static void line_failed(uint64_t i, const char *why, void *ctx)
{
    (void)ctx;
    test_fail(__FILE__, __LINE__, "line %llu (--seed %llu): %s", (unsigned long long)i,
        (unsigned long long)test_seed, why);
}

/* NNC_NET_LINES=N: so many of them. */
TEST(command_lines)
{
    const char *n = getenv("NNC_NET_LINES");
    net_run(0,
        n               ? strtoull(n, NULL, 0)
        : api_sanitized ? LINES_SANITIZED
                        : LINES,
        2, SECONDS, check_line, NULL, line_failed);
}
