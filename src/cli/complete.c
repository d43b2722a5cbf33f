/* cli/complete.c -- completes command lines from the tables of commands and flags, and from the model that the line names. The scripts in
 * cmake/completion call it; a line of its result is a candidate for the whole last word, and after a tab what it means. The only line
 * "files", a tab and the first part of the word: a path follows that part. */
#include "cli/cli.h"
#include "base/json.h"
#include "report/report.h"
#include <ctype.h>
#include <string.h>

/* The last word: the part that stays, of n bytes, and what candidates are for. */
typedef struct completion {
    const char *word, *part;
    const char *model; /* first file of the line, or NULL */
    bool files; /* a path may follow */
} completion;

/* Candidate of n bytes; a description up to the end of its first sentence. */
static void put(const completion *k, const char *name, size_t n, const char *after, const char *doc)
{
    const size_t given = strlen(k->part);
    if (n < given || strncmp(name, k->part, given) != 0)
        return;
    printf("%.*s%.*s%s", (int)(k->part - k->word), k->word, (int)n, name, after);
    const char *end = doc ? strpbrk(doc, ".;(") : NULL;
    while (end && end[0] != '(' && end[1] && end[1] != ' ')
        end = strpbrk(end + 1, ".;(");
    size_t m = !doc ? 0 : end ? (size_t)(end - doc) : strlen(doc);
    while (m && doc[m - 1] == ' ')
        m--;
    if (m)
        printf("\t%.*s", (int)m, doc);
    putchar('\n');
}

static void put_name(const completion *k, const char *name, const char *after)
{
    if (name)
        put(k, name, strlen(name), after, NULL);
}

/* Args of a model file: their names, or, after "NAME=", the values that the file lists. */
static void put_args(completion *k, const char *after)
{
    nnc_json j = {0};
    nnc_sink *sink = nnc_sink_create();
    const char *value = strchr(k->part, '=');
    if (sink && k->model && !nnc_json_load(&j, k->model, sink)) {
        for (const nnc_item *a = nnc_json_first(nnc_json_get(j.root, "args")); a; a = a->next) {
            if (!value)
                put_name(k, a->key, after);
            else if (strlen(a->key) == (size_t)(value - k->part) &&
                     !strncmp(a->key, k->part, (size_t)(value - k->part))) {
                k->part = value + 1;
                for (const nnc_item *c = nnc_json_first(nnc_json_get(a, "choices")); c; c = c->next)
                    put_name(k, c->text, "");
                break;
            }
        }
    }
    nnc_json_deinit(&j);
    nnc_sink_destroy(sink);
}

/* Layers as --place names them: paths, or the names in these. */
static void put_layer(const completion *k, const char *path, const char *after)
{
    if (*k->part == '/')
        put_name(k, path, after);
    else
        for (const char *p = path; *p; p += strcspn(p, "/")) {
            p += *p == '/';
            if (!isdigit((unsigned char)*p))
                put(k, p, strcspn(p, "/"), after, NULL);
        }
}

static void put_of_model(const completion *k, const char *flag, const char *after)
{
    nnc_sink *sink = nnc_sink_create();
    nnc_model *g = sink && k->model ? nnc_model_open(k->model, NULL, sink) : NULL;
    for (uint32_t i = 0; g && i < g->n_node; i++)
        if (!strcmp(flag, "--input") || !strcmp(flag, "--shapes")) {
            if (g->node[i].op == OP_input)
                put_name(k, g->value[g->node[i].out].name, after);
        } else if (strcmp(flag, "--output") != 0 && g->node[i].op != OP_input &&
                   g->node[i].origin) {
            put_layer(k, g->node[i].origin, after);
        }
    for (uint32_t i = 0; g && !strcmp(flag, "--output") && i < g->n_output; i++)
        put_name(k, g->output_name[i], after);
    if (g)
        nnc_model_close(g);
    nnc_sink_destroy(sink);
}

static bool is(const char *s, size_t n, const char *word)
{
    return strlen(word) == n && !strncmp(s, word, n);
}

/* Strategies of nnc partition; 0 of the enum is only of runs. */
static const char *strategy_name(int i)
{
    return i + 1 < NNC_STRATEGY__COUNT ? nnc_strategy_names[i + 1] : NULL;
}

/* One of the alternatives of a value as --help prints it, n bytes: a word, or in capitals what it is. */
static void put_alternative(
    completion *k, const nnc_flag *f, const char *s, size_t n, const char *after)
{
    static const char capitals[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    const bool pass = is(s, n, "PASS"), strategy = !strcmp(f->value.name, "--strategy");
    const char *name, *(*name_of)(int) = pass       ? nnc_pass_name
                                         : strategy ? strategy_name
                                                    : nnc_stage_name;
    if (names_file(s))
        k->files = true;
    else if (pass || is(s, n, "STAGE") || (strategy && is(s, n, "NAME")))
        for (int i = 0; (name = name_of(i)); i++)
            put_name(k, name, after);
    else if (!strcmp(f->value.name, "--set") || !strcmp(f->value.name, "--fit"))
        put_args(k, after);
    else if (is(s, n, "LAYERS") || is(s, n, "PATTERN") ||
             (is(s, n, "NAME") && strcmp(f->value.name, "--rename") != 0))
        put_of_model(k, f->value.name, after);
    else if (strcspn(s, capitals) >= n)
        put(k, s, n, after, NULL);
}

static void put_values(completion *k, const nnc_flag *f)
{
    const nnc_setting *s = &f->value;
    const char *expected = s->expected, *comma = strrchr(k->part, ',');
    if (s->kind == NNC_SET_INT) {
        char digit[2] = "0";
        for (int64_t i = s->lo; s->lo >= 0 && s->hi < 10 && i <= s->hi; i++) {
            digit[0] = (char)('0' + i);
            put_name(k, digit, "");
        }
        return;
    }
    if (comma && strstr(expected, ",..."))
        k->part = comma + 1;
    const char *pair = strchr(expected, '='), *value = strchr(k->part, '=');
    const char *after = pair && !value ? "=" : "";
    if (pair && value && strcmp(s->name, "--set") != 0) {
        k->part = value + 1;
        expected = pair + 1;
    }
    for (const char *p = expected; *p && (!*after || p < pair);
         p += strcspn(p, "|"), p += *p == '|')
        put_alternative(k, f, p, strcspn(p, "|,="), after);
}

/* The flag of c that this word is, with what follows "=" or -O in *value (NULL: nothing does). */
static const nnc_flag *flag_of(const command *c, const char *word, const char **value)
{
    const nnc_flag *f;
    const size_t n = strcspn(word, "=");
    for (size_t i = 0; (f = next_flag(c, &i));) {
        const char *name = f->value.name;
        *value = word[n] ? word + n + 1 : NULL;
        if (strlen(name) == n && !strncmp(name, word, n))
            return f;
        if (name[1] != '-' && !strncmp(name, word, 2)) {
            *value = word + 2;
            return f;
        }
    }
    return NULL;
}

static void put_flags(const completion *k, const command *c)
{
    const nnc_flag *f;
    for (size_t i = 0; (f = next_flag(c, &i));) {
        const char *name = f->value.name;
        put(k, name, strlen(name), is_switch(f) || name[1] != '-' ? "" : "=", f->doc);
    }
}

void complete(int n, char *const *word)
{
    const char *last = n > 0 ? word[n - 1] : "", *value = NULL;
    completion k = {.word = last, .part = last};
    const command *c = n > 1 ? find_command(word[0]) : NULL;
    if (n < 2 || (!strcmp(word[0], "help") && n == 2))
        for (int i = 0; i < n_commands; i++)
            put(&k, commands[i].name, strlen(commands[i].name), "", commands[i].doc);
    if (!c)
        return;
    const nnc_flag *open = NULL; /* its value is the next word */
    for (int i = 1; i < n - 1; i++) {
        const nnc_flag *f = open ? NULL : flag_of(c, word[i], &value);
        if (!open && *word[i] != '-' && !k.model)
            k.model = word[i];
        open = f && !is_switch(f) && !value ? f : NULL;
    }
    const nnc_flag *f = open ? open : flag_of(c, last, &value);
    if (f && !open && !value && f->value.kind == NNC_SET_INT && last[1] != '-')
        value = last + 2; /* -O */
    if (f && !is_switch(f) && (open || value)) {
        k.part = open ? last : value;
        put_values(&k, f);
    } else if (*last == '-') {
        put_flags(&k, c);
    } else {
        k.files = *c->args;
    }
    if (k.files)
        printf("files\t%.*s\n", (int)(k.part - k.word), k.word);
}
