#!/usr/bin/env python3
"""Breaks each file of kernels, and what issues them, on purpose, one line at a time, and wants the tests on the emulated device to notice.

  mutations.py FOLDER [NAME ...]

Run by an interpreter with the packages of tests/python. FOLDER becomes a copy of the tree, built there; NAME is that of a file (norm, spectral, step …), of which all are meant by default. A change is made, what it is of is
built again, a test is run that wants float64's results, and the change is undone. Prints a row a change: what noticed it, or MISSED. Exit code 1 where one was missed, or
where a line that is to be changed stands no longer there. It is no part of the test suite, since it takes some twenty minutes on two cores."""
import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

TREE = Path(__file__).resolve().parents[2]
KERNELS = Path("model/cuda")


def ops(name):
    """test_ops, cases of one op."""
    return "test_ops_emulated", "cuda.test_ops.forward", {"UPS_TEST_OPS": name}


def races(name):
    """Where races are looked for, and what is not shown to groups."""
    return "test_ops_emulated", "cuda.test_ops.random", {"UPS_TEST_OPS": name}


def warps(name):
    """The same where groups of warps are not taken."""
    return "test_ops_emulated", "cuda.test_ops.forward", {"UPS_TEST_OPS": name, "UPS_CUDA_ATTENTION": "warps"}


DEVICE = "test_device_emulated", "cuda.test_device.forward", {}
OPTIMIZER = "test_ops_emulated", "cuda.test_ops.forward", {}
MUON = "optimizer_steps_emulated ups", "cuda.muon", {}
STATIONARY = "test_stationary", "cuda.test_stationary.forward", {}
SHARED = "test_stationary", "cuda.test_stationary.backward", {} # rows of tiles, by blocks
PAIRS = "test_pairs_emulated", "cuda.test_pairs.random", {}
FP8 = "test_fp8", "cuda.test_fp8.forward", {}
FP8_89 = "test_fp8_89", "cuda.test_fp8_89.forward", {}
GRAPHS = "test_graphs", "cuda.test_graphs", {}
# file, below model/cuda or else of the tree; words as they stand, once, and as they are changed; what is to notice: targets, a test of CTest, its environment
MUTATIONS = [
    ("activation.cu", "y * (1.0f + x * (1.0f - y))", "y * (1.0f + x * y)", ops("silu")),
    ("gelu.cuh", "x < 0.0f ? negative", "x > 0.0f ? negative", ops("gelu")),
    ("activation.cu", "sums[i] += v[i];", "sums[i] = v[i];", ops("linear_gelu")),
    ("activation.cu", "inverse ? coshf(u) : 1.0f / sqrtf(1.0f + u * u)", "inverse ? coshf(u) : 1.0f / (1.0f + u * u)", ops("bound")),
    ("attention/attention.cu", "total[i] = total[i] * before + sum", "total[i] = total[i] + sum", ops("attention")),
    ("attention/attention.cu", "if (t * TILES::STREAM + TILES::column(j) >= counts.y) s[i][j] = -INFINITY;", "", ops("attention")),
    ("attention/attention.cu", "column += LANES_A_ROW * WIDE)", "column += 2 * LANES_A_ROW * WIDE)", ops("attention")),
    ("attention/attention_backward.cu", "d[k][i] = inverse * (d[k][i] - h[k][i] * product)", "d[k][i] = inverse * d[k][i]", ops("attention")),
    ("attention/attention_groups.cu", "total[i] = total[i] * before + sum", "total[i] += sum", ops("attention")),
    ("attention/attention_groups.cu", "s[0][j] = s[1][j] = -INFINITY;", "s[0][j] = s[1][j] = 0.0f;", ops("attention")),
    ("attention/attention_groups_backward.cu", "(d[i][j] + delta[i])", "d[i][j]", ops("attention")),
    ("attention/attention_groups_backward.cu", "        show_to_groups();\n        meet_group(group);", "        meet_group(group);", races("attention")),
    ("matrices/groups.cuh", "(uint32_t)(rows + columns * (stride >> 3))", "(uint32_t)(rows + columns * (stride >> 4))", ops("attention")),
    ("attention/attention_short.cuh", "pack_pair<TYPE>(pair.x * by, pair.y * by)", "pack_pair<TYPE>(pair.x * by, pair.y)", ops("attention")),
    ("attention/attention_short.cuh", "if (own) load_matrices(a[m], own + m * 16 * PITCH + k * 16);", "", warps("attention")),
    ("attention/attention_short.cu", "total[m][i] = total[m][i] * before + sum", "total[m][i] += sum", warps("attention")),
    ("attention/attention_short.cu", "s[m][i][j] = -INFINITY;", "s[m][i][j] = 0.0f;", warps("attention")),
    ("attention/attention_short_backward.cuh", "by * (d[i][j] - x.x * mean)", "by * d[i][j]", ops("attention")),
    ("attention/attention_short_backward.cu", "own_second, resting, second, of, own_second);\n        else", "own_second, second, resting, of, own_second);\n        else", warps("attention")),
    ("augment.cu", "at.group / layers, axis)", "at.group, axis)", ops("shift")),
    ("augment.cu", "at.group / layers, symmetries)", "at.group, symmetries)", ops("symmetry")),
    ("augment.cu", "const int64_t entry = e * grid.width + at.column;", "const int64_t entry = at.column;", ops("symmetry")),
    ("augment.cu", "deviation = attributes.factor * (gain ? gain[at.column] : 1.0f)", "deviation = attributes.factor", ops("noise")),
    ("conv.cu", "neighbour_of(grid, place, tap, -1)", "neighbour_of(grid, place, tap, 1)", ops("neighborhood")),
    ("copies.cu", "i < words; i += step) row[i] = from[i];", "i < words; i += step + words) row[i] = from[i];", DEVICE),
    ("depthwise.cu", "turned ? d.taps - 1 - at : at", "at", ops("depthwise")),
    ("depthwise.cu", "index < end; index += lanes)", "index < end; index += end)", ops("depthwise")),
    ("elementwise.cu", "1.0f / (1.0f + expf(-(open[i] + 2.0f)))", "1.0f / (1.0f + expf(-open[i]))", ops("residual")),
    ("fp8/cast.cu", "(1u << (SHIFT - 1)) - 1 + (magnitude >> SHIFT & 1)", "(1u << (SHIFT - 1))", FP8_89),
    ("fp8/cast.cu", "high = fmaf(high, 0.0f, high);", "", FP8),
    ("fp8/cast.cu", 'e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low)', 'e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(low), "f"(high)', FP8),
    ("fp8/cast.cu", "most = fmaxf(most, s.before[i]);", "", FP8),
    ("lists.cu", "run < entries; run *= 2)", "run < entries; run *= 4)", ops("gather_points")),
    ("loss.cu", "part < count; part += THREADS) sum += parts[part];", "part < count; part += count) sum += parts[part];", ops("loss_mse")),
    ("muon.cu", "ahead[k] = fmaf(share, scale, beta * kept[k])", "ahead[k] = kept[k]", MUON),
    ("muon.cu", "k == of_diagonal", "k == 0 && of_diagonal == 0", MUON),
    ("muon.cu", "of.rows > of.columns ? of.rows : of.columns", "of.rows", MUON),
    ("norm.cu", "to_bias[p][i] += g[p][i];", "to_bias[p][i] = g[p][i];", ops("layer_norm")),
    ("fields/field_modes.cu", "angle + k < r ? angle + k : angle + k - r", "angle + k < r ? angle + k : 0", ops("field_modes")),
    ("fields/field_modes.cu", "memory + (size_t)blockIdx.x * l.n * (2 * l.pairs + 1)", "memory", ops("field_modes")),
    ("fields/field_modes.cu", "const int64_t each = (l.members + 1) / 2", "const int64_t each = l.members / 2 + 1", ops("field_modes")),
    ("fields/patch.cu", "point == grid - 1 ? patch : inside + 1", "inside + 1", ops("patchify")),
    ("fields/patch.cu", "if (++y < p.patch[1]) continue;", "if (true) continue;", ops("patchify")),
    ("products/plain.cu", "sum[0] += bias[0];", "", ops("linear")),
    ("products/plain.cu", "first < p.depth; first += TILE)", "first < p.depth; first += p.depth)", ops("linear")),
    ("products/plain.cu", "if (transposed) return {{(void *)data, m.dtype}, m.columns, 1, one};", "", ops("linear")),
    ("products/plain.cu", "index * m.stride + row * m.row", "row * m.row", MUON),
    ("products/stationary.cu", "x[i] = d[i] * gelu::slope(x[i]);", "x[i] = d[i];", PAIRS),
    ("products/stationary.cu", "if (at.round > 0) phase_wait", "if (false) phase_wait", STATIONARY),
    ("products/stationary.cu", "        see_for_groups();\n", "", STATIONARY),
    ("products/stationary.cu", "group_wait<1>();", "", STATIONARY),
    ("products/stationary.cu", "first = index % c.shares * tiles;", "first = 0;", SHARED),
    ("products/stationary.cu", "high ? low[0] : up[0], 2)", "high ? up[0] : low[0], 2)", STATIONARY),
    ("products/stationary.cu", "warp < GROUP_THREADS / 32; warp++) sum +=", "warp < 3; warp++) sum +=", STATIONARY),
    ("products/stationary.cu", "copy_async_16(place + row * 16, present ? at : from, present);", "copy_async_16(place + row * 16, at, true);", STATIONARY),
    ("reduce.cu", "block < blocks; block += LANES)", "block < blocks; block += blocks)", ops("layer_norm")),
    ("resample.cu", "fine % 2 && cell == fine - 1 ? 1.0f : 0.5f", "0.5f", ops("coarsen")),
    ("resample.cu", "i == 3 && fine % 2 ? 0.0f : 0.25f", "0.25f", ops("refine")),
    ("spectral.cu", "term < t.terms; term += TERMS)", "term < min(t.terms, 4 * TERMS); term += TERMS)", ops("spectral")),
    ("spectral.cu", "const int row = first_row + row_group * EACH + r;", "const int row = row_group * EACH + r;", ops("spectral")),
    ("update.cu", "i += wide ? 1 : THREADS)", "i += THREADS)", OPTIMIZER),
    ("update.cu", "i < count; i += threads) add_square(own, x[i]);", "i < 0; i += threads) add_square(own, x[i]);", OPTIMIZER),
    ("model/step/run.c", "captures = class_of(step)->capture_begin && !step->profiling;", "captures = false;", GRAPHS),
    ("model/step/run.c", "    UPS_TRY(take_staged(step, error));", "    UPS_TRY(take_staged(step, error));\n    UPS_TRY(class_of(step)->synchronize(step->device, error));", GRAPHS),
    ("train/optimizer.c", "if (!optimizer->captured) return", "if (true) return", GRAPHS),
    ("train/loop.c", "|| last ? l->issued : l->issued - 1, error)", "|| last ? l->issued : l->issued, error)", GRAPHS),
]


def copy_tree(folder):
    """The files that git knows or would add."""
    names = subprocess.run(["git", "-C", TREE, "ls-files", "-co", "--exclude-standard"], check=True, capture_output=True, text=True).stdout.splitlines()
    for name in names:
        if not (TREE / name).exists():
            continue
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if not (folder / name).exists() or (folder / name).read_bytes() != (TREE / name).read_bytes():
            shutil.copyfile(TREE / name, folder / name)  # new to the build, which may have made something of a change that was interrupted
            shutil.copymode(TREE / name, folder / name)


def run(folder, *command, **environment):
    return subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ | environment)


def must(folder, *command):
    done = run(folder, *command)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}:\n{done.stdout[-3000:]}")


def why(output):
    """The first words of a failed test that say what was wrong."""
    lines = [line for line in output.splitlines() if any(word in line for word in (" expected", "emulat", "Error", "assert", "!=", "E  "))]
    return lines[0].strip()[:150] if lines else "failed"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME")
    arguments = parser.parse_args()
    folder = arguments.folder.absolute()
    meant = [m for m in MUTATIONS if not arguments.names or Path(m[0]).stem in arguments.names]
    copy_tree(folder)
    must(folder, "cmake", "--preset", "release", f"-DUPS_PYTHON={sys.executable}")
    for target, test, environment in dict.fromkeys((m[3][0], m[3][1], tuple(m[3][2].items())) for m in meant):
        must(folder, "cmake", "--build", "--preset", "release", "--target", *target.split())
        done = run(folder, "ctest", "--test-dir", "build/release", "-R", f"^{test}$", "--output-on-failure", **dict(environment))
        if done.returncode != 0 or "No tests were found" in done.stdout or "Skipped" in done.stdout:
            sys.exit(f"{test} fails, or is skipped, before anything was changed:\n{done.stdout[-3000:]}")
    bad = 0
    for name, old, new, (target, test, environment) in meant:
        path = folder / name
        if not path.exists():
            path = folder / KERNELS / name
        text = path.read_text()
        if text.count(old) != 1:
            print(f"{name}: '{old}' stands there {text.count(old)} times, not once", flush=True)
            bad += 1
            continue
        path.write_text(text.replace(old, new))
        built = run(folder, "cmake", "--build", "--preset", "release", "--target", *target.split())
        if built.returncode != 0:
            told = "does not compile"
            bad += 1
        else:
            done = run(folder, "ctest", "--test-dir", "build/release", "-R", f"^{test}$", "--output-on-failure", "--timeout", "600", **environment)
            told = "MISSED" if done.returncode == 0 else why(done.stdout)
            bad += done.returncode == 0
        path.write_text(text)
        print(f"{name}: {old} -> {new or 'nothing'} | {test} {' '.join(environment.values())} | {told}", flush=True)
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
