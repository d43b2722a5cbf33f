/* tests/api/weights.c -- artifacts whose weights lie in a file beside them: moved together, apart, and never overwritten. */
#include "help.h"
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OUT = 3, IN = 4 };

static void write_weights(const char *file, float scale)
{
    static const char header[] =
        "{\"fc.weight\":{\"dtype\":\"F32\",\"shape\":[3,4],\"data_offsets\":[0,48]},"
        "\"fc.bias\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[48,60]}}";
    const uint8_t size[8] = {sizeof header - 1};
    float data[OUT * IN + OUT] = {0};
    for (int i = 0; i < OUT * IN; i++)
        data[i] = scale * (float)(i + 1);
    NNC_LOCAL(nnc_text) t = {0};
    nnc_putn(&t, (const char *)size, 8);
    nnc_puts(&t, header);
    nnc_putn(&t, (const char *)data, sizeof data);
    CHECK_OK(nnc_file_write(file, t.s, t.n, false, test_sink));
}

/* Result 0 of an artifact for an input of ones. */
static nnc_status first_result(
    nnc_env *e, const char *file, const char *weights, float *result, nnc_sink *sink)
{
    nnc_artifact *a = NULL;
    nnc_session *s = NULL;
    float x[IN] = {1, 1, 1, 1}, y[OUT] = {0};
    nnc_status st = nnc_artifact_load(e, file, &a, sink);
    if (!st && weights)
        st = nnc_artifact_use_weights(a, weights, sink);
    if (!st)
        st = nnc_session_create(e, a, &s, sink);
    if (!st)
        st = nnc_session_input(s, 0, x, sink);
    if (!st)
        st = nnc_session_run(s, sink);
    if (!st)
        st = nnc_session_output(s, 0, y, sink);
    *result = y[0];
    nnc_session_destroy(s);
    nnc_artifact_destroy(a);
    return st;
}

typedef struct place {
    char dir[256], from[PATH_MAX];
    nnc_env *e;
} place;

/* In a fresh folder: l.json, in/w.st, and out/l.nnc compiled with --weights=in/w.st from that folder. */
static void open_place(place *p)
{
    static const char json[] = "{\"inputs\":{\"x\":[1,4]},\"layers\":[{\"op\":\"linear\","
                               "\"name\":\"fc\",\"out\":3}]}";
    nnc_artifact *a = NULL;
    CHECK(api_tmpdir(p->dir, sizeof p->dir) && getcwd(p->from, sizeof p->from));
    CHECK_OK(nnc_env_create(&(nnc_env_options){TEST_CACHED}, &p->e, test_sink));
    CHECK_INT(chdir(p->dir), 0);
    mkdir("in", 0777);
    mkdir("out", 0777);
    CHECK_OK(nnc_file_write("l.json", json, strlen(json), false, test_sink));
    write_weights("in/w.st", 1);
    nnc_model *m = nnc_model_open("l.json", &(nnc_open_options){.weights = "in/w.st"}, test_sink);
    CHECK_OK(nnc_compile(p->e, m, &nnc_compile_defaults, &a, test_sink));
    CHECK_OK(nnc_artifact_save(a, "out/l.nnc", false, test_sink));
    CHECK_OK(nnc_artifact_save(a, "out/e.nnc", true, test_sink));
    /* by whatever name, the weights are not overwritten */
    CHECK_INT(symlink("w.st", "in/link.st"), 0);
    CHECK_INT(nnc_artifact_save(a, "in/link.st", false, test_sink), NNC_E_USAGE);
    CHECK_DIAG("holds the model's weights");
    CHECK(nnc_artifact_reads(a, "in/../in/w.st") && !nnc_artifact_reads(a, "l.json"));
    nnc_artifact_destroy(a);
    nnc_model_close(m);
}

static void close_place(place *p)
{
    static const char *const files[] = {"l.json", "in/w.st", "in/link.st", "in/other.st",
        "out/l.nnc", "out/e.nnc", "else/in/w.st", "else/out/l.nnc", "else/other.st",
        "else/in/link.nnc", "out/new.nnc"};
    static const char *const dirs[] = {"else/in", "else/out", "else", "in", "out"};
    for (size_t i = 0; i < NNC_COUNT(files); i++)
        unlink(files[i]);
    for (size_t i = 0; i < NNC_COUNT(dirs); i++)
        rmdir(dirs[i]);
    CHECK_INT(chdir(p->from), 0);
    nnc_env_destroy(p->e);
    api_rmdir(p->dir);
}

/* The path is relative to the artifact, not to where nnc is run or was run. */
TEST(weights_move_with_the_artifact)
{
    place p;
    float y;
    open_place(&p);
    CHECK_INT(chdir("out"), 0);
    CHECK_OK(first_result(p.e, "l.nnc", NULL, &y, test_sink));
    CHECK(y == 10);
    CHECK_INT(chdir(".."), 0);
    mkdir("else", 0777);
    CHECK_INT(rename("in", "else/in"), 0);
    CHECK_INT(rename("out", "else/out"), 0);
    CHECK_OK(first_result(p.e, "else/out/l.nnc", NULL, &y, test_sink));
    CHECK(y == 10);
    close_place(&p);
}

/* The folder that counts is that of the file, not that of a symbolic link to it. */
TEST(weights_of_an_artifact_behind_a_link)
{
    place p;
    float y;
    nnc_artifact *a = NULL;
    open_place(&p);
    mkdir("else", 0777);
    mkdir("else/in", 0777);
    CHECK_INT(symlink("../../out/new.nnc", "else/in/link.nnc"), 0);
    CHECK_OK(nnc_artifact_load(p.e, "out/l.nnc", &a, test_sink));
    for (int i = 0; a && i < 2; i++) { /* the first time the link's target is missing */
        CHECK_OK(nnc_artifact_save(a, "else/in/link.nnc", false, test_sink));
        CHECK_OK(first_result(p.e, "else/in/link.nnc", NULL, &y, test_sink));
        CHECK(y == 10);
    }
    nnc_artifact_destroy(a);
    close_place(&p);
}

/* Bytes whose checksum was verified are those that are used. */
TEST(weights_embedded_in_a_file_that_is_replaced)
{
    place p;
    nnc_artifact *a = NULL;
    nnc_session *s = NULL;
    float x[IN] = {1, 1, 1, 1}, y[OUT] = {0};
    open_place(&p);
    CHECK_OK(nnc_artifact_load(p.e, "out/e.nnc", &a, test_sink));
    CHECK_OK(nnc_file_write("out/e.nnc", "nothing", 7, false, test_sink));
    CHECK_OK(nnc_session_create(p.e, a, &s, test_sink));
    CHECK_OK(nnc_session_input(s, 0, x, test_sink));
    CHECK_OK(nnc_session_run(s, test_sink));
    CHECK_OK(nnc_session_output(s, 0, y, test_sink));
    CHECK(y[0] == 10);
    nnc_session_destroy(s);
    nnc_artifact_destroy(a);
    close_place(&p);
}

/* Apart from them it says where they were looked for, and reads them from where the user says. */
TEST(weights_from_another_place)
{
    place p;
    float y;
    nnc_artifact *a = NULL;
    open_place(&p);
    write_weights("in/other.st", 2);
    mkdir("else", 0777);
    CHECK_INT(rename("in/w.st", "else/other.st"), 0);
    CHECK_INT(first_result(p.e, "out/l.nnc", NULL, &y, test_sink), NNC_E_IO);
    CHECK_DIAG("--weights=FILE");
    CHECK_OK(first_result(p.e, "out/l.nnc", "in/other.st", &y, test_sink)); /* the same header */
    CHECK(y == 20);
    CHECK_INT(first_result(p.e, "out/l.nnc", "l.json", &y, test_sink), NNC_E_IO);
    CHECK_INT(first_result(p.e, "out/e.nnc", "in/other.st", &y, test_sink), NNC_E_USAGE);
    CHECK_DIAG("no effect");
    /* to look at, whichever machine it is for */
    CHECK_OK(nnc_artifact_load(NULL, "out/l.nnc", &a, test_sink));
    CHECK_INT(nnc_artifact_check_weights(a, test_sink), NNC_E_IO);
    CHECK_OK(nnc_artifact_use_weights(a, "else/other.st", test_sink));
    nnc_session *s = NULL;
    CHECK_INT(nnc_session_create(p.e, a, &s, test_sink), NNC_E_USAGE);
    nnc_artifact_destroy(a);
    close_place(&p);
}
