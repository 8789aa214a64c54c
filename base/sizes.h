/* Sizes in bytes of what a file, a configuration or a caller claims, which may be absurd: sums and products end at
 * UPS_SIZE_ABSURD, which no allocator grants, instead of wrapping around to something small. */
#ifndef UPS_BASE_SIZES_H
#define UPS_BASE_SIZES_H

#include <stdint.h>

#define UPS_SIZE_ABSURD UINT64_MAX

static inline uint64_t ups_size_sum(uint64_t a, uint64_t b) {
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? UPS_SIZE_ABSURD : sum;
}

static inline uint64_t ups_size_product(uint64_t a, uint64_t b) {
    uint64_t product;
    return __builtin_mul_overflow(a, b, &product) ? UPS_SIZE_ABSURD : product;
}

#endif
