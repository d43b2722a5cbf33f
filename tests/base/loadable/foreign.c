/* tests/base/loadable/foreign.c -- a plug-in of another build of nnc. */
extern __attribute__((visibility("default"))) const char nnc_plugin_layout[];
const char nnc_plugin_layout[] = "another";
extern __attribute__((visibility("default"))) const int nnc_engine_foreign;
const int nnc_engine_foreign = 1;
