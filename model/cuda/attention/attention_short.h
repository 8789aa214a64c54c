// Attention of short sequences (attention_short.cuh).
#pragma once
#include "model/cuda/attention/attention.cuh"

// Whether its kernels take a call. Their norms, log-sum-exps and sums of gains are those of the others.
bool attention_is_short(ups_device *device, const attention_call &c, bool backward);
size_t attention_short_backward_bytes(const attention_call &c); // of shared memory, at most
ups_status attention_short_forward(ups_device *device, const attention_call &c, ups_error *error);
// gains_of_q, gains_of_k: where they are wanted, one row a head of a sample.
ups_status attention_short_backward(ups_device *device, const attention_call &c, ups_error *error);
