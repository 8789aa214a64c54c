#!/usr/bin/env python3
"""unknown_instruction.py CC: an instruction that the emulator lacks is an error when kernels are built, and names the line of
the .cu file: the translator's where it touches memory or other threads, the C compiler's where it only computes."""
import os
import subprocess
import sys
import tempfile

FOLDER = os.path.dirname(os.path.abspath(__file__))
PTX = """.version 9.0
.target sm_80
.address_size 64
.visible .entry k(
	.param .u64 k_param_0
)
{
	.reg .b32 	%r<3>;
	.reg .b64 	%rd<2>;
	.loc	1 7 3
	ld.param.u64 	%rd1, [k_param_0];
	.loc	1 42 5
	INSTRUCTION
	ret;
}
	.file	1 "/somewhere/kernel.cu"
"""


def build(compiler, scratch, instruction):
    """(exit code, what was said) of translating and compiling."""
    ptx, source = os.path.join(scratch, "k.ptx"), os.path.join(scratch, "k.c")
    with open(ptx, "w", encoding="utf-8") as file:
        file.write(PTX.replace("INSTRUCTION", instruction))
    done = subprocess.run([sys.executable, os.path.join(FOLDER, "ptx", "translate.py"), ptx, source], capture_output=True, text=True)
    if done.returncode == 0:
        command = [compiler, "-std=gnu17", "-Werror=implicit-function-declaration", "-I", os.path.join(FOLDER, "..", ".."), "-c", source, "-o", os.devnull]
        done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, done.stderr


def main():
    with tempfile.TemporaryDirectory() as scratch:
        code, said = build(sys.argv[1], scratch, "add.s32 %r1, %r1, %r2;")
        assert code == 0, said
        for instruction, word in [
            ("dp4a.u32.u32 %r1, %r1, %r2, %r2;", "dp4a"),
            ("wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 {%r1, %r1, %r1, %r1}, %rd1, %rd1, 1, 1, 1;", "e4m3"),
            ("fence.proxy.alias;", "proxy.alias"),
            ("ld.global.mmio.u32 %r1, [%rd1];", "mmio"),
            ("atom.global.cta.add.u32 %r1, [%rd1], %r2;", "for the threads of one block"),
            ("cp.async.bulk.commit_group;", "bulk"),
            ("mbarrier.arrive.expect_tx.shared.b64 %rd1, [%r1], 16;", "expect_tx"),
            ("cp.async.mbarrier.arrive.noinc.b64 [%rd1];", "async.mbarrier"),
            ("mbarrier.arrive.shared::cluster.b64 _, [%r1];", "cluster"),
            ("setmaxnreg.dec.sync.aligned.u32 28;", "24, 32, ... 256"),
            ("mov.u64 %rd1, %clock64;", "clock64"),
        ]:
            code, said = build(sys.argv[1], scratch, instruction)
            assert code != 0 and "/somewhere/kernel.cu:42" in said and word in said, f"{instruction}: {code}, {said}"


if __name__ == "__main__":
    main()
