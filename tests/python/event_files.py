"""What TensorBoard's own code shows of a run, and what metrics.jsonl says there is to show."""

import datetime
from pathlib import Path

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tiny_run import metrics


def event_files(folder):
    return sorted(Path(folder).glob("*tfevents*"))


def watch(folder):
    """A TensorBoard that looks at a run; `Reload` makes it look again."""
    return EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()


def shown(events):
    return {tag: [(point.step, point.value, point.wall_time) for point in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def numbers(line, above):
    for key, value in line.items():
        if isinstance(value, dict):
            yield from numbers(value, f"{above}/{key}")
        elif isinstance(value, (int, float)) and (above, key) != (line.get("stage"), "step"):
            yield f"{above}/{key}", value


def told(folder):
    """What there is to show."""
    curves = {}
    for line in metrics(folder):
        clock = datetime.datetime.strptime(line["time"], "%Y-%m-%dT%H:%M:%S.%f%z").timestamp()
        for tag, value in numbers(line, line["stage"]):
            curves.setdefault(tag, []).append((line["step"], float(np.float32(value)), pytest.approx(clock, abs=1e-4)))
    return curves


def assert_shown(folder):
    """And that one file does."""
    assert shown(watch(folder)) == told(folder)
    assert len([path for path in event_files(folder) if path.stat().st_size > 0]) == 1
