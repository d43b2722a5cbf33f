/* calibrate/calibrate.h -- nnc calibrate: measures a machine and writes its hardware file. */
#ifndef NNC_CALIBRATE_H
#define NNC_CALIBRATE_H

#include "session/session.h"

/* ---- nnc calibrate (docs/hardware.md) ------------------------------------------------------------------------------------ */

typedef struct nnc_calibrate_options {
    int devices;     /* devices that share the threads; 0: one per rank, in one process one per thread, at least 2 */
    double budget_s; /* time budget in seconds; 0: 25 */
} nnc_calibrate_options;
/* Measures ops, copies and collectives of CPU devices of this process, or of e's ranks, which all call it. Appends a hardware file on
 * rank 0. Afterwards e describes one device and cannot be used for anything else. */
nnc_status nnc_calibrate(nnc_env *e, const nnc_calibrate_options *o, nnc_text *out, nnc_sink *sink) NNC_MUST;

#endif
