/* The functions of cuBLASLt that the module calls, under their own names: each passes on what it was given to the
 * library, which is loaded first. It is looked for where the linker would look: in LD_LIBRARY_PATH, in the module's
 * RUNPATH (beside it, and where the toolkit was), among the system's libraries; then among the packages that PyTorch
 * brings with it, where the module is of a Python package itself. The version is that of the headers, since the
 * library's structs may change with it. */
#include "model/cuda/libraries/cublaslt.h"

#include "model/cuda/libraries/open.h"
#include <cublasLt.h>
#include <dlfcn.h>
#include <pthread.h>

#define TEXT(number) #number
#define TEXT_OF(macro) TEXT(macro)
#define NAME_OF(version) "libcublasLt.so." TEXT(version)
#ifndef UPS_CUDA_LIBRARY /* in tests another's */
#define UPS_CUDA_LIBRARY NAME_OF(CUBLAS_VER_MAJOR)
#endif
#define TOOLKIT_OF(version) "CUDA " TEXT(version)
#if CUBLAS_VER_MAJOR < 13
#define PACKAGE "nvidia-cublas-cu12"
#define PACKAGE_FOLDER "cublas"
#else
#define PACKAGE "nvidia-cublas"
#define PACKAGE_FOLDER "cu" TEXT_OF(CUBLAS_VER_MAJOR)
#endif

/* Those that return a status: name, parameters, arguments. */
#define FUNCTIONS(F)                                                                                                   \
    F(cublasLtCreate, (cublasLtHandle_t * handle), (handle))                                                           \
    F(cublasLtDestroy, (cublasLtHandle_t handle), (handle))                                                            \
    F(cublasLtMatmul,                                                                                                  \
      (cublasLtHandle_t handle, cublasLtMatmulDesc_t product, const void *alpha, const void *a,                        \
       cublasLtMatrixLayout_t of_a, const void *b, cublasLtMatrixLayout_t of_b, const void *beta, const void *c,       \
       cublasLtMatrixLayout_t of_c, void *d, cublasLtMatrixLayout_t of_d, const cublasLtMatmulAlgo_t *algorithm,       \
       void *workspace, size_t bytes, cudaStream_t stream),                                                            \
      (handle, product, alpha, a, of_a, b, of_b, beta, c, of_c, d, of_d, algorithm, workspace, bytes, stream))         \
    F(cublasLtMatmulAlgoCheck,                                                                                         \
      (cublasLtHandle_t handle, cublasLtMatmulDesc_t product, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,      \
       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t *algorithm,                      \
       cublasLtMatmulHeuristicResult_t *result),                                                                       \
      (handle, product, a, b, c, d, algorithm, result))                                                                \
    F(cublasLtMatmulAlgoGetHeuristic,                                                                                  \
      (cublasLtHandle_t handle, cublasLtMatmulDesc_t product, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,      \
       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference, int most,            \
       cublasLtMatmulHeuristicResult_t *results, int *count),                                                          \
      (handle, product, a, b, c, d, preference, most, results, count))                                                 \
    F(cublasLtMatmulDescCreate, (cublasLtMatmulDesc_t * product, cublasComputeType_t compute, cudaDataType_t scale),   \
      (product, compute, scale))                                                                                       \
    F(cublasLtMatmulDescDestroy, (cublasLtMatmulDesc_t product), (product))                                            \
    F(cublasLtMatmulDescSetAttribute,                                                                                  \
      (cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t attribute, const void *value, size_t bytes),       \
      (product, attribute, value, bytes))                                                                              \
    F(cublasLtMatmulPreferenceCreate, (cublasLtMatmulPreference_t * preference), (preference))                         \
    F(cublasLtMatmulPreferenceDestroy, (cublasLtMatmulPreference_t preference), (preference))                          \
    F(cublasLtMatmulPreferenceSetAttribute,                                                                            \
      (cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute, const void *value,       \
       size_t bytes),                                                                                                  \
      (preference, attribute, value, bytes))                                                                           \
    F(cublasLtMatrixLayoutCreate,                                                                                      \
      (cublasLtMatrixLayout_t * matrix, cudaDataType type, uint64_t rows, uint64_t columns, int64_t leading),          \
      (matrix, type, rows, columns, leading))                                                                          \
    F(cublasLtMatrixLayoutDestroy, (cublasLtMatrixLayout_t matrix), (matrix))                                          \
    F(cublasLtMatrixLayoutSetAttribute,                                                                                \
      (cublasLtMatrixLayout_t matrix, cublasLtMatrixLayoutAttribute_t attribute, const void *value, size_t bytes),     \
      (matrix, attribute, value, bytes))

#define MEMBER(name, parameters, arguments) cublasStatus_t(*name) parameters;
static struct {
    FUNCTIONS(MEMBER)
    const char *(*cublasLtGetStatusName)(cublasStatus_t status);
    size_t (*cublasLtGetVersion)(void);
} library;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static ups_status loaded; /* or why not */
static ups_error reason;

static void *find(void *file, const char *name) {
    void *found = dlsym(file, name);
    if (!found && loaded == UPS_OK)
        loaded = ups_fail(&reason, UPS_ERR_UNSUPPORTED, "%s has no function %s: it is not that of %s", UPS_CUDA_LIBRARY,
                          name, TOOLKIT_OF(CUBLAS_VER_MAJOR));
    return found;
}

static void load(void) {
    void *file = ups_cuda_open_library(UPS_CUDA_LIBRARY, PACKAGE_FOLDER);
    if (!file) {
        loaded = ups_fail(&reason, UPS_ERR_UNSUPPORTED,
                          "cuBLASLt cannot be loaded (%s): install the libraries of %s, or NVIDIA's Python package %s, "
                          "and name the folder of the file in LD_LIBRARY_PATH",
                          dlerror(), TOOLKIT_OF(CUBLAS_VER_MAJOR), PACKAGE);
        return;
    }
#define FIND(name, parameters, arguments) *(void **)&library.name = find(file, #name);
    FUNCTIONS(FIND)
    FIND(cublasLtGetStatusName, , )
    FIND(cublasLtGetVersion, , )
}

ups_status ups_cuda_library_load(ups_error *error) {
    pthread_once(&once, load);
    if (loaded != UPS_OK && error) *error = reason;
    return loaded;
}

#define FUNCTION(name, parameters, arguments)                                                                          \
    cublasStatus_t name parameters {                                                                                   \
        return ups_cuda_library_load(NULL) == UPS_OK ? library.name arguments : CUBLAS_STATUS_NOT_INITIALIZED;         \
    }
FUNCTIONS(FUNCTION)

const char *cublasLtGetStatusName(cublasStatus_t status) {
    return ups_cuda_library_load(NULL) == UPS_OK ? library.cublasLtGetStatusName(status) : "cuBLASLt is not loaded";
}

size_t cublasLtGetVersion(void) {
    return ups_cuda_library_load(NULL) == UPS_OK ? library.cublasLtGetVersion() : 0;
}
