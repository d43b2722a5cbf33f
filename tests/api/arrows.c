/* tests/api/arrows.c -- the folders' arrows: a folder includes only the headers of folders below it, and of those only the public one. */
#include "test.h"
#include <dirent.h>
#include <stdlib.h>

#define BELOW /* the compiler and its devices, which session/ puts together */ \
    "api base ir train data target cost cuda tensors onnx frontend kernel passes codegen plan " \
    "comm " \
    "runtime engines partition cluster"

static const struct {
    const char *folder, *may;
} arrows[] = {
    /* lowest first: a row names only folders of rows before it, so there is no circle */
    {"base", ""},
    {"api", "base"},
    {"target", "base"},
    {"cost", "base target"},
    {"cuda", "base"},
    {"partition", "base"},
    {"picture", "base"},
    {"ir", "base"},
    {"autodiff", "base ir"},
    {"train", "base ir autodiff"},
    {"tensors", "base"},
    {"comm", "base"},
    {"data", "base tensors"},
    {"onnx", "base ir"},
    {"frontend", "base ir onnx tensors"},
    {"kernel", "base ir target cost"},
    {"math", "base ir target kernel"},
    {"schedule", "base ir target cost kernel"},
    {"passes", "base ir target cost kernel schedule"},
    {"interp", "base ir kernel math"},
    {"codegen", "base ir target cost kernel math schedule interp"},
    {"plan", "base ir target cost kernel codegen partition"},
    {"runtime", "base comm cuda plan"},
    {"cluster", "base target"},
    {"sim", "base target cost cluster plan"},
    {"engines", "base target cost cuda plan codegen runtime"},
    {"plugins/llvm", "base ir target kernel math codegen"},
    {"plugins/mpi", "base comm"},
    {"plugins/jpeg", "base data"},
    {"plugins/png", "base data"},
    {"session", BELOW},
    {"report", BELOW " session picture sim"},
    {"strategy", BELOW " session report picture sim"},
    {"check", BELOW " session report strategy"},
    {"fit", BELOW " session report strategy sim"},
    {"calibrate", BELOW " session report strategy sim"},
    {"trainer", BELOW " session report strategy"},
    {"profile", BELOW " session report check"},
    {"sweep", BELOW " session report picture sim check strategy fit"},
    {"experiments", BELOW " session report strategy check profile sweep"},
    {"cli",
        "base api session report check strategy fit profile sweep experiments calibrate trainer"},
};

static bool listed(const char *words, const char *word, size_t n)
{
    for (const char *p = words; (p = strstr(p, word)) != NULL; p += n)
        if ((p == words || p[-1] == ' ') && (p[n] == ' ' || !p[n]))
            return true;
    return false;
}

static bool public_header(const char *folder, size_t n, const char *file)
{
    char name[64];
    snprintf(name, sizeof name, "%.*s.h", (int)n, folder);
    if (!strcmp(file, name) || (n == 4 && !strncmp(folder, "base", 4)))
        return true;
    if (strstr(file, ".def")) /* a table: data that several read */
        return true;
    if (n == 4 && !strncmp(folder, "cuda", 4))
        return !strcmp(file, "cudnn.h");
    if (n == 3 && !strncmp(folder, "api", 3))
        return !strcmp(file, "nnc.h");
    if (n == 7 && !strncmp(folder, "session", 7))
        return !strcmp(file, "train.h");
    if (n == 5 && !strncmp(folder, "sweep", 5))
        return !strcmp(file, "point.h");
    if (n == 4 && !strncmp(folder, "math", 4)) /* what all emitters expand */
        return !strcmp(file, "formula.h");
    return n == 4 && !strncmp(folder, "plan", 4) && !strcmp(file, "make.h");
}

static void check_line(
    const char *path, int line, const char *text, const char *own, const char *may)
{
    char inc[128], folder[128];
    if (sscanf(text, " # include \"%127[^\"]\"", inc) != 1 || !strchr(inc, '/'))
        return;
    snprintf(folder, sizeof folder, "%s", inc);
    char *slash = strrchr(folder, '/');
    *slash = 0;
    if (!strcmp(folder, own))
        return;
    if (!listed(may, folder, strlen(folder)))
        test_fail(path, line, "%s must not include %s (it may include: %s)", own, inc, may);
    else if (!public_header(folder, strlen(folder), slash + 1))
        test_fail(path, line, "%s is not the public header of %s", inc, folder);
}

static void check_file(const char *path, const char *own, const char *may)
{
    FILE *f = fopen(path, "r");
    char text[1024];
    for (int line = 1; f && fgets(text, sizeof text, f); line++)
        check_line(path, line, text, own, may);
    if (f)
        fclose(f);
}

/* Row of a folder, by its name of n bytes; -1: none. */
static int row_of(const char *folder, size_t n)
{
    for (size_t i = 0; i < NNC_COUNT(arrows); i++)
        if (!strncmp(arrows[i].folder, folder, n) && !arrows[i].folder[n])
            return (int)i;
    return -1;
}

/* Folders of `dir` without a row, but for plugins/, whose folders have rows. */
static void check_rows(const char *dir, const char *prefix)
{
    DIR *d = opendir(dir);
    CHECK(d != NULL);
    for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
        char name[300];
        snprintf(name, sizeof name, "%s%s", prefix, e->d_name);
        if (e->d_name[0] != '.' && e->d_type == DT_DIR && strcmp(name, "plugins") != 0 &&
            row_of(name, strlen(name)) < 0)
            test_fail(__FILE__, __LINE__, "src/%s has no row", name);
    }
    if (d)
        closedir(d);
}

TEST(rows_name_each_folder_and_no_circle)
{
    check_rows("src", "");
    check_rows("src/plugins", "plugins/");
    for (int i = 0; i < (int)NNC_COUNT(arrows); i++)
        for (const char *w = arrows[i].may; *w;) {
            const size_t n = strcspn(w, " ");
            const int below = row_of(w, n);
            if (below < 0 || below >= i)
                test_fail(__FILE__, __LINE__, "%s: %.*s has no row before it", arrows[i].folder,
                    (int)n, w);
            w += n + strspn(w + n, " ");
        }
}

TEST(folders_point_one_way)
{
    int files = 0;
    for (size_t i = 0; i < NNC_COUNT(arrows); i++) {
        char dir[64], path[400];
        snprintf(dir, sizeof dir, "src/%s", arrows[i].folder);
        DIR *d = opendir(dir);
        CHECK(d != NULL);
        for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
            const char *dot = strrchr(e->d_name, '.');
            if (!dot || (strcmp(dot, ".c") && strcmp(dot, ".h")))
                continue;
            snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
            check_file(path, arrows[i].folder, arrows[i].may);
            files++;
        }
        if (d)
            closedir(d);
    }
    CHECK(files > 40);
}
