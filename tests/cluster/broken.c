/* tests/cluster/broken.c -- what is said about broken hardware files (broken.txt), word for word; mutated files; the schema; memory that
 * runs out. */
#include "help.h"
#include "test.h"
#include <dirent.h>
#include <stdlib.h>

static const char *const cases = "tests/cluster/broken.txt";

/* A whole file in which the case's first line, OLD => NEW, is replaced. */
static void apply(const char *base, char *line, nnc_text *out)
{
    char *arrow = strstr(line, " => ");
    const char *at;
    if (!arrow) {
        nnc_puts(out, line);
        return;
    }
    *arrow = 0;
    at = strstr(base, line);
    if (!at) {
        test_fail(__FILE__, __LINE__, "the file has no %s", line);
        return;
    }
    nnc_putn(out, base, (size_t)(at - base));
    nnc_puts(out, arrow + 4);
    nnc_puts(out, at + strlen(line));
}

static void diagnostics(nnc_text *t)
{
    for (size_t i = 0; i < nnc_sink_count(test_sink); i++) {
        const nnc_diag *d = nnc_sink_at(test_sink, i);
        nnc_printf(t, "#> %s:%d:%d: %s\n", d->loc.file ? d->loc.file : "", d->loc.line, d->loc.col,
            d->message);
    }
}

/* A case: "FILE: OLD => NEW", or "FILE: text", and its messages. */
TEST(broken_hardware_files)
{
    char *text, *save = NULL;
    size_t n;
    int count = 0;
    NNC_LOCAL(nnc_text) blessed = {0};
    CHECK_OK(nnc_file_read(cases, 0, &text, &n, test_sink));
    NNC_LOCAL(nnc_text) expected = {0};
    NNC_LOCAL(nnc_text) got = {0};
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        if (!strncmp(line, "#>", 2)) {
            nnc_printf(&expected, "%s\n", line);
            continue;
        }
        if (!getenv("NNC_BLESS"))
            CHECK_STR(nnc_text_str(&got), nnc_text_str(&expected));
        nnc_text_clear(&expected);
        nnc_text_clear(&got);
        nnc_printf(&blessed, "%s\n", line);
        char *colon = strchr(line, ':');
        if (*line == '#' || !colon)
            continue;
        char file[80], *base;
        NNC_LOCAL(nnc_text) json = {0};
        snprintf(file, sizeof file, "models/hardware/%.*s.json", (int)(colon - line), line);
        nnc_sink_clear(test_sink);
        CHECK_OK(nnc_file_read(file, 0, &base, &n, test_sink));
        apply(base, colon + 2, &json);
        nnc_cluster *c = nnc_cluster_parse("h.json", nnc_text_str(&json), json.n, test_sink);
        CHECK(c == NULL && nnc_sink_errors(test_sink) >= 1);
        nnc_cluster_destroy(c);
        diagnostics(&got);
        nnc_puts(&blessed, nnc_text_str(&got));
        nnc_free(base);
        count++;
    }
    if (!getenv("NNC_BLESS"))
        CHECK_STR(nnc_text_str(&got), nnc_text_str(&expected));
    CHECK(count >= 30);
    if (getenv("NNC_BLESS"))
        CHECK_OK(nnc_file_write(cases, nnc_text_str(&blessed), blessed.n, false, test_sink));
    nnc_free(text);
}

static size_t mutate(char *text, size_t n, size_t cap, uint64_t key, uint64_t *at)
{
    static const char *const parts[] = {"\"", "{", "}", "[", "]", ",", ":", "-1", "99999999999999",
        "0", "1e300", "\"n\"", "null", "true", "\"count\": 64, ", "\"nodes\": 65536, ",
        "[[0,1,36]]", "\\u0000", "\x80", "0.5"};
    for (uint32_t k = nnc_rng_u32(key, (*at)++) % 3 + 1; k > 0; k--) {
        const size_t pos = nnc_rng_u32(key, (*at)++) % n;
        const char *part = parts[nnc_rng_u32(key, (*at)++) % NNC_COUNT(parts)];
        size_t len = strlen(part), cut = nnc_rng_u32(key, (*at)++) % 6;
        cut = cut > n - pos ? n - pos : cut;
        if (n - cut + len > cap)
            continue;
        memmove(text + pos + len, text + pos + cut, n - pos - cut);
        memcpy(text + pos, part, len);
        n = n - cut + len;
    }
    return n;
}

/* A file with digits exchanged often stays one; then everything about it can be computed. */
static void use(const nnc_cluster *c)
{
    int32_t device[64];
    int n = 0;
    for (; n < 64 && n < c->n_device; n++)
        device[n] = n;
    for (int kind = 0; kind < GROUP__COUNT; kind++)
        CHECK(nnc_cluster_collective_ps(c, (nnc_group_op)kind, device, n, 12345678) >= 0);
    for (int i = 0; i < n; i++) {
        CHECK(nnc_cluster_p2p_ps(c, 0, i, 1000000) > 0);
        CHECK(nnc_cluster_p2p_ps(c, NNC_HOST, i, 1000000) > 0);
    }
}

TEST(mutated_hardware_files)
{
    static const char *const files[] = {"v100x8", "h100x1024", "cpu", "gtx1080ti_x2"};
    uint64_t key = nnc_rng_key("hardware", test_seed), at = 0;
    int good = 0;
    for (int round = 0; round < 2000; round++) {
        char file[80], *base;
        size_t n;
        snprintf(file, sizeof file, "models/hardware/%s.json", files[round % 4]);
        nnc_sink_clear(test_sink);
        CHECK_OK(nnc_file_read(file, 0, &base, &n, test_sink));
        const size_t cap = n + 256;
        char *text = nnc_malloc(cap);
        memcpy(text, base, n);
        if (round % 3) { /* one digit */
            size_t pos = nnc_rng_u32(key, at++) % n;
            while (pos < n && (text[pos] < '0' || text[pos] > '9'))
                pos++;
            if (pos < n)
                text[pos] = (char)('0' + nnc_rng_u32(key, at++) % 10);
        } else {
            n = mutate(text, n, cap, key, &at);
        }
        nnc_cluster *c = nnc_cluster_parse("fuzz", text, n, test_sink);
        if (!c && !nnc_sink_errors(test_sink))
            test_fail(__FILE__, __LINE__, "rejected without a word (seed %llu, round %d)",
                (unsigned long long)test_seed, round);
        if (c && round % 8 == 1)
            use(c);
        good += c != NULL;
        nnc_cluster_destroy(c);
        nnc_free(text);
        nnc_free(base);
    }
    CHECK_USUAL(good > 300); /* else the mutations are too coarse to reach far */
}

TEST(hardware_files_without_memory)
{
    for (int64_t k = 1;; k++) {
        nnc_sink_clear(test_sink);
        nnc_fail_alloc_after(k);
        nnc_cluster *c = nnc_cluster_load("models/hardware/v100x8.json", test_sink);
        const int64_t ps =
            c ? nnc_cluster_collective_ps(c, GROUP_allreduce, (int32_t[]){0, 1}, 2, 1000) : -1;
        nnc_fail_alloc_after(0);
        nnc_cluster_destroy(c);
        if (c && ps != INT64_MAX)
            break;
        CHECK(k < 1000);
    }
}

/* Every key of every hardware file is in the schema, and every key of the schema is read. */
static void keys_in_schema(const nnc_item *v, const char *schema, const char *file)
{
    for (const nnc_item *m = nnc_json_first(v); m; m = m->next) {
        char key[96];
        snprintf(key, sizeof key, "\"%s\":", m->key ? m->key : "");
        if (m->key && !strstr(schema, key))
            test_fail(__FILE__, __LINE__, "%s: the schema lacks %s", file, m->key);
        keys_in_schema(m, schema, file);
    }
}

TEST(schema_has_all_keys)
{
    char *schema, *machine;
    size_t n, m;
    int files = 0;
    DIR *d = opendir("models/hardware");
    CHECK_OK(nnc_file_read("docs/schema/hardware.schema.json", 0, &schema, &n, test_sink));
    CHECK_OK(nnc_file_read("docs/schema/machine.schema.json", 0, &machine, &m, test_sink));
    NNC_LOCAL(nnc_text) both = {0};
    nnc_puts(&both, schema);
    nnc_puts(&both, machine);
    CHECK(d != NULL);
    for (struct dirent *e; d && (e = readdir(d));) {
        char file[300];
        nnc_json j;
        if (!strstr(e->d_name, ".json"))
            continue;
        snprintf(file, sizeof file, "models/hardware/%s", e->d_name);
        CHECK_OK(nnc_json_load(&j, file, test_sink));
        keys_in_schema(j.root, nnc_text_str(&both), file);
        nnc_json_deinit(&j);
        nnc_cluster *c = nnc_cluster_load(file, test_sink);
        CHECK(c != NULL);
        nnc_cluster_destroy(c);
        files++;
    }
    closedir(d);
    CHECK(files >= 10);
    nnc_json j; /* the schema itself is JSON */
    CHECK_OK(nnc_json_parse(&j, "schema", schema, n, test_sink));
    nnc_json_deinit(&j);
    nnc_free(schema);
    nnc_free(machine);
}
