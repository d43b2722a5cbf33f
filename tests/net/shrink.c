/* tests/net/shrink.c -- makes a failing model file small. It takes away members and elements one at a time, then lowers numbers, as long as
 * it still fails, until nothing more goes. */
#include "net.h"

#include <stdlib.h>

typedef struct shrink {
    cJSON *root;
    bool (*fails)(const char *text, void *ctx);
    void *ctx;
    int tries;
} shrink;

static bool still(shrink *s)
{
    char *text = cJSON_PrintUnformatted(s->root);
    bool yes = s->tries-- > 0 && s->fails(text, s->ctx);
    free(text);
    return yes;
}

static void append(cJSON *parent, cJSON *item)
{
    if (cJSON_IsArray(parent))
        cJSON_AddItemToArray(parent, item);
    else
        cJSON_AddItemToObject(parent, item->string, item);
}

/* Takes item out of parent, or leaves everything in its place (the first of the inputs is the default). */
static bool without(shrink *s, cJSON *parent, cJSON *item)
{
    cJSON *behind[1024];
    int n = 0;
    for (cJSON *c = item->next; c; c = c->next)
        if (n < (int)NNC_COUNT(behind))
            behind[n++] = c;
    cJSON_DetachItemViaPointer(parent, item);
    if (still(s)) {
        cJSON_Delete(item);
        return true;
    }
    append(parent, item);
    for (int i = 0; i < n; i++)
        append(parent, cJSON_DetachItemViaPointer(parent, behind[i]));
    return false;
}

static bool lower(shrink *s, cJSON *item)
{
    static const double small[] = {1, 2, 3};
    double old = item->valuedouble;
    for (size_t i = 0; i < NNC_COUNT(small); i++) {
        if (old <= small[i] || old != (double)(int64_t)old)
            break;
        cJSON_SetNumberValue(item, small[i]);
        if (still(s))
            return true;
    }
    cJSON_SetNumberValue(item, old);
    return false;
}

static bool round_over(shrink *s, cJSON *parent)
{
    bool any = false;
    for (cJSON *c = parent->child, *next; c && s->tries > 0; c = next) {
        next = c->next;
        if (without(s, parent, c)) {
            any = true;
            continue;
        }
        next = c->next;
        if (cJSON_IsNumber(c))
            any |= lower(s, c);
        else if (c->child)
            any |= round_over(s, c);
    }
    return any;
}

char *net_shrink(const char *text, bool (*fails)(const char *text, void *ctx), void *ctx, int tries)
{
    shrink s = {cJSON_Parse(text), fails, ctx, tries};
    while (s.root && s.tries > 0 && round_over(&s, s.root))
        ;
    char *small = s.root ? cJSON_Print(s.root) : strdup(text);
    cJSON_Delete(s.root);
    return small;
}
