/* tests/api/train_settings.c -- the section "train" of model files: what it sets, and what overrides it. */
#include "session/session.h"
#include "session/train.h"
#include "help.h"

static const char section[] =
    "{\"args\": {\"batch\": 1}, \"inputs\": {\"x\": [\"batch\", 8]}, \"layers\": [{\"op\": "
    "\"linear\", \"name\": \"a\", \"out\": 4}], \"train\": {\"loss\": \"mse\", \"lr\": 0.25, "
    "\"batch\": 16, \"seed\": 9, \"data\": \"d.npz\", \"labels\": \"/l.npy\", \"shuffle\": false, "
    "\"nesterov\": true, \"optimizer\": \"adamw\", \"warmup_steps\": 50}}";

static nnc_model *open_for_training(
    const char *file, const char *set, nnc_train_options *t, nnc_arena *a)
{
    const nnc_arg batch = {"batch", set};
    const nnc_open_options o = {.trains = true, .arg = &batch, .n_arg = set != NULL};
    nnc_model *m = nnc_model_open(file, &o, test_sink);
    CHECK(m != NULL);
    if (m)
        CHECK_OK(nnc_train_read(m, t, a, test_sink));
    return m;
}

static int64_t batch_of(const nnc_model *m)
{
    return m ? nnc_typeof(m, m->node[0].out)->dim[0] : 0;
}

static size_t row_of(const char *flag)
{
    size_t i = 0;
    while (i < nnc_n_train_settings && strcmp(nnc_train_settings[i].value.name, flag) != 0)
        i++;
    return i;
}

TEST(sections_of_model_files)
{
    char dir[256], file[300], data[320];
    NNC_LOCAL(nnc_arena) a = {0};
    CHECK(api_tmpdir(dir, sizeof dir));
    snprintf(file, sizeof file, "%s/m.json", dir);
    snprintf(data, sizeof data, "%s/d.npz", dir);
    CHECK_OK(nnc_file_write(file, section, sizeof section - 1, false, test_sink));
    nnc_train_options t = nnc_train_defaults;
    nnc_model *m = open_for_training(file, NULL, &t, &a);
    CHECK_INT(batch_of(m), 16);
    CHECK_INT(m->given->seed, 9);
    CHECK(t.training.loss == NNC_LOSS_mse && t.training.optimizer == NNC_OPT_adamw &&
          t.training.nesterov);
    CHECK(t.rate.lr == 0.25 && t.rate.warmup == 50 && t.data.no_shuffle && t.seed == 9 &&
          t.epochs == 1);
    CHECK_STR(t.data.path, data); /* beside the model file */
    CHECK_STR(t.data.labels, "/l.npy");
    nnc_model_close(m);
    /* flags come before the section */
    t = nnc_train_defaults;
    t.given[row_of("--lr")] = t.given[row_of("--no-shuffle")] = true;
    t.rate.lr = 2;
    m = open_for_training(file, "32", &t, &a);
    CHECK_INT(batch_of(m), 32);
    CHECK(t.rate.lr == 2 && !t.data.no_shuffle && t.training.loss == NNC_LOSS_mse);
    nnc_model_close(m);
    /* of other uses, batch and seed are the model's own */
    m = nnc_model_open(file, NULL, test_sink);
    CHECK_INT(batch_of(m), 1);
    CHECK_INT(m->given->seed, 0);
    nnc_model_close(m);
    api_rmdir(dir);
}
