#!/usr/bin/env python3
"""find_fault.py PROGRAM NAME: whether the emulator finds a planted fault where it is.

Runs `PROGRAM NAME` in each order of threads. It must abort, with a message that begins with the file and a line that is
marked `fault: NAME` in one of FILES, and says what is wrong in the words that stand below. WITHOUT_RACES is found while
races are not looked for, too: accesses go another way then (simt_touch). What rests on who knows of what is not."""
import os
import re
import resource
import signal
import subprocess
import sys

FOLDER = os.path.dirname(os.path.abspath(__file__))
FILES = "faults.cu", "groups_faults.cu", "rings_faults.cu", "rings.cuh", "faults.c"
WITHOUT_RACES = {"beyond_global", "beyond_shared", "misaligned", "use_after_free", "mbarrier_overwritten", "mbarrier_misaligned", "group_operand_overwritten", "group_beyond_shared", "endless_loop"}
WORDS = {
    "missing_barrier": "race in shared memory",
    "missing_stream_wait": "race in device memory",
    "beyond_global": "byte 256 of an allocation of 256",
    "beyond_shared": "shared memory: 4 bytes at byte",
    "misaligned": "not aligned",
    "divergent_shuffle": "shuffle",
    "missing_copy_wait": "asynchronous copy",
    "race_between_blocks": "race in device memory",
    "release_without_barrier": "with no fences and atomics between them",
    "release_without_fence": "with no fences and atomics between them",
    "acquire_without_fence": "with no fences and atomics between them",
    "write_behind_the_fence": "with no fences and atomics between them",
    "release_by_shared_atomic": "with no fences and atomics between them",
    "release_by_volatile": "with no fences and atomics between them",
    "use_after_free": "memory that was freed",
    "unjoined_capture": "does not wait for it",
    "reused_host_memory": "writes pinned memory that a copy is still to read",
    "host_reads_device": "the host touches device memory",
    "host_reads_early": "touches pinned memory that a copy is still to fill",
    "endless_loop": "does not end",
    "barrier_not_met": "no thread can go on",
    "group_read_early": "still to write: wgmma.wait_group is missing",
    "group_waited_for_too_few": "still to write: wgmma.wait_group is missing",
    "group_proxy_fence_missing": "fence.proxy.async is missing",
    "group_proxy_fence_too_early": "fence.proxy.async is missing",
    "group_barrier_missing": "wgmma in",
    "group_copy_not_waited": "asynchronous copy",
    "group_operand_overwritten": "is still to read",
    "group_operand_overwritten_without_barrier": "wgmma in",
    "group_without_a_warp": "a wgmma that other threads of the warpgroup have not begun",
    "group_descriptors_differ": "other threads of the warpgroup have",
    "group_beyond_shared": "of shared memory, which has",
    "group_reserved_bits": "are reserved",
    "group_fence_missing": "wgmma.fence is missing",
    "group_not_waited": "nobody waited for",
    "group_not_committed": "was committed",
    "ring_full_not_waited": "shared memory, byte",
    "ring_empty_not_waited": "shared memory, byte",
    "ring_fence_missing": "fence.proxy.async is missing",
    "ring_fence_too_early": "fence.proxy.async is missing",
    "ring_released_early": "shared memory, byte",
    "ring_filled_by_one_lane": "shared memory, byte",
    "ring_released_by_one_lane": "shared memory, byte",
    "ring_waited_by_one_lane": "shared memory, byte",
    "ring_asked_once": "shared memory, byte",
    "ring_waits_for_the_wrong_parity": "a phase of parity 0 of an mbarrier",
    "ring_readers_fence_missing": "fence.proxy.async is missing",
    "ring_readers_fence_missing_in_one": "fence.proxy.async is missing",
    "ring_readers_fence_too_early": "fence.proxy.async is missing",
    "ring_arrives_before_its_last_copy": "asynchronous copy",
    "ring_arriving_empty_not_waited": "shared memory, byte",
    "mbarrier_not_initialised": "where no mbarrier was initialised before",
    "mbarrier_initialised_late": "initialised",
    "mbarrier_misaligned": "not aligned",
    "mbarrier_of_none": "a count of 0",
    "mbarrier_overwritten": "mbarrier.inval is missing",
    "mbarrier_multiplied": "mbarrier.inval is missing",
    "mbarrier_never_over": "a phase of parity 0 of an mbarrier",
    "mbarrier_too_many": "more arrivals than the 3 that a phase expects",
    "mbarrier_too_many_at_once": "still expects 2",
    "mbarrier_too_many_copies": "more arrivals than the 127 that a phase expects",
    "mbarrier_copies_not_waited": "asynchronous copy",
    "registers_not_given": "registers that other warpgroups have not given up",
    "registers_differ": "other threads of the warpgroup have",
    "registers_taken_that_are_there": "by a thread that has 168",
}


def marked_lines(name):
    """FILE:LINE of the lines that are marked."""
    for file in FILES:
        with open(os.path.join(FOLDER, file), encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                mark = re.search(r"fault: (\w+(?: \w+)*)", line)
                if mark and name in mark[1].split():
                    yield f"{file}:{number}"


def main():
    program, name = sys.argv[1:]
    lines = list(marked_lines(name))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    looks = [(order, "1") for order in ("forward", "backward", "random")] + [("forward", "0")] * (name in WITHOUT_RACES)
    for order, races in looks:
        run = subprocess.run([program, name], env={**os.environ, "SIMT_ORDER": order, "SIMT_TURNS": "100000", "SIMT_RACES": races}, capture_output=True, text=True, timeout=120)
        first = next((line for line in run.stderr.splitlines() if re.match(r"\S+:\d+: ", line)), "")
        print(order, run.returncode, run.stderr, sep="\n")
        if run.returncode != -signal.SIGABRT:
            sys.exit(f"{name}, {order}: the program was not ended by the emulator")
        if not any(first.split(": ")[0].endswith("/" + line) or first.startswith(line) for line in lines):
            sys.exit(f"{name}, {order}: the message begins with {first.split(': ')[0]!r}; {lines} was expected")
        if WORDS[name] not in run.stderr:
            sys.exit(f"{name}, {order}: the message does not say {WORDS[name]!r}")


if __name__ == "__main__":
    main()
