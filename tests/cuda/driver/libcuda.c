/* A driver that is there, and has nothing: programs find libcuda.so.1, and no card by it. */
int cuInit(unsigned flags);
int cuInit(unsigned flags) {
    return 100; /* CUDA_ERROR_NO_DEVICE */
}
