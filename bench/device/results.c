/* bench/device/results.c -- one file a result. What stands in FOLDER/ID.json is done and is never done again; FOLDER/ID.running is under
 * way, or was when its process died. */
#include "cuda/cuda.h"
#include "device.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool path_of(const results *r, const char *id, const char *ending, char *path, size_t n)
{
    return snprintf(path, n, "%s/%s.%s", r->folder, id, ending) < (int)n;
}

bool device_lost(void)
{
    const nnc_cuda_cudart *rt = NNC_CUDA(cudart, NULL);
    return rt && rt->cudaDeviceSynchronize() != 0;
}

/* The script that started this has ended: who killed it wants an end. */
static bool caller_ended(void)
{
    const char *pid = getenv("NNC_GPU_PID");
    return pid && atoi(pid) > 1 && kill(atoi(pid), 0) && errno == ESRCH;
}

bool results_begin(results *r, const char *id)
{
    char done[1024], running[1024];
    if (r->lost || !path_of(r, id, "json", done, sizeof done) ||
        !path_of(r, id, "running", running, sizeof running))
        return false;
    if (nnc_file_exists(done)) {
        r->kept++;
        return false;
    }
    if ((r->deadline_ns && nnc_now_ns() > r->deadline_ns) || caller_ended()) {
        r->left++;
        return false;
    }
    FILE *f = fopen(running, "w");
    if (f)
        fclose(f);
    alarm((unsigned)r->limit_s);
    return true;
}

static nnc_status put(
    results *r, const char *id, const char *text, const char *more, nnc_sink *sink)
{
    char done[1024], running[1024];
    nnc_text all = {0};
    alarm(0);
    nnc_puts(&all, "{\"id\": ");
    nnc_put_json_string(&all, id);
    nnc_printf(&all, ", %s%s}\n", text, more);
    nnc_status st = all.oom || !path_of(r, id, "json", done, sizeof done) ||
                            !path_of(r, id, "running", running, sizeof running)
                        ? nnc_nomem(sink)
                        : nnc_file_write(done, all.s, all.n, false, sink);
    if (!st)
        unlink(running);
    nnc_text_deinit(&all);
    return st;
}

nnc_status results_end(results *r, const char *id, const nnc_text *text, nnc_sink *sink)
{
    if (text->oom)
        return nnc_nomem(sink);
    NNC_TRY(put(r, id, nnc_text_str(text), "", sink));
    r->made++;
    return NNC_OK;
}

void results_fail(results *r, const char *id, nnc_status st, const nnc_sink *why)
{
    nnc_text t = {0};
    const char *text = nnc_status_name(st);
    for (size_t i = 0; why && i < nnc_sink_count(why); i++)
        if (nnc_sink_at(why, i)->severity == NNC_ERROR)
            text = nnc_sink_at(why, i)->message;
    nnc_put_json_string(&t, text);
    r->failed++;
    fprintf(stderr, "%s: %s\n", id, text);
    if (put(r, id, "\"failed\": ", nnc_text_str(&t), NULL))
        fprintf(stderr, "%s: the result could not be written into %s\n", id, r->folder);
    r->lost = device_lost();
    nnc_text_deinit(&t);
}

int results_exit(const results *r)
{
    fprintf(stderr, "%d results, %d failures, %d there before, %d left for lack of time\n", r->made,
        r->failed, r->kept, r->left);
    if (r->lost)
        fprintf(stderr, "the device's context is dead\n");
    return r->lost ? 76 : r->left ? 75 : r->failed ? 1 : 0;
}
