/* tests/tensors/help.c -- files of tensors made by hand. */
#include "help.h"
#include <unistd.h>

static char path[64];
static const char *const extensions[] = {
    "", ".npy", ".npz", ".safetensors", ".bin", ".json", ".pt", ".csv", ".npy.gz"};

static void set_path(const char *ext)
{
    snprintf(path, sizeof path, "/tmp/nnc-tensors-%ld%s", (long)getpid(), ext);
}

const char *tt_file(const char *ext, const void *data, size_t n)
{
    set_path(ext);
    unlink(
        path); /* some file systems wait for the disk where a file is emptied and written again */
    FILE *f = fopen(path, "wbe");
    CHECK(f && fwrite(data, 1, n, f) == n);
    if (f)
        fclose(f);
    return path;
}

void tt_remove(void)
{
    for (size_t i = 0; i < NNC_COUNT(extensions); i++) {
        set_path(extensions[i]);
        unlink(path);
    }
}

static void put(nnc_text *t, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        nnc_putc(t, (char)(v >> 8 * i));
}

static void put_data(nnc_text *t, const void *data, size_t n)
{
    for (size_t i = 0; i < n; i++)
        nnc_putc(t, data ? ((const char *)data)[i] : (char)i);
}

void tt_npy(nnc_text *t, int version, const char *dict, const void *data, size_t n)
{
    nnc_puts(t, "\x93NUMPY");
    put(t, (uint64_t)version, 2);
    put(t, strlen(dict), version == 1 ? 2 : 4);
    nnc_puts(t, dict);
    put_data(t, data, n);
}

void tt_safetensors(nnc_text *t, const char *header, size_t n)
{
    put(t, strlen(header), 8);
    nnc_puts(t, header);
    put_data(t, NULL, n);
}

static uint32_t crc32(const uint8_t *p, size_t n)
{
    uint32_t c = ~0u;
    for (; n; n--, p++) {
        c ^= *p;
        for (int bit = 0; bit < 8; bit++)
            c = c >> 1 ^ (c & 1 ? 0xedb88320u : 0);
    }
    return ~c;
}

/* One last block of at most 65535 bytes. */
static void put_deflated(nnc_text *t, const tt_entry *e)
{
    nnc_putc(t, 1);
    put(t, e->n, 2);
    put(t, ~e->n, 2);
    nnc_putn(t, e->data, e->n);
}

static void put_fields(nnc_text *t, const tt_entry *e, const tt_lies *l)
{
    const size_t packed = e->n + (e->deflate ? 5 : 0);
    put(t, 20, 2);
    put(t, l->flags, 2);
    put(t, l->method ? l->method : e->deflate ? 8 : 0, 2);
    put(t, 0, 4);
    put(t, l->crc ? l->crc : crc32(e->data, e->n), 4);
    put(t, l->packed ? l->packed : packed, 4);
    put(t, l->size ? l->size : e->n, 4);
    put(t, strlen(e->name), 2);
    put(t, 0, 2);
}

void tt_zip(nnc_text *t, int n, const tt_entry *e, const tt_lies *l)
{
    static const tt_lies honest = {0};
    size_t at[16];
    for (int i = 0; i < n; i++) {
        at[i] = t->n;
        nnc_puts(t, "PK\3\4");
        put_fields(t, &e[i], l ? l : &honest);
        nnc_puts(t, e[i].name);
        if (e[i].deflate)
            put_deflated(t, &e[i]);
        else
            nnc_putn(t, e[i].data, e[i].n);
    }
    l = l ? l : &honest;
    const size_t from = t->n;
    for (int i = 0; i < n; i++) {
        nnc_puts(t, "PK\1\2");
        put(t, 20, 2);
        put_fields(t, &e[i], l);
        put(t, 0, 8);
        put(t, 0, 2);
        put(t, l->at ? l->at : at[i], 4);
        nnc_puts(t, e[i].name);
    }
    const size_t bytes = t->n - from;
    if (l->zip64) {
        put(t, 0x07064b50, 4);
        put(t, 0, 4);
        put(t, l->zip64, 8);
        put(t, 1, 4);
    }
    nnc_puts(t, "PK\5\6");
    put(t, l->disk, 4);
    put(t, l->n_entries ? l->n_entries : (uint64_t)n, 2);
    put(t, l->n_entries ? l->n_entries : (uint64_t)n, 2);
    put(t, l->directory_bytes ? l->directory_bytes : bytes, 4);
    put(t, l->directory_at ? l->directory_at : from, 4);
    put(t, 0, 2);
}

const char tt_small_dict[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n";

void tt_small(nnc_text *t)
{
    static const float data[] = {0, 1, 2, 3, 4, 5};
    tt_npy(t, 1, tt_small_dict, data, sizeof data);
}

const char tt_numpy[] =
    "PK\003\004-\000\000\000\010\000\000\000!\000O\351\000*\377\377\377\377\377\377\377\377\005"
    "\000\024\000a.npy\001\000\020\000\230\000\000\000\000\000\000\000U\000\000\000\000\000\000"
    "\000\233\354\027\352\033\020\311\310P\306P\255\236\222Z\234\134\244n\245\240n\223f\242\256"
    "\243\240\236\226_TR\224\230\027\237_\224\222\012\022wK\314)N\005\212\027g$\026\244\002\371"
    "\032F:\012\306\232:\012\265\012d\003.\0060h\260\007\022\016@\004\304\015@\274\300\001\000PK"
    "\003\004-\000\000\000\010\000\000\000!\000\316,\340\323\377\377\377\377\377\377\377\377\013"
    "\000\024\000fortran.npy\001\000\020\000\230\000\000\000\000\000\000\000V\000\000\000\000\000"
    "\000\000\233\354\027\352\033\020\311\310P\306P\255\236\222Z\234\134\244n\245\240n\223f\242"
    "\256\243\240\236\226_TR\224\230\027\237_\224\222\012\022\017)*M\005\012\027g$\026\244\002"
    "\271\032F:\012\306\232:\012\265\012\344\003.\0060pp``h\260\007b\007\020\207\201a\201\003\000"
    "PK\003\004-\000\000\000\010\000\000\000!\000\236\326\351\352\377\377\377\377\377\377\377\377"
    "\013\000\024\000swapped.npy\001\000\020\000\230\000\000\000\000\000\000\000X\000\000\000\000"
    "\000\000\000\233\354\027\352\033\020\311\310P\306P\255\236\222Z\234\134\244n\245\240n\227f"
    "\242\256\243\240\236\226_TR\224\230\027\237_\224\222\012\022wK\314)N\005\212\027g$\026\244"
    "\002\371\032F:\012\306\232:\012\265\012d\003.\006 \260o``p\000\322\016@\302\001\304^\300\300"
    "\000\000PK\003\004-\000\000\000\010\000\000\000!\000\026\223\214\273\377\377\377\377\377\377"
    "\377\377\011\000\024\000flags.npy\001\000\020\000\203\000\000\000\000\000\000\000G\000\000"
    "\000\000\000\000\000\233\354\027\352\033\020\311\310P\306P\255\236\222Z\234\134\244n\245\240"
    "^\223d\250\256\243\240\236\226_TR\224\230\027\237_\224\222\012\022wK\314)N\005\212\027g$\026"
    "\244\002\371\032\306:\232:\012\265\012\024\000.F\006F\000PK\003\004-\000\000\000\010\000\000"
    "\000!\000\305\201cF\377\377\377\377\377\377\377\377\010\000\024\000text.npy\001\000\020\000"
    "\214\000\000\000\000\000\000\000M\000\000\000\000\000\000\000\233\354\027\352\033\020\311"
    "\310P\306P\255\236\222Z\234\134\244n\245\240n\023j\254\256\243\240\236\226_TR\224\230\027"
    "\237_\224\222\012\022wK\314)N\005\212\027g$\026\244\002\371\032\206:\232:\012\265\012\024"
    "\000\256D\006\006\206$ N\006b\000PK\001\002-\003-\000\000\000\010\000\000\000!\000O\351\000*"
    "U\000\000\000\230\000\000\000\005\000\000\000\000\000\000\000\000\000\000\000\200\001\000"
    "\000\000\000a.npyPK\001\002-\003-\000\000\000\010\000\000\000!\000\316,\340\323V\000\000\000"
    "\230\000\000\000\013\000\000\000\000\000\000\000\000\000\000\000\200\001\214\000\000\000fort"
    "ran.npyPK\001\002-\003-\000\000\000\010\000\000\000!\000\236\326\351\352X\000\000\000\230"
    "\000\000\000\013\000\000\000\000\000\000\000\000\000\000\000\200\001\037\001\000\000swapped."
    "npyPK\001\002-\003-\000\000\000\010\000\000\000!\000\026\223\214\273G\000\000\000\203\000"
    "\000\000\011\000\000\000\000\000\000\000\000\000\000\000\200\001\264\001\000\000flags.npyPK"
    "\001\002-\003-\000\000\000\010\000\000\000!\000\305\201cFM\000\000\000\214\000\000\000\010"
    "\000\000\000\000\000\000\000\000\000\000\000\200\0016\002\000\000text.npyPK\005\006\000\000"
    "\000\000\005\000\005\000\022\001\000\000\275\002\000\000\000\000";
const size_t tt_numpy_bytes = sizeof tt_numpy - 1;
