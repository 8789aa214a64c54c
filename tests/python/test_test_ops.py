"""`ups test-ops`: which ops are compared with float64, and where the program is looked for that does it."""

import json
import os
import re
import shutil

import pytest

from commands import UPS, must, one_sentence, run, told, ups

REPORT = 'printf "%s\\n" "$UPS_TEST_DEVICE" "$UPS_TEST_OPS" "$UPS_TEST_SEED" "$UPS_TEST_JSON" "$UPS_CUDA_MODULE"; exit 3\n'


def compared(text):
    """The ops of the closing table, and of each how many results were compared."""
    return {op: int(count) for op, count in re.findall(r"^(\w+) +(\d+)   [0-9.e-]+$", text, re.M)}


def test_the_ops_that_were_named_are_compared_and_no_others():
    found = compared(must("test-ops", "--device", "cpu", "--ops", "gelu,layer_norm").stdout)
    assert list(found) == ["layer_norm", "gelu"]
    assert found["gelu"] >= 9 and found["layer_norm"] > 100  # three dtypes forward, backward and added; shapes of a list, and random ones


def test_scripts_are_told_the_same_and_that_nothing_failed():
    answer = told("test-ops", "--device", "cpu", "--ops", "layer_norm,gelu", "--seed", "7")
    assert (answer["device"], answer["failed"]) == ("cpu", 0)
    assert [op["op"] for op in answer["ops"]] == ["layer_norm", "gelu"]
    assert all(op["results"] > 0 and 0 < op["worst"] <= 1 for op in answer["ops"])


def test_another_seed_draws_other_shapes():
    worst = {seed: told("test-ops", "--device", "cpu", "--ops", "linear", "--seed", seed)["ops"] for seed in (1, 2, 1)}
    assert worst[1] != worst[2]
    assert worst[1] == told("test-ops", "--device", "cpu", "--ops", "linear")["ops"]


def test_what_is_no_op_and_what_is_no_device_is_refused_with_what_there_is():
    one_sentence(ups("test-ops", "--ops", "gelu,layernorm"), "'layernorm' is not one of linear, .*, cast; did you mean 'layer_norm'", code=2)
    for nothing in ("", "gelu,", ",gelu"):
        one_sentence(ups("test-ops", "--ops", nothing), "'' is not one of linear, ", code=2)
    one_sentence(ups("test-ops", "--device", "tpu"), "'tpu' is not one of auto, cpu, cuda", code=2)


def test_a_device_that_cannot_be_opened_is_an_error():
    done = ups("test-ops", "--device", "cuda", "--ops", "gelu", env={**os.environ, "UPS_CUDA_MODULE": "/nonexistent.so"})
    one_sentence(done, "the device 'cuda' cannot be used; choose 'cpu' or 'auto'")


def test_the_program_itself_refuses_what_it_cannot_do():
    """It is a test as well, which must not pass where it compared nothing."""
    program = os.path.join(os.path.dirname(UPS), "../tests/model/test_ops")
    for variable, value, sentence, code in (("UPS_TEST_OPS", "gleu", "'gleu' is not an op", 2), ("UPS_TEST_DEVICE", "tpu", "device 'tpu' is not known", 1)):
        done = run(program, env={**os.environ, variable: value})
        assert done.returncode == code and sentence in done.stderr


# ---- where the program is

@pytest.mark.parametrize("place", ["bin", "libexec/ups", "tests/model"])
def test_the_program_is_found_beside_ups_installed_and_built_and_is_told_all(scratch, place):
    for folder in ("bin", "lib/ups", place):
        os.makedirs(os.path.join(scratch, folder), exist_ok=True)
    copy, program, module = (os.path.join(scratch, path) for path in ("bin/ups", place + "/test_ops", "lib/ups/libups_cuda.so"))
    shutil.copy(UPS, copy)
    open(module, "w").close()
    with open(program, "w", encoding="utf-8") as file:
        file.write("#!/bin/sh\n" + REPORT)
    os.chmod(program, 0o755)
    settings = {name: value for name, value in os.environ.items() if name != "UPS_CUDA_MODULE"}
    settings |= {"UPS_TEST_DEVICE": "cuda", "UPS_TEST_OPS": "cast", "UPS_TEST_SEED": "3"}  # of before: the line counts
    done = run(copy, "test-ops", "--device", "cpu", env=settings)
    assert (done.returncode, done.stderr) == (3, "")
    *said, found = done.stdout.splitlines()
    assert said == ["cpu", "", "", ""] and os.path.samefile(found, module)
    done = run(copy, "test-ops", "--device", "cpu", "--ops", "gelu,cast", "--seed", "0", "--json", env=settings)
    assert done.stdout.splitlines()[:4] == ["cpu", "gelu,cast", "0", "1"]


def test_without_the_program_the_places_are_told_and_who_has_it(scratch):
    copy = shutil.copy(UPS, os.path.join(scratch, "ups"))
    done = run(copy, "test-ops", "--json")
    one_sentence(done, f"no program test_ops, .* in {re.escape(os.path.realpath(scratch))} .*\\.\\./libexec/ups/ and \\.\\./tests/model/; a build with tests .* tools/package")
    assert json.loads(done.stdout)["error"]["code"] == "unsupported"
    other = shutil.copy(UPS, os.path.join(scratch, "ups_other"))
    one_sentence(run(other, "test-ops"), "no program test_ops_other, ")
