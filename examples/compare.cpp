// Compares fused with unfused, as `nnc compare` does, and prints the report. Usage: compare MODEL [NAME=VALUE]
#include <memory>
#include <nnc/nnc.h>
#include <stdexcept>

namespace {
// One object of nnc, destroyed with its owner.
template <typename T> using handle = std::unique_ptr<T, void (*)(T *)>;

void check(nnc_status st, nnc_sink *sink)
{
    handle<nnc_text> text(nnc_text_create(), nnc_text_destroy);
    nnc_sink_put(sink, text.get());
    if (st != NNC_OK)
        throw std::runtime_error(nnc_text_str(text.get()));
}

bool compare(const char *file, const char *set, nnc_sink *sink)
{
    nnc_env *e = nullptr;
    check(nnc_env_create(nullptr, &e, sink), sink);
    handle<nnc_env> env(e, nnc_env_destroy);
    handle<nnc_open_options> open(nnc_open_options_create(), nnc_open_options_destroy);
    if (set)
        check(nnc_open_options_set(open.get(), "set", set, sink), sink);
    handle<nnc_model> model(nnc_model_open(file, open.get(), sink), nnc_model_close);
    if (!model)
        check(NNC_E_MODEL, sink);
    handle<nnc_compare_options> options(nnc_compare_options_create(), nnc_compare_options_destroy);
    check(nnc_compare_options_set(options.get(), "duration", "100", sink), sink);
    check(nnc_compare_options_set(options.get(), "no-steps", "1", sink), sink);
    handle<nnc_text> report(nnc_text_create(), nnc_text_destroy);
    bool agrees = false;
    check(nnc_compare(env.get(), model.get(), options.get(), NNC_TEXT, report.get(), &agrees, sink), sink);
    std::fputs(nnc_text_str(report.get()), stdout);
    return agrees;
}
} // namespace

int main(int argc, char **argv)
try {
    handle<nnc_sink> sink(nnc_sink_create(), nnc_sink_destroy);
    return compare(argc > 1 ? argv[1] : "model.json", argc > 2 ? argv[2] : nullptr, sink.get()) ? 0 : 1;
} catch (const std::exception &e) {
    std::fputs(e.what(), stderr);
    return 3;
}
