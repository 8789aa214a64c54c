#!/usr/bin/env python3
"""Translates PTX, as nvcc writes it, into C that runs on tests/cuda/simt: one function a kernel, one statement an
instruction, one goto a branch.

  translate.py FILE.ptx FILE.c     standard library only

Registers become unsigned variables of their width. Instructions that only compute are calls of ptx/instructions.h, by
name; those that touch memory or other threads are calls of simt/simt.h, and are written here. `.loc` becomes `#line`, so
that whatever the C compiler or the emulator has to say names the line of the .cu file. An instruction that neither
knows does not compile.

Of a kernel with wgmma, registers that a product reads or writes stand in an array, which simt/warpgroup.c reaches until the
product is done; statements that touch one look whether they may. A mov makes the copy when there is something to copy: it is
how the compiler renames registers.

Not there: functions that were not inlined, wgmma of other types than fp16 and bf16 or with sums in fp16, sparse wgmma, TMA,
mbarriers that count transactions, clusters, textures.
"""
import os
import re
import sys

# Places are told from here on, so that a compiler's cache knows them in any clone.
PROJECT = os.path.abspath(__file__).rsplit("/", 4)[0] + "/"

# Modifiers that change no result here: how exact, cached, scoped, or ordered an instruction is. (Rounding to nearest is
# what all do; other roundings keep their name.)
WITHOUT_MEANING = {"rn", "ftz", "noftz", "approx", "full", "uni", "sync", "aligned"}
CACHING = re.compile(r"nc|c[agsv]|wb|wt|lu|L[12]::.*|evict_.*|unified|weak|volatile")
ORDERS = {"relaxed", "acquire", "release", "acq_rel"}
SCOPES = {"cta", "gpu", "sys"}
SPACES = {"global": "SIMT_GLOBAL", "shared": "SIMT_SHARED", "shared::cta": "SIMT_SHARED", "local": "SIMT_LOCAL", "const": "SIMT_GENERIC"}
SPECIAL = {f"%{name}.{axis}": f"simt_self.{name}.{axis}" for name in ("tid", "ntid", "ctaid", "nctaid") for axis in "xyz"} | {
    "%laneid": "simt_self.laneid",
    "WARP_SZ": "32",
    "%lanemask_eq": "(1u << simt_self.laneid)",
    "%lanemask_lt": "((1u << simt_self.laneid) - 1)",
    "%lanemask_ge": "~((1u << simt_self.laneid) - 1)",
    "%lanemask_le": "((2u << simt_self.laneid) - 1)",
    "%lanemask_gt": "~((2u << simt_self.laneid) - 1)",
}
SHUFFLES = {"up": "SIMT_UP", "down": "SIMT_DOWN", "bfly": "SIMT_BUTTERFLY", "idx": "SIMT_INDEX"}
VOTES = {"all": "SIMT_ALL", "any": "SIMT_ANY", "uni": "SIMT_UNIFORM", "ballot": "SIMT_BALLOT"}
PRODUCTS = {
    "m16n8k16.row.col.f32.bf16.bf16.f32": "SIMT_BF16_16",
    "m16n8k16.row.col.f32.f16.f16.f32": "SIMT_F16_16",
    "m16n8k8.row.col.f32.tf32.tf32.f32": "SIMT_TF32_8",
}
# .shared .align 4 .b8 name[128]; .const .align 4 .f32 name = 0f00000000; .extern .shared .align 16 .b8 name[];
VARIABLE = re.compile(r"(?:\.visible |\.weak |\.extern )?\.(global|const|shared)(?: \.align (\d+))? \.(\w+) ([\w$]+)(?:\[(\d*)\])?(?: = ([^;]*))?;\s*")
WGMMA = {"f32.bf16.bf16": "SIMT_BF16_16", "f32.f16.f16": "SIMT_F16_16"}
REGISTER = re.compile(r"%[a-zA-Z]+\d+")
WITHOUT_DESTINATION = {"st", "red", "bar", "barrier", "cp", "fence", "membar", "prefetch", "bra", "wgmma", "setmaxnreg", "mbarrier.init", "mbarrier.inval"}
POISON = {"pred": "0", "8": "0xff", "16": "0xffff", "32": "0xffffffffu", "64": "0xffffffffffffffffu"}


class Unknown(Exception):
    """Something that the emulator has not."""


def width(ptx_type):
    return {"f16x2": 32, "bf16x2": 32}.get(ptx_type) or int(re.search(r"\d+$", ptx_type)[0])


def c_type(ptx_type):
    """Signed types where they are: a load widens by them."""
    if ptx_type == "pred":
        return "bool"
    return f"{'' if re.fullmatch('s[0-9]+', ptx_type) else 'u'}int{width(ptx_type)}_t"


def identifier(name):
    return "x" + re.sub(r"\W", "_", name)


def split(text):
    """At commas that no bracket encloses."""
    parts, depth, start = [], 0, 0
    for i, letter in enumerate(text):
        depth += (letter in "{[(") - (letter in "}])")
        if letter == "," and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    return parts + [text[start:].strip()] if text.strip() else []


def statements(text):
    """Labels ("name:"), braces, and what ends with a semicolon; a .loc ends with its line."""
    at = 0
    while True:
        at = re.compile(r"\s*").match(text, at).end()
        if at == len(text):
            return
        if text[at] in "{}":
            yield text[at]
            at += 1
            continue
        found = re.compile(r"\.loc\s[^\n]*|[\w$]+:(?!:)|[^;]*;").match(text, at)
        if not found:
            raise Unknown(text[at : at + 60].strip())
        yield " ".join(found[0].rstrip(";").split())
        at = found.end()


def closing_brace(text, at):
    """Of the brace that is open at `at`."""
    depth = 1
    for found in re.compile(r"[{}]").finditer(text, at):
        depth += 1 if found[0] == "{" else -1
        if depth == 0:
            return found.start()
    raise Unknown("a kernel without an end")


class Module:
    """What a whole file shares: source files, and variables of kernels."""

    def __init__(self, text):
        self.files = {number: path.removeprefix(PROJECT) for number, path in re.findall(r'\.file\s+(\d+)\s+"([^"]+)"', text)}
        self.variables, self.lines = {}, []
        self.shared, self.dynamic = [], set()
        for line in re.findall(r"^(?:\.visible |\.weak |\.extern )?\.(?:global|const|shared|func|tex)\b.*", text, re.M):
            self.declare(line)

    def declare(self, line):
        found = VARIABLE.fullmatch(line)
        if not found:
            raise Unknown(line)
        space, align, kind, name, count, values = found.groups()
        size = width(kind) // 8
        bytes_ = size * int(count or 1)
        values = re.sub(r"0[fF]([0-9a-fA-F]{8})\b", r"0x\1u", (values or "0").strip("{}"))
        if line.startswith(".extern"):
            self.dynamic.add(name)
        elif space == "shared":
            self.shared.append((name, int(align or size), bytes_))
        else:
            self.variables[name] = (identifier(name), bytes_, space == "const")
            self.lines.append(f"static _Alignas({max(int(align or size), size)}) {unsigned(kind)} {identifier(name)}[{count or 1}] = {{{values}}};")


class Kernel:
    def __init__(self, module, name, parameters):
        self.module, self.name, self.names = module, name, set()
        self.parameters, self.parameter_bytes = {}, 0
        self.shared, self.shared_bytes, self.local, self.local_bytes = {}, 0, {}, 0
        self.lines, self.place, self.seen, self.had_place = [], None, set(), None
        self.tracked, self.has_wgmma = {}, False
        for symbol, align, size in module.shared:
            self.place_in(self.shared, "shared_bytes", symbol, align, size)
        for align, kind, symbol, count in re.findall(r"\.param (?:\.align (\d+) )?\.(\w+)(?: \.ptr[^,]*?)? ([\w$]+)(?:\[(\d+)\])?\s*(?:,|$)", " ".join(parameters.split()) + ","):
            size = width(kind) // 8 * int(count or 1)
            align = int(align or width(kind) // 8)
            self.parameter_bytes = -(-self.parameter_bytes // align) * align
            self.parameters[symbol] = (self.parameter_bytes, size)
            self.parameter_bytes += size

    def place_in(self, table, total, symbol, align, size):
        at = -(-getattr(self, total) // align) * align
        table[symbol] = at
        setattr(self, total, at + size)

    # ---- operands ----

    def value(self, operand):
        operand = operand.strip()
        if operand in SPECIAL:
            return SPECIAL[operand]
        if operand.startswith("!"):
            return "!" + self.value(operand[1:])
        if operand in self.names:
            return self.variable(operand)
        if found := re.fullmatch(r"0[fF]([0-9a-fA-F]{8})", operand):
            return f"0x{found[1]}u"
        if found := re.fullmatch(r"0[dD]([0-9a-fA-F]{16})", operand):
            return f"0x{found[1]}ull"
        if re.fullmatch(r"-?(0[xX][0-9a-fA-F]+|\d+)U?", operand):
            return f"{int(operand.rstrip('U'), 0) & 0xffffffffffffffff:#x}ull"
        if operand in self.shared:
            return f"{self.shared[operand]}u"
        if operand in self.module.dynamic:
            return "dynamic_shared"
        if operand in self.local:
            return f"((uint64_t)(uintptr_t)local + {self.local[operand]})"
        if operand in self.parameters:
            return f"((uint64_t)(uintptr_t)parameters + {self.parameters[operand][0]})"
        if operand in self.module.variables:
            return f"(uint64_t)(uintptr_t){self.module.variables[operand][0]}"
        raise Unknown(f"the operand {operand}")

    def address(self, operand):
        found = re.fullmatch(r"\[\s*([^\s+\]]+)\s*(?:\+\s*(-?\w+))?\s*\]", operand)
        if not found:
            raise Unknown(f"the address {operand}")
        return found[1], int(found[2] or "0", 0)

    def at(self, operand):
        base, offset = self.address(operand)
        return f"{self.value(base)} + {offset & 0xffffffffffffffff:#x}ull" if offset else self.value(base)

    def register(self, operand):
        if operand not in self.names:
            raise Unknown(f"the destination {operand}")
        return self.variable(operand)

    def variable(self, name):
        return f"registers[{self.tracked[name]}].value" if name in self.tracked else identifier(name)

    def registers(self, operand):
        """Of {a, b, …} or a; _ stands for none."""
        parts = split(operand[1:-1]) if operand.startswith("{") else [operand]
        return [None if part == "_" else self.register(part) for part in parts]

    def values(self, operand):
        return [self.value(part) for part in (split(operand[1:-1]) if operand.startswith("{") else [operand])]

    # ---- instructions ----

    def instruction(self, text):
        opcode, _, rest = text.partition(" ")
        name, *modifiers = opcode.split(".")
        operands = split(rest)
        special = getattr(self, "do_" + name, None)
        if special:
            return special(modifiers, operands)
        function = "_".join(["ptx", name, *(m for m in modifiers if m not in WITHOUT_MEANING)])
        return f"{self.register(operands[0])} = {function}({', '.join(self.value(each) for each in operands[1:])});"

    def do_ret(self, modifiers, operands):
        return "return;"

    do_exit = do_ret

    def do_trap(self, modifiers, operands):
        return 'simt_fail(SIMT_HERE, "trap");'

    def do_bra(self, modifiers, operands):
        turn = "simt_turn(SIMT_HERE); " if operands[0] in self.seen else ""
        return f"{turn}goto {identifier(operands[0])};"

    def do_mov(self, modifiers, operands):
        to, source = operands
        if to in self.tracked and source in self.tracked:
            return self.move(to, source)
        if source.startswith("{"):  # pack, lowest first
            parts = self.values(source)
            bits = width(modifiers[-1]) // len(parts)
            packed = " | ".join(f"(uint64_t)(uint{bits}_t){part} << {i * bits}" for i, part in enumerate(parts))
            return f"{self.register(to)} = {packed};"
        if to.startswith("{"):
            parts = self.registers(to)
            bits = width(modifiers[-1]) // len(parts)
            whole = f"const uint{width(modifiers[-1])}_t whole = {self.value(source)};"
            return "{ " + whole + " " + " ".join(f"{part} = (uint{bits}_t)(whole >> {i * bits});" for i, part in enumerate(parts) if part) + " }"
        return f"{self.register(to)} = {self.value(source)};"

    def do_cvta(self, modifiers, operands):
        to, source = self.register(operands[0]), self.value(operands[1])
        if "shared" in modifiers:
            return f"{to} = {'simt_generic_to_shared' if 'to' in modifiers else 'simt_shared_to_generic'}({source});"
        return f"{to} = {source};"  # of other spaces addresses are generic

    def do_setp(self, modifiers, operands):
        kind, compare = modifiers[-1], modifiers[0]
        join = next((m for m in modifiers[1:-1] if m in ("and", "or", "xor")), None)
        if "|" in operands[0]:
            raise Unknown("setp with two destinations")
        result = f"ptx_setp_{compare}_{kind}({self.value(operands[1])}, {self.value(operands[2])})"
        if join:
            result = f"ptx_{join}_pred({result}, {self.value(operands[3])})"
        return f"{self.register(operands[0])} = {result};"

    def memory(self, modifiers):
        """(space, vector, order, what is left) of a load, store or atomic. order: "" of a plain access, which a volatile
        one is too, and one of ORDERS among threads of all blocks. What is ordered within a block alone is plain."""
        space, vector, order, scope, left = "SIMT_GENERIC", 1, "", "gpu", []
        for each in modifiers[:-1]:
            if each in SPACES:
                space = SPACES[each]
            elif re.fullmatch(r"v[248]", each):
                vector = int(each[1])
            elif each in ORDERS:
                order = each
            elif each in SCOPES:
                scope = each
            elif not CACHING.fullmatch(each) and each not in WITHOUT_MEANING:
                left.append(each)
        if scope == "cta":
            order = (order and "relaxed") if space == "SIMT_SHARED" else "cta"
        return space, vector, order, left

    def reach(self, space, address, kind, vector, access):
        return f"{c_type(kind)} *at = simt_touch({space}, {self.at(address)}, {width(kind) // 8 * vector}, {access}, SIMT_HERE);"

    def fenced(self, order, statement):
        """An access that acquires or releases is one between fences."""
        before = "simt_fence(); " if order in ("release", "acq_rel") else ""
        after = " simt_fence();" if order in ("acquire", "acq_rel") else ""
        return f"{before}{statement}{after}"

    def do_ld(self, modifiers, operands):
        kind = modifiers[-1]
        if "param" in modifiers:
            start = f"const {c_type(kind)} *at = (const void *)(uintptr_t)({self.at(operands[1])});"
            return "{ " + start + " " + " ".join(f"{r} = at[{i}];" for i, r in enumerate(self.registers(operands[0])) if r) + " }"
        space, vector, order, left = self.memory(modifiers)
        if left:
            raise Unknown(f"ld with .{left[0]}")
        start = self.reach(space, operands[1], kind, vector, "SIMT_ATOMIC_READ" if order in ORDERS else "SIMT_READ")
        loads = " ".join(f"{r} = at[{i}];" for i, r in enumerate(self.registers(operands[0])) if r)
        return self.fenced(order, f"{{ const {start} {loads} }}")

    do_ldu = do_ld

    def do_st(self, modifiers, operands):
        space, vector, order, left = self.memory(modifiers)
        if left:
            raise Unknown(f"st with .{left[0]}")
        start = self.reach(space, operands[0], modifiers[-1], vector, "SIMT_ATOMIC_WRITE" if order in ORDERS else "SIMT_WRITE")
        stores = " ".join(f"at[{i}] = ({c_type(modifiers[-1])}){v};" for i, v in enumerate(self.values(operands[1])))
        return self.fenced(order, f"{{ {start} {stores} }}")

    def do_atom(self, modifiers, operands, result=True):
        space, _, order, left = self.memory(modifiers)
        kind = modifiers[-1]
        if len(left) != 1:
            raise Unknown(f"an atomic with .{'.'.join(left)}")
        if order == "cta":
            raise Unknown("an atomic for the threads of one block on memory that all blocks have")
        address, values = operands[result], [self.value(each) for each in operands[result + 1 :]]
        if left[0] == "cas":
            new = f"was == ({c_type(kind)}){values[0]} ? ({c_type(kind)}){values[1]} : was"
        else:
            new = f"ptx_{left[0]}_{kind}(was, {values[0]})"
        start = self.reach(space, address, kind, 1, "SIMT_ATOMIC" if result else "SIMT_ATOMIC_WRITE")
        to = f" {self.register(operands[0])} = was;" if result and operands[0] != "_" else ""
        return self.fenced(order, f"{{ {start} {c_type(kind)} was = *at; *at = {new};{to} }}")

    def do_red(self, modifiers, operands):
        return self.do_atom(modifiers, operands, result=False)

    # ---- products of warpgroups ----

    def track(self, body):
        """Numbers the registers that products have, and those that accumulators are copied to."""
        products = re.findall(r"\bwgmma\.mma_async\S*\s+\{([^}]*)\}\s*,\s*(?:\{([^}]*)\})?", body)
        self.has_wgmma = bool(re.search(r"\bwgmma\.", body))
        accumulators = {name for d, _ in products for name in REGISTER.findall(d)}
        moves = re.findall(r"\bmov\.[fbus]32\s+(%\w+)\s*,\s*(%\w+)\s*;", body)
        while more := {to for to, source in moves if source in accumulators} - accumulators:
            accumulators |= more
        names = sorted(accumulators | {name for _, a in products for name in REGISTER.findall(a)})
        self.tracked = {name: i for i, name in enumerate(names)}

    def checks(self, text):
        """What stands before and behind an instruction that touches such registers."""
        opcode, _, rest = text.partition(" ")
        operands = split(rest)
        if not self.tracked or opcode.startswith("wgmma.") or not operands:
            return "", ""
        if opcode.startswith("mov.") and all(each in self.tracked for each in operands):
            return "", ""
        name = opcode.split(".")
        has_none = bool({name[0], ".".join(name[:2])} & WITHOUT_DESTINATION)
        writes = [] if has_none else REGISTER.findall(operands.pop(0))
        read = dict.fromkeys(self.tracked[name] for each in operands for name in REGISTER.findall(each) if name in self.tracked)
        written = [self.tracked[name] for name in writes if name in self.tracked]
        before = [f"simt_wgmma_reads(&registers[{i}], SIMT_HERE);" for i in read] + [f"simt_wgmma_writes(&registers[{i}], SIMT_HERE);" for i in written]
        constant = opcode.startswith("mov.")  # which the compiler puts wherever it likes
        return " ".join(before), "" if constant else " ".join(f"registers[{i}].written = fences;" for i in written)

    def do_wgmma(self, modifiers, operands):
        if modifiers == ["fence", "sync", "aligned"]:
            return "fences++;"
        if modifiers == ["commit_group", "sync", "aligned"]:
            return "simt_wgmma_commit();"
        if modifiers == ["wait_group", "sync", "aligned"]:
            return f"simt_wgmma_wait({self.value(operands[0])}, SIMT_HERE);"
        shape = re.fullmatch(r"mma_async\.sync\.aligned\.m64n(\d+)k16\.(\w+\.\w+\.\w+)", ".".join(modifiers))
        if not shape or shape[2] not in WGMMA or int(shape[1]) % 8 or not 8 <= int(shape[1]) <= 256:
            raise Unknown("wgmma." + ".".join(modifiers))
        d, a, b, accumulates, *settings = operands
        in_registers = a.startswith("{")
        settings = [int(each) for each in settings]
        if len(settings) != 4 - in_registers or len(split(d[1:-1])) != int(shape[1]) // 2 or (in_registers and len(split(a[1:-1])) != 4):
            raise Unknown("wgmma with these operands")
        numbers = ", ".join(str(self.tracked[each]) for each in split(d[1:-1]))
        also = f"static const uint16_t a[] = {{{', '.join(str(self.tracked[each]) for each in split(a[1:-1]))}}}; " if in_registers else ""
        transposed = [0, *settings[2:]] if in_registers else settings[2:]
        form = f"{{{WGMMA[shape[2]]}, {shape[1]}, d, {'a' if in_registers else 0}, {settings[0]}, {settings[1]}, {transposed[0]}, {transposed[1]}}}"
        call = f"simt_wgmma_begin(&form, registers, fences, {0 if in_registers else self.value(a)}, {self.value(b)}, {self.value(accumulates)}, SIMT_HERE);"
        return f"static const uint16_t d[] = {{{numbers}}}; {also}static const simt_wgmma form = {form}; {call}"

    def move(self, to, source):
        """Between two of these registers."""
        return f"simt_wgmma_move(registers, {self.tracked[to]}, {self.tracked[source]}, SIMT_HERE);"

    def do_membar(self, modifiers, operands):
        if modifiers[:1] == ["proxy"]:
            if modifiers[1:] not in (["async"], ["async", "shared::cta"]):
                raise Unknown("fence." + ".".join(modifiers))
            return "simt_proxy_fence();"
        return "" if "cta" in modifiers else "simt_fence();"

    do_fence = do_membar

    def do_mbarrier(self, modifiers, operands):
        form = " ".join(modifiers)
        if not re.search(r" shared(::cta)? b64$", form):
            raise Unknown("mbarrier." + ".".join(modifiers))
        form = re.sub(r" shared(::cta)? b64$", "", form)
        if form == "init" and len(operands) == 2:
            return f"simt_mbarrier_init({self.at(operands[0])}, {self.value(operands[1])}, SIMT_HERE);"
        if form == "inval" and len(operands) == 1:
            return f"simt_mbarrier_inval({self.at(operands[0])}, SIMT_HERE);"
        if form in ("arrive", "arrive release cta") and len(operands) in (2, 3):
            state = "" if operands[0] == "_" else f"{self.register(operands[0])} = "
            return f"{state}simt_mbarrier_arrive({self.at(operands[1])}, {self.value(operands[2]) if len(operands) > 2 else 1}, SIMT_HERE);"
        if re.fullmatch("(try|test)_wait parity( acquire cta)?", form) and len(operands) == 3:
            parks = "true" if form.startswith("try") else "false"
            return f"{self.register(operands[0])} = simt_mbarrier_wait({self.at(operands[1])}, {self.value(operands[2])}, {parks}, SIMT_HERE);"
        raise Unknown("mbarrier." + ".".join(modifiers))

    def do_setmaxnreg(self, modifiers, operands):
        if modifiers[0] not in ("inc", "dec") or modifiers[1:] != ["sync", "aligned", "u32"]:
            raise Unknown("setmaxnreg." + ".".join(modifiers))
        count = int(operands[0])
        if count not in range(24, 257, 8):
            raise Unknown("setmaxnreg of other than 24, 32, ... 256 registers")
        return f"simt_set_registers({count}, {'true' if modifiers[0] == 'inc' else 'false'}, SIMT_HERE);"

    def do_prefetch(self, modifiers, operands):
        return ";"

    # ---- with other threads ----

    def do_bar(self, modifiers, operands):
        modifiers = [m for m in modifiers if m not in ("cta", "aligned")]
        if modifiers == ["warp", "sync"]:
            return f"simt_warp_barrier({self.value(operands[0])}, SIMT_HERE);"
        if modifiers == ["sync"]:
            return f"simt_barrier({self.value(operands[0])}, {self.value(operands[1]) if len(operands) > 1 else 0}, SIMT_HERE);"
        if modifiers[0] == "red" and len(operands) == 3:
            to, barrier, predicate = self.register(operands[0]), self.value(operands[1]), self.value(operands[2])
            count = f"simt_barrier_count({barrier}, {'!' if modifiers[1] == 'and' else ''}{predicate}, SIMT_HERE)"
            return f"{to} = {count}{ {'popc': '', 'or': ' != 0', 'and': ' == 0'}[modifiers[1]]};"
        raise Unknown("bar." + ".".join(modifiers))

    do_barrier = do_bar

    def do_shfl(self, modifiers, operands):
        to, _, inside = operands[0].partition("|")
        arguments = ", ".join(self.value(each) for each in operands[1:5])
        also = f" {self.register(inside)} = inside;" if inside else ""
        return "{ bool inside; " + f"{self.register(to)} = simt_shuffle({SHUFFLES[modifiers[1]]}, {arguments}, &inside, SIMT_HERE);{also}" + " }"

    def do_vote(self, modifiers, operands):
        return f"{self.register(operands[0])} = simt_vote({VOTES[modifiers[1]]}, {self.value(operands[1])}, {self.value(operands[2])}, SIMT_HERE);"

    def do_ldmatrix(self, modifiers, operands):
        to = self.registers(operands[0])
        if "m8n8" not in modifiers or modifiers[-1] != "b16" or not {"shared", "shared::cta"} & set(modifiers):
            raise Unknown("ldmatrix." + ".".join(modifiers))
        call = f"simt_ldmatrix({len(to)}, {'true' if 'trans' in modifiers else 'false'}, to, {self.at(operands[1])}, SIMT_HERE);"
        return f"{{ uint32_t to[{len(to)}]; {call} " + " ".join(f"{r} = to[{i}];" for i, r in enumerate(to) if r) + " }"

    def do_mma(self, modifiers, operands):
        kind = PRODUCTS.get(".".join(modifiers[2:]))
        if modifiers[:2] != ["sync", "aligned"] or not kind:
            raise Unknown("mma." + ".".join(modifiers))
        arrays = [f"(const uint32_t[]){{{', '.join(self.values(each))}}}" for each in operands[1:]]
        stores = " ".join(f"{r} = to[{i}];" for i, r in enumerate(self.registers(operands[0])) if r)
        return f"{{ uint32_t to[4]; simt_mma({kind}, to, {', '.join(arrays)}, SIMT_HERE); {stores} }}"

    def do_cp(self, modifiers, operands):
        if found := re.fullmatch(r"async mbarrier arrive( noinc)? shared(::cta)? b64", " ".join(modifiers)):
            return f"simt_copy_async_arrive({self.at(operands[0])}, {'false' if found[1] else 'true'}, SIMT_HERE);"
        if modifiers[:1] != ["async"] or "bulk" in modifiers or "mbarrier" in modifiers:
            raise Unknown("cp." + ".".join(modifiers))
        if modifiers[1] == "commit_group":
            return "simt_copy_async_commit();"
        if modifiers[1] == "wait_group":
            return f"simt_copy_async_wait({self.value(operands[0])});"
        if modifiers[1] == "wait_all":
            return "simt_copy_async_commit(); simt_copy_async_wait(0);"
        size = self.value(operands[2])
        return f"simt_copy_async({self.at(operands[0])}, {self.at(operands[1])}, {size}, {self.value(operands[3]) if len(operands) > 3 else size}, SIMT_HERE);"

    # ---- declarations, places ----

    def declare(self, text):
        """Whether a statement was a declaration."""
        if found := re.fullmatch(r"\.reg \.(\w+) (%?[\w$]+)<(\d+)>", text):
            names = [f"{found[2]}{i}" for i in range(int(found[3]))]
        elif found := re.fullmatch(r"\.reg \.(\w+) (.*)", text):
            names = split(found[2])
        elif found := re.fullmatch(r"\.(shared|local)(?: \.align (\d+))? \.(\w+) ([\w$]+)(?:\[(\d+)\])?", text):
            table, total = (self.shared, "shared_bytes") if found[1] == "shared" else (self.local, "local_bytes")
            size = width(found[3]) // 8
            self.place_in(table, total, found[4], int(found[2] or size), size * int(found[5] or 1))
            return True
        elif text.startswith(".pragma"):
            return True
        elif text.startswith("."):
            raise Unknown(text)
        else:
            return False
        self.names |= set(names)
        names = [name for name in names if name not in self.tracked]
        poison = POISON["pred" if found[1] == "pred" else str(width(found[1]))]
        for start in range(0, len(names), 64):
            self.emit(f"{unsigned(found[1])} {', '.join(f'{identifier(n)} = {poison}' for n in names[start : start + 64])};")
        return True

    def move_to(self, text):
        """A .loc: of a place in the toolkit's headers, the line that used it."""
        places = re.findall(r"(?:\.loc|inlined_at) (\d+) (\d+)", text)
        for file, line in places:
            path = self.module.files.get(file)
            if path and path.endswith((".cu", ".cuh")) and line != "0":
                self.place = (path, line)
                return

    def emit(self, line):
        if self.place:
            self.lines.append(f'#line {self.place[1]} "{self.place[0]}"')
        self.lines.append(line)

    def translate(self, body):
        for text in statements(body):
            if text.startswith(".loc "):
                self.move_to(text)
            elif text in "{}":
                self.emit(text)
            elif text.endswith(":"):
                self.seen.add(text[:-1])
                self.emit(f"{identifier(text[:-1])}:;")
            elif text and not self.declare(text):
                guard = ""
                if found := re.match(r"@(!?[%\w$]+)\s+(.*)", text):
                    guard, text = f"if ({self.value(found[1])}) ", found[2]
                try:
                    before, behind = self.checks(text)
                    self.emit(f"{guard}{{ {' '.join(filter(None, (before, self.instruction(text), behind)))} }}")
                except Unknown as unknown:
                    place = f"{self.place[0]}:{self.place[1]}" if self.place else self.name
                    raise Unknown(f"{place}: the emulator does not know {unknown}: {text}") from None
                except (IndexError, KeyError, ValueError):
                    place = f"{self.place[0]}:{self.place[1]}" if self.place else self.name
                    raise Unknown(f"{place}: the emulator does not know {text}") from None

    def write(self):
        self.dynamic_offset = -(-self.shared_bytes // 16) * 16
        yield f"static void kernel_{identifier(self.name)}(const uint8_t *parameters) {{"
        yield f"const uint32_t dynamic_shared = {self.dynamic_offset};"
        yield "(void)dynamic_shared;"
        if self.local_bytes:
            yield f"_Alignas(16) uint8_t local[{self.local_bytes}];"
            yield "simt_self.local = local;"
            yield "simt_self.local_bytes = sizeof local;"
        if self.has_wgmma:
            yield "uint32_t fences = 0;"
            yield f"simt_register registers[{max(len(self.tracked), 1)}];"
            yield f"for (uint32_t i = 0; i < {len(self.tracked)}; i++) registers[i] = (simt_register){{.value = {POISON['32']}}};"
        yield from self.lines
        yield "}"


def unsigned(ptx_type):
    return "bool" if ptx_type == "pred" else f"uint{width(ptx_type)}_t"


def translate(text):
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S)
    module = Module(text)
    kernels = []
    for found in re.finditer(r"^(?:\.visible |\.weak )?\.entry ([\w$]+)\s*\(([^)]*)\)([^{]*)\{", text, re.M):
        kernel = Kernel(module, found[1], found[2])
        bound = re.search(r"\.maxntid\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?", found[3])
        kernel.most_threads = int(bound[1]) * int(bound[2] or 1) * int(bound[3] or 1) if bound else 1024
        at_once = re.search(r"\.minnctapersm\s+(\d+)", found[3])
        kernel.least_blocks = int(at_once[1]) if at_once else 1
        body = text[found.end() : closing_brace(text, found.end())]
        kernel.track(body)
        kernel.translate(body)
        kernels.append(kernel)
    yield '#include "tests/cuda/ptx/instructions.h"'
    yield '#include "tests/cuda/simt/simt.h"'
    yield from module.lines
    for kernel in kernels:
        yield from kernel.write()
    yield '#line 1 "registration"'
    for kernel in kernels:
        if kernel.parameters:
            yield f"static const simt_parameter parameters_{identifier(kernel.name)}[] = {{{', '.join(f'{{{at}, {size}}}' for at, size in kernel.parameters.values())}}};"
    yield "static const simt_kernel kernels[] = {"
    for kernel in kernels:
        parameters = f"parameters_{identifier(kernel.name)}" if kernel.parameters else "0"
        yield f'{{"{kernel.name}", kernel_{identifier(kernel.name)}, {kernel.dynamic_offset}, {kernel.most_threads}, {kernel.least_blocks}, {len(kernel.parameters)}, {parameters}}},'
    yield "{0}};"
    yield "__attribute__((constructor)) static void add(void) {"
    yield "simt_add_kernels(kernels);"
    for name, (variable, size, constant) in module.variables.items():
        yield f'simt_add_variable("{name}", {variable}, {size}, {"true" if constant else "false"});'
    yield "}"


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as file:
        text = file.read()
    try:
        lines = list(translate(text))
    except Unknown as unknown:
        sys.exit(f"{unknown}" if ":" in str(unknown) else f"{os.path.basename(sys.argv[1])}: the emulator does not know {unknown}")
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
