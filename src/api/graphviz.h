/* api/graphviz.h -- drawings by Graphviz's program dot, where it is installed. Internal to api/. */
#ifndef NNC_API_GRAPHVIZ_H
#define NNC_API_GRAPHVIZ_H

#include "base/base.h"

/* Appends the SVG that dot draws of the text. NNC_E_DEVICE: dot is not installed, or failed. */
nnc_status nnc_dot_to_svg(const nnc_text *dot, nnc_text *svg, nnc_sink *sink) NNC_MUST;
/* Writes the text to `file`, or what dot draws of it where its name ends in .svg. */
nnc_status nnc_write_dot(const nnc_text *dot, const char *file, nnc_sink *sink) NNC_MUST;

#endif
