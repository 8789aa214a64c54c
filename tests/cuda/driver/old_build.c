/* A module of before its entry told a hash of its headers. */
#include <stddef.h>

const void *ups_cuda_module_1(void);
const void *ups_cuda_module_1(void) {
    static const size_t sizes[8] = {312, 1440, 36, 36};
    return sizes;
}
