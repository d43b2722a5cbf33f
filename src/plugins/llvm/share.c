/* plugins/llvm/share.c -- kernels that differ only in sizes share their machine code.
 *
 * LLVM takes some twenty times as long for a function as building its IR does, and a net has the same layer in many sizes. So where an
 * extent, a stride or an offset stands in the IR of an object, it is the address of an absolute symbol n0, n1, ... It is still an immediate
 * or a displacement of the instruction that uses it, but one that LLVM does not know. Kernels whose IR is then identical get the same code,
 * which is compiled once. Each kernel's object defines the symbols as its own sizes, and depends on this kernel only. Choices that decide
 * how code is written (unrolled loops, tails, which guards stand) show in the IR. */
#include "plugins/llvm/internal.h"

#include <elf.h>
#include <llvm-c/BitWriter.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- sizes as symbols --------------------------------------------------------------------------------------------- */

#define SIZE_END (INT64_C(1) << 31)

/* A symbol whose address v is in [lo, hi); both -1: any. */
static V symbol(ll_mod *m, int64_t v, int64_t lo, int64_t hi)
{
    char name[16];
    if (m->n_size == m->cap_size) {
        const int cap = m->cap_size ? 2 * m->cap_size : 64;
        int64_t *size = nnc_realloc(m->size, (size_t)cap * sizeof *size);
        if (!size) {
            m->oom = true;
            return ll_i64(m, v);
        }
        m->size = size;
        m->cap_size = cap;
    }
    snprintf(name, sizeof name, "n%d", m->n_size);
    V g = LLVMAddGlobal(m->m, m->i8, name);
    LLVMMetadataRef range[2] = {
        LLVMValueAsMetadata(ll_i64(m, lo)), LLVMValueAsMetadata(ll_i64(m, hi))};
    LLVMGlobalSetMetadata(g, LLVMGetMDKindIDInContext(m->c, "absolute_symbol", 15),
        LLVMMDNodeInContext2(m->c, range, 2));
    m->size[m->n_size++] = v;
    return LLVMConstPtrToInt(g, m->i64);
}

V ll_size(ll_mod *m, int64_t v)
{
    return m->shared && v >= 0 && v < SIZE_END ? symbol(m, v, 0, SIZE_END) : ll_i64(m, v);
}

V ll_offset(ll_mod *m, int64_t v)
{
    const bool fits = v >= -SIZE_END && v < SIZE_END;
    return m->shared && fits ? symbol(m, v, -SIZE_END, SIZE_END) : ll_i64(m, v);
}

/* For u < 2^31 the upper half of u times 2^64 / n, which is rounded up by less than 1: it is less than 2^-33 above u / n. */
V ll_quotient(ll_mod *m, V u, int64_t n)
{
    if (!m->shared || m->quick || n < 2 || n >= SIZE_END)
        return LLVMBuildUDiv(m->b, u, ll_size(m, n), "");
    const int64_t inverse = (int64_t)((UINT64_MAX / (uint64_t)n) + 1);
    T wide = LLVMIntTypeInContext(m->c, 128);
    V a = LLVMBuildZExt(m->b, u, wide, "");
    V b = LLVMBuildZExt(m->b, symbol(m, inverse, -1, -1), wide, "");
    V high = LLVMBuildLShr(m->b, LLVMBuildNUWMul(m->b, a, b, ""), LLVMConstInt(wide, 64, 0), "");
    return LLVMBuildTrunc(m->b, high, m->i64, "");
}

nnc_hash128 ll_code_key(const ll_mod *m, nnc_hash128 machine)
{
    LLVMMemoryBufferRef b = LLVMWriteBitcodeToMemoryBuffer(m->m);
    nnc_hash128 key[2] = {nnc_hash(LLVMGetBufferStart(b), LLVMGetBufferSize(b)), machine};
    LLVMDisposeMemoryBuffer(b);
    return nnc_hash(key, sizeof key);
}

/* ---- objects ------------------------------------------------------------------------------------------------------ */

/* Sets a symbol's value if it is one of the sizes, and restores the function's name. The object is LLVM's: it is well formed. */
static void define(const ll_mod *m, Elf64_Sym *s, char *names, const char *function)
{
    char *name = names + s->st_name, *end = name;
    const long i = *name == 'n' ? strtol(name + 1, &end, 10) : -1;
    if (s->st_shndx == SHN_UNDEF && i >= 0 && i < m->n_size && end > name + 1 && !*end) {
        s->st_shndx = SHN_ABS;
        s->st_value = (uint64_t)m->size[i];
    } else if (ELF64_ST_BIND(s->st_info) == STB_GLOBAL && s->st_shndx != SHN_UNDEF) {
        memcpy(name, function, strlen(function) + 1);
    }
}

void ll_define_sizes(const ll_mod *m, char *object, const char *function)
{
    Elf64_Ehdr h;
    Elf64_Shdr table, names;
    memcpy(&h, object, sizeof h);
    for (int i = 0; i < h.e_shnum; i++) {
        memcpy(&table, object + h.e_shoff + (size_t)i * sizeof table, sizeof table);
        if (table.sh_type != SHT_SYMTAB)
            continue;
        memcpy(&names, object + h.e_shoff + table.sh_link * sizeof names, sizeof names);
        for (size_t at = table.sh_offset; at < table.sh_offset + table.sh_size;
             at += sizeof(Elf64_Sym)) {
            Elf64_Sym s;
            memcpy(&s, object + at, sizeof s);
            define(m, &s, object + names.sh_offset, function);
            memcpy(object + at, &s, sizeof s);
        }
    }
}

/* ---- compiled code ------------------------------------------------------------------------------------------------ */

/* Objects by the key of their IR, kept for the process's lifetime. */
enum { MOST_CODE = 1024 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct code {
    nnc_hash128 key;
    char *bytes; /* NULL while it is compiled */
    size_t n;
} code[MOST_CODE];
static int n_code;

static struct code *find_code(nnc_hash128 key)
{
    for (int i = 0; i < n_code; i++)
        if (code[i].key.lo == key.lo && code[i].key.hi == key.hi)
            return &code[i];
    return NULL;
}

/* Adds an entry without code. Too many: those with code go. */
static void reserve_code(nnc_hash128 key)
{
    int kept = 0;
    for (int i = 0; i < n_code && n_code == MOST_CODE; i++) {
        if (code[i].bytes)
            nnc_free(code[i].bytes);
        else
            code[kept++] = code[i];
    }
    n_code = n_code == MOST_CODE ? kept : n_code;
    if (n_code < MOST_CODE)
        code[n_code++] = (struct code){.key = key};
}

enum ll_found ll_code_get(nnc_hash128 key, bool wait, char **out, size_t *n)
{
    struct code *c;
    pthread_mutex_lock(&lock);
    while ((c = find_code(key)) && !c->bytes && wait)
        pthread_cond_wait(&changed, &lock);
    const bool busy = c && !c->bytes;
    *out = c && !busy ? nnc_malloc(c->n + 1) : NULL;
    if (*out) {
        memcpy(*out, c->bytes, c->n + 1);
        *n = c->n;
    } else if (!c) {
        reserve_code(key);
    }
    pthread_mutex_unlock(&lock);
    return busy ? LL_BUSY : *out ? LL_FOUND : LL_NEW;
}

void ll_code_put(nnc_hash128 key, const char *bytes, size_t n)
{
    pthread_mutex_lock(&lock);
    struct code *c = find_code(key);
    if (c && !c->bytes) {
        c->bytes = bytes ? nnc_malloc(n + 1) : NULL;
        c->n = n;
        if (c->bytes)
            memcpy(c->bytes, bytes, n + 1);
        else
            *c = code[--n_code];
    }
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}
