/* tests/cudnn/kept.c -- what cuDNN answered is kept on disk: a later process gets the same choices without opening cuDNN, which here is a
 * file that has become unreadable meanwhile. Whatever the answer depends on, the library's build before all, asks again; where its file
 * lies and when it was written do not count. */
#include "cuda/cuda.h"
#include "engines/calls.h"
#include "engines/engines.h"
#include "target/target.h"
#include <dirent.h>
#include <elf.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CALLS = 4 };

static char folder[64], library[128], cache[128];
static nnc_cache *answers;

typedef struct answer {
    bool ok;
    int64_t workspace;
    char reason[256];
} answer;

static nnc_call call_at(int i)
{
    nnc_call c = conv_call(2, 1, 4, 5, 4, 3, 1, 1);
    if (i == 1)
        call_bias(&c);
    if (i == 2)
        call_dtype(&c, DT_f16);
    if (i == 3)
        call_post(&c, PO_relu, 0, 0);
    return c;
}

static answer choose(nnc_call c, const char *gpu, bool tf32)
{
    answer a = {0};
    nnc_target t;
    nnc_choice choice = {0};
    CHECK_OK(nnc_target_cuda(&t, gpu, test_sink));
    const nnc_engine_env env = {.target = &t, .cache = answers};
    c.env = &env;
    c.tf32 = tf32;
    CHECK_OK(nnc_engine_cudnn.choose(&c, &choice, test_sink));
    a.ok = choice.ok;
    a.workspace = choice.workspace_bytes;
    snprintf(a.reason, sizeof a.reason, "%s", choice.reason);
    nnc_target_deinit(&t);
    return a;
}

/* Another process: it asks cuDNN for all calls, and says what it got. */
static void ask_elsewhere(int out)
{
    answer a[CALLS];
    answers = nnc_cache_open(cache);
    for (int i = 0; i < CALLS; i++)
        a[i] = choose(call_at(i), "cuda:sm_90", false);
    _exit(write(out, a, sizeof a) != (ssize_t)sizeof a);
}

enum { PROCESSES = 4 };

/* Several at once, into one cache: all agree. */
static void ask_cold(answer a[CALLS])
{
    int out[2], status;
    CHECK(pipe(out) == 0);
    for (int p = 0; p < PROCESSES; p++) {
        fflush(NULL);
        if (fork() == 0)
            ask_elsewhere(out[1]);
    }
    for (int p = 0; p < PROCESSES; p++) {
        answer b[CALLS];
        CHECK(read(out[0], b, sizeof b) == (ssize_t)sizeof b);
        CHECK(p == 0 || !memcmp(a, b, sizeof b));
        memcpy(a, b, sizeof b);
    }
    for (int p = 0; p < PROCESSES; p++)
        CHECK(wait(&status) > 0 && status == 0);
    close(out[0]);
    close(out[1]);
}

static void put_library(const char *text, size_t n, const struct stat *as)
{
    CHECK_OK(nnc_file_write(library, text, n, false, test_sink));
    struct timespec time[2] = {as->st_mtim, as->st_mtim};
    CHECK(utimensat(AT_FDCWD, library, time, 0) == 0);
}

/* Replaces the library by a file of its size and time that cannot be opened: opening it makes the plan by rule. */
static void begin(struct stat *st)
{
    char *text;
    size_t n;
    strcpy(folder, "/tmp/nnc-kept-XXXXXX");
    CHECK(mkdtemp(folder) != NULL);
    snprintf(library, sizeof library, "%s/libcudnn.so.9", folder);
    snprintf(cache, sizeof cache, "%s/cache", folder);
    CHECK_OK(nnc_file_read(FAKE_LIBCUDNN, 0, &text, &n, test_sink));
    CHECK_OK(nnc_file_write(library, text, n, false, test_sink));
    CHECK(stat(library, st) == 0);
    nnc_free(text);
    CHECK(setenv("NNC_CUDA_PATH", folder, 1) == 0);
    nnc_cuda_forget();
}

/* Keeps only the part of the library's file that identifies its build: headers and notes. */
static void spoil(const struct stat *st, int flip)
{
    char *text;
    size_t n;
    Elf64_Ehdr e;
    CHECK_OK(nnc_file_read(FAKE_LIBCUDNN, 0, &text, &n, test_sink));
    char *left = nnc_calloc(1, n);
    memcpy(&e, text, sizeof e);
    memcpy(left, text, e.e_phoff + (size_t)e.e_phnum * sizeof(Elf64_Phdr));
    left[offsetof(Elf64_Ehdr, e_machine)] ^= 1; /* the loader refuses it */
    for (int i = 0; i < e.e_phnum; i++) {
        Elf64_Phdr p;
        memcpy(&p, text + e.e_phoff + (size_t)i * sizeof p, sizeof p);
        if (p.p_type != PT_NOTE)
            continue;
        memcpy(left + p.p_offset, text + p.p_offset, p.p_filesz);
        char *gnu = memmem(left + p.p_offset, p.p_filesz, "\3\0\0\0GNU", 8);
        if (gnu)
            gnu[8] = (char)(gnu[8] ^ flip);
    }
    put_library(left, n, st);
    nnc_free(left);
    nnc_free(text);
    nnc_cuda_forget();
    nnc_cache_close(answers);
    answers = nnc_cache_open(cache);
}

static void end(void)
{
    char command[96];
    nnc_cache_close(answers);
    answers = NULL;
    CHECK(unsetenv("NNC_CUDA_PATH") == 0);
    nnc_cuda_forget();
    snprintf(command, sizeof command, "rm -rf %s", folder);
    CHECK_INT(system(command), 0);
}

#define BY_RULE(a) CHECK(strstr((a).reason, "by rule") != NULL)

TEST(answers_are_kept)
{
    struct stat st;
    answer cold[CALLS];
    begin(&st);
    ask_cold(cold);
    spoil(&st, 0);
    for (int i = 0; i < CALLS; i++) {
        answer warm = choose(call_at(i), "cuda:sm_90", false);
        CHECK(strncmp(warm.reason, "cudnn 9.19.0: engine ", 21) == 0);
        CHECK_STR(warm.reason, cold[i].reason);
        CHECK_INT(warm.workspace, cold[i].workspace);
        CHECK_INT(warm.ok, cold[i].ok);
    }
    end();
}

TEST(other_questions_are_not_kept)
{
    struct stat st;
    answer cold[CALLS];
    begin(&st);
    ask_cold(cold);
    spoil(&st, 0);
    nnc_call c = call_at(0);
    CHECK_STR(choose(call_at(0), "cuda:sm_90", false).reason, cold[0].reason);
    BY_RULE(choose(c, "cuda:sm_80", false));
    BY_RULE(choose(c, "cuda:sm_90", true));
    c.pad_lo[0] = 0;
    c.pad_hi[0] = 2;
    BY_RULE(choose(c, "cuda:sm_90", false));
    CHECK(setenv("NVIDIA_TF32_OVERRIDE", "0", 1) == 0);
    BY_RULE(choose(call_at(0), "cuda:sm_90", false));
    CHECK(unsetenv("NVIDIA_TF32_OVERRIDE") == 0);
    st.st_mtim.tv_nsec ^= 1; /* the same build, written at another time */
    spoil(&st, 0);
    CHECK_STR(choose(call_at(0), "cuda:sm_90", false).reason, cold[0].reason);
    spoil(&st, 1); /* another build */
    BY_RULE(choose(call_at(0), "cuda:sm_90", false));
    end();
}

/* The same build in another folder, and a card that a driver described: what was asked without one where the library lay elsewhere is
 * what is asked here. Other SMs are another card. */
TEST(answers_travel)
{
    struct stat st;
    answer cold[CALLS];
    char other[160], file[192];
    nnc_target t;
    nnc_choice choice = {0};
    begin(&st);
    ask_cold(cold);
    spoil(&st, 0);
    snprintf(other, sizeof other, "%s/elsewhere", folder);
    snprintf(file, sizeof file, "%s/libcudnn.so.9", other);
    CHECK(mkdir(other, 0777) == 0 && rename(library, file) == 0);
    CHECK(setenv("NNC_CUDA_PATH", other, 1) == 0);
    nnc_cuda_forget();
    CHECK_STR(choose(call_at(0), "cuda:sm_90", false).reason, cold[0].reason);
    for (int other_sms = 0; other_sms < 2; other_sms++) {
        nnc_call c = call_at(0);
        CHECK_OK(nnc_target_cuda(&t, "cuda:sm_90", test_sink));
        CHECK_OK(nnc_target_cuda_ask(&t,
            &(nnc_target_gpu){.card = "NVIDIA H200",
                .sms = other_sms ? 114 : t.sms,
                .clock_hz = 1830000000,
                .memory_bytes = INT64_C(150754820096),
                .l2_bytes = 50 << 20},
            test_sink));
        const nnc_engine_env env = {.target = &t, .cache = answers};
        c.env = &env;
        CHECK_OK(nnc_engine_cudnn.choose(&c, &choice, test_sink));
        if (other_sms)
            CHECK(strstr(choice.reason, "by rule") != NULL);
        else
            CHECK_STR(choice.reason, cold[0].reason);
        nnc_target_deinit(&t);
    }
    end();
}

/* Every entry of the cache changed: cut off, or a text with a right checksum that is no answer. */
static int damage(const char *text)
{
    DIR *d = opendir(cache);
    int n = 0;
    nnc_cache *c = nnc_cache_open(cache);
    for (struct dirent *e; d && (e = readdir(d));) {
        nnc_hash128 key;
        unsigned long long hi, lo;
        char path[512];
        if (sscanf(e->d_name, "choice-%16llx%16llx", &hi, &lo) != 2)
            continue;
        n++;
        key = (nnc_hash128){.lo = lo, .hi = hi};
        snprintf(path, sizeof path, "%s/%s", cache, e->d_name);
        if (text)
            nnc_cache_put(c, "choice", key, text, strlen(text) + 1);
        else
            CHECK(truncate(path, 40) == 0);
    }
    closedir(d);
    nnc_cache_close(c);
    return n;
}

TEST(damaged_answers_are_none)
{
    static const char *const bad[] = {NULL, "", "91900", "91900 ok", "91900 ok 7 0 0",
        "91900 ok 7 0 0 -1", "91900 ok 7 0 0 16 more", "91900 yes 7 0 0 16",
        "91900 ok 7 0 0 99999999999"};
    for (size_t i = 0; i < NNC_COUNT(bad); i++) {
        struct stat st;
        answer cold[CALLS];
        begin(&st);
        ask_cold(cold);
        CHECK_INT(damage(bad[i]), CALLS);
        spoil(&st, 0);
        answer a = choose(call_at(0), "cuda:sm_90", false);
        if (!strstr(a.reason, "by rule"))
            test_fail(__FILE__, __LINE__, "taken for an answer: %s", bad[i] ? bad[i] : "cut off");
        end();
    }
}

/* A library that only the loader knows of is told by the file that the loader would take. */
TEST(identity_on_the_loaders_path)
{
    struct stat st;
    nnc_text t = {0};
    char driver[128];
    const char *before = getenv("LD_LIBRARY_PATH");
    begin(&st);
    snprintf(driver, sizeof driver, "%s/libcuda.so.1", folder);
    CHECK_OK(nnc_file_write(driver, "none", 4, false, test_sink));
    char *old = before ? strdup(before) : NULL;
    CHECK(setenv("LD_LIBRARY_PATH", folder, 1) == 0);
    CHECK(nnc_cuda_identity(CUDA_driver, &t));
    CHECK(strstr(nnc_text_str(&t), driver) && strstr(nnc_text_str(&t), " 4 "));
    nnc_text_deinit(&t);
    nnc_cuda_override(CUDA_driver, NULL);
    CHECK(!nnc_cuda_identity(CUDA_driver, &t));
    CHECK((old ? setenv("LD_LIBRARY_PATH", old, 1) : unsetenv("LD_LIBRARY_PATH")) == 0);
    free(old);
    end();
}
