"""What LLVM emits for RDNA3 is what the simulator knows: a corpus of IR over operations, types and vector widths, compiled and looked up.

Combinations that LLVM's AMDGPU backend can't select would end the process; none is here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tessera import llvm
from tessera.runtime.simulator import shapes
from tessera.runtime.simulator.asmtext import parse_instruction
from tessera.runtime.simulator.semantics import Generation

INTEGERS = ("i8", "i16", "i32", "i64")
FLOATS = ("half", "bfloat", "float", "double")
MANGLED = {"half": "f16", "bfloat": "bf16", "float": "f32", "double": "f64"}
# What the lifter, the memory and the matrix modules take care of.
ELSEWHERE = re.compile(
    r"(s_(load|store|buffer|waitcnt|wait_|clause|delay_alu|endpgm|branch|cbranch|nop|sleep|barrier|getpc|setprio|sendmsg|code_end|set_inst)"
    r"|v_wmma|global_|buffer_|flat_|scratch_|ds_)"
)

KERNEL = """define amdgpu_kernel void @{name}(ptr addrspace(1) %a, ptr addrspace(1) %b, ptr addrspace(1) noalias %c, {t} %s, i32 %k) {{
 %lane = call i32 @llvm.amdgcn.workitem.id.x()
 %i = zext i32 %lane to i64
 %pa = getelementptr {t}, ptr addrspace(1) %a, i64 %i
 %pb = getelementptr {t}, ptr addrspace(1) %b, i64 %i
 %pc = getelementptr {r}, ptr addrspace(1) %c, i64 %i
 %x = load {t}, ptr addrspace(1) %pa
 %y = load {t}, ptr addrspace(1) %pb
{body}
 store {r} %r, ptr addrspace(1) %pc
 ret void
}}
"""


def vector_of(element: str, width: int) -> str:
    return element if width == 1 else f"<{width} x {element}>"


def mangle(type_: str) -> str:
    match = re.fullmatch(r"<(\d+) x (\w+)>", type_)
    return f"v{match[1]}{MANGLED.get(match[2], match[2])}" if match else MANGLED.get(type_, type_)


def constant(type_: str, value: str) -> str:
    return f"splat ({type_.split(' x ')[1][:-1]} {value})" if type_[0] == "<" else value


Entry = tuple[str, str, str, tuple[str, ...]]  # type of the operands, of the result, body, declarations


def call(type_: str, name: str, *operands: str, result: str | None = None) -> tuple[str, str]:
    """An intrinsic's call and its declaration; operands are typed."""
    types = ", ".join(o.rsplit(" ", 1)[0] if "splat" not in o else o.split(" splat")[0] for o in operands)
    return f"call {result or type_} @llvm.{name}({', '.join(operands)})", f"declare {result or type_} @llvm.{name}({types})"


def integers(width: int) -> Iterator[Entry]:
    for element in INTEGERS:
        t = vector_of(element, width)
        for op in ("add", "sub", "mul", "and", "or", "xor", "shl", "lshr", "ashr"):
            yield t, t, f" %r = {op} {t} %x, %y", ()
            yield t, t, f" %q = {op} {t} %s, {constant(t, '11')}\n %r = {op} {t} %x, %q", ()
        if width == 1:
            for op in ("sdiv", "udiv", "srem", "urem"):
                yield t, t, f" %r = {op} {t} %x, %y", ()
                yield t, t, f" %q = {op} {t} %s, 10\n %r = add {t} %q, %x", ()
        for predicate in ("eq", "ne", "ugt", "uge", "ult", "ule", "sgt", "sge", "slt", "sle"):
            bit = vector_of("i1", width)
            yield t, t, f" %q = icmp {predicate} {t} %x, %y\n %r = select {bit} %q, {t} %x, {t} %s", ()
            yield t, t, f" %q = icmp {predicate} {t} %s, {constant(t, '3')}\n %r = select {bit} %q, {t} %x, {t} %y", ()
        for name in ("umin", "umax", "smin", "smax", "uadd.sat", "sadd.sat", "usub.sat", "ssub.sat"):
            text, declaration = call(t, f"{name}.{mangle(t)}", f"{t} %x", f"{t} %y")
            yield t, t, f" %r = {text}", (declaration,)
            if name[1:] in ("min", "max"):
                again, _ = call(t, f"{name}.{mangle(t)}", f"{t} %q", f"{t} %s")
                yield t, t, f" %q = {text}\n %r = {again}", (declaration,)
        for name in ("ctpop", "bitreverse"):
            text, declaration = call(t, f"{name}.{mangle(t)}", f"{t} %x")
            scalar, _ = call(t, f"{name}.{mangle(t)}", f"{t} %s")
            yield t, t, f" %p = {text}\n %q = {scalar}\n %r = xor {t} %p, %q", (declaration,)
        for name in ("ctlz", "cttz", "abs"):
            text, declaration = call(t, f"{name}.{mangle(t)}", f"{t} %x", "i1 false")
            scalar, _ = call(t, f"{name}.{mangle(t)}", f"{t} %s", "i1 false")
            yield t, t, f" %p = {text}\n %q = {scalar}\n %r = xor {t} %p, %q", (declaration,)
        for name in ("fshl", "fshr"):
            text, declaration = call(t, f"{name}.{mangle(t)}", f"{t} %x", f"{t} %y", f"{t} %s")
            yield t, t, f" %r = {text}", (declaration,)
        for other in INTEGERS:
            to = vector_of(other, width)
            if int(other[1:]) > int(element[1:]):
                for cast in ("zext", "sext"):
                    yield t, to, f" %p = {cast} {t} %x to {to}\n %q = {cast} {t} %y to {to}\n %r = mul {to} %p, %q", ()
            elif int(other[1:]) < int(element[1:]):
                yield t, to, f" %r = trunc {t} %x to {to}", ()
        for other in FLOATS:
            to = vector_of(other, width)
            for cast in ("sitofp", "uitofp"):
                yield t, to, f" %r = {cast} {t} %x to {to}", ()
        for first, second in (("mul", "add"), ("add", "add"), ("xor", "add"), ("xor", "xor"), ("or", "or"), ("and", "or")):
            yield t, t, f" %q = {first} {t} %x, %y\n %r = {second} {t} %q, %s", ()
        three = constant(t, "3")
        yield t, t, f" %q = shl {t} %x, {three}\n %r = add {t} %q, %y", ()
        yield t, t, f" %q = add {t} %x, %y\n %r = shl {t} %q, {three}", ()


def floats(width: int) -> Iterator[Entry]:
    size = {"half": 16, "bfloat": 16, "float": 32, "double": 64}
    for element in FLOATS:
        t, bit = vector_of(element, width), vector_of("i1", width)
        for op in ("fadd", "fsub", "fmul", "fdiv"):
            yield t, t, f" %r = {op} {t} %x, %y", ()
            yield t, t, f" %r = {op} {t} {constant(t, '3.0')}, %x", ()
            yield t, t, f" %r = {op} fast {t} %x, %s", ()
        yield t, t, f" %q = fmul contract {t} %x, %y\n %r = fadd contract {t} %q, {constant(t, '3.0')}", ()
        yield t, t, f" %q = fmul contract {t} %x, {constant(t, '3.0')}\n %r = fadd contract {t} %q, %y", ()
        yield t, t, f" %r = fneg {t} %x", ()
        unary = ["fabs", "sqrt", "floor", "ceil", "trunc", "rint", "roundeven", "round", "canonicalize"]
        if element != "double" and width == 1:
            unary += ["exp2", "log2", "exp", "log", "sin", "cos"]
        for name in unary:
            text, declaration = call(t, f"{name}.{mangle(t)}", f"{t} %x")
            yield t, t, f" %r = {text}", (declaration,)
            if width == 1 and element in ("half", "float") and name in ("floor", "ceil", "trunc", "rint"):
                scalar, _ = call(t, f"{name}.{mangle(t)}", f"{t} %s")
                yield t, t, f" %q = {scalar}\n %r = fadd {t} %q, %x", (declaration,)
        for name in ("minnum", "maxnum", "minimum", "maximum", "copysign"):
            text, declaration = call(t, f"{name}.{mangle(t)}", f"{t} %x", f"{t} %y")
            yield t, t, f" %r = {text}", (declaration,)
        text, declaration = call(t, f"fma.{mangle(t)}", f"{t} %x", f"{t} %y", f"{t} %s")
        yield t, t, f" %r = {text}", (declaration,)
        for predicate in ("oeq", "ogt", "oge", "olt", "ole", "one", "ord", "ueq", "ugt", "uge", "ult", "ule", "une", "uno"):
            yield t, t, f" %q = fcmp {predicate} {t} %x, %y\n %r = select {bit} %q, {t} %x, {t} %s", ()
            if width == 1:
                skip = " br i1 %q, label %then, label %end\nthen:\n store {t} %x, ptr addrspace(1) %pc\n br label %end\nend:\n"
                yield t, t, f" %q = fcmp {predicate} {t} %s, 2.0\n{skip.format(t=t)} %r = fadd {t} %x, %y", ()
        for other in INTEGERS:
            to = vector_of(other, width)
            for name in ("fptosi", "fptoui"):
                yield t, to, f" %r = {name} {t} %x to {to}", ()
                text, declaration = call(t, f"{name}.sat.{mangle(to)}.{mangle(t)}", f"{t} %x", result=to)
                yield t, to, f" %r = {text}", (declaration,)
        for other in FLOATS:
            to = vector_of(other, width)
            if size[other] > size[element]:
                wide, declaration = call(to, f"fma.{mangle(to)}", f"{to} %p", f"{to} %q", f"{to} %p")
                yield t, to, f" %p = fpext {t} %x to {to}\n %q = fpext {t} %y to {to}\n %r = {wide}", (declaration,)
            elif size[other] < size[element]:
                yield t, to, f" %r = fptrunc {t} %x to {to}", ()


def device_intrinsics() -> Iterator[Entry]:
    def entry(t: str, name: str, *operands: str, result: str | None = None) -> Entry:
        text, declaration = call(t, f"amdgcn.{name}", *operands, result=result)
        return t, result or t, f" %r = {text}", (declaration,)

    x, y, s, k = "i32 %x", "i32 %y", "i32 %s", "i32 %k"
    yield entry("i32", "readfirstlane.i32", x)
    yield entry("i32", "readlane.i32", x, k)
    yield entry("i32", "writelane.i32", k, s, x)
    for name in ("permlane16.i32", "permlanex16.i32"):
        yield entry("i32", name, x, y, s, k, "i1 true", "i1 false")
        yield entry("i32", name, x, y, "i32 1985229328", "i32 -19088744", "i1 false", "i1 true")
    yield entry("i32", "permlane64.i32", x)
    yield entry("i32", "perm", x, y, s)
    yield entry("i32", "alignbyte", x, y, s)
    yield entry("i32", "mbcnt.lo", "i32 -1", x)
    yield entry("i32", "mbcnt.hi", "i32 -1", x)
    for control in (0x1B, 0x101, 0x111, 0x121, 0x140, 0x141, 0x150, 0x161):
        t, r, body, declarations = entry("i32", "update.dpp.i32", y, x, f"i32 {control}", "i32 15", "i32 15", "i1 true")
        yield t, r, body.replace("%r", "%q") + "\n %r = add i32 %q, %x", declarations
    yield entry("i32", "mov.dpp8.i32", x, "i32 11259375")
    for name in ("sbfe.i32", "ubfe.i32", "sad.u8", "sad.u16", "sad.hi.u8", "lerp", "msad.u8"):
        yield entry("i32", name, x, y, s)
    for name, result in (("cvt.pkrtz", "<2 x half>"), ("cvt.pknorm.i16", "<2 x i16>"), ("cvt.pknorm.u16", "<2 x i16>")):
        yield entry("float", name, "float %x", "float %y", result=result)
    for name in ("cvt.pk.i16", "cvt.pk.u16"):
        yield entry("i32", name, x, y, result="<2 x i16>")
    for t in ("half", "float", "double"):
        for name in ("rcp", "rsq", "sqrt", "fract", "frexp.mant") + (() if t == "double" else ("sin", "cos", "exp2", "log")):
            yield entry(t, f"{name}.{mangle(t)}", f"{t} %x")
        yield entry(t, f"class.{mangle(t)}", f"{t} %x", k, result="i1")
    for t in ("half", "float"):
        yield entry(t, f"fmed3.{mangle(t)}", f"{t} %x", f"{t} %y", f"{t} %s")
    yield entry("float", "fma.legacy", "float %x", "float %y", "float %s")
    yield entry("float", "fmul.legacy", "float %x", "float %y")
    pairs = "<2 x half> %x", "<2 x half> %y"
    yield entry("<2 x half>", "fdot2", *pairs, "float 1.0", "i1 false", result="float")
    yield entry("<2 x half>", "fdot2.f16.f16", *pairs, "half 1.0", result="half")
    pairs = "<2 x bfloat> %x", "<2 x bfloat> %y"
    yield entry("<2 x bfloat>", "fdot2.f32.bf16", *pairs, "float 1.0", "i1 true", result="float")
    yield entry("<2 x bfloat>", "fdot2.bf16.bf16", *pairs, "bfloat 1.0", result="bfloat")
    for name in ("sudot4", "sudot8"):
        yield entry("i32", name, "i1 true", x, "i1 false", y, s, "i1 true")
    for name in ("udot4", "udot8"):
        yield entry("i32", name, x, y, s, "i1 false")
    for count in (4, 16):
        for element in ("i32", "float"):
            t = f"<{count} x {element}>"
            yield t, element, f" %r = extractelement {t} %x, i32 %k", ()
            yield t, t, f" %e = extractelement {t} %y, i32 0\n %r = insertelement {t} %x, {element} %e, i32 %k", ()


def modules(entries: list[Entry], size: int) -> Iterator[str]:
    for start in range(0, len(entries), size):
        declarations = {"declare i32 @llvm.amdgcn.workitem.id.x()"}
        kernels = []
        for number, (t, r, body, needed) in enumerate(entries[start : start + size]):
            declarations.update(needed)
            kernels.append(KERNEL.format(name=f"k{number}", t=t, r=r, body=body))
        yield "\n".join([f'target triple = "{llvm.AMDGPU_TRIPLE}"', *sorted(declarations), *kernels])


def emitted(entries: list[Entry], arch: str, optimize: int) -> dict[str, str]:
    """Mnemonic to an example, of all that LLVM emits."""
    found: dict[str, str] = {}
    for text in modules(entries, 60):
        assembly = llvm.device_assembly(text, arch, optimize=optimize, codegen=3 if optimize > 1 else 1)
        for line in assembly.splitlines():
            code = line.split(";")[0].strip()
            if not re.match(r"(s|v|global|ds|buffer|flat|scratch)_\w+( |$)", code):
                continue
            for half in code.split(" :: "):
                name = re.sub(r"_(e64_dpp|e32|e64|dpp|sdwa)$", "", half.split()[0]).replace("v_dual_", "v_")
                found.setdefault(name, half)
    return found


def unknown(found: dict[str, str]) -> list[str]:
    missing = []
    for name, example in found.items():
        if ELSEWHERE.match(name):
            continue
        head = 0x80000000 if example.startswith("s_") else 0xD5000000
        if not shapes.known(parse_instruction(example, 0, (head, 0)), Generation.GFX11):
            missing.append(example)
    return missing


def test_what_llvm_emits_is_known() -> None:
    entries = [*integers(1), *floats(1), *device_intrinsics()]
    found = emitted(entries, "gfx1151", 1)
    assert unknown(found) == []
    assert sum(name[:2] in ("v_", "s_") for name in found) > 250


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["gfx1100", "gfx1151"])
@pytest.mark.parametrize("optimize", [1, 3])
def test_what_llvm_emits_for_vectors_is_known(arch: str, optimize: int) -> None:
    entries = [*device_intrinsics(), *(e for width in (1, 2, 4) for make in (integers, floats) for e in make(width))]
    assert unknown(emitted(entries, arch, optimize)) == []
