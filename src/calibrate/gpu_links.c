/* calibrate/gpu_links.c -- copies between a GPU and the host's memory, as nnc uploads and downloads; copies between GPUs and
 * collectives, as plans do them.
 *
 * Clocks of two GPUs cannot be compared to the microsecond. So copies between GPUs are measured by whole runs, many of which are waited
 * for once. A tensor's way there and back is compared with the same commands on one GPU. */
#include "calibrate/measure.h"
#include "session/session.h"
#include <string.h>

enum { COPY_NS = 8000000, MOST_COPIES = 400, REPEATS = 3 };
static const double COPY_SHARE = 0.75;
enum { LEAST_SIZES = 2 };
static const int64_t host_sizes[CAL_SIZES] = {4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20};

/* ---- the host ------------------------------------------------------------------------------------------------ */

/* A device opened for copies. */
typedef struct host {
    const nnc_device_api *api;
    nnc_device *d;
    nnc_stream *s;
    void *memory; /* of the device */
    void *pinned, *pageable;
} host;

static nnc_status open_host(calibration *c, host *h)
{
    const int64_t most = host_sizes[CAL_SIZES - 1];
    h->api = &nnc_device_cuda;
    NNC_TRY(h->api->open(0, &h->d, c->sink));
    c->gpu.context_bytes = cal_gpu_taken(c);
    NNC_TRY(h->api->stream_create(h->d, 1, false, &h->s, c->sink));
    NNC_TRY(h->api->alloc(h->d, most, &h->memory, c->sink));
    NNC_TRY(h->api->host_alloc(h->d, most, &h->pinned, c->sink));
    h->pageable = nnc_aligned_alloc(64, (size_t)most);
    NNC_NEED(h->pageable, c->sink);
    memset(h->pageable, 1, (size_t)most);
    memset(h->pinned, 1, (size_t)most);
    return NNC_OK;
}

static void host_deinit(host *h)
{
    if (h->s)
        h->api->stream_destroy(h->s);
    if (h->d) {
        h->api->free(h->d, h->memory);
        h->api->host_free(h->d, h->pinned);
        h->api->close(h->d);
    }
    nnc_free(h->pageable);
}

static nnc_status copy_times(
    calibration *c, const host *h, bool up, bool pinned, int64_t bytes, int n, int64_t *ns)
{
    void *at = pinned ? h->pinned : h->pageable;
    const int64_t from = nnc_now_ns();
    for (int k = 0; k < n; k++)
        NNC_TRY(up ? h->api->upload(h->s, h->memory, at, bytes)
                   : h->api->download(h->s, at, h->memory, bytes));
    NNC_TRY(h->api->sync(h->s, c->sink));
    *ns = nnc_max64((nnc_now_ns() - from) / n, 1);
    return NNC_OK;
}

/* Bursts of each size; the first one warms up, and tells how long a burst is. */
static nnc_status copy_points(
    calibration *c, const host *h, bool up, bool pinned, nnc_point out[CAL_SIZES])
{
    for (int i = 0; i < CAL_SIZES; i++) {
        int64_t v[REPEATS], each = 0;
        NNC_TRY(copy_times(c, h, up, pinned, host_sizes[i], 2, &each));
        const int n = (int)nnc_min64(nnc_max64(COPY_NS / each, 1), MOST_COPIES);
        for (int k = 0; k < REPEATS; k++)
            NNC_TRY(copy_times(c, h, up, pinned, host_sizes[i], n, &v[k]));
        out[i] = (nnc_point){host_sizes[i], cal_median_of(v, REPEATS, NULL)};
    }
    return NNC_OK;
}

/* The host's memory, read and written by one thread. */
static void measure_host_memory(calibration *c, const host *h)
{
    const size_t half = (size_t)host_sizes[CAL_SIZES - 1] / 2;
    int64_t v[REPEATS];
    for (int k = 0; k < REPEATS; k++) {
        const int64_t from = nnc_now_ns();
        memcpy((char *)h->pageable + (k % 2 ? half : 0), (char *)h->pageable + (k % 2 ? 0 : half),
            half);
        v[k] = nnc_max64(nnc_now_ns() - from, 1);
    }
    c->gpu.host_copy_bytes_s =
        nnc_max64((int64_t)(2.0 * (double)half / (double)cal_median_of(v, REPEATS, NULL) * 1e9), 1);
}

nnc_status cal_gpu_host(calibration *c)
{
    NNC_LOCAL(host) h = {0};
    NNC_TRY(open_host(c, &h));
    NNC_TRY(copy_points(c, &h, true, true, c->gpu.up));
    NNC_TRY(copy_points(c, &h, false, true, c->gpu.down));
    NNC_TRY(copy_points(c, &h, true, false, c->gpu.pageable_up));
    NNC_TRY(copy_points(c, &h, false, false, c->gpu.pageable_down));
    measure_host_memory(c, &h);
    return NNC_OK;
}

/* ---- between GPUs ---------------------------------------------------------------------------------------------- */

/* Rank 0: the time of a run, ctx. */
static nnc_status measure_burst(calibration *c, cal_program *p, void *ctx)
{
    return cal_gpu_burst(c, p, ctx);
}

/* Nanoseconds of a run of the graph; alone: by rank 0. */
static nnc_status burst_of(
    calibration *c, const nnc_text *text, int devices, bool alone, int64_t *ns)
{
    NNC_LOCAL(cal_program) p = {0};
    NNC_TRY(cal_load(c, text, devices, alone, false, &p));
    if (alone)
        return cal_leads(c) ? cal_gpu_burst(c, &p, ns) : NNC_OK;
    return cal_lead(c, &p, measure_burst, ns);
}

/* A hop: what the copies of a run take beside its kernels. */
static nnc_status one_copy(calibration *c, int64_t bytes, int64_t *ns)
{
    NNC_LOCAL(nnc_text) there = {0}, here = {0};
    int64_t moved = 0, stayed = 0;
    cal_copies_write(&there, bytes, 2);
    cal_copies_write(&here, bytes, 1);
    NNC_TRY(burst_of(c, &there, c->devices, false, &moved));
    NNC_TRY(burst_of(c, &here, 1, true, &stayed));
    *ns = nnc_max64((moved - stayed) / (CAL_HOPS - 1), 1);
    return NNC_OK;
}

/* A run's share, less the launch of the command before it, which squares its tensor. */
static nnc_status one_group(calibration *c, cal_group *g, int64_t bytes)
{
    NNC_LOCAL(nnc_text) text = {0};
    int64_t ns = 0;
    cal_group_text(&text, g->kind, g->devices, bytes);
    NNC_TRY(burst_of(c, &text, c->devices, false, &ns));
    g->point[g->n_point].ns = nnc_max64(ns / CAL_REPEATS - c->command_ns, 1);
    return NNC_OK;
}

nnc_status cal_gpu_links(calibration *c)
{
    c->with = nnc_compile_defaults;
    NNC_TRY(cal_copies(c, COPY_SHARE, LEAST_SIZES, one_copy));
    /* Copies that the host's launches hide have no rate of their own: that of memory, read and written, is above any link's. */
    c->copy_bytes_s = nnc_min64(c->copy_bytes_s, c->target.copy_bytes_s);
    return cal_groups(c, LEAST_SIZES, one_group);
}
