/* The CUDA module (model/cuda/module.h) from a program's side: looked for and loaded once, where there is a driver. */
#ifndef UPS_MODEL_DEVICES_CUDA_H
#define UPS_MODEL_DEVICES_CUDA_H

#include "model/cuda/module.h"

/* Where the module is, in `path` (PATH_MAX bytes): beside the program, in ../lib/ups/ of an installation, in the build
 * tree, or where the environment's UPS_CUDA_MODULE says. False where it is in none of these. */
bool ups_cuda_module_path(char *path);

/* The module, which stays loaded; or why CUDA is not used here, as one sentence. */
ups_status ups_cuda_load(const ups_cuda_module **module, ups_error *error);
/* The same where there need not be a driver: of the module, `open_to_plan` may be called. */
ups_status ups_cuda_load_to_plan(const ups_cuda_module **module, ups_error *error);

#endif
