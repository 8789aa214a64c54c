/* cuBLASLt as the module loads it: that of the toolkit has all functions that are called, and where it is missing one
 * sentence says what to install. Three programs are made of this file: of the second the library is one that is
 * nowhere, of the third one that lies where PyTorch's packages have it. */
#include "model/cuda/libraries/cublaslt.h"
#include "tests/model/claims.h"
#include <cublasLt.h>

#ifdef UPS_TEST_MISSING
CLAIM(a_library_that_is_missing_is_told_of_and_its_functions_fail) {
    for (int again = 0; again < 2; again++)
        refused(ups_cuda_library_load(&failure), UPS_ERR_UNSUPPORTED, "cuBLASLt cannot be loaded", UPS_CUDA_LIBRARY,
                "install the libraries of CUDA 1", "LD_LIBRARY_PATH");
    cublasLtHandle_t handle;
    assert_int_equal(cublasLtCreate(&handle), CUBLAS_STATUS_NOT_INITIALIZED);
    assert_int_equal(cublasLtGetVersion(), 0);
    assert_string_equal(cublasLtGetStatusName(CUBLAS_STATUS_NOT_INITIALIZED), "cuBLASLt is not loaded");
}
#else
CLAIM(the_toolkits_library_has_all_functions_and_what_a_program_asks_for_is_passed_on) {
    ok(ups_cuda_library_load(&failure));
    assert_int_equal(cublasLtGetVersion() / 10000, CUBLAS_VER_MAJOR);
    assert_string_equal(cublasLtGetStatusName(CUBLAS_STATUS_NOT_SUPPORTED), "CUBLAS_STATUS_NOT_SUPPORTED");
    cublasLtMatrixLayout_t matrix;
    const int32_t batch = 3;
    assert_int_equal(cublasLtMatrixLayoutCreate(&matrix, CUDA_R_16BF, 8, 16, 8), CUBLAS_STATUS_SUCCESS);
    assert_int_equal(cublasLtMatrixLayoutSetAttribute(matrix, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof batch),
                     CUBLAS_STATUS_SUCCESS);
    assert_int_equal(cublasLtMatrixLayoutDestroy(matrix), CUBLAS_STATUS_SUCCESS);
}
#endif

int main(void) {
    return run_claims(NULL, NULL, NULL);
}
