/* tests/api/indices.c -- inputs that are indices. Generated ones are valid for their tables. An index outside its table is an
 * error of the run instead of another row. */
#include "session/session.h"
#include "test.h"

typedef struct loaded {
    nnc_env *env;
    nnc_graph *g;
    nnc_artifact *a;
    nnc_session *s;
} loaded;

static void load(loaded *l, const char *json)
{
    *l = (loaded){0};
    CHECK_OK(nnc_env_create(&(nnc_env_options){TEST_CACHED, .threads = 1}, &l->env, test_sink));
    l->g = nnc_model_parse("m.json", json, strlen(json), NULL, test_sink);
    CHECK(l->g != NULL);
    CHECK_OK(nnc_compile(l->env, l->g, &nnc_compile_defaults, &l->a, test_sink));
    CHECK_OK(nnc_session_create(l->env, l->a, &l->s, test_sink));
}

static void unload(loaded *l)
{
    nnc_session_destroy(l->s);
    nnc_artifact_destroy(l->a);
    nnc_graph_destroy(l->g);
    nnc_env_destroy(l->env);
}

#define IDS "{\"inputs\": {\"ids\": {\"shape\": [2, 3], \"dtype\": \"i64\"}}, \"layers\": ["
#define TABLE "{\"op\": \"embedding\", \"rows\": 4, \"channels\": 2}"

TEST(generated_indices_stand_in_their_table)
{
    static const struct {
        const char *json;
        int64_t rows;
    } cases[] = {
        {IDS TABLE "]}", 4},
        {IDS "\"transpose\", {\"op\": \"reshape\", \"shape\": [-1]}, " TABLE "]}", 4},
        {IDS "{\"op\": \"cast\", \"to\": \"i32\"}, {\"op\": \"slice\", \"axes\": [1], \"starts\": "
             "[1]}, " TABLE "]}",
            4},
        {IDS "{\"name\": \"a\", \"op\": \"embedding\", \"rows\": 7, \"channels\": 2}, {\"name\": "
             "\"b\", "
             "\"in\": \"ids\", \"op\": \"embedding\", \"rows\": 2, \"channels\": 2}, {\"op\": "
             "\"add\", \"in\": [\"a\", \"b\"]}]}",
            2},
    };
    for (size_t i = 0; i < NNC_COUNT(cases); i++) {
        loaded l;
        int64_t ids[6];
        bool more_than_one = false;
        load(&l, cases[i].json);
        CHECK_OK(nnc_artifact_fill_input(l.a, 0, 1, ids, test_sink));
        for (int k = 0; k < 6; k++) {
            CHECK(ids[k] >= 0 && ids[k] < cases[i].rows);
            more_than_one |= ids[k] != ids[0];
        }
        CHECK(more_than_one);
        CHECK_OK(nnc_session_input(l.s, 0, ids, test_sink));
        unload(&l);
    }
}

TEST(an_index_outside_its_table_is_an_error)
{
    loaded l;
    int64_t ids[6] = {0, 3, -4, 1, 2, -1};
    float y[12], first[12];
    load(&l, IDS TABLE "]}");
    CHECK_OK(nnc_session_input(l.s, 0, ids, test_sink));
    CHECK_OK(nnc_session_run(l.s, test_sink));
    CHECK_OK(nnc_session_output(l.s, 0, first, test_sink));
    CHECK(!memcmp(first, first + 4, 2 * sizeof *first)); /* -4 is 0 */
    CHECK(!memcmp(first + 2, first + 10, 2 * sizeof *first)); /* -1 is 3 */
    ids[4] = 4;
    CHECK_INT(nnc_session_input(l.s, 0, ids, test_sink), NNC_E_MODEL);
    CHECK_DIAG("input ids: element 4 is 4, an index into the 4 entries of /layers/0/embedding; "
               "expected -4 to 3");
    ids[4] = -5;
    CHECK_INT(nnc_session_input(l.s, 0, ids, test_sink), NNC_E_MODEL);
    CHECK_OK(nnc_session_run(l.s, test_sink)); /* with what was there before */
    CHECK_OK(nnc_session_output(l.s, 0, y, test_sink));
    CHECK(!memcmp(first, y, sizeof y));
    unload(&l);
    /* Numbers that are cut away before the table may be anything. */
    load(&l, IDS "{\"op\": \"slice\", \"axes\": [1], \"starts\": [0], \"ends\": [1]}, " TABLE "]}");
    ids[1] = 99;
    CHECK_OK(nnc_session_input(l.s, 0, ids, test_sink));
    unload(&l);
}

/* x[i, j] of 5 rows and 4 columns: each number is held against the dimension that it indexes. */
TEST(indices_of_several_dimensions)
{
    static const char table[] = "{\"op\": \"param\", \"name\": \"t\", \"shape\": [5, 4]}, ";
    static const int64_t rows[] = {4, 0, -5}, columns[] = {3, -4, 1}, outside[] = {1, 2, 4};
    loaded l;
    nnc_text json = {0};
    nnc_printf(&json,
        "{\"inputs\": {\"i\": {\"shape\": [3, 1], \"dtype\": \"i64\"}, \"j\": {\"shape\": [3, 1], "
        "\"dtype\": \"i64\"}}, \"layers\": [%s{\"op\": \"concat\", \"name\": \"ij\", \"in\": "
        "[\"i\", \"j\"]}, {\"op\": \"gather_nd\", \"in\": [\"t\", \"ij\"]}]}",
        table);
    load(&l, nnc_text_str(&json));
    CHECK_OK(nnc_session_input(l.s, 0, rows, test_sink));
    CHECK_OK(nnc_session_input(l.s, 1, columns, test_sink));
    CHECK_INT(nnc_session_input(l.s, 1, outside, test_sink), NNC_E_MODEL);
    CHECK_DIAG("input j: element 2 is 4, an index into the 4 entries of");
    unload(&l);
    /* Tuples in one tensor: what indexes no dimension is refused, generated ones index any. */
    static const int64_t pairs[] = {4, 3, 0, -4, -5, 1}, no_pair[] = {4, 3, 0, 5, 1, 1};
    int64_t made[6];
    json.n = 0;
    nnc_printf(&json,
        "{\"inputs\": {\"ij\": {\"shape\": [3, 2], \"dtype\": \"i64\"}}, \"layers\": [%s{\"op\": "
        "\"gather_nd\", \"in\": [\"t\", \"ij\"]}]}",
        table);
    load(&l, nnc_text_str(&json));
    CHECK_OK(nnc_session_input(l.s, 0, pairs, test_sink));
    CHECK_INT(nnc_session_input(l.s, 0, no_pair, test_sink), NNC_E_MODEL);
    CHECK_OK(nnc_artifact_fill_input(l.a, 0, 1, made, test_sink));
    for (int k = 0; k < 6; k++)
        CHECK(made[k] >= 0 && made[k] < 4);
    unload(&l);
    nnc_text_deinit(&json);
}
