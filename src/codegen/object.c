/* codegen/object.c -- loads the LLVM emitter's relocatable objects without LLVM. ELF for x86-64 or AArch64: code and constants, PC-relative
 * relocations, calls of a few libm functions through stubs. Objects come from caches and artifacts, so nothing in them is trusted. Every
 * offset, size, index, name and relocation is checked against the file. Anything unsupported is rejected with a reason. (The code itself
 * cannot be checked: trust the artifact's origin.) Memory is never writable and executable at once. References: System V ABI, AMD64
 * supplement; ELF for the Arm 64-bit Architecture (IHI 0056). */
#include "codegen/codegen.h"

#include <elf.h>
#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct nnc_object {
    uint8_t *map; /* code pages, then read-only pages */
    size_t size;
    char *names; /* copy of the string table, NUL at its end */
    struct symbol {
        const char *name;
        void *at;
    } * sym;
    size_t n_sym;
    nnc_object *before; /* an object whose functions this one may call, or NULL */
};

#if defined __LP64__ && (defined __x86_64__ || defined __aarch64__)

#define MAX_SECTIONS 4096
#define STUB 16 /* bytes of a stub: a jump and the function's address */
#define MAX_CALLS 16 /* most stubs for functions of other objects */
#if defined __x86_64__
#define MACHINE EM_X86_64
#define MACHINE_NAME "x86-64"
#define MAX_MAP ((size_t)1 << 30)
static const uint8_t jump[8] = {0xff, 0x25, 2, 0, 0, 0, 0x0f, 0x0b}; /* jmp *2(%rip); ud2 */
#else
#define MACHINE EM_AARCH64
#define MACHINE_NAME "AArch64"
#define MAX_MAP ((size_t)1 << 27) /* what a call reaches */
static const uint8_t jump[8] = {0x50, 0, 0, 0x58, 0, 2, 0x1f, 0xd6}; /* ldr x16, 8; br x16 */
#endif

/* Functions that emitted code may call. */
#define FN1(f) \
    { \
#f, (void (*)(void))(double (*)(double))f \
    }
#define FN2(f) \
    { \
#f, (void (*)(void))(double (*)(double, double))f \
    }
static const struct {
    const char *name;
    void (*fn)(void);
} imports[] = {
    FN1(acos),
    FN1(asin),
    FN1(atan),
    FN1(cos),
    FN1(cosh),
    FN1(erf),
    FN1(erfc),
    FN1(exp),
    FN1(exp2),
    FN1(expm1),
    FN1(log),
    FN1(log1p),
    FN1(log2),
    FN1(sin),
    FN1(sinh),
    FN1(tan),
    FN1(tanh),
    FN2(fmod),
    FN2(pow),
    {"fmodf", (void (*)(void))(float (*)(float, float))fmodf},
    {"memcpy", (void (*)(void))memcpy},
    {"memmove", (void (*)(void))memmove},
    {"memset", (void (*)(void))memset},
};
#define N_IMPORTS (sizeof imports / sizeof imports[0])

typedef struct loading {
    const uint8_t *bytes;
    size_t n;
    const char *why;
    Elf64_Shdr *sec; /* aligned copies of the tables */
    size_t n_sec;
    size_t *at; /* offset of each section in the map; SIZE_MAX: not loaded */
    Elf64_Sym *sym;
    size_t n_sym, symtab;
    const char *str; /* the symbols' string table */
    size_t n_str;
    size_t stubs, zeros; /* offsets in the map */
    size_t calls; /* stubs of functions of other objects */
    size_t text_end;
    size_t end; /* end of the section table, which comes last */
    nnc_object *o;
} loading;

static bool no(loading *l, const char *why)
{
    l->why = why;
    return false;
}

static bool inside(const loading *l, uint64_t offset, uint64_t size)
{
    return offset <= l->n && size <= l->n - offset;
}

static bool read_header(loading *l)
{
    Elf64_Ehdr h;
    if (l->n < sizeof h)
        return no(l, "the object is shorter than an ELF header");
    memcpy(&h, l->bytes, sizeof h);
    if (memcmp(h.e_ident, ELFMAG, SELFMAG) || h.e_ident[EI_CLASS] != ELFCLASS64 ||
        h.e_ident[EI_DATA] != ELFDATA2LSB)
        return no(l, "not a 64-bit little-endian ELF file");
    if (h.e_type != ET_REL || h.e_machine != MACHINE)
        return no(l, "not a relocatable " MACHINE_NAME " object");
    if (h.e_shentsize != sizeof(Elf64_Shdr) || h.e_shnum == 0 || h.e_shnum > MAX_SECTIONS ||
        !inside(l, h.e_shoff, (uint64_t)h.e_shnum * sizeof(Elf64_Shdr)))
        return no(l, "the section table lies outside the object");
    l->n_sec = h.e_shnum;
    l->end = h.e_shoff + l->n_sec * sizeof(Elf64_Shdr);
    l->sec = nnc_malloc(l->n_sec * sizeof *l->sec);
    l->at = nnc_malloc(l->n_sec * sizeof *l->at);
    if (!l->sec || !l->at)
        return no(l, NULL);
    memcpy(l->sec, l->bytes + h.e_shoff, l->n_sec * sizeof *l->sec);
    for (size_t i = 1; i < l->n_sec; i++)
        if (l->sec[i].sh_type != SHT_NOBITS && l->sec[i].sh_type != SHT_NULL &&
            !inside(l, l->sec[i].sh_offset, l->sec[i].sh_size))
            return no(l, "a section lies outside the object");
    return true;
}

static bool read_symbols(loading *l)
{
    for (size_t i = 1; i < l->n_sec; i++) {
        if (l->sec[i].sh_type != SHT_SYMTAB)
            continue;
        if (l->symtab)
            return no(l, "two symbol tables");
        l->symtab = i;
    }
    if (!l->symtab)
        return no(l, "no symbol table");
    const Elf64_Shdr *s = &l->sec[l->symtab];
    if (s->sh_entsize != sizeof(Elf64_Sym) || s->sh_size % sizeof(Elf64_Sym) || s->sh_link == 0 ||
        s->sh_link >= l->n_sec || l->sec[s->sh_link].sh_type != SHT_STRTAB)
        return no(l, "malformed symbol table");
    const Elf64_Shdr *t = &l->sec[s->sh_link];
    l->n_sym = s->sh_size / sizeof(Elf64_Sym);
    l->sym = nnc_malloc(s->sh_size + 1);
    l->o->names = nnc_malloc(t->sh_size + 1);
    if (!l->sym || !l->o->names)
        return no(l, NULL);
    memcpy(l->sym, l->bytes + s->sh_offset, s->sh_size);
    memcpy(l->o->names, l->bytes + t->sh_offset, t->sh_size);
    l->o->names[t->sh_size] = 0;
    l->str = l->o->names;
    l->n_str = t->sh_size;
    for (size_t i = 0; i < l->n_sym; i++)
        if (l->sym[i].st_name > l->n_str)
            return no(l, "a symbol's name lies outside the string table");
    return true;
}

/* True for sections that are loaded. The unwind table is not: kernels never throw and are never unwound through. */
static bool wanted(const Elf64_Shdr *s)
{
    return s->sh_flags & SHF_ALLOC && s->sh_type == SHT_PROGBITS && s->sh_size > 0;
}

static bool place_sections(loading *l)
{
    size_t end = 0, page = (size_t)sysconf(_SC_PAGESIZE);
    for (size_t i = 0; i < l->n_sec; i++)
        l->at[i] = SIZE_MAX;
    for (int code = 1; code >= 0; code--) {
        for (size_t i = 1; i < l->n_sec; i++) {
            const Elf64_Shdr *s = &l->sec[i];
            if (s->sh_flags & SHF_ALLOC && s->sh_type == SHT_NOBITS && s->sh_size > 0)
                return no(l, "a section of writable data");
            if (!wanted(s) || !!(s->sh_flags & SHF_EXECINSTR) != code)
                continue;
            if (s->sh_flags & (SHF_WRITE | SHF_TLS))
                return no(l, "a section of writable data");
            size_t align = s->sh_addralign ? s->sh_addralign : 1;
            if (align & (align - 1) || align > page)
                return no(l, "a section with a bad alignment");
            end = (end + align - 1) & ~(align - 1);
            if (s->sh_size > MAX_MAP - end)
                return no(l, "the object is too large");
            l->at[i] = end;
            end += s->sh_size;
        }
        if (code) {
            l->stubs = (end + STUB - 1) & ~(size_t)(STUB - 1);
            end = l->stubs + (N_IMPORTS + MAX_CALLS) * STUB;
            end = (end + page - 1) & ~(page - 1);
            l->text_end = end;
        }
    }
    l->zeros = end = (end + 63) & ~(size_t)63;
    end += NNC_OBJECT_ZEROS;
    l->o->size = (end + page - 1) & ~(page - 1);
    return true;
}

static bool map_sections(loading *l)
{
    void *p = mmap(NULL, l->o->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return no(l, NULL);
    l->o->map = p;
    for (size_t i = 1; i < l->n_sec; i++)
        if (l->at[i] != SIZE_MAX)
            memcpy(l->o->map + l->at[i], l->bytes + l->sec[i].sh_offset, l->sec[i].sh_size);
    return true;
}

/* ---- relocations -------------------------------------------------------------------------------------------------- */

/* Writes stub i, which jumps to the address of a function in *fn, and returns its own address. */
static uint64_t put_stub(loading *l, size_t i, const void *fn)
{
    uint8_t *s = l->o->map + l->stubs + i * STUB;
    memcpy(s, jump, 8);
    memcpy(s + 8, fn, 8);
    return (uint64_t)(uintptr_t)s;
}

/* Address of an imported function's stub, or of the zeros. 0: no such symbol. */
static uint64_t import(loading *l, const char *name)
{
    if (!strcmp(name, "zeros"))
        return (uint64_t)(uintptr_t)(l->o->map + l->zeros);
    for (size_t i = 0; i < N_IMPORTS; i++)
        if (!strcmp(imports[i].name, name))
            return put_stub(l, i, &imports[i].fn);
    void *fn = nnc_object_symbol(l->o->before, name);
    return fn && l->calls < MAX_CALLS ? put_stub(l, N_IMPORTS + l->calls++, &fn) : 0;
}

/* Address of symbol i in the map. */
static bool address(loading *l, size_t i, uint64_t *out)
{
    if (i == 0 || i >= l->n_sym)
        return no(l, "a relocation without a symbol");
    const Elf64_Sym *s = &l->sym[i];
    if (s->st_shndx == SHN_UNDEF) {
        *out = import(l, l->str + s->st_name);
        return *out ? true : no(l, "an undefined symbol that nnc does not provide");
    }
    if (s->st_shndx == SHN_ABS) {
        *out = s->st_value;
        return true;
    }
    if (s->st_shndx >= l->n_sec || l->at[s->st_shndx] == SIZE_MAX)
        return no(l, "a relocation to a section that is not loaded");
    if (s->st_value > l->sec[s->st_shndx].sh_size)
        return no(l, "a symbol lies outside its section");
    *out = (uint64_t)(uintptr_t)(l->o->map + l->at[s->st_shndx]) + s->st_value;
    return true;
}

#if defined __x86_64__
/* Bytes that a relocation changes; 0: its type is not supported. */
static size_t width_of(uint64_t type)
{
    switch (type) {
    case R_X86_64_64:
    case R_X86_64_PC64: return 8;
    case R_X86_64_PC32:
    case R_X86_64_PLT32:
    case R_X86_64_32:
    case R_X86_64_32S: return 4;
    default: return 0;
    }
}

/* Writes the address v to `place`, in the relocation's form. */
static bool put_address(loading *l, uint64_t type, uint8_t *place, uint64_t v)
{
    if (type == R_X86_64_PC32 || type == R_X86_64_PLT32 || type == R_X86_64_PC64)
        v -= (uint64_t)(uintptr_t)place;
    const int64_t d = (int64_t)v, least = type == R_X86_64_32 ? 0 : INT32_MIN;
    if (width_of(type) == 4 && (d < least || d > least + UINT32_MAX))
        return no(l, "a relocation does not fit in 32 bits");
    memcpy(place, &v, width_of(type));
    return true;
}
#else
static size_t width_of(uint64_t type)
{
    switch (type) {
    case R_AARCH64_ABS64:
    case R_AARCH64_PREL64: return 8;
    case R_AARCH64_PREL32:
    case R_AARCH64_CALL26:
    case R_AARCH64_JUMP26:
    case R_AARCH64_ADR_PREL_PG_HI21:
    case R_AARCH64_ADD_ABS_LO12_NC:
    case R_AARCH64_LDST8_ABS_LO12_NC:
    case R_AARCH64_LDST16_ABS_LO12_NC:
    case R_AARCH64_LDST32_ABS_LO12_NC:
    case R_AARCH64_LDST64_ABS_LO12_NC:
    case R_AARCH64_LDST128_ABS_LO12_NC: return 4;
    default: return 0;
    }
}

/* log2 of the unit in which a load's or store's offset counts. */
static int scale_of(uint64_t type)
{
    switch (type) {
    case R_AARCH64_LDST16_ABS_LO12_NC: return 1;
    case R_AARCH64_LDST32_ABS_LO12_NC: return 2;
    case R_AARCH64_LDST64_ABS_LO12_NC: return 3;
    case R_AARCH64_LDST128_ABS_LO12_NC: return 4;
    default: return 0;
    }
}

/* Writes the address v to `place`: a number, or bits of the instruction there. */
static bool put_address(loading *l, uint64_t type, uint8_t *place, uint64_t v)
{
    const uint64_t at = (uint64_t)(uintptr_t)place, page = ~(uint64_t)0xfff;
    const bool pages = type == R_AARCH64_ADR_PREL_PG_HI21,
               call = type == R_AARCH64_CALL26 || type == R_AARCH64_JUMP26;
    const int64_t d = pages ? (int64_t)((v & page) - (at & page)) : (int64_t)(v - at),
                  reach = INT64_C(1) << (pages  ? 32
                                         : call ? 27
                                                : 31);
    const bool absolute = !pages && !call && type != R_AARCH64_PREL32;
    uint32_t code;
    if ((!absolute && (d < -reach || d >= reach)) || (call && d & 3))
        return no(l, "a relocation does not fit");
    if (type == R_AARCH64_ABS64 || type == R_AARCH64_PREL64) {
        v -= type == R_AARCH64_PREL64 ? at : 0;
        memcpy(place, &v, 8);
        return true;
    }
    memcpy(&code, place, 4);
    if (pages)
        code |= (uint32_t)(d >> 12 & 3) << 29 | (uint32_t)(d >> 14 & 0x7ffff) << 5;
    else if (call)
        code |= (uint32_t)(d >> 2) & 0x3ffffff;
    else if (type == R_AARCH64_PREL32)
        code = (uint32_t)d;
    else if (v & ((UINT64_C(1) << scale_of(type)) - 1))
        return no(l, "a relocation does not fit");
    else
        code |= (uint32_t)(v & 0xfff) >> scale_of(type) << 10;
    memcpy(place, &code, 4);
    return true;
}
#endif

static bool relocate(loading *l, const Elf64_Shdr *target, size_t base, const Elf64_Rela *r)
{
    uint64_t s;
    const uint64_t type = ELF64_R_TYPE(r->r_info);
    const size_t width = width_of(type);
    if (!width)
        return no(l, "an unsupported relocation type");
    if (r->r_offset > target->sh_size || width > target->sh_size - r->r_offset)
        return no(l, "a relocation lies outside its section");
    if (!address(l, ELF64_R_SYM(r->r_info), &s))
        return false;
    return put_address(l, type, l->o->map + base + r->r_offset,
        s + (uint64_t)r->r_addend); /* modulo 2^64, as the ABI specifies */
}

static bool relocate_all(loading *l)
{
    for (size_t i = 1; i < l->n_sec; i++) {
        const Elf64_Shdr *s = &l->sec[i];
        if (s->sh_type != SHT_RELA && s->sh_type != SHT_REL)
            continue;
        if (s->sh_info == 0 || s->sh_info >= l->n_sec)
            return no(l, "relocations without a section");
        size_t base = l->at[s->sh_info];
        if (base == SIZE_MAX)
            continue; /* of the unwind table or of debug sections */
        if (s->sh_type == SHT_REL || s->sh_entsize != sizeof(Elf64_Rela) ||
            s->sh_size % sizeof(Elf64_Rela) || s->sh_link != l->symtab)
            return no(l, "malformed relocations");
        for (uint64_t at = 0; at < s->sh_size; at += sizeof(Elf64_Rela)) {
            Elf64_Rela r;
            memcpy(&r, l->bytes + s->sh_offset + at, sizeof r);
            if (!relocate(l, &l->sec[s->sh_info], base, &r))
                return false;
        }
    }
    return true;
}

/* ---- symbols ------------------------------------------------------------------------------------------------------ */

static bool export_symbols(loading *l)
{
    l->o->sym = nnc_malloc((l->n_sym + 1) * sizeof *l->o->sym);
    if (!l->o->sym)
        return no(l, NULL);
    for (size_t i = 1; i < l->n_sym; i++) {
        const Elf64_Sym *s = &l->sym[i];
        if (ELF64_ST_BIND(s->st_info) != STB_GLOBAL || ELF64_ST_TYPE(s->st_info) != STT_FUNC ||
            s->st_shndx == SHN_UNDEF)
            continue;
        if (s->st_shndx >= l->n_sec || l->at[s->st_shndx] == SIZE_MAX ||
            !(l->sec[s->st_shndx].sh_flags & SHF_EXECINSTR) ||
            s->st_value >= l->sec[s->st_shndx].sh_size)
            return no(l, "a function lies outside the code");
        l->o->sym[l->o->n_sym++] =
            (struct symbol){l->str + s->st_name, l->o->map + l->at[s->st_shndx] + s->st_value};
    }
    return true;
}

static bool protect(loading *l)
{
    nnc_object *o = l->o;
    __builtin___clear_cache((char *)o->map, (char *)o->map + l->text_end);
    if (mprotect(o->map, l->text_end, PROT_READ | PROT_EXEC) ||
        (o->size > l->text_end && mprotect(o->map + l->text_end, o->size - l->text_end, PROT_READ)))
        return no(l, "the system does not allow executable memory");
    return true;
}

static bool load(loading *l)
{
    bool ok = l->o && read_header(l) && read_symbols(l) && place_sections(l) && map_sections(l) &&
              relocate_all(l) && export_symbols(l) && protect(l);
    nnc_free(l->sec);
    nnc_free(l->at);
    nnc_free(l->sym);
    return ok;
}

nnc_object *nnc_object_load(const void *bytes, size_t n, const char **why)
{
    nnc_object *last = NULL;
    size_t at = 0;
    do {
        loading l = {.bytes = (const uint8_t *)bytes + at, .n = n - at};
        l.o = nnc_calloc(1, sizeof *l.o);
        if (l.o) {
            l.o->before = last;
            last = l.o;
        }
        if (!load(&l)) {
            if (why)
                *why = l.why;
            nnc_object_unload(last);
            return NULL;
        }
        at += l.end;
    } while (at < n);
    return last;
}

#else

nnc_object *nnc_object_load(const void *bytes, size_t n, const char **why)
{
    (void)bytes;
    (void)n;
    if (why)
        *why = "only x86-64 and AArch64 objects are supported";
    return NULL;
}

#endif

void *nnc_object_symbol(const nnc_object *o, const char *name)
{
    for (; o; o = o->before)
        for (size_t i = 0; i < o->n_sym; i++)
            if (!strcmp(o->sym[i].name, name))
                return o->sym[i].at;
    return NULL;
}

void nnc_object_unload(nnc_object *o)
{
    while (o) {
        nnc_object *before = o->before;
        if (o->map)
            munmap(o->map, o->size);
        nnc_free(o->names);
        nnc_free(o->sym);
        nnc_free(o);
        o = before;
    }
}
