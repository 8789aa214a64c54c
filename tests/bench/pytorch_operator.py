#!/usr/bin/env python3
"""The reference operator in PyTorch, as its users would write it, and the time of a training step: what ours is compared with.

  pytorch_operator.py [--batch 8] [--dtype float32|tf32|bfloat16] [--device cpu|cuda] [--threads N] [--compile MODE] [--steps 10]

Names of parameters are those of our safetensors without "operator." (pytorch_parity.py). A step is forward, mean squared error, backward and fused AdamW; bfloat16 is autocast, with parameters in
float32. MODE is one of torch.compile: default, reduce-overhead, max-autotune. Prints one JSON line. Needs PyTorch 2.5 or later."""
import argparse
import json
import time

import torch
from torch import nn
from torch.nn import functional


class HeadNorm(nn.RMSNorm):
    """Under autocast in the dtype of what products gave: PyTorch's fused kernel wants one dtype."""

    def forward(self, x):
        return functional.rms_norm(x, self.normalized_shape, self.weight.to(x.dtype), self.eps)


class Attention(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(hidden)
        self.qkv, self.output = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.query_norm, self.key_norm = HeadNorm(hidden // heads, eps=1e-6), HeadNorm(hidden // heads, eps=1e-6)

    def forward(self, x):
        batch, tokens, hidden = x.shape
        q, k, v = self.qkv(self.norm(x)).view(batch, tokens, 3, self.heads, hidden // self.heads).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(self.query_norm(q), self.key_norm(k), v)
        return self.output(mixed.transpose(1, 2).reshape(batch, tokens, hidden))


class MLP(nn.Module):
    def __init__(self, hidden, ratio):
        super().__init__()
        self.norm = nn.LayerNorm(hidden)
        self.up, self.down = nn.Linear(hidden, int(hidden * ratio)), nn.Linear(int(hidden * ratio), hidden)

    def forward(self, x):
        return self.down(functional.gelu(self.up(self.norm(x))))


class Block(nn.Module):
    def __init__(self, hidden, heads, ratio):
        super().__init__()
        self.attention, self.mlp = Attention(hidden, heads), MLP(hidden, ratio)

    def forward(self, x):
        x = x + self.attention(x)
        return x + self.mlp(x)


class Operator(nn.Module):
    """Latents (batch, tokens, dim) and the step's length (batch, 1) to the next latents."""

    def __init__(self, dim=128, hidden=384, depth=12, heads=8, ratio=4.0):
        super().__init__()
        self.time = nn.ModuleList([nn.Linear(1, 64), nn.Linear(64, 64), nn.Linear(64, dim)])
        self.input, self.output = nn.Linear(dim, hidden), nn.Linear(hidden, dim)
        self.blocks = nn.ModuleList(Block(hidden, heads, ratio) for _ in range(depth))
        self.norm, self.update_norm = nn.LayerNorm(hidden), nn.LayerNorm(dim)

    def forward(self, z, dt):
        first, second, third = self.time
        x = self.input(z + third(second(functional.silu(first(dt))))[:, None])
        for block in self.blocks:
            x = block(x)
        return z + self.update_norm(self.output(self.norm(x)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--dtype", default="float32", choices=["float32", "tf32", "bfloat16"])
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--threads", type=int)
    parser.add_argument("--compile", metavar="MODE")
    parser.add_argument("--steps", type=int, default=10)
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    torch.set_float32_matmul_precision("high" if arguments.dtype == "tf32" else "highest")
    torch.manual_seed(0)
    device = arguments.device
    model = Operator().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.03, fused=True)
    run = torch.compile(model, mode=arguments.compile) if arguments.compile else model
    z, truth = (torch.randn(arguments.batch, arguments.tokens, 128, device=device) for _ in range(2))
    dt = torch.full((arguments.batch, 1), 0.1, device=device)
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None

    def step():
        with torch.autocast(device, dtype=torch.bfloat16, enabled=arguments.dtype == "bfloat16"):
            loss = functional.mse_loss(run(z, dt).float(), truth)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    for _ in range(3):
        step()
    times = []
    for _ in range(arguments.steps):
        wait()
        began = time.perf_counter()
        step()
        wait()
        times.append(time.perf_counter() - began)
    median = sorted(times)[len(times) // 2]
    print(json.dumps({"version": torch.__version__, "dtype": arguments.dtype, "device": device, "compile": arguments.compile, "threads": torch.get_num_threads(), "batch": arguments.batch,
                      "ms_per_step": round(median * 1e3, 3), "pairs_per_s": round(arguments.batch / median, 2), "parameters": sum(p.numel() for p in model.parameters())}))


if __name__ == "__main__":
    main()
