/* tests/base/files.c -- JSON with positions, files, cache, weights. */
#include "test.h"
#include <dirent.h>
#include <locale.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static nnc_status parse(nnc_json *j, const char *text)
{
    return nnc_json_parse(j, "m.json", text, strlen(text), test_sink);
}

TEST(json_positions)
{
    nnc_json j;
    CHECK_OK(parse(&j, "{\n  \"a\": [1, {\"b\": true}],\n  \"c\": \"x\"\n}"));
    const nnc_item *a = nnc_json_get(j.root, "a"), *b = a->child->next;
    nnc_loc l = nnc_json_loc(&j, b, false);
    CHECK_INT(l.line, 2);
    CHECK_INT(l.col, 12);
    l = nnc_json_loc(&j, nnc_json_get(b, "b"), true);
    CHECK_INT(l.col, 13);
    l = nnc_json_loc(&j, nnc_json_get(j.root, "c"), false);
    CHECK_INT(l.line, 3);
    CHECK_INT(l.col, 8);
    nnc_json_deinit(&j);
}

TEST(json_rejects)
{
    static const struct {
        const char *text, *diag;
    } bad[] = {
        {"", "m.json:1:1: : expected a JSON value, found the end"},
        {"{\"a\":1,\n\"a\":2}", "m.json:2:1: : duplicate key \"a\""},
        {"{\"a\":1,\n\"\\u0061\":2}", "m.json:2:1: : duplicate key"},
        {"{\"\\u00e9\\u0062\":1,\"\xc3\xa9\\u0062\":2}", "duplicate key"},
        {"{\"\\/\":1, \"b\":1, \"/\":2}", "duplicate key"},
        {"{\"a\":1} x", "m.json:1:9: : expected nothing after"},
        {"[1,]", "m.json:1:4: : expected a JSON value"},
        {"[9007199254740993]", "m.json:1:2: : expected an integer below 2^53"},
        {"[9007199254740992]", "m.json:1:2: : expected an integer below 2^53"},
        {"[1e999]", "m.json:1:2: : expected a number below 1.8e308"},
        {"[\n\"a\\ud800\"]", "m.json:2:3: : expected an escape: "},
        {"{\"a\\udc00\":1}", "m.json:1:4: : expected an escape: "},
        {"[\"\\q\"]", "m.json:1:3: : expected an escape: "},
        {"[\"\\u0000\"]", "m.json:1:3: : expected an escape: "},
        {"[\"a\xff\"]", "m.json:1:4: : expected UTF-8, found the byte 0xff"},
        {"[\"\xc0\x80\"]", "expected UTF-8, found the byte 0xc0"}, /* a long form of NUL */
        {"[\"\xed\xa0\x80\"]", "expected UTF-8, found the byte 0xed"}, /* a surrogate */
        {"[\"\xf4\x90\x80\x80\"]", "expected UTF-8"}, /* beyond U+10FFFF */
        {"[\"\xe2\x82\"]", "expected UTF-8"}, /* cut off */
        {"[01]", "expected a JSON value"},
        {"{\"a\" 1}", "m.json:1:6: : expected `:`"},
        {"{a:1}", "expected a key in quotes"},
        {"[\"a\n\"]", "expected a string closed"},
        {"[tru]", "expected a JSON value"},
        {"[1 2]", "m.json:1:4: : expected `,` or `]`"},
    };
    nnc_json j;
    for (size_t i = 0; i < NNC_COUNT(bad); i++) {
        nnc_sink_clear(test_sink);
        CHECK_INT(parse(&j, bad[i].text), NNC_E_MODEL);
        CHECK_DIAG(bad[i].diag);
    }
    char deep[200];
    memset(deep, '[', sizeof deep - 1);
    deep[sizeof deep - 1] = 0;
    CHECK_INT(parse(&j, deep), NNC_E_MODEL);
    CHECK_DIAG("nested deeper");
    CHECK_INT(nnc_json_parse(&j, "m.json", "[\0]", 3, test_sink), NNC_E_MODEL);
    CHECK_DIAG("it contains NUL bytes");
    char *slash = nnc_malloc(1); /* text ends with its last byte, as in a mapped file */
    *slash = '/';
    CHECK_INT(nnc_json_parse(&j, "m.json", slash, 1, test_sink), NNC_E_MODEL);
    CHECK_DIAG("expected a JSON value, found `/`");
    nnc_free(slash);
}

/* Floats of any magnitude, and text of any character. */
TEST(json_accepts)
{
    static const char text[] =
        "[-1e30, 9007199254740993.0, 1.7976931348623157e308, 9007199254740991, "
        "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\", \"\\ud83d\\ude00\", {\"k\\u0065y\": [[], {}, "
        "true, "
        "false, null]}]";
    static const nnc_json_kind kinds[] = {
        NNC_JSON_list, NNC_JSON_object, NNC_JSON_bool, NNC_JSON_bool, NNC_JSON_null};
    nnc_json j;
    const nnc_item *item[7] = {NULL};
    int n = 0;
    CHECK_OK(parse(&j, text));
    CHECK_INT(j.root->n, 7);
    for (const nnc_item *v = j.root->child; v && n < 7; v = v->next)
        item[n++] = v;
    CHECK_INT(n, 7);
    CHECK_NEAR(item[0]->number, -1e30, 0);
    CHECK_NEAR(item[3]->number, 9007199254740991.0, 0);
    CHECK_STR(item[4]->text, "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
    CHECK_STR(item[5]->text, "\xf0\x9f\x98\x80");
    CHECK(item[5]->key == NULL && item[3]->text == NULL);
    const nnc_item *key = nnc_json_get(item[6], "key"), *v = key->child;
    CHECK_INT(key->n, 5);
    for (int i = 0; i < 5; i++, v = v->next)
        CHECK_INT(v->kind, kinds[i]);
    CHECK(v == NULL && key->child->next->next->number == 1);
    CHECK(nnc_json_get(key, "key") == NULL && nnc_json_get(NULL, "key") == NULL);
    nnc_json_deinit(&j);
}

TEST(json_survives_mutation)
{
    static const char good[] =
        "{\"a\": [1, 2.5e3, {\"b\": true, \"c\": null}], \"s\": \"x\\u00e9\\n\"}";
    char text[sizeof good];
    for (uint64_t i = 0; i < 20000; i++) {
        nnc_json j;
        memcpy(text, good, sizeof good);
        for (uint64_t k = 0; k < 1 + i % 3; k++)
            text[nnc_rng_u32(test_seed, i * 8 + k) % (sizeof good - 1)] =
                (char)nnc_rng_u32(test_seed + 1, i * 8 + k);
        nnc_sink_clear(test_sink);
        if (nnc_json_parse(&j, "m", text, sizeof good - 1, test_sink) == NNC_OK) {
            CHECK(nnc_json_loc(&j, j.root, false).line >= 1);
            nnc_json_deinit(&j);
        } else {
            CHECK(nnc_sink_errors(test_sink) == 1);
        }
    }
}

TEST(json_survives_no_memory)
{
    nnc_text t = {0}; /* of several blocks of an arena */
    nnc_puts(&t, "{\"a\": [1, {\"b\": \"text\"}]");
    for (int i = 0; i < 200; i++)
        nnc_printf(&t, ", \"k%d\": \"v\"", i);
    nnc_putc(&t, '}');
    for (int64_t n = 1; n < 100; n++) {
        nnc_json j;
        nnc_fail_alloc_after(n);
        nnc_status s = parse(&j, nnc_text_str(&t));
        nnc_fail_alloc_after(0);
        if (s == NNC_OK) {
            nnc_json_deinit(&j);
            nnc_text_deinit(&t);
            CHECK(n > 3);
            return;
        }
        CHECK_INT(s, NNC_E_NOMEM);
    }
    CHECK(!"never succeeded");
}

static void in_tmp(char path[64], const char *name)
{
    snprintf(path, 64, "/tmp/nnc-test-%d-%s", (int)getpid(), name);
}

TEST(files)
{
    char path[64], *text;
    size_t n;
    nnc_map m;
    in_tmp(path, "file");
    CHECK_OK(nnc_file_write(path, "hello", 5, true, test_sink));
    CHECK_OK(nnc_file_read(path, 0, &text, &n, test_sink));
    CHECK_STR(text, "hello");
    nnc_free(text);
    CHECK_OK(nnc_map_open(&m, path, test_sink));
    CHECK_INT(m.n, 5);
    nnc_map_close(&m);
    CHECK_INT(nnc_file_read(path, 4, &text, &n, test_sink), NNC_E_MODEL);
    unlink(path);
    CHECK_INT(nnc_file_read(path, 0, &text, &n, test_sink), NNC_E_IO);
    CHECK_DIAG("No such file");
    CHECK_INT(nnc_file_read("/tmp", 0, &text, &n, test_sink), NNC_E_IO);
    CHECK_INT(nnc_file_write("/dev/null/x", "a", 1, false, test_sink), NNC_E_IO);
    CHECK_INT(nnc_file_write("/dev/full", "a", 1, false, test_sink), NNC_E_IO);
    CHECK_DIAG("cannot write: No space left");
}

static int files_in(const char *dir)
{
    int n = 0;
    DIR *d = opendir(dir);
    for (const struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d))
        n += e->d_name[0] != '.';
    if (d)
        closedir(d);
    return n;
}

static void check_content(const char *path, const char *want)
{
    char *text;
    size_t n;
    CHECK_OK(nnc_file_read(path, 0, &text, &n, test_sink));
    CHECK_STR(text, want);
    nnc_free(text);
}

/* A link stays a link, whether it points to a file or to none yet; a file that is replaced keeps its permissions. */
TEST(files_through_links)
{
    char dir[64], to[80], link[80], chain[80];
    struct stat before, after;
    in_tmp(dir, "links");
    mkdir(dir, 0777);
    snprintf(to, sizeof to, "%s/to", dir);
    snprintf(link, sizeof link, "%s/link", dir);
    snprintf(chain, sizeof chain, "%s/chain", dir);
    CHECK_INT(symlink("to", link), 0);
    CHECK_INT(symlink(link, chain), 0);
    CHECK_OK(nnc_file_write(chain, "dangling", 8, true, test_sink));
    check_content(to, "dangling");
    CHECK_INT(chmod(to, 0600), 0);
    CHECK_INT(stat(to, &before), 0);
    CHECK_OK(nnc_file_write(link, "again", 5, true, test_sink));
    CHECK_INT(stat(to, &after), 0);
    CHECK(before.st_ino != after.st_ino); /* replaced, not truncated */
    CHECK_INT(after.st_mode & 0777, 0600);
    CHECK_INT(lstat(link, &after), 0);
    CHECK(S_ISLNK(after.st_mode));
    check_content(to, "again");
    CHECK_INT(files_in(dir), 3);
    CHECK_INT(unlink(to), 0);
    CHECK_INT(symlink("link", to), 0);
    CHECK_INT(nnc_file_write(link, "x", 1, true, test_sink), NNC_E_IO);
    CHECK_DIAG("Too many levels");
    unlink(to);
    unlink(link);
    unlink(chain);
    CHECK_INT(rmdir(dir), 0);
}

static nnc_status put_and_die(void *ctx, nnc_out *out)
{
    (void)ctx;
    NNC_TRY(nnc_out_put(out, "half", 4));
    raise(SIGKILL);
    return NNC_OK;
}

static nnc_status put_and_fail(void *ctx, nnc_out *out)
{
    (void)ctx;
    NNC_TRY(nnc_out_put(out, "half", 4));
    return NNC_E_MODEL;
}

/* Neither a kill nor a failure leaves a part of a file, or touches the old one. */
TEST(files_whole_or_not_at_all)
{
    char dir[64], path[80];
    int rc;
    in_tmp(dir, "whole");
    mkdir(dir, 0777);
    snprintf(path, sizeof path, "%s/f", dir);
    CHECK_OK(nnc_file_write(path, "old", 3, true, test_sink));
    pid_t child = fork();
    if (!child)
        _exit(nnc_file_write_by(path, put_and_die, NULL, true, NULL) == NNC_OK);
    CHECK(waitpid(child, &rc, 0) == child && WIFSIGNALED(rc));
    CHECK_INT(nnc_file_write_by(path, put_and_fail, NULL, true, test_sink), NNC_E_MODEL);
    CHECK_OK(nnc_file_can_write(path, test_sink));
    check_content(path, "old");
    CHECK_INT(files_in(dir), 1);
    unlink(path);
    CHECK_OK(nnc_file_can_write(path, test_sink));
    CHECK_OK(nnc_file_can_write("/dev/null", test_sink));
    CHECK_INT(nnc_file_can_write(dir, test_sink), NNC_E_IO);
    CHECK_INT(rmdir(dir), 0);
    CHECK_INT(nnc_file_can_write(path, test_sink), NNC_E_IO);
}

/* A pipe in an entry's place would be waited for; a cache that cannot be written is read all the same. */
TEST(cache_of_odd_files)
{
    char dir[64], file[256], hex[33], *data;
    size_t n;
    int rc;
    in_tmp(dir, "odd");
    nnc_cache *c = nnc_cache_open(dir);
    nnc_hash128 key = nnc_hash("key", 3), other = nnc_hash("other", 5);
    nnc_hash_hex(key, hex);
    snprintf(file, sizeof file, "%s/obj-%s", dir, hex);
    CHECK_INT(mkfifo(file, 0666), 0);
    CHECK(!nnc_cache_get(c, "obj", key, &data, &n));
    nnc_cache_put(c, "obj", key, "0123456789", 10);
    CHECK(nnc_cache_get(c, "obj", key, &data, &n) && n == 10);
    nnc_free(data);
    nnc_cache_close(c);
    CHECK_INT(chmod(dir, 0555), 0);
    pid_t child = fork();
    if (!child) { /* root may write anywhere */
        bool ok = geteuid() != 0 || setuid(65534) == 0;
        c = nnc_cache_open(dir);
        ok = ok && c && !nnc_cache_writable(c) && nnc_cache_get(c, "obj", key, &data, &n);
        nnc_cache_put(c, "obj", other, "0", 1);
        ok = ok && !nnc_cache_get(c, "obj", other, &data, &n);
        _exit(ok ? 0 : 1);
    }
    CHECK(waitpid(child, &rc, 0) == child && WIFEXITED(rc) && WEXITSTATUS(rc) == 0);
    CHECK_INT(chmod(dir, 0777), 0);
    unlink(file);
    CHECK_INT(rmdir(dir), 0);
}

TEST(cache_detects_damage)
{
    char dir[64], file[256], *data;
    size_t n;
    in_tmp(dir, "cache");
    nnc_cache *c = nnc_cache_open(dir);
    nnc_hash128 key = nnc_hash("key", 3);
    char hex[33];
    nnc_hash_hex(key, hex);
    snprintf(file, sizeof file, "%s/obj-%s", dir, hex);
    CHECK(c != NULL);
    CHECK(!nnc_cache_get(c, "obj", key, &data, &n));
    nnc_cache_put(c, "obj", key, "0123456789", 10);
    CHECK(nnc_cache_get(c, "obj", key, &data, &n) && n == 10 && !memcmp(data, "0123456789", 10));
    nnc_free(data);
    CHECK_INT(truncate(file, 20), 0);
    CHECK(!nnc_cache_get(c, "obj", key, &data, &n));
    CHECK(!nnc_file_exists(file));
    nnc_cache_put(c, "obj", key, "0123456789", 10);
    FILE *f = fopen(file, "r+");
    fseek(f, -1, SEEK_END);
    fputc('X', f);
    fclose(f);
    CHECK(!nnc_cache_get(c, "obj", key, &data, &n));
    nnc_cache_close(c);
    rmdir(dir);
    CHECK(!nnc_cache_get(NULL, "obj", key, &data, &n));
}

/* Entries of several chunks, which threads read; the room of a kind. */
TEST(cache_of_large_entries)
{
    enum { N = (3 << 20) + 5, KEYS = 3 };
    char dir[64], file[256], hex[33];
    NNC_FREED char *data = nnc_malloc(N), *got = nnc_malloc(N);
    nnc_hash128 key[KEYS];
    in_tmp(dir, "large");
    nnc_cache *c = nnc_cache_open(dir);
    for (int i = 0; i < N; i++)
        data[i] = (char)(i * 7 + i / 256);
    for (int k = 0; k < KEYS; k++) {
        const struct timespec wait = {.tv_nsec = 20000000}; /* the clock of files is coarse */
        key[k] = nnc_hash(&k, sizeof k);
        nnc_cache_put_large(c, "big", key[k], data, N, 2 * (N + 32) + 100);
        CHECK(nnc_cache_read(c, "big", key[k], got, N, k + 1) && !memcmp(data, got, N));
        nanosleep(&wait, NULL);
        CHECK(nnc_cache_read(c, "big", key[0], got, N, 2)); /* so that entry 1 is older */
        nanosleep(&wait, NULL);
    }
    CHECK(!nnc_cache_read(c, "big", key[1], got, N, 2));
    CHECK(!nnc_cache_read(c, "big", key[2], got, N - 1, 2));
    CHECK(nnc_cache_read(c, "big", key[2], got, N, 2));
    nnc_cache_put_large(c, "big", key[1], data, N, N - 1); /* has no room at all */
    CHECK(!nnc_cache_read(c, "big", key[1], got, N, 2));
    for (int k = 0; k < KEYS; k += 2) {
        nnc_hash_hex(key[k], hex);
        snprintf(file, sizeof file, "%s/big-%s", dir, hex);
        FILE *f = fopen(file, "r+");
        fseek(f, k ? -1 : 2 << 20, k ? SEEK_END : SEEK_SET);
        fputc('X', f);
        fclose(f);
        CHECK(!nnc_cache_read(c, "big", key[k], got, N, 2) && !nnc_file_exists(file));
    }
    nnc_cache_close(c);
    CHECK_INT(rmdir(dir), 0);
}

TEST(weights)
{
    int64_t dim = 100;
    nnc_type t = nnc_type_make(DT_f32, 1, &dim), h = nnc_type_make(DT_f16, 1, &dim);
    float a[100], b[100];
    uint16_t half[100];
    nnc_weight w = {.kind = NNC_W_gen, .name = "w", .seed = 3, .scale = 0.25f, .shift = 1};
    CHECK_OK(nnc_weight_read(&w, &t, 0, 100, a, NULL, test_sink));
    CHECK_OK(nnc_weight_read(&w, &t, 40, 60, b, NULL, test_sink));
    CHECK(!memcmp(a + 40, b, 60 * sizeof *a));
    CHECK_OK(nnc_weight_read(&w, &h, 0, 100, half, NULL, test_sink));
    for (int i = 0; i < 100; i++) {
        CHECK(a[i] >= 0.75f && a[i] <= 1.25f);
        CHECK_INT(half[i], nnc_f32_to_f16(a[i]));
    }
    char path[64];
    in_tmp(path, "weights");
    CHECK_OK(nnc_file_write(path, a, sizeof a, false, test_sink));
    nnc_weight f = {.kind = NNC_W_file, .name = "f", .file = path, .offset = 40, .size = 360};
    nnc_weight_files files = {NULL};
    CHECK_OK(nnc_weight_read(&f, &t, 0, 90, b, &files, test_sink));
    CHECK(!memcmp(a + 10, b, 360));
    CHECK_INT(nnc_weight_read(&f, &t, 1, 90, b, &files, test_sink), NNC_E_IO);
    f.size = 400;
    CHECK_INT(nnc_weight_read(&f, &t, 0, 100, b, &files, test_sink), NNC_E_IO);
    CHECK_DIAG("ends before weight f does");
    f.header_hash = 5;
    CHECK_INT(nnc_weight_read(&f, &t, 0, 1, b, &files, test_sink), NNC_E_IO);
    unlink(path);
    nnc_weight_files_deinit(&files);
}

/* KiB of files' pages that this process holds; -1: the system does not say. */
static long resident_file_pages(void)
{
    char line[256];
    long kib = -1;
    FILE *f = fopen("/proc/self/status", "re");
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, "RssFile:", 8))
            kib = strtol(line + 8, NULL, 10);
    if (f)
        fclose(f);
    return kib;
}

/* Reading a large weight leaves its copy in memory, and not the file, too. */
TEST(large_weights_are_held_once)
{
    enum { N = 16 << 20 };
    int64_t dim = N;
    nnc_type t = nnc_type_make(DT_u8, 1, &dim);
    char path[64], *a = malloc(N), *b = malloc(N);
    for (int i = 0; i < N; i++)
        a[i] = (char)(i * 37 >> 3);
    in_tmp(path, "large");
    CHECK_OK(nnc_file_write(path, a, N, false, test_sink));
    nnc_weight w = {.kind = NNC_W_file, .name = "w", .file = path, .size = N};
    nnc_weight_files files = {NULL};
    long before = resident_file_pages();
    for (int64_t i = 0; i < N; i += N / 8)
        CHECK_OK(nnc_weight_read(&w, &t, i, N / 8, b + i, &files, test_sink));
    CHECK(resident_file_pages() - before < 4096);
    CHECK(!memcmp(a, b, N));
    unlink(path);
    nnc_weight_files_deinit(&files);
    free(a);
    free(b);
}

/* The header of a file with many weights is not hashed again for each piece of each. */
TEST(weight_files_are_opened_once)
{
    int64_t dim = 4;
    nnc_type t = nnc_type_make(DT_f32, 1, &dim);
    nnc_weight_files files = {NULL};
    float a[8] = {0, 0, 1, 2, 3, 4}, b[4] = {0}; /* 8 bytes of header length, no header */
    char path[64];
    in_tmp(path, "once");
    nnc_weight w = {.kind = NNC_W_file,
        .file = path,
        .offset = 8,
        .size = 16,
        .header_hash = nnc_hash64(a, 8, 0)};
    CHECK_OK(nnc_file_write(path, a, sizeof a, false, test_sink));
    CHECK_OK(nnc_weight_read(&w, &t, 0, 2, b, &files, test_sink));
    unlink(path);
    CHECK_OK(nnc_weight_read(&w, &t, 2, 2, b + 2, &files, test_sink));
    CHECK(!memcmp(a + 2, b, 16));
    a[2] = 7; /* another file with the same header: another place, other numbers */
    char second[64];
    in_tmp(second, "second");
    nnc_weight moved = w;
    moved.file = second;
    CHECK_OK(nnc_file_write(second, a, sizeof a, false, test_sink));
    CHECK_OK(nnc_weight_read(&moved, &t, 0, 1, b, &files, test_sink));
    CHECK_INT((int)b[0], 7);
    unlink(second);
    nnc_weight other = w; /* the header of another file */
    other.header_hash++;
    CHECK_INT(nnc_weight_read(&other, &t, 0, 1, b, &files, test_sink), NNC_E_IO);
    nnc_weight_files_deinit(&files);
    CHECK_INT(nnc_weight_read(&w, &t, 0, 1, b, &files, test_sink), NNC_E_IO);
    nnc_weight_files_deinit(&files);
}

TEST(numbers_in_a_locale_with_a_decimal_comma)
{
    nnc_text t = {0};
    nnc_json j = {0};
    if (!test_decimal_comma())
        return;
    CHECK_OK(parse(&j, "[0.25]"));
    CHECK(j.root && j.root->child && j.root->child->number == 0.25);
    nnc_json_deinit(&j);
    nnc_put_double(&t, 0.1);
    nnc_printf(&t, " %.2f %d", 1234.5, 12345);
    CHECK_STR(nnc_text_str(&t), "0.1 1234.50 12345");
    nnc_text_deinit(&t);
    setlocale(LC_ALL, "C");
}

TEST(plugin_of_another_build_says_so)
{
    const char *why = NULL;
    setenv("NNC_PLUGIN_DIR", FOREIGN, 1);
    CHECK(!nnc_plugin("foreign", "nnc_engine_foreign", &why));
    unsetenv("NNC_PLUGIN_DIR");
    CHECK(why && strstr(why, "libnnc_foreign.so is of another build of nnc"));
}

TEST(plugin_absent_says_so)
{
    const char *why = NULL;
    CHECK(!nnc_plugin("nothing", "x", &why));
    CHECK(why && strstr(why, "built without libnnc_nothing.so"));
}
