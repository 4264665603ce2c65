"""Small kernels as LLVM IR, for the tests of linker, loader and listing: real machine code without our compiler."""

from __future__ import annotations

_HEAD = 'target triple = "amdgcn-amd-amdhsa"\n'
_DECLARE = """
declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.workgroup.id.x()
declare i32 @llvm.amdgcn.workgroup.id.y()
declare void @llvm.amdgcn.s.barrier()
"""
# Without hidden arguments and without the inputs that the kernels don't read, as our compiler does it.
_ATTRIBUTES = (
    'attributes #0 = { "amdgpu-flat-work-group-size"="THREADS,THREADS" "uniform-work-group-size"="true" "amdgpu-no-implicitarg-ptr" '
    '"amdgpu-no-dispatch-ptr" "amdgpu-no-queue-ptr" "amdgpu-no-dispatch-id" "amdgpu-no-heap-ptr" "amdgpu-no-hostcall-ptr" '
    '"amdgpu-no-lds-kernel-id" "amdgpu-no-multigrid-sync-arg" "amdgpu-no-default-queue" "amdgpu-no-completion-action" }\n'
)


def _module(body: str, threads: int = 64, version: int = 500, metadata: str = "") -> str:
    flags = f'!llvm.module.flags = !{{!0}}\n!0 = !{{i32 1, !"amdhsa_code_object_version", i32 {version}}}\n'
    return _HEAD + body + _DECLARE + _ATTRIBUTES.replace("THREADS", str(threads)) + (metadata or flags)


def vector_add(version: int = 500) -> str:
    """out[i] = a[i] + b[i] for i < n, in workgroups of 64."""
    return _module(
        """
define amdgpu_kernel void @vector_add(ptr addrspace(1) noalias %a, ptr addrspace(1) noalias %b, ptr addrspace(1) noalias %out, i32 %n) #0 {
entry:
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %g = call i32 @llvm.amdgcn.workgroup.id.x()
  %base = mul i32 %g, 64
  %i = add i32 %base, %t
  %inside = icmp slt i32 %i, %n
  br i1 %inside, label %body, label %exit
body:
  %pa = getelementptr float, ptr addrspace(1) %a, i32 %i
  %pb = getelementptr float, ptr addrspace(1) %b, i32 %i
  %po = getelementptr float, ptr addrspace(1) %out, i32 %i
  %x = load float, ptr addrspace(1) %pa
  %y = load float, ptr addrspace(1) %pb
  %s = fadd float %x, %y
  store float %s, ptr addrspace(1) %po
  br label %exit
exit:
  ret void
}
""",
        version=version,
    )


def lds_reverse() -> str:
    """Reverses 256 floats through LDS, in a workgroup of 256: several waves, a barrier, and a loop that sums what it passes."""
    return _module(
        """
@tile = internal unnamed_addr addrspace(3) global [256 x float] poison, align 16
define amdgpu_kernel void @reverse(ptr addrspace(1) noalias %in, ptr addrspace(1) noalias %out, i32 %rounds) #0 {
entry:
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %pi = getelementptr float, ptr addrspace(1) %in, i32 %t
  %x = load float, ptr addrspace(1) %pi
  %pl = getelementptr float, ptr addrspace(3) @tile, i32 %t
  store float %x, ptr addrspace(3) %pl
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %flipped = sub i32 255, %t
  %pr = getelementptr float, ptr addrspace(3) @tile, i32 %flipped
  br label %loop
loop:
  %k = phi i32 [ 0, %entry ], [ %next, %loop ]
  %sum = phi float [ 0.0, %entry ], [ %more, %loop ]
  %y = load volatile float, ptr addrspace(3) %pr
  %more = fadd float %sum, %y
  %next = add i32 %k, 1
  %again = icmp slt i32 %next, %rounds
  br i1 %again, label %loop, label %exit, !prof !1
exit:
  %po = getelementptr float, ptr addrspace(1) %out, i32 %t
  store float %more, ptr addrspace(1) %po
  ret void
}
""",
        threads=256,
        metadata="""
!llvm.module.flags = !{!0}
!0 = !{i32 1, !"amdhsa_code_object_version", i32 500}
!1 = !{!"branch_weights", i32 2000, i32 1}
""",
    )


def wmma_loop() -> str:
    """One wave: acc += A_k · B_k (f16, 16x16x16) over `steps` tiles, then an epilogue with half, packed and transcendental operations."""
    return _module(
        """
define amdgpu_kernel void @wmma_loop(ptr addrspace(1) noalias %a, ptr addrspace(1) noalias %b, ptr addrspace(1) noalias %c, i32 %steps) #0 {
entry:
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  br label %loop
loop:
  %k = phi i32 [ 0, %entry ], [ %next, %loop ]
  %acc = phi <8 x float> [ zeroinitializer, %entry ], [ %new, %loop ]
  %row = shl i32 %k, 5
  %i = add i32 %row, %t
  %pa = getelementptr <16 x half>, ptr addrspace(1) %a, i32 %i
  %pb = getelementptr <16 x half>, ptr addrspace(1) %b, i32 %i
  %x = load <16 x half>, ptr addrspace(1) %pa
  %y = load <16 x half>, ptr addrspace(1) %pb
  %new = call <8 x float> @llvm.amdgcn.wmma.f32.16x16x16.f16.v8f32.v16f16(<16 x half> %x, <16 x half> %y, <8 x float> %acc)
  %next = add i32 %k, 1
  %again = icmp slt i32 %next, %steps
  br i1 %again, label %loop, label %exit
exit:
  %scaled = fmul <8 x float> %new, splat (float 0x3FB99999A0000000)
  %e = call <8 x float> @llvm.exp2.v8f32(<8 x float> %scaled)
  %h = fptrunc <8 x float> %e to <8 x half>
  %m = fmul <8 x half> %h, splat (half 3.0)
  %n = fneg <8 x half> %m
  %d = call <8 x half> @llvm.maxnum.v8f16(<8 x half> %n, <8 x half> %h)
  %po = getelementptr <8 x half>, ptr addrspace(1) %c, i32 %t
  store <8 x half> %d, ptr addrspace(1) %po
  ret void
}
declare <8 x float> @llvm.amdgcn.wmma.f32.16x16x16.f16.v8f32.v16f16(<16 x half>, <16 x half>, <8 x float>)
declare <8 x float> @llvm.exp2.v8f32(<8 x float>)
declare <8 x half> @llvm.maxnum.v8f16(<8 x half>, <8 x half>)
""",
        threads=32,
    )


def tables() -> str:
    """Two kernels that read constant tables by PC-relative addresses: one of 20 bytes, one mergeable one of 32, one of doubles."""
    return _module("""
@primes = internal unnamed_addr addrspace(4) constant [5 x i32] [i32 2, i32 3, i32 5, i32 7, i32 1013], align 4
@weights = internal unnamed_addr addrspace(4) constant [8 x i32] [i32 8, i32 7, i32 6, i32 5, i32 4, i32 3, i32 2, i32 1], align 32
@halves = internal addrspace(4) constant [3 x double] [double 0.5, double 1.5, double 2.5], align 16
define amdgpu_kernel void @lookup(ptr addrspace(1) noalias %out, i32 %n) #0 {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %p = getelementptr i32, ptr addrspace(4) @primes, i32 %n
  %v = load i32, ptr addrspace(4) %p
  %q = getelementptr i32, ptr addrspace(4) @weights, i32 %t
  %w = load i32, ptr addrspace(4) %q
  %s = mul i32 %v, %w
  %o = getelementptr i32, ptr addrspace(1) %out, i32 %t
  store i32 %s, ptr addrspace(1) %o
  ret void
}
define amdgpu_kernel void @halve(ptr addrspace(1) noalias %out, i32 %n) #0 {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %p = getelementptr double, ptr addrspace(4) @halves, i32 %t
  %v = load double, ptr addrspace(4) %p
  %f = sitofp i32 %n to double
  %s = fmul double %v, %f
  %o = getelementptr double, ptr addrspace(1) %out, i32 %t
  store double %s, ptr addrspace(1) %o
  ret void
}
""")


def many_kernels(count: int) -> str:
    """`count` kernels in one module, so that the hash tables have several buckets."""
    head = "define amdgpu_kernel void @kernel_{0}(ptr addrspace(1) %out) #0 {{\n"
    body = "  store i32 {1}, ptr addrspace(1) %out\n  ret void\n}}\n"
    return _module("".join((head + body).format(i, 1000 + i) for i in range(count)))


def with_lines(file: str = "kernels.py", folder: str = "/home/user/project") -> str:
    """A kernel with debug locations: lines 12, 13 and 20 of a Python file, as our compiler writes them."""
    return _module(
        """
define amdgpu_kernel void @located(ptr addrspace(1) noalias %a, ptr addrspace(1) noalias %out) #0 !dbg !5 {
entry:
  %t = call i32 @llvm.amdgcn.workitem.id.x(), !dbg !7
  %pa = getelementptr float, ptr addrspace(1) %a, i32 %t, !dbg !7
  %x = load float, ptr addrspace(1) %pa, !dbg !7
  %y = fmul float %x, 3.0, !dbg !8
  %po = getelementptr float, ptr addrspace(1) %out, i32 %t, !dbg !9
  store float %y, ptr addrspace(1) %po, !dbg !9
  ret void, !dbg !9
}
""",
        metadata=f"""
!llvm.module.flags = !{{!0, !1, !2}}
!llvm.dbg.cu = !{{!3}}
!0 = !{{i32 1, !"amdhsa_code_object_version", i32 500}}
!1 = !{{i32 2, !"Debug Info Version", i32 3}}
!2 = !{{i32 7, !"Dwarf Version", i32 5}}
!3 = distinct !DICompileUnit(language: DW_LANG_Python, file: !4, isOptimized: true, runtimeVersion: 0, emissionKind: LineTablesOnly)
!4 = !DIFile(filename: "{file}", directory: "{folder}")
!5 = distinct !DISubprogram(name: "located", scope: !4, file: !4, line: 10, type: !6, scopeLine: 10, spFlags: DISPFlagDefinition, unit: !3)
!6 = !DISubroutineType(types: !{{}})
!7 = !DILocation(line: 12, column: 5, scope: !5)
!8 = !DILocation(line: 13, column: 9, scope: !5)
!9 = !DILocation(line: 20, column: 5, scope: !5)
""",
    )
