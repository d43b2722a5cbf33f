/* plugins/layout.c -- in each plug-in: the build that it belongs to (cmake/layout.cmake). */
#include "layout.h"

extern __attribute__((visibility("default"))) const char nnc_plugin_layout[];
const char nnc_plugin_layout[] = NNC_LAYOUT;
