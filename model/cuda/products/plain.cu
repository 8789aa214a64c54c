// Products that the library has no algorithm for, such as those of matrices of one column in half precision: any shapes, in tiles, summed
// in float32 term by term.
#include "model/cuda/elements.cuh"
extern "C" {
#include "model/cuda/products/product.h"
}

enum { TILE = 16 };

struct plain_matrix {
    elements of;
    int64_t row, column; // elements from one to the next, of the operand as the product takes it
    int64_t stride;
};

struct plain_product {
    plain_matrix a, b, d;
    elements bias; // an element for each row of the result; null: none
    int64_t rows, columns, depth, batch;
    bool accumulate;
};

static __device__ __forceinline__ float element(const plain_matrix &m, int64_t index, int64_t row, int64_t column) {
    float x[1];
    read_elements<1>(m.of, index * m.stride + row * m.row + column * m.column, x);
    return x[0];
}

// A block a tile of one result.
static __global__ void __launch_bounds__(TILE * TILE) plain_product_kernel(plain_product p) {
    __shared__ float a[TILE][TILE + 1], b[TILE][TILE + 1];
    const int down = threadIdx.x / TILE, across = threadIdx.x % TILE;
    const int64_t tiles_down = (p.rows + TILE - 1) / TILE, tiles_across = (p.columns + TILE - 1) / TILE;
    for (int64_t tile = blockIdx.x; tile < p.batch * tiles_down * tiles_across; tile += gridDim.x) {
        const int64_t index = tile / (tiles_down * tiles_across), place = tile % (tiles_down * tiles_across);
        const int64_t row = place / tiles_across * TILE + down, column = place % tiles_across * TILE + across;
        float sum[1] = {0.0f};
        for (int64_t first = 0; first < p.depth; first += TILE) {
            a[down][across] = row < p.rows && first + across < p.depth ? element(p.a, index, row, first + across) : 0.0f;
            b[down][across] = column < p.columns && first + down < p.depth ? element(p.b, index, first + down, column) : 0.0f;
            __syncthreads();
#pragma unroll
            for (int k = 0; k < TILE; k++) sum[0] += a[down][k] * b[k][across];
            __syncthreads();
        }
        if (row >= p.rows || column >= p.columns) continue;
        if (p.bias.data) {
            float bias[1];
            read_elements<1>(p.bias, row, bias);
            sum[0] += bias[0];
        }
        write_elements<1>(p.d.of, index * p.d.stride + row * p.d.row + column * p.d.column, sum, p.accumulate);
    }
}

// The library's matrix is the transpose of what lies there.
static plain_matrix operand_of(ups_cuda_matrix m, bool transposed, const void *data) {
    const int64_t one = m.stride ? m.stride : m.rows * m.columns;
    if (transposed) return {{(void *)data, m.dtype}, m.columns, 1, one};
    return {{(void *)data, m.dtype}, 1, m.columns, one};
}

ups_status ups_cuda_plain_product_run(ups_device *device, const ups_cuda_product *product, const void *a, const void *b,
                                      const void *bias, void *d, bool accumulate, ups_error *error) {
    enum { MOST = 1 << 16 };
    const ups_cuda_plain_product *plain = &product->plain;
    plain_product p = {};
    p.a = operand_of(plain->a, plain->transpose_a, a);
    p.b = operand_of(plain->b, plain->transpose_b, b);
    p.d = operand_of(product->result, false, d);
    p.bias = {(void *)bias, ups_cuda_product_bias(product)};
    p.rows = product->result.columns, p.columns = product->result.rows;
    p.depth = plain->transpose_a ? plain->a.columns : plain->a.rows;
    p.batch = plain->batch, p.accumulate = accumulate;
    const int64_t tiles = p.batch * ((p.rows + TILE - 1) / TILE) * ((p.columns + TILE - 1) / TILE);
    plain_product_kernel<<<(unsigned)(tiles < MOST ? tiles : MOST), TILE * TILE, 0, ups_cuda_stream(device)>>>(p);
    return ups_cuda_launched("a product", error);
}
