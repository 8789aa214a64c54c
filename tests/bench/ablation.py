#!/usr/bin/env python3
"""What each idea of the recipe brings: errors at equal time, with it and without.

  ablation.py UPS FOLDER [--task burgers advection] [--only NAME ...] [--seconds 45] [--jobs 2] [--seeds 3] [--repeat 1]

Tasks, files and recipe are accuracy.py's; FOLDER may be one of its folders. Each variant changes some keys of the recipe and trains the operator, alone, for the
given seconds of the processor, on one thread; how many steps that is, is measured on short runs first. All share an encoder and a cache, but those that change the encoder. The
recipe itself is trained with several seeds, so that the differences of seeds can be told from those of ideas. Several variants may run at once (--jobs), since seconds of the
processor count. Variants whose names begin with "autoencoder" train that in these seconds, and no operator. Prints a row a variant: nRMSE of test data after one step, ten,
and of whole rollouts; of an autoencoder, of all frames read back from the cache. As JSON lines in FOLDER/ablation.jsonl; rows that stand there are not run again.
"""
import argparse
import concurrent.futures
import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import accuracy

RECIPE = "the recipe"
OPERATOR, LOSSES, OPTIMIZER = "model.operator.", "operator.losses.", "operator.optimizer."


def losses(**weights):
    return {f"{LOSSES}{name}.weight": weight for name, weight in weights.items()}


def optimizer(**keys):
    return {OPTIMIZER + key: value for key, value in keys.items()}


def operator(**keys):
    return {OPERATOR + key: value for key, value in keys.items()}


def autoencoder(**keys):
    return {"autoencoder." + key: value for key, value in keys.items()}


LINES = ("advection", "burgers", "reaction", "sorption", "gas1d")
ROLLS = losses(rollout_decoded=1)
ROLLING = 0.35  # of the time, at the end: losses of rollouts, where a variant has one
LATENTS = losses(decoded=0, spectral=0, relative=1)  # of latents alone
ENCODER = ("model.tokens", "model.dim", "model.bound", "model.encoder.", "model.decoder.", "autoencoder.")  # keys that change it
TOKENS = {"model.tokens": 64, "model.dim": 8, **LATENTS, **operator(conserve="false", core="stack", convolution=0, bundle=1)}  # not of a grid: pooled, and decoded by attention
FEWER = {"model.dim": 2}  # numbers of a token; a patch has four in 1D
LAST = "LAST"  # a step: the last fifth begins there
IN_TIME = tuple(name for name, task in accuracy.TASKS.items() if task[4]["steps"])
# name: what it changes, and the tasks it is of where not of all
VARIANTS = {
    RECIPE: ({}, None),
    "latents' relative losses, not decoded fields'": (losses(decoded=0, relative=1), None),
    "latents' squared losses": (losses(decoded=0, one_step=1), None),
    "losses of rollouts": (ROLLS, IN_TIME),
    "no spectral loss": (losses(spectral=0), tuple(name for name, task in accuracy.TASKS.items() if task[4]["spectral"])),
    "`spectral` 0.1": (losses(spectral=0.1), tuple(name for name, task in accuracy.TASKS.items() if not task[4]["spectral"])),
    "`spectral` 0.3": (losses(spectral=0.3), None),
    "`semigroup` 0.1": (losses(semigroup=0.1), ("burgers", "reaction", "sorption", "gas1d")),
    "`conservation` 1": (losses(conservation=1), None),
    "`conservation` 1, without `conserve`": (dict(losses(conservation=1), **operator(conserve="false")), ("burgers", "advection", "gas1d")),
    "without `conserve`": (operator(conserve="false"), ("burgers", "advection", "gas1d")),
    "`positivity` 1": ({**losses(positivity=1), LOSSES + "positivity.fields": "[density, pressure]"}, ("gas1d",)),
    "`boundary` 1": (losses(boundary=1), ("sorption", "pattern", "water")),
    "`divergence` 0.1": ({**losses(divergence=0.1), LOSSES + "divergence.fields": "[Vx, Vy]"}, ("gas2d",)),
    "`noise` 0.03": ({"operator.noise": 0.03}, None),
    "`noise` 0.3": ({"operator.noise": 0.3}, None),
    "`augment: shift`": ({"operator.augment": "shift"}, ("burgers", "advection", "reaction", "gas2d")),
    "AdamW": (optimizer(kind="adamw"), None),
    "AdamW, rate 0.001": (optimizer(kind="adamw", learning_rate=0.001), None),
    "AdamW, rate 0.01": (optimizer(kind="adamw", learning_rate=0.01), None),
    "no EMA": (optimizer(ema_decay=0), None),
    "`schedule: constant`": (optimizer(schedule="constant"), None),
    "`schedule: constant`, no EMA": (optimizer(schedule="constant", ema_decay=0), None),
    "`schedule: wsd`": (optimizer(schedule="wsd"), None),
    "`schedule: plateau`": (optimizer(schedule="plateau", plateau_patience=1), None),
    "no clipping": (optimizer(clip=0), None),
    "rollouts, `pushforward`": ({**ROLLS, "operator.pushforward": "true"}, IN_TIME),
    "rollouts, `rollout_curriculum: [2, 4]`": ({**ROLLS, "operator.rollout_curriculum": "[2, 4]"}, ("burgers", "reaction", "sorption", "gas1d", "pattern", "gas2d")),
    "rollouts that warm up": ({**ROLLS, LOSSES + "rollout_decoded.warmup": 100}, IN_TIME),
    "without `condition`": (operator(condition="false"), None),
    "`positions: borders`": (operator(positions="borders"), (*LINES, "darcy")),
    "`positions: none`": (operator(positions="none"), None),
    "`augment: symmetries`": ({"operator.augment": "symmetries"}, ("darcy", "pattern", "water", "gas2d")),
    "`positions: learned`": (operator(positions="learned"), None),
    "no convolution": (operator(convolution=0), None),
    "`convolution: 3`": (operator(convolution=3), LINES),
    "`drop_path` 0.1": (operator(drop_path=0.1), None),
    "`history: 2`": (operator(history=2), IN_TIME),
    "`bundle: 4`": (operator(bundle=4), ("burgers", "reaction", "sorption", "gas1d", "pattern", "gas2d")),
    "`bundle: 1`": (operator(bundle=1), ("advection", "water")),
    "`core: spectral`": (operator(core="spectral"), (*LINES, "darcy")),
    "`core: spectral`, no convolution": (operator(core="spectral", convolution=0), (*LINES, "darcy")),
    "`core: spectral, mixing: [spectral, attention]`": (operator(core="spectral", mixing="[spectral, attention]"), None),
    "`factorized`": (operator(factorized="true"), ("pattern", "water", "gas2d")),
    "`factorized`, `modes: 24`": (operator(factorized="true", modes="[24]"), ("pattern", "water", "gas2d")),
    "`core: stack`": (operator(core="stack"), ("darcy", "pattern", "water", "gas2d")),
    "`core: unet` of spectral blocks": (operator(core="unet", mixing="[spectral]"), None),
    "`core: unet` of attention": (operator(core="unet"), (*LINES, "pattern", "water", "gas2d")),
    "`core: unet`, attention where it is coarser": (operator(core="unet", mixing="[spectral, attention, attention, attention, spectral]"), None),
    "without `qk_norm`": (operator(qk_norm="false"), (*LINES, "darcy")),
    "`attention: channel_separated`": (operator(attention="channel_separated"), LINES),
    "`attention: window`": (operator(attention="window"), (*LINES, "darcy")),
    "`core: stack, attention: window`": (operator(core="stack", attention="window"), ("pattern", "water", "gas2d")),
    "`mixing: [spectral, attention], attention: window`": (operator(mixing="[spectral, attention]", attention="window"), ("pattern", "water", "gas2d")),
    "`strides: [1, 2]`": ({"tasks[0].strides": "[1, 2]"}, IN_TIME),
    "`strides: [1, 2, 4]`": ({"tasks[0].strides": "[1, 2, 4]"}, IN_TIME),
    "latents' losses alone": (LATENTS, None),
    "latents' losses alone, `bound: 8`": ({**LATENTS, "model.bound": 8}, None),
    "latents' losses alone, `bound: 3`": ({**LATENTS, "model.bound": 3}, None),
    "autoencoder of patches, fewer numbers, as it begins": ({**FEWER, "autoencoder.steps": 0}, LINES),
    "autoencoder of patches, fewer numbers": (FEWER, LINES),
    "autoencoder of patches, fewer numbers, `rounded` in the last fifth": ({**FEWER, **autoencoder(**{"losses.rounded.weight": 1, "losses.rounded.from": LAST})}, LINES),
    "autoencoder of tokens": (TOKENS, None),
    "autoencoder of tokens, squared loss": ({**TOKENS, **autoencoder(**{"losses.relative.weight": 0, "losses.inverse_decoding.weight": 1})}, None),
    "autoencoder of tokens, `stratified`": ({**TOKENS, **autoencoder(query_sampling="stratified")}, None),
    "autoencoder of tokens, `curriculum`": ({**TOKENS, **autoencoder(query_sampling="curriculum")}, None),
    "autoencoder of tokens, half of the queries": ({**TOKENS, **autoencoder(queries=128)}, None),
    "autoencoder of tokens, `latent_norm` 0.1": ({**TOKENS, **autoencoder(**{"losses.latent_norm.weight": 0.1})}, None),
    "autoencoder of tokens, `latent_diversity` 0.1": ({**TOKENS, **autoencoder(**{"losses.latent_diversity.weight": 0.1})}, None),
    "autoencoder of tokens, `inverse_encoding` 0.1 in the last fifth": ({**TOKENS, **autoencoder(**{"losses.inverse_encoding.weight": 0.1, "losses.inverse_encoding.from": LAST})}, None),
    "autoencoder of tokens, `rounded` in the last fifth": ({**TOKENS, **autoencoder(**{"losses.rounded.weight": 1, "losses.rounded.from": LAST})}, None),
    "autoencoder of tokens, Muon": ({**TOKENS, **autoencoder(**{"optimizer.kind": "muon"})}, None),
}
say = threading.Lock()


class Variants:
    """Of one task: encoders with their caches, and runs forked from them; autoencoders."""

    def __init__(self, arguments, name):
        self.arguments, self.name, self.sizes = arguments, name, accuracy.TASKS[name][4]
        # Of another recipe neither what was prepared nor rows are taken over.
        self.recipe = hashlib.sha256(repr((accuracy.CONFIG, accuracy.TASKS[name], arguments.share)).encode()).hexdigest()[:8]
        self.preparing = threading.Lock()
        train, test = accuracy.make_data(arguments, name)
        self.config = arguments.folder / f"ablation-{name}.yaml"
        task = f"  - {{name: {name}, files: [{', '.join(train)}], test_files: [{', '.join(test)}], patch: [{self.sizes['patch']}]}}\n"
        self.config.write_text(accuracy.CONFIG.format(**dict(
            {**self.sizes, "augment": "none"}, output=arguments.folder, precision="f32", threads=1, folder=arguments.folder, tasks=task, seed=0, steps=0, every=1, rate=0.003)))

    def prepared(self, keys):
        """A run that has the encoder of these keys and its cache."""
        encoder = {key: value for key, value in keys.items() if key.startswith(ENCODER)}
        named = f"-{hashlib.sha256(repr(sorted(encoder.items())).encode()).hexdigest()[:8]}" if encoder else ""
        folder = self.arguments.folder / f"ablation-{self.name}-{self.recipe}{named}"
        with self.preparing:
            if not (folder / "cache" / self.name / "test" / "zarr.json").exists():
                shutil.rmtree(folder, ignore_errors=True)
                beside = {key: value for key, value in keys.items() if key.startswith(LOSSES)} if encoder else {}  # not all losses go with all encoders
                self.timed(folder, [self.config, "--stage", "autoencoder"], dict(encoder | beside, output=folder))
                subprocess.run([self.arguments.ups, "cache", "build", folder, "-q"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return folder

    def timed(self, folder, command, settings):
        """Seconds of the processor that this training takes."""
        with open(f"{folder}.log", "w") as log:
            process = subprocess.Popen([self.arguments.ups, "train", *command, "-q", *(f"--set={key}={value}" for key, value in settings.items())], stderr=log)
            _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            raise RuntimeError(Path(f"{folder}.log").read_text())
        return used.ru_utime + used.ru_stime

    def train(self, folder, keys, seed, steps, start):
        """An operator; losses of rollouts, where there are any, begin with step `start`."""
        shutil.rmtree(folder, ignore_errors=True)
        settings = dict(keys, seed=seed) | {"operator.steps": steps, "operator.validate_every": max(1, steps // 6)}
        if ROLLS.items() <= keys.items():
            settings["operator.rollout_steps"] = max(2, 8 // int(keys.get(OPERATOR + "bundle", self.sizes["bundle"])))
            settings[LOSSES + "rollout_decoded.from"] = start
        if steps < 400:  # a run that is too short for its warm-up and a decay, whose time alone counts
            settings[OPTIMIZER + "schedule"] = "constant"
        return self.timed(folder, [self.prepared(keys), "--fork", folder], settings)

    def fit(self, folder, keys, seed):
        """An operator in the given time."""
        rolls = ROLLS.items() <= keys.items()
        begins = self.train(folder, keys, seed, 20, 20)
        one = (self.train(folder, keys, seed, 320, 320) - begins) / 300
        eight = (self.train(folder, keys, seed, 100, 0) - begins + 20 * one) / 100 if rolls else one
        rolling = int(ROLLING * self.arguments.seconds / eight) if rolls else 0
        steps = rolling + int((self.arguments.seconds - rolling * eight) / one)
        return self.train(folder, keys, seed, steps, steps - rolling), steps

    def fit_autoencoder(self, folder, keys, seed):
        def train(steps):
            shutil.rmtree(folder, ignore_errors=True)
            settings = {key: 4 * steps // 5 if value == LAST else value for key, value in keys.items()}
            settings |= {"output": folder, "seed": seed, "autoencoder.steps": steps, "autoencoder.validate_every": max(1, steps // 6)}
            return self.timed(folder, [self.config, "--stage", "autoencoder"], settings)

        steps = keys.get("autoencoder.steps")
        if steps is None:
            begins = train(20)
            steps = int(self.arguments.seconds * 300 / (train(320) - begins))
        took = train(steps)
        self.timed(folder, [folder, "--resume"], {})  # the cache, and an operator of no steps
        return took, steps

    def run(self, variant, seed):
        keys = VARIANTS[variant][0]
        folder = self.arguments.folder / f"ablation-{self.name}-{list(VARIANTS).index(variant)}-{seed}"
        alone = variant.startswith("autoencoder")
        took, steps = (self.fit_autoencoder if alone else self.fit)(folder, keys, seed)
        subprocess.run([self.arguments.ups, "eval", folder, "-q"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        task, = json.loads((folder / "evaluation.json").read_text())["tasks"]
        errors = [h["model"]["nrmse"] if h["windows"] else None for h in task["horizons"]]
        if alone:
            errors = [None, None, task["horizons"][-1]["reconstruction"]["nrmse"]]
        shutil.rmtree(folder)
        Path(f"{folder}.log").unlink()
        return dict(task=self.name, variant=variant, seed=seed, errors=errors, seconds=took, steps=steps, budget=self.arguments.seconds, recipe=self.recipe)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ups")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--task", nargs="+", choices=list(accuracy.TASKS), default=["burgers", "advection"])
    parser.add_argument("--only", nargs="+", choices=list(VARIANTS), default=list(VARIANTS), metavar="NAME")
    parser.add_argument("--seconds", type=float, default=45)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--seeds", type=int, default=3, help="of the recipe itself")
    parser.add_argument("--repeat", type=int, default=1, help="seeds of each variant")
    parser.add_argument("--share", type=float, default=1, help="of the trajectories")
    arguments = parser.parse_args()
    arguments.ups, arguments.folder = os.path.abspath(arguments.ups), arguments.folder.absolute()
    arguments.train_data = arguments.test_data = None
    arguments.folder.mkdir(parents=True, exist_ok=True)
    rows = arguments.folder / "ablation.jsonl"
    done = {(row["task"], row["variant"], row["seed"], row["budget"], row.get("recipe")) for row in map(json.loads, rows.read_text().splitlines())} if rows.exists() else set()

    def run(variants, variant, seed):
        try:
            row = variants.run(variant, seed)
        except RuntimeError as error:
            row, failed = None, str(error).strip()
        with say:
            if row is None:
                print(f"{variants.name:10s} {variant}: {failed}", file=sys.stderr, flush=True)
                return False
            errors = "  ".join("       -" if e is None else f"{e:8.5f}" for e in row["errors"])
            print(f"{row['task']:10s} {errors}  {row['seconds']:5.0f} s  {row['steps']:6d} steps  seed {seed}  {variant}", flush=True)
            with open(rows, "a") as file:
                file.write(json.dumps(row) + "\n")
        return True

    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        waiting = []
        for name in arguments.task:
            variants = Variants(arguments, name)
            for variant in arguments.only:
                if VARIANTS[variant][1] and name not in VARIANTS[variant][1]:
                    continue
                for seed in range(arguments.seeds if variant == RECIPE else arguments.repeat):
                    if (name, variant, seed, arguments.seconds, variants.recipe) not in done:
                        waiting.append(pool.submit(run, variants, variant, seed))
        sys.exit(0 if all([result.result() for result in waiting]) else 1)


if __name__ == "__main__":
    main()
