"""Prints the numbers in tests/train/test_pde_metrics.c, from PDEBench's own metric_func, and The Well's VRMSE by its definition
(the_well/benchmark/metrics/spatial.py: NRMSE with norm_mode "std", whose torch.std divides by N - 1).

    python make_metric_golden.py PDEBENCH_CHECKOUT      (needs torch and numpy)

The arrays are drawn as the test draws them: ups_random_uniform of base/random.h, Philox4x32-10, seed 7, purpose UPS_RANDOM_TEST.
"""
import sys
from unittest import mock

import numpy as np
import torch

# metrics.py draws figures too; metric_func does not.
for name in ("matplotlib", "matplotlib.pyplot", "mpl_toolkits", "mpl_toolkits.axes_grid1"):
    sys.modules[name] = mock.MagicMock()
sys.path.insert(0, sys.argv[1] + "/pdebench/models")
from metrics import metric_func  # noqa: E402

SEED, PURPOSE_TEST = 7, 7
MASK = np.uint64(0xFFFFFFFF)


def uniform(item, count):
    """ups_random_uniform(stream(SEED, PURPOSE_TEST, item), 0 … count-1)"""
    index = np.arange(count, dtype=np.uint64)
    c = [index & MASK, index >> np.uint64(32), np.full_like(index, PURPOSE_TEST), np.full_like(index, item)]
    k0, k1 = SEED, 0
    for _ in range(10):
        p0, p1 = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [(p1 >> np.uint64(32)) ^ c[1] ^ np.uint64(k0), p1 & MASK, (p0 >> np.uint64(32)) ^ c[3] ^ np.uint64(k1), p0 & MASK]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return (((c[1] << np.uint64(32)) | c[0]) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def vrmse(prediction, target):
    """The mean of (batch, x..., time, channel), the initial time left out."""
    error, target = (prediction - target)[..., 1:, :], target[..., 1:, :]
    space = tuple(range(1, target.ndim - 2))
    return float((error.square().mean(space) / (target.std(space) ** 2 + 1e-7)).sqrt().mean())


CASES = [  # batch, grid, times, channels, lengths
    ("1D", 3, (32,), 4, 2, (1.0, 1.0, 1.0)),
    ("1D, odd", 2, (27,), 3, 1, (2.5, 1.0, 1.0)),
    ("2D", 2, (28, 32), 3, 2, (1.0, 1.0, 1.0)),
    ("2D, oblong", 2, (30, 26), 2, 1, (2.0, 0.75, 1.0)),
    ("3D", 2, (26, 28, 30), 2, 3, (1.0, 1.0, 1.0)),
]

for case, (name, batch, grid, times, channels, lengths) in enumerate(CASES):
    shape = (batch, *grid, times, channels)
    count = int(np.prod(shape))
    prediction, target = (
        torch.tensor((2 * uniform(2 * case + i, count) - (0.5 + i / 4)).astype(np.float32).reshape(shape)).double() for i in (0, 1)
    )
    whole = metric_func(prediction, target, True, *lengths, initial_step=1)
    values = [float(v) for v in whole[:5]] + [float(v) for v in whole[5]]
    apart = metric_func(prediction, target, False, *lengths, initial_step=1)  # (channel, time) each
    last = [float(apart[i][channels - 1, 0]) if apart[i].shape[0] == channels else float("nan") for i in range(4)]
    print(f"    /* {name} */ {{{', '.join(f'{v:.9g}' for v in values)}}},")
    print(f"    /* VRMSE, and that of the last channel's first frame */ {vrmse(prediction, target):.9g}, "
          f"{vrmse(prediction[..., :2, -1:], target[..., :2, -1:]):.9g},")
    print(f"    /* last channel, first frame: rmse, nrmse, crmse, max_error */ {{{', '.join(f'{v:.9g}' for v in last)}}},")
