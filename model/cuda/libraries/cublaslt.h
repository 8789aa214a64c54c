/* cuBLASLt, which the module is not linked to: planning does without it, and it is half a gigabyte. */
#ifndef UPS_MODEL_CUDA_LIBRARIES_CUBLASLT_H
#define UPS_MODEL_CUDA_LIBRARIES_CUBLASLT_H

#include "base/error.h"

/* Loads it, once; or says what to install. Programs that are linked to a cuBLASLt have a function of their own that
 * does nothing. */
ups_status ups_cuda_library_load(ups_error *error);

#endif
