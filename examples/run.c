/* Compiles a model, runs it once on generated inputs, prints the first numbers of its first output. Usage: run MODEL */
#include <nnc/nnc.h>
#include <stdlib.h>

static nnc_status run(const char *file, nnc_env *env, nnc_model *model, nnc_sink *sink)
{
    nnc_artifact *artifact;
    nnc_status st = nnc_compile(env, model, NULL, &artifact, sink);
    if (st)
        return st;
    nnc_session *s;
    if ((st = nnc_session_create(env, artifact, &s, sink)) == NNC_OK) {
        for (int i = 0; !st && i < nnc_session_inputs(s); i++) {
            const nnc_type *t = nnc_session_input_type(s, i);
            void *data =
                malloc((size_t)nnc_type_bytes(t)); /* row-major; here numbers from a seed */
            nnc_fill_input(nnc_session_input_name(s, i), t, 0, data);
            st = nnc_session_input(s, i, data, sink);
            free(data);
        }
        if (!st)
            st = nnc_session_run(s, sink);
        float *y = malloc((size_t)nnc_type_bytes(nnc_session_output_type(s, 0)));
        if (!st && (st = nnc_session_output(s, 0, y, sink)) == NNC_OK)
            printf("%s: %s = %g %g ...\n", file, nnc_session_output_name(s, 0), y[0], y[1]);
        free(y);
        nnc_session_destroy(s);
    }
    nnc_artifact_destroy(artifact);
    return st;
}

int main(int argc, char **argv)
{
    const char *file = argc > 1 ? argv[1] : "model.json";
    nnc_sink *sink = nnc_sink_create();
    nnc_env *env = NULL;
    nnc_model *model = NULL;
    nnc_status st = nnc_env_create(NULL, &env, sink); /* this CPU, all cores */
    if (!st)
        st = (model = nnc_model_open(file, NULL, sink)) ? run(file, env, model, sink) : NNC_E_MODEL;
    nnc_sink_print(sink, stderr); /* errors and warnings, with file, line and layer */
    nnc_model_close(model);
    nnc_env_destroy(env);
    nnc_sink_destroy(sink);
    return nnc_exit_code(st);
}
