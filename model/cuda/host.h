/* What kernels know of the CUDA device, in C and in CUDA C++. */
#ifndef UPS_MODEL_CUDA_HOST_H
#define UPS_MODEL_CUDA_HOST_H

#include "model/kernel.h"
#include <cublasLt.h>
#include <cuda_runtime_api.h>

/* An op's kernels: host functions that issue work to the compute stream. Backward as in ups_kernel_run. `prepare` makes
 * what is needed for calls of these shapes once, and says the bytes of workspace; NULL: nothing is. */
typedef struct ups_cuda_kernel {
    ups_kernel_run *forward, *backward;
    ups_status (*prepare)(ups_device *device, const ups_op_call *call, bool backward, ups_kernel *kernel,
                          ups_error *error);
    ups_pair_run *pair_forward, *pair_backward; /* as in ups_kernel */
} ups_cuda_kernel;

extern const ups_cuda_kernel ups_cuda_gelu, ups_cuda_silu, ups_cuda_layer_norm, ups_cuda_rms_norm, ups_cuda_linear,
    ups_cuda_linear_gelu, ups_cuda_cast;
extern const ups_cuda_kernel ups_cuda_slice, ups_cuda_select_frame, ups_cuda_patchify, ups_cuda_neighborhood,
    ups_cuda_coarsen, ups_cuda_refine, ups_cuda_pool_tokens, ups_cuda_gather_points, ups_cuda_weigh,
    ups_cuda_read_patches, ups_cuda_fourier, ups_cuda_angles;
extern const ups_cuda_kernel ups_cuda_depthwise, ups_cuda_spectral, ups_cuda_field_modes;
extern const ups_cuda_kernel ups_cuda_attention;
extern const ups_cuda_kernel ups_cuda_modulate, ups_cuda_residual, ups_cuda_add, ups_cuda_broadcast, ups_cuda_scale;
extern const ups_cuda_kernel ups_cuda_bound, ups_cuda_round_f16, ups_cuda_noise, ups_cuda_shift, ups_cuda_symmetry;
extern const ups_cuda_kernel ups_cuda_loss_mse, ups_cuda_loss_relative, ups_cuda_loss_grouped, ups_cuda_loss_negative,
    ups_cuda_loss_covariance, ups_cuda_weighted_sum;

cudaStream_t ups_cuda_stream(ups_device *device); /* where kernels run */
cublasLtHandle_t ups_cuda_blas(ups_device *device);
int ups_cuda_processors(ups_device *device);                       /* of the card */
size_t ups_cuda_most_shared(ups_device *device);                   /* bytes of shared memory that a block may have */
bool ups_cuda_only_plans(ups_device *device);                      /* there is no card: what is prepared will not run */
bool ups_cuda_has_groups(ups_device *device);                      /* the card multiplies by groups of warps (wgmma) */
bool ups_cuda_kernels_by_shape(ups_device *device);                /* not those that are the fastest here */
ups_status ups_cuda_has_fp8(ups_device *device, ups_error *error); /* or which card it is that cannot multiply it */

/* UPS_CUDA_TICKETS counters in device memory, for kernels of the compute stream: zero before each, and behind it. */
enum { UPS_CUDA_TICKETS = 4096 };
unsigned *ups_cuda_tickets(ups_device *device);

/* UPS_OK, or an error that says what was done when CUDA refused. */
ups_status ups_cuda_check(cudaError_t code, const char *doing, ups_error *error);
/* The same of the launch before. */
ups_status ups_cuda_launched(const char *kernel, ups_error *error);

/* to (+)= from, each in its dtype (elementwise.cu). */
ups_status ups_cuda_convert(ups_device *device, const ups_tensor *from, const ups_tensor *to, bool accumulate,
                            ups_error *error);
/* dh = dy GELU'(h), y = GELU(h) (activation.cu). Where there are `sums`, they get the sums of dh's rows in the same
 * pass, as ups_cuda_sum_rows makes them. */
ups_status ups_cuda_gelu_rows(ups_device *device, const ups_tensor *h, const ups_tensor *y, ups_error *error);
ups_status ups_cuda_gelu_gradient(ups_device *device, const ups_tensor *h, const ups_tensor *dy, const ups_tensor *dh,
                                  float *partials, float *sums, bool accumulate, ups_error *error);
/* Sums of rows in the order of rows, `sums` (width) float32; partials: as many floats as ups_cuda_column_partials says
 * (reduce.cu). */
int64_t ups_cuda_column_partials(int64_t rows, int64_t width);
ups_status ups_cuda_sum_rows(ups_device *device, const ups_tensor *x, float *partials, float *sums, bool accumulate,
                             ups_error *error);

/* ups_device_class.gather_ahead, on a stream (copies.cu). */
ups_status ups_cuda_gather_rows(cudaStream_t stream, void *to, const void *const *rows, int64_t count, size_t bytes,
                                ups_error *error);

/* The training step's own (update.cu). */
ups_status ups_cuda_add_losses(ups_device *device, const ups_losses_call *call, ups_error *error);
ups_status ups_cuda_seed_backward(ups_device *device, const ups_update *update, float *gradient, ups_error *error);
ups_status ups_cuda_decide(ups_device *device, const ups_update_rules *rules, ups_update *update, ups_error *error);
/* `partials`: UPS_CUDA_NORM_BLOCKS of each. */
enum { UPS_CUDA_NORM_BLOCKS = 256 };
typedef struct ups_cuda_norm_partial {
    double sum;
    int64_t non_finite;
} ups_cuda_norm_partial;
ups_status ups_cuda_norm(ups_device *device, ups_cuda_norm_partial *partials, const float *gradients, int64_t count,
                         ups_update *update, ups_error *error);
ups_status ups_cuda_optimize(ups_device *device, const ups_optimizer_call *call, ups_error *error);

/* Muon (muon.cu). The products of a shape are made once; the device keeps them in a list that it releases. */
typedef struct ups_cuda_muon ups_cuda_muon;
ups_cuda_muon **ups_cuda_muon_plans(ups_device *device);
void ups_cuda_muon_release(ups_cuda_muon *plans);
size_t ups_cuda_matrices_workspace(ups_device *device, const ups_matrices *matrices, int32_t count, ups_dtype compute);
ups_status ups_cuda_move_matrices(ups_device *device, const ups_optimizer_call *call, ups_error *error);

#endif
