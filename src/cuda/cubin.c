/* cuda/cubin.c -- reads GPU machine code: an ELF file with a code section per kernel and a note of its resources.
 * The format is not documented; the parts in use were checked against ptxas -v and nvdisasm for sm_75 to sm_120
 * (opcodes.def). */
#include "cuda/internal.h"
#include <elf.h>
#include <string.h>

enum {
    MACHINE_CUDA = 190,
    ATTR_FRAME = 0x11,
    ATTR_REGISTERS = 0x2f,
    FORMAT_SIZED = 4, /* of an attribute: a value of `size` bytes follows */
    RESERVED_SHARED = 1024,
};

typedef struct opcode {
    const char *name;
    nnc_cubin_class class;
} opcode;

static const opcode opcodes[CUBIN_OPS] = {
#define OP(bits, name, class) [bits] = {#name, CC_##class},
#include "cuda/opcodes.def"
#undef OP
};

const char *nnc_cubin_op(int bits)
{
    return bits >= 0 && bits < CUBIN_OPS ? opcodes[bits].name : NULL;
}

typedef struct elf {
    const uint8_t *data;
    size_t n;
    Elf64_Ehdr head;
    int sm;
} elf;

static nnc_status damaged(nnc_sink *sink, const char *what)
{
    return nnc_fail0(sink, NNC_E_MODEL, "GPU machine code is damaged: %s", what);
}

static bool inside(const elf *e, uint64_t at, uint64_t bytes)
{
    return at <= e->n && bytes <= e->n - at;
}

/* Section i; false when it lies outside the file. */
static bool section(const elf *e, int i, Elf64_Shdr *out)
{
    if (i < 0 || i >= e->head.e_shnum || e->head.e_shentsize < sizeof *out ||
        !inside(e, e->head.e_shoff, (uint64_t)e->head.e_shnum * e->head.e_shentsize))
        return false;
    memcpy(out, e->data + e->head.e_shoff + (uint64_t)i * e->head.e_shentsize, sizeof *out);
    return out->sh_type == SHT_NOBITS || inside(e, out->sh_offset, out->sh_size);
}

/* A string of string table `table`; "" when it is not one. */
static const char *string(const elf *e, int table, uint64_t at)
{
    Elf64_Shdr s;
    if (!section(e, table, &s) || s.sh_type == SHT_NOBITS || at >= s.sh_size ||
        !memchr(e->data + s.sh_offset + at, 0, s.sh_size - at))
        return "";
    return (const char *)e->data + s.sh_offset + at;
}

static const char *section_name(const elf *e, const Elf64_Shdr *s)
{
    return string(e, e->head.e_shstrndx, s->sh_name);
}

/* The name of symbol `index`; "" when there is none. */
static const char *symbol_name(const elf *e, uint32_t index)
{
    Elf64_Shdr s;
    Elf64_Sym y;
    for (int i = 0; i < e->head.e_shnum; i++) {
        if (!section(e, i, &s) || s.sh_type != SHT_SYMTAB || index >= s.sh_size / sizeof y)
            continue;
        memcpy(&y, e->data + s.sh_offset + index * sizeof y, sizeof y);
        return string(e, (int)s.sh_link, y.st_name);
    }
    return "";
}

static nnc_status open_elf(elf *e, const void *cubin, size_t n, nnc_sink *sink)
{
    *e = (elf){.data = cubin, .n = n};
    if (n < sizeof e->head || memcmp(cubin, ELFMAG, SELFMAG) != 0)
        return damaged(sink, "not an ELF file");
    memcpy(&e->head, cubin, sizeof e->head);
    if (e->head.e_machine != MACHINE_CUDA || e->head.e_ident[EI_CLASS] != ELFCLASS64)
        return damaged(sink, "not for NVIDIA GPUs");
    /* CUDA 12 and 13 store the architecture in different bits */
    e->sm = (int)(e->head.e_ident[EI_ABIVERSION] >= 8 ? e->head.e_flags >> 8 & 0xff
                                                      : e->head.e_flags & 0xff);
    if (e->sm < 70)
        return nnc_fail0(sink, NNC_E_MODEL,
            "machine code for sm_%d cannot be read: supported from sm_70 on", e->sm);
    return NNC_OK;
}

static bool is_code(const elf *e, const Elf64_Shdr *s)
{
    return s->sh_type != SHT_NOBITS && !strncmp(section_name(e, s), ".text.", 6);
}

nnc_cubin_class cubin_class(int sm, int bits)
{
    if (bits == 0x035 && sm < 100)
        return CC_real;
    return opcodes[bits].name ? opcodes[bits].class : CC_unknown;
}

int cubin_width(uint64_t high)
{
    static const int8_t width[8] = {
        0, 0, 1, 1, 2, 3, 4, 4}; /* 8 and 16 bits without and with sign, 32, 64, 128 */
    return width[high >> 9 & 7];
}

static void count(const elf *e, const Elf64_Shdr *s, nnc_cubin_kernel *k)
{
    for (uint64_t at = 0; at + INSTRUCTION <= s->sh_size; at += INSTRUCTION) {
        uint64_t low, high;
        memcpy(&low, e->data + s->sh_offset + at, 8);
        memcpy(&high, e->data + s->sh_offset + at + 8, 8);
        int bits = (int)(low & (CUBIN_OPS - 1));
        nnc_cubin_class c = cubin_class(e->sm, bits);
        k->op[bits]++;
        k->n[c]++;
        k->instructions += c != CC_nothing;
        if (c == CC_load_global)
            k->load_bits[cubin_width(high)]++;
        if (c == CC_store_global)
            k->store_bits[cubin_width(high)]++;
    }
}

/* Reads registers and stack sizes of all kernels: attributes of a symbol and a number. */
static void resources(const elf *e, const Elf64_Shdr *s, nnc_cubin_kernel *k, int n)
{
    const uint8_t *p = e->data + s->sh_offset;
    for (uint64_t at = 0; at + 4 <= s->sh_size;) {
        uint16_t size;
        uint32_t value[2] = {0};
        uint8_t format = p[at], attribute = p[at + 1];
        memcpy(&size, p + at + 2, 2);
        at += 4;
        if (format != FORMAT_SIZED)
            continue;
        if (size > s->sh_size - at)
            return;
        memcpy(value, p + at, size < 8 ? size : 8);
        at += size;
        if (attribute != ATTR_FRAME && attribute != ATTR_REGISTERS)
            continue;
        const char *name = symbol_name(e, value[0]);
        for (int i = 0; i < n; i++)
            if (!strcmp(k[i].name, name))
                *(attribute == ATTR_FRAME ? &k[i].stack_bytes : &k[i].registers) = (int)value[1];
    }
}

static void shared(const elf *e, const char *kernel, uint64_t bytes, nnc_cubin_kernel *k, int n)
{
    if (e->sm >= 90 && bytes >= RESERVED_SHARED)
        bytes -= RESERVED_SHARED;
    for (int i = 0; i < n; i++)
        if (!strcmp(k[i].name, kernel))
            k[i].shared_bytes = (int)bytes;
}

nnc_status nnc_cubin_read(const void *cubin, size_t n, nnc_arena *a, nnc_cubin_kernel **out,
    int *n_kernel, int *sm, nnc_sink *sink)
{
    elf e;
    Elf64_Shdr s;
    *out = NULL;
    *n_kernel = 0;
    NNC_TRY(open_elf(&e, cubin, n, sink));
    *sm = e.sm;
    int n_text = 0;
    for (int i = 0; i < e.head.e_shnum; i++) {
        if (!section(&e, i, &s))
            return damaged(sink, "a section lies outside the file");
        n_text += is_code(&e, &s);
    }
    nnc_cubin_kernel *k = ARENA_NEW(a, nnc_cubin_kernel, n_text + 1);
    NNC_NEED(k, sink);
    for (int i = 0; i < e.head.e_shnum; i++) {
        (void)section(&e, i, &s);
        if (!is_code(&e, &s))
            continue;
        nnc_cubin_kernel *one = &k[(*n_kernel)++];
        one->name = nnc_arena_strdup(a, section_name(&e, &s) + 6);
        NNC_NEED(one->name, sink);
        count(&e, &s, one);
        one->code = e.data + s.sh_offset;
        one->n_code = (int64_t)(s.sh_size / INSTRUCTION);
        one->sm = e.sm;
    }
    for (int i = 0; i < e.head.e_shnum; i++) {
        (void)section(&e, i, &s);
        const char *name = section_name(&e, &s);
        if (!strcmp(name, ".nv.info") && s.sh_type != SHT_NOBITS)
            resources(&e, &s, k, *n_kernel);
        else if (!strncmp(name, ".nv.shared.", 11))
            shared(&e, name + 11, s.sh_size, k, *n_kernel);
    }
    *out = k;
    return NNC_OK;
}

static void put_widths(nnc_text *out, const char *what, const int bits[CUBIN_WIDTHS])
{
    const char *sep = what;
    for (int w = CUBIN_WIDTHS - 1; w >= 0; w--)
        if (bits[w]) {
            nnc_printf(out, "%s%dx%d", sep, bits[w], 8 << w);
            sep = "+";
        }
}

void nnc_cubin_print(nnc_text *out, const nnc_cubin_kernel *k, int n)
{
    for (int i = 0; i < n; i++) {
        const int *c = k[i].n;
        nnc_printf(out,
            "%s: %d registers, %d bytes of stack, %d of shared memory; %d instructions: %d float, "
            "%d special, %d integer, %d move, %d branch",
            k[i].name, k[i].registers, k[i].stack_bytes, k[i].shared_bytes, k[i].instructions,
            c[CC_real], c[CC_mufu], c[CC_integer], c[CC_move] + c[CC_load_const], c[CC_branch]);
        if (c[CC_shuffle] + c[CC_barrier])
            nnc_printf(out, ", %d shuffle, %d barrier", c[CC_shuffle], c[CC_barrier]);
        if (c[CC_load_shared] + c[CC_store_shared])
            nnc_printf(out, ", %d shared", c[CC_load_shared] + c[CC_store_shared]);
        if (c[CC_load_local] + c[CC_store_local])
            nnc_printf(out, ", %d local", c[CC_load_local] + c[CC_store_local]);
        if (c[CC_tensor] + c[CC_atomic] + c[CC_unknown])
            nnc_printf(out, ", %d tensor, %d atomic, %d unknown", c[CC_tensor], c[CC_atomic],
                c[CC_unknown]);
        put_widths(out, "; loads ", k[i].load_bits);
        put_widths(out, ", stores ", k[i].store_bits);
        nnc_putc(out, '\n');
    }
}
