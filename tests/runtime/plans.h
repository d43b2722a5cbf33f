/* tests/runtime/plans.h -- small plans made by hand, an engine for them, and a device that fails on demand. */
#ifndef TEST_PLANS_H
#define TEST_PLANS_H

#include "runtime/runtime.h"
#include "test.h"

enum { VALUES = 4096 }; /* floats of every tensor */

/* Runs kernels named by symbol over VALUES floats: "add" (2 in, 1 out), "fail", "slow_add". */
extern const nnc_engine toy_engine;
extern _Atomic int toy_loaded; /* handles alive */

/* One stream: init makes p = w + v from two weights; main: y = x + p, z = y + p. */
nnc_plan *plan_line(void);
/* Two devices of two streams: y = x + p on cpu:0, copied to cpu:1, doubled there on its second stream, copied back. */
nnc_plan *plan_diamond(void);
/* Two devices of two streams: y = x + p on cpu:0, copied to cpu:1, and summed over both; z = the sum + itself, on cpu:0. */
nnc_plan *plan_meeting(void);
float meeting_result(int i, float x);
/* Two devices: y = x + p goes from cpu:0 to cpu:1, which doubles it, slowly; then y + p goes into the same memory and is added there. */
nnc_plan *plan_reuse(void);
float reuse_result(int i, float x);
void plan_free(nnc_plan *p);
/* x[i] = i; what plan_line and plan_diamond make of it. */
float line_result(int i, float x);
float diamond_result(int i, float x);

nnc_exec_options exec_options(const nnc_device_api *api);

/* The cpu device, whose N-th call that returns a status (1-based) fails; 0: none. Counts calls. */
extern const nnc_device_api faulty_device;
extern int faulty_at, faulty_calls;
extern int faulty_alive; /* devices, streams, events and blocks not given back */

#endif
