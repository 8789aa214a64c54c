/* NVIDIA's libraries that are loaded at run time: from where the linker looks (LD_LIBRARY_PATH, the module's RUNPATH,
 * the system), else from the Python packages that PyTorch brings with it, where the module is of a package itself:
 * site-packages/ups/lib/ups/libups_cuda.so. */
#ifndef UPS_MODEL_CUDA_LIBRARIES_OPEN_H
#define UPS_MODEL_CUDA_LIBRARIES_OPEN_H

/* Opens FILE, or site-packages/nvidia/FOLDER/lib/FILE. NULL: dlerror says why not. */
void *ups_cuda_open_library(const char *file, const char *folder);

#endif
