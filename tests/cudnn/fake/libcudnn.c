/* tests/cudnn/fake/libcudnn.c -- the false cuDNN as a file, for tests of what is kept between processes: it can be opened,
 * replaced, damaged. */
#pragma GCC diagnostic ignored "-Wshadow" /* its functions have short names */
#include "../fake_cudnn.c"

int fake_choice;

#define EXPORT __attribute__((visibility("default")))
#define PASS(ret, name, args, given) \
    EXPORT ret name args \
    { \
        return fake_cudnn.name given; \
    }
PASS(size_t, cudnnGetVersion, (void), ())
PASS(const char *, cudnnGetErrorString, (int status), (status))
PASS(void, cudnnGetLastErrorString, (char *out, size_t n), (out, n))
PASS(int, cudnnCreate, (void **handle), (handle))
PASS(int, cudnnDestroy, (void *handle), (handle))
PASS(int, cudnnSetStream, (void *handle, cuda_stream s), (handle, s))
PASS(int, cudnnBackendCreateDescriptor, (int type, void **desc), (type, desc))
PASS(int, cudnnBackendDestroyDescriptor, (void *desc), (desc))
PASS(int, cudnnBackendSetAttribute,
    (void *desc, int attribute, int type, int64_t n, const void *value),
    (desc, attribute, type, n, value))
PASS(int, cudnnBackendGetAttribute,
    (void *desc, int attribute, int type, int64_t want, int64_t *got, void *value),
    (desc, attribute, type, want, got, value))
PASS(int, cudnnBackendFinalize, (void *desc), (desc))
PASS(int, cudnnBackendExecute, (void *handle, void *plan, void *pack), (handle, plan, pack))

EXPORT size_t cudnnGetCudartVersion(void)
{
    return 13000;
}
