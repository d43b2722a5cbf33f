/* tests/cxx.c -- see cxx.h. */
#include "cxx.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool write_file(const char *file, const char *s, size_t n)
{
    FILE *f = fopen(file, "w");
    bool ok = f && fwrite(s, 1, n, f) == n;
    if (f)
        ok = fclose(f) == 0 && ok;
    return ok;
}

/* The library's file appears at once or not at all. It is linked with what kernels call alone: half of the linker's time. */
static bool compile_to(const char *source, size_t n, const char *flags, const char *so)
{
    char dir[] = "/tmp/nnc_cxx_XXXXXX", cmd[2400], cpp[64], made[700];
    if (!mkdtemp(dir))
        return false;
    snprintf(cpp, sizeof cpp, "%s/k.cpp", dir);
    snprintf(made, sizeof made, "%s.%ld", so, (long)getpid());
    snprintf(cmd, sizeof cmd,
        "%s " NNC_TEST_CXX_FLAGS " %s -pipe -shared -nostdlib -include '" NNC_TEST_SHIM
        "' -o '%s' %s '" NNC_TEST_SHIM_OBJECT "' -lm -lgcc",
        NNC_TEST_CXX, flags, made, cpp);
    bool ok = write_file(cpp, source, n) && system(cmd) == 0 && rename(made, so) == 0;
    if (ok && !getenv("NNC_KEEP")) {
        unlink(cpp);
        rmdir(dir);
    } else {
        fprintf(stderr, "%s: %s\n", ok ? "built" : "not built", cmd);
    }
    return ok;
}

void *cxx_build(const char *source, size_t n, const char *flags)
{
    static int number;
    const char *folder = getenv("FAKE_CUDA_KERNELS");
    bool keep = folder && *folder;
    char so[600], hex[33];
    nnc_hash128 h = nnc_hash(source, n), g = nnc_hash(flags, strlen(flags));
    nnc_hash_hex((nnc_hash128){h.lo ^ g.lo, h.hi ^ g.hi}, hex);
    if (keep)
        snprintf(so, sizeof so, "%s/%s.so", folder, hex);
    else
        snprintf(so, sizeof so, "/tmp/nnc_cxx_%ld_%d.so", (long)getpid(), number++);
    bool there = keep && nnc_file_exists(so), made = !there && compile_to(source, n, flags, so);
    void *lib = there || made ? dlopen(so, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!lib && (there || made))
        fprintf(stderr, "not loaded: %s\n", dlerror());
    if (made && !keep)
        unlink(so);
    return lib;
}
