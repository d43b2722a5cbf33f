/* tests/cuda_fake/kernels.c -- NVRTC whose machine code is the source; loading it builds it with the C++ compiler and the header of
 * tests/cudac, once for each source and process. What a kernel reads and writes stands in the comment above it. */
#include "cxx.h"
#include "fake.h"
#include "test.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- NVRTC --------------------------------------------------------------------------------------------------------- */

struct nvrtc_program_of {
    char *source;
};

static int version(int *major, int *minor)
{
    *major = 13;
    *minor = 0;
    return 0;
}

static const int archs[] = {75, 80, 90, 100, 120};

static int n_archs(int *n)
{
    *n = (int)NNC_COUNT(archs);
    return 0;
}

static int get_archs(int *arch)
{
    memcpy(arch, archs, sizeof archs);
    return 0;
}

static int create(nvrtc_program *p, const char *source, const char *name, int n_header,
    const char *const *headers, const char *const *header_names)
{
    (void)name;
    (void)headers;
    (void)header_names;
    *p = malloc(sizeof **p);
    (*p)->source = strdup(source);
    return n_header != 0;
}

static int destroy(nvrtc_program *p)
{
    free((*p)->source);
    free(*p);
    *p = NULL;
    return 0;
}

static int compile(nvrtc_program p, int n_option, const char *const *option)
{
    bool arch = false;
    for (int i = 0; i < n_option; i++)
        arch |= strncmp(option[i], "-arch=", 6) == 0;
    return p->source && arch ? 0 : 5;
}

static int code_size(nvrtc_program p, size_t *n)
{
    *n = strlen(p->source) + 1;
    return 0;
}

static int get_code(nvrtc_program p, char *out)
{
    memcpy(out, p->source, strlen(p->source) + 1);
    return 0;
}

static int log_size(nvrtc_program p, size_t *n)
{
    (void)p;
    *n = 0;
    return 0;
}

static int get_log(nvrtc_program p, char *out)
{
    (void)p;
    (void)out;
    return 0;
}

static const char *error_string(int error)
{
    return error ? "the fake NVRTC refuses" : "no error";
}

const nnc_cuda_nvrtc fake_nvrtc = {
    .nvrtcVersion = version,
    .nvrtcGetErrorString = error_string,
    .nvrtcGetNumSupportedArchs = n_archs,
    .nvrtcGetSupportedArchs = get_archs,
    .nvrtcCreateProgram = create,
    .nvrtcDestroyProgram = destroy,
    .nvrtcCompileProgram = compile,
    .nvrtcGetCUBINSize = code_size,
    .nvrtcGetCUBIN = get_code,
    .nvrtcGetPTXSize = code_size,
    .nvrtcGetPTX = get_code,
    .nvrtcGetProgramLogSize = log_size,
    .nvrtcGetProgramLog = get_log,
};

/* ---- building ------------------------------------------------------------------------------------------------------ */

enum { MOST_BUILT = 512 };
static struct built {
    nnc_hash128 hash;
    void *lib;
} built[MOST_BUILT];
static int n_built;

static void *open_source(const char *source)
{
    size_t n = strlen(source);
    nnc_hash128 h = nnc_hash(source, n);
    for (int i = 0; i < n_built; i++)
        if (built[i].hash.lo == h.lo && built[i].hash.hi == h.hi)
            return built[i].lib;
    void *lib = cxx_build(source, n, "-Og");
    fake_count.kernels_built += lib != NULL;
    if (lib && n_built < MOST_BUILT)
        built[n_built++] = (struct built){h, lib};
    return lib;
}

/* ---- what the comments say ----------------------------------------------------------------------------------------- */

/* strstr without the sanitizer's byte by byte search for the text's end: a sixth of the time with sources of models. */
static const char *text_at(const char *s, const char *part)
{
    return memmem(s, strlen(s), part, strlen(part));
}

/* The buffers of a line "reads   x0 f32[64,...], 4 KB; x1 ..." of kernel k's comment: x of an argument read, y of one written. */
static bool read_buffers(
    const char *begin, const char *end, char letter, fake_kernel *k, fake_shape *of, int *n)
{
    *n = 0;
    for (const char *p = begin; p < end; p++) {
        int number, used = 0;
        char type[16];
        long long numel;
        if (*p != letter || p == begin || p[-1] != ' ' ||
            sscanf(p, "%*c%d %15[a-z0-9][%lld]%n", &number, type, &numel, &used) != 3 || !used)
            continue;
        nnc_dtype d;
        if (number != *n || k->n_in + k->n_out >= FAKE_ARGS ||
            !nnc_dtype_parse(type, strlen(type), &d))
            return false;
        of->bytes[letter == 'x' ? *n : k->n_in + *n] = (size_t)numel * (size_t)nnc_dtype_size(d);
        ++*n;
    }
    return true;
}

/* Sizes are the parameters behind the pointers. */
static bool read_sizes(const char *p, const char *close, fake_kernel *k)
{
    static const struct {
        const char *type;
        int bytes;
    } types[] = {{"const int n", 4}, {"const nnc_size n", 12}, {"const nnc_power n", 8},
        {"const float f", 4}};
    for (; p < close && k->n_size < FAKE_SIZES; p++)
        for (size_t i = 0; i < NNC_COUNT(types); i++)
            if (!strncmp(p, types[i].type, strlen(types[i].type)) &&
                atoi(p + strlen(types[i].type)) == k->n_size) {
                k->is_float[k->n_size] = i == 3;
                k->size_bytes[k->n_size++] = types[i].bytes;
                break;
            }
    return k->n_size < FAKE_SIZES;
}

/* The next kernel at or after *at; false: no more, or the text is not what it should be. */
static bool next_kernel(const char **at, fake_kernel *k)
{
    const char *head = "extern \"C\" __global__ void __launch_bounds__(";
    const char *p = text_at(*at, head);
    if (!p)
        return false;
    k->max_threads = atoi(p + strlen(head));
    p = strchr(p, '\n') + 1;
    size_t n = strcspn(p, "(");
    if (n >= sizeof k->name)
        return false;
    memcpy(k->name, p, n);
    k->name[n] = 0;
    const char *close = strchr(p, ')');
    k->work = memmem(p, (size_t)(close - p), "char *__restrict__ work", 23) != NULL;
    *at = close;
    return read_sizes(p, close, k);
}

/* The values of "code      k_name: n0 = 64, f1 = -0.5f": at begins behind the name. */
static bool read_values(const char *at, const fake_kernel *k, fake_shape *to)
{
    const char *end = strchr(at, '\n');
    for (int i = 0; i < k->n_size; i++) {
        at = text_at(at, " = ");
        if (!at || at > end)
            return false;
        at += 3;
        const float x = strtof(at, NULL);
        to->size[i] = (uint32_t)strtol(at, NULL, 10);
        if (k->is_float[i])
            memcpy(&to->size[i], &x, sizeof x);
    }
    at = text_at(at, " = ");
    return !at || at > end;
}

static bool read_shape(const char *begin, const char *values, bool finish, fake_kernel *k)
{
    const char *end = text_at(begin, "*/"), *reads = text_at(begin, " *   reads"),
               *writes = text_at(begin, " *   writes"), *how = text_at(begin, " *   schedule");
    k->shape = realloc(k->shape, sizeof *k->shape * (size_t)(k->n_shape + 1));
    fake_shape *to = &k->shape[k->n_shape++];
    *to = (fake_shape){0};
    k->n_in = k->n_out = 0;
    if (!end || !writes || writes > end)
        return false;
    if (!finish && values && (sscanf(how, " * schedule %*[^:]: %lld", &to->blocks) != 1))
        return false;
    if (reads && reads < end && !read_buffers(reads, strchr(reads, '\n'), 'x', k, to, &k->n_in))
        return false;
    return read_buffers(writes, strchr(writes, '\n'), 'y', k, to, &k->n_out) && k->n_out > 0 &&
           (!values || read_values(values, k, to));
}

/* Its comment stands above it, and above the kernel that finishes it; those of all kernels that share it name it. */
static bool read_comments(const char *source, fake_kernel *k)
{
    char head[240], code[240];
    size_t n = strlen(k->name);
    const bool finish = n > 7 && strcmp(k->name + n - 7, "_finish") == 0;
    n -= finish ? 7 : 0;
    snprintf(head, sizeof head, "/* %.*s\n", (int)n, k->name);
    snprintf(code, sizeof code, "\n *   code      %.*s", (int)n, k->name);
    const char *begin = text_at(source, head);
    if (begin)
        return read_shape(begin, NULL, finish, k);
    for (const char *p = source; (p = text_at(p, code)) != NULL;) {
        for (begin = p; begin > source && strncmp(begin, "/* k_", 5) != 0; begin--)
            ;
        p += strlen(code);
        if ((*p == ':' || *p == '\n') && !read_shape(begin, p, finish, k))
            return false;
    }
    return k->n_shape > 0;
}

/* Bytes of the arrays that the kernel's text, up to `end`, keeps in static shared memory: TYPE name[N] or name[N][M]. */
static size_t static_bytes(const char *text, const char *end)
{
    static const struct {
        const char *name;
        size_t bytes;
    } types[] = {{"double", 8}, {"long long", 8}, {"float", 4}, {"int", 4}, {"nnc_f16", 2},
        {"nnc_bf16", 2}, {"nnc_bool", 1}, {"bool", 1}, {"short", 2}, {"unsigned short", 2},
        {"unsigned int", 4}, {"signed char", 1}, {"unsigned char", 1}, {"unsigned long long", 8},
        {"unsigned", 4}};
    size_t sum = 0;
    for (const char *p = text; (p = text_at(p, "__shared__ ")) != NULL && p < end; p++) {
        long n = 0, m = 1;
        const char *type = p + strlen("__shared__ "), *dims = strchr(type, '[');
        size_t size = 0;
        for (size_t i = 0; i < NNC_COUNT(types) && !size; i++)
            if (!strncmp(type, types[i].name, strlen(types[i].name)))
                size = types[i].bytes;
        if (!size || !dims || sscanf(dims, "[%ld][%ld]", &n, &m) < 1)
            fake_wrong("a static array is not as the fake runtime expects it: %.60s", p);
        sum += (size * (size_t)n * (size_t)m + 15) / 16 * 16;
    }
    return sum;
}

static bool find(void *lib, const char *name, const char *suffix, void *to)
{
    char symbol[200];
    snprintf(symbol, sizeof symbol, "%s%s", name, suffix);
    void *p = dlsym(lib, symbol);
    memcpy(to, &p, sizeof p);
    return p != NULL;
}

int fake_library_load(const char *code, fake_library **out)
{
    enum { INVALID_IMAGE = 200 };
    const char *at = code;
    fake_kernel k = {0};
    void *lib = open_source(code);
    fake_library *l = calloc(1, sizeof *l);
    *out = l;
    bool ok = lib != NULL;
    while (ok && next_kernel(&at, &k)) {
        ok = read_comments(code, &k) && find(lib, k.name, "_thunk", &k.thunk) &&
             find(lib, "shim_launch", "", &k.launch);
        const char *next = text_at(at, "extern \"C\" __global__");
        k.static_bytes = static_bytes(at, next ? next : at + strlen(at));
        if (!ok)
            fake_wrong("kernel %s is not as the fake runtime expects it", k.name);
        l->k = realloc(l->k, sizeof *l->k * (size_t)(l->n + 1));
        l->k[l->n++] = k;
        k = (fake_kernel){0};
    }
    if (ok && l->n)
        return 0;
    fake_library_unload(l);
    *out = NULL;
    return INVALID_IMAGE;
}

void fake_library_unload(fake_library *l)
{
    for (int i = 0; l && i < l->n; i++)
        free(l->k[i].shape);
    free(l->k);
    free(l);
}
