/* bench/device/measure.h -- the times, memory and energy of one loaded model. */
#ifndef NNC_BENCH_MEASURE_H
#define NNC_BENCH_MEASURE_H

#include "session/session.h"
#include "device.h"

typedef struct measure_time {
    double median_ms, least_ms, most_ms; /* of a run; bursts' */
    int runs;                            /* 0: not measured */
} measure_time;

typedef struct measure_data {
    void **in, **out; /* row-major, by number; out is written where copies are timed */
} measure_data;

typedef struct measure_how {
    int ms, energy_ms, warm_ms;
    bool copies;
    const power *power; /* NULL: no energy */
} measure_how;

typedef struct measured {
    double first_ms; /* the first run ever */
    measure_time waited, queued, copied, streamed;
    double joules, watts, mhz; /* of a run; under load; NaN where nothing says */
} measured;

/* Measures a session prepared by nnc_session_stream_open. */
nnc_status measure_streamed(nnc_session *s, int ms, measure_time *t, nnc_sink *sink) NNC_MUST;
nnc_status measure(nnc_session *s, const measure_data *d, const measure_how *how, measured *m, nnc_sink *sink) NNC_MUST;

/* predict.c: what the plan's generated kernels are predicted to take on the target. */
typedef struct predicted {
    int launches, others;     /* others: calls, copies */
    double kernels_us;
    double us, share;         /* with the launches' overhead; meaningful where there are no others */
    struct nnc_gpu_launch *launch;
} predicted;
bool predicted_of(const nnc_plan *p, const nnc_target *t, nnc_arena *a, predicted *out); /* false: no GPU, or no machine code */
void predicted_json(const nnc_plan *p, const nnc_target *t, nnc_text *out); /* the member "predicted" of an object, where there is one */
void predicted_line(const nnc_plan *p, const nnc_target *t, const char *name); /* of a cell, to standard output */

#endif
