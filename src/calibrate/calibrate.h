/* calibrate/calibrate.h -- nnc calibrate: measures a machine and writes its hardware file. */
#ifndef NNC_CALIBRATE_H
#define NNC_CALIBRATE_H

#include "session/session.h"

/* ---- nnc calibrate (docs/hardware.md) ------------------------------------------------------------------------------------ */

typedef struct nnc_calibrate_options {
    int devices;     /* that share the threads; 0: as many as ranks, in one process as threads, at least 2 */
    double budget_s; /* seconds that it may take, about; 0: 25 */
} nnc_calibrate_options;
/* Measures ops, copies and collectives of CPU devices of this process, or of the ranks of e, all of which call it, and appends a hardware
 * file on rank 0. e describes one device afterwards: nothing else can be done with it. */
nnc_status nnc_calibrate(nnc_env *e, const nnc_calibrate_options *o, nnc_text *out, nnc_sink *sink) NNC_MUST;

#endif
