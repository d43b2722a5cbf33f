/* Compiles a model once and runs it at several shapes, whose plans are made when they are asked for and share its weights. Prints the first
 * numbers of its first output for each. Usage: shapes MODEL set batch=1 batch=7, or: shapes MODEL.onnx shapes x:1x3x224x224 ... */
#include <nnc/nnc.h>
#include <stdlib.h>

/* One run on generated inputs. */
static nnc_status run(const char *shape, nnc_env *env, const nnc_artifact *a, nnc_sink *sink)
{
    nnc_session *s;
    nnc_status st = nnc_session_create(env, a, &s, sink);
    if (st)
        return st;
    for (int i = 0; !st && i < nnc_session_inputs(s); i++) {
        void *data = malloc((size_t)nnc_type_bytes(nnc_session_input_type(s, i)));
        st = nnc_artifact_fill_input(a, i, 0, data, sink);
        if (!st)
            st = nnc_session_input(s, i, data, sink);
        free(data);
    }
    if (!st)
        st = nnc_session_run(s, sink);
    float *y = malloc((size_t)nnc_type_bytes(nnc_session_output_type(s, 0)));
    if (!st && (st = nnc_session_output(s, 0, y, sink)) == NNC_OK)
        printf("%s: %s = %g %g ...\n", shape, nnc_session_output_name(s, 0), y[0], y[1]);
    free(y);
    nnc_session_destroy(s);
    return st;
}

/* A session may be kept for each shape; they run side by side. */
static nnc_status run_at(
    const char *name, const char *shape, nnc_env *env, nnc_artifact *a, nnc_sink *sink)
{
    nnc_artifact *at = NULL;
    nnc_open_options *o = nnc_open_options_create();
    nnc_status st = nnc_open_options_set(o, name, shape, sink);
    if (!st)
        st = nnc_artifact_for(env, a, o, &at, sink);
    if (!st)
        st = run(shape, env, at, sink);
    nnc_artifact_destroy(at);
    nnc_open_options_destroy(o);
    return st;
}

int main(int argc, char **argv)
{
    nnc_sink *sink = nnc_sink_create();
    nnc_env *env = NULL;
    nnc_artifact *a = NULL;
    nnc_session *first = NULL; /* keeps the weights in memory */
    nnc_status st = nnc_env_create(NULL, &env, sink);
    nnc_model *model = argc > 2 && !st ? nnc_model_open(argv[1], NULL, sink) : NULL;
    if (!st)
        st = model ? nnc_compile(env, model, NULL, &a, sink) : NNC_E_MODEL;
    if (!st)
        st = nnc_session_create(env, a, &first, sink);
    for (int i = 3; !st && i < argc; i++)
        st = run_at(argv[2], argv[i], env, a, sink);
    nnc_sink_print(sink, stderr);
    nnc_session_destroy(first);
    nnc_artifact_destroy(a);
    nnc_model_close(model);
    nnc_env_destroy(env);
    nnc_sink_destroy(sink);
    return nnc_exit_code(st);
}
