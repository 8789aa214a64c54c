/* Element types, named as NumPy names them; those of eight bits as ml_dtypes does. */
#ifndef UPS_BASE_DTYPE_H
#define UPS_BASE_DTYPE_H

#include <stddef.h>

typedef enum ups_dtype { UPS_F32, UPS_F64, UPS_F16, UPS_BF16, UPS_I32, UPS_E4M3, UPS_E5M2 } ups_dtype;

static inline size_t ups_dtype_size(ups_dtype dtype) {
    switch (dtype) {
    case UPS_F64:
        return 8;
    case UPS_F32:
    case UPS_I32:
        return 4;
    case UPS_F16:
    case UPS_BF16:
        return 2;
    case UPS_E4M3:
    case UPS_E5M2:
        return 1;
    }
    return 0;
}

static inline const char *ups_dtype_name(ups_dtype dtype) {
    switch (dtype) {
    case UPS_F64:
        return "float64";
    case UPS_F32:
        return "float32";
    case UPS_I32:
        return "int32";
    case UPS_F16:
        return "float16";
    case UPS_BF16:
        return "bfloat16";
    case UPS_E4M3:
        return "float8_e4m3fn";
    case UPS_E5M2:
        return "float8_e5m2";
    }
    return "unknown";
}

#endif
