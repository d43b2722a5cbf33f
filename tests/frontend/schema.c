/* tests/frontend/schema.c -- docs/schema/model.schema.json against the program: what one accepts the other accepts, as far as a
 * schema can tell. With a checker of the part of draft-07 that the schema uses. */
#include "session/train.h"
#include "schema.h"
#include "test.h"
#include <cjson/cJSON.h>
#include <dirent.h>
#include <math.h>

static const cJSON *get(const cJSON *o, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(o, key);
}

static bool is_type(const cJSON *v, const char *type)
{
    return !strcmp(type, "object")    ? cJSON_IsObject(v)
           : !strcmp(type, "array")   ? cJSON_IsArray(v)
           : !strcmp(type, "string")  ? cJSON_IsString(v)
           : !strcmp(type, "boolean") ? cJSON_IsBool(v)
           : !strcmp(type, "number")  ? cJSON_IsNumber(v)
           : !strcmp(type, "integer") ? cJSON_IsNumber(v) && v->valuedouble == floor(v->valuedouble)
                                      : false;
}

static bool valid(const cJSON *s, const cJSON *v, const cJSON *root);

static int count_valid(const cJSON *list, const cJSON *v, const cJSON *root)
{
    int n = 0;
    for (const cJSON *s = list->child; s; s = s->next)
        n += valid(s, v, root);
    return n;
}

static bool valid_members(const cJSON *s, const cJSON *v, const cJSON *root)
{
    const cJSON *props = get(s, "properties"), *rest = get(s, "additionalProperties"),
                *names = get(s, "required");
    for (const cJSON *n = names ? names->child : NULL; n && cJSON_IsObject(v); n = n->next)
        if (!get(v, n->valuestring))
            return false;
    for (const cJSON *m = cJSON_IsObject(v) ? v->child : NULL; m; m = m->next) {
        const cJSON *p = props ? get(props, m->string) : NULL;
        if (p ? !valid(p, m, root) : rest && !valid(rest, m, root))
            return false;
    }
    return true;
}

/* One keyword of a schema. */
static bool holds(const cJSON *k, const cJSON *s, const cJSON *v, const cJSON *root)
{
    const char *key = k->string;
    int n = cJSON_GetArraySize(v);
    bool hit = false;
    if (!strcmp(key, "$ref"))
        return valid(
            get(get(root, "definitions"), k->valuestring + strlen("#/definitions/")), v, root);
    if (!strcmp(key, "type") && cJSON_IsString(k))
        return is_type(v, k->valuestring);
    if (!strcmp(key, "type") || !strcmp(key, "enum")) {
        for (const cJSON *t = k->child; t; t = t->next)
            hit |= *key == 't' ? is_type(v, t->valuestring) : cJSON_Compare(t, v, true);
        return hit;
    }
    if (!strcmp(key, "const"))
        return cJSON_Compare(k, v, true);
    if (!strcmp(key, "anyOf"))
        return count_valid(k, v, root) > 0;
    if (!strcmp(key, "oneOf"))
        return count_valid(k, v, root) == 1;
    if (!strcmp(key, "allOf"))
        return count_valid(k, v, root) == cJSON_GetArraySize(k);
    if (!strcmp(key, "if"))
        return !valid(k, v, root) || valid(get(s, "then"), v, root);
    if (!strcmp(key, "items")) {
        for (const cJSON *e = cJSON_IsArray(v) ? v->child : NULL; e; e = e->next)
            if (!valid(k, e, root))
                return false;
        return true;
    }
    if (!strcmp(key, "minItems") || !strcmp(key, "minProperties"))
        return n >= k->valueint;
    if (!strcmp(key, "minimum") || !strcmp(key, "maximum"))
        return !cJSON_IsNumber(v) || (key[1] == 'i' ? v->valuedouble >= k->valuedouble
                                                    : v->valuedouble <= k->valuedouble);
    if (!strcmp(key, "maxItems"))
        return n <= k->valueint;
    static const char *const others[] = {"properties", "additionalProperties", "required", "then",
        "title", "description", "$schema", "definitions"};
    for (size_t i = 0; i < NNC_COUNT(others); i++)
        hit |= !strcmp(key, others[i]);
    if (!hit)
        test_fail(__FILE__, __LINE__, "the checker does not know the keyword %s", key);
    return hit;
}

static bool valid(const cJSON *s, const cJSON *v, const cJSON *root)
{
    if (!cJSON_IsObject(s))
        return cJSON_IsTrue(s);
    for (const cJSON *k = s->child; k; k = k->next)
        if (!holds(k, s, v, root))
            return false;
    return valid_members(s, v, root);
}

bool schema_accepts(const char *json)
{
    static cJSON *schema;
    if (!schema) {
        NNC_LOCAL(nnc_text) t = {0};
        model_schema(&t);
        schema = cJSON_Parse(nnc_text_str(&t));
        CHECK(schema != NULL);
    }
    cJSON *model = cJSON_Parse(json);
    const bool ok = schema && model && valid(schema, model, schema);
    cJSON_Delete(model);
    return ok;
}

/* Every model that comes with nnc. */
TEST(schema_accepts_models)
{
    DIR *d = opendir("models");
    int n = 0;
    CHECK(d != NULL);
    for (struct dirent *e; d && (e = readdir(d));) {
        char file[300], *text = NULL;
        size_t len;
        if (!strstr(e->d_name, ".json"))
            continue;
        snprintf(file, sizeof file, "models/%s", e->d_name);
        CHECK_OK(nnc_file_read(file, 0, &text, &len, test_sink));
        if (text && !schema_accepts(text))
            test_fail(__FILE__, __LINE__, "%s", file);
        nnc_free(text);
        n++;
    }
    if (d)
        closedir(d);
    CHECK(n >= 10);
}

TEST(schema_accepts_and_rejects)
{
#define MODEL(layer) \
    "{\"inputs\": {\"x\": [\"n\", 4]}, \"args\": {\"n\": 2}, \"layers\": [" layer "]}"
    static const char *const good[] = {MODEL("\"relu\""),
        MODEL("{\"op\": \"linear\", \"out\": \"2*n\", \"bias\": 0, \"frozen\": 1}"),
        MODEL("{\"op\": \"add\", \"value\": \"-inf\"}"),
        MODEL("{\"op\": \"add\", \"value\": -1e30}"),
        "{\"args\": {\"s\": 0.5, \"t\": {\"default\": 1.5}}, \"inputs\": {\"x\": [1]}, \"layers\": "
        "[{\"op\": \"add\", \"value\": \"s\"}]}",
        MODEL("{\"layers\": [\"relu\"], \"output\": \"prev\", \"repeat\": 2, \"weights\": \"w\", "
              "\"when\": true}"),
        MODEL("{\"op\": \"reduce_sum\", \"axes\": 0, \"keepdims\": \"n == 2\"}")};
    static const char *const bad[] = {MODEL(""), MODEL("7"), MODEL("{}"),
        MODEL("{\"op\": \"linear\"}"), MODEL("{\"op\": \"linear\", \"out\": 2, \"kernel\": 3}"),
        MODEL("{\"op\": \"linear\", \"out\": 2.5}"),
        MODEL("{\"op\": \"relu\", \"layers\": [\"relu\"]}"),
        MODEL("{\"op\": \"linear\", \"out\": 2, \"bias\": 2}"),
        MODEL("{\"op\": \"relu\", \"name\": 3}"), "{\"layers\": [\"relu\"]}",
        "{\"inputs\": {\"x\": [1]}, \"layers\": [\"relu\"], \"train\": []}",
        "{\"inputs\": {\"x\": [1]}, \"layers\": [\"relu\"], \"input\": 1}"};
    for (size_t i = 0; i < NNC_COUNT(good) + NNC_COUNT(bad); i++) {
        bool want = i < NNC_COUNT(good);
        const char *json = want ? good[i] : bad[i - NNC_COUNT(good)];
        nnc_graph *g = nnc_model_parse("m", json, strlen(json), NULL, test_sink);
        if (schema_accepts(json) != want || (g != NULL) != want)
            test_fail(__FILE__, __LINE__, "%s: the schema says %d, nnc %d", json,
                schema_accepts(json), g != NULL);
        nnc_graph_destroy(g);
    }
}

/* What nnc train says of a section "train" with this member. */
static bool train_accepts(const char *json)
{
    NNC_LOCAL(nnc_arena) a = {0};
    nnc_train_options o = nnc_train_defaults;
    nnc_graph *g = nnc_model_parse("m", json, strlen(json), NULL, test_sink);
    const bool ok = g && !nnc_train_read(g, &o, &a, test_sink);
    nnc_graph_destroy(g);
    return ok;
}

/* Every key of the section "train" with values of each kind: the schema takes those that nnc takes. */
TEST(schema_of_training)
{
    static const char *const values[] = {"true", "false", "null", "0", "1", "2.5", "-3", "1e12",
        "\"adamw\"", "\"constant\"", "\"a,b\"", "\"\"", "[\"a\", 3]", "[]", "[true]", "{}"};
    int taken = 0, refused = 0;
    for (size_t i = 0; i < nnc_n_train_settings; i++)
        for (size_t k = 0; k < NNC_COUNT(values); k++) {
            char key[NNC_TRAIN_KEY_SIZE], json[256];
            (void)nnc_train_key(&nnc_train_settings[i], key);
            snprintf(json, sizeof json,
                "{\"args\": {\"batch\": 1}, \"inputs\": {\"x\": [\"batch\"]}, \"layers\": "
                "[\"relu\"], "
                "\"train\": {\"%s\": %s}}",
                key, values[k]);
            const bool schema = schema_accepts(json), program = train_accepts(json);
            /* a schema knows no form of texts */
            if (schema != program && !(schema && strchr("\"[", values[k][0])))
                test_fail(
                    __FILE__, __LINE__, "%s: the schema says %d, nnc %d", json, schema, program);
            taken += program;
            refused += !program;
        }
    CHECK(taken > 100 && refused > 100);
}
