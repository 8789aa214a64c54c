#!/usr/bin/env python3
"""emulate.py MODEL PROGRAM [ARGUMENT...]: a Linux program of one thread on an emulated x86-64 processor, which may have AVX-512.

MODEL is a key of MODELS. The processor is that of Bochs (bochscpu-python); this file is the operating system. Memory of the program is memory
of this process at the same addresses, below a terabyte, so that system calls pass through as they are. It ends with the program's exit code, or
with 99 after an instruction that the processor does not have, or another exception. Signals never arrive, and threads cannot be made
(EAGAIN): OpenMP's are left out by OMP_THREAD_LIMIT=1. Some million instructions a second.
"""
import ctypes
import os
import struct
import sys

import bochscpu
import bochscpu.memory

MODELS = {  # what makes a processor's CPUID
    "haswell": "_Z32create_corei7_haswell_4770_cpuidP8BX_CPU_C",
    "skylake": "_Z29create_corei7_skylake_x_cpuidP8BX_CPU_C",  # AVX-512 F, CD, BW, DQ, VL
    "sapphire_rapids": "_Z28create_sapphire_rapids_cpuidP8BX_CPU_C",  # and BF16; without AMX
}
DEFAULT = "_Z23create_corei3_cnl_cpuidP8BX_CPU_C"  # the one that bochscpu makes
MMAP, BRK, MREMAP, ARCH_PRCTL = 9, 12, 25, 158
IGNORED = {13, 14, 131, 202, 218, 273}  # rt_sigaction, rt_sigprocmask, sigaltstack, futex, set_tid_address, set_robust_list
REFUSED = {56: -11, 57: -11, 58: -11, 435: -11, 334: -38}  # clone, fork, vfork, clone3: EAGAIN; rseq: ENOSYS
EXITS = {60, 231}
ARCH_SET_FS, ARCH_XCOMP = 0x1002, {0x1021, 0x1022, 0x1023}
MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_PRIVATE_ANONYMOUS, ALL_ACCESS = 0x10, 0x100000, 0x22, 7
HEAP_SIZE, STACK_SIZE = 1 << 31, 64 << 20
TABLES = 0x800000000  # page tables, then the page that system calls enter

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
libc.syscall.argtypes = [ctypes.c_long] * 7
next_area = 0x1000000000


def system_call(number, *arguments):
    """What the host's kernel returns: a value, or an error below zero."""
    signed = [ctypes.c_long(a & (2**64 - 1)).value for a in arguments]
    result = libc.syscall(number, *signed, *[0] * (6 - len(signed)))
    return -ctypes.get_errno() if result == -1 else result


def area(size):
    """Addresses that nothing had before: code that was emulated once is remembered by its address."""
    global next_area
    at = next_area
    next_area += (size + 0x1FFFF) // 0x10000 * 0x10000
    return at


def zeros(at, size):
    if system_call(MMAP, at, size, ALL_ACCESS, MAP_FIXED_NOREPLACE | MAP_PRIVATE_ANONYMOUS, -1, 0) != at:
        sys.exit(f"emulate: no memory at {at:#x}")
    return at


def load(path, size):
    """A program or its loader, in memory: (base, entry, headers' address, their number, loader's path or None)."""
    with open(path, "rb") as file:
        data = file.read()
    kind, machine = struct.unpack_from("<HH", data, 16)
    if data[:4] != b"\x7fELF" or machine != 62:
        sys.exit(f"emulate: {path} is no program for x86-64")
    base = 0 if kind == 2 else area(size)
    entry, table = struct.unpack_from("<QQ", data, 24)
    count = struct.unpack_from("<H", data, 56)[0]
    headers = [struct.unpack_from("<IIQQQQQQ", data, table + 56 * i) for i in range(count)]
    parts = [(start, at, stored, held) for kind, _, start, at, _, stored, held, _ in headers if kind == 1]
    first = min(at for _, at, _, _ in parts) & ~0xFFF
    zeros(base + first, (max(at + held for _, at, _, held in parts) - first + 0xFFF) & ~0xFFF)
    for start, at, stored, _ in parts:
        ctypes.memmove(base + at, data[start : start + stored], stored)
    loader = next((data[h[2] : h[2] + h[5] - 1].decode() for h in headers if h[0] == 3), None)
    return base, base + entry, base + first + table, count, loader


def stack_of(words, environment, auxiliary):
    """A stack as the kernel gives it to a program; its pointer."""
    top = zeros(area(STACK_SIZE), STACK_SIZE) + STACK_SIZE - 64

    def push(text):
        nonlocal top
        top -= len(text)
        ctypes.memmove(top, text, len(text))
        return top

    arguments = [push(word.encode() + b"\0") for word in words]
    variables = [push(f"{name}={value}".encode() + b"\0") for name, value in environment.items()]
    auxiliary = [*auxiliary, (25, push(os.urandom(16))), (31, arguments[0]), (0, 0)]  # AT_RANDOM, AT_EXECFN
    numbers = [len(arguments), *arguments, 0, *variables, 0, *(n for pair in auxiliary for n in pair)]
    top = (top - 8 * len(numbers)) & ~63
    ctypes.memmove(top, struct.pack(f"<{len(numbers)}Q", *numbers), 8 * len(numbers))
    return top


def choose_processor(model):
    """bochscpu always makes the same processor: its function becomes a jump to another one."""
    library = ctypes.CDLL(bochscpu._bochscpu.__file__)
    made, meant = (ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in (DEFAULT, MODELS[model]))
    if libc.mprotect(ctypes.c_void_p(made & ~0xFFF), ctypes.c_size_t(8192), ALL_ACCESS) != 0:
        sys.exit("emulate: bochscpu's code cannot be written")
    ctypes.memmove(made, b"\x48\xb8" + struct.pack("<Q", meant) + b"\xff\xe0", 12)  # movabs rax, meant; jmp rax


def segment(selector, attributes):
    made = bochscpu.Segment()
    made.base, made.limit, made.selector, made.attr, made.present = 0, 0xFFFFFFFF, selector, attributes, True
    return made


def state_of(start, stack):
    """A processor in long mode, ring 0, whose pages of a GiB are where the program's addresses say."""
    zeros(TABLES, 0x10000)
    for gib in range(1024):
        ctypes.memmove(TABLES + 0x1000 + 8 * gib, struct.pack("<Q", gib << 30 | 0x87), 8)
    for half in range(2):
        ctypes.memmove(TABLES + 8 * half, struct.pack("<Q", TABLES + 0x1000 * (half + 1) | 7), 8)
    state = bochscpu.State()
    state.cr0, state.cr3, state.cr4 = 0x80050033, TABLES, 0x506E0  # paging; SSE, FSGSBASE, XSAVE
    state.efer, state.xcr0 = 0xD01, 0xE7  # long mode, SYSCALL; x87 to AVX-512
    state.mxcsr, state.mxcsr_mask, state.fpcw, state.fptw = 0x1F80, 0xFFFF, 0x37F, 0xFFFF
    state.rflags, state.rip, state.rsp = 2, start, stack
    state.lstar, state.star, state.sfmask = TABLES + 0x8000, 0x10 << 32, 0
    state.cs, state.tr, state.ldtr = segment(0x10, 0xA09B), segment(0x20, 0x8B), segment(0x28, 0x82)
    for name in ("ds", "es", "ss", "fs", "gs"):
        setattr(state, name, segment(0x18, 0xC093))
    return state


class Program:
    """A loaded program: its heap, and what its system calls do."""

    def __init__(self, words, environment):
        _, entry, headers, count, loader = load(words[0], 1 << 32)
        base, start = 0, entry
        if loader:
            base, start, *_ = load(loader, 1 << 26)
        self.heap = self.heap_end = zeros(area(HEAP_SIZE), HEAP_SIZE)
        # AT_PHDR, PHENT, PHNUM, PAGESZ, BASE, ENTRY; UID to EGID and SECURE of nobody in particular; HWCAP, CLKTCK
        auxiliary = [(3, headers), (4, 56), (5, count), (6, 4096), (7, base), (9, entry), (11, 0), (12, 0), (13, 0), (14, 0), (23, 0), (16, 0x178BFBFF), (17, 100)]
        self.state = state_of(start, stack_of(words, environment, auxiliary))

    def call(self, cpu):
        """One system call, as the registers say it; None once the program has ended."""
        number, arguments = cpu.rax, [cpu.rdi, cpu.rsi, cpu.rdx, cpu.r10, cpu.r8, cpu.r9]
        if number in EXITS:
            return None
        if number in IGNORED:
            return 0
        if number in REFUSED:
            return REFUSED[number]
        if number == BRK:
            return self.move_heap_end(arguments[0])
        if number == ARCH_PRCTL:
            if arguments[0] != ARCH_SET_FS:
                return 0 if arguments[0] in ARCH_XCOMP else -22
            fs = cpu.fs
            fs.base = arguments[1]
            cpu.fs = fs
            return 0
        if number == MMAP and not arguments[3] & MAP_FIXED:
            arguments[0], arguments[3] = area(arguments[1]), arguments[3] | MAP_FIXED_NOREPLACE
        if number == MREMAP:  # it always moves
            arguments[3:5] = [3, area(arguments[2])]
        return system_call(number, *arguments)

    def move_heap_end(self, to):
        if self.heap <= to < self.heap + HEAP_SIZE:
            if to < self.heap_end:
                ctypes.memset(to, 0, self.heap_end - to)  # what is given back comes again as zeros, which calloc relies on
            self.heap_end = to
        return self.heap_end


def main():
    if len(sys.argv) < 3 or sys.argv[1] not in MODELS:
        sys.exit(f"usage: emulate.py {'|'.join(MODELS)} PROGRAM [ARGUMENT...]")
    choose_processor(sys.argv[1])
    program = Program(sys.argv[2:], {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"})
    session, exceptions = bochscpu.Session(), []

    def on_exception(session, _, vector, code):
        exceptions.append((vector, code))
        session.stop()

    def missing(page):
        bochscpu.memory.page_insert(page & ~0xFFF, page & ~0xFFF)

    hook = bochscpu.Hook()
    hook.far_branch = lambda session, *_: session.stop()  # SYSCALL, before what it enters
    hook.exception = on_exception
    session.missing_page_handler = missing
    cpu = session.cpu
    cpu.state = program.state
    while True:
        session.run([hook])
        if exceptions:
            print(f"emulate: exception {exceptions[0][0]} before {cpu.rip:#x}: {ctypes.string_at(cpu.rip, 15).hex()}", file=sys.stderr, flush=True)
            os._exit(99)
        result = program.call(cpu)
        if result is None:
            os._exit(cpu.rdi & 255)
        cpu.rax, cpu.rip, cpu.rflags = result & (2**64 - 1), cpu.rcx, cpu.r11


if __name__ == "__main__":
    main()
