/* What the sanitizers are told of other people's libraries, by each test program and, in a build with sanitizers, by nnc itself. */

/* gcc 12's LeakSanitizer takes what lies before a plug-in's thread-local block for its size and reads there. */
const char *__asan_default_options(void);
__attribute__((visibility("default"))) const char *__asan_default_options(void)
{
    return "intercept_tls_get_addr=0:print_suppressions=0";
}

/* NVIDIA's libraries keep what they allocate where there is no GPU; the leaks that count are nnc's. */
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libcublasLt\nleak:libcudnn\nleak:libnvrtc\n";
}
