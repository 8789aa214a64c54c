/* NVIDIA's libraries among the Python packages that PyTorch brings with it, where the module is of a package itself:
 * site-packages/ups/lib/ups/libups_cuda.so. */
#ifndef UPS_MODEL_CUDA_LIBRARIES_PACKAGES_H
#define UPS_MODEL_CUDA_LIBRARIES_PACKAGES_H

/* Opens site-packages/nvidia/FOLDER/lib/FILE; NULL where it is not there. */
void *ups_cuda_open_of_packages(const char *folder, const char *file);

#endif
