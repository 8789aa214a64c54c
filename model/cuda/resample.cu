// Coarsen and refine: a grid of cells halved along each axis, and back. Along an axis a cell of the result is a weighted sum of
// at most four cells, in a few places that arithmetic finds; a cell of a grid is the sum over the product of its axes' places.
#include "model/cuda/gather.cuh"

// What an axis of `fine` cells, on the finer side, does to cell `cell` of the result: place i < PLACES is cell `source` with
// `weight`, 0 where there is none. With one cell on either side all of them are the identity, which `resampling` knows.
struct halving {
    enum { PLACES = 2 };
    static __device__ __forceinline__ float place(int64_t fine, bool periodic, int64_t cell, int i, int64_t &source) {
        source = min(2 * cell + i, fine - 1);
        return 0.5f;
    }
};

struct halving_gradient {
    enum { PLACES = 1 };
    static __device__ __forceinline__ float place(int64_t fine, bool periodic, int64_t cell, int i, int64_t &source) {
        source = cell / 2;
        return fine % 2 && cell == fine - 1 ? 1.0f : 0.5f; // the last cell of an odd axis counts twice
    }
};

// Beyond the border lies what is there on the other side, or the last cell.
struct doubling {
    enum { PLACES = 2 };
    static __device__ __forceinline__ float place(int64_t fine, bool periodic, int64_t cell, int i, int64_t &source) {
        int64_t coarse = (fine + 1) / 2;
        source = cell / 2;
        if (i == 0) return 0.75f;
        source += cell % 2 ? 1 : -1;
        if (source < 0) source = periodic ? coarse - 1 : 0;
        if (source >= coarse) source = periodic ? 0 : coarse - 1;
        return 0.25f;
    }
};

// A coarse cell lies in its two fine cells, and in one beside them on each side. Beyond a border that is the fine cell of the
// other end, where it reads across; or its own last one once more.
struct doubling_gradient {
    enum { PLACES = 4 };
    static __device__ __forceinline__ float place(int64_t fine, bool periodic, int64_t cell, int i, int64_t &source) {
        source = 2 * cell + i - 1; // fine cells 2 cell - 1 to 2 cell + 2
        if (i == 1 || i == 2) return source < fine ? 0.75f : 0.0f;
        if (source >= 0 && source < fine) return 0.25f;
        if (!periodic) {
            source = i == 0 ? 0 : fine - 1;
            return i == 3 && fine % 2 ? 0.0f : 0.25f; // an odd axis ends with a cell that reads back, not beyond
        }
        source = i == 0 ? fine - 1 : 0;
        return i == 0 && fine % 2 ? 0.0f : 0.25f;
    }
};

// Three axes always, slowest first: of cells of the finer side, of what is summed, and of the result.
template <typename AXIS> struct resampling {
    int64_t fine[3], from[3], to[3];
    bool periodic;

    static __device__ __forceinline__ float place(int64_t fine, bool periodic, int64_t cell, int i, int64_t &source) {
        if (fine > 1) return AXIS::place(fine, periodic, cell, i, source);
        source = 0;
        return i == 0 ? 1.0f : 0.0f;
    }

    template <typename TAKE> __device__ __forceinline__ void each(int64_t row, TAKE take) const {
        int64_t rest = row / to[2], k = row - rest * to[2], next = rest / to[1], j = rest - next * to[1];
        int64_t sample = next / to[0], i = next - sample * to[0], z, y, x;
        for (int a = 0; a < AXIS::PLACES; a++) {
            float of_z = place(fine[0], periodic, i, a, z);
            if (of_z == 0.0f) continue;
            for (int b = 0; b < AXIS::PLACES; b++) {
                float of_zy = of_z * place(fine[1], periodic, j, b, y);
                if (of_zy == 0.0f) continue;
                for (int c = 0; c < AXIS::PLACES; c++) {
                    float weight = of_zy * place(fine[2], periodic, k, c, x);
                    if (weight != 0.0f) take(((sample * from[0] + z) * from[1] + y) * from[2] + x, weight);
                }
            }
        }
    }
};

// `coarser`: the result is the coarser side.
template <typename AXIS> static resampling<AXIS> resampling_of(const ups_op_call *call, bool coarser) {
    const ups_op_attributes *attributes = call->attributes;
    resampling<AXIS> r;
    r.periodic = attributes->periodic;
    for (int axis = 0; axis < 3; axis++) {
        int given = axis - (3 - attributes->dims);
        int64_t fine = given < 0 ? 1 : attributes->grid[given], coarse = (fine + 1) / 2;
        r.fine[axis] = fine;
        r.from[axis] = coarser ? fine : coarse;
        r.to[axis] = coarser ? coarse : fine;
    }
    return r;
}

template <typename AXIS, bool COARSER>
static ups_status forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    return gather_rows(device, &call->inputs[0], &call->output, ups_shape_last(call->output.shape),
                       resampling_of<AXIS>(call, COARSER), false, "resampling", error);
}

template <typename AXIS, bool COARSER>
static ups_status backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    const ups_tensor *gradient = &call->input_gradients[0];
    if (!is_present(gradient)) return UPS_OK;
    return gather_rows(device, &call->output_gradient, gradient, ups_shape_last(gradient->shape),
                       resampling_of<AXIS>(call, COARSER), call->accumulate[0], "resampling's gradient", error);
}

const ups_cuda_kernel ups_cuda_coarsen = {forward<halving, true>, backward<halving_gradient, false>, nullptr};
const ups_cuda_kernel ups_cuda_refine = {forward<doubling, false>, backward<doubling_gradient, true>, nullptr};
