/* tests/frontend/place.c -- --place: ranges and patterns against a model's layers; what is wrong is refused with what would be right. */
#include "frontend/frontend.h"
#include "test.h"

static const char model[] = "{\"name\": \"m\", \"inputs\": {\"x\": [2, 4]}, \"layers\": [{\"op\": "
                            "\"linear\", \"name\": \"fc1\", \"out\": 4}, "
                            "\"relu\", {\"op\": \"linear\", \"name\": \"fc2\", \"out\": 4}, "
                            "{\"op\": \"relu\", \"name\": \"last\"%s}]}";

/* Devices of the four layers, "0011"; NULL: refused. */
static const char *placed(const char *place, const char *keys)
{
    static char of[5];
    char text[1024];
    const char *path[64];
    int32_t layer_of[64];
    const nnc_model_options o = {.place = place};
    const int n = snprintf(text, sizeof text, model, keys);
    nnc_sink_clear(test_sink);
    nnc_graph *g = nnc_model_parse("m.json", text, (size_t)n, &o, test_sink);
    if (!g)
        return NULL;
    CHECK_INT(nnc_model_layers(g, path, layer_of), 4);
    for (uint32_t i = 0; i < g->n_node; i++) {
        const int device = g->node[i].device;
        if (layer_of[i] >= 0)
            of[layer_of[i]] = device < 0 ? '-' : (char)('0' + device);
    }
    nnc_graph_destroy(g);
    return of;
}

TEST(places_by_index_and_by_name)
{
    CHECK_STR(placed("0-1=0,2-=1", ""), "0011");
    CHECK_STR(placed("-2=3,3=1", ""), "3331");
    CHECK_STR(placed("0=2,1=2,2-3=0", ""), "2200");
    CHECK_STR(placed("fc*=0,relu=1,last=2", ""), "0102");
    CHECK_STR(placed("/layers/0/*=1,/layers/1*=0,*2=0,l*st=1", ""), "1001");
    CHECK_STR(placed("********************=1", ""), "1111");
    CHECK_STR(placed("0-2=0", ", \"device\": 3"), "0003"); /* the model file places the last one */
    CHECK_STR(placed("-=0", ", \"device\": 3"), "0000"); /* the flag overrides it */
}

TEST(weights_are_on_the_device_of_their_layer)
{
    char text[1024];
    const nnc_model_options o = {.place = "fc1=1,relu=0,fc2=2,last=0"};
    const int n = snprintf(text, sizeof text, model, "");
    nnc_graph *g = nnc_model_parse("m.json", text, (size_t)n, &o, test_sink);
    int params = 0;
    CHECK(g != NULL);
    for (uint32_t i = 0; g && i < g->n_node; i++)
        if (g->node[i].op == OP_param) {
            CHECK_INT(g->node[i].device, strstr(g->node[i].origin, "fc1") ? 1 : 2);
            params++;
        }
    CHECK_INT(params, 4);
    nnc_graph_destroy(g);
}

TEST(wrong_places_are_refused)
{
    static const struct {
        const char *place, *says;
    } wrong[] = {
        {"0-2=0,2-=1", "layer 2, /layers/2/fc2, is placed twice: by `0-2=0` and by `2-=1`"},
        {"fc*=0,-=1", "layer 0, /layers/0/fc1, is placed twice"},
        {"0-1=0,3=1", "1 of 4 layers are on no device, the first of them layer 2, /layers/2/fc2"},
        {"0-4=0", "layers are 0 to 3"},
        {"2-1=0", "`2-1=0`: the model's layers are 0 to 3"},
        {"99999999999999999999=0", "layers are 0 to 3"},
        {"fc3=0,-=1", "no layer is named `fc3`; did you mean fc1"},
        {"/layers/7=0", "no layer is named `/layers/7`"},
        {"0-3", "expected LAYERS=DEVICE"},
        {"0-3=", "expected LAYERS=DEVICE"},
        {"=1", "expected LAYERS=DEVICE"},
        {"0-3=x", "expected LAYERS=DEVICE"},
        {"0-3=40000", "expected LAYERS=DEVICE"},
        {"", "4 of 4 layers are on no device"},
        {",", "expected LAYERS=DEVICE"},
    };
    for (size_t i = 0; i < NNC_COUNT(wrong); i++) {
        if (placed(wrong[i].place, ""))
            test_fail(__FILE__, __LINE__, "--place=%s is accepted", wrong[i].place);
        CHECK_DIAG(wrong[i].says);
    }
}
